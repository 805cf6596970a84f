//! Time that costs nothing: a driver for models and tests.

use super::{Driver, Wait};
use crate::Instant;
use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A clock that stands still while anything can run, and else jumps to the next timer. Where there
/// is none either, everything waits for ever, and parking fails.
#[derive(Default)]
pub struct VirtualClock {
    now: Cell<Instant>,
    unparked: Arc<AtomicBool>,
}

impl Driver for VirtualClock {
    fn now(&self) -> Instant {
        self.now.get()
    }

    fn park(&self, wait: Wait) -> io::Result<()> {
        let unparked =
            self.unparked.load(Ordering::Relaxed) && self.unparked.swap(false, Ordering::AcqRel);
        match wait {
            Wait::Poll => Ok(()),
            _ if unparked => Ok(()),
            Wait::Until(at) => {
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
