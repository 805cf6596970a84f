//! A limit on operations in flight.

use super::waiter::{Granted, Waiter};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// Counts permits; callers wait in FIFO order. Cloning shares the count.
#[derive(Clone)]
pub struct Semaphore(Rc<State>);

struct State {
    free: Cell<u64>,
    queue: RefCell<VecDeque<(u64, Rc<Waiter>)>>,
}

/// Holds permits until dropped.
pub struct Permit {
    state: Rc<State>,
    count: u64,
}

impl Semaphore {
    pub fn new(permits: u64) -> Self {
        Self(Rc::new(State { free: Cell::new(permits), queue: RefCell::default() }))
    }

    pub fn free(&self) -> u64 {
        self.0.free.get()
    }

    /// Number of callers that wait.
    pub fn waiting(&self) -> usize {
        self.0.queue.borrow().len()
    }

    pub fn try_acquire(&self, count: u64) -> Option<Permit> {
        let free = self.0.free.get();
        if free < count || !self.0.queue.borrow().is_empty() {
            return None;
        }
        self.0.free.set(free - count);
        Some(Permit { state: Rc::clone(&self.0), count })
    }

    /// Waits for `count` permits. More than the semaphore ever holds are never granted.
    pub async fn acquire(&self, count: u64) -> Permit {
        if let Some(permit) = self.try_acquire(count) {
            return permit;
        }
        let waiter = Waiter::new();
        self.0.queue.borrow_mut().push_back((count, Rc::clone(&waiter)));
        let place = QueuedPermit {
            state: &self.0,
            waiter: Rc::clone(&waiter),
            count,
            taken: Cell::new(false),
        };
        Granted(waiter).await;
        place.taken.set(true);
        Permit { state: Rc::clone(&self.0), count }
    }

    /// Adds permits permanently.
    pub fn add(&self, count: u64) {
        self.0.give(count);
    }
}

impl State {
    fn give(&self, count: u64) {
        self.free.set(self.free.get() + count);
        self.grant();
    }

    fn grant(&self) {
        loop {
            let waiter = {
                let mut queue = self.queue.borrow_mut();
                match queue.front() {
                    Some((count, _)) if *count <= self.free.get() => {}
                    _ => return,
                }
                let (count, waiter) = queue.pop_front().expect("the front was there");
                self.free.set(self.free.get() - count);
                waiter
            };
            waiter.grant();
        }
    }
}

impl Permit {
    pub fn count(&self) -> u64 {
        self.count
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.state.give(self.count);
    }
}

/// An entry of the queue; when its owner is dropped before the permit is taken, the entry is
/// removed, or the permits are returned.
struct QueuedPermit<'a> {
    state: &'a State,
    waiter: Rc<Waiter>,
    count: u64,
    taken: Cell<bool>,
}

impl Drop for QueuedPermit<'_> {
    fn drop(&mut self) {
        if self.taken.get() {
            return;
        }
        if self.waiter.is_granted() {
            self.state.give(self.count);
        } else {
            self.state.queue.borrow_mut().retain(|(_, other)| !Rc::ptr_eq(other, &self.waiter));
            self.state.grant();
        }
    }
}
