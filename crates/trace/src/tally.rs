//! Counts of a reader besides valid requests.

use serde::{Deserialize, Serialize};

use crate::damage::DamageCounts;

/// Counts of one reading; all zero for a clean trace of plain requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Events of an event trace, or lines or records of another.
    pub events: u64,
    pub merges: u64,
    pub splits: u64,
    pub remaps: u64,
    pub requeues: u64,
    pub aborts: u64,
    /// Zone and drive commands, which are no data requests.
    pub other_commands: u64,
    /// Requests whose completion is not in the trace.
    pub incomplete: u64,
    /// Completions of requests that the trace does not show.
    pub unmatched_completions: u64,
    /// Requests of which only the dispatch is in the trace.
    pub dispatched_unqueued: u64,
    /// Requests of which only the completion is in the trace; its time stands for that of issue.
    #[serde(default)]
    pub completed_unqueued: u64,
    /// Events too far out of order to be sorted.
    pub out_of_order: u64,
    /// Requests that end beyond 2^64 bytes.
    pub impossible_ranges: u64,
    /// Damaged places skipped in lenient reading.
    pub damaged: u64,
    /// Bytes skipped there.
    pub skipped_bytes: u64,
    /// The same by kind, with the first place of each.
    pub damage: DamageCounts,
}

impl Tally {
    pub(crate) fn note_damage(&mut self, damage: DamageCounts) {
        self.damage.add(damage);
        self.damaged = self.damage.places();
        self.skipped_bytes = self.damage.skipped_bytes();
    }
}
