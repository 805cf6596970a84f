//! Timers, in order of time and then of age.

use super::Runtime;
use crate::Instant;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// A tree rather than a heap: a deadline that is met takes its timer out again, so that the number
/// of timers follows the work in flight and not the length of the deadlines.
#[derive(Default)]
pub(super) struct Timers {
    waiting: RefCell<BTreeMap<(Instant, u64), Waker>>,
    next_number: Cell<u64>,
}

impl Timers {
    pub(super) fn next(&self) -> Option<Instant> {
        self.waiting.borrow().first_key_value().map(|((at, _), _)| *at)
    }

    /// Wakes the tasks whose time has come.
    pub(super) fn fire(&self, now: Instant) {
        while let Some(waker) = self.take_due(now) {
            waker.wake();
        }
    }

    pub(super) fn clear(&self) {
        self.waiting.borrow_mut().clear();
    }

    fn take_due(&self, now: Instant) -> Option<Waker> {
        let mut waiting = self.waiting.borrow_mut();
        let first = waiting.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    fn insert(&self, at: Instant, waker: Waker) -> u64 {
        let number = self.next_number.get();
        self.next_number.set(number + 1);
        self.waiting.borrow_mut().insert((at, number), waker);
        number
    }
}

/// Completes at an instant.
pub struct Sleep {
    runtime: Runtime,
    at: Instant,
    number: Option<u64>,
}

impl Sleep {
    pub(super) fn new(runtime: Runtime, at: Instant) -> Self {
        Self { runtime, at, number: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.runtime.now() >= self.at {
            return Poll::Ready(());
        }
        let timers = &self.runtime.core.timers;
        let number = match self.number {
            None => timers.insert(self.at, context.waker().clone()),
            Some(number) => {
                let mut waiting = timers.waiting.borrow_mut();
                waiting.insert((self.at, number), context.waker().clone());
                number
            }
        };
        self.number = Some(number);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.runtime.core.timers.waiting.borrow_mut().remove(&(self.at, number));
        }
    }
}
