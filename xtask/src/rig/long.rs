//! The long run: kills of the daemon below file systems until there were so many, over as many
//! calls as that takes.
//!
//! **Invariants**
//! - What was counted is in a file before the next machine boots, and belongs to one program: that
//!   of another one is discarded.
//! - What fails is not counted, and ends the kind that it was found with.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::image::Image;
use super::scenarios::{Counts, Device, FileSystem, Stage};
use crate::test::tally::Tally;
use crate::test::times::Row;

/// Kills below one file system before it is checked, and planned restarts among them.
const AT_ONCE: (u32, u32) = (10, 2);
/// For one kill, with its part of a boot: ten times what it takes on two quiet processors.
const TIME_MAX: Duration = Duration::from_secs(180);
/// For a call that has little left to do.
const TIME_MIN: Duration = Duration::from_secs(30 * 60);
const KINDS: [Device; 2] = [Device::Ublk, Device::Nbd];

/// What there was so far.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    /// Of the program.
    hash: u64,
    counts: BTreeMap<String, Counts>,
}

impl Kept {
    fn load(file: &Path, hash: u64) -> Self {
        let text = fs::read(file).unwrap_or_default();
        let kept: Self = serde_json::from_slice(&text).unwrap_or_default();
        if kept.hash == hash { kept } else { Self { hash, counts: BTreeMap::new() } }
    }

    fn save(&self, file: &Path) -> Result<()> {
        let new = file.with_extension("new");
        fs::write(&new, serde_json::to_vec_pretty(self)?)?;
        fs::rename(&new, file).with_context(|| format!("writing {}", file.display()))
    }

    fn of(&self, kind: &str) -> Counts {
        self.counts.get(kind).copied().unwrap_or_default()
    }
}

/// Goes on until each kind has so many kills.
///
/// # Errors
/// When the target folder cannot be written; what a machine has come to is in the tally.
pub fn run(
    (image, program): (&Image, &Path),
    folder: &Path,
    seed: u64,
    kills: u32,
    tally: &mut Tally,
    rows: &mut Vec<Row>,
) -> Result<()> {
    let file: PathBuf = folder.join("long.json");
    let mut kept = Kept::load(&file, hash(program)?);
    let kinds = || KINDS.iter().flat_map(|device| FileSystem::ALL.map(|it| (*device, it)));
    let left: u32 = kinds().map(|it| kills.saturating_sub(kept.of(&name(it)).kills)).sum();
    println!("{left} kills to do; counts are kept in {}", file.display());
    if left > 0 {
        let until = Instant::now() + TIME_MIN.max(TIME_MAX * left);
        let stage = Stage::new(image, folder, seed, until)?;
        stage.first_boot()?;
        for kind in kinds() {
            let begun = Instant::now();
            let outcome = until_done(&stage, kind, kills, (&mut kept, &file));
            rows.push(Row::new(name(kind), begun.elapsed().as_secs_f64(), ""));
            if let Err(error) = outcome {
                println!("failed: {error:#}");
                tally.fail(format!("{}: {error:#}", name(kind)));
            }
        }
    }
    println!();
    for kind in kinds().map(name) {
        let counts = kept.of(&kind);
        println!("{kind}: {counts}");
        if counts.kills >= kills {
            tally.pass();
        }
    }
    Ok(())
}

/// Machine after machine; what each has come to is kept.
fn until_done(
    stage: &Stage,
    kind: (Device, FileSystem),
    kills: u32,
    (kept, file): (&mut Kept, &Path),
) -> Result<()> {
    let (at_once, restarts) = AT_ONCE;
    loop {
        let done = kept.of(&name(kind)).kills;
        if done >= kills {
            return Ok(());
        }
        println!("\n== {}: {done} of {kills} kills", name(kind));
        // Another number for each machine of all kinds.
        let number = u64::from(done) * 4 + kind.0 as u64 * 2 + kind.1 as u64;
        let counts = stage.endure(kind, number, (at_once.min(kills - done), restarts))?;
        kept.counts.entry(name(kind)).or_default().add(counts);
        kept.save(file)?;
    }
}

fn name((device, file_system): (Device, FileSystem)) -> String {
    let device = match device {
        Device::Ublk => "ublk",
        Device::Nbd => "the kernel's NBD client",
    };
    format!("{} on {device}", file_system.name())
}

fn hash(program: &Path) -> Result<u64> {
    let bytes = fs::read(program).with_context(|| format!("reading {}", program.display()))?;
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    Ok(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_those_of_one_program_and_add_up() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("long.json");
        let mut kept = Kept::load(&file, 7);
        let kind = name((Device::Ublk, FileSystem::Xfs));
        for longest_s in [3.0, 1.0] {
            let counts = Counts { kills: 10, restarts: 2, passes: 5, longest_s };
            kept.counts.entry(kind.clone()).or_default().add(counts);
        }
        kept.save(&file).unwrap();
        let again = Kept::load(&file, 7).of(&kind);
        assert_eq!((again.kills, again.restarts, again.passes), (20, 4, 10));
        assert!(again.longest_s == 3.0);
        assert_eq!(Kept::load(&file, 8).of(&kind).kills, 0);
    }
}
