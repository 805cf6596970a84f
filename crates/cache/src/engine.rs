//! The state shared by the paths of one slice: devices, log, locks and waiters.
//!
//! **Invariants**
//! - The log is never borrowed across an await.
//! - Writes to the core hold the lock on the blocks, also the cleaner's. Writes to the log alone
//!   hold none: the order of records is the order of versions.

mod pending_tombstones;
mod self_check;

use crate::admission::Admission;
use crate::append::{AppendOutcome, InFlight, Queue, Wanted};
use crate::checkpoint::Announcement;
use crate::classes::ClassId;
use crate::cleaner::{CoreChanges, Unflushed};
use crate::config::{Checksums, Mode, SliceConfig};
use crate::core_flushes::CoreFlushes;
use crate::fallback::Fallback;
use crate::format::slice_header::SliceHeader;
use crate::label::CoreLabel;
use crate::line_map::Version;
use crate::log::{Log, Purpose, id_of};
use crate::paths::Ahead;
use crate::stats::{CacheRead, ErrorStats, Latencies, MemoryStats, Rate, ScrubProgress};
use crate::types::{BlockRun, CoreBlock, SlotIndex};
use crate::under_way::Attempts;
use headpond_block::sync::{Access, Busy, Notify, RangeGuard, RangeLocks};
use headpond_block::{
    BlockDevice, Buffer, Buffers, ChangingGeometry, DeviceError, DeviceName, ErrorKind, Instant,
    Outcome, Request, RequestKind, Runtime, Stability,
};
pub(crate) use pending_tombstones::PendingTombstones;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// One slice at work.
pub(crate) struct Engine {
    pub name: DeviceName,
    pub geometry: ChangingGeometry,
    pub runtime: Runtime,
    pub cache: Rc<dyn BlockDevice>,
    pub core: Rc<dyn BlockDevice>,
    pub label: Option<Rc<dyn CoreLabel>>,
    pub config: RefCell<SliceConfig>,
    pub admission: RefCell<Admission>,
    pub log: RefCell<Log>,
    /// The one in force.
    pub header: Cell<SliceHeader>,
    /// The next one, where writing it has failed.
    pub unannounced: Cell<Option<Announcement>>,
    pub queue: Queue,
    pub records: RefCell<InFlight>,
    pub ahead: Ahead,
    pub core_writes: CoreWrites,
    pub pending_tombstones: PendingTombstones,
    /// Write-throughs; one that failed has left its blocks dirty.
    pub throughs: Attempts,
    /// At the core since its last flush.
    pub written: RefCell<Unflushed>,
    /// Of all slices of this core. Where one fails, the core may have lost whatever it took before
    /// that.
    pub core_flushes: Rc<CoreFlushes>,
    /// How many had failed when what this slice has there was last looked at for that.
    pub heeded: Cell<u64>,
    /// Writes that did not come from the log, once the core has answered.
    pub core_changes: CoreChanges,
    /// Those of them that the log knows nothing of.
    pub past_changes: CoreChanges,
    /// Why some of these may be lost, until a caller's flush has said so.
    pub past_loss: RefCell<Option<DeviceError>>,
    pub cleaning: crate::cleaner::Progress,
    /// The memory of the cache device may be looked at directly.
    pub lends: bool,
    pub is_failed: Cell<bool>,
    /// Whether the label says so too, where there is one.
    pub is_disowned: Cell<bool>,
    pub fallback: RefCell<Fallback>,
    /// The cache device has refused a discard.
    pub discard_refused: Cell<bool>,
    /// New requests are refused.
    pub is_closed: Cell<bool>,
    /// The tasks of the slice end.
    pub is_stopping: Cell<bool>,
    /// Requests in tasks of their own, which a stop waits for.
    pub busy: Busy,
    /// Reads that were not answered at once; a stop does not wait for them.
    pub reading: Busy,
    /// Progress of a running scrub.
    pub scrubbing: Cell<Option<ScrubProgress>>,
    /// Requests that arrived since the slice was opened.
    pub requests: Cell<u64>,
    /// How many of them had been answered when the counters were last reset.
    pub requests_before: Cell<u64>,
    pub counted_since: Cell<Instant>,
    pub latencies: Latencies,
    pub cleaned: RefCell<Rate>,
    pub thinning: crate::reclaim::Thinning,
    pub is_seal_due: Cell<bool>,
    /// What the log has in part is completed before long.
    pub is_completion_due: Cell<bool>,
    pub is_log_flushing: Cell<bool>,
    /// Void records are being written.
    pub is_voiding: Cell<bool>,
    pub log_flushed: Notify,
    pub records_done: Notify,
    pub segments_unpinned: Notify,
    pub reclaim_wanted: Notify,
    pub checkpoint_wanted: Notify,
    pub cleaning_wanted: Notify,
}

/// Writes to the core: one at a time on each block, and known to readers that want to insert.
#[derive(Default)]
pub(crate) struct CoreWrites {
    locks: RangeLocks,
    active: RefCell<Vec<BlockRun>>,
}

/// A write past the log to these blocks of the core is under way.
pub(crate) struct CoreWrite<'a> {
    engine: &'a Engine,
    run: BlockRun,
    _guard: RangeGuard,
}

impl CoreWrites {
    /// The lock alone: for the cleaner, which changes no contents.
    pub async fn lock(&self, run: BlockRun) -> RangeGuard {
        self.locks.lock(run.range(), Access::Exclusive).await
    }

    /// The same, where nobody has to be waited for.
    pub fn try_lock(&self, run: BlockRun) -> Option<RangeGuard> {
        self.locks.try_lock(run.range(), Access::Exclusive)
    }

    pub fn is_free(&self, run: BlockRun) -> bool {
        self.locks.is_free(run.range(), Access::Exclusive)
    }

    /// Whether contents are being changed behind the cache's back.
    pub fn is_changing(&self, run: BlockRun) -> bool {
        self.active.borrow().iter().any(|active| active.overlaps(run))
    }
}

impl Drop for CoreWrite<'_> {
    fn drop(&mut self) {
        let mut active = self.engine.core_writes.active.borrow_mut();
        let place = active.iter().position(|active| *active == self.run);
        active.swap_remove(place.expect("an active write"));
        drop(active);
        self.engine.log.borrow_mut().spoil(self.run);
    }
}

impl CoreWrite<'_> {
    /// The core has what was to be written: what is kept of the run must not come after it. Not
    /// before that: who flushes waits for what is kept, and for nothing else.
    pub fn done(&self) {
        self.engine.log.borrow_mut().overtake_kept(self.run);
    }
}

/// A change of the core in flight, for accounting.
#[derive(Clone, Copy)]
pub(crate) struct CoreChange {
    class: ClassId,
    first: CoreBlock,
}

impl Engine {
    /// Does something after a while, unless the slice has ended by then: whoever waits for its
    /// devices is not to wait for that.
    pub fn later(self: &Rc<Self>, after: Duration, act: impl AsyncFnOnce(Rc<Self>) + 'static) {
        let (engine, runtime) = (Rc::downgrade(self), self.runtime.clone());
        drop(self.runtime.spawn(async move {
            runtime.sleep(after).await;
            if let Some(engine) = engine.upgrade() {
                act(engine).await;
            }
        }));
    }

    /// Takes the lock, and tells readers that the core's contents are about to change.
    pub async fn begin_core_write(&self, run: BlockRun) -> CoreWrite<'_> {
        let guard = self.core_writes.lock(run).await;
        self.begin_locked_core_write(run, guard)
    }

    /// The same of somebody who has the lock.
    pub fn begin_locked_core_write(&self, run: BlockRun, guard: RangeGuard) -> CoreWrite<'_> {
        self.core_writes.active.borrow_mut().push(run);
        self.log.borrow_mut().spoil(run);
        CoreWrite { engine: self, run, _guard: guard }
    }

    /// What is read from the core for a run, or kept of it, is older than what it is about to have;
    /// who flushes waits for that.
    pub fn overtake(&self, run: BlockRun) {
        let mut log = self.log.borrow_mut();
        log.spoil(run);
        log.overtake_kept(run);
    }

    /// Reads from the cache device; who finds out why that failed counts the error.
    pub(crate) async fn read_cache(&self, purpose: CacheRead, request: Request) -> Outcome {
        self.log.borrow_mut().counters.count_cache_read(purpose, request.range.len());
        self.cache.submit(request).await
    }

    pub(crate) fn count_lent(&self, bytes: u64) {
        self.log.borrow_mut().counters.traffic.cache.lent += bytes;
    }

    /// A write to the core that did not come from the log.
    pub fn write_core(&self, request: Request) -> impl Future<Output = Outcome> {
        let change = self.count_core_change(&request);
        let write = self.core.submit(request);
        async move {
            let outcome = write.await;
            self.core_changed(change, &outcome);
            outcome
        }
    }

    /// Accounts for a change of the core that is about to be asked for.
    pub fn count_core_change(&self, request: &Request) -> CoreChange {
        let (kind, bytes) = (request.kind, request.range.len());
        let change =
            CoreChange { class: id_of(request), first: BlockRun::touching(request.range).first };
        let mut log = self.log.borrow_mut();
        log.counters.count_core_change(kind, bytes);
        if kind == RequestKind::Write {
            log.count_part(change.class, change.first, bytes, |part| &mut part.core_written);
        }
        log.mix();
        change
    }

    /// The core has answered.
    pub fn core_changed(&self, change: CoreChange, outcome: &Outcome) {
        // Only now: a flush that began meanwhile did not cover it.
        self.core_changes.note();
        if outcome.is_err() {
            let CoreChange { class, first } = change;
            self.log.borrow_mut().count_error(class, first, |errors| &mut errors.core_write);
        }
    }

    pub fn mode(&self) -> Mode {
        match self.is_mistrusted() {
            true => Mode::PassThrough,
            false => self.config.borrow().mode,
        }
    }

    /// Whether the cache device is asked for nothing but what only it has, whatever is set.
    pub fn is_mistrusted(&self) -> bool {
        self.is_failed.get() || self.fallback.borrow().is_in_force()
    }

    /// Accounts for an error of the cache device, at this block where it is known. What one of
    /// several copies has wrong is none of the device while another is right.
    pub fn note_cache_error(&self, error: CacheError<'_>, at: Option<&Version>) {
        fn field<'a>(errors: &'a mut ErrorStats, error: &CacheError<'_>) -> &'a mut u64 {
            match error {
                CacheError::Read(_) => &mut errors.cache_read,
                CacheError::Write(_) | CacheError::Flush(_) => &mut errors.cache_write,
                CacheError::Checksum => &mut errors.cache_checksum,
            }
        }
        let (errors, now) = (Rc::clone(&self.fallback.borrow().errors), self.runtime.utc());
        match error {
            CacheError::Read(error) => errors.note(ErrorKind::Read, error, now),
            CacheError::Write(error) => errors.note(ErrorKind::Write, error, now),
            CacheError::Flush(error) => errors.note(ErrorKind::Flush, error, now),
            CacheError::Checksum => errors.note_checksum(now),
        }
        let mut log = self.log.borrow_mut();
        match at {
            Some(version) => log.count_error_of(version, |errors| field(errors, &error)),
            None => log.count_own_error(|errors| field(errors, &error)),
        }
        drop(log);
        let is_read = matches!(error, CacheError::Read(_) | CacheError::Checksum);
        let is_of_one_copy = is_read && self.cache.copies().is_some();
        if !is_of_one_copy {
            self.mistrust_cache();
        }
    }

    /// One more error that the cache device could not make good by itself.
    pub fn mistrust_cache(&self) {
        let (now, config) = (self.runtime.now(), self.config.borrow().fallback);
        if self.fallback.borrow_mut().note(now, config) {
            // What only the device has is not to stay there.
            self.begin_draining();
            self.cleaning_wanted.notify_all();
        }
    }

    /// Waits until no record that was formed by now is on its way.
    pub async fn settle(&self) {
        let next = self.log.borrow().next();
        while self.log.borrow().settled() < next {
            self.records_done.wait().await;
        }
    }

    /// Waits until nothing comes back at a cut that is not mapped any more: what a run had has
    /// ended for good, and a record that failed, and lies on the device for all that, is
    /// contradicted by a void one.
    ///
    /// # Errors
    /// As [`Engine::ensure_disowned`].
    pub async fn settle_ends(&self, run: BlockRun) -> Outcome {
        loop {
            self.pending_tombstones.settle(run).await;
            if self.log.borrow().void_wanted().is_none() {
                return self.ensure_disowned().await;
            }
            self.records_done.wait().await;
        }
    }

    /// The blocks of a run that are not mapped, and whose end has to be recorded yet. What is
    /// mapped again is a newer version, and ends with that one.
    pub fn pending_in(&self, run: BlockRun) -> Vec<CoreBlock> {
        let (mut pending, log) = (self.pending_tombstones.pending_in(run), self.log.borrow());
        pending.retain(|block| log.map.newest(*block).is_none());
        pending
    }

    /// Ends the mappings of `blocks` durably.
    pub async fn write_tombstones(
        self: &Rc<Self>,
        blocks: &[CoreBlock],
        over_dirty: bool,
    ) -> TombstoneOutcome {
        let mut runs: Vec<BlockRun> = Vec::new();
        for &block in blocks {
            match runs.last_mut() {
                Some(run) if run.end() == block && run.count < 1 << 16 => run.count += 1,
                _ => runs.push(BlockRun { first: block, count: 1 }),
            }
        }
        for run in runs {
            let _ending = self.pending_tombstones.begin(run);
            if self.is_failed.get() {
                if let Err(error) = self.ensure_disowned().await {
                    return TombstoneOutcome::Failed(error);
                }
                if !self.forget(run, over_dirty) {
                    return TombstoneOutcome::Spoiled;
                }
                continue;
            }
            let purpose = Purpose::Tombstone { over_dirty };
            let buffers = Buffers::new();
            let class = ClassId::UNCLASSIFIED;
            let wanted = Wanted { run, purpose, buffers, is_promise: true, guard: None, class };
            match self.append(wanted).await {
                AppendOutcome::Written => self.pending_tombstones.note_ended(run),
                AppendOutcome::Spoiled => return TombstoneOutcome::Spoiled,
                AppendOutcome::Failed
                | AppendOutcome::DirtyLimit
                | AppendOutcome::Scattered
                | AppendOutcome::TurnedAway => {
                    if let Err(error) = self.fail().await {
                        self.pending_tombstones.note_pending(run);
                        return TombstoneOutcome::Failed(error);
                    }
                    if !self.forget(run, over_dirty) {
                        return TombstoneOutcome::Spoiled;
                    }
                }
            }
        }
        TombstoneOutcome::Done
    }

    /// Ends mappings where nothing can be recorded any more; `false`, and nothing has happened,
    /// where the core lacks what the caller has not written there.
    fn forget(&self, run: BlockRun, over_dirty: bool) -> bool {
        let mut log = self.log.borrow_mut();
        let may_forget = over_dirty || log.survey(run).unsafe_at_core == 0;
        if may_forget {
            log.forget(run);
            self.pending_tombstones.note_ended(run);
        }
        may_forget
    }

    /// The cache device can record nothing more: from here on it is only read, and its next open
    /// will be refused.
    ///
    /// # Errors
    /// Where not even the core's label could be written: then nothing may be acknowledged.
    pub async fn fail(&self) -> Outcome {
        if let Some(label) = self.label.as_ref().filter(|_| !self.is_disowned.get())
            && !headpond_block::defect!(KeepFailedCache)
        {
            label.disown_cache().await?;
        }
        self.is_disowned.set(true);
        self.give_up();
        Ok(())
    }

    /// Sees to it that a log that was given up will not be opened again: else what it has may come
    /// back over what the core is given from now on.
    ///
    /// # Errors
    /// As [`Engine::fail`].
    pub async fn ensure_disowned(&self) -> Outcome {
        if self.is_failed.get() { self.fail().await } else { Ok(()) }
    }

    /// From here on nothing is appended: reclaim has ended, and who waits for room would wait for
    /// ever.
    pub(crate) fn give_up(&self) {
        self.is_failed.set(true);
        self.queue.refuse_all();
    }

    /// Puts void records in the place of failed ones, one after the other, in a task of its own.
    pub fn void_failed_records(self: &Rc<Self>) {
        if self.is_voiding.replace(true) {
            return;
        }
        let engine = Rc::clone(self);
        drop(self.runtime.spawn(async move { engine.write_voids().await }));
    }

    async fn write_voids(self: Rc<Self>) {
        loop {
            let wanted = self.log.borrow().void_wanted();
            let Some(sequence) = wanted else { break };
            let request = self.log.borrow_mut().form_void(sequence);
            let is_void = match request {
                Ok(request) => self.cache.submit(request).await.is_ok(),
                Err(_) => false,
            };
            if !is_void && self.fail().await.is_err() {
                // Nothing is acknowledged until the label can be written.
                self.give_up();
            }
            self.log.borrow_mut().void_done(sequence);
            self.records_done.notify_all();
        }
        self.is_voiding.set(false);
    }

    /// Memory for what is read to be written elsewhere, with whatever contents.
    pub fn take_memory(&self, len: usize) -> Buffer {
        self.log.borrow().pool.take(len)
    }

    pub fn memory(&self) -> MemoryStats {
        let log = self.log.borrow();
        let (extents, free) = log.map.pool();
        let (queues, ghosts) = log.eviction.memory_bytes();
        MemoryStats {
            map: log.map.memory_bytes(),
            dirty_index: log.dirty.memory_bytes() + log.chunk_bytes() + log.replayed.memory_bytes(),
            segments: log.ring.memory_bytes(),
            checksums: log.map.checksum_bytes(),
            extent_pool: log.map.pool_bytes(),
            parts: log.parts_bytes(),
            extents: u64::from(extents),
            extents_used: u64::from(extents - free),
            written_list: self.written.borrow().memory_bytes()
                + self.thinning_bytes()
                + log.carried_bytes(),
            hit_counts: self.admission.borrow().memory_bytes(),
            latencies: self.latencies.memory_bytes(),
            eviction_queues: queues,
            ghosts,
            classes: log.map.class_bytes(),
        }
    }

    /// Requests that have arrived and are not counted yet.
    pub fn requests_in_flight(&self) -> u64 {
        self.requests.get() - self.requests_before.get() - self.log.borrow().totals().requests()
    }

    /// All counters are zero from here on; what is held is what it was.
    pub fn reset_counters(&self) {
        self.requests_before.set(self.requests.get() - self.requests_in_flight());
        self.log.borrow_mut().reset_counters();
        self.latencies.reset();
        self.counted_since.set(self.runtime.now());
    }

    /// Whether a flush of the cache device saves anything.
    pub fn cache_is_volatile(&self) -> bool {
        self.cache.geometry().stability == Stability::LostOnPower
    }

    /// Whether what is read from the cache device is taken for what was written, unseen.
    pub fn trusts_cache(&self) -> bool {
        self.lends && self.config.borrow().checksums == Checksums::Auto
    }

    /// Has checksums computed from here on in memory, where they are wanted. Elsewhere they always
    /// are.
    pub fn prepare_checksums(&self) {
        if self.lends && self.cache_is_volatile() {
            self.log.borrow_mut().compute_checksums(!self.trusts_cache());
        }
    }

    /// Counts a reader of a segment, which is not reused until the reader is gone.
    pub fn pin(self: &Rc<Self>, slot: SlotIndex) -> Pin {
        let mut log = self.log.borrow_mut();
        let segment = log.layout.segment_of_slot(slot);
        log.ring.pin(segment);
        drop(log);
        Pin { engine: Rc::clone(self), segment }
    }
}

/// Which operation of the cache device went wrong.
#[derive(Clone, Copy)]
pub(crate) enum CacheError<'a> {
    Read(&'a DeviceError),
    Write(&'a DeviceError),
    Flush(&'a DeviceError),
    Checksum,
}

/// How a durable end of mappings went.
pub(crate) enum TombstoneOutcome {
    Done,
    /// Somebody wrote to the blocks meanwhile.
    Spoiled,
    Failed(headpond_block::DeviceError),
}

/// Keeps a segment from being reused.
pub(crate) struct Pin {
    engine: Rc<Engine>,
    segment: crate::types::SegmentIndex,
}

impl Drop for Pin {
    fn drop(&mut self) {
        if self.engine.log.borrow_mut().ring.unpin(self.segment) {
            self.engine.segments_unpinned.notify_all();
        }
    }
}
