//! Exclusive locks on numbered things: stripes, lines.

use super::waiter::{Granted, Waiter};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// One lock for each number, created on demand, in FIFO order; a caller that needs several takes
/// them in ascending order. Cloning shares the locks.
#[derive(Clone, Default)]
pub struct KeyLocks(Rc<RefCell<BTreeMap<u64, VecDeque<Rc<Waiter>>>>>);

/// Holds the lock on one number until dropped.
pub struct KeyGuard {
    locks: KeyLocks,
    key: u64,
}

impl KeyLocks {
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of locks that are held.
    pub fn held(&self) -> usize {
        self.0.borrow().len()
    }

    pub fn is_locked(&self, key: u64) -> bool {
        self.0.borrow().contains_key(&key)
    }

    pub fn try_lock(&self, key: u64) -> Option<KeyGuard> {
        let mut locks = self.0.borrow_mut();
        if locks.contains_key(&key) {
            return None;
        }
        locks.insert(key, VecDeque::new());
        Some(KeyGuard { locks: self.clone(), key })
    }

    pub async fn lock(&self, key: u64) -> KeyGuard {
        if let Some(guard) = self.try_lock(key) {
            return guard;
        }
        let waiter = Waiter::new();
        self.0.borrow_mut().get_mut(&key).expect("held").push_back(Rc::clone(&waiter));
        let place = QueuedKey { locks: self, key, waiter: Some(Rc::clone(&waiter)) };
        Granted(waiter).await;
        place.into_guard()
    }

    fn unlock(&self, key: u64) {
        let next = {
            let mut locks = self.0.borrow_mut();
            let queue = locks.get_mut(&key).expect("unlocking what is locked");
            let next = queue.pop_front();
            if next.is_none() {
                locks.remove(&key);
            }
            next
        };
        if let Some(waiter) = next {
            waiter.grant();
        }
    }
}

impl Drop for KeyGuard {
    fn drop(&mut self) {
        self.locks.unlock(self.key);
    }
}

/// A place in the queue of one lock, left when its owner is dropped before the grant.
struct QueuedKey<'a> {
    locks: &'a KeyLocks,
    key: u64,
    waiter: Option<Rc<Waiter>>,
}

impl QueuedKey<'_> {
    fn into_guard(mut self) -> KeyGuard {
        self.waiter = None;
        KeyGuard { locks: self.locks.clone(), key: self.key }
    }
}

impl Drop for QueuedKey<'_> {
    fn drop(&mut self) {
        let Some(waiter) = self.waiter.take() else { return };
        if waiter.is_granted() {
            self.locks.unlock(self.key);
        } else if let Some(queue) = self.locks.0.borrow_mut().get_mut(&self.key) {
            queue.retain(|other| !Rc::ptr_eq(other, &waiter));
        }
    }
}
