//! Counters of requests and blocks.

use super::Log;
use crate::admission::Filling;
use crate::classes::ClassId;
use crate::log::Survey;
use crate::stats::{BypassReason, ClassStats, CoreStats, Counters, ErrorStats, RequestStats};
use crate::types::CoreBlock;
use headpond_block::{BLOCK_BYTES, Request};

/// A cache that drives out what it holds, or had no room for a write, counts as full down to this
/// share of what may be dirty.
const FULL_DOWN_TO_PERCENT: u64 = 50;

impl Log {
    /// How full the cache is, of what may be dirty.
    ///
    /// The log goes round long before the last place is mapped, how long before depends on its
    /// size: it counts as full from the first time that reclaim drove a clean block out, and when
    /// whoever enters makes somebody else leave. So it does from the first write that found too
    /// much dirty: what the cleaner frees then is for those who wait, not for the next stream.
    pub fn filling(&self) -> Filling {
        let percent = self.mapped_percent();
        let is_full = percent >= 100
            || self.is_full_of_residents()
            || self.is_crowded && percent >= FULL_DOWN_TO_PERCENT;
        Filling { percent: if is_full { 100 } else { percent }, is_full }
    }

    fn mapped_percent(&self) -> u64 {
        let counts = self.map.counts();
        (counts.mapped() + counts.pending_dirty) * 100 / self.dirty_max().max(1)
    }

    /// Reclaim is about to drop clean blocks, or has nothing to drop.
    pub fn note_eviction(&mut self, dropped: u64) {
        if self.mapped_percent() < FULL_DOWN_TO_PERCENT {
            self.is_crowded = false;
        } else if dropped > 0 {
            self.is_crowded = true;
        }
    }

    /// A write waits for dirty data to become clean.
    pub fn note_no_room(&mut self) {
        self.is_crowded = true;
    }

    pub(crate) fn count_read(&mut self, request: &Request, hits: u64, blocks: u64) {
        count(&mut self.class_of(request).read, request, hits, blocks);
        if let Some(core) = self.core_at(block_of(request)) {
            count(&mut core.read, request, hits, blocks);
        }
    }

    pub(crate) fn count_write(&mut self, request: &Request, survey: Survey, blocks: u64) {
        let hits = survey.mapped.min(blocks);
        count(&mut self.class_of(request).write, request, hits, blocks);
        if let Some(core) = self.core_at(block_of(request)) {
            count(&mut core.write, request, hits, blocks);
        }
    }

    pub(crate) fn count_pass_through_read(&mut self, request: &Request, reason: BypassReason) {
        let class = self.class_of(request);
        class.bypass.count(reason);
        count_past(&mut class.read, request);
        if let Some(core) = self.core_at(block_of(request)) {
            core.bypass.count(reason);
            count_past(&mut core.read, request);
        }
    }

    pub(crate) fn count_pass_through_write(&mut self, request: &Request, reason: BypassReason) {
        let class = self.class_of(request);
        class.bypass.count(reason);
        count_past(&mut class.write, request);
        if let Some(core) = self.core_at(block_of(request)) {
            core.bypass.count(reason);
            count_past(&mut core.write, request);
        }
    }

    /// All counters are zero from here on.
    pub fn reset_counters(&mut self) {
        self.counters = Counters { errors: self.counters.errors, ..Counters::default() };
        for stats in self.classes.iter_mut() {
            *stats = ClassStats { errors: stats.errors, ..ClassStats::default() };
        }
        for stats in &mut self.cores {
            *stats = CoreStats { core: stats.core, errors: stats.errors, ..CoreStats::default() };
        }
    }

    /// The counts of errors alone.
    pub fn clear_errors(&mut self) {
        self.counters.errors = ErrorStats::default();
        self.classes.iter_mut().for_each(|stats| stats.errors = ErrorStats::default());
        self.cores.iter_mut().for_each(|stats| stats.errors = ErrorStats::default());
    }

    pub(crate) fn class_of(&mut self, request: &Request) -> &mut ClassStats {
        &mut self.classes[id_of(request).index()]
    }

    /// Blocks that requests have read, from the cache or past it.
    pub(super) fn blocks_read(&self) -> u64 {
        let read = self.classes.iter().map(|class| class.read);
        read.map(|read| read.blocks_hit + read.blocks_missed).sum()
    }

    /// The counters, with the sums over all classes.
    pub fn totals(&self) -> Counters {
        let mut totals = self.counters;
        totals.traffic.cache = self.counters.log_traffic();
        for class in self.classes.iter() {
            totals.read += class.read;
            totals.write += class.write;
            totals.bypass += class.bypass;
        }
        totals
    }
}

/// The class that a request was given; one that there cannot be counts as none.
#[inline]
pub(crate) fn id_of(request: &Request) -> ClassId {
    ClassId::new(request.hints.class.into()).unwrap_or_default()
}

fn block_of(request: &Request) -> CoreBlock {
    CoreBlock(request.range.start() / BLOCK_BYTES)
}

fn count(stats: &mut RequestStats, request: &Request, hits: u64, blocks: u64) {
    stats.requests += 1;
    stats.bytes += request.range.len();
    stats.blocks_hit += hits;
    stats.blocks_missed += blocks - hits;
    match hits {
        0 => stats.misses += 1,
        hits if hits < blocks => stats.partial_hits += 1,
        _ => stats.hits += 1,
    }
}

fn count_past(stats: &mut RequestStats, request: &Request) {
    stats.requests += 1;
    stats.bytes += request.range.len();
    stats.pass_through += 1;
}
