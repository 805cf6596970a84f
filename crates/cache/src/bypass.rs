//! The share of cacheable requests that bypasses to the core, because it completes them sooner.
//!
//! A cache of one device may be slower, at a high queue depth, than the array behind it. One
//! [`Balance`] for reads and one for writes compare how long both take at the present depth, and
//! move the share towards the split at which both take as long:
//!
//! 1. while all goes to the cache, single requests probe the core; after each unsuccessful probe
//!    the interval doubles, and it shrinks again when the cache becomes slower;
//! 2. two successful probes in a row start a small share;
//! 3. after each window the share rises where the cache took longer, and falls where the core did;
//!    in a band between it stays. Each step is twice the one before it; where the direction changes
//!    it is half of that, and a quarter where the cache gets more again. Below the smallest share
//!    the bypass ends.
//!
//! A slightly overloaded cache takes all requests in flight into its queue, however fast the core
//! is: with steps of a quarter of the share it swung between too much and too little, and at depth
//! 128 before eight NVMe drives 28 % of what they do was lost.
//!
//! One request of 32 is timed, and always goes to the cache, so that the cache is always measured.
//! The others are chosen by carrying the remainder, not at random.
//!
//! **Not here**: which requests may bypass (`paths/around.rs`); clocks: times are inputs.
//!
//! **Source**: at equilibrium no request would complete sooner on the other device (Wardrop's first
//! principle, 1952), as in non-hierarchical caching (Wu et al., *The Storage Hierarchy is Not a
//! Hierarchy*, FAST '21), which searches for the throughput instead. The steps are those of RPROP
//! (Riedmiller and Braun, ICNN '93), which goes by signs alone, but for the smaller one at which
//! the cache is given more.

use headpond_block::Instant;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::time::Duration;

/// Whether requests that the cache could serve may go to the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BypassPolicy {
    /// None of them.
    #[default]
    Off,
    /// As large a share as is answered sooner there.
    Adaptive,
}

/// Shares are counted in so many parts.
const WHOLE: u32 = 1024;
const SHARE_MIN: u32 = WHOLE / 64;
/// Of the share, after a window.
const STEP_MIN: u32 = WHOLE / 256;
const STEP_MAX: u32 = WHOLE / 8;
/// Until the first probe, and the longest time between two.
const PROBE_FIRST: Duration = Duration::from_millis(250);
const PROBE_LAST: Duration = Duration::from_secs(32);
/// Between two probes of which the first paid.
const PROBE_AGAIN: Duration = Duration::from_millis(2);
const PROBES_WANTED: u32 = 2;
/// Per cent of the core's time above which the cache has to be for the share to rise, and below
/// which for it to fall.
const RISES_ABOVE: u64 = 110;
const FALLS_BELOW: u64 = 90;
/// Requests of each kind in a window, and its shortest time.
const CACHE_TIMES: u64 = 4;
const CORE_TIMES: u64 = 16;
const WINDOW: Duration = Duration::from_millis(4);
/// A window that lasts longer is judged by what there is: the load has gone.
const WINDOW_MAX: Duration = Duration::from_secs(1);

/// Times of one way, added up.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    count: u64,
    nanos: u64,
}

impl Times {
    fn add(&mut self, nanos: u64) {
        self.count += 1;
        self.nanos += nanos;
    }

    fn mean(self) -> Option<u64> {
        self.nanos.checked_div(self.count)
    }
}

/// Reads, or writes.
#[derive(Debug, Default)]
pub(crate) struct Balance {
    is_on: Cell<bool>,
    /// Of `WHOLE`.
    share: Cell<u32>,
    carried: Cell<u32>,
    state: RefCell<State>,
}

#[derive(Debug, Default)]
struct State {
    cache: Times,
    core: Times,
    since: Option<Instant>,
    /// Means of the last window in which there was one, in nanoseconds.
    cache_nanos: Option<u64>,
    core_nanos: Option<u64>,
    probe_at: Option<Instant>,
    probe_pause: Duration,
    is_probing: bool,
    /// Probes in a row that paid.
    paid: u32,
    /// What the cache took when a probe last did not pay.
    refused_at_nanos: u64,
    step: Step,
}

/// How the share was last changed.
#[derive(Clone, Copy, Debug)]
struct Step {
    parts: u32,
    rises: bool,
}

impl Default for Step {
    fn default() -> Self {
        Self { parts: SHARE_MIN, rises: true }
    }
}

impl Step {
    /// The next one, in this direction.
    fn next(self, rises: bool) -> Self {
        let parts = match (rises == self.rises, rises) {
            (true, _) => self.parts * 2,
            (false, true) => self.parts / 2,
            (false, false) => self.parts / 4,
        };
        Self { parts: parts.clamp(STEP_MIN, STEP_MAX), rises }
    }
}

/// What is known of one direction, and done.
#[derive(Clone, Copy, Debug, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct BypassShare {
    /// Of the requests that may go to the core.
    pub share: f64,
    /// Means at the last comparison, where there are any.
    pub cache_us: Option<f64>,
    pub core_us: Option<f64>,
}

/// What `bypass` does to a slice.
#[derive(Clone, Copy, Debug, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct BypassReport {
    pub policy: BypassPolicy,
    pub reads: BypassShare,
    pub writes: BypassShare,
}

impl Balance {
    /// Begins anew.
    pub fn set(&self, policy: BypassPolicy) {
        self.is_on.set(policy == BypassPolicy::Adaptive);
        self.share.set(0);
        self.carried.set(0);
        self.state.replace(State { probe_pause: PROBE_FIRST, ..State::default() });
    }

    /// Whether this request should go to the core, if it may; `timed` where it is one of those
    /// that are timed, and the time now.
    #[inline]
    pub fn wants_core(&self, timed: Option<Instant>) -> bool {
        match timed {
            None => self.share.get() > 0 && self.is_turn(),
            Some(now) => self.is_on.get() && self.look(now),
        }
    }

    fn is_turn(&self) -> bool {
        let carried = self.carried.get() + self.share.get();
        self.carried.set(carried % WHOLE);
        carried >= WHOLE
    }

    /// A request of the cache took so long.
    pub fn note_cache(&self, took: Duration) {
        if self.is_on.get() {
            self.state.borrow_mut().cache.add(took.as_nanos() as u64);
        }
    }

    /// A request that the cache could have served took so long at the core, and ended now.
    pub fn note_core(&self, took: Duration, now: Instant) {
        let state = &mut *self.state.borrow_mut();
        state.core.add(took.as_nanos() as u64);
        if self.share.get() == 0 && std::mem::take(&mut state.is_probing) {
            self.judge_probe(state, took.as_nanos() as u64, now);
        }
    }

    /// A probe could not be made, or failed: the next one comes in its time.
    pub fn note_nothing(&self) {
        self.state.borrow_mut().is_probing = false;
    }

    pub fn report(&self) -> BypassShare {
        let state = self.state.borrow();
        let micros = |nanos: Option<u64>| nanos.map(|nanos| nanos as f64 / 1000.0);
        BypassShare {
            share: f64::from(self.share.get()) / f64::from(WHOLE),
            cache_us: micros(state.cache_nanos),
            core_us: micros(state.core_nanos),
        }
    }

    /// At a request that is timed: it goes to the cache, unless it is a probe.
    #[cold]
    fn look(&self, now: Instant) -> bool {
        let state = &mut *self.state.borrow_mut();
        let lasted = now.since(*state.since.get_or_insert(now));
        if self.share.get() > 0 {
            let is_full = state.cache.count >= CACHE_TIMES && state.core.count >= CORE_TIMES;
            if is_full && lasted >= WINDOW || lasted >= WINDOW_MAX {
                self.judge_window(state, now);
            }
            return false;
        }
        let probe_at = *state.probe_at.get_or_insert(now + state.probe_pause);
        if lasted >= WINDOW_MAX {
            state.begin_window(now);
        }
        let is_slower = state.cache.mean().is_some_and(|mean| mean > 2 * state.refused_at_nanos)
            && state.cache.count >= CACHE_TIMES
            && state.probe_pause > PROBE_FIRST;
        if is_slower {
            state.probe_pause = PROBE_FIRST;
            state.probe_at = Some(probe_at.min(now + PROBE_FIRST));
        }
        let is_due = now >= probe_at && state.cache.count > 0 && !state.is_probing;
        state.is_probing |= is_due;
        is_due
    }

    fn judge_probe(&self, state: &mut State, took: u64, now: Instant) {
        let cache = state.cache.mean().or(state.cache_nanos).unwrap_or(0);
        (state.cache_nanos, state.core_nanos) = (Some(cache), Some(took));
        if cache * 100 <= took * RISES_ABOVE {
            (state.paid, state.refused_at_nanos) = (0, cache);
            state.probe_at = Some(now + state.probe_pause);
            state.probe_pause = (state.probe_pause * 2).min(PROBE_LAST);
            return;
        }
        state.paid += 1;
        state.probe_at = Some(now + PROBE_AGAIN);
        if state.paid >= PROBES_WANTED {
            (state.paid, state.step) = (0, Step::default());
            self.share.set(SHARE_MIN);
            state.begin_window(now);
        }
    }

    fn judge_window(&self, state: &mut State, now: Instant) {
        let (cache, core) = (state.cache.mean(), state.core.mean());
        let share = self.share.get();
        let rises = match cache.zip(core) {
            Some((cache, core)) if cache * 100 > core * RISES_ABOVE => Some(true),
            Some((cache, core)) if cache * 100 >= core * FALLS_BELOW => None,
            Some(_) | None => Some(false),
        };
        state.step = rises.map_or(state.step, |rises| state.step.next(rises));
        let next = match rises {
            None => share,
            Some(true) => (share + state.step.parts).min(WHOLE),
            Some(false) => share.saturating_sub(state.step.parts),
        };
        (state.cache_nanos, state.core_nanos) =
            (cache.or(state.cache_nanos), core.or(state.core_nanos));
        if next < SHARE_MIN {
            state.probe_at = Some(now + PROBE_FIRST);
            state.probe_pause = PROBE_FIRST * 2;
            state.refused_at_nanos = cache.unwrap_or(0);
        }
        self.share.set(if next < SHARE_MIN { 0 } else { next });
        state.begin_window(now);
    }
}

impl State {
    fn begin_window(&mut self, now: Instant) {
        self.cache_nanos = self.cache.mean().or(self.cache_nanos);
        (self.cache, self.core) = (Times::default(), Times::default());
        self.since = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A closed loop of so many requests on two devices, each with a time of its own and with so
    /// many a second at most; what the share comes to, and requests a second.
    struct Machine {
        cache: (f64, f64),
        core: (f64, f64),
        balance: Balance,
        now: Instant,
        turn: u64,
    }

    impl Machine {
        fn new(cache: (f64, f64), core: (f64, f64)) -> Self {
            let balance = Balance::default();
            balance.set(BypassPolicy::Adaptive);
            Self { cache, core, balance, now: Instant::START, turn: 0 }
        }

        fn run(&mut self, depth: f64, seconds: f64) -> (f64, f64) {
            let (begun, mut served) = (self.now, 0u64);
            let mut at_core = self.balance.report().share;
            while self.now.since(begun).as_secs_f64() < seconds {
                let timed = self.turn.is_multiple_of(32).then_some(self.now);
                let is_core = self.balance.wants_core(timed);
                self.turn += 1;
                at_core += (f64::from(u8::from(is_core)) - at_core) / 256.0;
                let split = [(self.cache, 1.0 - at_core), (self.core, at_core)];
                // By Little's law, with the mean of both over what is in flight.
                let rate = split.iter().map(|((_, most), part)| most / part.max(1e-6));
                let rate = rate.fold(f64::MAX, f64::min);
                let idle: f64 = split.iter().map(|((time, _), part)| time * part).sum();
                let mean = idle.max(depth / rate);
                let of = |(time, most): (f64, f64), part: f64| {
                    let is_full = part / most * depth / mean >= 0.999;
                    let other = idle - time * part;
                    let took = if is_full { (mean - other) / part } else { time };
                    Duration::from_secs_f64(took.max(time))
                };
                self.now += Duration::from_secs_f64(mean / depth);
                served += 1;
                match is_core {
                    true => self.balance.note_core(of(self.core, at_core), self.now),
                    false if timed.is_some() => {
                        self.balance.note_cache(of(self.cache, 1.0 - at_core));
                    }
                    false => {}
                }
            }
            (self.balance.report().share, served as f64 / seconds)
        }
    }

    /// Seconds, and requests a second.
    const CACHE: (f64, f64) = (20e-6, 100_000.0);
    const FAST: (f64, f64) = (80e-6, 800_000.0);
    const MANY: (f64, f64) = (80e-6, 1_400_000.0);
    const DISKS: (f64, f64) = (10e-3, 4_000.0);

    #[test]
    fn a_cache_that_is_the_slower_one_at_depth_hands_over_and_takes_back() {
        let mut machine = Machine::new(CACHE, FAST);
        let (share, _) = machine.run(1.0, 2.0);
        assert_eq!(share, 0.0, "alone in flight the cache is the faster one");
        machine.run(64.0, 3.0);
        let (share, rate) = machine.run(64.0, 1.0);
        assert!(share > 0.5, "{share}");
        assert!(rate > 600_000.0, "{rate} a second, of 100000 before");
        machine.run(1.0, 5.0);
        let (share, rate) = machine.run(1.0, 1.0);
        assert_eq!(share, 0.0, "back in the cache");
        assert!(rate > 0.99 / CACHE.0, "{rate}");
    }

    #[test]
    fn the_share_settles_where_the_cache_is_nearly_full() {
        let mut machine = Machine::new(CACHE, MANY);
        machine.run(128.0, 1.0);
        let (share, rate) = machine.run(128.0, 0.5);
        assert!(share < 1.0, "the cache has its part");
        assert!(rate > MANY.1, "{rate} a second");
    }

    #[test]
    fn steps_grow_in_one_direction_and_shrink_at_each_turn() {
        let parts = |turns: &[bool]| {
            let last = |step: Step, rises: &bool| step.next(*rises);
            turns.iter().fold(Step::default(), last).parts
        };
        assert_eq!([&[true][..], &[true; 3], &[true; 9]].map(parts), [32, 128, STEP_MAX]);
        assert_eq!([&[false][..], &[false, true], &[false; 2]].map(parts), [4, 4, 8]);
        assert_eq!(parts(&[true, true, false, true]), 8);
        assert_eq!(parts(&[false, true, false, true]), STEP_MIN);
    }

    #[test]
    fn before_slow_disks_nothing_goes_but_few_probes() {
        for depth in [1.0, 32.0, 256.0] {
            let mut machine = Machine::new(CACHE, DISKS);
            let (share, rate) = machine.run(depth, 5.0);
            let alone = (depth / CACHE.0).min(CACHE.1);
            assert_eq!(share, 0.0);
            assert!(rate > 0.98 * alone, "{rate} of {alone} at {depth}");
        }
    }

    #[test]
    fn off_is_off() {
        let mut machine = Machine::new(CACHE, FAST);
        machine.balance.set(BypassPolicy::Off);
        assert_eq!(machine.run(64.0, 1.0).0, 0.0);
        assert_eq!(machine.balance.report(), BypassShare::default());
    }
}
