//! `stripe`: in address order, full stripes where possible, at a steady rate.
//!
//! Below `low` nothing is cleaned under client load: data that is overwritten early is not written
//! to the core twice. Between `low` and `high` a controller holds the ratio at `target`. From
//! `high` on, and for waiting writes, the cleaner uses the core's full write queue depth; when
//! idle, a quarter of it, which bounds the delay of a new request.
//!
//! Where address distance costs the core nothing, and dirty blocks are so fragmented that address
//! order does not make writes longer, the oldest go first: data that is overwritten early is young,
//! and reclaim then has little to copy from the oldest segments.
//!
//! **Source**: STOW (ATC '09) and WOW (FAST '05) for the order and whole stripes, bcache for the
//! controller (`pi`). Completing stripes and gaps from cached clean blocks is original.

use super::config::{CleaningConfig, StripeConfig};
use super::pi::Controller;
use super::policy::{Age, Choice, CleaningLoad, DirtyData, Policy, Speed, Walk};
use super::rounds::round;
use headpond_block::Instant;
use std::time::Duration;

/// Share of the writes in flight while nobody asks for anything.
const IDLE_SHARE: u32 = 4;
/// Core writes of fewer blocks in the mean gain little from the order of the addresses.
const SCATTERED_BELOW: f64 = 1.25;
/// Of the oldest blocks, so many are put in the order of their addresses together. Where there are
/// fewer in so many places, requests come first.
const ROUND: Walk = Walk { blocks: 1024, slots: 1 << 12 };

pub(crate) struct Stripe {
    config: StripeConfig,
    controller: Controller,
    /// How many requests there had been when, of which that was seen first.
    seen: Option<(u64, Instant)>,
    /// How far the log has been gone through for the oldest blocks.
    walked: Age,
}

impl Stripe {
    pub fn new(config: &CleaningConfig) -> Self {
        Self {
            config: config.stripe,
            controller: Controller::default(),
            seen: None,
            walked: Age::default(),
        }
    }

    /// When nobody will have asked for anything for long enough.
    fn idle_at(&mut self, load: &CleaningLoad) -> Instant {
        let changed = self.seen.filter(|(requests, _)| *requests == load.requests && !load.is_busy);
        let (_, since) = *self.seen.insert(changed.unwrap_or((load.requests, load.now)));
        since + Duration::from_millis(u64::from(self.config.idle_after_ms))
    }

    fn paced(&mut self, load: &CleaningLoad) -> u32 {
        let ratio = |percent: u32| f64::from(percent) / 100.0;
        let (target, high) = (ratio(self.config.target_percent), ratio(self.config.high_percent));
        let now = load.dirty as f64 / load.dirty_max.max(1) as f64;
        let share = self.controller.share(load.now, now, target, high);
        ((f64::from(load.depth) * share) as u32).max(1)
    }
}

impl Policy for Stripe {
    fn speed(&mut self, load: &CleaningLoad) -> Speed {
        if load.dirty == 0 {
            return Speed::default();
        }
        if load.has_waiters {
            return Speed { in_flight_max: load.depth, ask_again: None };
        }
        let (idle_at, percent) = (self.idle_at(load), load.dirty * 100 / load.dirty_max.max(1));
        let idle = match idle_at <= load.now {
            true => (load.depth / IDLE_SHARE).max(1),
            false => 0,
        };
        let paced = match percent {
            _ if percent >= u64::from(self.config.high_percent) => load.depth,
            _ if percent >= u64::from(self.config.low_percent) => self.paced(load),
            _ => 0,
        };
        let ask_again = (idle == 0).then_some(idle_at);
        Speed { in_flight_max: paced.max(idle), ask_again }
    }

    fn choose(&mut self, load: &CleaningLoad, dirty_data: &mut dyn DirtyData) -> Choice {
        if load.is_rotational || load.blocks_per_write >= SCATTERED_BELOW {
            return Choice::Sweep;
        }
        let blocks = dirty_data.oldest(&mut self.walked, load.head, ROUND);
        match blocks.is_empty() {
            // The next are far off, on their way to the log, or dirty again behind that place.
            true => Choice::Sweep,
            false => round(blocks),
        }
    }

    fn failed(&mut self) {
        self.walked = Age::default();
    }

    fn completes_stripes(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::policy::Chunk;
    use super::*;
    use crate::types::{BlockRun, CoreBlock, Sequence};

    fn at(ms: u64) -> Instant {
        Instant::START + Duration::from_millis(ms)
    }

    fn busy(dirty: u64) -> CleaningLoad {
        CleaningLoad { dirty, is_busy: true, ..CleaningLoad::quiet(at(0)) }
    }

    #[test]
    fn speed_rises_with_the_dirty_ratio() {
        let config = CleaningConfig::default();
        let speed = |dirty| Stripe::new(&config).speed(&busy(dirty)).in_flight_max;
        let speeds = [0, 50, 100, 400, 500, 600, 740, 750, 1000].map(speed);
        assert!(speeds.is_sorted(), "{speeds:?}");
        assert_eq!(speeds[..4], [0, 0, 1, 1]);
        assert_eq!(speeds[7..], [1024; 2]);
    }

    #[test]
    fn who_waits_for_room_is_served_at_full_speed() {
        let mut stripe = Stripe::new(&CleaningConfig::default());
        let load = CleaningLoad { has_waiters: true, ..busy(10) };
        assert_eq!(stripe.speed(&load).in_flight_max, 1024);
    }

    /// Blocks that were written in descending order.
    struct Written(Vec<CoreBlock>);

    impl DirtyData for Written {
        fn oldest(&mut self, from: &mut Age, until: Age, most: Walk) -> Vec<CoreBlock> {
            let first = from.slot as usize;
            let end = (until.slot as usize).min(first + most.blocks);
            from.slot = end as u32;
            self.0[first..end].to_vec()
        }

        fn dirtiest(&self) -> Option<Chunk> {
            None
        }

        fn run_of(&self, chunk: Chunk) -> BlockRun {
            BlockRun { first: CoreBlock(u64::from(chunk.0)), count: 1 }
        }

        fn dirty_in(&mut self, _: BlockRun, _: usize) -> Vec<CoreBlock> {
            Vec::new()
        }
    }

    #[test]
    fn the_oldest_go_first_where_the_order_of_the_addresses_gains_nothing() {
        let mut written = Written((0..1500).rev().map(CoreBlock).collect());
        let head = Age { segment: Sequence(0), slot: 1500 };
        let flat = CleaningLoad { is_rotational: false, head, ..busy(800) };
        let mut stripe = Stripe::new(&CleaningConfig::default());
        let turns = CleaningLoad { is_rotational: true, ..flat };
        let long = CleaningLoad { blocks_per_write: 4.0, ..flat };
        assert_eq!(
            [turns, long].map(|load| stripe.choose(&load, &mut written)),
            [Choice::Sweep, Choice::Sweep]
        );
        let ascending =
            |blocks: std::ops::Range<u64>| Choice::Round(blocks.map(CoreBlock).collect());
        let choices: [Choice; 3] = std::array::from_fn(|_| stripe.choose(&flat, &mut written));
        let expected = [ascending(476..1500), ascending(0..476), Choice::Sweep];
        assert_eq!(choices, expected);
        stripe.failed();
        assert_eq!(stripe.choose(&flat, &mut written), ascending(476..1500));
    }

    #[test]
    fn everything_is_cleaned_when_nobody_has_come_for_a_while_and_not_before() {
        let mut stripe = Stripe::new(&CleaningConfig::default());
        let quiet = |ms| CleaningLoad { dirty: 1, requests: 9, ..CleaningLoad::quiet(at(ms)) };
        let first = stripe.speed(&quiet(0));
        assert_eq!((first.in_flight_max, first.ask_again), (0, Some(at(5000))));
        assert_eq!(stripe.speed(&quiet(4999)).in_flight_max, 0);
        assert_eq!(stripe.speed(&quiet(5000)).in_flight_max, 256);
        let came = CleaningLoad { requests: 10, ..quiet(5100) };
        assert_eq!(stripe.speed(&came), Speed { in_flight_max: 0, ask_again: Some(at(10_100)) });
    }
}
