//! What the whole volume is used for: how much of it, how often again, what a cache could keep.
//!
//! Blocks are sampled by a hash of their address, all of them in a small trace, fewer as the
//! footprint grows; a sampled block is followed through the whole trace, so reuse is seen exactly
//! for the sample.
//!
//! **Invariants**: at most `SAMPLE_BLOCKS_MAX` blocks are followed.
//!
//! **Source**: spatial sampling of fixed size: Waldspurger et al., "Efficient MRC Construction with
//! SHARDS", FAST '15. Hit share from reuse times: Hu et al., "Kinetic Modeling of Data Eviction in
//! Cache", USENIX ATC '16; ours has logarithmic buckets and weighs samples by the rate that held.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use headpond_trace::{Op, TraceRecord};
use serde::Serialize;

/// Bytes in the block that reuse is counted by.
pub const BLOCK_BYTES: u64 = 4096;

const SAMPLE_BLOCKS_MAX: usize = 32 * 1024;

/// Blocks of one request that are looked at; a longer one counts as if it were this long.
const REQUEST_BLOCKS_MAX: u64 = 1 << 18;

/// Buckets a doubling of reuse time.
const BUCKETS_PER_DOUBLING: f64 = 4.0;
const BUCKETS: usize = 64 * BUCKETS_PER_DOUBLING as usize;

/// Follows the sampled blocks.
#[derive(Clone, Debug)]
pub(crate) struct ReuseSampler {
    blocks: HashMap<u64, Sampled, FixedState>,
    /// A block is sampled when its hash is at most this.
    threshold: u64,
    /// Block accesses so far, sampled or not.
    clock: u64,
    reads: ReuseTimes,
    writes: ReuseTimes,
    overwrites: f64,
    range_bytes: Option<(u64, u64)>,
    bytes: [u64; 2],
}

#[derive(Clone, Copy, Debug)]
struct Sampled {
    last: u64,
    was_written: bool,
}

/// How long blocks stay unused before they are used again, in block accesses.
#[derive(Clone, Debug, PartialEq)]
struct ReuseTimes {
    /// Weight of the accesses per bucket of reuse time.
    again: Vec<f64>,
    /// Weight of the first accesses.
    first: f64,
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
    /// What a cache of each size would find in it.
    pub hits: Vec<HitShare>,
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
    pub(crate) fn new() -> Self {
        Self {
            blocks: HashMap::with_hasher(FixedState::default()),
            threshold: u64::MAX,
            clock: 0,
            reads: ReuseTimes::new(),
            writes: ReuseTimes::new(),
            overwrites: 0.0,
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
        let is_write = record.op == Op::Write;
        for block in first..=last.min(first.saturating_add(REQUEST_BLOCKS_MAX)) {
            self.clock += 1;
            let block = block ^ (u64::from(record.device) << 48);
            if mix(block) <= self.threshold {
                self.touch(block, is_write);
            }
        }
    }

    fn touch(&mut self, block: u64, is_write: bool) {
        let weight = 1.0 / self.rate();
        let times = if is_write { &mut self.writes } else { &mut self.reads };
        match self.blocks.get_mut(&block) {
            Some(sampled) => {
                times.add(self.clock - sampled.last, weight);
                if is_write && sampled.was_written {
                    self.overwrites += weight;
                }
                *sampled =
                    Sampled { last: self.clock, was_written: sampled.was_written | is_write };
            }
            None => {
                times.first += weight;
                self.blocks.insert(block, Sampled { last: self.clock, was_written: is_write });
                if self.blocks.len() > SAMPLE_BLOCKS_MAX {
                    self.threshold /= 2;
                    self.blocks.retain(|&block, _| mix(block) <= self.threshold);
                }
            }
        }
    }

    fn rate(&self) -> f64 {
        (self.threshold as f64 + 1.0) / (u64::MAX as f64 + 1.0)
    }

    pub(crate) fn finish(self) -> VolumeSignature {
        let share = |part: f64, whole: f64| if whole > 0.0 { (part / whole).min(1.0) } else { 0.0 };
        let footprint_blocks = self.blocks.len() as f64 / self.rate();
        VolumeSignature {
            footprint_bytes: (footprint_blocks * BLOCK_BYTES as f64) as u64,
            range_bytes: self.range_bytes,
            read_bytes: self.bytes[0],
            written_bytes: self.bytes[1],
            overwrite_share: share(self.overwrites, self.writes.total()),
            read_reuse_share: share(self.reads.again_total(), self.reads.total()),
            hits: self.hit_shares(footprint_blocks),
            sampling_rate: self.rate(),
        }
    }

    /// Hit shares for sizes that double up to the footprint.
    fn hit_shares(&self, footprint_blocks: f64) -> Vec<HitShare> {
        let mut shares = Vec::new();
        let mut blocks = 256.0;
        loop {
            let holds_all = blocks >= footprint_blocks;
            let eviction_bucket = if holds_all { BUCKETS } else { self.eviction_bucket(blocks) };
            shares.push(HitShare {
                cache_bytes: blocks as u64 * BLOCK_BYTES,
                reads: self.reads.share_until(eviction_bucket),
                writes: self.writes.share_until(eviction_bucket),
            });
            if holds_all {
                return shares;
            }
            blocks *= 2.0;
        }
    }

    /// The reuse time at which a cache of this many blocks evicts: where the integral of the share
    /// of accesses not yet reused reaches the size.
    fn eviction_bucket(&self, cache_blocks: f64) -> usize {
        let total = self.reads.total() + self.writes.total();
        let (mut filled, mut reused, mut from) = (0.0, 0.0, 0.0);
        for bucket in 0..BUCKETS {
            let until = bucket_end(bucket);
            let share = 1.0 - reused / total.max(1.0);
            filled += share * (until - from);
            if filled >= cache_blocks {
                return bucket;
            }
            reused += self.reads.again[bucket] + self.writes.again[bucket];
            from = until;
        }
        BUCKETS
    }
}

impl VolumeSignature {
    /// Predicted hit share of a cache of this size: the largest known size that is not larger.
    pub fn hit_share(&self, cache_bytes: u64) -> HitShare {
        let fitting = self.hits.iter().rev().find(|hit| hit.cache_bytes <= cache_bytes);
        fitting.copied().unwrap_or(HitShare { cache_bytes, reads: 0.0, writes: 0.0 })
    }
}

impl ReuseTimes {
    fn new() -> Self {
        Self { again: vec![0.0; BUCKETS], first: 0.0 }
    }

    fn add(&mut self, time: u64, weight: f64) {
        let bucket = ((time.max(1) as f64).log2() * BUCKETS_PER_DOUBLING) as usize;
        self.again[bucket.min(BUCKETS - 1)] += weight;
    }

    fn again_total(&self) -> f64 {
        self.again.iter().sum()
    }

    fn total(&self) -> f64 {
        self.first + self.again_total()
    }

    fn share_until(&self, bucket: usize) -> f64 {
        let total = self.total();
        if total > 0.0 { self.again[..bucket].iter().sum::<f64>() / total } else { 0.0 }
    }
}

/// First reuse time above the bucket.
fn bucket_end(bucket: usize) -> f64 {
    ((bucket + 1) as f64 / BUCKETS_PER_DOUBLING).exp2()
}

/// Spreads addresses evenly (the finisher of MurmurHash3).
fn mix(mut value: u64) -> u64 {
    value ^= value >> 33;
    value = value.wrapping_mul(0xff51_afd7_ed55_8ccd);
    value ^= value >> 33;
    value = value.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    value ^ (value >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(records: impl IntoIterator<Item = (Op, u64)>) -> VolumeSignature {
        let mut sampler = ReuseSampler::new();
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
        assert!(volume.sampling_rate < 0.1);
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
