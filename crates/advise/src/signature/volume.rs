//! What the whole volume is used for: how much of it, how often again, what a cache could keep.
//!
//! 1. Requests come in batches; one step after the other takes all of a batch, so that what it
//!    counts in is near.
//! 2. Each request is counted where and when it was (`VolumeCounts`).
//! 3. Its blocks go to the working set, and to what follows some of them (`reuse`, `policies`).
//! 4. The counts are summed up.
//!
//! **Invariants**: memory is bounded by the sample and by what each of the counts says; how
//! requests are cut into batches makes no difference.

use headpond_trace::{Op, TraceRecord};
use serde::{Deserialize, Serialize};

use super::arrivals::{ArrivalCounts, Arrivals};
use super::curve::{CurvePoint, Distances, curve, knee_bytes};
use super::extents::{Extents, HotSpots};
use super::heat_map::{HeatCounts, HeatMap};
use super::histogram::{Bucket, LogHistogram};
use super::placement::{Aligned, Alignment, SeekCounts, Seeks};
use super::policies::{PolicyCounts, PolicyCurve, PolicySimulation};
use super::reuse::{ReuseTracker, blocks_of};
use super::spatial_sample::{BLOCK_BYTES, BlockHash, Sampling};
use super::step::Step;
use super::working_set::{WorkingSet, WorkingSetCounts};

/// Devices whose last request is remembered; others are taken for the last of these.
const DEVICES_MAX: usize = 1024;

/// Blocks that are gathered before they are followed: enough that each of the caches in miniature
/// is fetched once for many of them.
const GATHERED_MAX: usize = 8192;

/// Looks at requests in order of issue.
#[derive(Debug)]
pub(crate) struct VolumeTracker {
    reuse: ReuseTracker,
    policies: PolicySimulation,
    counts: VolumeCounts,
    /// Told apart from the same block of other traces.
    source: u64,
    issued_ns: Option<u64>,
    /// Where the last request of each device ended.
    ends: Vec<Option<u64>>,
    /// Reads and writes of the batch.
    requests: Vec<Request>,
    /// Blocks that may be followed, each with its request.
    gathered: Vec<(BlockHash, Op, u64)>,
}

/// A read or a write.
#[derive(Clone, Copy, Debug)]
struct Request {
    op: Op,
    device: u16,
    issued_ns: u64,
    offset_bytes: u64,
    length_bytes: u64,
    first_block: u64,
    last_block: u64,
}

/// Everything that is counted. Merging two traces of different volumes gives what one pass over
/// both would give.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct VolumeCounts {
    bytes: [u64; 2],
    range_bytes: Option<(u64, u64)>,
    footprint_blocks: u64,
    reads: Distances,
    writes: Distances,
    /// Nanoseconds from the last write of a block to the write over it, and to the read of it.
    overwritten_after: LogHistogram<1>,
    read_after_write: LogHistogram<1>,
    sizes: [LogHistogram<1>; 2],
    seeks: SeekCounts,
    alignment: Alignment,
    arrivals: ArrivalCounts,
    hot_writes: Extents,
    working_set: WorkingSetCounts,
    heat_map: HeatCounts,
    policies: PolicyCounts,
    /// One in so many blocks was followed, at the end, of the trace that followed the fewest.
    one_in: u64,
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
    /// Time from one write of a block to the next, by doubling, in nanoseconds.
    pub overwritten_after: Vec<Bucket>,
    pub median_overwrite_ns: Option<u64>,
    /// Share of the blocks read that had been read or written before in the trace.
    pub read_reuse_share: f64,
    /// Share of the blocks read that had been written before in the trace.
    pub read_after_write_share: f64,
    /// Time from the last write of a block to the read of it, by doubling, in nanoseconds.
    pub read_after_write: Vec<Bucket>,
    pub median_read_after_write_ns: Option<u64>,
    /// What a cache of each size would find in it, by doubling.
    pub hits: Vec<HitShare>,
    /// What a cache of each size would miss.
    pub curve: Vec<CurvePoint>,
    /// The smallest cache that hits nine tenths of what any cache could, where there is something.
    pub knee_bytes: Option<u64>,
    /// What it would miss with each eviction policy.
    pub policies: Vec<PolicyCurve>,
    /// Different blocks asked for between two accesses to one, by doubling.
    pub reuse_distances: Vec<Bucket>,
    pub median_reuse_distance: Option<u64>,
    pub working_set: WorkingSet,
    pub hot_writes: HotSpots,
    /// Request sizes by doubling, in bytes.
    pub read_sizes: Vec<Bucket>,
    pub write_sizes: Vec<Bucket>,
    pub seeks: Seeks,
    pub alignment: Vec<Aligned>,
    pub arrivals: Arrivals,
    pub heat_map: HeatMap,
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

impl VolumeTracker {
    /// Blocks of traces with the same `source` are the same.
    pub(crate) fn new(sampling: Sampling, source: &str) -> Self {
        Self {
            reuse: ReuseTracker::new(sampling),
            policies: PolicySimulation::new(sampling.one_in),
            counts: VolumeCounts::default(),
            source: number_of(source),
            issued_ns: None,
            ends: Vec::new(),
            requests: Vec::new(),
            gathered: Vec::with_capacity(2 * GATHERED_MAX),
        }
    }

    /// Adds requests in order of issue, and tells when each step is done; only reads and writes
    /// touch data.
    pub(crate) fn add(&mut self, records: &[TraceRecord], done: &mut impl FnMut(Step)) {
        for record in records {
            let before_ns = self.issued_ns.replace(record.issued_ns);
            let gap_ns = before_ns.map(|before_ns| record.issued_ns.saturating_sub(before_ns));
            self.counts.arrivals.add(record.issued_ns, gap_ns);
        }
        done(Step::Arrivals);
        let mut requests = std::mem::take(&mut self.requests);
        records.iter().filter_map(Request::of).for_each(|request| requests.push(request));
        self.place(&requests);
        done(Step::Placement);
        for request in &requests {
            self.counts.heat_map.add(request.op, request.issued_ns, request.offset_bytes);
        }
        done(Step::HeatMap);
        for request in requests.iter().filter(|request| request.op == Op::Write) {
            let Request { device, first_block, last_block, .. } = *request;
            self.counts.hot_writes.add(device, first_block, last_block);
        }
        done(Step::HotSpots);
        self.touch(&requests, done);
        requests.clear();
        self.requests = requests;
    }

    /// Counts where requests lie.
    fn place(&mut self, requests: &[Request]) {
        for request in requests {
            let device = usize::from(request.device).min(DEVICES_MAX - 1);
            if device >= self.ends.len() {
                self.ends.resize(device + 1, None);
            }
            if let Some(ended_bytes) = self.ends[device].replace(request.end_bytes()) {
                self.counts.seeks.add(ended_bytes, request.offset_bytes);
            }
            self.counts.place(request);
            self.reuse.count(request.op, request.blocks());
            self.policies.count(request.blocks());
        }
    }

    /// Brings the blocks of requests where they are counted. Each is hashed once.
    fn touch(&mut self, requests: &[Request], done: &mut impl FnMut(Step)) {
        let mut threshold = self.threshold();
        for request in requests {
            let Request { op, device, issued_ns, .. } = *request;
            let mut at = request.first_block;
            while at <= request.last_block {
                if self.gathered.len() > GATHERED_MAX {
                    done(Step::WorkingSet);
                    self.follow(done);
                    threshold = self.threshold();
                }
                let end = (request.last_block + 1).min(at + GATHERED_MAX as u64);
                let (source, gathered) = (self.source, &mut self.gathered);
                let sourced = (at..end).map(|block| {
                    let block = BlockHash::of(device, block);
                    if block.0 <= threshold {
                        gathered.push((block, op, issued_ns));
                    }
                    block.of_source(source)
                });
                self.counts.working_set.add(issued_ns, op == Op::Write, sourced);
                at = end;
            }
        }
        done(Step::WorkingSet);
    }

    /// Blocks with a higher hash are followed by nobody.
    fn threshold(&self) -> u64 {
        self.reuse.threshold().max(self.policies.threshold())
    }

    /// Follows the blocks that were gathered.
    fn follow(&mut self, done: &mut impl FnMut(Step)) {
        for at in 0..self.gathered.len() {
            let (block, op, issued_ns) = self.gathered[at];
            self.access(block, op, issued_ns);
        }
        done(Step::Reuse);
        self.policies.access(self.gathered.iter().map(|&(block, ..)| block));
        self.gathered.clear();
        done(Step::Policies);
    }

    #[inline]
    fn access(&mut self, block: BlockHash, op: Op, issued_ns: u64) {
        let Some(access) = self.reuse.access(op, block) else {
            return;
        };
        let (before_ns, after) = match op {
            Op::Write => {
                let before_ns = access.block.written_ns.replace(issued_ns);
                (before_ns, &mut self.counts.overwritten_after)
            }
            _ => (access.block.written_ns, &mut self.counts.read_after_write),
        };
        if let Some(before_ns) = before_ns {
            after.add(issued_ns.saturating_sub(before_ns), access.one_in);
        }
        if access.is_new {
            let met_blocks = self.reuse.make_room();
            self.policies.give_up(met_blocks);
        }
    }

    /// The counts of the whole trace.
    pub(crate) fn finish(mut self) -> VolumeCounts {
        self.follow(&mut |_| {});
        self.counts.arrivals.finish();
        self.counts.footprint_blocks = self.reuse.make_room();
        self.counts.policies = self.policies.finish();
        (self.counts.reads, self.counts.writes, self.counts.one_in) = self.reuse.finish();
        self.counts
    }
}

impl Request {
    /// `None` for what touches no data.
    #[inline]
    fn of(record: &TraceRecord) -> Option<Self> {
        let &TraceRecord { op, device, issued_ns, offset_bytes, length_bytes, .. } = record;
        let (first_block, last_block) = blocks_of(record)?;
        let placed =
            Self { op, device, issued_ns, offset_bytes, length_bytes, first_block, last_block };
        Some(placed)
    }

    #[inline]
    fn end_bytes(&self) -> u64 {
        self.offset_bytes.saturating_add(self.length_bytes)
    }

    #[inline]
    fn blocks(&self) -> u64 {
        self.last_block - self.first_block + 1
    }
}

impl VolumeCounts {
    /// Where and how a read or a write lies.
    #[inline]
    fn place(&mut self, request: &Request) {
        let (low, high) = self.range_bytes.unwrap_or((u64::MAX, 0));
        self.range_bytes = Some((low.min(request.offset_bytes), high.max(request.end_bytes())));
        let op = request.op.index();
        self.bytes[op] = self.bytes[op].saturating_add(request.length_bytes);
        self.sizes[op].add(request.length_bytes, 1);
        self.alignment.add(request.offset_bytes, request.length_bytes);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for index in 0..self.bytes.len() {
            self.bytes[index] = self.bytes[index].saturating_add(other.bytes[index]);
            self.sizes[index].merge(&other.sizes[index]);
        }
        let both = self.range_bytes.zip(other.range_bytes);
        let joined = both.map(|(one, other)| (one.0.min(other.0), one.1.max(other.1)));
        self.range_bytes = joined.or(self.range_bytes).or(other.range_bytes);
        self.footprint_blocks = self.footprint_blocks.saturating_add(other.footprint_blocks);
        self.reads.merge(&other.reads);
        self.writes.merge(&other.writes);
        self.overwritten_after.merge(&other.overwritten_after);
        self.read_after_write.merge(&other.read_after_write);
        self.seeks.merge(&other.seeks);
        self.alignment.merge(&other.alignment);
        self.arrivals.merge(&other.arrivals);
        self.hot_writes.merge(&other.hot_writes);
        self.working_set.merge(&other.working_set);
        self.heat_map.merge(&other.heat_map);
        self.policies.merge(&other.policies);
        self.one_in = self.one_in.max(other.one_in);
    }

    /// False where damage has left what no trace gives.
    pub(crate) fn is_sound(&self) -> bool {
        self.working_set.is_sound() && self.hot_writes.is_sound() && self.heat_map.is_sound()
    }

    /// Whether everything is alike that two volumes have together as they have it each alone.
    #[cfg(test)]
    pub(crate) fn agrees_with(&self, other: &Self) -> bool {
        let part = |it: &Self| Self {
            reads: Distances::default(),
            writes: Distances::default(),
            arrivals: ArrivalCounts::default(),
            policies: PolicyCounts::default(),
            ..it.clone()
        };
        part(self) == part(other)
    }

    pub(crate) fn summary(&self) -> VolumeSignature {
        let curve = curve(&self.reads, &self.writes);
        let mut both = self.reads.clone();
        both.merge(&self.writes);
        let footprint_bytes = self.footprint_blocks.saturating_mul(BLOCK_BYTES);
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        VolumeSignature {
            footprint_bytes,
            range_bytes: self.range_bytes,
            read_bytes: self.bytes[0],
            written_bytes: self.bytes[1],
            overwrite_share: share(self.overwritten_after.total(), self.writes.weight()),
            overwritten_after: self.overwritten_after.doublings(),
            median_overwrite_ns: self.overwritten_after.quantile(0.5),
            read_reuse_share: self.reads.again_share(),
            read_after_write_share: share(self.read_after_write.total(), self.reads.weight()),
            read_after_write: self.read_after_write.doublings(),
            median_read_after_write_ns: self.read_after_write.quantile(0.5),
            hits: by_doubling(&curve, footprint_bytes),
            knee_bytes: knee_bytes(&curve),
            curve,
            policies: self.policies.summary(self.footprint_blocks),
            reuse_distances: both.again().doublings(),
            median_reuse_distance: both.again().quantile(0.5),
            working_set: self.working_set.summary(),
            hot_writes: self.hot_writes.summary(),
            read_sizes: self.sizes[0].doublings(),
            write_sizes: self.sizes[1].doublings(),
            seeks: self.seeks.summary(),
            alignment: self.alignment.summary(),
            arrivals: self.arrivals.summary(),
            heat_map: self.heat_map.summary(),
            sampling_rate: 1.0 / self.one_in.max(1) as f64,
        }
    }
}

/// A number for a name, the same in every version (FNV-1a).
fn number_of(name: &str) -> u64 {
    let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

/// Hit shares for sizes that double from 1 MiB up to the footprint.
fn by_doubling(curve: &[CurvePoint], footprint_bytes: u64) -> Vec<HitShare> {
    if curve.is_empty() {
        return Vec::new();
    }
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

    /// Missed part of the blocks read and written, likewise.
    pub fn miss_ratio(&self, cache_bytes: u64) -> f64 {
        let after = self.curve.partition_point(|point| point.cache_bytes <= cache_bytes);
        self.curve[..after].last().map_or(1.0, |point| point.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(records: impl IntoIterator<Item = (Op, u64)>) -> VolumeSignature {
        let mut sampler = VolumeTracker::new(Sampling::default(), "");
        for (op, block) in records {
            let record = TraceRecord::new(0, op, block * BLOCK_BYTES, BLOCK_BYTES);
            sampler.add(&[record], &mut |_| {});
        }
        sampler.finish().summary()
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

    #[test]
    fn times_between_writes_and_to_reads_are_known() {
        let mut tracker = VolumeTracker::new(Sampling::default(), "");
        for round in 0..10 {
            for block in 0..100 {
                let at_ns = round << 30 | block << 10;
                let offset = block * BLOCK_BYTES;
                let write = TraceRecord::new(at_ns, Op::Write, offset, BLOCK_BYTES);
                tracker.add(&[write], &mut |_| {});
                if block % 2 == 0 {
                    let read = TraceRecord::new(at_ns + 512, Op::Read, offset, BLOCK_BYTES);
                    tracker.add(&[read], &mut |_| {});
                }
            }
        }
        let volume = tracker.finish().summary();
        assert_eq!(volume.median_overwrite_ns, Some(1 << 30));
        assert_eq!(volume.overwritten_after.len(), 1);
        assert_eq!(volume.median_read_after_write_ns, Some(512));
        assert_eq!((volume.read_after_write_share, volume.overwrite_share), (1.0, 0.9));
    }
}
