//! One place in a queue.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Granted once; wakes the waiting task.
#[derive(Default)]
pub(super) struct Waiter {
    granted: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Waiter {
    pub(super) fn new() -> Rc<Self> {
        Rc::default()
    }

    pub(super) fn grant(&self) {
        assert!(!self.granted.replace(true), "granted twice");
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(super) fn is_granted(&self) -> bool {
        self.granted.get()
    }
}

/// Waits for the grant.
pub(super) struct Granted(pub(super) Rc<Waiter>);

impl Future for Granted {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.0.is_granted() {
            return Poll::Ready(());
        }
        self.0.waker.borrow_mut().replace(context.waker().clone());
        Poll::Pending
    }
}
