//! How fast new dirt is let in while as much is dirty as may be: as fast as it goes, and evenly.
//!
//! What the cleaner does becomes room in bursts: the array answers in batches, and stands still
//! while it flushes. Whoever lets writers take each burst as it comes hands the bursts on to them:
//! thousands of writes in one moment, then none for a second. So the room is given out by the
//! clock: of what there is, the share that would be used up in a second and a half if no more came.
//! As much room is always left that way, and is the store that evens out the bursts.
//!
//! It begins when a write is first refused, and ends when there is plenty again.
//!
//! **Source**: a low-pass filter of first order. ZFS delays writers by how full the dirty data is,
//! from 60 % on, for the same reason; this one lets bursts fill the cache at full speed.

use headpond_block::Instant;
use std::time::Duration;

/// In this time the room would be used up. Flushes of modelled disks come every half second. At
/// first there is no store yet, and what comes is given out faster.
const TIME_CONSTANT: Duration = Duration::from_millis(1500);
const TIME_CONSTANT_AT_FIRST: Duration = Duration::from_millis(100);
/// With more room than this share of what may be dirty, nobody is held back.
const PLENTY_SHARE: u64 = 8;
/// Wakes no more often than that for who waits.
const WAIT_MIN: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Throttle {
    engaged: Option<Engaged>,
}

#[derive(Clone, Copy, Debug)]
struct Engaged {
    /// Blocks that may become dirty now.
    credit: f64,
    at: Instant,
    since: Instant,
}

impl Engaged {
    fn time_constant(&self) -> Duration {
        self.at.since(self.since).clamp(TIME_CONSTANT_AT_FIRST, TIME_CONSTANT)
    }
}

impl Throttle {
    /// A write has found no room.
    pub fn engage(&mut self, now: Instant) {
        self.engaged.get_or_insert(Engaged { credit: 0.0, at: now, since: now });
    }

    /// Whether anybody is held back.
    pub fn is_engaged(&self) -> bool {
        self.engaged.is_some()
    }

    /// Gives out what the time since has made of the room: of so many blocks that may be dirty
    /// there is room for so many more.
    pub fn advance(&mut self, now: Instant, room: u64, dirty_max: u64) {
        let Some(engaged) = &mut self.engaged else { return };
        if room > dirty_max / PLENTY_SHARE {
            self.engaged = None;
            return;
        }
        let share = now.since(engaged.at).as_secs_f64() / engaged.time_constant().as_secs_f64();
        engaged.credit = (engaged.credit + room as f64 * share).min(room as f64);
        engaged.at = now;
    }

    /// Whether a request may make blocks dirty now, beside so many that were allowed already. It is
    /// let in for the first of its blocks, and the others are owed.
    pub fn allows_beside(&self, blocks: u64) -> bool {
        self.engaged.is_none_or(|engaged| engaged.credit >= blocks as f64 + 1.0)
    }

    /// So many became dirty.
    pub fn spend(&mut self, blocks: u64) {
        if let Some(engaged) = &mut self.engaged {
            engaged.credit -= blocks as f64;
        }
    }

    /// When something may be allowed that is not now, where it is only a matter of time.
    pub fn wait(&self, room: u64) -> Option<Duration> {
        let engaged = self.engaged.filter(|engaged| engaged.credit < 1.0 && room > 0)?;
        let lacks = (1.0 - engaged.credit) / room as f64;
        Some(engaged.time_constant().mul_f64(lacks).clamp(WAIT_MIN, TIME_CONSTANT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::START + Duration::from_millis(ms)
    }

    /// Somebody writes as fast as allowed while so many blocks become room every 500 ms; how many
    /// were written in each second.
    fn by_second(burst: u64, seconds: u64) -> Vec<u64> {
        let (mut throttle, mut room, mut written) = (Throttle::default(), 0, 0);
        throttle.engage(at(0));
        let mut all = Vec::new();
        for ms in 0..seconds * 1000 {
            room += if ms % 500 == 0 { burst } else { 0 };
            throttle.advance(at(ms), room, 100_000);
            while room > 0 && throttle.allows_beside(0) {
                throttle.spend(1);
                (room, written) = (room - 1, written + 1);
            }
            if ms % 1000 == 999 {
                all.push(std::mem::take(&mut written));
            }
        }
        all
    }

    #[test]
    fn bursts_of_room_become_an_even_flow() {
        let written = by_second(500, 20);
        let late = &written[8..];
        assert!(late.iter().all(|second| second.abs_diff(1000) < 20), "{written:?}");
    }

    #[test]
    fn nobody_is_held_back_before_a_refusal_or_with_plenty_of_room() {
        let mut throttle = Throttle::default();
        throttle.advance(at(0), 5, 1000);
        assert!(throttle.allows_beside(1 << 20) && throttle.wait(5).is_none());
        throttle.engage(at(0));
        assert!(!throttle.allows_beside(0));
        throttle.advance(at(1), 50, 1000);
        assert_eq!(throttle.wait(2), Some(Duration::from_millis(25)));
        throttle.advance(at(2), 100, 1000);
        assert!(throttle.allows_beside(0) && throttle.wait(100).is_none());
        throttle.advance(at(3), 126, 1000);
        assert!(throttle.allows_beside(1 << 20));
    }

    #[test]
    fn a_large_request_is_let_in_and_paid_for_afterwards() {
        let mut throttle = Throttle::default();
        throttle.engage(at(0));
        throttle.advance(at(3000), 10, 1000);
        assert!(throttle.allows_beside(0) && !throttle.allows_beside(10));
        throttle.spend(64);
        assert!(!throttle.allows_beside(0));
        throttle.advance(at(3500), 100, 1000);
        assert!(!throttle.allows_beside(0), "half a second gives 33, and 54 are owed");
        throttle.advance(at(3900), 100, 1000);
        assert!(throttle.allows_beside(0));
    }
}
