//! Cleaning in rounds, as `alru` and `acp` do: some blocks are chosen and written concurrently; the
//! next round follows after the last of them and the pause.

use super::policy::{Choice, CleaningLoad, Speed};
use crate::types::CoreBlock;
use headpond_block::Instant;
use std::time::Duration;

/// Where a policy is between its rounds.
#[derive(Default)]
pub(super) struct Rounds {
    is_under_way: bool,
    next_at: Option<Instant>,
}

impl Rounds {
    /// The speed of a policy of rounds. A new round may begin when the former has ended and
    /// `pause` is over.
    pub fn speed(&mut self, load: &CleaningLoad, pause: Duration) -> Speed {
        if load.in_flight > 0 || load.chosen > 0 {
            self.is_under_way = true;
            return Speed { in_flight_max: u32::MAX, ask_again: None };
        }
        if std::mem::take(&mut self.is_under_way) {
            self.next_at = Some(load.now + pause);
        }
        let is_due = self.is_due(load);
        let in_flight_max = if is_due { u32::MAX } else { 0 };
        let ask_again = self.next_at.filter(|_| !is_due && load.dirty > 0);
        Speed { in_flight_max, ask_again }
    }

    /// Whether the pause is over.
    pub fn is_due(&self, load: &CleaningLoad) -> bool {
        self.next_at.is_none_or(|at| at <= load.now)
    }

    /// The pause begins anew: there was nothing to clean.
    pub fn pause(&mut self, load: &CleaningLoad, pause: Duration) {
        self.next_at = Some(load.now + pause);
    }

    /// Whether no round is under way.
    pub fn may_begin(&self, load: &CleaningLoad) -> bool {
        load.in_flight == 0 && load.chosen == 0
    }
}

/// In address order, as disks like it.
pub(super) fn round(mut blocks: Vec<CoreBlock>) -> Choice {
    blocks.sort_unstable();
    blocks.dedup();
    if blocks.is_empty() { Choice::Nothing } else { Choice::Round(blocks) }
}
