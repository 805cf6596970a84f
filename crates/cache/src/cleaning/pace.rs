//! The cleaning rate where the policy does not apply: for a flush of all dirty data, and for blocks
//! with suspect parity after an unclean shutdown.

use super::policy::Speed;

/// Share of the writes in flight that replayed blocks may take while nobody asks for anything: who
/// comes then waits for few.
const LEISURE_SHARE: u32 = 16;

/// What the decision depends on, beside the policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Duties {
    pub in_flight_max: u32,
    /// As many of them as the core can use.
    pub depth: u32,
    /// Somebody asked for everything to be cleaned, or the mode makes no dirty data.
    pub must_drain: bool,
    /// As many as those leave room for who read the core; `None` without a limit.
    pub beside_readers: Option<u32>,
    /// Dirty blocks that owe parity since an unclean stop.
    pub replayed: u64,
    /// What [`leisure`] said last.
    pub leisure: u32,
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
pub(crate) fn pace(duties: &Duties, speed: Speed) -> Pace {
    let most = duties.in_flight_max.max(1);
    let wanted = if duties.must_drain { duties.depth } else { speed.in_flight_max.min(most) };
    let any = duties.beside_readers.map_or(wanted, |most| wanted.min(most));
    let replayed = match duties.replayed {
        0 => any,
        _ => any.max(duties.leisure.clamp(1, leisure_max(most))),
    };
    Pace { any, replayed }
}

/// Writes of replayed blocks in flight, after one of them has ended: one while requests are served,
/// and twice as many after each write during which none was.
pub(crate) fn leisure(in_flight_max: u32, before: u32, was_quiet: bool) -> u32 {
    if was_quiet { (before.max(1) * 2).min(leisure_max(in_flight_max)) } else { 1 }
}

fn leisure_max(in_flight_max: u32) -> u32 {
    (in_flight_max / LEISURE_SHARE).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Duties = Duties {
        in_flight_max: 1024,
        depth: 500,
        must_drain: false,
        beside_readers: None,
        replayed: 0,
        leisure: 0,
    };
    const STILL: Speed = Speed { in_flight_max: 0, ask_again: None };

    #[test]
    fn who_wants_everything_cleaned_gets_full_speed_whatever_the_policy_says() {
        assert_eq!(pace(&QUIET, STILL), Pace::NONE);
        assert_eq!(pace(&Duties { must_drain: true, ..QUIET }, STILL).any, 500);
        let fast = Speed { in_flight_max: u32::MAX, ..STILL };
        assert_eq!(pace(&QUIET, fast).any, 1024);
    }

    #[test]
    fn readers_of_the_core_are_left_way_but_not_by_what_owes_parity() {
        let fast = Speed { in_flight_max: u32::MAX, ..STILL };
        let beside = Duties { beside_readers: Some(7), ..QUIET };
        assert_eq!(pace(&beside, fast).any, 7);
        assert_eq!(pace(&Duties { must_drain: true, ..beside }, STILL).any, 7);
        let looking = Duties { beside_readers: Some(0), replayed: 3, ..QUIET };
        assert_eq!(pace(&looking, fast), Pace { any: 0, replayed: 1 });
    }

    #[test]
    fn replayed_blocks_are_cleaned_though_the_policy_stands_still() {
        let owing = Duties { replayed: 3, ..QUIET };
        assert_eq!(pace(&owing, STILL), Pace { any: 0, replayed: 1 });
        let idle = Duties { leisure: 8, ..owing };
        assert_eq!(pace(&idle, STILL), Pace { any: 0, replayed: 8 });
        assert_eq!(pace(&Duties { replayed: 0, ..idle }, STILL), Pace::NONE);
    }

    #[test]
    fn leisure_doubles_while_nobody_comes_and_ends_when_somebody_does() {
        let mut now = 0;
        let quiet = [(); 8].map(|()| {
            now = leisure(1024, now, true);
            now
        });
        assert_eq!(quiet, [2, 4, 8, 16, 32, 64, 64, 64]);
        assert_eq!(leisure(1024, now, false), 1);
        assert_eq!(leisure(2, 1, true), 1);
    }
}
