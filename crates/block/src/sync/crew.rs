//! Futures of one caller that come and go.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

/// Futures that are under way side by side. Each is polled only when it was woken itself, so that
/// many of them, which each have many parts, cost no more than few.
pub struct Crew<F: Future> {
    places: Vec<Option<Worker<F>>>,
    done: Vec<F::Output>,
}

struct Worker<F> {
    future: F,
    call: Arc<Call>,
}

/// Who was woken, and who is to be woken for it.
struct Call {
    is_woken: AtomicBool,
    caller: Mutex<Waker>,
}

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.caller.lock().expect("nobody panics with it").wake_by_ref();
    }
}

impl<F: Future> Default for Crew<F> {
    fn default() -> Self {
        Self { places: Vec::new(), done: Vec::new() }
    }
}

impl<F: Future + Unpin> Crew<F> {
    pub fn new() -> Self {
        Self::default()
    }

    /// How many are under way, or have ended and were not asked for.
    pub fn len(&self) -> usize {
        self.places.iter().flatten().count() + self.done.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Has one join; it begins when somebody is waited for.
    pub fn join(&mut self, future: F) {
        let is_woken = AtomicBool::new(true);
        let caller = Mutex::new(Waker::noop().clone());
        let worker = Worker { future, call: Arc::new(Call { is_woken, caller }) };
        match self.places.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(worker),
            None => self.places.push(Some(worker)),
        }
    }

    /// Waits until one has ended; what all that have by then came to, in the order of their ends.
    /// Nothing where nobody is under way.
    pub async fn some(&mut self) -> Vec<F::Output> {
        std::future::poll_fn(|context| {
            self.poll_all(context);
            let is_waiting = self.done.is_empty() && !self.is_empty();
            if is_waiting { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        std::mem::take(&mut self.done)
    }

    /// Waits for something else; meanwhile they go on.
    pub async fn beside<T>(&mut self, other: impl Future<Output = T>) -> T {
        let mut other = std::pin::pin!(other);
        std::future::poll_fn(|context| {
            self.poll_all(context);
            other.as_mut().poll(context)
        })
        .await
    }

    fn poll_all(&mut self, context: &mut Context<'_>) {
        for place in &mut self.places {
            let Some(Worker { future, call }) = place else { continue };
            call.caller.lock().expect("nobody panics with it").clone_from(context.waker());
            if !call.is_woken.swap(false, Ordering::Acquire) {
                continue;
            }
            let waker = Waker::from(Arc::clone(call));
            if let Poll::Ready(output) = Pin::new(future).poll(&mut Context::from_waker(&waker)) {
                self.done.push(output);
                *place = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::{Executor, Order, Runtime, VirtualClock};
    use std::cell::Cell;
    use std::rc::Rc;
    use std::time::Duration;

    type Work = Pin<Box<dyn Future<Output = u64>>>;

    /// Ends after so many milliseconds, one by one, and counts how often it was polled.
    fn work(runtime: &Runtime, ms: u64, polls: &Rc<Cell<u64>>) -> Work {
        let (runtime, polls) = (runtime.clone(), Rc::clone(polls));
        Box::pin(async move {
            for _ in 0..ms {
                polls.set(polls.get() + 1);
                runtime.sleep(Duration::from_millis(1)).await;
            }
            ms
        })
    }

    fn run<T>(life: impl AsyncFnOnce(Runtime) -> T) -> T {
        let executor = Executor::new(Box::<VirtualClock>::default(), Order::Fifo);
        executor.block_on(life(executor.runtime())).unwrap()
    }

    #[test]
    fn who_ends_first_comes_first_and_others_join_meanwhile() {
        let ended = run(async |runtime| {
            let (mut crew, polls) = (Crew::new(), Rc::default());
            for ms in [30, 10] {
                crew.join(work(&runtime, ms, &polls));
            }
            let mut ended = vec![crew.some().await];
            crew.join(work(&runtime, 5, &polls));
            while !crew.is_empty() {
                ended.push(crew.some().await);
            }
            ended.push(crew.some().await);
            ended
        });
        assert_eq!(ended, [vec![10], vec![5], vec![30], vec![]]);
    }

    #[test]
    fn they_go_on_while_their_caller_waits_for_something_else() {
        run(async |runtime| {
            let (mut crew, polls) = (Crew::new(), Rc::default());
            crew.join(work(&runtime, 20, &polls));
            let begun = runtime.now();
            crew.beside(runtime.sleep(Duration::from_millis(50))).await;
            assert_eq!(crew.some().await, [20]);
            assert_eq!(runtime.now().since(begun), Duration::from_millis(50));
        });
    }

    #[test]
    fn nobody_is_polled_for_what_another_was_woken_for() {
        run(async |runtime| {
            let (mut crew, slow, fast) = (Crew::new(), Rc::default(), Rc::default());
            crew.join(work(&runtime, 2, &slow));
            (0..50).for_each(|_| crew.join(work(&runtime, 100, &fast)));
            while !crew.some().await.is_empty() {}
            assert_eq!((slow.get(), fast.get()), (2, 5000));
        });
    }
}
