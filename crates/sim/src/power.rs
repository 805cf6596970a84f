//! The switch of a simulated machine: it counts device operations and cuts the power at one of
//! them.
//!
//! 1. All disks of a machine share one [`Power`].
//! 2. `cut_after(n)` arms it: the operation after the next `n` is never carried out, nor any later
//!    one.
//! 3. [`run_until_cut`] then drops the run where it stands.
//! 4. Each `Medium` loses its power, `restore` switches on again ([`Power::come_back`] does both),
//!    and the next run finds what is left.

use crate::runtime::{run, run_threads};
use crate::{Medium, Random, Sim};
use headpond_block::{DeviceName, Runtime, Stalled, sync::Notify};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

/// The power of one machine. Clones are the same.
#[derive(Clone, Default)]
pub struct Power(Rc<Switch>);

#[derive(Default)]
struct Switch {
    is_off: Cell<bool>,
    operations: Cell<u64>,
    cut_after: Cell<Option<u64>>,
    writes: Cell<u64>,
    cut_at_write: Cell<Option<u64>>,
    last_written: RefCell<Option<DeviceName>>,
    changed: Notify,
}

impl Power {
    /// Switched on, never to be cut.
    pub fn on() -> Self {
        Self::default()
    }

    /// Lets `operations` more device operations begin and cuts the power instead of the next one.
    pub fn cut_after(&self, operations: u64) {
        self.0.cut_after.set(Some(self.0.operations.get() + operations));
    }

    /// Cuts the power when so many more writes have begun: the last of them is on its way.
    pub fn cut_at_write(&self, writes: u64) {
        self.0.cut_at_write.set(Some(self.0.writes.get() + writes));
    }

    /// Writes that have begun since the power was first on.
    pub fn writes(&self) -> u64 {
        self.0.writes.get()
    }

    /// The device that was written to last.
    pub fn last_written(&self) -> Option<DeviceName> {
        self.0.last_written.borrow().clone()
    }

    pub fn cut(&self) {
        self.0.is_off.set(true);
        self.0.changed.notify_all();
    }

    /// Ends a cut: these media, one after the other, lose what chance takes of what was not
    /// durable, and the power is on again.
    pub fn come_back<'a>(&self, media: impl IntoIterator<Item = &'a Rc<Medium>>, seed: u64) {
        let mut random = Random::new(seed);
        for medium in media {
            medium.lose_power(&mut random);
        }
        self.restore();
    }

    /// Switches on again, with no further cut in sight.
    pub fn restore(&self) {
        self.0.is_off.set(false);
        self.0.cut_after.set(None);
        self.0.cut_at_write.set(None);
    }

    pub fn is_on(&self) -> bool {
        !self.0.is_off.get()
    }

    /// Device operations that have begun since the power was first on.
    pub fn operations(&self) -> u64 {
        self.0.operations.get()
    }

    /// Completes when the power is off.
    pub async fn until_cut(&self) {
        while self.is_on() {
            self.0.changed.wait().await;
        }
    }

    /// Counts a write that has begun.
    pub(crate) fn note_write(&self, device: &DeviceName) {
        self.0.writes.set(self.writes() + 1);
        self.0.last_written.replace(Some(device.clone()));
        if self.0.cut_at_write.get() == Some(self.writes()) {
            self.cut();
        }
    }

    /// Counts an operation that is about to begin; false where there is no power for it.
    pub(crate) fn begin_operation(&self) -> bool {
        if self.0.cut_after.get().is_some_and(|limit| self.operations() >= limit) {
            self.cut();
        }
        if self.is_on() {
            self.0.operations.set(self.operations() + 1);
        }
        self.is_on()
    }
}

/// How a run ended that was exposed to a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended<T> {
    Finished(T),
    Cut,
}

impl<T> Ended<T> {
    pub fn was_cut(&self) -> bool {
        matches!(self, Self::Cut)
    }
}

/// Runs `main` as [`crate::run`] does, to its end or until the power is cut; every task is then
/// dropped at the await where it stands.
///
/// # Errors
/// `Stalled` where every task waits, no timer is set and the power is on.
pub fn run_until_cut<F: Future>(
    seed: u64,
    power: &Power,
    main: impl FnOnce(Runtime, Sim) -> F,
) -> Result<Ended<F::Output>, Stalled> {
    run(seed, |runtime, sim| until_cut(power, main(runtime, sim)))
}

/// The same on several executors, as [`crate::run_threads`] does.
///
/// # Errors
/// As [`run_until_cut`].
pub fn run_threads_until_cut<F: Future>(
    seed: u64,
    threads: usize,
    power: &Power,
    main: impl FnOnce(Vec<Runtime>, Sim) -> F,
) -> Result<Ended<F::Output>, Stalled> {
    run_threads(seed, threads, |runtimes, sim| until_cut(power, main(runtimes, sim)))
}

async fn until_cut<F: Future>(power: &Power, main: F) -> Ended<F::Output> {
    let (mut main, mut cut) = (pin!(main), pin!(power.until_cut()));
    poll_fn(|context| {
        if cut.as_mut().poll(context).is_ready() {
            return Poll::Ready(Ended::Cut);
        }
        main.as_mut().poll(context).map(Ended::Finished)
    })
    .await
}
