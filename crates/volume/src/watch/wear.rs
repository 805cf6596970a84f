//! What the cache device was written for, and how much of that per byte that entered.

use crate::history::WornBytes;
use headpond_cache::CacheTraffic;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bytes written to a cache device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CacheWear {
    /// Since the start, or the last reset of the counters.
    #[serde(flatten)]
    pub counted: WornBytes,
    /// Bytes written per byte that entered; null where none did.
    pub written_per_entered: Option<f64>,
    /// All that was written, by purpose.
    pub purposes: Vec<WearShare>,
    /// Of all starts of this cache, as its members keep it: counted at each stop, so that what was
    /// written in a run that ended with a crash is missing.
    pub all_runs: WornBytes,
}

/// What was written to a cache device for one purpose.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WearShare {
    pub purpose: WearPurpose,
    pub bytes: u64,
    pub per_entered: Option<f64>,
}

/// What a cache device is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WearPurpose {
    /// The first copy of what enters.
    Data,
    /// The rest of blocks that were written in part, and the blocks that replace the parts.
    Completions,
    /// Copies by reclaim.
    Copies,
    /// Descriptors of records.
    Descriptors,
    /// Of descriptors to the unit of the log.
    Padding,
    /// Records without entries: flush marks, the tail of the log.
    Marks,
    /// Checkpoints and headers.
    Checkpoints,
}

impl WearPurpose {
    pub const ALL: [Self; 7] = [
        Self::Data,
        Self::Completions,
        Self::Copies,
        Self::Descriptors,
        Self::Padding,
        Self::Marks,
        Self::Checkpoints,
    ];

    fn of(self, traffic: &CacheTraffic) -> u64 {
        match self {
            Self::Data => traffic.written_data,
            Self::Completions => traffic.written_completions,
            Self::Copies => traffic.written_copies,
            Self::Descriptors => traffic.written_descriptors,
            Self::Padding => traffic.written_padding,
            Self::Marks => traffic.written_marks,
            Self::Checkpoints => traffic.written_checkpoints,
        }
    }
}

impl CacheWear {
    /// Of counters, and what was written before they began.
    pub(crate) fn new(traffic: &CacheTraffic, before: WornBytes) -> Self {
        let counted = WornBytes::of(traffic);
        let entered = counted.entered_bytes;
        let ratio = |bytes: u64| (entered > 0).then(|| bytes as f64 / entered as f64);
        let share = |purpose: WearPurpose| {
            let bytes = purpose.of(traffic);
            WearShare { purpose, bytes, per_entered: ratio(bytes) }
        };
        Self {
            counted,
            written_per_entered: ratio(counted.written_bytes),
            purposes: WearPurpose::ALL.into_iter().map(share).collect(),
            all_runs: before.with(counted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purposes_add_up_to_all_that_was_written() {
        let traffic = CacheTraffic {
            written_data: 100,
            written_completions: 1,
            written_copies: 20,
            written_descriptors: 3,
            written_padding: 40,
            written_marks: 5,
            written_checkpoints: 6,
            ..CacheTraffic::default()
        };
        let before = WornBytes { entered_bytes: 1000, written_bytes: 3000 };
        let wear = CacheWear::new(&traffic, before);
        let sum: u64 = wear.purposes.iter().map(|share| share.bytes).sum();
        assert_eq!((sum, wear.counted.written_bytes), (175, 175));
        assert_eq!(wear.written_per_entered, Some(1.75));
        assert_eq!(wear.purposes[4].per_entered, Some(0.4));
        assert_eq!(wear.all_runs, WornBytes { entered_bytes: 1100, written_bytes: 3175 });
        let idle = CacheWear::new(&CacheTraffic::default(), before);
        assert_eq!((idle.written_per_entered, idle.all_runs), (None, before));
    }
}
