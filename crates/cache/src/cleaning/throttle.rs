//! The write throttle at the dirty limit: as fast as the cleaner frees space, and evenly.
//!
//! The cleaner frees space in bursts: the array completes writes in batches, and stalls while it
//! flushes. Passing these bursts on to writers would mean thousands of writes at the same time,
//! then none for a second. So space is granted by the clock: at the recent rate of freeing, and a
//! little faster or slower where more or less than the target is free. The remaining space is the
//! buffer that evens out the bursts. Where there is no space for a buffer of that length, the free
//! space is granted within that time.
//!
//! It begins with the first delayed write, and ends when enough space is free again.
//!
//! **Source**: a low-pass filter of first order, with a proportional controller of the buffer. ZFS
//! delays writers by how full the dirty data is, from 60 % on, for the same reason; this one lets
//! bursts fill the cache at full speed.

use headpond_block::Instant;
use std::time::Duration;

/// In this time the room would be used up. Flushes of modelled disks come every half second.
const STORE_S: f64 = 1.5;
/// At first there is no store yet, and what comes is given out faster.
const SHORTEST_S: f64 = 0.1;
/// What came of late is the mean of this time: flushes come to lie together now and then.
const LATE_S: f64 = 15.0;
/// The store is no more than one part of so many of what there may be.
const STORE_SHARE: f64 = 8.0;
/// How much of the flow goes by the room that there is, and not by what came. With 0.3 and a mean
/// of 10 s, one second of forty was 14 % above the mean with lines of 256 KiB; with 0.15, 12 % with
/// 64 KiB in a small cache.
const GAIN: f64 = 0.2;
/// However much room there is, it counts for no more than so many times what came. Without that
/// limit one second of forty was 11 % above the mean with lines of 64 KiB in a small cache; with
/// 1.3, another one 8 % below it with 8 KiB.
const MOST_OF_SUPPLY: f64 = 1.5;
/// Where less came, what there is is given out within this time all the same.
const LONGEST_S: f64 = 6.0;
/// Wakes no more often than that for who waits, nor more seldom.
const WAIT_MIN: Duration = Duration::from_millis(1);
const WAIT_MAX: Duration = Duration::from_millis(1500);

/// With more room than one part of so many of what there may be, nobody is held back: twice the
/// store.
const PLENTY_SHARE: u64 = 4;
/// And with less where the store has no place.
const PLENTY_SHARE_OF_FAST: u64 = 8;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Throttle {
    engaged: Option<Engaged>,
}

#[derive(Clone, Copy, Debug)]
struct Engaged {
    /// Blocks, or extents, that may be taken now.
    credit: f64,
    at: Instant,
    since: Instant,
    /// Room that there was, without what was spent since then.
    left: Option<f64>,
    /// What came in a second, in the mean of late; less than nothing where others took it.
    supply: f64,
    /// Whether a store for that would be too large.
    is_fast: bool,
}

impl Engaged {
    fn new(now: Instant) -> Self {
        Self { credit: 0.0, at: now, since: now, left: None, supply: 0.0, is_fast: false }
    }

    /// There is so much room now, of so much that there may be.
    fn learn(&mut self, now: Instant, room: f64, most: f64) {
        let (lasts, took) = (seconds(self.since, now), seconds(self.at, now));
        let came = self.left.replace(room).map_or(0.0, |left| room - left);
        let late = lasts.clamp(SHORTEST_S, LATE_S).max(took);
        self.supply += (came - self.supply * took) / late;
        self.is_fast = self.supply * STORE_S > most / STORE_SHARE;
    }

    /// Blocks, or extents, a second.
    fn flow(&self, room: f64) -> f64 {
        let lasts = seconds(self.since, self.at);
        if self.is_fast {
            return room / lasts.clamp(SHORTEST_S, STORE_S);
        }
        let supply = self.supply.max(0.0);
        let flow = (1.0 - GAIN) * supply + GAIN * (room / STORE_S).min(MOST_OF_SUPPLY * supply);
        let least = room / lasts.clamp(SHORTEST_S, LONGEST_S);
        least.max(flow)
    }
}

fn seconds(from: Instant, to: Instant) -> f64 {
    to.since(from).as_secs_f64()
}

impl Throttle {
    /// A write has found no room.
    pub fn engage(&mut self, now: Instant) {
        self.engaged.get_or_insert(Engaged::new(now));
    }

    /// Whether anybody is held back.
    pub fn is_engaged(&self) -> bool {
        self.engaged.is_some()
    }

    /// Gives out what the time since has made of the room: of so many that may be taken at most,
    /// so many are left. There is never more room than the limit, however little is taken.
    pub fn advance(&mut self, now: Instant, room: u64, most: u64, limit: u64) {
        let Some(engaged) = &mut self.engaged else { return };
        let share = if engaged.is_fast { PLENTY_SHARE_OF_FAST } else { PLENTY_SHARE };
        if room > (most / share).min(limit / 2) {
            self.engaged = None;
            return;
        }
        let (room, took) = (room as f64, seconds(engaged.at, now));
        engaged.learn(now, room, most as f64);
        engaged.credit = (engaged.credit + engaged.flow(room) * took).min(room);
        engaged.at = now;
    }

    /// Whether a request may take blocks, or extents, now, beside so many that were allowed
    /// already. It is let in for the first of them, and the others are owed.
    pub fn allows_beside(&self, blocks: u64) -> bool {
        self.engaged.as_ref().is_none_or(|engaged| engaged.credit >= blocks as f64 + 1.0)
    }

    /// So many were taken.
    pub fn spend(&mut self, blocks: u64) {
        if let Some(engaged) = &mut self.engaged {
            engaged.credit -= blocks as f64;
            engaged.left = engaged.left.map(|left| left - blocks as f64);
        }
    }

    /// When something may be allowed that is not now, where it is only a matter of time.
    pub fn wait(&self, room: u64) -> Option<Duration> {
        let engaged = self.engaged.filter(|engaged| engaged.credit < 1.0 && room > 0)?;
        let lacks = (1.0 - engaged.credit) / engaged.flow(room as f64);
        let wait = Duration::try_from_secs_f64(lacks).unwrap_or(WAIT_MAX);
        Some(wait.clamp(WAIT_MIN, WAIT_MAX))
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
            throttle.advance(at(ms), room, 100_000, u64::MAX);
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
        let written = by_second(500, 30);
        let late = &written[14..];
        assert!(late.iter().all(|second| second.abs_diff(1000) < 20), "{written:?}");
    }

    #[test]
    fn nobody_is_held_back_before_a_refusal_or_with_plenty_of_room() {
        let mut throttle = Throttle::default();
        throttle.advance(at(0), 5, 1000, u64::MAX);
        assert!(throttle.allows_beside(1 << 20) && throttle.wait(5).is_none());
        throttle.engage(at(0));
        assert!(!throttle.allows_beside(0));
        throttle.advance(at(1), 50, 1000, u64::MAX);
        assert_eq!(throttle.wait(2), Some(Duration::from_millis(25)));
        throttle.advance(at(2), 100, 1000, u64::MAX);
        assert!(throttle.allows_beside(0) && throttle.wait(100).is_none());
        throttle.advance(at(3), 126, 1000, u64::MAX);
        assert!(throttle.allows_beside(1 << 20));
    }

    #[test]
    fn a_large_request_is_let_in_and_paid_for_afterwards() {
        let mut throttle = Throttle::default();
        throttle.engage(at(0));
        throttle.advance(at(3000), 10, 1000, u64::MAX);
        assert!(throttle.allows_beside(0) && !throttle.allows_beside(10));
        throttle.spend(64);
        assert!(!throttle.allows_beside(0));
        throttle.advance(at(3500), 100, 1000, u64::MAX);
        assert!(!throttle.allows_beside(0), "half a second gives 24, and 54 are owed");
        throttle.advance(at(4500), 100, 1000, u64::MAX);
        assert!(throttle.allows_beside(0));
    }
}
