//! Operations in flight on the members, and their ages.
//!
//! 1. An operation that its device does not complete at once is entered; 2. while any are in
//!    flight, a task checks all of them once a tick and reports those that are slow, late or
//!    expired to the [`Health`] of the device and to the waiter; 3. an operation is removed when
//!    its device has completed it, which may be long after it was abandoned.
//!
//! An operation costs its entry here, and no timer; one read of sixteen reads the clock, for the
//! typical time of its member; for a slow one the ticks are counted.
//!
//! **Invariants**: a device is avoided as long as one of its slow reads is in flight.
//! **Not here**: the consequences for the array (`operation`), the time limits (`deadlines`).

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::task::Waker;
use std::time::Duration;

use headpond_block::{Instant, RequestKind, Runtime};

use super::health::Health;
use crate::deadlines::{Deadlines, TICKS_OF_READ, Ticks, Usual};

/// The watch of one array; its task ends with it.
pub(super) struct Watch {
    shared: Rc<Shared>,
    /// Gone when the array is.
    alive: Rc<()>,
}

struct Shared {
    runtime: Runtime,
    deadlines: Cell<Option<Deadlines>>,
    now: Cell<Ticks>,
    usual: Cell<Usual>,
    entries: RefCell<Vec<Entry>>,
    free: RefCell<Vec<usize>>,
    is_looking: Cell<bool>,
    on_hung: RefCell<Option<Rc<dyn Fn()>>>,
}

/// One operation in flight.
struct Entry {
    /// `None` where the entry is free.
    health: Option<Rc<Health>>,
    kind: RequestKind,
    since: Ticks,
    /// Of a read that is to say what is typical.
    began: Option<Instant>,
    is_slow: bool,
    is_late: bool,
    is_expired: bool,
    waker: Option<Waker>,
}

/// What an operation is compared with.
struct Limits {
    slow: Ticks,
    late: Ticks,
    deadline: Ticks,
    at: Instant,
    deadlines: Deadlines,
}

/// An operation's place in the watch, until its device has answered.
pub(super) struct Ticket {
    shared: Rc<Shared>,
    index: usize,
}

/// What is to be said of an operation that has no answer yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeoutVerdict {
    InTime,
    /// A read whose data should come from elsewhere.
    Slow,
    /// The device is hung, or late too often.
    Hung,
}

impl Watch {
    pub(super) fn new(runtime: Runtime, deadlines: Option<Deadlines>) -> Watch {
        let shared = Shared {
            runtime,
            deadlines: Cell::new(deadlines),
            now: Cell::new(0),
            usual: Cell::default(),
            entries: RefCell::default(),
            free: RefCell::default(),
            is_looking: Cell::new(false),
            on_hung: RefCell::default(),
        };
        Watch { shared: Rc::new(shared), alive: Rc::new(()) }
    }

    pub(super) fn deadlines(&self) -> Option<Deadlines> {
        self.shared.deadlines.get()
    }

    pub(super) fn set_deadlines(&self, deadlines: Option<Deadlines>) {
        if self.shared.deadlines.replace(deadlines) == deadlines {
            return;
        }
        // Ticks have another length now: no member is failed for those that were shorter.
        let now = self.shared.now.get();
        self.shared.usual.take();
        self.shared.entries.borrow_mut().iter_mut().for_each(|entry| entry.since = now);
    }

    /// Age of the oldest operation in flight on a device, in whole ticks.
    pub(super) fn longest(&self, health: &Rc<Health>) -> Duration {
        let Some(deadlines) = self.deadlines() else { return Duration::ZERO };
        let (now, entries) = (self.shared.now.get(), self.shared.entries.borrow());
        let of_it = |entry: &&Entry| entry.health.as_ref().is_some_and(|it| Rc::ptr_eq(it, health));
        let oldest = entries.iter().filter(of_it).map(|entry| now - entry.since).max();
        deadlines.tick() * u32::try_from(oldest.unwrap_or(0)).unwrap_or(u32::MAX)
    }

    /// Has `tell` called whenever a device is found hung, or late too often.
    pub(super) fn when_hung(&self, tell: Rc<dyn Fn()>) {
        self.shared.on_hung.replace(Some(tell));
    }

    /// Checks the operations in flight, and that slow ones count at their device; for tests and
    /// simulation.
    ///
    /// # Panics
    /// Where an invariant does not hold.
    pub(super) fn self_check<'a>(&self, devices: impl Iterator<Item = &'a Rc<Health>>) {
        let (entries, free) = (self.shared.entries.borrow(), self.shared.free.borrow());
        let is_free = |at: &usize| entries.get(*at).is_some_and(|entry| entry.health.is_none());
        assert!(free.iter().all(is_free), "a free place is taken");
        let unused = entries.iter().filter(|entry| entry.health.is_none()).count();
        assert_eq!(unused, free.len(), "a place is lost");
        let is_told = |entry: &Entry| !entry.is_late || entry.is_slow;
        assert!(entries.iter().all(is_told), "what is late is slow");
        for device in devices {
            let is_of_it = |entry: &&Entry| {
                entry.is_slow && entry.health.as_ref().is_some_and(|it| Rc::ptr_eq(it, device))
            };
            let slow = entries.iter().filter(is_of_it).count() as u64;
            assert_eq!(slow, device.slow_reads(), "a device is avoided for what is slow");
        }
    }

    /// Enters an operation that a device has not answered at once.
    pub(super) fn enter(&self, health: &Rc<Health>, kind: RequestKind) -> Ticket {
        let is_sample = kind == RequestKind::Read && health.is_next_a_sample();
        let entry = Entry {
            began: is_sample.then(|| self.shared.runtime.now()),
            health: Some(Rc::clone(health)),
            kind,
            since: self.shared.now.get(),
            is_slow: false,
            is_late: false,
            is_expired: false,
            waker: None,
        };
        let index = self.shared.keep(entry);
        if self.deadlines().is_some() && !self.shared.is_looking.replace(true) {
            let look = look(Rc::downgrade(&self.shared), Rc::downgrade(&self.alive));
            drop(self.shared.runtime.spawn(look));
        }
        Ticket { shared: Rc::clone(&self.shared), index }
    }
}

impl Ticket {
    /// What is to be said now; `waker` is called when that changes.
    pub(super) fn verdict(&self, waker: &Waker) -> TimeoutVerdict {
        let mut entries = self.shared.entries.borrow_mut();
        let entry = &mut entries[self.index];
        match &mut entry.waker {
            Some(known) if known.will_wake(waker) => {}
            other => *other = Some(waker.clone()),
        }
        let is_condemned = entry.health.as_ref().is_some_and(|health| health.is_condemned());
        match (entry.is_expired || is_condemned, entry.is_slow) {
            (true, _) => TimeoutVerdict::Hung,
            (false, true) => TimeoutVerdict::Slow,
            (false, false) => TimeoutVerdict::InTime,
        }
    }

    /// It was abandoned; the device still has to complete it.
    pub(super) fn leave_behind(&self) {
        self.shared.entries.borrow_mut()[self.index].waker = None;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut entries = self.shared.entries.borrow_mut();
        let entry = &mut entries[self.index];
        let health = entry.health.take().expect("a ticket has its entry");
        entry.waker = None;
        if entry.is_slow {
            health.note_slow_answered();
        }
        if let Some(took) = self.shared.took(entry) {
            health.note_read(took);
        }
        if entry.kind == RequestKind::Read {
            let mut usual = self.shared.usual.get();
            // A slow member says little of what is usual, but where all are slow they say it.
            let ticks = self.shared.now.get() - entry.since;
            usual.note(ticks.min(2 * usual.lateness(TICKS_OF_READ)));
            self.shared.usual.set(usual);
        }
        self.shared.free.borrow_mut().push(self.index);
    }
}

impl Shared {
    fn keep(&self, entry: Entry) -> usize {
        let mut entries = self.entries.borrow_mut();
        match self.free.borrow_mut().pop() {
            Some(index) => {
                entries[index] = entry;
                index
            }
            None => {
                entries.push(entry);
                entries.len() - 1
            }
        }
    }

    /// How long a read took, where it is to say what is typical.
    fn took(&self, entry: &Entry) -> Option<Duration> {
        if let Some(began) = entry.began {
            return Some(self.runtime.now().since(began));
        }
        let ticks = (self.now.get() - entry.since) as u32;
        entry.is_slow.then(|| self.deadlines.get().map(|deadlines| deadlines.tick() * ticks))?
    }

    /// One tick later. Whether there is anything to look at again.
    fn tick(&self, deadlines: Deadlines) -> bool {
        let now = self.now.get() + 1;
        self.now.set(now);
        let usual = self.usual.get();
        let longest = deadlines.read_ticks();
        let late = usual.lateness(longest);
        let deadline = deadlines.deadline_ticks();
        let at = self.runtime.now();
        let (mut goes_on, mut is_any_hung) = (false, false);
        let mut wakers = Vec::new();
        for entry in self.entries.borrow_mut().iter_mut() {
            let Some(health) = entry.health.clone() else { continue };
            let slow = usual.deadlines(health.motion(), longest);
            let was_condemned = health.is_condemned();
            entry.age(&health, now, &Limits { slow, late, deadline, at, deadlines });
            is_any_hung |= !was_condemned && health.is_condemned();
            if entry.is_slow || entry.is_expired || health.is_condemned() {
                wakers.extend(entry.waker.clone());
            }
            goes_on |= !entry.is_expired;
        }
        wakers.into_iter().for_each(Waker::wake);
        let tell = self.on_hung.borrow().clone();
        tell.filter(|_| is_any_hung).inspect(|tell| tell());
        goes_on
    }
}

impl Entry {
    fn age(&mut self, health: &Health, now: Ticks, limits: &Limits) {
        let Limits { slow, late, deadline, at, ref deadlines } = *limits;
        let age = now - self.since;
        let is_read = self.kind == RequestKind::Read;
        if is_read && !self.is_slow && age >= slow {
            self.is_slow = true;
            health.note_slow(at, deadlines);
        }
        if is_read && self.is_slow && !self.is_late && age >= late {
            self.is_late = true;
            health.note_late(at, deadlines);
        }
        let is_flush = self.kind == RequestKind::Flush;
        let deadline = if is_flush { deadline.saturating_mul(2) } else { deadline };
        if !self.is_expired && age >= deadline {
            self.is_expired = true;
            health.condemn();
        }
    }
}

/// Checks once a tick, until no operation was in flight twice in a row.
async fn look(watch: Weak<Shared>, alive: Weak<()>) {
    let mut idle = 0;
    while idle < 2 {
        let Some((runtime, deadlines)) =
            watch.upgrade().and_then(|watch| Some((watch.runtime.clone(), watch.deadlines.get()?)))
        else {
            break;
        };
        runtime.sleep(deadlines.tick()).await;
        if alive.strong_count() == 0 {
            return;
        }
        let Some(watch) = watch.upgrade() else { return };
        idle = if watch.tick(deadlines) { 0 } else { idle + 1 };
    }
    if let Some(watch) = watch.upgrade() {
        watch.is_looking.set(false);
    }
}

#[cfg(test)]
mod tests {
    use headpond_testkit::{Break, assert_trips};

    use super::*;

    #[test]
    fn check_notices_what_is_wrong_with_what_is_under_way() {
        type Watched = (Watch, Rc<Health>, Vec<Ticket>);
        let make = || {
            let made = headpond_sim::run(1, async |runtime, _| {
                let (watch, device) = (Watch::new(runtime, None), Rc::default());
                let mut tickets: Vec<_> =
                    (0..3).map(|_| watch.enter(&device, RequestKind::Read)).collect();
                tickets.remove(0);
                (watch, device, tickets)
            });
            made.expect("no deadlock")
        };
        let breaks: [Break<Watched>; 5] = [
            ("a free place is taken", |(it, ..)| it.shared.free.borrow_mut().push(1)),
            ("a place is lost", |(it, ..)| it.shared.free.borrow_mut().clear()),
            ("what is late is slow", |(it, ..)| it.shared.entries.borrow_mut()[1].is_late = true),
            ("for what is slow", |(it, ..)| it.shared.entries.borrow_mut()[1].is_slow = true),
            ("for what is slow", |(_, device, _)| {
                device.note_slow(Instant::START, &Deadlines::default());
            }),
        ];
        assert_trips(make, |(it, device, _)| it.self_check([device].into_iter()), &breaks);
    }
}
