//! `headpond model demerit`.

use super::args::DemeritArgs;
use super::files::{DriveFiles, read_text};
use crate::telling::print_json;
use anyhow::{Context, Result, bail};
use headpond_api::answers::Versioned;
use headpond_api::outcome::Exit;
use headpond_report::{Align, Table, count};
use headpond_sim::demerit::{Comparison, Measured, Row, parse_line, replay};
use headpond_sim::disksim::{Imported, Note};
use serde_json::{Value, json};
use std::path::Path;
use std::rc::Rc;

/// # Errors
/// Where the drive's files or the trace cannot be read or understood: file, line and field.
pub fn run(args: &DemeritArgs) -> Result<Exit> {
    let files = DriveFiles::of(&args.drive)?;
    let Imported { model, notes } = files.import(args.disk.as_deref())?;
    let requests = measured(&args.trace)?;
    let model = Rc::new(model);
    let modelled = replay(&model, requests.iter().map(|measured| measured.request))
        .with_context(|| args.trace.display().to_string())?;
    let pairs: Vec<_> = requests
        .iter()
        .zip(modelled)
        .map(|(measured, ms)| (measured.request.operation, measured.service_ms, ms))
        .collect();
    let comparison = Comparison::of(&pairs);
    let drive = &model.parameters().name;
    if args.json {
        print_json(&Versioned::new(report(drive, args, &comparison, &notes)))?;
    } else {
        println!("{drive}, {}\n", model.parameters().description);
        print!("{}", table(&comparison).render());
        print_notes(&notes);
    }
    Ok(Exit::Ok)
}

fn measured(path: &Path) -> Result<Vec<Measured>> {
    let text = read_text(path)?;
    let mut requests = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        match parse_line(line) {
            Ok(measured) => requests.extend(measured),
            Err(what) => bail!("{}:{number}: {what}", path.display()),
        }
    }
    if requests.is_empty() {
        bail!("{}: has no requests", path.display());
    }
    Ok(requests)
}

fn rows(comparison: &Comparison) -> [(&'static str, &Row); 3] {
    [("all", &comparison.all), ("reads", &comparison.reads), ("writes", &comparison.writes)]
}

fn table(comparison: &Comparison) -> Table {
    let right = |name| (name, Align::Right);
    let mut table = Table::new([
        ("", Align::Left),
        right("requests"),
        right("measured mean ms"),
        right("modelled mean ms"),
        right("RMS demerit ms"),
    ]);
    for (name, row) in rows(comparison) {
        let ms = |ms: f64| format!("{ms:.3}");
        table.row([
            name.to_owned(),
            count(row.requests as u64),
            ms(row.measured_mean_ms),
            ms(row.modelled_mean_ms),
            ms(row.demerit_ms),
        ]);
    }
    table
}

fn print_notes(notes: &[Note]) {
    if !notes.is_empty() {
        println!("\nOf the drive's files:");
    }
    for note in notes {
        println!("  {note}");
    }
}

fn report(drive: &str, args: &DemeritArgs, comparison: &Comparison, notes: &[Note]) -> Value {
    let mut report = json!({
        "drive": drive,
        "trace": args.trace.display().to_string(),
        "notes": notes.iter().map(|note| json!({
            "file": &*note.at.file,
            "line": note.at.line,
            "text": note.text,
        })).collect::<Vec<_>>(),
    });
    for (name, row) in rows(comparison) {
        report[name] = json!({
            "requests": row.requests,
            "measured_mean_ms": row.measured_mean_ms,
            "modelled_mean_ms": row.modelled_mean_ms,
            "demerit_ms": row.demerit_ms,
        });
    }
    report
}
