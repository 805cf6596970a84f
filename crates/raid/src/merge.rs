//! Merging of small sequential writes: which belong together, and whether waiting for more pays.
//!
//! 1. A request that continues others makes a stream ([`streams`]); the depth of its client is
//!    measured.
//! 2. Writes to one stripe are merged ([`batch`]) until the stripe is full, or nothing more can
//!    arrive before something completes.
//! 3. The whole is written by one plan.
//!
//! A write waits for others only where its client still has something to send: the rest of the
//! stripe, or as much of it as the client keeps in flight. At depth 1 that is nothing, and random
//! writes make no stream.
//!
//! **Not here**: clocks, locks and devices (`array::merge`).

pub mod batch;
pub mod streams;

use std::time::Duration;

/// How sequential small writes are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergeConfig {
    pub wait: MergeWait,
    /// Most bytes that wait for others at a time; what comes beyond is written without waiting.
    pub bytes_max: u64,
}

/// How long a write of a sequential stream waits for the rest of its stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeWait {
    /// Every write is written alone.
    Off,
    /// As long as it pays, by the recent time of writing a stripe.
    Adaptive,
    /// So long at most; with zero, writes join those that wait for their stripe anyway.
    AtMost(Duration),
}

impl Default for MergeConfig {
    fn default() -> Self {
        Self { wait: MergeWait::Adaptive, bytes_max: 64 << 20 }
    }
}
