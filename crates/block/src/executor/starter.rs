//! Starts many small futures of one type, most of which complete immediately.

use super::Runtime;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Polls futures once, one after the other in the same memory: those that complete immediately cost
/// neither a task nor an allocation.
pub struct Starter<F> {
    runtime: Runtime,
    memory: Option<Pin<Box<TaskSlot<F>>>>,
}

/// Memory of a future; empty when it has completed.
struct TaskSlot<F>(Option<F>);

impl Runtime {
    /// For futures of one kind.
    pub fn starter<F: Future<Output = ()> + 'static>(&self) -> Starter<F> {
        Starter { runtime: self.clone(), memory: None }
    }
}

impl<F: Future<Output = ()> + 'static> Starter<F> {
    /// Polls a future once; the rest of it runs as a task. It is constructed in place, because it
    /// may be large.
    pub fn start(&mut self, future: impl FnOnce() -> F) {
        let core = &self.runtime.core;
        if core.closed.get() {
            return;
        }
        let mut place = self.memory.take().unwrap_or_else(|| Box::pin(TaskSlot(None)));
        place.as_mut().future().set(Some(future()));
        // The task polls once more, and with that it is its own waker that is left everywhere.
        match place.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(()) => self.memory = Some(place),
            Poll::Pending => core.tasks.spawn(place),
        }
    }
}

impl<F> TaskSlot<F> {
    fn future(self: Pin<&mut Self>) -> Pin<&mut Option<F>> {
        // SAFETY: the only field is never moved out of a place that is pinned, and a place has
        // neither a destructor nor an `Unpin` of its own.
        unsafe { self.map_unchecked_mut(|place| &mut place.0) }
    }
}

impl<F: Future<Output = ()>> Future for TaskSlot<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let future = self.as_mut().future().as_pin_mut().expect("polled after its end");
        if future.poll(context).is_pending() {
            return Poll::Pending;
        }
        self.future().set(None);
        Poll::Ready(())
    }
}
