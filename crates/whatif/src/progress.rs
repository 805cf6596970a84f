//! How far an experiment has come, seen from another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const WHOLE: f64 = 1e9;

/// Written by the thread of an experiment, read by whoever shows it.
#[derive(Debug, Default)]
pub struct Gauge {
    virtual_nanos: AtomicU64,
    /// In 10^-9.
    share: AtomicU64,
    is_over: AtomicBool,
}

impl Gauge {
    /// One for each of so many experiments.
    pub fn for_each(experiments: usize) -> Vec<Arc<Gauge>> {
        (0..experiments).map(|_| Arc::default()).collect()
    }

    /// Virtual time that has passed.
    pub fn virtual_time(&self) -> Duration {
        Duration::from_nanos(self.virtual_nanos.load(Ordering::Relaxed))
    }

    /// Done of the whole; zero as long as the whole is not known.
    pub fn share(&self) -> f64 {
        match self.is_over() {
            true => 1.0,
            false => (self.share.load(Ordering::Relaxed) as f64 / WHOLE).min(1.0),
        }
    }

    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    pub(crate) fn set_virtual_time(&self, time: Duration) {
        self.virtual_nanos.store(time.as_nanos() as u64, Ordering::Relaxed);
    }

    pub(crate) fn set_share(&self, share: f64) {
        self.share.store((share * WHOLE) as u64, Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}
