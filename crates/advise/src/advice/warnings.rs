//! What could go wrong, or make the figures wrong.

use super::KindAdvice;
use crate::search::{Risk, SearchResult, Tried};
use crate::signature::Signature;
use crate::situation::Situation;
use crate::wear::Wear;
use headpond_report::{micros, size};
use headpond_whatif::Kind;

/// A trace with fewer requests says little.
const REQUESTS_MIN: u64 = 1000;
/// What loses more than this is slowed.
const SLOWED: f64 = 1.05;
/// Of the time in which requests come, who falls behind by more does not keep up.
const BEHIND: f64 = 0.05;

/// All warnings that apply.
pub(super) fn all(
    signature: &Signature,
    situation: &Situation,
    found: &SearchResult,
    (wear, kinds): (Option<&Wear>, &[KindAdvice]),
) -> Vec<String> {
    let mut warnings = Vec::new();
    durability(situation, found, &mut warnings);
    if found.chosen.candidate.has_cache() {
        warnings.extend(wear.and_then(Wear::warning));
        warnings.extend(kinds.iter().filter_map(slowed));
    }
    evidence(signature, situation, found, &mut warnings);
    warnings
}

fn durability(situation: &Situation, found: &SearchResult, warnings: &mut Vec<String>) {
    let is_dirty = found.chosen.candidate.risk() == Risk::Dirty;
    let bytes = situation.stack.cache.as_ref().map_or(0, |cache| cache.size.bytes());
    if situation.cache_is_lost_on_power && is_dirty {
        warnings.push(
            "the cache loses its contents with the power: modes with dirty data must be forced, and a \
             power cut loses every write that is still dirty"
                .to_owned(),
        );
    } else if situation.cache_is_lost_on_power && !situation.may_lose_dirty {
        warnings.push(
            "the cache loses its contents with the power: modes with dirty data were not considered \
             (they are refused unless forced)"
                .to_owned(),
        );
    } else if is_dirty && !situation.cache_is_mirrored {
        warnings.push(format!(
            "the cache is not mirrored: if it fails, up to {} of dirty data are lost; --goal safety \
             finds the best settings that lose nothing",
            size(bytes)
        ));
    }
}

fn slowed(kind: &KindAdvice) -> Option<String> {
    let is_slowed = kind.with_advice_us > kind.without_cache_us * SLOWED;
    is_slowed.then(|| {
        format!(
            "{} are answered later than without a cache: {} instead of {} on average",
            name_of(kind.kind, kind.bytes),
            micros(kind.with_advice_us),
            micros(kind.without_cache_us)
        )
    })
}

/// Requests of a kind, and of a size where they have one.
pub(super) fn name_of(kind: Kind, bytes: u64) -> String {
    let name = match kind {
        Kind::Read => "reads",
        Kind::Write => "writes",
        Kind::Flush => "flushes",
    };
    let of_size = if bytes > 0 { format!(" of {} and more", size(bytes)) } else { String::new() };
    format!("{name}{of_size}")
}

/// Who does not keep up at the recorded times has no response that stays what it is.
fn behind(found: &SearchResult) -> Option<String> {
    let falls_behind = |it: &Tried| it.trial.behind > BEHIND;
    let who = match (falls_behind(&found.without_cache), falls_behind(&found.chosen)) {
        (false, false) => return None,
        (_, true) if !found.chosen.candidate.has_cache() => "the array does not",
        (true, false) => "the array without a cache does not",
        (false, true) => "what is advised does not",
        (true, true) => "neither the array without a cache nor what is advised does",
    };
    Some(format!(
        "at the recorded times {who} keep up: responses and gain grow for as long as it \
         goes on so, and are those of the sample; --goal throughput tells what can be kept up"
    ))
}

fn evidence(
    signature: &Signature,
    situation: &Situation,
    found: &SearchResult,
    warnings: &mut Vec<String>,
) {
    if signature.requests < REQUESTS_MIN {
        warnings.push(format!("the trace has only {} requests", signature.requests));
    }
    if signature.depth.is_none() && !situation.goal.is_about_responses() {
        warnings.push(format!(
            "the trace does not tell when requests were answered: {} in flight are assumed",
            situation.depth_unless_told
        ));
    }
    let classes = situation.stack.cache.as_ref().map(|cache| cache.settings.classes.classes());
    let asks_for_metadata = classes.is_some_and(|classes| classes.asks_for_metadata());
    if asks_for_metadata && signature.metadata_share() == 0.0 {
        warnings.push(
            "the classes that are set ask what is metadata, and the trace marks nothing as such: to \
             all figures every request is data"
                .to_owned(),
        );
    }
    if situation.goal.is_about_responses() {
        warnings.extend(behind(found));
    }
    if found.chosen.trial.errors > 0 {
        warnings.push(format!("{} requests failed in the replay", found.chosen.trial.errors));
    }
}
