//! The driver of block's executor in real time.

use crate::Ring;
use headpond_block::{Driver, Instant, UtcTime, Wait};
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// When the first driver of the process started.
static START: OnceLock<std::time::Instant> = OnceLock::new();

/// Waits in a ring for completions and for the executor's timers. Drivers of several threads have
/// one clock.
pub struct RingDriver {
    ring: Ring,
    start: std::time::Instant,
}

impl RingDriver {
    /// The clock starts at zero with the first one.
    pub fn new(ring: Ring) -> Self {
        Self { ring, start: *START.get_or_init(std::time::Instant::now) }
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

impl Driver for RingDriver {
    fn now(&self) -> Instant {
        Instant::START + self.elapsed()
    }

    fn utc(&self) -> UtcTime {
        let since_1970 = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        UtcTime::from_unix_s(since_1970.as_secs())
    }

    fn park(&self, wait: Wait) -> io::Result<()> {
        self.ring.park(match wait {
            Wait::Poll => Some(Duration::ZERO),
            Wait::Until(at) => Some(at - self.now()),
            Wait::Forever => None,
        })
    }

    fn unparker(&self) -> Arc<dyn Fn() + Send + Sync> {
        let unparker = self.ring.unparker();
        Arc::new(move || unparker.unpark())
    }
}
