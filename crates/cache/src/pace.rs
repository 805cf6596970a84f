//! How hard the cleaner works.

use crate::config::{CleaningConfig, CleaningPolicy};

/// What the decision depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub dirty: u64,
    pub dirty_max: u64,
    /// Writes wait for room.
    pub has_waiters: bool,
    /// Somebody asked for everything to be cleaned.
    pub must_drain: bool,
    /// The mode makes no dirty data, so what there is should go.
    pub is_draining_mode: bool,
}

/// Core writes that should be in flight: none below the low ratio, all at the high one, in
/// proportion between.
pub(crate) fn writes_in_flight(config: &CleaningConfig, load: &Load) -> u32 {
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
            has_waiters: false,
            must_drain: false,
            is_draining_mode: false,
        }
    }

    #[test]
    fn pace_rises_with_the_dirty_ratio() {
        let config = CleaningConfig::default();
        let paces = [0, 50, 100, 300, 600, 750, 1000].map(|d| writes_in_flight(&config, &load(d)));
        assert!(paces.is_sorted());
        assert_eq!((paces[0], paces[1], paces[2]), (0, 0, 1));
        assert_eq!(paces[6], config.in_flight_max);
    }

    #[test]
    fn nop_cleans_only_on_demand() {
        let config = CleaningConfig { policy: CleaningPolicy::Nop, ..CleaningConfig::default() };
        assert_eq!(writes_in_flight(&config, &Load { has_waiters: true, ..load(1000) }), 0);
        assert!(writes_in_flight(&config, &Load { must_drain: true, ..load(1000) }) > 0);
    }
}
