//! Virtual time: a driver for models and tests.

use super::{Driver, Wait};
use crate::Instant;
use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A clock that stops while any task is ready, and else jumps to the next timer. Without a timer
/// all tasks are deadlocked, and parking fails.
#[derive(Default)]
pub struct VirtualClock {
    now: Cell<Instant>,
    /// Rounds at this instant, and their limit.
    rounds: Cell<u64>,
    rounds_max: Option<u64>,
    unparked: Arc<AtomicBool>,
}

impl VirtualClock {
    /// A clock on which parking also fails after so many rounds at one instant: a livelock of tasks
    /// that wake each other.
    pub fn with_rounds_max(rounds_max: u64) -> Self {
        Self { rounds_max: Some(rounds_max), ..Self::default() }
    }
}

impl Driver for VirtualClock {
    fn now(&self) -> Instant {
        self.now.get()
    }

    fn park(&self, wait: Wait) -> io::Result<()> {
        let unparked =
            self.unparked.load(Ordering::Relaxed) && self.unparked.swap(false, Ordering::AcqRel);
        self.rounds.set(self.rounds.get() + 1);
        if self.rounds_max.is_some_and(|most| self.rounds.get() > most) {
            let livelock = "tasks wake each other, and time stands still";
            return Err(io::Error::new(io::ErrorKind::Deadlock, livelock));
        }
        match wait {
            Wait::Poll => Ok(()),
            _ if unparked => Ok(()),
            Wait::Until(at) => {
                self.rounds.set(0);
                self.now.set(self.now.get().max(at));
                Ok(())
            }
            Wait::Forever => {
                let deadlock = "every task waits and no timer is set";
                Err(io::Error::new(io::ErrorKind::Deadlock, deadlock))
            }
        }
    }

    fn unparker(&self) -> Arc<dyn Fn() + Send + Sync> {
        let unparked = Arc::clone(&self.unparked);
        Arc::new(move || unparked.store(true, Ordering::Release))
    }
}
