//! Shadow caches: every policy on a sample of the lines, to find the one with the fewest misses.
//!
//! Lines are sampled by hash, and a shadow cache is scaled down by the sampling rate: so its miss
//! ratio approximates that of the full cache.
//!
//! **Source**: Waldspurger, Park, Garthwaite and Ahmad, *Efficient MRC construction with SHARDS*,
//! FAST '15, and *Cache modeling and optimization using miniature simulations*, USENIX ATC '17.
//! This one has one size and a fixed rate.

use super::{EvictionPolicy, Group, Heat, Held, Hits, Policy, Residents};
use crate::types::CoreLine;
use foldhash::fast::FixedState;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Lines that one shadow holds.
const CAPACITY: u64 = 4096;
/// Requests for sampled lines after which the policies are compared, by line of a shadow: each
/// could have been driven out and missed twice.
const REQUESTS_PER_BLOCK: u64 = 4;
/// Another policy must miss at least so much less than the one in use, and in so many comparisons
/// in a row: changing costs a walk through the map, and chance differs from window to window.
const GAIN_PERCENT: u64 = 5;
const WINS: u32 = 2;

/// How one policy would have done.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShadowStats {
    pub policy: EvictionPolicy,
    /// In the last whole window.
    pub miss_ratio: f64,
}

struct Shadow {
    policy: EvictionPolicy,
    cache: Box<dyn Policy>,
    residents: Sample,
    misses: u64,
    misses_before: u64,
}

/// All policies side by side.
pub struct Shadows {
    shadows: Vec<Shadow>,
    /// Lines whose hash is below are in the sample.
    threshold: u64,
    requests: u64,
    window: u64,
    windows: u64,
    /// Who missed least in the last windows, and in how many of them.
    leader: Option<(EvictionPolicy, u32)>,
}

impl Shadows {
    /// For a cache of so many lines.
    pub fn new(capacity: u64, core_lines: u64) -> Self {
        let held = capacity.min(CAPACITY);
        let shadow = |policy: EvictionPolicy| Shadow {
            policy,
            cache: policy.make(held, core_lines, 1),
            residents: Sample::new(held),
            misses: 0,
            misses_before: 0,
        };
        Self {
            shadows: EvictionPolicy::PLAIN.into_iter().map(shadow).collect(),
            threshold: ((u128::from(held) << 32) / u128::from(capacity)) as u64,
            requests: 0,
            window: held * REQUESTS_PER_BLOCK,
            windows: 0,
            leader: None,
        }
    }

    /// A request for a line. Answers with the policy that should be in use instead of `current`.
    #[inline]
    pub fn access(&mut self, line: CoreLine, current: EvictionPolicy) -> Option<EvictionPolicy> {
        if hash(line) >= self.threshold {
            return None;
        }
        for shadow in &mut self.shadows {
            let is_hit = access(&mut *shadow.cache, line, &mut shadow.residents);
            shadow.misses += u64::from(!is_hit);
        }
        self.requests += 1;
        if self.requests == self.window { self.compare(current) } else { None }
    }

    /// The mapping of a line has ended.
    pub fn remove(&mut self, line: CoreLine) {
        if hash(line) >= self.threshold {
            return;
        }
        for shadow in &mut self.shadows {
            shadow.residents.set(line, Heat::NONE);
            shadow.cache.remove(line);
        }
    }

    /// Nothing before the first whole window.
    pub fn stats(&self) -> Vec<ShadowStats> {
        let ratio = |misses: u64| misses as f64 / self.window as f64;
        let seen = self.shadows.iter().filter(|_| self.windows > 0);
        let stats = |shadow: &Shadow| ShadowStats {
            policy: shadow.policy,
            miss_ratio: ratio(shadow.misses_before),
        };
        seen.map(stats).collect()
    }

    pub fn memory_bytes(&self) -> u64 {
        let each = |shadow: &Shadow| {
            let memory = shadow.cache.memory();
            memory.queues + memory.ghosts + shadow.residents.memory_bytes()
        };
        self.shadows.iter().map(each).sum()
    }

    /// Checks the policies against their samples; for tests and simulation.
    ///
    /// # Panics
    /// Where one does not fit.
    pub fn self_check(&self) {
        assert!(self.requests < self.window, "a window ends");
        for shadow in &self.shadows {
            let mut held = Held::default();
            shadow.residents.heats.values().for_each(|heat| held.add(*heat));
            assert_eq!(held, shadow.residents.held, "a sample counts its residents");
            assert!(shadow.misses <= self.requests, "only what is asked for is missed");
            shadow.cache.self_check(&shadow.residents);
        }
    }

    fn compare(&mut self, current: EvictionPolicy) -> Option<EvictionPolicy> {
        self.windows += 1;
        self.requests = 0;
        for shadow in &mut self.shadows {
            shadow.misses_before = std::mem::take(&mut shadow.misses);
        }
        let misses = |shadow: &&Shadow| shadow.misses_before;
        let in_use = self.shadows.iter().find(|shadow| shadow.policy == current);
        let in_use = in_use.map(|shadow| shadow.misses_before).expect("a plain policy is in use");
        let best = self.shadows.iter().min_by_key(misses).expect("there are policies");
        if best.misses_before * 100 > in_use * (100 - GAIN_PERCENT) || in_use == 0 {
            self.leader = None;
            return None;
        }
        let wins = match self.leader {
            Some((leader, wins)) if leader == best.policy => wins + 1,
            _ => 1,
        };
        self.leader = (wins < WINS).then_some((best.policy, wins));
        (wins >= WINS).then_some(best.policy)
    }
}

/// The marks of the lines in a sample.
pub(super) struct Sample {
    heats: HashMap<CoreLine, Heat, FixedState>,
    allocated: usize,
    held: Held,
}

impl Sample {
    pub fn new(capacity: u64) -> Self {
        // At most half full it is tidied up where it lies, and never grows.
        let capacity = 2 * (capacity as usize + 1);
        let heats = HashMap::with_capacity_and_hasher(capacity, FixedState::default());
        Self { allocated: heats.capacity(), heats, held: Held::default() }
    }

    pub fn set(&mut self, line: CoreLine, heat: Heat) {
        let before = match heat.is_resident() {
            true => self.heats.insert(line, heat),
            false => self.heats.remove(&line),
        };
        self.held.subtract(before.unwrap_or_default());
        self.held.add(heat);
    }

    fn memory_bytes(&self) -> u64 {
        (self.allocated * size_of::<(CoreLine, Heat)>()) as u64
    }
}

impl Residents for Sample {
    fn heat(&self, line: CoreLine, _: Group) -> Heat {
        self.heats.get(&line).copied().unwrap_or_default()
    }

    fn change(&mut self, line: CoreLine, group: Group, change: fn(Heat) -> Heat) -> Heat {
        let before = self.heat(line, group);
        if before.is_resident() {
            self.set(line, change(before));
        }
        before
    }

    fn held(&self, _: Group) -> Held {
        self.held
    }
}

/// A request for one line; whether it was resident.
pub(super) fn access(policy: &mut dyn Policy, line: CoreLine, residents: &mut Sample) -> bool {
    let heat = residents.heat(line, Group::FIRST);
    match (heat.is_resident(), policy.hits()) {
        (true, Hits::Ordered) => policy.hit(line),
        (true, Hits::Counted) => residents.set(line, heat.warmer()),
        (false, _) => {
            let heat = policy.insert(line, Group::FIRST, residents);
            residents.set(line, heat);
        }
    }
    heat.is_resident()
}
/// 32 bits; not the ones by which queues and maps find lines.
fn hash(line: CoreLine) -> u64 {
    let mixed = (line.0 ^ line.0 >> 31).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_testkit::{Break, assert_trips};

    #[test]
    fn check_notices_what_is_wrong_with_shadows() {
        let make = || {
            let mut shadows = Shadows::new(64, 1 << 20);
            (0..200).for_each(|line| _ = shadows.access(CoreLine(line), EvictionPolicy::Lru));
            shadows
        };
        let breaks: [Break<Shadows>; 4] = [
            ("a window ends", |it| it.requests = it.window),
            ("counts its residents", |it| it.shadows[0].residents.held.all += 1),
            ("only what is asked for", |it| it.shadows[1].misses += 1),
            ("residents are in", |it| it.shadows[1].residents.set(CoreLine(0), Heat::SMALL)),
        ];
        assert_trips(make, Shadows::self_check, &breaks);
    }

    /// Rounds through a little more than the cache holds, which recency is worst at; and what is
    /// asked for again at once beside what never is.
    fn scan(index: u64) -> CoreLine {
        CoreLine(index % 5000)
    }

    #[test]
    fn a_policy_that_misses_much_less_is_chosen_and_only_then() {
        let mut shadows = Shadows::new(4096, 1 << 20);
        let mut chosen = EvictionPolicy::Lru;
        let mut changes = Vec::new();
        for index in 0..200_000 {
            if let Some(policy) = shadows.access(scan(index), chosen) {
                chosen = policy;
                changes.push((index, policy));
            }
        }
        assert_eq!(changes.len(), 1, "{changes:?}");
        assert!(matches!(chosen, EvictionPolicy::S3Fifo | EvictionPolicy::Arc), "{chosen:?}");
        let ratio = |policy| {
            let stats = shadows.stats();
            stats.into_iter().find(|shadow| shadow.policy == policy).unwrap().miss_ratio
        };
        assert_eq!(ratio(EvictionPolicy::Lru), 1.0);
        assert!(ratio(chosen) < 0.95);
    }

    #[test]
    fn policies_that_are_alike_are_not_changed() {
        let mut shadows = Shadows::new(4096, 1 << 20);
        for index in 0..200_000u64 {
            assert_eq!(shadows.access(CoreLine(index), EvictionPolicy::Fifo), None);
        }
    }

    #[test]
    fn the_sample_of_a_large_cache_is_small_and_true() {
        // Sixteen times as large as a shadow; two thirds of what is asked for fits it.
        let capacity = 1 << 16;
        let mut shadows = Shadows::new(capacity, 1 << 30);
        let before = shadows.memory_bytes();
        let mut whole = EvictionPolicy::Lru.make(capacity, 1 << 30, 1);
        let (mut residents, mut misses, mut state) = (Sample::new(capacity), 0u64, 1u64);
        let count = 2_000_000u64;
        for _ in 0..count {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let line = CoreLine((state >> 33) % (capacity * 3 / 2));
            shadows.access(line, EvictionPolicy::Lru);
            misses += u64::from(!access(&mut *whole, line, &mut residents));
        }
        let stats = shadows.stats();
        let sampled = stats.iter().find(|shadow| shadow.policy == EvictionPolicy::Lru).unwrap();
        let whole = misses as f64 / count as f64;
        assert!((sampled.miss_ratio - whole).abs() < 0.05, "{} of {whole}", sampled.miss_ratio);
        assert_eq!(shadows.memory_bytes(), before, "bounded");
    }
}
