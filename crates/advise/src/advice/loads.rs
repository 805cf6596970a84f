//! Streams as loads for the model, with what the volume says about reuse.

use crate::facts::CacheFacts;
use crate::model::Load;
use crate::signature::{BLOCK_BYTES, Pattern, Signature, StreamSignature, VolumeSignature};

/// A sequential stream that does not come back writes on without an end.
const UNBOUNDED_BYTES: f64 = 1e15;

/// Written again at least this often, a sequential stream comes back.
const COMES_BACK_SHARE: f64 = 0.5;

/// A load and how much of the time without a cache it takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct WeightedLoad {
    pub load: Load,
    pub requests: u64,
}

pub(super) fn of(signature: &Signature, cache: &CacheFacts) -> Vec<WeightedLoad> {
    let volume = &signature.volume;
    let hits = volume.hit_share(cache.size_bytes);
    let reach = reach_bytes(volume);
    let range = volume.range_bytes.map_or(1.0, |(low, high)| (high - low) as f64);
    let load = |stream: &StreamSignature| {
        let mut load = Load::of(stream);
        load.read_hits = hits.reads;
        load.overwrites = hits.writes.min(volume.overwrite_share);
        let is_endless =
            stream.pattern == Pattern::Sequential && volume.overwrite_share < COMES_BACK_SHARE;
        load.footprint_bytes = if is_endless { UNBOUNDED_BYTES } else { reach };
        load.range_bytes = range.max(reach);
        WeightedLoad { load, requests: stream.requests }
    };
    signature.streams.iter().map(load).collect()
}

/// How many bytes the writes would reach if they went on: from how seldom a trace of this length
/// hits the same block twice, at most the range addressed. Where some blocks are written more
/// often than others it is the least: what comes back hides how widely the rest is spread.
pub(super) fn reach_bytes(volume: &VolumeSignature) -> f64 {
    let range = volume.range_bytes.map_or(0.0, |(low, high)| (high - low) as f64);
    let written = volume.written_bytes as f64 / BLOCK_BYTES as f64;
    let distinct = written * (1.0 - volume.overwrite_share);
    if written < 1.0 {
        return volume.footprint_bytes as f64;
    }
    let limit = (range / BLOCK_BYTES as f64).max(distinct);
    blocks_drawn_from(written, distinct, limit) * BLOCK_BYTES as f64
}

/// The number of blocks from which `drawn` random ones have `distinct` different ones, at most
/// `limit`.
fn blocks_drawn_from(drawn: f64, distinct: f64, limit: f64) -> f64 {
    let expected = |blocks: f64| blocks * (1.0 - (-drawn / blocks).exp());
    let (mut low, mut high) = (distinct.max(1.0), limit.max(1.0));
    if expected(high) <= distinct {
        return high;
    }
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if expected(middle) < distinct {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn population_is_estimated_from_repetitions() {
        let population = 1e6_f64;
        let drawn = 5e5_f64;
        let distinct = population * (1.0 - (-drawn / population).exp());
        let estimate = blocks_drawn_from(drawn, distinct, 1e9);
        assert!((estimate / population - 1.0).abs() < 0.01, "{estimate}");
    }

    #[test]
    fn without_repetitions_the_range_is_all_that_is_known() {
        assert_eq!(blocks_drawn_from(1000.0, 1000.0, 1e6), 1e6);
    }
}
