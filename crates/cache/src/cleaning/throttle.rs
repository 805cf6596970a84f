//! How fast new dirt is let in while as much is dirty as may be: as fast as it goes, and evenly.
//!
//! What the cleaner does becomes room in bursts: the array answers in batches, and stands still
//! while it flushes. Whoever lets writers take each burst as it comes hands the bursts on to them:
//! thousands of writes in one moment, then none for a second. So the room is given out by the
//! clock, by one of two laws. *By room*: of what there is, the share that would be used up in a
//! second and a half if no more came. *By supply*: as fast as it came of late, and a little faster
//! or more slowly where there is more or less of it than that, and in proportion to what there is
//! where a store of that length has no place. What is left so is the store that evens out the
//! bursts.
//!
//! It begins when a write is first refused, and ends when there is plenty again.
//!
//! **Source**: a low-pass filter of first order, and for the supply one with a proportional
//! controller of the store behind it. ZFS delays writers by how full the dirty data is, from 60 %
//! on, for the same reason; this one lets bursts fill the cache at full speed.

use headpond_block::Instant;
use std::fmt::Debug;
use std::time::Duration;

/// In this time the room would be used up. Flushes of modelled disks come every half second.
const STORE_S: f64 = 1.5;
/// At first there is no store yet, and what comes is given out faster.
const SHORTEST_S: f64 = 0.1;
/// What came of late is the mean of this time: flushes come to lie together now and then.
const LATE_S: f64 = 10.0;
/// The store of a fast supply is no more than this share of what there may be. What there is of it
/// alone says then how fast it is given out: with a gain, lines of 64 KiB in a cache of 64 MiB had
/// seconds of nothing and of twice the mean.
const STORE_SHARE: f64 = 8.0;
/// How much of the flow goes by the room that there is, and not by what came. With 0.3 and 0.5, and
/// lines of 64 KiB, the fastest of sixty seconds was 6 and 13 % above the mean.
const GAIN: f64 = 0.3;
/// Where less came, what there is is given out within this time all the same.
const LONGEST_S: f64 = 6.0;
/// Wakes no more often than that for who waits, nor more seldom.
const WAIT_MIN: Duration = Duration::from_millis(1);
const WAIT_MAX: Duration = Duration::from_millis(1500);

/// How fast room is given out.
pub(crate) trait Law: Clone + Copy + Debug + Default {
    /// With more room than this share of what there may be, nobody is held back.
    const PLENTY_SHARE: u64;

    /// So much room has come within some seconds, of which the law has been in force for so many;
    /// there may be `most` in all.
    fn learn(&mut self, came: f64, took: f64, lasts: f64, most: f64);

    /// Blocks a second, where there is so much room, after so many seconds.
    fn flow(&self, room: f64, lasts: f64) -> f64;
}

/// For what may be dirty, of which there is room for minutes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ByRoom;

impl Law for ByRoom {
    const PLENTY_SHARE: u64 = 8;

    fn learn(&mut self, _came: f64, _took: f64, _lasts: f64, _most: f64) {}

    fn flow(&self, room: f64, lasts: f64) -> f64 {
        room / lasts.clamp(SHORTEST_S, STORE_S)
    }
}

/// For the pool of extents, which is small beside what is given back after a flush, and which
/// reclaim takes from as well.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BySupply {
    /// What came in a second, in the mean of late; less than nothing where others took it.
    supply: f64,
    store_max: f64,
}

impl Law for BySupply {
    /// As much as thinning gives back, and twice the store.
    const PLENTY_SHARE: u64 = 4;

    fn learn(&mut self, came: f64, took: f64, lasts: f64, most: f64) {
        self.store_max = most / STORE_SHARE;
        let late = lasts.clamp(SHORTEST_S, LATE_S).max(took);
        self.supply += (came - self.supply * took) / late;
    }

    fn flow(&self, room: f64, lasts: f64) -> f64 {
        let supply = self.supply.max(0.0);
        let flow = match supply * STORE_S > self.store_max {
            true => room / self.store_max.max(1.0) * supply,
            false => (1.0 - GAIN) * supply + GAIN * room / STORE_S,
        };
        let least = room / lasts.clamp(SHORTEST_S, LONGEST_S);
        least.max(flow)
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Throttle<L> {
    engaged: Option<Engaged<L>>,
}

#[derive(Clone, Copy, Debug)]
struct Engaged<L> {
    /// Blocks, or extents, that may be taken now.
    credit: f64,
    at: Instant,
    since: Instant,
    /// Room that there was, without what was spent since then.
    left: Option<f64>,
    law: L,
}

impl<L: Law> Engaged<L> {
    fn new(now: Instant) -> Self {
        Self { credit: 0.0, at: now, since: now, left: None, law: L::default() }
    }

    fn flow(&self, room: f64) -> f64 {
        self.law.flow(room, seconds(self.since, self.at))
    }
}

fn seconds(from: Instant, to: Instant) -> f64 {
    to.since(from).as_secs_f64()
}

impl<L: Law> Throttle<L> {
    /// A write has found no room.
    pub fn engage(&mut self, now: Instant) {
        self.engaged.get_or_insert(Engaged::new(now));
    }

    /// Whether anybody is held back.
    pub fn is_engaged(&self) -> bool {
        self.engaged.is_some()
    }

    /// Gives out what the time since has made of the room: of so many that may be taken at most,
    /// so many are left.
    pub fn advance(&mut self, now: Instant, room: u64, most: u64) {
        let Some(engaged) = &mut self.engaged else { return };
        if room > most / L::PLENTY_SHARE {
            self.engaged = None;
            return;
        }
        let (room, took) = (room as f64, seconds(engaged.at, now));
        let came = engaged.left.replace(room).map_or(0.0, |left| room - left);
        engaged.law.learn(came, took, seconds(engaged.since, now), most as f64);
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
    fn by_second<L: Law>(burst: u64, seconds: u64) -> Vec<u64> {
        let (mut throttle, mut room, mut written) = (Throttle::<L>::default(), 0, 0);
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
        for (written, from) in
            [(by_second::<ByRoom>(500, 20), 8), (by_second::<BySupply>(500, 20), 12)]
        {
            let late = &written[from..];
            assert!(late.iter().all(|second| second.abs_diff(1000) < 20), "{written:?}");
        }
    }

    #[test]
    fn nobody_is_held_back_before_a_refusal_or_with_plenty_of_room() {
        let mut throttle = Throttle::<ByRoom>::default();
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
        let mut throttle = Throttle::<ByRoom>::default();
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
