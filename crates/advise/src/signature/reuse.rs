//! Follows blocks through a trace and counts how far apart two accesses to one are.
//!
//! 1. Each access is counted, whoever it is to. 2. The block is touched where the sample follows
//!    it, and the distance goes to those of reads or of writes. 3. The curve is drawn from both.
//!
//! **Invariants**: a block that is let go was counted before.

use headpond_trace::{Op, TraceRecord};

use super::curve::{CurvePoint, Distances, curve};
use super::spatial_sample::{BLOCK_BYTES, BlockHash, Followed, Sample, Sampling};

/// Blocks of one request that are looked at; a longer one counts as if it were this long.
const REQUEST_BLOCKS_MAX: u64 = 1 << 18;

/// Finds the miss-ratio curves of a trace, and nothing else.
#[derive(Clone, Debug)]
pub struct ReuseTracker {
    sample: Sample,
    reads: Distances,
    writes: Distances,
}

/// An access to a block that is followed.
pub(crate) struct Access<'a> {
    pub block: &'a mut Followed,
    /// It was not met before.
    pub is_new: bool,
    /// Blocks that it stands for.
    pub one_in: u64,
}

/// First and last block of a request; `None` for one without data.
#[inline]
pub(crate) fn blocks_of(record: &TraceRecord) -> Option<(u64, u64)> {
    if record.length_bytes == 0 || !matches!(record.op, Op::Read | Op::Write) {
        return None;
    }
    let first = record.offset_bytes / BLOCK_BYTES;
    let last = (record.end_bytes() - 1) / BLOCK_BYTES;
    Some((first, last.min(first + (REQUEST_BLOCKS_MAX - 1))))
}

impl ReuseTracker {
    /// # Panics
    /// When no blocks are followed.
    pub fn new(sampling: Sampling) -> Self {
        let (reads, writes) = (Distances::default(), Distances::default());
        Self { sample: Sample::new(sampling), reads, writes }
    }

    /// Adds a request, in order of issue; what is no read or write touches no data.
    #[inline]
    pub fn add(&mut self, record: &TraceRecord) {
        let Some((first, last)) = blocks_of(record) else {
            return;
        };
        self.count(record.op, last - first + 1);
        for block in first..=last {
            let access = self.access(record.op, BlockHash::of(record.device, block));
            if access.is_some_and(|access| access.is_new) {
                self.make_room();
            }
        }
    }

    /// What caches of all sizes would miss.
    pub fn curve(&self) -> Vec<CurvePoint> {
        curve(&self.reads, &self.writes)
    }

    /// Blocks with a higher hash are not followed, now or later.
    #[inline]
    pub(crate) fn threshold(&self) -> u64 {
        self.sample.threshold()
    }

    /// So many blocks are asked for, followed or not.
    #[inline]
    pub(crate) fn count(&mut self, op: Op, blocks: u64) {
        self.distances(op).count(blocks);
    }

    /// One of them; `None` where it is not followed.
    #[inline]
    pub(crate) fn access(&mut self, op: Op, block: BlockHash) -> Option<Access<'_>> {
        self.sample.follows(block).then(|| self.follow(op, block))
    }

    fn follow(&mut self, op: Op, block: BlockHash) -> Access<'_> {
        let one_in = self.sample.one_in();
        let distances = if op == Op::Write { &mut self.writes } else { &mut self.reads };
        let touched = self.sample.touch(block);
        distances.add(touched.distance, one_in);
        Access { is_new: touched.distance.is_none(), block: touched.block, one_in }
    }

    /// Lets blocks go where a new one was one too many; how many different ones were met.
    pub(crate) fn make_room(&mut self) -> u64 {
        self.sample.make_room();
        self.sample.distinct()
    }

    /// Distances of reads and of writes, and what a followed block stands for in the end.
    pub(crate) fn finish(self) -> (Distances, Distances, u64) {
        (self.reads, self.writes, self.sample.one_in())
    }

    fn distances(&mut self, op: Op) -> &mut Distances {
        if op == Op::Write { &mut self.writes } else { &mut self.reads }
    }
}
