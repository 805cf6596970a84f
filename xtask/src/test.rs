//! The whole test run, ended by one line that counts it.
//!
//! 1. Everything is built; 2. the integration tests run, and what they print is passed through as
//!    it comes and read on the way; beside them, for they wait much, unit and doc tests, and the
//!    test of the swarm's judgement, which is a build of its own: what those print comes when they
//!    are done; 3. the scripts `tests/*.sh`, in the order of their names; 4. what failed and what
//!    was skipped, by name; the time; then `N passed, N failed, N skipped`. A failure ends none.
//!
//! **Invariants**
//! - The closing line is the last line on stdout, and is printed once.
//! - A test that skipped itself counts as skipped, never as passed.
//! - A run that could not be built, or a test binary that died, counts as a failure.

mod scripts;
mod skips;
mod tally;

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, PipeReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};

use tally::Tally;

#[derive(clap::Args)]
pub struct Options {
    /// Arguments for `cargo test` in place of `--workspace`; the scripts are then left out.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    cargo: Vec<String>,
}

/// What prints as it comes. Its packages are those of the build, and so have the same features.
const LOUD: &[&str] = &["--workspace", "--test", "*"];
/// What runs beside it, one after the other. The mistakes on purpose are compiled into the last
/// alone.
const QUIET: [&[&str]; 3] = [
    &["--workspace", "--lib", "--bins"],
    &["--workspace", "--doc"],
    &["--package", "headpond-swarm", "--features", "defects", "--test", "defects"],
];

/// Runs the tests and prints the report; true when nothing failed.
///
/// # Errors
/// When `cargo` or a script cannot be started, or the skip log cannot be read.
pub fn run(workspace: &Path, options: &Options) -> Result<bool> {
    let started = Instant::now();
    let skip_log = tempfile::NamedTempFile::new().context("making the skip log")?;
    let cargo = Cargo { workspace, skip_log: skip_log.path() };
    let mut tally = Tally::default();
    if options.cargo.is_empty() {
        run_all(&cargo, &mut tally)?;
        scripts::run(workspace, skip_log.path(), &mut tally)?;
    } else {
        let (output, child) = cargo.test(&options.cargo)?;
        finish(output, child, &mut tally)?;
    }
    let log = std::fs::read_to_string(skip_log.path()).context("reading the skip log")?;
    tally.subtract_skips(&skips::parse(&log));
    report(&tally, started)?;
    Ok(tally.failed() == 0)
}

fn run_all(cargo: &Cargo, tally: &mut Tally) -> Result<()> {
    let (output, child) = cargo.test(&["--workspace", "--no-run"])?;
    finish(output, child, tally)?;
    if tally.failed() > 0 {
        return Ok(());
    }
    thread::scope(|scope| {
        let beside = scope.spawn(|| QUIET.map(|arguments| cargo.collect(arguments)));
        let (output, child) = cargo.test(LOUD)?;
        finish(output, child, tally)?;
        for collected in beside.join().expect("it does not panic") {
            let (output, status) = collected?;
            relay(&*output, tally)?;
            tally.finish(status.success());
        }
        Ok(())
    })
}

/// `cargo test`, as all of them run.
struct Cargo<'a> {
    workspace: &'a Path,
    skip_log: &'a Path,
}

impl Cargo<'_> {
    /// Starts it; answers with what it prints.
    fn test(&self, arguments: &[impl AsRef<OsStr>]) -> Result<(PipeReader, Child)> {
        let (reader, writer) = io::pipe()?;
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(self.workspace).args(["test", "--no-fail-fast"]);
        command.args(arguments).env("HEADPOND_SKIP_LOG", self.skip_log);
        command.stdout(writer.try_clone()?).stderr(writer);
        // The command holds the pipe's writing end, and would keep the reader waiting.
        Ok((reader, command.spawn().context("starting cargo")?))
    }

    fn collect(&self, arguments: &[&str]) -> Result<(Vec<u8>, ExitStatus)> {
        let (mut reader, mut child) = self.test(arguments)?;
        let mut output = Vec::new();
        reader.read_to_end(&mut output)?;
        Ok((output, child.wait()?))
    }
}

/// Passes on what is printed until the end.
fn finish(output: PipeReader, mut child: Child, tally: &mut Tally) -> Result<()> {
    relay(output, tally)?;
    tally.finish(child.wait()?.success());
    Ok(())
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
