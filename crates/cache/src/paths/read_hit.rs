//! Contiguous read hits: nothing to plan, nothing to insert.

use crate::config::Mode;
use crate::engine::{Engine, Pin};
use crate::line_map::{FoundVersion, State, Version};
use crate::log::{Log, id_of};
use crate::paths::read::Piece;
use crate::stats::{CacheRead, Way};
use crate::types::BlockRun;
use headpond_block::sync::BusyGuard;
use headpond_block::{
    BLOCK_BYTES, ByteRange, Instant, Outcome, Request, Started, Submission, start,
};
use std::rc::Rc;

/// A hit that is on its way from the cache device.
struct Hit {
    engine: Rc<Engine>,
    version: Version,
    /// On the cache device.
    range: ByteRange,
    asked: Request,
    /// Where it is timed.
    sampled: Option<Instant>,
    pin: Pin,
    _reading: BusyGuard,
}

impl Engine {
    /// The answer to a read of one block that the cache has, or of blocks and parts of blocks that
    /// are contiguous in memory that it lends; `None`, and nothing has happened, for every other
    /// read.
    pub(super) fn read_hit(
        self: &Rc<Self>,
        request: &Request,
        sampled: Option<Instant>,
    ) -> Option<Submission<'static>> {
        if !self.trusts_cache() {
            return self.start_hit(request, sampled);
        }
        let outcome = self.read_hit_at_once(request)?;
        self.latencies.note_sampled(Way::ReadHit, request.range, sampled);
        Some(Submission::ready(outcome))
    }

    /// A read that the memory of the cache device answers wholly; `None` where it does not.
    fn read_hit_at_once(&self, request: &Request) -> Option<Outcome> {
        let mut log = self.log.borrow_mut();
        let run = BlockRun::touching(request.range);
        let found = self.find_row(&log, run)?;
        if found.is_payload_free() && !request.buffers.is_payload_free() {
            return None;
        }
        let within = request.range.start() % BLOCK_BYTES;
        let range = log.layout.block_at(found.slot, found.unit);
        let lent = self.cache.lend(ByteRange::at(range.start() + within, request.range.len()))?;
        lent.prefetch();
        log.refer_to_row(&found, run.count, id_of(request));
        log.count_read(request, run.count, run.count);
        log.counters.traffic.cache.lent += request.range.len();
        let (class, bytes) = (id_of(request), request.range.len());
        log.count_part(class, run.first, bytes, |part| &mut part.cache_read);
        match request.buffers.as_single() {
            Some(single) => single.copy_from_buffer(&lent),
            None => request.buffers.copy_from_buffers(&lent.into()),
        }
        Some(Ok(()))
    }

    /// Brings the looks of these ranges near, and what the cache device lends of them: each look
    /// needs what the one before has found, but not that of another range.
    pub(crate) fn expect(&self, ranges: &[ByteRange]) {
        let log = self.log.borrow();
        let firsts = || ranges.iter().map(|range| BlockRun::touching(*range).first);
        firsts().for_each(|block| log.map.prefetch_head(block));
        firsts().for_each(|block| log.map.prefetch_extent(block));
        if !self.trusts_cache() {
            return;
        }
        for (range, block) in ranges.iter().zip(firsts()) {
            let Some(found) = log.map.found(block) else { continue };
            let within = range.start() % BLOCK_BYTES;
            let start = log.layout.block_at(found.slot, found.unit).start() + within;
            let len = range.len().min(BLOCK_BYTES - within);
            if let Some(lent) = self.cache.lend(ByteRange::at(start, len)) {
                lent.prefetch();
            }
        }
    }

    fn start_hit(
        self: &Rc<Self>,
        request: &Request,
        sampled: Option<Instant>,
    ) -> Option<Submission<'static>> {
        if !request.range.is_aligned(BLOCK_BYTES) {
            return None;
        }
        let (version, range) = {
            let mut log = self.log.borrow_mut();
            let run = BlockRun::touching(request.range);
            let found = self.find_hit(&log, run)?;
            let version = log.map.version_of(&found);
            log.refer(&found, id_of(request));
            log.counters.count_cache_read(CacheRead::Request, BLOCK_BYTES);
            let class = id_of(request);
            log.count_part(class, run.first, BLOCK_BYTES, |part| &mut part.cache_read);
            (version, log.place_of(version))
        };
        let hit = Hit {
            engine: Rc::clone(self),
            version,
            range,
            asked: request.clone(),
            sampled,
            pin: self.pin(version.slot),
            _reading: self.reading.begin(),
        };
        let read = Request::read(range.start(), request.buffers.clone());
        match start(&self.cache, read) {
            Ok(outcome) if hit.is_good(&outcome) => Some(Submission::ready(Ok(()))),
            Ok(outcome) => Some(Submission::pending(hit.judge(outcome))),
            Err(started) => Some(Submission::pending(hit.finish(started))),
        }
    }

    /// The version that answers a read of one block, or of a part of it.
    #[inline]
    fn find_hit(&self, log: &Log, run: BlockRun) -> Option<FoundVersion> {
        if run.count != 1 || log.is_lost_in(run) || log.has_part_in(run) {
            return None;
        }
        let found = log.map.found(run.first)?;
        let is_served = found.state != State::Clean || self.mode() != Mode::PassThrough;
        is_served.then_some(found)
    }

    /// The first of versions that are contiguous, of all blocks of a run.
    #[inline]
    fn find_row(&self, log: &Log, run: BlockRun) -> Option<FoundVersion> {
        if run.count == 1 {
            return self.find_hit(log, run);
        }
        let first = log.map.found(run.first)?;
        let is_answer = !first.is_payload_free() && self.mode() != Mode::PassThrough;
        if !is_answer || log.is_lost_in(run) || log.has_part_in(run) {
            return None;
        }
        let mut is_row = true;
        log.map.each_published(run, |block, version| {
            let slot = first.slot.0 + (block.0 - run.first.0) as u32;
            is_row &= version.is_some_and(|version| {
                version.slot.0 == slot && version.unit == first.unit && !version.is_payload_free()
            });
        });
        is_row.then_some(first)
    }
}

impl Hit {
    async fn finish(self, started: Started) -> Outcome {
        let outcome = started.await;
        if self.is_good(&outcome) {
            return Ok(());
        }
        // Boxed: it is rare, and would make every hit larger.
        Box::pin(self.judge(outcome)).await
    }

    /// Whether the block came as it was written; if so the hit is accounted for.
    fn is_good(&self, outcome: &Outcome) -> bool {
        let is_good = outcome.is_ok()
            && (self.asked.buffers.is_payload_free() || !self.version.is_payload_free())
            && self.engine.compare(&self.version, &self.asked.buffers).is_ok();
        if is_good {
            let mut log = self.engine.log.borrow_mut();
            log.count_read(&self.asked, 1, 1);
            log.note_readable(&self.version);
            drop(log);
            self.engine.latencies.note_sampled(Way::ReadHit, self.asked.range, self.sampled);
        }
        is_good
    }

    /// Finds out what is wrong, and where else the block may come from.
    async fn judge(self, outcome: Outcome) -> Outcome {
        let Self { engine, version, range, asked, sampled, pin, _reading } = self;
        let piece = Piece { first: 0, versions: vec![version], range, _pin: pin };
        let outcome = engine.judge_piece(&piece, outcome, asked.buffers.clone()).await;
        let mut log = engine.log.borrow_mut();
        log.count_read(&asked, 1, 1);
        match outcome.is_ok() {
            true => engine.latencies.note_sampled(Way::ReadHit, asked.range, sampled),
            false => log.class_of(&asked).read.failed += 1,
        }
        outcome
    }
}

impl Log {
    #[inline]
    pub(crate) fn place_of(&self, version: Version) -> ByteRange {
        self.layout.block_at(version.slot, version.unit)
    }
}
