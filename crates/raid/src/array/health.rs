//! Response times and errors of the device of one member.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use headpond_block::{
    BlockDevice, ByteRange, DeviceError, ErrorLog, Instant, RequestKind, UtcTime,
};

use super::status::Answers;
use crate::balance::{self, Candidate, Motion, Planned};
use crate::deadlines::{Deadlines, EventWindow, TICKS_OF_READ, Typical};

/// The queue of a device, and what is known of its answers. It belongs to the device and not to the
/// role: what an old device still has to answer is not held against its successor.
#[derive(Default)]
pub(super) struct Health {
    motion: Motion,
    /// A cluster that does not answer recovers: its device is never failed for that.
    is_remote: bool,
    queued: Cell<u64>,
    /// Where its newest operation ends.
    head: Cell<u64>,
    /// Whether it ever left an answer for later. One that never does is memory, and has no hardware
    /// that could write to a client's memory behind its back.
    defers: Cell<bool>,
    /// Slow reads in flight.
    slow: Cell<u64>,
    slow_total: Cell<u64>,
    late_total: Cell<u64>,
    /// Reads of it that its peers have answered.
    reconstructed: Cell<u64>,
    slow_events: RefCell<EventWindow>,
    timeouts: RefCell<EventWindow>,
    typical: RefCell<Typical>,
    /// Reads that were entered.
    reads: Cell<u32>,
    is_condemned: Cell<bool>,
    errors: RefCell<Rc<ErrorLog>>,
    /// Held by every operation in flight that began since the last [`Health::part`].
    generation: RefCell<Rc<()>>,
}

/// The operations in flight on a device at some time.
pub(super) struct Earlier(Rc<()>);

/// A place in the queue of a device, until dropped.
pub(super) struct DeviceQueuePlace {
    health: Rc<Health>,
    cost: u64,
    _generation: Rc<()>,
}

impl Health {
    pub(super) fn of(device: &dyn BlockDevice) -> Rc<Health> {
        let motion = if device.geometry().rotational { Motion::Rotating } else { Motion::None };
        let is_remote = device.remote().is_some();
        Rc::new(Health { motion, is_remote, ..Health::default() })
    }

    pub(super) fn motion(&self) -> Motion {
        self.motion
    }

    /// The device, seen as the holder of a copy.
    pub(super) fn as_candidate(&self, copy: usize, planned: Planned) -> Candidate {
        Candidate { copy, queued: self.queued.get(), head: self.head.get(), planned }
    }

    /// An operation on `range` is in flight.
    pub(super) fn enter(self: &Rc<Self>, range: ByteRange) -> DeviceQueuePlace {
        let cost = balance::cost(self.motion, range, self.head.get());
        self.queued.set(self.queued.get() + cost);
        if !range.is_empty() {
            self.head.set(range.end());
        }
        let generation = Rc::clone(&self.generation.borrow());
        DeviceQueuePlace { health: Rc::clone(self), cost, _generation: generation }
    }

    /// Separates the operations in flight from all that begin later.
    pub(super) fn part(&self) -> Earlier {
        Earlier(self.generation.replace(Rc::default()))
    }

    pub(super) fn defers(&self) -> bool {
        self.defers.get()
    }

    pub(super) fn note_deferred(&self) {
        self.defers.set(true);
    }

    /// Whether a read of it should come from elsewhere.
    pub(super) fn is_slow(&self) -> bool {
        self.slow.get() > 0
    }

    /// A read is slow.
    pub(super) fn note_slow(&self, at: Instant, deadlines: &Deadlines) {
        self.slow.set(self.slow.get() + 1);
        self.slow_total.set(self.slow_total.get() + 1);
        self.slow_events.borrow_mut().note(at, deadlines.tick() * TICKS_OF_READ as u32);
    }

    pub(super) fn note_slow_answered(&self) {
        self.slow.set(self.slow.get() - 1);
    }

    /// A slow read is late.
    pub(super) fn note_late(&self, at: Instant, deadlines: &Deadlines) {
        self.late_total.set(self.late_total.get() + 1);
        let apart = deadlines.tick() * TICKS_OF_READ as u32;
        let events = self.timeouts.borrow_mut().note(at, apart);
        if deadlines.timeouts_max.is_some_and(|most| events >= most) {
            self.condemn();
        }
    }

    /// The peers answer what this device was to read.
    pub(super) fn note_reconstructed(&self) {
        self.reconstructed.set(self.reconstructed.get() + 1);
    }

    /// Whether the read that begins is to say how long reads take, even if it is not slow: one of
    /// sixteen, the first as well.
    pub(super) fn is_next_a_sample(&self) -> bool {
        let before = self.reads.replace(self.reads.get().wrapping_add(1));
        before.is_multiple_of(16)
    }

    /// A read took so long.
    pub(super) fn note_read(&self, took: Duration) {
        self.typical.borrow_mut().note(took);
    }

    /// Whether the device is to be failed as soon as the redundancy allows.
    pub(super) fn is_condemned(&self) -> bool {
        self.is_condemned.get()
    }

    pub(super) fn condemn(&self) {
        self.is_condemned.set(!self.is_remote);
    }

    /// Checks what is counted of its answers; for tests and simulation.
    ///
    /// # Panics
    /// Where it does not agree.
    pub(super) fn self_check(&self) {
        let (slow, late) = (self.slow_total.get(), self.late_total.get());
        assert!(self.slow.get() <= slow, "slow now is what was slow");
        assert!(late <= slow, "late is what was slow before");
        self.slow_events.borrow().self_check();
        self.timeouts.borrow().self_check();
    }

    /// Slow reads in flight.
    pub(super) fn slow_reads(&self) -> u64 {
        self.slow.get()
    }

    /// An operation failed. What a device does not do is no error of it.
    #[cold]
    pub(super) fn note_error(&self, kind: RequestKind, error: &DeviceError, at: UtcTime) {
        self.errors.borrow().note(kind, error, at);
    }

    /// Contents that did not match their checksum.
    pub(super) fn note_misfit(&self, at: UtcTime) {
        self.errors.borrow().note_checksum(at);
    }

    /// Counts errors there from now on.
    pub(super) fn count_errors_in(&self, errors: Rc<ErrorLog>) {
        self.errors.replace(errors);
    }

    /// Its status.
    pub(super) fn answers(&self, at: Instant) -> Answers {
        Answers {
            slow_reads: self.slow_total.get(),
            timed_out_reads: self.late_total.get(),
            reconstructed_reads: self.reconstructed.get(),
            is_slow: self.is_slow(),
            is_timed_out: self.is_condemned(),
            slow_events: self.slow_events.borrow().count(at),
            timeouts: self.timeouts.borrow().count(at),
            typical_read_us: self.typical.borrow().time().map(|time| time.as_micros() as u64),
            unanswered_ms: 0,
        }
    }
}

impl Earlier {
    /// Whether all of it has been answered.
    pub(super) fn is_over(&self) -> bool {
        Rc::strong_count(&self.0) == 1
    }
}

impl DeviceQueuePlace {
    pub(super) fn health(&self) -> &Rc<Health> {
        &self.health
    }
}

impl Drop for DeviceQueuePlace {
    fn drop(&mut self) {
        self.health.queued.set(self.health.queued.get() - self.cost);
    }
}

#[cfg(test)]
mod tests {
    use headpond_testkit::{Break, assert_trips};

    use super::*;

    #[test]
    fn check_notices_answers_that_are_counted_wrong() {
        let make = || {
            let health = Health::default();
            health.note_slow(Instant::START, &Deadlines::default());
            health
        };
        let breaks: [Break<Health>; 3] = [
            ("slow now is what was slow", |it| it.slow.set(2)),
            ("late is what was slow before", |it| it.late_total.set(2)),
            ("slow now is what was slow", |it| it.slow_total.set(0)),
        ];
        assert_trips(make, Health::self_check, &breaks);
    }
}
