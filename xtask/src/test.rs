//! The whole test run, ended by one line that counts it.
//!
//! 1. Every test program is built by one call of cargo ([`build`]).
//! 2. The programs run side by side ([`lanes`]); what each printed is shown when it has ended.
//! 3. What is only compiled ([`cross`]).
//! 4. What failed and what was skipped, by name; a table of the time ([`times`]); then
//!    `N passed, N failed, N skipped`.
//!
//! Tests in a module called `conclusions` replay for minutes. They are a tier of their own, which
//! `--conclusions` runs (CONTRIBUTING.md).
//!
//! **Invariants**
//! - The closing line is the last line on stdout, and is printed once.
//! - A test that skipped itself counts as skipped, never as passed.
//! - A run that could not be built, or a test program that died, counts as a failure.

mod build;
mod cross;
mod lanes;
mod skips;
pub mod tally;
pub mod times;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::metadata;
use build::Program;
use lanes::Ended;
use tally::Tally;
use times::{LinkerWatch, Row};

/// The path of tests of the long tier has this in it.
const CONCLUSIONS: &str = "conclusions::";
/// All programs of the workspace that are tests. Examples and benchmarks are built by clippy.
const EVERYTHING: [&str; 3] = ["--lib", "--bins", "--tests"];
/// Packages with conclusions, and a build in which minutes of drives are simulated in seconds.
const LONG_TIER: [&str; 13] = [
    "--profile",
    "quick",
    "--package=headpond",
    "--package=headpond-advise",
    "--package=headpond-cache",
    "--package=headpond-lab",
    "--package=headpond-whatif",
    "--package=headpond-sim",
    "--package=headpond-swarm",
    "--package=headpond-volume",
    "--lib",
    "--bins",
    "--tests",
];

#[derive(clap::Args)]
pub struct Options {
    /// Run the long tier alone: tests in modules called `conclusions`.
    #[arg(long)]
    conclusions: bool,
    /// Arguments for `cargo test` in place of the whole workspace, and after `--` for the tests.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    cargo: Vec<String>,
}

/// What is built, and what each program is told.
struct Selection {
    cargo: Vec<String>,
    tests: Vec<String>,
    is_everything: bool,
}

impl Selection {
    fn new(options: &Options) -> Self {
        let own = |words: &[&str]| words.iter().map(|&it| it.to_owned()).collect::<Vec<_>>();
        let mut parts = options.cargo.splitn(2, |it| it == "--").map(<[String]>::to_vec);
        let (cargo, mut tests) =
            (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        match options.conclusions {
            true => tests.push(CONCLUSIONS.to_owned()),
            false => tests.extend(own(&["--skip", CONCLUSIONS])),
        }
        let is_everything = cargo.is_empty() && !options.conclusions;
        let cargo = match (cargo.is_empty(), options.conclusions) {
            (false, _) => cargo,
            (true, true) => own(&LONG_TIER),
            (true, false) => own(&EVERYTHING),
        };
        Self { cargo, tests, is_everything }
    }
}

/// Runs the tests and prints the report; true when nothing failed.
///
/// # Errors
/// When `cargo` or a test program cannot be started, or the skip log cannot be read.
pub fn run(workspace: &Path, options: &Options) -> Result<bool> {
    let started = Instant::now();
    let target = metadata::read(workspace)?.target_directory;
    let selection = Selection::new(options);
    let skip_log = tempfile::NamedTempFile::new().context("making the skip log")?;
    let mut tally = Tally::default();
    let mut rows = times::earlier(&std::env::var(times::EARLIER).unwrap_or_default());
    println!("building the tests (about five minutes where nothing is built yet)");
    match build(workspace, &selection, &mut rows)? {
        Some(programs) => {
            let before = times::kept(&target);
            rows.extend(run_programs(programs, &selection, skip_log.path(), &before, &mut tally)?);
        }
        None => tally.fail("cargo test: the build".to_owned()),
    }
    if selection.is_everything {
        cross::check(workspace, &mut tally)?;
    }
    let took = rows.iter().map(|row| (row.name.clone(), row.seconds)).collect();
    times::keep(&target, took)?;
    let log = std::fs::read_to_string(skip_log.path()).context("reading the skip log")?;
    tally.subtract_skips(&skips::parse(&log));
    rows.push(Row::new("this step", started.elapsed().as_secs_f64(), ""));
    report(&tally, &rows, options)?;
    Ok(tally.failed() == 0)
}

fn build(
    workspace: &Path,
    selection: &Selection,
    rows: &mut Vec<Row>,
) -> Result<Option<Vec<Program>>> {
    let started = Instant::now();
    let watch = LinkerWatch::begin()?;
    let programs = build::programs(workspace, &selection.cargo, &watch.path())?;
    rows.push(Row::new("build", started.elapsed().as_secs_f64(), ""));
    let (count, seconds) = watch.links();
    rows.push(Row::new("of which link", seconds, format!("{count} links, added up")));
    Ok(programs)
}

fn run_programs(
    programs: Vec<Program>,
    selection: &Selection,
    skip_log: &Path,
    before: &BTreeMap<String, f64>,
    tally: &mut Tally,
) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    lanes::run(programs, &selection.tests, skip_log, before, |Ended { program, output, took }| {
        let mut out = io::stdout().lock();
        writeln!(out, "\n== {}", program.name)?;
        out.write_all(&output.stdout)?;
        out.write_all(&output.stderr)?;
        out.flush()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let count = tally.program(&program.file_name(), &text, output.status.success());
        rows.push(Row::new(program.name, took.as_secs_f64(), format!("{count} tests")));
        Ok(())
    })?;
    rows.retain(|row| row.note != "0 tests");
    rows.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    Ok(rows)
}

fn report(tally: &Tally, rows: &[Row], options: &Options) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for (heading, names) in [("failed:", tally.failures()), ("skipped:", tally.skips())] {
        if !names.is_empty() {
            writeln!(out, "\n{heading}")?;
        }
        for name in names {
            writeln!(out, "  {name}")?;
        }
    }
    writeln!(out, "\n{}", times::table(rows))?;
    if !options.conclusions && tally.left_out() > 0 {
        writeln!(out, "left to `make conclusions`: {} tests", tally.left_out())?;
    }
    writeln!(out, "{}", tally.closing_line())
}
