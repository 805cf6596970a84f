//! What could go wrong, or make the figures wrong.

use super::StreamAdvice;
use super::candidates::Candidate;
use super::loads::{WeightedLoad, reach_bytes};
use crate::facts::CacheFacts;
use crate::render::{percent, rate, size};
use crate::settings::CacheMode;
use crate::signature::Signature;

/// A trace with fewer requests says little.
const REQUESTS_MIN: u64 = 1000;

/// Measured and predicted rates that differ by more deserve a word.
const DISAGREEMENT_MAX: f64 = 3.0;

/// All warnings that apply.
pub(super) fn all(
    signature: &Signature,
    loads: &[WeightedLoad],
    cache: &CacheFacts,
    chosen: &Candidate,
    streams: &[StreamAdvice],
) -> Vec<String> {
    let mut warnings = Vec::new();
    durability(cache, chosen, &mut warnings);
    if chosen.mode != CacheMode::PassThrough {
        capacity(signature, cache, chosen, &mut warnings);
        slowed(loads, streams, &mut warnings);
    }
    evidence(signature, streams, &mut warnings);
    warnings
}

fn durability(cache: &CacheFacts, chosen: &Candidate, warnings: &mut Vec<String>) {
    let is_write_back = chosen.mode == CacheMode::WriteBack;
    if cache.lost_on_power && is_write_back {
        warnings.push(
            "the cache loses its contents with the power: write-back must be forced, and a power \
             cut loses every write that is still dirty"
                .to_owned(),
        );
    } else if cache.lost_on_power {
        warnings.push(
            "the cache loses its contents with the power: write-back was not considered (it is \
             refused unless forced)"
                .to_owned(),
        );
    }
    if is_write_back && !cache.mirrored && !cache.lost_on_power {
        warnings.push(format!(
            "the cache is not mirrored: if it fails, up to {} of dirty data are lost; two devices \
             in RAID 1 avoid that",
            size(cache.size_bytes)
        ));
    }
}

fn capacity(
    signature: &Signature,
    cache: &CacheFacts,
    chosen: &Candidate,
    warnings: &mut Vec<String>,
) {
    let volume = &signature.volume;
    let reach = reach_bytes(volume);
    let writes = volume.written_bytes > 0 && chosen.mode == CacheMode::WriteBack;
    if writes && reach > cache.size_bytes as f64 {
        warnings.push(format!(
            "the writes reach over {} at least, the cache holds {}: once it is full of dirty data the \
             sustained rate holds, not the burst",
            size(reach as u64),
            size(cache.size_bytes)
        ));
    }
    let hits = volume.hit_share(cache.size_bytes).reads;
    if volume.read_reuse_share > hits + 0.1 {
        warnings.push(format!(
            "the cache is smaller than the working set: it would answer {} of the reads, one that \
             holds all of the {} in use {}",
            percent(hits),
            size(volume.footprint_bytes),
            percent(volume.read_reuse_share)
        ));
    }
}

/// Streams that lose by the advised settings.
fn slowed(loads: &[WeightedLoad], streams: &[StreamAdvice], warnings: &mut Vec<String>) {
    for (stream, weighted) in streams.iter().zip(loads) {
        let rates = &stream.rates;
        if rates.sustained_gain() > 0.95 {
            continue;
        }
        let kind = if weighted.load.is_sequential { "sequential load" } else { "load" };
        warnings.push(format!(
            "the cache slows the {kind} of stream {} ({}) to {} sustained, from {}; a cutoff cannot \
             keep it out without costing the others more",
            stream.number,
            stream.description,
            rate(rates.sustained),
            rate(rates.without_cache)
        ));
    }
}

fn evidence(signature: &Signature, streams: &[StreamAdvice], warnings: &mut Vec<String>) {
    if signature.requests < REQUESTS_MIN {
        warnings.push(format!("the trace has only {} requests", signature.requests));
    }
    if signature.depth.is_none() && signature.requests > 0 {
        warnings.push(
            "the trace does not tell completions: queue depth is unknown, 1 is assumed".to_owned(),
        );
        return;
    }
    let disagrees = |stream: &&StreamAdvice| {
        let ratio = stream.measured / stream.rates.without_cache;
        stream.measured > 0.0 && !(1.0 / DISAGREEMENT_MAX..DISAGREEMENT_MAX).contains(&ratio)
    };
    for stream in streams.iter().filter(disagrees) {
        warnings.push(format!(
            "stream {} ran at {} while it was traced; the model gives {} without a cache: check the \
             facts about the core, or whether a cache was active",
            stream.number,
            rate(stream.measured),
            rate(stream.rates.without_cache)
        ));
    }
}
