//! Whether the data thread goes on, and what it is waiting for: seen from other threads.

use headpond_block::Runtime;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const BEAT_EVERY: Duration = Duration::from_millis(250);

/// Beats while the data thread goes round its loop.
pub struct Pulse {
    begun: Instant,
    /// Milliseconds from the beginning to the newest beat.
    beat: AtomicU64,
    /// Of a stop: what it waits for.
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

    /// Since when the data thread has stood still.
    pub fn silent_for(&self) -> Duration {
        let beat = Duration::from_millis(self.beat.load(Ordering::Relaxed));
        self.begun.elapsed().saturating_sub(beat)
    }

    pub fn wait_for(&self, what: Option<String>) {
        *self.waits_for.lock().expect("nobody panics with it") = what;
    }

    pub fn waits_for(&self) -> Option<String> {
        self.waits_for.lock().expect("nobody panics with it").clone()
    }
}
