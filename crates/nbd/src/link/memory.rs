//! The memory budget of the requests of all connections of a server.
//!
//! 1. A request takes its bytes when it is admitted, and releases them when its reply is sent.
//! 2. Where too few are free it waits in a FIFO queue. Released bytes go to the first request in
//!    the queue, as soon as they suffice.
//!
//! **Invariants**
//! - No more is held than the budget, except by a single request that is longer than it, and after
//!   the budget was reduced, until enough is released.
//! - No request overtakes a waiting one, however small. A connection has one entry in the queue,
//!   for its next request, so large requests wait no more often than small ones.
//!
//! **Not here**: the memory itself, which is the pool's.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

/// Payload bytes held, and the requests that wait for some.
pub struct MemoryBudget {
    gauges: Arc<MemoryGauges>,
    line: RefCell<VecDeque<Rc<Waiter>>>,
}

/// A budget as other threads see it.
#[derive(Debug)]
pub struct MemoryGauges {
    bytes_max: AtomicU64,
    held_bytes: AtomicU64,
    waiting: AtomicUsize,
}

struct Waiter {
    bytes: u64,
    is_granted: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// Waits in the queue; dropping it leaves the queue.
struct Taking<'b> {
    budget: &'b MemoryBudget,
    waiter: Rc<Waiter>,
    is_taken: bool,
}

impl MemoryGauges {
    /// With nothing held.
    pub fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max: AtomicU64::new(bytes_max),
            held_bytes: AtomicU64::default(),
            waiting: AtomicUsize::default(),
        }
    }

    pub fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Requests that wait for memory.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Changes the budget. Where more is held, nothing is taken until enough is released; a larger
    /// one is given out when something is released, or by [`MemoryBudget::grant`].
    pub fn set(&self, bytes_max: u64) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
    }
}

impl MemoryBudget {
    pub fn new(bytes_max: u64) -> Self {
        Self::of(Arc::new(MemoryGauges::new(bytes_max)))
    }

    /// Of gauges that another thread has made, with nothing held.
    pub fn of(gauges: Arc<MemoryGauges>) -> Self {
        Self { gauges, line: RefCell::default() }
    }

    pub fn gauges(&self) -> &Arc<MemoryGauges> {
        &self.gauges
    }

    /// The same from its own thread, where those that wait get more at once.
    pub fn set(&self, bytes_max: u64) {
        self.gauges.set(bytes_max);
        self.grant();
    }

    fn held_bytes(&self) -> u64 {
        self.gauges.held_bytes()
    }

    /// Only this thread writes it.
    fn hold(&self, bytes: u64) {
        self.gauges.held_bytes.store(bytes, Ordering::Relaxed);
    }

    fn note_waiting(&self) {
        self.gauges.waiting.store(self.line.borrow().len(), Ordering::Relaxed);
    }

    /// Takes `bytes` where they are free and nothing waits; 0 bytes are always free.
    pub fn try_take(&self, bytes: u64) -> bool {
        let is_free = bytes == 0 || (self.line.borrow().is_empty() && self.fits(bytes));
        if is_free {
            self.hold(self.held_bytes() + bytes);
        }
        is_free
    }

    /// Takes `bytes` in FIFO order.
    pub async fn take(&self, bytes: u64) {
        if !self.try_take(bytes) {
            let (is_granted, waker) = (Cell::new(false), RefCell::default());
            let waiter = Rc::new(Waiter { bytes, is_granted, waker });
            self.line.borrow_mut().push_back(Rc::clone(&waiter));
            self.note_waiting();
            Taking { budget: self, waiter, is_taken: false }.await;
        }
    }

    /// Releases bytes.
    pub fn give_back(&self, bytes: u64) {
        let held_bytes = self.held_bytes();
        assert!(bytes <= held_bytes, "{bytes} bytes given back of {held_bytes}");
        self.hold(held_bytes - bytes);
        self.grant();
    }

    fn fits(&self, bytes: u64) -> bool {
        let bytes_max = self.gauges.bytes_max.load(Ordering::Relaxed);
        let held_bytes = self.held_bytes();
        held_bytes == 0 || held_bytes.saturating_add(bytes) <= bytes_max
    }

    /// Grants free bytes to waiting requests, in order.
    pub fn grant(&self) {
        loop {
            let next = self.line.borrow_mut().pop_front_if(|waiter| self.fits(waiter.bytes));
            let Some(waiter) = next else { return };
            self.note_waiting();
            self.hold(self.held_bytes() + waiter.bytes);
            waiter.is_granted.set(true);
            if let Some(waker) = waiter.waker.take() {
                waker.wake();
            }
        }
    }
}

impl Future for Taking<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.waiter.is_granted.get() {
            self.is_taken = true;
            return Poll::Ready(());
        }
        self.waiter.waker.replace(Some(context.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        if self.is_taken {
            return;
        }
        if self.waiter.is_granted.get() {
            return self.budget.give_back(self.waiter.bytes);
        }
        self.budget.line.borrow_mut().retain(|waiter| !Rc::ptr_eq(waiter, &self.waiter));
        self.budget.note_waiting();
        // What was too long for what is free may have kept the others.
        self.budget.grant();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_ready(taking: &mut Pin<Box<impl Future<Output = ()>>>) -> bool {
        taking.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn who_waits_is_served_in_turn_and_overtaken_by_nothing() {
        let budget = MemoryBudget::new(100);
        assert!(budget.try_take(80));
        let (mut long, mut short) = (Box::pin(budget.take(60)), Box::pin(budget.take(10)));
        assert!(!is_ready(&mut long) && !is_ready(&mut short));
        assert!(!budget.try_take(1), "it would fit, and yet others came before");
        assert!(budget.try_take(0), "what takes nothing waits for nothing");
        budget.give_back(80);
        assert!(is_ready(&mut long) && is_ready(&mut short));
        assert_eq!((budget.held_bytes(), budget.gauges().waiting()), (70, 0));
    }

    #[test]
    fn a_single_request_always_fits() {
        let budget = MemoryBudget::new(100);
        assert!(budget.try_take(1000));
        assert!(!budget.try_take(1));
        budget.give_back(1000);
        assert!(budget.try_take(1));
    }

    #[test]
    fn who_leaves_the_line_lets_the_others_pass_and_returns_what_it_was_granted() {
        let budget = MemoryBudget::new(100);
        assert!(budget.try_take(50));
        let (mut long, mut short) = (Box::pin(budget.take(60)), Box::pin(budget.take(10)));
        assert!(!is_ready(&mut long) && !is_ready(&mut short));
        drop(long);
        assert_eq!(budget.held_bytes(), 60, "the short one has its bytes");
        drop(short);
        assert_eq!(budget.held_bytes(), 50, "and never looked");
    }

    #[test]
    fn a_budget_may_shrink_below_what_is_held_and_grow_for_those_who_wait() {
        let budget = MemoryBudget::new(100);
        assert!(budget.try_take(40) && budget.try_take(40));
        budget.set(50);
        let mut waits = Box::pin(budget.take(20));
        budget.give_back(40);
        assert!(!is_ready(&mut waits), "60 are more than 50");
        budget.set(60);
        assert!(is_ready(&mut waits));
        assert_eq!(budget.held_bytes(), 60);
    }
}
