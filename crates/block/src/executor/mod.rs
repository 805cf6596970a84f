//! The executor: one per thread, the same for real and virtual time.
//!
//! Lifecycle: 1. a runtime crate makes a [`Driver`]; 2. [`Executor::block_on`] polls what is ready,
//! fires due timers and parks in the driver until there is more; 3. dropping the executor drops
//! every task at its current await, like a power cut.
//!
//! **Invariants**
//! - Tasks stay on their thread; a waker may be used from any thread.
//! - With [`Order::Seeded`] the same seed gives the same interleaving, because the order of ready
//!   tasks is drawn from the seed and nothing else here is random.
//!
//! **Not here**: clocks and I/O (the driver), limits on work in flight (semaphores of the layers).

mod starter;
mod tasks;
mod timers;
mod virtual_clock;
mod waker;

pub use starter::Starter;
pub use timers::Sleep;
pub use virtual_clock::VirtualClock;

use crate::sync::{Receiver, oneshot};
use crate::{Instant, UtcTime};
use std::cell::Cell;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tasks::Tasks;
use timers::Timers;
use waker::{Current, Remote};

/// How long the driver may wait for I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all: submit, collect what is done, return.
    Poll,
    /// Until an operation completes, or until this instant.
    Until(Instant),
    /// Until an operation completes.
    Forever,
}

/// What an executor needs from below: a clock and a place to wait.
pub trait Driver {
    fn now(&self) -> Instant;

    /// The time of day, for what people read. In virtual time the runtime starts in 1970.
    fn utc(&self) -> UtcTime {
        UtcTime::from_unix_s(self.now().since(Instant::START).as_secs())
    }

    /// Makes progress with I/O and wakes the tasks whose operations are done.
    ///
    /// # Errors
    /// Where no progress is possible, or the kernel reports an error; the executor then stops.
    fn park(&self, wait: Wait) -> io::Result<()>;

    /// Ends a `park` from another thread.
    fn unparker(&self) -> Arc<dyn Fn() + Send + Sync>;
}

/// The order of tasks that are ready at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Fifo,
    /// Drawn from a generator with this seed.
    Seeded(u64),
}

/// The executor cannot continue.
#[derive(Debug, thiserror::Error)]
#[error("no progress is possible with {tasks} tasks waiting: {source}")]
pub struct Stalled {
    pub tasks: usize,
    pub source: io::Error,
}

/// Owns the tasks of one thread.
pub struct Executor {
    core: Rc<Core>,
}

/// A handle to the executor, to wait and to spawn tasks.
#[derive(Clone)]
pub struct Runtime {
    core: Rc<Core>,
}

struct Core {
    driver: Box<dyn Driver>,
    tasks: Tasks,
    timers: Timers,
    remote: Arc<Remote>,
    closed: Cell<bool>,
}

impl Executor {
    pub fn new(driver: Box<dyn Driver>, order: Order) -> Self {
        let remote = Remote::register(driver.unparker());
        let tasks = Tasks::new(order, remote.executor());
        let timers = Timers::default();
        let core = Core { driver, tasks, timers, remote, closed: Cell::new(false) };
        Self { core: Rc::new(core) }
    }

    pub fn runtime(&self) -> Runtime {
        Runtime { core: Rc::clone(&self.core) }
    }

    /// Runs `main` to its end, and spawned tasks concurrently.
    ///
    /// # Errors
    /// [`Stalled`] where the driver cannot wait any more; `main` is dropped.
    pub fn block_on<F: Future>(&self, main: F) -> Result<F::Output, Stalled> {
        let _current = self.core.enter();
        let mut main = pin!(main);
        self.wake_main();
        loop {
            if let Some(output) = self.run_ready(main.as_mut()) {
                return Ok(output);
            }
            self.core.park().map_err(|source| self.stalled(source))?;
        }
    }

    /// For whoever drives several executors on one thread: `main` is polled in the next round.
    pub fn wake_main(&self) {
        let _current = self.core.enter();
        self.core.tasks.main_waker().wake();
    }

    /// Polls every ready task once, `main` as well where it is ready; its output, if that is the
    /// end of it.
    pub fn run_ready<F: Future>(&self, main: Pin<&mut F>) -> Option<F::Output> {
        let _current = self.core.enter();
        self.core.run_ready(main)
    }

    /// Whether a task is ready.
    pub fn is_ready(&self) -> bool {
        self.core.tasks.ready_count() > 0 || self.core.remote.has_woken()
    }

    /// When the next timer is due.
    pub fn next_timer(&self) -> Option<Instant> {
        self.core.timers.next()
    }

    /// Wakes the tasks whose timers are due.
    pub fn fire_timers(&self) {
        let _current = self.core.enter();
        self.core.timers.fire(self.core.driver.now());
    }

    /// Why it cannot continue.
    pub fn stalled(&self, source: io::Error) -> Stalled {
        Stalled { tasks: self.core.tasks.count(), source }
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.core.closed.set(true);
        let _current = self.core.enter();
        self.core.tasks.drop_all();
        self.core.timers.clear();
    }
}

impl Core {
    /// Marks the executor as the one that runs on this thread.
    fn enter(&self) -> Current<'_> {
        Current::enter(&self.tasks, self.remote.executor())
    }

    /// Polls every ready task once; tasks that become ready during that wait for the next round, so
    /// that I/O is polled in between.
    fn run_ready<F: Future>(&self, mut main: Pin<&mut F>) -> Option<F::Output> {
        for key in self.remote.drain() {
            self.tasks.wake(key);
        }
        for _ in 0..self.tasks.ready_count() {
            let Some(key) = self.tasks.next_ready() else { break };
            if !key.is_main() {
                self.tasks.poll(key);
            } else {
                let waker = self.tasks.main_waker();
                if let Poll::Ready(output) = main.as_mut().poll(&mut Context::from_waker(&waker)) {
                    return Some(output);
                }
            }
        }
        None
    }

    fn park(&self) -> io::Result<()> {
        let wait = match (self.tasks.ready_count(), self.timers.next()) {
            (1.., _) => Wait::Poll,
            (0, Some(at)) => Wait::Until(at),
            (0, None) => Wait::Forever,
        };
        self.driver.park(wait)?;
        if self.timers.next().is_some() {
            self.timers.fire(self.driver.now());
        }
        Ok(())
    }
}

impl Runtime {
    pub fn now(&self) -> Instant {
        self.core.driver.now()
    }

    /// The time of day.
    pub fn utc(&self) -> UtcTime {
        self.core.driver.utc()
    }

    pub fn sleep(&self, duration: Duration) -> Sleep {
        self.sleep_until(self.now() + duration)
    }

    /// Completes when the clock has reached `at`.
    pub fn sleep_until(&self, at: Instant) -> Sleep {
        Sleep::new(self.clone(), at)
    }

    /// Lets the other ready tasks run first.
    pub async fn yield_now(&self) {
        let mut yielded = false;
        std::future::poll_fn(|context| {
            if std::mem::replace(&mut yielded, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// Spawns `future` as a task. Dropping the handle detaches it.
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> JoinHandle<T> {
        let (sender, receiver) = oneshot();
        if !self.core.closed.get() {
            self.core.tasks.spawn(Box::pin(async move { sender.send(future.await) }));
        }
        JoinHandle { receiver }
    }

    /// Polls `future` once, without a task.
    ///
    /// # Errors
    /// Not an error: the rest of it, running as a task.
    pub fn start<T: 'static>(
        &self,
        future: impl Future<Output = T> + 'static,
    ) -> Result<T, JoinHandle<T>> {
        if self.core.closed.get() {
            return Err(self.spawn(future));
        }
        let mut future = Box::pin(future);
        // The task polls once more, and with that it is its own waker that is left everywhere.
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => Ok(outcome),
            Poll::Pending => Err(self.spawn(future)),
        }
    }

    /// The outcome of `future`, if it completes by `at`.
    ///
    /// # Errors
    /// [`Late`] where it does not; the future then runs to its end as a task, and owns its memory
    /// until then: so a buffer stays valid for a device that completes too late.
    pub async fn deadline<T: 'static>(
        &self,
        at: Instant,
        future: impl Future<Output = T> + 'static,
    ) -> Result<T, Late> {
        let mut task = self.spawn(future);
        let mut timer = self.sleep_until(at);
        std::future::poll_fn(|context| {
            if let Poll::Ready(output) = Pin::new(&mut task).poll(context) {
                return Poll::Ready(Ok(output));
            }
            Pin::new(&mut timer).poll(context).map(|()| Err(Late))
        })
        .await
    }
}

/// The deadline passed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no answer by the deadline")]
pub struct Late;

/// Waits for a spawned task.
pub struct JoinHandle<T> {
    receiver: Receiver<T>,
}

impl<T> Future for JoinHandle<T> {
    type Output = T;

    /// Never completes where the executor was dropped with the task: then the waiter is dropped as
    /// well.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match Pin::new(&mut self.receiver).poll(context) {
            Poll::Ready(Some(output)) => Poll::Ready(output),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests;
