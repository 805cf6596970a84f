//! What the whole volume is used for: how much of it, how often again, what a cache could keep.
//!
//! 1. Each block that is read or written is counted; those of the sample are followed (`sample`).
//! 2. How far apart two accesses to a block are goes to the distances of reads or writes (`curve`).
//!
//! **Invariants**: memory is bounded by the sample.

use headpond_trace::{Op, TraceRecord};
use serde::Serialize;

use super::curve::{CurvePoint, Distances, curve};
use super::histogram::Bucket;
use super::sample::{BLOCK_BYTES, BlockHash, Sample, Sampling};

/// Blocks of one request that are looked at; a longer one counts as if it were this long.
const REQUEST_BLOCKS_MAX: u64 = 1 << 18;

/// Follows the sampled blocks.
#[derive(Clone, Debug)]
pub(crate) struct ReuseSampler {
    sample: Sample,
    reads: Distances,
    writes: Distances,
    overwrites: u64,
    range_bytes: Option<(u64, u64)>,
    bytes: [u64; 2],
}

/// Use of the whole volume.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VolumeSignature {
    /// Distinct bytes touched, in blocks of 4 KiB.
    pub footprint_bytes: u64,
    /// Lowest and highest byte addressed.
    pub range_bytes: Option<(u64, u64)>,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Share of the blocks written that had been written before in the trace.
    pub overwrite_share: f64,
    /// Share of the blocks read that had been read or written before in the trace.
    pub read_reuse_share: f64,
    /// What a cache of each size would find in it, by doubling.
    pub hits: Vec<HitShare>,
    /// What a cache of each size would miss.
    pub curve: Vec<CurvePoint>,
    /// Different blocks asked for between two accesses to one, by doubling.
    pub reuse_distances: Vec<Bucket>,
    pub median_reuse_distance: Option<u64>,
    /// Share of the blocks that were followed.
    pub sampling_rate: f64,
}

/// Predicted share of hits in an LRU cache that takes every access in.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct HitShare {
    pub cache_bytes: u64,
    pub reads: f64,
    pub writes: f64,
}

impl ReuseSampler {
    pub(crate) fn new(sampling: Sampling) -> Self {
        Self {
            sample: Sample::new(sampling),
            reads: Distances::default(),
            writes: Distances::default(),
            overwrites: 0,
            range_bytes: None,
            bytes: [0; 2],
        }
    }

    /// Adds a read or a write; other operations do not touch data.
    pub(crate) fn add(&mut self, record: &TraceRecord) {
        if record.length_bytes == 0 || !matches!(record.op, Op::Read | Op::Write) {
            return;
        }
        let (low, high) = self.range_bytes.unwrap_or((u64::MAX, 0));
        self.range_bytes = Some((low.min(record.offset_bytes), high.max(record.end_bytes())));
        let sum = &mut self.bytes[record.op.index()];
        *sum = sum.saturating_add(record.length_bytes);
        let first = record.offset_bytes / BLOCK_BYTES;
        let last = (record.end_bytes() - 1) / BLOCK_BYTES;
        let last = last.min(first + (REQUEST_BLOCKS_MAX - 1));
        let distances = if record.op == Op::Write { &mut self.writes } else { &mut self.reads };
        distances.count(last - first + 1);
        for block in first..=last {
            let hash = BlockHash::of(record.device, block);
            if self.sample.follows(hash) {
                self.touch(hash, record);
            }
        }
    }

    fn touch(&mut self, hash: BlockHash, record: &TraceRecord) {
        let one_in = self.sample.one_in();
        let touched = self.sample.touch(hash);
        let distance = touched.distance;
        if record.op == Op::Write {
            self.writes.add(distance, one_in);
            if touched.block.written_ns.replace(record.issued_ns).is_some() {
                self.overwrites = self.overwrites.saturating_add(one_in);
            }
        } else {
            self.reads.add(distance, one_in);
        }
        self.sample.make_room();
    }

    pub(crate) fn finish(self) -> VolumeSignature {
        let curve = curve(&self.reads, &self.writes);
        let mut both = self.reads.clone();
        both.merge(&self.writes);
        let footprint_bytes = self.sample.distinct().saturating_mul(BLOCK_BYTES);
        VolumeSignature {
            footprint_bytes,
            range_bytes: self.range_bytes,
            read_bytes: self.bytes[0],
            written_bytes: self.bytes[1],
            overwrite_share: self.overwrites as f64 / self.writes.weight().max(1) as f64,
            read_reuse_share: self.reads.again_share(),
            hits: by_doubling(&curve, footprint_bytes),
            curve,
            reuse_distances: both.again().doublings(),
            median_reuse_distance: both.again().quantile(0.5),
            sampling_rate: 1.0 / self.sample.one_in() as f64,
        }
    }
}

/// Hit shares for sizes that double from 1 MiB up to the footprint.
fn by_doubling(curve: &[CurvePoint], footprint_bytes: u64) -> Vec<HitShare> {
    let sizes = (20..63).map(|exponent| 1u64 << exponent);
    let below = sizes.clone().take_while(|&bytes| bytes < footprint_bytes).count();
    sizes.take(below + 1).map(|bytes| hit_share(curve, bytes)).collect()
}

fn hit_share(curve: &[CurvePoint], cache_bytes: u64) -> HitShare {
    let after = curve.partition_point(|point| point.cache_bytes <= cache_bytes);
    match curve[..after].last() {
        Some(point) => {
            HitShare { cache_bytes, reads: 1.0 - point.reads, writes: 1.0 - point.writes }
        }
        None => HitShare { cache_bytes, reads: 0.0, writes: 0.0 },
    }
}

impl VolumeSignature {
    /// Predicted hit share of a cache of this size: that of the largest size on the curve that is
    /// not larger.
    pub fn hit_share(&self, cache_bytes: u64) -> HitShare {
        hit_share(&self.curve, cache_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(records: impl IntoIterator<Item = (Op, u64)>) -> VolumeSignature {
        let mut sampler = ReuseSampler::new(Sampling::default());
        for (op, block) in records {
            sampler.add(&TraceRecord::new(0, op, block * BLOCK_BYTES, BLOCK_BYTES));
        }
        sampler.finish()
    }

    #[test]
    fn rewriting_is_told_from_writing_once() {
        let once = volume((0..1000).map(|n| (Op::Write, n)));
        assert_eq!(once.overwrite_share, 0.0);
        let again = volume((0..1000).map(|n| (Op::Write, n % 100)));
        assert!((again.overwrite_share - 0.9).abs() < 1e-9);
        assert_eq!(again.footprint_bytes, 100 * BLOCK_BYTES);
    }

    #[test]
    fn footprint_of_a_large_volume_is_estimated_within_three_percent() {
        let blocks = 1_000_000;
        let volume = volume((0..blocks).map(|n| (Op::Read, n * 37)));
        let error = volume.footprint_bytes as f64 / (blocks * BLOCK_BYTES) as f64 - 1.0;
        assert!(error.abs() < 0.03, "{error}");
        assert!(volume.sampling_rate < 0.2);
        assert_eq!(volume.read_reuse_share, 0.0);
    }

    #[test]
    fn loop_hits_only_in_a_cache_that_holds_it() {
        let volume = volume((0..200_000).map(|n| (Op::Read, n % 8192)));
        assert!(volume.hit_share(4096 * BLOCK_BYTES).reads < 0.05);
        assert!(volume.hit_share(16384 * BLOCK_BYTES).reads > 0.9);
    }

    #[test]
    fn written_then_read_counts_as_reuse_of_reads() {
        let writes = (0..500).map(|n| (Op::Write, n));
        let volume = volume(writes.chain((0..500).map(|n| (Op::Read, n))));
        assert_eq!(volume.read_reuse_share, 1.0);
        assert_eq!(volume.overwrite_share, 0.0);
    }
}
