//! How hard the cleaner works.

use crate::config::{CleaningConfig, CleaningPolicy};

/// Share of the writes in flight that replayed blocks may take while nobody asks for anything: who
/// comes then waits for few.
const LEISURE_SHARE: u32 = 16;

/// What the decision depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub dirty: u64,
    pub dirty_max: u64,
    /// Dirty blocks that owe parity since an unclean stop.
    pub replayed: u64,
    /// What [`leisure`] said last.
    pub leisure: u32,
    /// Writes wait for room.
    pub has_waiters: bool,
    /// Somebody asked for everything to be cleaned.
    pub must_drain: bool,
    /// The mode makes no dirty data, so what there is should go.
    pub is_draining_mode: bool,
}

/// Core writes that should be in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Whatever they write.
    pub any: u32,
    /// As far as they write replayed blocks; never fewer.
    pub replayed: u32,
}

impl Pace {
    pub const NONE: Self = Self { any: 0, replayed: 0 };
}

/// Replayed blocks are cleaned whatever the dirty ratio is, and whatever the policy: `nop` says
/// that dirty data may stay in the cache, not that the array may stay with parity that does not fit
/// its data. Only writing them again mends that, and a member that fails before takes data with it.
pub(crate) fn pace(config: &CleaningConfig, load: &Load) -> Pace {
    let any = writes_in_flight(config, load);
    let replayed = match load.replayed {
        0 => any,
        _ => any.max(load.leisure.clamp(1, leisure_max(config))),
    };
    Pace { any, replayed }
}

/// Writes of replayed blocks in flight, after one of them has ended: one while requests are served,
/// and twice as many after each write during which none was.
pub(crate) fn leisure(config: &CleaningConfig, before: u32, was_quiet: bool) -> u32 {
    if was_quiet { (before.max(1) * 2).min(leisure_max(config)) } else { 1 }
}

fn leisure_max(config: &CleaningConfig) -> u32 {
    (config.in_flight_max / LEISURE_SHARE).max(1)
}

/// None below the low ratio, all at the high one, in proportion between.
fn writes_in_flight(config: &CleaningConfig, load: &Load) -> u32 {
    let most = config.in_flight_max.max(1);
    if load.must_drain {
        return most;
    }
    if config.policy == CleaningPolicy::Nop {
        return 0;
    }
    if load.has_waiters || load.is_draining_mode {
        return most;
    }
    let percent = load.dirty * 100 / load.dirty_max.max(1);
    let (low, high) = (u64::from(config.low_percent), u64::from(config.high_percent));
    if percent < low || load.dirty == 0 {
        return 0;
    }
    if percent >= high {
        return most;
    }
    let share = u64::from(most) * (percent - low) / (high - low).max(1);
    (share as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(dirty: u64) -> Load {
        Load {
            dirty,
            dirty_max: 1000,
            replayed: 0,
            leisure: 0,
            has_waiters: false,
            must_drain: false,
            is_draining_mode: false,
        }
    }

    #[test]
    fn pace_rises_with_the_dirty_ratio() {
        let config = CleaningConfig::default();
        let paces = [0, 50, 100, 300, 600, 750, 1000].map(|d| pace(&config, &load(d)).any);
        assert!(paces.is_sorted());
        assert_eq!((paces[0], paces[1], paces[2]), (0, 0, 1));
        assert_eq!(paces[6], config.in_flight_max);
    }

    #[test]
    fn nop_cleans_only_on_demand() {
        let config = CleaningConfig { policy: CleaningPolicy::Nop, ..CleaningConfig::default() };
        assert_eq!(pace(&config, &Load { has_waiters: true, ..load(1000) }), Pace::NONE);
        assert!(pace(&config, &Load { must_drain: true, ..load(1000) }).any > 0);
    }

    #[test]
    fn replayed_blocks_are_cleaned_below_the_low_ratio_and_with_nop() {
        for policy in [CleaningPolicy::Nop, CleaningPolicy::Stripe] {
            let config = CleaningConfig { policy, ..CleaningConfig::default() };
            let owing = Load { replayed: 3, ..load(10) };
            assert_eq!(pace(&config, &owing), Pace { any: 0, replayed: 1 });
            let idle = Load { leisure: 8, ..owing };
            assert_eq!(pace(&config, &idle), Pace { any: 0, replayed: 8 });
            assert_eq!(pace(&config, &Load { replayed: 0, ..idle }), Pace::NONE);
        }
    }

    #[test]
    fn leisure_doubles_while_nobody_comes_and_ends_when_somebody_does() {
        let config = CleaningConfig::default();
        let mut now = 0;
        let quiet = [(); 8].map(|()| {
            now = leisure(&config, now, true);
            now
        });
        assert_eq!(quiet, [2, 4, 8, 16, 32, 64, 64, 64]);
        assert_eq!(leisure(&config, now, false), 1);
        let small = CleaningConfig { in_flight_max: 2, ..config };
        assert_eq!(leisure(&small, 1, true), 1);
    }
}
