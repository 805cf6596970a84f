//! Boots of a virtual machine in which systemd and udev start volumes: real units, a real kernel.
//!
//! 1. A root image of Debian packages, kept in the target folder ([`image`]).
//! 2. The first boot makes the volumes; each further scenario begins with copies of its disks
//!    ([`disks`]).
//! 3. A scenario boots machines ([`machine`]), looks at what they have come to ([`volume`]), and
//!    shuts them down or cuts their power ([`scenarios`]);
//!    or, in the long run, the daemon is killed so many times ([`long`]).
//! 4. What failed and what was skipped, by name, a table of the time, and
//!    `N passed, N failed, N skipped`.
//!
//! **Invariants**
//! - Everything random follows from the seed, which is printed.
//! - No wait outlives the time of the run: a machine that hangs is a failure.
//! - What runs inside is emulated (TCG), so that no right of this machine is needed.
//!
//! **Not here**: how image and initial RAM disk are made (`rig/boot-vm`).

mod disks;
mod image;
mod long;
mod machine;
pub(crate) mod random;
mod scenarios;
mod volume;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};

use crate::metadata;
use crate::test::tally::Tally;
use crate::test::times::{self, Row};
use image::{Image, NoImage};
use scenarios::{FIRST, SCENARIOS, Stage};

/// Of all scenarios together; on two processors they take less than half of it.
const TIME_MAX: Duration = Duration::from_secs(30 * 60);

#[derive(clap::Args)]
pub struct Options {
    /// The order of disks and all other chance; default: another one in each run.
    #[arg(long)]
    seed: Option<u64>,
    /// The `headpond` to be tested, in place of one that is built now.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// In place of the scenarios: kills of the daemon below each kind of file system until there
    /// were so many. What an earlier call with the same program has counted is kept.
    #[arg(long, conflicts_with = "scenarios")]
    kills: Option<u32>,
    /// Only these scenarios, by parts of their names; the first boot is always made.
    scenarios: Vec<String>,
}

/// Runs the scenarios and prints the report; true when nothing failed.
///
/// # Errors
/// When the program does not build, or the target folder cannot be written.
pub fn run(workspace: &Path, options: &Options) -> Result<bool> {
    let mut tally = Tally::default();
    let names = selected(&options.scenarios)?;
    let target = metadata::read(workspace)?.target_directory;
    let folder = target.join("rig");
    std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let mut rows = Vec::new();
    let mut made = || -> Result<(Image, PathBuf), NoImage> {
        image::check_tools()?;
        let program = match &options.program {
            Some(program) => program.clone(),
            None => timed(&mut rows, "build", || build(workspace, &target))?,
        };
        let image = timed(&mut rows, "root image", || Image::make(workspace, &folder, &program))?;
        Ok((image, program))
    };
    match made() {
        Ok((image, program)) => {
            let seed = options.seed.unwrap_or_else(any_seed);
            println!("seed {seed}: `cargo xtask rig --seed {seed}` repeats the order of the disks");
            match options.kills {
                None => run_all(&image, &folder, seed, &names, &mut tally, &mut rows)?,
                Some(kills) => {
                    let tested = (&image, &*program);
                    long::run(tested, &folder, seed, kills, &mut tally, &mut rows)?;
                }
            }
        }
        Err(NoImage::Lacking(what)) => {
            names.iter().for_each(|name| tally.skip(format!("{name}: {what}")));
        }
        Err(NoImage::Failed(error)) => {
            println!("{error:#}");
            tally.fail(format!("the root image: {error:#}"));
        }
    }
    report(&tally, &rows);
    Ok(tally.failed() == 0)
}

/// The names of the scenarios that are wanted, the first boot among them.
fn selected(words: &[String]) -> Result<Vec<&'static str>> {
    let all = || SCENARIOS.iter().map(|scenario| scenario.name);
    for word in words {
        ensure!(
            all().any(|name| name.contains(word.as_str())),
            "no scenario has {word} in its name"
        );
    }
    let is_wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word));
    Ok(std::iter::once(FIRST).chain(all().filter(|name| is_wanted(name))).collect())
}

fn timed<T, E>(
    rows: &mut Vec<Row>,
    name: &str,
    step: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let begun = Instant::now();
    let done = step();
    rows.push(Row::new(name, begun.elapsed().as_secs_f64(), ""));
    done
}

/// The optimised program, as `make try` builds it: an emulated processor is slow enough.
pub(crate) fn build(workspace: &Path, target: &Path) -> Result<PathBuf> {
    let mut cargo = std::process::Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.args(["build", "--quiet", "--profile", "quick", "--package", "headpond"]);
    let status = cargo.current_dir(workspace).status().context("starting cargo")?;
    ensure!(status.success(), "headpond does not build: {status}");
    Ok(target.join("quick/headpond"))
}

fn any_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_millis() as u64 % 1_000_000
}

fn run_all(
    image: &Image,
    folder: &Path,
    seed: u64,
    names: &[&'static str],
    tally: &mut Tally,
    rows: &mut Vec<Row>,
) -> Result<()> {
    let until = Instant::now() + TIME_MAX;
    let stage = Stage::new(image, folder, seed, until)?;
    let mut one = |name: &'static str, scenario: &mut dyn FnMut() -> Result<()>| {
        println!("\n== {name}");
        let begun = Instant::now();
        let outcome = scenario();
        let seconds = begun.elapsed().as_secs_f64();
        rows.push(Row::new(name, seconds, ""));
        match &outcome {
            Ok(()) => {
                println!("passed after {seconds:.0} s");
                tally.pass();
            }
            Err(error) => {
                println!("failed after {seconds:.0} s: {error:#}");
                tally.fail(format!("{name}: {error:#}"));
            }
        }
        outcome.is_ok()
    };
    let is_made = one(FIRST, &mut || stage.first_boot());
    for scenario in SCENARIOS.iter().filter(|scenario| names.contains(&scenario.name)) {
        one(scenario.name, &mut || match is_made {
            true => stage.play(scenario),
            false => anyhow::bail!("there are no volumes: the first boot failed"),
        });
    }
    Ok(())
}

pub(crate) fn report(tally: &Tally, rows: &[Row]) {
    for (heading, names) in [("failed:", tally.failures()), ("skipped:", tally.skips())] {
        if !names.is_empty() {
            println!("\n{heading}");
        }
        names.iter().for_each(|name| println!("  {name}"));
    }
    if !rows.is_empty() {
        println!("\n{}", times::table(rows));
    }
    println!("{}", tally.closing_line());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_boot_is_part_of_every_selection_and_a_wrong_word_is_an_error() {
        let words = |words: &[&str]| words.iter().map(|&it| it.to_owned()).collect::<Vec<_>>();
        assert_eq!(selected(&[]).unwrap().len(), 1 + SCENARIOS.len());
        let some = selected(&words(&["order", "power"])).unwrap();
        assert!(some[0] == FIRST && some.len() == 3, "{some:?}");
        assert!(selected(&words(&["order", "moon"])).is_err());
    }
}
