//! Checkpoints: the persisted part of the map that a later open need not replay.
//!
//! A clean shutdown writes one of the whole map. While a slice serves, one of the dirty data is
//! written periodically, so that an unclean open reads only that and the log since:
//!
//! 1. A *cut*: the number of the next record, the head, the segments.
//! 2. Every record before the cut is done.
//! 3. The map is copied piece by piece to the area that no header refers to, while the log
//!    advances; blocks of records after the cut are left out, because they are replayed.
//! 4. All records formed in the meantime, and the copy, are made stable.
//! 5. A header names the checkpoint and the cut, and allows the log to advance.
//!
//! **Invariants**
//! - A header is written when its checkpoint is stable, and every record that was formed before the
//!   copy ended: blocks that the copy no longer found were invalidated by one of those, or are on
//!   the core.
//! - No segment is opened beyond the limit of the current header.
//! - A header whose write failed may be on the device all the same: its checkpoint is not
//!   overwritten until that header has been written.
//!
//! **Not here**: reading them (`recover`), their contents (`log`).

use crate::checksum::Running;
use crate::engine::{CacheError, Engine};
use crate::format::checkpoint::{CheckpointRun, RUN_BLOCKS_MAX, RUN_BYTES, encode_table};
use crate::format::slice_header::{CheckpointRef, SliceHeader};
use crate::layout::SliceLayout;
use crate::log::{Content, Cut, Log, plan};
use crate::types::{Epoch, Position};
use headpond_block::decorators::ProbeDevice;
use headpond_block::{
    BLOCK_BYTES, BlockDevice, Buffer, ByteRange, DeviceError, Outcome, Request, Runtime, defect,
};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

const PIECE_BYTES: usize = 1 << 20;
/// Places of the log that are looked at in one go.
const PLACES_PER_PIECE: u32 = 1 << 14;
/// After a device error.
const BACK_OFF: Duration = Duration::from_millis(200);
/// Failures in a row after which those who wait for a checkpoint go past the cache.
const FAILURES_MAX: u32 = 25;

/// Where a checkpoint goes, piece by piece.
struct Sink<'a> {
    device: &'a dyn BlockDevice,
    place: ByteRange,
    /// Not yet written.
    bytes: Vec<u8>,
    written: u64,
    checksum: Running,
    runs: u64,
    len: u64,
}

impl Sink<'_> {
    fn add_run(&mut self, run: &CheckpointRun, checksums: &[u32]) {
        run.encode(checksums, &mut self.bytes);
        self.runs += 1;
    }

    /// Adds the places where epochs ended; `false` where the area is too small for all of them, and
    /// then the order ends with this life.
    fn add_ends(&mut self, ends: &[Position]) -> bool {
        let runs = ends.len().div_ceil(RUN_BLOCKS_MAX as usize);
        let bytes = (self.bytes.len() + runs * RUN_BYTES + 4 * ends.len()) as u64;
        if self.written + bytes > self.place.len() {
            return false;
        }
        for ends in ends.chunks(RUN_BLOCKS_MAX as usize) {
            let places = ends.iter().map(|end| u32::try_from(end.0).expect("32-bit positions"));
            self.add_run(&CheckpointRun::ends(ends.len()), &places.collect::<Vec<_>>());
        }
        true
    }

    /// Writes whole pieces, or everything.
    async fn drain(&mut self, is_end: bool) -> Outcome {
        while self.bytes.len() >= PIECE_BYTES || is_end && !self.bytes.is_empty() {
            let rest = self.bytes.split_off(self.bytes.len().min(PIECE_BYTES));
            let mut piece = std::mem::replace(&mut self.bytes, rest);
            self.checksum.add(&piece);
            self.len += piece.len() as u64;
            piece.resize(piece.len().next_multiple_of(BLOCK_BYTES as usize), 0);
            assert!(self.written + piece.len() as u64 <= self.place.len(), "outgrows its area");
            let request =
                Request::write(self.place.start() + self.written, Buffer::from_slice(&piece));
            self.written += piece.len() as u64;
            self.device.submit(request).await?;
        }
        Ok(())
    }
}

/// A header of a checkpoint that is stable, and what holds once it is in force.
#[derive(Clone, Copy)]
pub(crate) struct Announcement {
    header: SliceHeader,
    /// Segments that had been opened at the cut.
    opened: u64,
    plan: Option<(u64, u32)>,
}

/// Who lets others work between two pieces, and may end the copy.
pub(crate) struct Pace<'a> {
    pub runtime: &'a Runtime,
    pub is_over: &'a dyn Fn() -> bool,
}

/// A checkpoint that was written, and what its header says of the order of the flushes.
#[derive(Clone, Copy)]
pub(crate) struct Saved {
    pub checkpoint: CheckpointRef,
    pub order: Option<Position>,
}

/// Writes a checkpoint to an area that no header in force refers to, for which the log may change
/// meanwhile. Not flushed; `None` where the pace says that it is over.
pub(crate) async fn write_checkpoint(
    device: &dyn BlockDevice,
    log: &RefCell<Log>,
    cut: &Cut,
    (area, content): (u8, Content),
    pace: Option<&Pace<'_>>,
) -> Result<Option<Saved>, DeviceError> {
    let (places, place) = {
        let layout = &log.borrow().layout;
        (layout.slots(), layout.checkpoint(area))
    };
    let (checksum, bytes) = (Running::new(), encode_table(&cut.firsts));
    let mut sink = Sink { device, place, bytes, written: 0, checksum, runs: 0, len: 0 };
    for start in (0..places).step_by(PLACES_PER_PIECE as usize) {
        let piece = start..places.min(start + PLACES_PER_PIECE);
        log.borrow().each_run(piece, cut, content, |run, checksums| sink.add_run(run, checksums));
        sink.drain(false).await?;
        if let Some(pace) = pace {
            pace.runtime.yield_now().await;
            if (pace.is_over)() {
                return Ok(None);
            }
        }
    }
    log.borrow().lost_runs().iter().for_each(|run| sink.add_run(run, &[]));
    let has_ends = sink.add_ends(&cut.ends);
    sink.drain(true).await?;
    let order = log.borrow().order_mark_since(cut).filter(|_| has_ends);
    let Sink { runs, len, checksum, .. } = sink;
    let checkpoint = CheckpointRef { area, runs, bytes: len, checksum: checksum.value() };
    Ok(Some(Saved { checkpoint, order }))
}

/// The checkpoint of an empty slice.
pub(crate) async fn write_empty(
    device: &dyn BlockDevice,
    layout: &SliceLayout,
    firsts: &[crate::types::Sequence],
) -> Result<CheckpointRef, DeviceError> {
    let (bytes, place, checksum) = (encode_table(firsts), layout.checkpoint(0), Running::new());
    let mut sink = Sink { device, place, bytes, written: 0, checksum, runs: 0, len: 0 };
    sink.drain(true).await?;
    Ok(CheckpointRef { area: 0, runs: 0, bytes: sink.len, checksum: sink.checksum.value() })
}

/// Writes a header to the copy whose turn it is; everything written before is stable first.
pub(crate) async fn write_header(
    device: &dyn BlockDevice,
    layout: &SliceLayout,
    header: &SliceHeader,
) -> Outcome {
    if !defect!(CheckpointBeforeItsBlocks) {
        device.flush().await?;
    }
    let offset = layout.header_offset((header.sequence % 2) as usize);
    device.write(offset, Buffer::from_slice(&header.encode())).await?;
    device.flush().await
}

impl Cut {
    /// The header that follows `before` and names a checkpoint of this moment.
    pub fn header(
        &self,
        before: SliceHeader,
        (epoch, is_clean, reach): (Epoch, bool, u32),
        Saved { checkpoint, order }: Saved,
    ) -> SliceHeader {
        SliceHeader {
            sequence: before.sequence + 1,
            epoch,
            next_record: self.next,
            tail: self.tail.max(before.tail),
            tail_segment: self.tail_segment,
            head: self.head,
            head_segment: self.head_segment,
            is_clean,
            checkpoint,
            reach,
            order,
            ..before
        }
    }
}

impl Engine {
    /// The task of checkpoints.
    pub(crate) async fn run_checkpoints(self: Rc<Self>) {
        let mut failures = 0;
        while !self.is_stopping.get() {
            let wake = self.checkpoint_wanted.wait();
            if self.is_failed.get() || !self.wants_checkpoint() {
                wake.await;
                continue;
            }
            match self.checkpoint().await {
                Ok(()) => failures = 0,
                Err(_) => {
                    failures += 1;
                    self.after_failed_checkpoint(failures).await;
                }
            }
            self.pump();
            self.reclaim_wanted.notify_all();
        }
    }

    /// Segments between two checkpoints and how far the log may run, as it is set.
    fn checkpoint_plan(&self, last_bytes: u64) -> Option<(u64, u32)> {
        let every = self.config.borrow().checkpoint_every_on(&*self.cache);
        plan(&self.log.borrow().layout, every, last_bytes)
    }

    /// Whether the log has run far enough, or runs to an end that is no longer set.
    fn wants_checkpoint(&self) -> bool {
        let is_planned = self.checkpoint_plan(self.header.get().checkpoint.bytes).is_some();
        let log = self.log.borrow();
        log.wants_checkpoint() || is_planned != log.is_bounded()
    }

    /// Looks whether a checkpoint is due.
    pub(crate) fn consider_checkpoint(&self) {
        if self.log.borrow().wants_checkpoint() {
            self.checkpoint_wanted.notify_all();
        }
    }

    async fn checkpoint(self: &Rc<Self>) -> Outcome {
        let probe = ProbeDevice::new(Rc::clone(&self.cache), self.runtime.clone());
        let outcome = self.checkpoint_on(&probe).await;
        let traffic = &mut self.log.borrow_mut().counters.traffic;
        traffic.cache.written_checkpoints += probe.snapshot().writes.bytes;
        outcome
    }

    async fn checkpoint_on(self: &Rc<Self>, cache: &dyn BlockDevice) -> Outcome {
        if let Some(left) = self.unannounced.get() {
            return self.put_in_force(cache, left).await;
        }
        let before = self.header.get();
        let cut = self.log.borrow().cut();
        self.settle().await;
        let is_over = || self.is_stopping.get() || self.is_failed.get();
        let pace = Pace { runtime: &self.runtime, is_over: &is_over };
        let place = (1 - before.checkpoint.area, Content::Unsafe);
        let written = write_checkpoint(cache, &self.log, &cut, place, Some(&pace)).await;
        let Some(written) = self.noting(written)? else { return Ok(()) };
        if !defect!(CheckpointBeforeItsBlocks) {
            self.flush_log().await?;
        }
        if is_over() {
            return Ok(());
        }
        let plan = self.checkpoint_plan(written.checkpoint.bytes);
        let reach = plan.map_or(0, |(_, reach)| reach);
        let epoch = self.log.borrow().epoch();
        let mut header = cut.header(before, (epoch, false, reach), written);
        if defect!(ReplayAfterTheCut) {
            header.next_record = self.log.borrow().next();
        }
        self.put_in_force(cache, Announcement { header, opened: cut.opened, plan }).await
    }

    /// Puts a header in force whose checkpoint is stable.
    async fn put_in_force(&self, cache: &dyn BlockDevice, what: Announcement) -> Outcome {
        let Announcement { header, opened, plan } = what;
        let layout = self.log.borrow().layout.clone();
        self.unannounced.set(Some(what));
        self.noting(write_header(cache, &layout, &header).await)?;
        self.unannounced.set(None);
        self.header.set(header);
        let mut log = self.log.borrow_mut();
        log.set_reach(opened, plan);
        log.note_header_order(header.order.is_some());
        log.counters.checkpoints += 1;
        log.counters.checkpoint_bytes += header.checkpoint.bytes;
        Ok(())
    }

    /// Puts the header in force whose writing has failed, where there is one: until then both areas
    /// of checkpoints may be named on the device.
    ///
    /// # Errors
    /// Those of the cache device.
    pub(crate) async fn put_in_force_what_is_left(&self) -> Outcome {
        match self.unannounced.get() {
            Some(left) => self.put_in_force(&*self.cache, left).await,
            None => Ok(()),
        }
    }

    /// Accounts for an outcome that is an error of the cache device.
    fn noting<T>(&self, outcome: Result<T, DeviceError>) -> Result<T, DeviceError> {
        outcome.inspect_err(|error| self.note_cache_error(CacheError::Write(error), None))
    }

    /// Waits before the next try; or gives the cache up, where others have waited long enough. A
    /// device that is mistrusted has nobody wait for it: what is new goes past it.
    async fn after_failed_checkpoint(&self, failures: u32) {
        if self.fallback.borrow().is_in_force() {
            self.queue.refuse_data();
        }
        let is_waited_for = self.log.borrow().is_at_reach() && self.queue.len() > 0;
        let is_hopeless = failures >= FAILURES_MAX && is_waited_for;
        if !is_hopeless {
            self.runtime.sleep(BACK_OFF).await;
        } else if self.fail().await.is_err() {
            // Not even the core's label can be written: what waits fails with the core.
            self.give_up();
        }
    }
}
