//! How the device of one member is doing.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use headpond_block::{BlockDevice, ByteRange};

use crate::balance::{self, Candidate, Motion, Planned};
use crate::patience::{Lateness, Ticks};

/// The queue of a device, and what is known of its answers. It belongs to the device and not to the
/// role: what an old device still has to answer is not held against its successor.
#[derive(Default)]
pub(super) struct Health {
    motion: Motion,
    queued: Cell<u64>,
    /// Where its newest operation ends.
    head: Cell<u64>,
    /// Whether it ever left an answer for later. One that never does is memory, and has no hardware
    /// that could write to a client's memory behind its back.
    defers: Cell<bool>,
    /// Slow reads under way.
    slow: Cell<u64>,
    slow_total: Cell<u64>,
    late_total: Cell<u64>,
    lateness: Cell<Lateness>,
    is_condemned: Cell<bool>,
    /// Held by everything that is under way and began since the last [`Health::part`].
    generation: RefCell<Rc<()>>,
}

/// What was under way on a device at some moment.
pub(super) struct Earlier(Rc<()>);

/// A place in the queue of a device, until dropped.
pub(super) struct Place {
    health: Rc<Health>,
    cost: u64,
    _generation: Rc<()>,
}

impl Health {
    pub(super) fn of(device: &dyn BlockDevice) -> Rc<Health> {
        let motion = if device.geometry().rotational { Motion::Rotating } else { Motion::None };
        Rc::new(Health { motion, ..Health::default() })
    }

    pub(super) fn motion(&self) -> Motion {
        self.motion
    }

    /// The device, seen as the holder of a copy.
    pub(super) fn as_candidate(&self, copy: usize, planned: Planned) -> Candidate {
        Candidate { copy, queued: self.queued.get(), head: self.head.get(), planned }
    }

    /// An operation on `range` is under way.
    pub(super) fn enter(self: &Rc<Self>, range: ByteRange) -> Place {
        let cost = balance::cost(self.motion, range, self.head.get());
        self.queued.set(self.queued.get() + cost);
        if !range.is_empty() {
            self.head.set(range.end());
        }
        let generation = Rc::clone(&self.generation.borrow());
        Place { health: Rc::clone(self), cost, _generation: generation }
    }

    /// Parts what is under way now from all that begins later.
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

    pub(super) fn note_slow(&self) {
        self.slow.set(self.slow.get() + 1);
        self.slow_total.set(self.slow_total.get() + 1);
    }

    pub(super) fn note_slow_answered(&self) {
        self.slow.set(self.slow.get() - 1);
    }

    pub(super) fn note_late(&self, now: Ticks) {
        self.late_total.set(self.late_total.get() + 1);
        let mut lateness = self.lateness.get();
        if lateness.note(now) {
            self.condemn();
        }
        self.lateness.set(lateness);
    }

    /// Whether the device is to be given up as soon as the redundancy allows.
    pub(super) fn is_condemned(&self) -> bool {
        self.is_condemned.get()
    }

    pub(super) fn condemn(&self) {
        self.is_condemned.set(true);
    }

    /// Reads that were slow, and those of them that were late.
    pub(super) fn totals(&self) -> (u64, u64) {
        (self.slow_total.get(), self.late_total.get())
    }
}

impl Earlier {
    /// Whether all of it has been answered.
    pub(super) fn is_over(&self) -> bool {
        Rc::strong_count(&self.0) == 1
    }
}

impl Place {
    pub(super) fn health(&self) -> &Rc<Health> {
        &self.health
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.health.queued.set(self.health.queued.get() - self.cost);
    }
}
