//! The operations in flight, and the memory that they own.
//!
//! Lifecycle of one: 1. *waiting*, from submission; 2. *done*, once its answer is collected, until
//! its [`Completion`](super::Completion) is polled; or 2. *abandoned*, where the completion is
//! dropped first: then the entry stays until the kernel has completed it.
//!
//! **Invariants**
//! - Whatever the kernel may read or write for an operation is owned by its [`Keep`], and a keep is
//!   dropped only after the completion.
//! - A slot is reused only when both the kernel and the waiter have released it.

use super::handle::Handle;
use headpond_block::Buffers;
use slab::Slab;
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, OwnedFd};
use std::rc::Rc;
use std::task::Waker;

/// Memory that must stay in place until the operation has completed.
pub(crate) struct Keep {
    pub handle: Rc<Handle>,
    pub buffers: Buffers,
    /// What a vectored operation points to; empty for one contiguous buffer.
    pub vectors: Vec<libc::iovec>,
    /// What a message operation points to.
    pub header: Option<Box<libc::msghdr>>,
    /// Whether the result is a descriptor, to be closed where the waiter was dropped.
    pub answers_descriptor: bool,
    /// Whether it may go on until the process ends: the kernel does not cancel it before.
    pub outlives_ring: bool,
}

impl Keep {
    pub fn new(handle: &Rc<Handle>, buffers: Buffers) -> Self {
        let (vectors, header) = (Vec::new(), None);
        let handle = Rc::clone(handle);
        Self { handle, buffers, vectors, header, answers_descriptor: false, outlives_ring: false }
    }
}

/// The kernel's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// A count of bytes or the like; below zero an errno, negated.
    pub result: i32,
    /// `IORING_CQE_F_*`.
    pub flags: u32,
}

impl Answer {
    /// The count, or the errno.
    pub fn count(self) -> Result<usize, i32> {
        usize::try_from(self.result).map_err(|_| -self.result)
    }
}

enum State {
    Waiting(Option<Waker>),
    Done(Answer),
    Abandoned,
}

struct Operation {
    keep: Keep,
    state: State,
}

impl Operation {
    /// Ends an operation whose waiter was dropped.
    fn discard(self, answer: Answer) {
        if self.keep.answers_descriptor && answer.result >= 0 {
            // SAFETY: the kernel made this descriptor for this operation, and it has no other
            // owner.
            drop(unsafe { OwnedFd::from_raw_fd(answer.result) });
        }
    }
}

#[derive(Default)]
pub(super) struct Operations {
    slots: RefCell<Slab<Operation>>,
}

impl Operations {
    pub fn with_capacity(count: usize) -> Self {
        Self { slots: RefCell::new(Slab::with_capacity(count)) }
    }

    /// Adds an operation; the key goes to the kernel as its user data.
    pub fn insert(&self, keep: Keep) -> usize {
        self.slots.borrow_mut().insert(Operation { keep, state: State::Waiting(None) })
    }

    /// Takes the completion, and wakes the waiter.
    pub fn complete(&self, key: usize, answer: Answer) {
        let mut slots = self.slots.borrow_mut();
        let operation = slots.get_mut(key).expect("answer to an operation in flight");
        match std::mem::replace(&mut operation.state, State::Done(answer)) {
            State::Waiting(waker) => {
                drop(slots);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            State::Abandoned => {
                let operation = slots.remove(key);
                // Let go of the slots first: memory that belongs to others may do anything on drop.
                drop(slots);
                operation.discard(answer);
            }
            State::Done(_) => panic!("the kernel answered twice"),
        }
    }

    /// The result, if there is one; otherwise `waker` is woken at the completion.
    pub fn poll(&self, key: usize, waker: &Waker) -> Option<(Answer, Keep)> {
        let mut slots = self.slots.borrow_mut();
        let operation = slots.get_mut(key).expect("operation polled after its answer");
        match &mut operation.state {
            State::Done(answer) => {
                let answer = *answer;
                Some((answer, slots.remove(key).keep))
            }
            State::Waiting(Some(old)) if old.will_wake(waker) => None,
            State::Waiting(slot) => {
                *slot = Some(waker.clone());
                None
            }
            State::Abandoned => panic!("operation polled after it was abandoned"),
        }
    }

    /// The waiter was dropped.
    pub fn abandon(&self, key: usize) {
        let mut slots = self.slots.borrow_mut();
        let operation = slots.get_mut(key).expect("operation abandoned after its answer");
        match operation.state {
            State::Done(answer) => {
                let operation = slots.remove(key);
                drop(slots);
                operation.discard(answer);
            }
            _ => operation.state = State::Abandoned,
        }
    }

    /// Keys of the operations in flight.
    pub fn in_flight(&self) -> Vec<usize> {
        let slots = self.slots.borrow();
        let is_open =
            |(_, operation): &(usize, &Operation)| !matches!(operation.state, State::Done(_));
        slots.iter().filter(is_open).map(|(key, _)| key).collect()
    }

    /// Those of them that end with the ring.
    pub fn ending(&self) -> Vec<usize> {
        let slots = self.slots.borrow();
        let ends = |key: &usize| !slots[*key].keep.outlives_ring;
        self.in_flight().into_iter().filter(ends).collect()
    }

    /// The handle of an operation.
    pub fn handle(&self, key: usize) -> Rc<Handle> {
        Rc::clone(&self.slots.borrow()[key].keep.handle)
    }

    /// Leaks the memory of operations that never completed: the kernel may still write to it.
    pub fn leak(&self) {
        let slots = ManuallyDrop::new(self.slots.take());
        // SAFETY: handles of operations that are leaked are dropped never, and used by nobody: the
        // ring is closed.
        slots.iter().for_each(|(_, operation)| unsafe { operation.keep.handle.leave_behind() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_block::Buffer;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    /// The other end of the socket that a keep has.
    struct Peer(UnixStream);

    impl Peer {
        /// Whether the keep is freed.
        fn is_gone(&mut self) -> bool {
            matches!(self.0.read(&mut [0]), Ok(0))
        }
    }

    fn keep() -> (Keep, Peer) {
        let (ours, peer) = UnixStream::pair().unwrap();
        peer.set_nonblocking(true).unwrap();
        let keep = Keep::new(&Handle::unregistered(ours.into()), Buffer::zeroed(4).into());
        (keep, Peer(peer))
    }

    const ANSWER: Answer = Answer { result: 7, flags: 0 };

    #[test]
    fn abandoned_operation_keeps_its_memory_until_the_kernel_answers() {
        let operations = Operations::default();
        let (keep, mut peer) = keep();
        let key = operations.insert(keep);
        operations.abandon(key);
        assert!(!peer.is_gone());
        assert_eq!(operations.in_flight(), [key]);
        operations.complete(key, ANSWER);
        assert!(peer.is_gone());
        assert!(operations.in_flight().is_empty());
    }

    #[test]
    fn answered_operation_that_nobody_polls_is_freed_when_abandoned() {
        let operations = Operations::default();
        let (keep, mut peer) = keep();
        let key = operations.insert(keep);
        operations.complete(key, ANSWER);
        assert!(!peer.is_gone());
        operations.abandon(key);
        assert!(peer.is_gone());
    }

    #[test]
    fn slot_is_not_reused_before_its_answer_is_taken() {
        let operations = Operations::default();
        let first = operations.insert(keep().0);
        operations.complete(first, ANSWER);
        let second = operations.insert(keep().0);
        assert_ne!(first, second);
        let (answer, _keep) = operations.poll(first, Waker::noop()).expect("answered");
        assert_eq!(answer, ANSWER);
        assert_eq!(operations.insert(keep().0), first);
    }

    #[test]
    #[should_panic(expected = "answered twice")]
    fn second_answer_is_a_defect() {
        let operations = Operations::default();
        let key = operations.insert(keep().0);
        operations.complete(key, ANSWER);
        operations.complete(key, ANSWER);
    }
}
