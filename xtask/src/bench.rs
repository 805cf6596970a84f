//! Every benchmark of the workspace in one table.
//!
//! 1. Each `[[bench]]` target runs with `cargo bench` and prints a line of JSON for each of its
//!    rows.
//! 2. The rows are printed as one table and written to `bench.json` in the target folder.
//!
//! **Invariants**: limit and rival of a row were measured by the same benchmark in the same run;
//! ratios are computed here and nowhere else.
//!
//! **Not here**: measuring. A benchmark run alone prints the same lines.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::metadata;

/// One measurement; more is better.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Row {
    name: String,
    unit: String,
    ours: f64,
    /// What the machine can do at best: a plain copy, the bare socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limit: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rival: Option<f64>,
    /// For one operation, without copies of its payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    instructions: Option<f64>,
}

#[derive(Serialize)]
struct Report {
    rows: Vec<Row>,
}

/// Runs the benchmarks and reports; true when each of them ended well.
///
/// # Errors
/// When a benchmark cannot be started, prints a row that is none, or the report cannot be written.
pub fn run(workspace: &Path) -> Result<bool> {
    let metadata = metadata::read(workspace)?;
    let mut report = Report { rows: Vec::new() };
    let mut failed = Vec::new();
    for package in metadata.members() {
        for bench in package.benches() {
            println!("== {} {bench}", package.name);
            if !run_bench(workspace, &package.name, bench, &mut report.rows)? {
                failed.push(format!("{} {bench}", package.name));
            }
        }
    }
    print!("\n{}", table(&report.rows));
    let path = metadata.target_directory.join("bench.json");
    let json = serde_json::to_string_pretty(&report)? + "\n";
    std::fs::write(&path, json).with_context(|| format!("writing {}", path.display()))?;
    println!("\nwritten to {}", path.display());
    failed.iter().for_each(|bench| println!("failed: {bench}"));
    Ok(failed.is_empty())
}

fn run_bench(workspace: &Path, package: &str, bench: &str, rows: &mut Vec<Row>) -> Result<bool> {
    let mut child = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["bench", "--quiet", "--package", package, "--bench", bench])
        .current_dir(workspace)
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {package} {bench}"))?;
    let stdout = child.stdout.take().expect("stdout is piped");
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        match line.starts_with('{') {
            true => rows.push(serde_json::from_str(&line).with_context(|| line.clone())?),
            false => println!("{line}"),
        }
    }
    Ok(child.wait()?.success())
}

fn table(rows: &[Row]) -> String {
    let mut table = format!(
        "{:<22} {:>12} {:<6} {:>12} {:>6} {:>12} {:>6} {:>12}\n",
        "", "ours", "unit", "limit", "ratio", "rival", "ratio", "instructions"
    );
    for row in rows {
        let Row { name, unit, ours, limit, rival, instructions } = row;
        writeln!(
            table,
            "{name:<22} {:>12} {unit:<6} {:>12} {:>6} {:>12} {:>6} {:>12}",
            figure(Some(*ours)),
            figure(*limit),
            ratio(*ours, *limit),
            figure(*rival),
            ratio(*ours, *rival),
            figure(*instructions),
        )
        .expect("a string can be written to");
    }
    table
}

/// Whole numbers in groups of three digits; small ones with two decimals; `-` for none.
fn figure(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value < 100.0 => format!("{value:.2}"),
        Some(value) => grouped(&format!("{value:.0}")),
    }
}

fn grouped(digits: &str) -> String {
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn ratio(ours: f64, other: Option<f64>) -> String {
    other.map_or_else(|| "-".to_owned(), |other| format!("{:.2}", ours / other))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str =
        r#"{"name":"parity pq 8x64k","unit":"MB/s","ours":30000,"limit":12000,"rival":null}"#;

    #[test]
    fn a_row_needs_a_name_a_unit_and_our_figure_only() {
        let row: Row = serde_json::from_str(LINE).unwrap();
        assert_eq!(
            (row.ours, row.limit, row.rival, row.instructions),
            (3e4, Some(12e3), None, None)
        );
        assert!(serde_json::from_str::<Row>(r#"{"name":"x","unit":"ops/s"}"#).is_err());
    }

    #[test]
    fn the_table_shows_ratios_and_what_is_absent() {
        let rows = [serde_json::from_str(LINE).unwrap()];
        let table = table(&rows);
        let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(row[3..], ["30,000", "MB/s", "12,000", "2.50", "-", "-", "-"]);
    }

    #[test]
    fn an_absent_rival_stays_absent_in_the_report() {
        let rows = vec![serde_json::from_str(LINE).unwrap()];
        assert!(!serde_json::to_string(&Report { rows }).unwrap().contains("rival"));
    }

    #[test]
    fn figures_are_grouped() {
        assert_eq!(figure(Some(1_234_567.4)), "1,234,567");
        assert_eq!(figure(Some(123.0)), "123");
        assert_eq!(figure(Some(0.271)), "0.27");
    }
}
