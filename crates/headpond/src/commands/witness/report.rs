//! `headpond witness report`: statistics of all cuts.

use super::args::ReportArgs;
use crate::telling::print_json;
use anyhow::{Context, Result};
use headpond_api::answers::Versioned;
use headpond_api::outcome::{Exit, Failure};
use headpond_witness::field::folder::RULINGS;
use headpond_witness::field::ruling::{Ruling, Verdict};
use headpond_witness::field::statistics::{CONFIDENCE, cuts_needed, rate_max, rate_min};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A commonly required rate.
const RATE_WANTED: f64 = 0.01;

/// The totals of the cuts of one device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Cuts that were judged.
    pub cuts: u64,
    pub losses: u64,
    /// Verifications after a cut without durable writes to check.
    pub undecided: u64,
    /// Sessions that ended without a message although no hook cut the power and the machine did not
    /// restart: they are no evidence and are not counted.
    pub unproven: u64,
    /// Cuts without a loss after which the machine had not restarted: the hook cut the power of the
    /// device alone, or none.
    pub without_restart: u64,
    /// Cuts that lost unflushed writes.
    pub took_something: u64,
    pub loss_rate_min: f64,
    pub loss_rate_max: f64,
    pub confidence: f64,
}

/// A device by its name at the witness.
#[derive(Serialize)]
struct Named<'a> {
    name: &'a str,
    #[serde(flatten)]
    summary: &'a Summary,
}

/// # Errors
/// If there are no rulings, or they cannot be read.
pub fn run(args: &ReportArgs) -> Result<Exit> {
    let folders = folders(&args.dir)?;
    let mut summaries = BTreeMap::new();
    for folder in folders {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        summaries.insert(name, summary(&rulings(&folder)?));
    }
    if args.json {
        let named = summaries.iter().map(|(name, summary)| Versioned::new(Named { name, summary }));
        print_json(&named.collect::<Vec<_>>())?;
    } else {
        for (name, summary) in &summaries {
            println!("{name}: {}", told(summary));
        }
    }
    let is_broken = summaries.values().any(|summary| summary.losses > 0);
    let is_decided = summaries.values().all(|summary| summary.cuts > 0);
    Ok(match (is_broken, is_decided) {
        (true, _) => Exit::Error,
        (false, false) => Exit::Degraded,
        (false, true) => Exit::Ok,
    })
}

/// The rulings of one device, oldest first.
///
/// # Errors
/// Where they cannot be read.
pub fn rulings(folder: &Path) -> Result<Vec<Ruling>> {
    let path = folder.join(RULINGS);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| path.display().to_string()),
    };
    let mut rulings = Vec::new();
    for (at, line) in text.lines().enumerate() {
        match serde_json::from_str(line) {
            Ok(ruling) => rulings.push(ruling),
            // The last line may have been cut off with the witness's own power.
            Err(_) if at + 1 == text.lines().count() && !text.ends_with('\n') => {}
            Err(error) => {
                let named = || format!("{}, line {}", path.display(), at + 1);
                return Err(error).with_context(named);
            }
        }
    }
    Ok(rulings)
}

/// Counts each cut once: as a loss if any verification after it found one.
pub fn summary(rulings: &[Ruling]) -> Summary {
    let mut by_cut: BTreeMap<u64, Vec<&Ruling>> = BTreeMap::new();
    for ruling in rulings {
        if let Some(cut) = ruling.cut {
            by_cut.entry(cut).or_default().push(ruling);
        }
    }
    let mut summary = Summary { confidence: CONFIDENCE, ..Summary::default() };
    for looks in by_cut.values() {
        let any = |verdict| looks.iter().any(|look| look.verdict == verdict);
        let is_proven = |look: &&Ruling| look.was_hooked || look.was_restarted == Some(true);
        // A loss counts in any case.
        if any(Verdict::Broken) {
            summary.losses += 1;
            summary.cuts += 1;
        } else if !looks.iter().copied().any(|look| is_proven(&look)) {
            summary.unproven += 1;
        } else if any(Verdict::Kept) {
            summary.cuts += 1;
            let has_gone_on = |look: &&&Ruling| look.was_restarted == Some(false);
            let has_restarted = looks.iter().any(|look| look.was_restarted == Some(true));
            let is_apart = !has_restarted && looks.iter().any(|look| has_gone_on(&look));
            summary.without_restart += u64::from(is_apart);
        } else {
            summary.undecided += 1;
        }
        summary.took_something += u64::from(looks.iter().any(|look| look.unpromised_gone > 0));
    }
    summary.loss_rate_max = rate_max(summary.losses, summary.cuts);
    summary.loss_rate_min = rate_min(summary.losses, summary.cuts);
    summary
}

/// A summary in sentences.
pub fn told(summary: &Summary) -> String {
    let Summary { cuts, losses, undecided, unproven, took_something, .. } = *summary;
    let percent = |rate: f64| format!("{:.1} %", (rate * 1000.0).ceil() / 10.0);
    let mut told = match (cuts, losses) {
        (0, _) => "no cut was verified yet: no evidence".to_owned(),
        (_, 0) => format!(
            "0 of {cuts} cuts lost flushed data. That is weak evidence: loss rates up to {} are \
             not excluded (95 % confidence). To exclude 1 % takes {} cuts without a loss",
            percent(summary.loss_rate_max),
            cuts_needed(RATE_WANTED)
        ),
        _ => format!(
            "{losses} of {cuts} cuts lost flushed data. The loss rate is between {:.1} % and {} \
             (95 % confidence each)",
            (summary.loss_rate_min * 1000.0).floor() / 10.0,
            percent(summary.loss_rate_max)
        ),
    };
    if cuts > 0 {
        told += &format!(". {took_something} of them lost unflushed writes");
    }
    if summary.without_restart > 0 {
        told += &without_restart(summary);
    }
    if undecided > 0 {
        told += &format!(". {undecided} more had no flushed data to verify");
    }
    if unproven > 0 {
        told += &format!(
            ". {unproven} more are not counted: no hook cut the power, and the machine did not \
             restart"
        );
    }
    told
}

/// The result without the cuts after which the machine had not restarted.
fn without_restart(summary: &Summary) -> String {
    let Summary { cuts, losses, without_restart, .. } = *summary;
    let rest = cuts - without_restart;
    let words = match rest {
        0 => "without them there is no evidence".to_owned(),
        _ => format!(
            "without them {losses} of {rest}, and a loss rate of up to {:.1} %",
            (rate_max(losses, rest) * 1000.0).ceil() / 10.0
        ),
    };
    format!(
        ". After {without_restart} of them the machine had not restarted: these count only if the \
         hook cuts the power of the device alone; {words}"
    )
}

fn folders(dir: &Path) -> Result<Vec<PathBuf>> {
    if dir.join(RULINGS).exists() {
        return Ok(vec![dir.canonicalize()?]);
    }
    let named = || dir.display().to_string();
    let mut folders = Vec::new();
    for entry in dir.read_dir().with_context(named)? {
        let path = entry?.path();
        if path.join("snapshot").exists() {
            folders.push(path);
        }
    }
    folders.sort();
    if folders.is_empty() {
        return Err(Failure::usage(format!("{}: this is not the folder of a witness", named())));
    }
    Ok(folders)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_witness::field::ruling::Counts;

    /// A look that found everything after the cut with this number.
    fn kept(cut: u64, was_hooked: bool, was_restarted: Option<bool>) -> Ruling {
        Ruling {
            verdict: Verdict::Kept,
            counts: Counts::default(),
            region_blocks: 16,
            blocks_looked_at: 16,
            blocks_promised: 16,
            unpromised_kept: 0,
            unpromised_gone: 0,
            torn_allowed: 0,
            unreadable_elsewhere: 0,
            blocks_of_this_run: 16,
            writes_acknowledged: 40,
            flushes_acknowledged: 40,
            first: None,
            was_restarted,
            cut: Some(cut),
            was_hooked,
            before: None,
            at: 0,
        }
    }

    #[test]
    fn cuts_that_the_machine_lived_through_are_counted_apart() {
        let rulings = [
            kept(1, true, Some(true)),
            kept(2, true, Some(false)),
            kept(3, true, None),
            kept(4, false, Some(false)),
        ];
        let summary = summary(&rulings);
        assert_eq!((summary.cuts, summary.without_restart, summary.unproven), (3, 1, 1));
        let words = told(&summary);
        assert!(words.contains("After 1 of them the machine had not restarted"), "{words}");
        assert!(words.contains("without them 0 of 2, and a loss rate of up to 77.7 %"), "{words}");
        assert!(!told(&super::summary(&rulings[..1])).contains("not restarted"));
        let alone = super::summary(&rulings[1..2]);
        assert!(told(&alone).contains("without them there is no evidence"), "{}", told(&alone));
    }
}
