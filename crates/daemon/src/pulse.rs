//! Watchdog of the data thread for other threads: whether it runs, and what it waits for.

use headpond_block::Runtime;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const BEAT_EVERY: Duration = Duration::from_millis(250);

/// Updated by each iteration of the data thread's loop.
pub struct Pulse {
    begun: Instant,
    /// Milliseconds from the beginning to the newest beat.
    beat: AtomicU64,
    /// What a stop waits for.
    waits_for: Mutex<Option<String>>,
}

impl Pulse {
    pub fn new() -> Self {
        Self { begun: Instant::now(), beat: AtomicU64::new(0), waits_for: Mutex::default() }
    }

    /// Beats until the runtime ends.
    pub async fn run(&self, runtime: Runtime) {
        loop {
            self.beat.store(self.begun.elapsed().as_millis() as u64, Ordering::Relaxed);
            runtime.sleep(BEAT_EVERY).await;
        }
    }

    /// How long the data thread has been blocked.
    pub fn silent_for(&self) -> Duration {
        let beat = Duration::from_millis(self.beat.load(Ordering::Relaxed));
        self.begun.elapsed().saturating_sub(beat)
    }

    pub fn wait_for(&self, what: Option<String>) {
        *self.waits_for.lock().expect("no holder panics") = what;
    }

    pub fn waits_for(&self) -> Option<String> {
        self.waits_for.lock().expect("no holder panics").clone()
    }
}
