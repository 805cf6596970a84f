//! A Ceph cluster on this machine, and volumes on its images: what breaks, and what it costs.
//!
//! 1. A cluster of plain processes in a temporary folder ([`cluster`]).
//! 2. Each scenario makes an image and a volume on it ([`host`]), writes under the eyes of a
//!    witness, breaks something, and has everything verified ([`scenarios`]).
//! 3. The speed beside the bare image, in one run ([`speed`]).
//! 4. What failed and what was skipped, by name, and `N passed, N failed, N skipped`.
//!
//! **Invariants**
//! - Everything random follows from the seed, which is printed.
//! - All files lie below the temporary folder, all sockets are on loopback, and no process outlives
//!   the run.
//!
//! **Not here**: installing Ceph (`scripts/setup --ceph`).

mod cluster;
mod fio;
mod host;
mod sandbox;
mod scenarios;
mod speed;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};

use crate::metadata;
use crate::rig::{build, report};
use crate::test::tally::Tally;
use crate::test::times::Row;
use cluster::Cluster;
use scenarios::{SCENARIOS, Stage};

/// What a cluster is made of, and where it comes from in Debian.
const TOOLS: [(&str, &str); 7] = [
    ("setpriv", "util-linux"),
    ("ceph-mon", "ceph-mon"),
    ("ceph-osd", "ceph-osd"),
    ("monmaptool", "ceph-mon"),
    ("ceph", "ceph-common"),
    ("rbd", "ceph-common"),
    ("fio", "fio"),
];

#[derive(clap::Args)]
pub struct Options {
    /// The moments of kills, and all other chance; default: others in each run.
    #[arg(long)]
    seed: Option<u64>,
    /// The `headpond` to be tested, in place of one that is built now.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// How often the daemon is killed under load.
    #[arg(long, default_value_t = 100)]
    kills: u32,
    /// Seconds of one measurement of the speed.
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    /// Only these scenarios, by parts of their names.
    scenarios: Vec<String>,
}

/// Runs the scenarios and prints the report; true when nothing failed.
///
/// # Errors
/// When the program does not build, or there is no place for the cluster.
pub fn run(workspace: &Path, options: &Options) -> Result<bool> {
    let (mut tally, mut rows) = (Tally::default(), Vec::new());
    let names = selected(&options.scenarios)?;
    let lacking: Vec<&str> =
        TOOLS.iter().filter(|(tool, _)| !is_there(tool)).map(|(_, package)| *package).collect();
    if !lacking.is_empty() {
        let what = format!("not installed: {} (`scripts/setup --ceph`)", lacking.join(", "));
        names.iter().for_each(|name| tally.skip(format!("{name}: {what}")));
        report(&tally, &rows);
        return Ok(true);
    }
    let target = metadata::read(workspace)?.target_directory;
    let program = match &options.program {
        Some(program) => std::path::absolute(program)?,
        None => build(workspace, &target)?,
    };
    let seed = options.seed.unwrap_or_else(any_seed);
    println!("seed {seed}: `cargo xtask ceph --seed {seed}` repeats the moments");
    // Below the system's own folder: paths of sockets are short.
    let folder = tempfile::Builder::new().prefix("headpond-ceph-").tempdir()?;
    let begun = Instant::now();
    match Cluster::start(folder.path()) {
        Ok(cluster) => {
            rows.push(Row::new("cluster", begun.elapsed().as_secs_f64(), ""));
            let (kills, seconds) = (options.kills, options.seconds);
            let folder = folder.path();
            let mut stage = Stage { cluster, program, folder, seed, kills, seconds };
            play_all(&mut stage, &names, &mut tally, &mut rows);
        }
        Err(error) => tally.fail(format!("the cluster: {error:#}")),
    }
    report(&tally, &rows);
    Ok(tally.failed() == 0)
}

fn play_all(stage: &mut Stage<'_>, names: &[&str], tally: &mut Tally, rows: &mut Vec<Row>) {
    for scenario in SCENARIOS.iter().filter(|scenario| names.contains(&scenario.name)) {
        println!("\n== {}", scenario.name);
        let begun = Instant::now();
        let outcome = stage.play(scenario);
        let seconds = begun.elapsed().as_secs_f64();
        rows.push(Row::new(scenario.name, seconds, ""));
        match outcome {
            Ok(skipped) => {
                println!("passed after {seconds:.0} s");
                tally.pass();
                skipped.into_iter().for_each(|what| tally.skip(what));
            }
            Err(error) => {
                println!("failed after {seconds:.0} s: {error:#}");
                tally.fail(format!("{}: {error:#}", scenario.name));
            }
        }
    }
}

fn selected(words: &[String]) -> Result<Vec<&'static str>> {
    let all = || SCENARIOS.iter().map(|scenario| scenario.name);
    for word in words {
        let is_any = all().any(|name| name.contains(word.as_str()));
        ensure!(is_any, "no scenario has {word} in its name");
    }
    let is_wanted = |name: &&str| words.is_empty() || words.iter().any(|word| name.contains(word));
    Ok(all().filter(is_wanted).collect())
}

fn is_there(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(tool).is_file())
}

fn any_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_millis() as u64 % 1_000_000
}

/// A program that ends with this one, however that ends.
fn bound(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// A port that was free a moment ago.
fn free_port() -> Result<u16> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").context("finding a free port")?;
    Ok(listener.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_are_selected_by_words_and_a_wrong_one_is_an_error() {
        let words = |words: &[&str]| words.iter().map(|&it| it.to_owned()).collect::<Vec<_>>();
        assert_eq!(selected(&[]).unwrap().len(), SCENARIOS.len());
        assert_eq!(selected(&words(&["speed"])).unwrap().len(), 1);
        assert!(selected(&words(&["moon"])).is_err());
    }
}
