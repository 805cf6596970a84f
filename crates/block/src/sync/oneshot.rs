//! One value from one task to another.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

struct Channel<T> {
    value: Option<T>,
    waker: Option<Waker>,
    closed: bool,
}

/// Sends at most once; dropping it closes the channel.
pub struct Sender<T>(Rc<RefCell<Channel<T>>>);

/// Yields the value, or `None` where the sender was dropped without sending.
pub struct Receiver<T>(Rc<RefCell<Channel<T>>>);

pub fn oneshot<T>() -> (Sender<T>, Receiver<T>) {
    let channel = Channel { value: None, waker: None, closed: false };
    let channel = Rc::new(RefCell::new(channel));
    (Sender(Rc::clone(&channel)), Receiver(channel))
}

impl<T> Sender<T> {
    pub fn send(self, value: T) {
        self.0.borrow_mut().value = Some(value);
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let waker = {
            let mut channel = self.0.borrow_mut();
            channel.closed = true;
            channel.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Future for Receiver<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut channel = self.0.borrow_mut();
        if channel.closed {
            return Poll::Ready(channel.value.take());
        }
        channel.waker = Some(context.waker().clone());
        Poll::Pending
    }
}
