//! A slice of a cached volume: one log, one line map, as a block device.
//!
//! Lifecycle: 1. [`Slice::open`] recovers and begins an epoch; 2. requests, with the cleaner and
//! reclaim in the background; 3. [`Slice::stop`] saves the line map, so that the next open replays
//! nothing. A slice that is dropped, or whose executor is, is recovered by the next open.
//!
//! **Not here**: which extents belong to the slice (the volume), making the cache (`create`).

mod opening;

pub use opening::{ChangedCore, LoadedSlice, judge};

use crate::checkpoint::{write_checkpoint, write_header};
use crate::classes::ClassId;
use crate::cleaner::{Drainer, FullRateFlush};
use crate::config::{Mode, SliceConfig};
use crate::core_flushes::CoreFlushes;
use crate::engine::Engine;
use crate::error::{CleanError, ModeError, StopError};
use crate::fit::policy_bytes;
use crate::label::CoreLabel;
use crate::log::Content;
use crate::paths::Coverage;
use crate::scrub::{ScrubError, ScrubReport};
use crate::stats::{ClassStats, ErrorStats, LatencyStats, PartTraffic, SliceStats};
use crate::types::{BlockRun, CorePlace, Promise};
use headpond_block::decorators::ProbeDevice;
use headpond_block::{
    BLOCK_BYTES, BlockDevice, BufferPool, ByteRange, Cause, DeviceError, DeviceName, ErrorLog,
    Geometry, JoinHandle, PoolConfig, Request, RequestKind, Runtime, Submission,
};
use std::cell::RefCell;
use std::rc::Rc;

/// What a slice stands on.
#[derive(Clone)]
pub struct Foundation {
    pub runtime: Runtime,
    /// The whole cache device.
    pub cache: Rc<dyn BlockDevice>,
    /// The whole core device; a slice is only asked for its own extents of it.
    pub core: Rc<dyn BlockDevice>,
    /// Where the core's generation can be raised, should the cache fail.
    pub label: Option<Rc<dyn CoreLabel>>,
    /// Of all slices of one core: where one hears of a flush that failed, the core may have lost
    /// what any of them wrote.
    pub core_flushes: Rc<CoreFlushes>,
    /// Of the cache device, for all slices.
    pub errors: Rc<ErrorLog>,
    /// What the devices have registered of the thread's memory.
    pub pool: BufferPool,
}

impl Foundation {
    /// Of a single slice, and a core without a label.
    pub fn new(runtime: Runtime, cache: Rc<dyn BlockDevice>, core: Rc<dyn BlockDevice>) -> Self {
        let (core_flushes, errors) = Default::default();
        let pool = BufferPool::new(&PoolConfig::small());
        Self { runtime, cache, core, label: None, core_flushes, errors, pool }
    }
}

/// One slice of a cache, serving. Cloning shares it.
#[derive(Clone)]
pub struct Slice {
    engine: Rc<Engine>,
    tasks: Rc<RefCell<Vec<JoinHandle<()>>>>,
}

impl Slice {
    fn start(engine: Rc<Engine>) -> Self {
        engine.set_bypass();
        engine.prepare_index();
        engine.prepare_checksums();
        engine.begin_draining();
        engine.complete_soon();
        let tasks = [
            engine.runtime.spawn(Rc::clone(&engine).run_cleaner()),
            engine.runtime.spawn(Rc::clone(&engine).run_reclaim()),
            engine.runtime.spawn(Rc::clone(&engine).run_thinning()),
            engine.runtime.spawn(Rc::clone(&engine).run_checkpoints()),
        ];
        let tasks = Rc::new(RefCell::new(Vec::from(tasks)));
        Self { engine, tasks }
    }

    /// Names the parts of the core that an unclean stop may have torn, and that are still to be
    /// written again.
    pub fn each_replayed(&self, mut visit: impl FnMut(ByteRange)) {
        self.engine.log.borrow().replayed().for_each(|block| visit(block.range(1)));
    }

    /// Names the blocks that the core is still to be given, in no order: all of the map is looked
    /// through.
    pub fn each_dirty(&self, mut visit: impl FnMut(ByteRange)) {
        let log = self.engine.log.borrow();
        log.dirty().chain(log.part_blocks()).for_each(|block| visit(block.range(1)));
    }

    /// Says which cores lie below, in order of address, so that they are counted one by one.
    pub fn tell_cores(&self, places: &[CorePlace]) {
        self.engine.log.borrow_mut().divide(places);
        self.engine.latencies.divide(places);
    }

    /// What is written from here on comes from another cache, or from clients again.
    pub fn set_from_another_cache(&self, is_from_another_cache: bool) {
        self.engine.log.borrow_mut().is_from_another_cache = is_from_another_cache;
    }

    /// Has as much room as the core has now, and what stripes it has. Before a core says that it
    /// has more, nobody asks for that; one never has less.
    pub fn follow_core(&self) {
        let engine = &self.engine;
        let (core, told) = (engine.core.geometry(), engine.geometry.now());
        let Geometry { size_bytes, stripe, .. } = *core;
        if size_bytes > told.size_bytes {
            engine.log.borrow_mut().lengthen_core(size_bytes / BLOCK_BYTES);
        }
        engine.geometry.change(Geometry { size_bytes, stripe, ..told.clone() });
    }

    /// Whether a mode is possible here and now.
    ///
    /// # Errors
    /// Why not.
    pub fn check_mode(&self, mode: Mode) -> Result<(), ModeError> {
        let device = || self.engine.cache.name().clone();
        if self.engine.is_failed.get() && mode != Mode::PassThrough {
            return Err(ModeError::Failed { device: device() });
        }
        let allow_volatile = self.engine.config.borrow().allow_volatile;
        if mode.is_write_back() && self.engine.cache_is_volatile() && !allow_volatile {
            return Err(ModeError::Volatile { device: device() });
        }
        Ok(())
    }

    /// What a policy takes that is made beside the one in use, in bytes; nothing where neither the
    /// policy changes nor how the classes stand.
    pub fn memory_for(&self, config: &SliceConfig) -> u64 {
        let before = self.engine.config.borrow();
        let is_same = before.eviction == config.eviction
            && before.admission.classes == config.admission.classes;
        match is_same {
            true => 0,
            false => policy_bytes(&self.engine.log.borrow().layout, config.eviction),
        }
    }

    /// Changes the settings. With a change to a mode without dirty data, dirty data stays dirty, is
    /// served, and is cleaned in the background (`is_draining` in the statistics).
    ///
    /// # Errors
    /// Where the mode changes to one that is not possible; everything stays as it was.
    pub fn set_config(&self, config: SliceConfig) -> Result<(), ModeError> {
        if config.mode != self.mode() {
            self.check_mode(config.mode)?;
        }
        if config.admission != self.engine.config.borrow().admission {
            self.engine.admission.borrow_mut().set(&config.admission);
        }
        let before = self.engine.config.replace(config);
        if before.mode != self.mode() {
            self.engine.begin_draining();
        }
        if before.cleaning != self.engine.config.borrow().cleaning {
            self.engine.change_cleaning();
        }
        let config = self.engine.config.borrow();
        self.engine.log.borrow_mut().set_eviction(config.eviction, &config.admission.classes);
        let changes_bypass = before.bypass != config.bypass;
        let changes_checksums = before.checksums != config.checksums;
        drop(config);
        if changes_checksums {
            self.engine.prepare_checksums();
        }
        self.engine.discard_refused.set(false);
        if changes_bypass {
            self.engine.set_bypass();
        }
        self.engine.cleaning_wanted.notify_all();
        self.engine.checkpoint_wanted.notify_all();
        self.engine.seal_when_idle();
        self.engine.pump();
        Ok(())
    }

    /// Ends a fallback, if there is one: the operator wants the device to be used again.
    pub fn leave_fallback(&self) {
        self.engine.fallback.borrow_mut().leave();
    }

    /// The mode that is set; a cache that failed, or errs too often, is in pass-through anyway.
    pub fn mode(&self) -> Mode {
        self.engine.config.borrow().mode
    }

    /// The settings in force.
    pub fn config(&self) -> SliceConfig {
        self.engine.config.borrow().clone()
    }

    /// Cleans everything that is dirty at the time of the call, and flushes the core: under client
    /// reads at a limited rate, unless there is a [`FullRateFlush`]. Progress shows in the
    /// statistics.
    ///
    /// # Errors
    /// Where the core fails, or [`Self::end_flushes`] ends it; what could not be cleaned stays
    /// dirty.
    pub async fn flush_dirty(&self) -> Result<(), CleanError> {
        self.engine.clean_all(Drainer::Command).await
    }

    /// Until this is dropped, [`Self::flush_dirty`] runs at the full rate.
    pub fn flush_at_full_rate(&self) -> FullRateFlush {
        FullRateFlush::begin(&self.engine)
    }

    /// Whether [`Self::flush_dirty`] ends, for who waits in it and who comes.
    pub fn end_flushes(&self, are_ended: bool) {
        self.engine.end_commands(are_ended);
    }

    /// Reads all that the slice holds on the cache device, and compares it with its checksums.
    /// Progress shows in the statistics.
    ///
    /// # Errors
    /// Where a scrub is running, or a damaged block could not be invalidated.
    pub async fn scrub(&self) -> Result<ScrubReport, ScrubError> {
        self.engine.scrub().await
    }

    /// The CRC-32C of each block of 4 KiB in `range`, as it was written to the core last; `None`
    /// where that was not from here, is not known, or is just being changed.
    ///
    /// # Panics
    /// Where `range` is not made of whole blocks.
    pub async fn core_checksums(&self, range: ByteRange) -> Vec<Option<u32>> {
        let run = BlockRun::touching(range);
        assert_eq!(run.range(), range, "whole blocks");
        self.engine.core_checksums(run).await
    }

    /// Brings what the cache lacks of `range` into it, beside everything else, as far as that is in
    /// nobody's way.
    pub fn read_ahead(&self, range: ByteRange, class: ClassId, is_payload_free: bool) {
        self.engine.read_ahead(range, class, is_payload_free);
    }

    /// Whether what a request reads enters the cache, as far as the request itself tells.
    pub fn admits(&self, request: &Request) -> bool {
        self.engine.mode().inserts_reads() && self.engine.refuses(request).is_none()
    }

    /// How far a range has come that was read ahead.
    pub fn coverage(&self, range: ByteRange) -> Coverage {
        self.engine.coverage(range)
    }

    /// How far the log has been promised.
    pub fn promised(&self) -> Promise {
        self.engine.log.borrow().promised()
    }

    /// How often it was opened.
    pub fn epoch(&self) -> u64 {
        self.engine.log.borrow().epoch().0
    }

    /// Whether a mode without dirty data is set, but some is left.
    pub fn is_draining(&self) -> bool {
        self.engine.is_draining()
    }

    pub fn stats(&self) -> SliceStats {
        let engine = &self.engine;
        let log = engine.log.borrow();
        let counts = log.map.counts();
        let layout = &log.layout;
        let capacity_bytes = u64::from(layout.segments()) * layout.segment_bytes();
        let ratio = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        let memory = engine.memory();
        let counters = log.totals();
        let (now, since) = (engine.runtime.now(), engine.counted_since.get());
        SliceStats {
            counters,
            counted_ms: now.since(since).as_millis() as u64,
            requests_in_flight: engine.requests_in_flight(),
            cleaned_per_s: engine.cleaned.borrow().per_second(now),
            classes: self.class_stats(),
            cores: log.core_stats(),
            dirty_bytes_max: log.dirty_max() * BLOCK_BYTES,
            capacity_bytes,
            dirty_bytes: log.dirty_now() * BLOCK_BYTES,
            written_bytes: counts.written * BLOCK_BYTES,
            clean_bytes: counts.clean * BLOCK_BYTES,
            dirty_ratio: ratio(log.dirty_now(), log.dirty_max()),
            occupancy_ratio: ratio(counts.mapped() * BLOCK_BYTES, capacity_bytes),
            write_amplification: counters.traffic.cache.amplification(),
            segments: layout.segments(),
            segments_free: log.ring.free(),
            records_in_flight: log.in_flight(),
            records_in_flight_max: engine.record_limit(),
            writes_waiting: engine.queue.len() as u64,
            cleaning_in_flight: engine.cleaning.in_flight(),
            lost_blocks: log.lost.len() as u64,
            unreadable_blocks: log.unreadable_blocks(),
            replayed_blocks: counts.replayed,
            is_draining: self.is_draining(),
            is_failed: engine.is_failed.get(),
            is_in_fallback: engine.fallback.borrow().is_in_force(),
            scrubbing: engine.scrubbing.get(),
            line_bytes: layout.line_bytes(),
            eviction: log.eviction_stats(),
            order: log.order_stats(),
            bypass: engine.bypass_report(),
            memory_bytes: memory.total(),
            memory,
        }
    }

    /// Latencies of requests.
    pub fn latencies(&self) -> LatencyStats {
        self.engine.latencies.snapshot()
    }

    /// The same of one core, where there are several.
    pub fn latencies_of(&self, core: u16) -> Option<LatencyStats> {
        self.engine.latencies.snapshot_of(core)
    }

    /// Sets everything to zero that counts what has happened, but for errors. What the slice holds
    /// is what it was.
    pub fn reset_stats(&self) {
        self.engine.reset_counters();
    }

    /// Sets the counts of errors to zero.
    pub fn clear_errors(&self) {
        self.engine.log.borrow_mut().clear_errors();
    }

    fn class_stats(&self) -> Vec<ClassStats> {
        let (log, config) = (self.engine.log.borrow(), self.engine.config.borrow());
        let all = log.classes.iter().zip(0u64..).filter_map(|(stats, id)| {
            let id = ClassId::new(id).expect("as many as there are classes");
            let is_known = config.admission.classes.get(id).is_some();
            let was_used = stats.read.requests + stats.write.requests > 0;
            let was_moved = stats.traffic != PartTraffic::default();
            let has_failed = stats.errors != ErrorStats::default();
            let usage = log.usage_of(id);
            let is_held = usage.occupied_blocks() > 0;
            let is_told = is_known || was_used || was_moved || is_held || has_failed;
            is_told.then_some(ClassStats { id, usage, ..*stats })
        });
        all.collect()
    }

    /// Checks the invariants of the log, and of what stands beside it; for tests and simulation.
    ///
    /// # Panics
    /// Where one does not hold.
    pub fn self_check(&self) {
        self.engine.self_check();
    }

    /// Stops the slice: waits for operations in flight, makes everything stable and saves the line
    /// map. Dirty data stays dirty.
    ///
    /// # Errors
    /// Where the devices fail; the next open then recovers as after a power cut.
    pub async fn stop(&self) -> Result<(), StopError> {
        let engine = &self.engine;
        let slice = engine.header.get().slice;
        if engine.is_closed.replace(true) {
            return Err(StopError::Stopped { slice });
        }
        engine.busy.until_idle().await;
        engine.is_stopping.set(true);
        engine.cleaning_wanted.notify_all();
        engine.reclaim_wanted.notify_all();
        engine.thinning.wake();
        engine.checkpoint_wanted.notify_all();
        let tasks = self.tasks.take();
        for task in tasks {
            task.await;
        }
        engine.cleaning.swept.notify_all();
        while !engine.cleaning.is_over() {
            engine.cleaning_wanted.wait().await;
        }
        let failed = |source: DeviceError| StopError::Device { slice, source };
        engine.flush_log().await.map_err(failed)?;
        engine.flush_core().await.map_err(failed)?;
        if engine.is_failed.get() {
            return Err(failed(DeviceError::new(engine.cache.name(), Cause::ReadOnly)));
        }
        self.save().await.map_err(failed)
    }

    async fn save(&self) -> Result<(), DeviceError> {
        self.engine.put_in_force_what_is_left().await?;
        let Engine { log, cache, header, .. } = &*self.engine;
        let before = header.get();
        let (cut, layout, epoch) = {
            let log = log.borrow();
            (log.cut(), log.layout.clone(), log.epoch())
        };
        let probe = ProbeDevice::new(Rc::clone(cache), self.engine.runtime.clone());
        let place = (1 - before.checkpoint.area, Content::All);
        let written = write_checkpoint(&probe, log, &cut, place, None).await?;
        let written = written.expect("nobody ends it");
        let after = cut.header(before, (epoch, true, 0), written);
        write_header(&probe, &layout, &after).await?;
        header.set(after);
        let traffic = &mut log.borrow_mut().counters.traffic;
        traffic.cache.written_checkpoints += probe.snapshot().writes.bytes;
        Ok(())
    }
}

impl BlockDevice for Slice {
    fn expect(&self, ranges: &[ByteRange]) {
        self.engine.expect(ranges);
    }

    fn name(&self) -> &DeviceName {
        &self.engine.name
    }

    fn geometry(&self) -> &Geometry {
        self.engine.geometry.now()
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        let engine = &self.engine;
        if let Err(error) = request.check(&engine.name, engine.geometry.now()) {
            return Submission::ready(Err(error));
        }
        if engine.is_closed.get() {
            return Submission::ready(Err(DeviceError::new(&engine.name, Cause::Gone)));
        }
        if request.range.is_empty() && request.kind != RequestKind::Flush {
            return Submission::ready(Ok(()));
        }
        engine.requests.set(engine.requests.get() + 1);
        match request.kind {
            RequestKind::Read => engine.read(request),
            RequestKind::Write => engine.write(request),
            kind => {
                // In a task of its own: half a discard must not hold up the other half.
                let engine = Rc::clone(engine);
                let (runtime, busy) = (engine.runtime.clone(), engine.busy.begin());
                Submission::pending(runtime.spawn(async move {
                    let _busy = busy;
                    match kind {
                        RequestKind::Flush => engine.flush().await,
                        RequestKind::Discard => engine.discard(request).await,
                        _ => engine.write_zeroes(request).await,
                    }
                }))
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{CreateOptions, Expected, create, load};
    use headpond_block::Buffer;
    use headpond_block::devices::RamDevice;
    use uuid::Uuid;

    /// Of a slice with dirty and clean blocks, whose executor has ended.
    pub fn lived() -> Rc<Engine> {
        let engine = headpond_sim::run(1, async |runtime, _| {
            let cache: Rc<dyn BlockDevice> = Rc::new(RamDevice::new("cache", 16 << 20));
            let core: Rc<dyn BlockDevice> = Rc::new(RamDevice::new("core", 64 << 20));
            let options = CreateOptions {
                cache: Uuid::from_u128(1),
                volume: Uuid::from_u128(2),
                core: Uuid::from_u128(3),
                core_bytes: core.size_bytes(),
                generation: 1,
                slices: 1,
                line_bytes: 4096,
                device_bytes: None,
                unit_bytes: Some(4096),
            };
            create(&*cache, &options).await.expect("a cache that fits");
            let superblock = load(&*cache).await.expect("a cache");
            let expected = Expected { volume: options.volume, generation: 1 };
            let config = SliceConfig { allow_volatile: true, ..SliceConfig::default() };
            let foundation = Foundation::new(runtime, cache, core);
            let opened = Slice::open(foundation, &superblock, expected, 0, config).await;
            let (slice, _) = opened.expect("opens");
            let device: &dyn BlockDevice = &slice;
            device.write(0, Buffer::zeroed(64 << 10)).await.expect("a write");
            device.read(1 << 20, Buffer::zeroed(64 << 10)).await.expect("a read");
            slice.engine
        });
        engine.expect("no deadlock")
    }
    #[test]
    fn expecting_ranges_changes_nothing() {
        let engine = lived();
        let before = format!("{:?}", engine.log.borrow().counters);
        let ranges = [(0, 4096), (512, 512), (60 << 10, 1 << 20), (1 << 20, 4096), (33 << 20, 512)];
        let ranges = ranges.map(|(start, len)| ByteRange::at(start, len));
        engine.expect(&ranges);
        engine.expect(&[]);
        engine.expect(&[ByteRange::EMPTY, ByteRange::at((64 << 20) - 512, 512)]);
        assert_eq!(format!("{:?}", engine.log.borrow().counters), before);
    }
}
