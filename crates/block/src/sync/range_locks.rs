//! Locks on byte ranges.

use super::waiter::{Granted, Waiter};
use crate::ByteRange;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// How a range is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Shared,
    Exclusive,
}

/// Locks on ranges of one device: readers share, writers exclude, overlapping callers are served in
/// FIFO order. Scans every held range; for thousands use [`super::KeyLocks`].
#[derive(Clone, Default)]
pub struct RangeLocks(Rc<State>);

#[derive(Default)]
struct State {
    held: RefCell<Vec<Claim>>,
    queue: RefCell<VecDeque<(Claim, Rc<Waiter>)>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Claim {
    range: ByteRange,
    access: Access,
}

/// Holds a range until dropped.
pub struct RangeGuard {
    state: Rc<State>,
    claim: Claim,
}

impl RangeLocks {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn try_lock(&self, range: ByteRange, access: Access) -> Option<RangeGuard> {
        if !self.is_free(range, access) {
            return None;
        }
        let claim = Claim { range, access };
        self.0.held.borrow_mut().push(claim);
        Some(RangeGuard { state: Rc::clone(&self.0), claim })
    }

    /// Whether the lock would be granted immediately.
    pub fn is_free(&self, range: ByteRange, access: Access) -> bool {
        let claim = Claim { range, access };
        let waited_for = self.0.queue.borrow().iter().any(|(other, _)| claim.conflicts(other));
        !waited_for && !self.0.is_held_against(claim)
    }

    pub async fn lock(&self, range: ByteRange, access: Access) -> RangeGuard {
        if let Some(guard) = self.try_lock(range, access) {
            return guard;
        }
        let claim = Claim { range, access };
        let waiter = Waiter::new();
        self.0.queue.borrow_mut().push_back((claim, Rc::clone(&waiter)));
        let place = QueuedRange { state: &self.0, claim, waiter: Some(Rc::clone(&waiter)) };
        Granted(waiter).await;
        place.into_guard()
    }
}

impl Claim {
    fn conflicts(&self, other: &Claim) -> bool {
        self.range.overlaps(other.range)
            && (self.access == Access::Exclusive || other.access == Access::Exclusive)
    }
}

impl State {
    fn is_held_against(&self, claim: Claim) -> bool {
        self.held.borrow().iter().any(|held| claim.conflicts(held))
    }

    fn release(&self, claim: Claim) {
        {
            let mut held = self.held.borrow_mut();
            let index = held.iter().position(|other| *other == claim).expect("claim is held");
            held.swap_remove(index);
        }
        self.grant();
    }

    /// Grants every waiter that conflicts with no holder and no earlier waiter.
    fn grant(&self) {
        if self.queue.borrow().is_empty() {
            return;
        }
        let mut granted = Vec::new();
        {
            let mut queue = self.queue.borrow_mut();
            let mut passed: Vec<Claim> = Vec::new();
            queue.retain(|(claim, waiter)| {
                let blocked = passed.iter().any(|other| claim.conflicts(other));
                if blocked || self.is_held_against(*claim) {
                    passed.push(*claim);
                    return true;
                }
                self.held.borrow_mut().push(*claim);
                granted.push(Rc::clone(waiter));
                false
            });
        }
        granted.iter().for_each(|waiter| waiter.grant());
    }
}

impl Drop for RangeGuard {
    fn drop(&mut self) {
        self.state.release(self.claim);
    }
}

/// A place in the queue, left when its owner is dropped before the grant.
struct QueuedRange<'a> {
    state: &'a Rc<State>,
    claim: Claim,
    waiter: Option<Rc<Waiter>>,
}

impl QueuedRange<'_> {
    fn into_guard(mut self) -> RangeGuard {
        self.waiter = None;
        RangeGuard { state: Rc::clone(self.state), claim: self.claim }
    }
}

impl Drop for QueuedRange<'_> {
    fn drop(&mut self) {
        let Some(waiter) = self.waiter.take() else { return };
        if waiter.is_granted() {
            self.state.release(self.claim);
        } else {
            self.state.queue.borrow_mut().retain(|(_, other)| !Rc::ptr_eq(other, &waiter));
            self.state.grant();
        }
    }
}
