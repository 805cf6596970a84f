//! The device of the stripe journal.
//!
//! **Invariants**: at most one record is in flight, and one label; a journal that has failed once
//! takes no more records.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use headpond_block::sync::Notify;
use headpond_block::{
    BlockDevice, Buffer, Buffers, Cause, DeviceError, DeviceName, ErrorLog, Outcome, Request,
    RequestFlags, Runtime, Submission,
};
use smallvec::SmallVec;

use crate::deadlines::in_time;
use crate::history::History;
use crate::journal::label::{
    self, COPY_OFFSETS, LABEL_BYTES, Label, LabelError, RING_OFFSET, Tail,
};
use crate::journal::record::{self, Change, RecordPosition, UNIT_BYTES};
use crate::journal::ring::{BATCH_BYTES_MAX, Ring};

/// What one write changes.
pub(super) type Changes = SmallVec<[Change; 8]>;

/// A stripe journal in use.
pub(crate) struct Journal {
    runtime: Runtime,
    device: Rc<dyn BlockDevice>,
    errors: Rc<ErrorLog>,
    /// How long the device is waited for; `None`: until it answers.
    deadline: Cell<Option<Duration>>,
    label: RefCell<Label>,
    ring: RefCell<Ring>,
    queue: RefCell<VecDeque<Queued>>,
    is_writing: Cell<bool>,
    is_labelling: Cell<bool>,
    is_flushing: Cell<bool>,
    is_failed: Cell<bool>,
    /// Writes that stopped half-way, and keep their records.
    pinned: Cell<u32>,
    records: Cell<u64>,
    writes: Cell<u64>,
    progress: Notify,
    /// What pads records.
    zeros: Buffer,
}

/// A write that waits for its record.
struct Queued {
    changes: Changes,
    data: Buffers,
    bytes: u64,
    /// The number of the record, once that is stable.
    answer: Rc<Cell<Option<Result<u64, ()>>>>,
}

/// Room in the ring for one write, given back when dropped.
pub(super) struct Room {
    journal: Rc<Journal>,
    bytes: u64,
}

/// A write whose record is stable: it counts until this is dropped and the members were flushed.
pub(super) struct Lease {
    journal: Rc<Journal>,
    sequence: u64,
    is_pinned: bool,
}

impl Journal {
    /// The journal that carries this label, with records of up to so many bytes; its errors are
    /// counted there.
    pub(crate) fn new(
        runtime: Runtime,
        device: Rc<dyn BlockDevice>,
        label: Label,
        record_bytes_max: u64,
        deadline: Option<Duration>,
        history: &History,
    ) -> Journal {
        let ring = Ring::new(label.ring_bytes, record_bytes_max);
        Journal {
            runtime,
            device,
            errors: history.errors_of(label.journal),
            deadline: Cell::new(deadline),
            label: RefCell::new(label),
            ring: RefCell::new(ring),
            queue: RefCell::default(),
            is_writing: Cell::new(false),
            is_labelling: Cell::new(false),
            is_flushing: Cell::new(false),
            is_failed: Cell::new(false),
            pinned: Cell::new(0),
            records: Cell::new(0),
            writes: Cell::new(0),
            progress: Notify::new(),
            zeros: Buffer::zeroed(UNIT_BYTES as usize),
        }
    }

    pub(super) fn set_deadline(&self, deadline: Option<Duration>) {
        self.deadline.set(deadline);
    }

    pub(super) fn name(&self) -> &DeviceName {
        self.device.name()
    }

    pub(crate) fn device(&self) -> &Rc<dyn BlockDevice> {
        &self.device
    }

    pub(crate) fn label(&self) -> Label {
        self.label.borrow().clone()
    }

    pub(super) fn is_half_full(&self) -> bool {
        self.ring.borrow().is_half_full()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ring.borrow().is_empty()
    }

    pub(super) fn next_sequence(&self) -> u64 {
        self.ring.borrow().next_sequence()
    }

    pub(super) fn holds_before(&self, sequence: u64) -> bool {
        self.ring.borrow().holds_before(sequence)
    }

    pub(super) fn is_oldest_done(&self) -> bool {
        self.ring.borrow().is_oldest_done()
    }

    pub(super) fn live_bytes(&self) -> u64 {
        self.ring.borrow().live_bytes()
    }

    /// Records that were written.
    pub(super) fn records(&self) -> u64 {
        self.records.get()
    }

    /// Writes that were in them.
    pub(super) fn writes(&self) -> u64 {
        self.writes.get()
    }

    /// The records before the one returned are done: see [`Ring::done_up_to`].
    pub(super) fn done_up_to(&self) -> u64 {
        self.ring.borrow().done_up_to()
    }

    pub(super) fn note_flushed(&self, sequence: u64) {
        self.ring.borrow_mut().note_flushed(sequence);
    }

    /// Room for a write, where there is any.
    pub(super) fn reserve(self: &Rc<Self>, bytes: u64) -> Option<Room> {
        let fits = self.ring.borrow_mut().reserve(bytes);
        fits.then(|| Room { journal: Rc::clone(self), bytes })
    }

    /// Makes a write stable, with others that come meanwhile.
    ///
    /// # Errors
    /// Where the device has failed; it may have the record.
    pub(super) async fn append(
        self: &Rc<Self>,
        mut room: Room,
        changes: Changes,
        data: Buffers,
    ) -> Result<Lease, DeviceError> {
        let answer = Rc::new(Cell::new(None));
        let bytes = std::mem::take(&mut room.bytes);
        let queued = Queued { changes, data, bytes, answer: Rc::clone(&answer) };
        self.queue.borrow_mut().push_back(queued);
        loop {
            match answer.get() {
                Some(Ok(sequence)) => {
                    let journal = Rc::clone(self);
                    return Ok(Lease { journal, sequence, is_pinned: false });
                }
                Some(Err(())) => return Err(self.gone()),
                None if self.is_writing.get() => self.progress.wait().await,
                None => self.write_next().await,
            }
        }
    }

    /// Writes the next record, of what has gathered.
    async fn write_next(&self) {
        let _turn = JournalTurn::take(&self.is_writing, &self.progress);
        let batch = self.take_batch();
        let written = match self.is_failed.get() {
            true => Err(()),
            false => self.write_record(&batch).await,
        };
        batch.into_iter().for_each(|queued| queued.answer.set(Some(written)));
    }

    fn take_batch(&self) -> Vec<Queued> {
        let mut queue = self.queue.borrow_mut();
        let mut bytes = 0;
        let fits = |queued: &&Queued| {
            bytes += queued.bytes;
            bytes <= BATCH_BYTES_MAX
        };
        let count = queue.iter().take_while(fits).count().max(1).min(queue.len());
        queue.drain(..count).collect()
    }

    async fn write_record(&self, batch: &[Queued]) -> Result<u64, ()> {
        let changes: Vec<Change> = batch.iter().flat_map(|it| it.changes.iter().cloned()).collect();
        let mut data = Buffers::new();
        batch.iter().for_each(|queued| data.extend(&queued.data));
        let header_bytes = record::header_bytes(changes.len());
        let padded = (data.len_bytes() as u64).next_multiple_of(UNIT_BYTES);
        let placed = {
            let mut ring = self.ring.borrow_mut();
            ring.release(batch.iter().map(|queued| queued.bytes).sum());
            ring.place(header_bytes + padded, batch.len() as u32)
        };
        let place = {
            let label = self.label.borrow();
            RecordPosition { journal: label.journal, epoch: label.epoch, sequence: placed.sequence }
        };
        let buffers: Buffers = match data.is_payload_free() {
            true => Buffer::payload_free((header_bytes + padded) as usize).into(),
            false => {
                let mut buffers = Buffers::new();
                buffers.push(Buffer::from_slice(&record::encode(place, &changes, &data)));
                let padding = padded as usize - data.len_bytes();
                buffers.extend(&data);
                buffers.push(self.zeros.slice(0..padding));
                buffers
            }
        };
        self.records.set(self.records.get() + 1);
        self.writes.set(self.writes.get() + batch.len() as u64);
        let flags = match headpond_block::defect!(SkipJournalFlush) {
            true => RequestFlags::empty(),
            false => RequestFlags::FUA,
        };
        let write = Request::write(RING_OFFSET + placed.offset, buffers).with_flags(flags);
        self.carry_out(write).await.map(|()| placed.sequence).map_err(drop)
    }

    /// Has the label leave out what was flushed, so that there is room again.
    ///
    /// # Errors
    /// Where the device has failed.
    pub(super) async fn move_tail(&self) -> Outcome {
        while self.is_labelling.get() {
            self.progress.wait().await;
        }
        let Some(tail) = self.ring.borrow().next_tail() else { return Ok(()) };
        self.write_label(|label| label.tail = tail).await?;
        self.ring.borrow_mut().retire(tail);
        Ok(())
    }

    /// Begins a new epoch, without records.
    ///
    /// # Errors
    /// Where the device has failed.
    pub(super) async fn begin_epoch(&self, epoch: u64) -> Outcome {
        let change = |label: &mut Label| (label.epoch, label.tail) = (epoch, Tail::START);
        self.write_label(change).await
    }

    async fn write_label(&self, change: impl FnOnce(&mut Label)) -> Outcome {
        let _turn = JournalTurn::take(&self.is_labelling, &self.progress);
        let mut label = self.label.borrow().clone();
        label.sequence += 1;
        change(&mut label);
        self.carry_out(label_write(&label)).await?;
        self.label.replace(label);
        Ok(())
    }

    async fn carry_out(&self, request: Request) -> Outcome {
        let kind = request.kind;
        let outcome = match Submission::on(Rc::clone(&self.device), request).now_or() {
            Ok(outcome) => outcome,
            Err(pending) => in_time(&self.runtime, self.name(), self.deadline.get(), pending).await,
        };
        if let Err(error) = &outcome {
            self.errors.note(kind, error, self.runtime.utc());
            self.is_failed.set(true);
        }
        outcome
    }

    /// Checks the ring, and what waits for it; for tests and simulation.
    ///
    /// # Panics
    /// Where an invariant does not hold.
    pub(super) fn self_check(&self) {
        let (ring, label) = (self.ring.borrow(), self.label.borrow());
        ring.self_check();
        let queued: u64 = self.queue.borrow().iter().map(|queued| queued.bytes).sum();
        assert!(queued <= ring.reserved_bytes(), "who waits has reserved room");
        assert!(
            label.tail.sequence <= ring.next_sequence(),
            "the label leaves out what is to come"
        );
        let is_kept = !ring.holds_before(label.tail.sequence);
        assert!(is_kept || self.is_labelling.get(), "a record counts that the label leaves out");
        assert!(u64::from(self.pinned.get()) <= ring.pending(), "who is pinned has a record");
        assert!(self.records.get() <= self.writes.get(), "a record has a write");
    }

    pub(super) fn is_failed(&self) -> bool {
        self.is_failed.get()
    }

    /// Whether a write that stopped half-way keeps the data before it.
    pub(super) fn is_blocked(&self) -> bool {
        self.pinned.get() > 0
    }

    /// The turn of one caller to flush the members for the sake of room.
    pub(super) fn flushing(&self) -> Option<JournalTurn<'_>> {
        (!self.is_flushing.get()).then(|| JournalTurn::take(&self.is_flushing, &self.progress))
    }

    /// Completes when something has changed.
    pub(super) fn progress(&self) -> impl Future<Output = ()> + '_ {
        self.progress.wait()
    }

    fn gone(&self) -> DeviceError {
        DeviceError::new(self.name(), Cause::Gone)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.journal.ring.borrow_mut().release(self.bytes);
            self.journal.progress.notify_all();
        }
    }
}

impl Lease {
    /// The write has stopped half-way: the record stays until this is dropped.
    pub(super) fn pin(mut self) -> Lease {
        self.is_pinned = true;
        self.journal.pinned.set(self.journal.pinned.get() + 1);
        self
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.is_pinned {
            self.journal.pinned.set(self.journal.pinned.get() - 1);
        }
        self.journal.ring.borrow_mut().done(self.sequence);
        self.journal.progress.notify_all();
    }
}

/// The turn of one caller; over also when that caller is dropped.
pub(super) struct JournalTurn<'a>(&'a Cell<bool>, &'a Notify);

impl<'a> JournalTurn<'a> {
    fn take(is_taken: &'a Cell<bool>, progress: &'a Notify) -> Self {
        assert!(!is_taken.replace(true), "one caller at a time");
        JournalTurn(is_taken, progress)
    }
}

impl Drop for JournalTurn<'_> {
    fn drop(&mut self) {
        self.0.set(false);
        self.1.notify_all();
    }
}

/// The newest label on a device.
///
/// # Errors
/// Where neither copy can be read.
pub(crate) async fn read_journal_label(
    device: &dyn BlockDevice,
) -> Result<Result<Label, LabelError>, DeviceError> {
    let mut newest: Option<Label> = None;
    let (mut problem, mut failure) = (LabelError::Zeroed, None);
    for offset in COPY_OFFSETS {
        let buffer = Buffer::zeroed(LABEL_BYTES);
        match device.submit(Request::read(offset, &buffer)).await {
            Err(error) => failure = Some(error),
            Ok(()) => match label::decode(&buffer.to_vec()) {
                Ok(label) => {
                    if newest.as_ref().is_none_or(|newest| newest.sequence < label.sequence) {
                        newest = Some(label);
                    }
                }
                // One that is not known here may be newer still.
                Err(unknown @ (LabelError::Version { .. } | LabelError::Incompatible { .. })) => {
                    return Ok(Err(unknown));
                }
                Err(LabelError::Zeroed) => {}
                Err(error) => problem = error,
            },
        }
    }
    match (newest, failure) {
        (Some(label), _) => Ok(Ok(label)),
        (None, Some(error)) => Err(error),
        (None, None) => Ok(Err(problem)),
    }
}

/// Writes a label, stably, to the copy whose turn it is.
pub(crate) async fn write_journal_label(device: &dyn BlockDevice, label: &Label) -> Outcome {
    device.submit(label_write(label)).await
}

fn label_write(label: &Label) -> Request {
    let offset = COPY_OFFSETS[(label.sequence % 2) as usize];
    let bytes = Buffer::from_slice(&label::encode(label));
    Request::write(offset, bytes).with_flags(RequestFlags::FUA)
}

#[cfg(test)]
mod tests {
    use headpond_testkit::{Break, assert_trips};

    use super::*;
    use crate::array::Array;
    use crate::array::self_check::tests::*;

    #[test]
    fn check_notices_writes_without_records_and_records_without_writes() {
        fn of(array: &Array) -> Rc<Journal> {
            array.journal().expect("it has one")
        }
        let breaks: [Break<Array>; 5] = [
            ("who waits has reserved room", |it| {
                let (changes, data, answer) = Default::default();
                let queued = Queued { changes, data, bytes: 4096, answer };
                of(it).queue.borrow_mut().push_back(queued);
            }),
            ("a record counts that the label leaves out", |it| {
                let journal = of(it);
                let next = journal.next_sequence();
                journal.ring.borrow_mut().place(4096, 1);
                journal.label.borrow_mut().tail.sequence = next + 1;
            }),
            ("leaves out what is to come", |it| of(it).label.borrow_mut().tail.sequence = 1 << 40),
            ("who is pinned has a record", |it| of(it).pinned.set(99)),
            ("a record has a write", |it| of(it).records.set(1 << 40)),
        ];
        assert_trips(lived, |it| of(it).self_check(), &breaks);
    }
}
