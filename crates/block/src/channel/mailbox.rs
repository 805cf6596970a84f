//! A bounded queue from one thread to another, with a doorbell.
//!
//! 1. The sender puts a message into the next place and publishes it. 2. The receiver takes
//!    messages until there are none, then says that it waits, and looks once more. 3. A sender that
//!    finds a waiting receiver wakes its task; messages until that runs ring no more.
//!
//! **Invariants**
//! - Messages arrive once, in order, or are dropped with the mailbox.
//! - A receiver waits only while there is no message, or its wake-up is on the way: each side
//!   writes first and then reads what the other one writes, with a fence in between.
//! - Nothing is allocated after the start, and nothing waits for the other thread.
//!
//! **Not here**: what a full mailbox means. Its users bound their messages.

use super::atomics::{Arc, AtomicBool, AtomicUsize, Mutex, Ordering, UnsafeCell, fence, is_broken};
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::task::{Context, Poll, Waker};

/// Keeps what the two threads write on cache lines of their own; processors fetch them in pairs.
#[repr(align(128))]
struct Apart<T>(T);

struct Shared<T> {
    places: Box<[UnsafeCell<MaybeUninit<T>>]>,
    /// Messages sent so far; written by the sender.
    sent: Apart<AtomicUsize>,
    /// Messages received so far; written by the receiver.
    received: Apart<AtomicUsize>,
    is_waiting: Apart<AtomicBool>,
    /// Of the receiving task, while it waits.
    waker: Mutex<Option<Waker>>,
    /// One side is gone.
    is_closed: AtomicBool,
}

// SAFETY: a place is written by the sender while it is free, and moved out of by the receiver while
// it is full; the two counts, published with release and read with acquire, say which it is.
unsafe impl<T: Send> Sync for Shared<T> {}
// SAFETY: the messages are all that belongs to a thread.
unsafe impl<T: Send> Send for Shared<T> {}

/// The end that sends.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
    sent: Cell<usize>,
}

/// The end that receives.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    received: Cell<usize>,
}

/// A mailbox for so many messages.
///
/// # Panics
/// Where that is no power of two.
pub fn mailbox<T: Send>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    assert!(capacity.is_power_of_two(), "places of a mailbox");
    let place = |_| UnsafeCell::new(MaybeUninit::uninit());
    let shared = Arc::new(Shared {
        places: (0..capacity).map(place).collect(),
        sent: Apart(AtomicUsize::new(0)),
        received: Apart(AtomicUsize::new(0)),
        is_waiting: Apart(AtomicBool::new(false)),
        waker: Mutex::new(None),
        is_closed: AtomicBool::new(false),
    });
    let sender = Sender { shared: Arc::clone(&shared), sent: Cell::new(0) };
    (sender, Receiver { shared, received: Cell::new(0) })
}

impl<T> Shared<T> {
    fn place(&self, number: usize) -> &UnsafeCell<MaybeUninit<T>> {
        &self.places[number & (self.places.len() - 1)]
    }

    fn ring(&self) {
        if self.is_waiting.0.swap(false, Ordering::AcqRel) {
            let waker = self.waker.lock().expect("nothing panics with it").take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        self.ring();
    }
}

impl<T> Sender<T> {
    /// Sends a message.
    ///
    /// # Errors
    /// The message, where the mailbox is full or its receiver is gone.
    pub fn send(&self, message: T) -> Result<(), T> {
        let (shared, sent) = (&*self.shared, self.sent.get());
        let is_full =
            sent.wrapping_sub(shared.received.0.load(Ordering::Acquire)) == shared.places.len();
        if is_full || self.is_closed() {
            return Err(message);
        }
        shared.place(sent).with_mut(|place| {
            // SAFETY: the receiver has moved out of this place, and will look at it only after the
            // count below. Nobody else sends.
            unsafe { (*place).write(message) };
        });
        let rings_early = is_broken!(RingTooEarly);
        let is_waiting = rings_early && shared.is_waiting.0.load(Ordering::Relaxed);
        self.sent.set(sent.wrapping_add(1));
        shared.sent.0.store(sent.wrapping_add(1), Ordering::Release);
        // Either this sees that the receiver waits, or the receiver's second look sees the message.
        fence(Ordering::SeqCst);
        if is_waiting || !rings_early && shared.is_waiting.0.load(Ordering::Relaxed) {
            shared.ring();
        }
        Ok(())
    }

    /// Whether the receiver is gone.
    pub fn is_closed(&self) -> bool {
        self.shared.is_closed.load(Ordering::Acquire)
    }
}

impl<T> Receiver<T> {
    /// The next message that is there.
    pub fn try_receive(&self) -> Option<T> {
        let (shared, received) = (&*self.shared, self.received.get());
        if shared.sent.0.load(Ordering::Acquire) == received {
            return None;
        }
        let message = shared.place(received).with_mut(|place| {
            // SAFETY: the count says that it was written, and this is the only one to move it out.
            unsafe { (*place).assume_init_read() }
        });
        self.received.set(received.wrapping_add(1));
        shared.received.0.store(received.wrapping_add(1), Ordering::Release);
        Some(message)
    }

    /// The next message; `None` where the sender is gone and all is received.
    pub fn poll_receive(&self, context: &mut Context<'_>) -> Poll<Option<T>> {
        if is_broken!(DropSentAtClose) && self.shared.is_closed.load(Ordering::Acquire) {
            return Poll::Ready(None);
        }
        if let Some(message) = self.try_receive() {
            return Poll::Ready(Some(message));
        }
        let shared = &*self.shared;
        *shared.waker.lock().expect("nothing panics with it") = Some(context.waker().clone());
        shared.is_waiting.0.swap(true, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        let is_closed = shared.is_closed.load(Ordering::Acquire);
        if is_broken!(LoseWakeUp) {
            return Poll::Pending;
        }
        // Where there is one, its sender may ring once in vain.
        match self.try_receive() {
            Some(message) => Poll::Ready(Some(message)),
            None if is_closed => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::Release);
        while let Some(message) = self.try_receive() {
            drop(message);
        }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        let sent = self.sent.0.load(Ordering::Acquire);
        let mut received = self.received.0.load(Ordering::Acquire);
        while received != sent {
            self.place(received).with_mut(|place| {
                // SAFETY: sent and not received, and both ends are gone.
                unsafe { (*place).assume_init_drop() };
            });
            received = received.wrapping_add(1);
        }
    }
}
