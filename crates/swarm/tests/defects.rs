//! The judge is judged: mistakes made on purpose are found by cases that know nothing of them.

use headpond_block::defect::Defect;
use headpond_swarm::{Hunt, hunt};

/// A mistake that so many cases do not show is one that the judge does not see.
const CASES_MAX: u64 = 300;
/// These need coincidences that cases draw seldom: damage to a record of a certain age and a cut
/// soon after it, or one right after a member or a cache was lost.
const SELDOM: [Defect; 6] = [
    Defect::GuardBeforeFlush,
    Defect::IgnorePromises,
    Defect::KeepFailedCache,
    Defect::TombstoneBeforeCoreFlush,
    Defect::PatchTornParity,
    Defect::WriteThroughOverDirtyIsNotDirty,
];
const CASES_MAX_SELDOM: u64 = 600;
/// Reclaim frees a segment when it needs it, and then the cut has to come before the next flush.
const RAREST: Defect = Defect::ReuseBeforeCopiesAreStable;
const CASES_MAX_RAREST: u64 = 1500;

#[test]
fn every_defect_is_found_within_as_many_seeds_as_it_is_given() {
    let mut missed = Vec::new();
    for defect in Defect::ALL {
        let cases_max = match defect {
            RAREST => CASES_MAX_RAREST,
            defect if SELDOM.contains(&defect) => CASES_MAX_SELDOM,
            _ => CASES_MAX,
        };
        let order = Hunt { cases_max, defect: Some(defect), ..Hunt::from_seed(1) };
        let (tally, failures) = hunt(&order, |_| {});
        match failures.first() {
            Some(failure) => {
                let told = failure.offence.to_string();
                let first = told.lines().next().unwrap_or_default();
                println!(
                    "{defect:?}: after {} cases, seed {}: {first:.150}",
                    tally.cases, failure.seed
                );
            }
            None => missed.push((defect, cases_max)),
        }
    }
    assert!(missed.is_empty(), "not found within so many seeds: {missed:?}");
}
