//! The whole test run, ended by one line that counts it.
//!
//! 1. `cargo test` over the workspace (unit, integration and doc tests), all of it even after a
//!    failure; its output is passed through as it comes and read on the way.
//! 2. The test of the swarm's judgement, which is a build of its own.
//! 3. The scripts `tests/*.sh`, in the order of their names.
//! 4. What failed and what was skipped, by name; the time; then `N passed, N failed, N skipped`.
//!
//! **Invariants**
//! - The closing line is the last line on stdout, and is printed once.
//! - A test that skipped itself counts as skipped, never as passed.
//! - A run that could not be built, or a test binary that died, counts as a failure.

mod scripts;
mod skips;
mod tally;

use std::io::{self, BufRead, BufReader, Write};
use std::num::NonZero;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};

use tally::Tally;

/// How many tests libtest runs at a time.
const THREADS: &str = "RUST_TEST_THREADS";
/// Those of whole programs wait for daemons and timers as long as they compute.
const THREADS_PER_PROCESSOR: usize = 2;

#[derive(clap::Args)]
pub struct Options {
    /// Arguments for `cargo test` in place of `--workspace`; the scripts are then left out.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    cargo: Vec<String>,
}

/// Runs the tests and prints the report; true when nothing failed.
///
/// # Errors
/// When `cargo` or a script cannot be started, or the skip log cannot be read.
pub fn run(workspace: &Path, options: &Options) -> Result<bool> {
    let started = Instant::now();
    let skip_log = tempfile::NamedTempFile::new().context("making the skip log")?;
    let mut tally = Tally::default();
    let status = run_cargo(workspace, options, skip_log.path(), &mut tally)?;
    tally.finish(status.success());
    if options.cargo.is_empty() {
        judge_the_judge(workspace, skip_log.path(), &mut tally)?;
        scripts::run(workspace, skip_log.path(), &mut tally)?;
    }
    let log = std::fs::read_to_string(skip_log.path()).context("reading the skip log")?;
    tally.subtract_skips(&skips::parse(&log));
    report(&tally, started)?;
    Ok(tally.failed() == 0)
}

/// The mistakes on purpose are compiled into these binaries alone.
fn judge_the_judge(workspace: &Path, skip_log: &Path, tally: &mut Tally) -> Result<()> {
    // Of the whole workspace, so that what others made is compiled as it is.
    const DEFECTS: [&str; 5] =
        ["--workspace", "--features", "headpond-swarm/defects", "--test", "defects"];
    let options = Options { cargo: DEFECTS.map(String::from).into() };
    let status = run_cargo(workspace, &options, skip_log, tally)?;
    tally.finish(status.success());
    Ok(())
}

fn run_cargo(
    workspace: &Path,
    options: &Options,
    skip_log: &Path,
    tally: &mut Tally,
) -> Result<ExitStatus> {
    let (reader, writer) = io::pipe()?;
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace).args(["test", "--no-fail-fast"]);
    if options.cargo.is_empty() {
        command.arg("--workspace");
    }
    command.args(&options.cargo).env("HEADPOND_SKIP_LOG", skip_log);
    if std::env::var_os(THREADS).is_none() {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        command.env(THREADS, (THREADS_PER_PROCESSOR * processors).to_string());
    }
    command.stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().context("starting cargo")?;
    drop(command); // it holds the pipe's writing end, which would keep the reader waiting
    relay(reader, tally)?;
    Ok(child.wait()?)
}

/// Passes every line on and shows it to the tally.
fn relay(reader: impl io::Read, tally: &mut Tally) -> io::Result<()> {
    let mut reader = BufReader::new(reader);
    let mut stdout = io::stdout().lock();
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        stdout.write_all(&line)?;
        stdout.flush()?;
        tally.line(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
    Ok(())
}

fn report(tally: &Tally, started: Instant) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for (heading, names) in [("failed:", tally.failures()), ("skipped:", tally.skips())] {
        if !names.is_empty() {
            writeln!(out, "\n{heading}")?;
        }
        for name in names {
            writeln!(out, "  {name}")?;
        }
    }
    writeln!(out, "\nfinished in {:.0} s", started.elapsed().as_secs_f64())?;
    writeln!(out, "{}", tally.closing_line())
}
