//! Notification of a condition.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Wakes all waiters. They check their condition again and may wait once more: `while !condition()
/// { notify.wait().await }`.
#[derive(Default)]
pub struct Notify {
    round: Cell<u64>,
    wakers: RefCell<Vec<Waker>>,
}

impl Notify {
    pub fn new() -> Self {
        Self::default()
    }

    #[inline]
    pub fn notify_all(&self) {
        self.round.set(self.round.get() + 1);
        if !self.wakers.borrow().is_empty() {
            self.wakers.take().into_iter().for_each(Waker::wake);
        }
    }

    /// Completes at the next `notify_all` after this call.
    pub fn wait(&self) -> impl Future<Output = ()> + '_ {
        Wait { notify: self, round: self.round.get() }
    }
}

struct Wait<'a> {
    notify: &'a Notify,
    round: u64,
}

impl Future for Wait<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.notify.round.get() != self.round {
            return Poll::Ready(());
        }
        let mut wakers = self.notify.wakers.borrow_mut();
        if !wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            wakers.push(context.waker().clone());
        }
        Poll::Pending
    }
}
