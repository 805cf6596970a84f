//! `alru`, approximately least recently used: cleans the data written longest ago, once it is stale
//! and the volume is idle.
//!
//! 1. Wake up; 2. while the dirty ratio is above its threshold, everything counts as stale and the
//!    volume as idle, until it is `inertia` below; else nothing is cleaned under client load; 3. a
//!    round of up to `flush-max-buffers`, the oldest first; 4. after a round immediately the next,
//!    after an empty one the pause.
//!
//! **Source**: the policy of that name in Open CAS, by its documentation and as probed. That keeps
//! a list through all dirty lines with a time in each. This one needs neither: the cache device is
//! a log, in which data is in the order of its last write, so the oldest dirty data is found by
//! walking the log from its tail, and how old it is from past positions of the head. That is 24
//! bytes for each second of staleness, whatever the size of the cache. The behaviour is the same,
//! with this granularity: age and activity are known to within a second, or an eighth of the
//! threshold where that is shorter; data that reclaim copies to the head counts as written then
//! (reclaim runs once round the log, and copies only what has stayed dirty for all that time).

use super::config::AlruConfig;
use super::policy::{Age, Choice, CleaningLoad, DirtyData, Policy, Speed, Walk};
use super::rounds::{Rounds, round};
use headpond_block::Instant;
use std::collections::VecDeque;
use std::time::Duration;

/// How often time and head are noted.
const GRAIN: Duration = Duration::from_secs(1);
/// Where a walk along the log has not come to its end.
const SOON: Duration = Duration::from_millis(1);
const BLOCKS_PER_MIB: u64 = 256;

pub(crate) struct Alru {
    config: AlruConfig,
    rounds: Rounds,
    /// Where the head was when, oldest first.
    marks: VecDeque<(Instant, Age)>,
    /// Everything that was written before this and is dirty has been chosen.
    walked: Age,
    /// How many requests there had been when, of which that was seen first.
    seen: Option<(u64, Instant)>,
    is_over_threshold: bool,
}

impl Alru {
    pub fn new(config: AlruConfig) -> Self {
        Self {
            config,
            rounds: Rounds::default(),
            marks: VecDeque::new(),
            walked: Age::default(),
            seen: None,
            is_over_threshold: false,
        }
    }

    fn wake_up(&self) -> Duration {
        Duration::from_secs(u64::from(self.config.wake_up_s))
    }

    fn activity_threshold(&self) -> Duration {
        Duration::from_millis(u64::from(self.config.activity_threshold_ms))
    }

    fn grain(&self) -> Duration {
        let least = Duration::from_millis(20);
        match self.activity_threshold() {
            Duration::ZERO => GRAIN,
            threshold => (threshold / 8).clamp(least, GRAIN),
        }
    }

    /// Notes what has to be known later.
    fn look(&mut self, load: &CleaningLoad) {
        let is_due = |(at, head): &(Instant, Age)| *at + GRAIN <= load.now && *head != load.head;
        if self.marks.back().is_none_or(is_due) {
            self.marks.push_back((load.now, load.head));
        }
        if load.is_busy || self.seen.is_none_or(|(requests, _)| requests != load.requests) {
            self.seen = Some((load.requests, load.now));
        }
        self.look_at_ratio(load);
    }

    fn look_at_ratio(&mut self, load: &CleaningLoad) {
        let percent = u64::from(self.config.dirty_ratio_threshold_percent);
        let inertia = u64::from(self.config.dirty_ratio_inertia_mib) * BLOCKS_PER_MIB;
        let begins_at = load.dirty_max * percent / 100;
        let is_above = |threshold| load.dirty > 0 && load.dirty >= threshold;
        self.is_over_threshold = percent < 100
            && match self.is_over_threshold {
                true => is_above(begins_at.saturating_sub(inertia)),
                false => is_above(begins_at),
            };
    }

    fn is_active(&self, load: &CleaningLoad) -> bool {
        let threshold = self.activity_threshold();
        let is_recent = |(_, since): (u64, Instant)| load.now < since + threshold;
        !self.is_over_threshold && self.seen.is_some_and(is_recent)
    }

    /// Everything before this place is stale.
    fn stale_until(&mut self, load: &CleaningLoad) -> Age {
        if self.is_over_threshold {
            return load.head;
        }
        let staleness = Duration::from_secs(u64::from(self.config.staleness_s));
        let is_stale = |mark: &(Instant, Age)| mark.0 + staleness <= load.now;
        // All but the last of the stale ones have served.
        while self.marks.len() > 1 && is_stale(&self.marks[1]) {
            self.marks.pop_front();
        }
        self.marks.front().filter(|mark| is_stale(mark)).map_or(Age::default(), |mark| mark.1)
    }
}

impl Policy for Alru {
    fn speed(&mut self, load: &CleaningLoad) -> Speed {
        self.look(load);
        // After a round that cleaned something comes the next.
        let mut speed = self.rounds.speed(load, Duration::ZERO);
        if load.in_flight == 0 && load.chosen == 0 && self.is_active(load) {
            speed.in_flight_max = 0;
        }
        if load.dirty > 0 && speed.in_flight_max == 0 {
            let next = load.now + self.grain();
            speed.ask_again = Some(speed.ask_again.map_or(next, |at| at.min(next)));
        }
        speed
    }

    fn choose(&mut self, load: &CleaningLoad, dirty_data: &mut dyn DirtyData) -> Choice {
        let may_begin = self.rounds.may_begin(load) && self.rounds.is_due(load);
        if !may_begin || self.is_active(load) {
            return Choice::Nothing;
        }
        let until = self.stale_until(load);
        let most = self.config.flush_max_buffers as usize;
        let blocks = dirty_data.oldest(&mut self.walked, until, Walk::of(most));
        if blocks.is_empty() {
            let is_through = self.walked >= until;
            let pause = if is_through { self.wake_up().max(self.grain()) } else { SOON };
            self.rounds.pause(load, pause);
        }
        round(blocks)
    }

    fn wants_relief(&self) -> bool {
        true
    }

    fn failed(&mut self) {
        self.walked = Age::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn above_the_dirty_ratio_it_cleans_until_the_inertia_below_it() {
        let config = AlruConfig { dirty_ratio_threshold_percent: 90, ..AlruConfig::default() };
        assert_eq!(config.dirty_ratio_inertia_mib, 128, "the field's default");
        let mut alru = Alru::new(config);
        let mut is_idle = |dirty| {
            let load = CleaningLoad {
                is_busy: true,
                dirty,
                dirty_max: 100_000,
                ..CleaningLoad::quiet(Instant::START)
            };
            alru.look(&load);
            !alru.is_active(&load)
        };
        let ends_at = 90_000 - 128 * BLOCKS_PER_MIB;
        let asked = [89_999, 90_000, ends_at, ends_at - 1, 89_999, 90_000];
        assert_eq!(asked.map(&mut is_idle), [false, true, true, false, false, true]);
    }
}
