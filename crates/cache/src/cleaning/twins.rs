//! Tests of policies against naive reference models.

use super::config::{AcpConfig, AlruConfig};
use super::policy::{Age, Choice, Chunk, CleaningLoad, DirtyData, Policy, Walk};
use super::{Chunks, acp::Acp, alru::Alru};
use crate::types::{BlockRun, CoreBlock, Sequence};
use headpond_block::Instant;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

const SLOTS_PER_SEGMENT: u32 = 8;

/// A log as a list, and its chunks.
struct Fake {
    /// Each place of the log, and whether its block is dirty there.
    places: Vec<(CoreBlock, bool)>,
    chunks: Chunks,
}

impl Fake {
    fn new() -> Self {
        Self { places: Vec::new(), chunks: Chunks::default() }
    }

    fn write(&mut self, block: u64) {
        let older = self.places.iter_mut().find(|place| place.0.0 == block && place.1);
        match older {
            Some(older) => older.1 = false,
            None => self.chunks.add(CoreBlock(block)),
        }
        self.places.push((CoreBlock(block), true));
    }

    fn clean(&mut self, blocks: &[CoreBlock]) {
        let is_chosen = |place: &&mut (CoreBlock, bool)| blocks.contains(&place.0);
        self.places.iter_mut().filter(is_chosen).for_each(|place| place.1 = false);
    }

    fn age(&self, place: usize) -> Age {
        let (segment, slot) = (place as u32 / SLOTS_PER_SEGMENT, place as u32 % SLOTS_PER_SEGMENT);
        Age { segment: Sequence(u64::from(segment)), slot }
    }

    fn load(&self, now: Instant, requests: u64) -> CleaningLoad {
        let dirty = self.places.iter().filter(|place| place.1).count() as u64;
        let head = self.age(self.places.len());
        CleaningLoad { dirty, requests, head, ..CleaningLoad::quiet(now) }
    }
}

impl DirtyData for Fake {
    fn oldest(&mut self, from: &mut Age, until: Age, most: Walk) -> Vec<CoreBlock> {
        let mut blocks = Vec::new();
        for (place, (block, is_dirty)) in self.places.iter().enumerate() {
            let age = self.age(place);
            if age < *from || age >= until || blocks.len() >= most.blocks {
                continue;
            }
            *from = self.age(place + 1);
            if *is_dirty {
                blocks.push(*block);
            }
        }
        *from = (*from).max(if blocks.len() < most.blocks { until } else { *from });
        blocks
    }

    fn dirtiest(&self) -> Option<Chunk> {
        self.chunks.dirtiest()
    }

    fn run_of(&self, chunk: Chunk) -> BlockRun {
        Chunks::run_of(chunk)
    }

    fn dirty_in(&mut self, run: BlockRun, most: usize) -> Vec<CoreBlock> {
        let is_inside = |block: &CoreBlock| run.first <= *block && *block < run.end();
        let dirty = self.places.iter().filter(|place| place.1).map(|place| place.0);
        let mut blocks: Vec<CoreBlock> = dirty.filter(is_inside).collect();
        blocks.sort_unstable();
        blocks.truncate(most);
        blocks.iter().for_each(|block| self.chunks.remove(*block));
        self.clean(&blocks);
        blocks
    }
}

/// What a policy has cleaned by the time it stops of itself.
fn until_it_rests(policy: &mut dyn Policy, fake: &mut Fake, load: &CleaningLoad) -> Vec<u64> {
    let mut cleaned = Vec::new();
    while policy.speed(load).in_flight_max > 0
        && let Choice::Round(blocks) = policy.choose(load, fake)
    {
        assert!(blocks.is_sorted());
        fake.clean(&blocks);
        cleaned.extend(blocks.iter().map(|block| block.0));
        policy.speed(&CleaningLoad { in_flight: 1, ..*load });
    }
    cleaned.sort_unstable();
    cleaned
}

/// The textbook: a time for each dirty block.
#[derive(Default)]
struct ListAlru {
    written: BTreeMap<u64, u64>,
    requests: u64,
    active_at: u64,
    nothing_at: Option<u64>,
    is_over: bool,
}

impl ListAlru {
    fn clean(&mut self, config: &AlruConfig, second: u64, requests: u64, most: u64) -> Vec<u64> {
        if requests != self.requests || second == 0 {
            (self.requests, self.active_at) = (requests, second);
        }
        let inertia = u64::from(config.dirty_ratio_inertia_mib) * 256;
        let begins_at = most * u64::from(config.dirty_ratio_threshold_percent) / 100;
        let dirty = self.written.len() as u64;
        let limit = if self.is_over { begins_at.saturating_sub(inertia) } else { begins_at };
        self.is_over = config.dirty_ratio_threshold_percent < 100 && dirty > 0 && dirty >= limit;
        let is_active =
            second * 1000 < self.active_at * 1000 + u64::from(config.activity_threshold_ms);
        let pause = u64::from(config.wake_up_s).max(1);
        let sleeps = self.nothing_at.is_some_and(|at| second < at + pause);
        if sleeps || is_active && !self.is_over {
            return Vec::new();
        }
        // A write counts from the next whole second on.
        let staleness = u64::from(config.staleness_s);
        let is_stale = |written: &u64| written + 1 + staleness <= second || self.is_over;
        let stale: Vec<u64> =
            self.written.iter().filter(|(_, at)| is_stale(at)).map(|(block, _)| *block).collect();
        self.written.retain(|block, _| !stale.contains(block));
        self.nothing_at = Some(second);
        stale
    }
}

proptest! {
    #[test]
    fn alru_cleans_what_a_list_with_times_would_clean_and_when(
        seconds in prop::collection::vec(prop::collection::vec(0u64..40, 0..4), 1..80),
        wake_up_s in 0u32..6,
        staleness_s in 1u32..10,
        activity_threshold_ms in prop::sample::select(vec![0u32, 2000, 4000]),
        dirty_ratio_threshold_percent in prop::sample::select(vec![3u32, 100]),
        quiet_from in 20usize..80,
    ) {
        let config = AlruConfig {
            wake_up_s,
            staleness_s,
            flush_max_buffers: 10_000,
            activity_threshold_ms,
            dirty_ratio_threshold_percent,
            dirty_ratio_inertia_mib: 0,
        };
        let (mut alru, mut list) = (Alru::new(config), ListAlru::default());
        let (mut fake, mut requests) = (Fake::new(), 0);
        for second in 0..seconds.len() + 30 {
            let now = Instant::START + Duration::from_secs(second as u64);
            let load = fake.load(now, requests);
            let ours = until_it_rests(&mut alru, &mut fake, &load);
            let theirs = list.clean(&config, second as u64, requests, load.dirty_max);
            prop_assert_eq!(ours, theirs, "at second {}", second);
            let writes = seconds.get(second).filter(|_| second < quiet_from);
            for &block in writes.into_iter().flatten() {
                fake.write(block);
                list.written.insert(block, second as u64);
                requests += 1;
            }
        }
    }
}

#[test]
fn alru_takes_the_oldest_first_in_rounds_and_goes_on_at_once() {
    let config = AlruConfig {
        wake_up_s: 0,
        staleness_s: 1,
        flush_max_buffers: 3,
        activity_threshold_ms: 0,
        ..AlruConfig::default()
    };
    let (mut alru, mut fake) = (Alru::new(config), Fake::new());
    [9, 1, 5, 7, 2].into_iter().for_each(|block| fake.write(block));
    let at = |second| Instant::START + Duration::from_secs(second);
    alru.speed(&fake.load(at(0), 5));
    let load = fake.load(at(2), 5);
    alru.speed(&load);
    let Choice::Round(first) = alru.choose(&load, &mut fake) else { panic!("a round") };
    assert_eq!(first, [CoreBlock(1), CoreBlock(5), CoreBlock(9)]);
    // While it is under way, no other.
    assert_eq!(alru.choose(&CleaningLoad { in_flight: 3, ..load }, &mut fake), Choice::Nothing);
    fake.clean(&first);
    alru.speed(&CleaningLoad { in_flight: 1, ..load });
    assert!(alru.speed(&load).in_flight_max > 0, "the next follows at once");
    let second = alru.choose(&load, &mut fake);
    assert_eq!(second, Choice::Round(vec![CoreBlock(2), CoreBlock(7)]));
}

#[test]
fn acp_goes_through_the_dirtiest_chunk_in_rounds_and_pauses_between() {
    let mut acp = Acp::new(AcpConfig { wake_up_ms: 10, flush_max_buffers: 4 });
    let mut fake = Fake::new();
    let chunk = 25_600;
    fake.write(3);
    (0..3000).for_each(|block| fake.write(chunk + block * 2));
    let at = |ms| Instant::START + Duration::from_millis(ms);
    let load = |ms| CleaningLoad { dirty: 3001, ..CleaningLoad::quiet(at(ms)) };
    let first = acp.choose(&load(0), &mut fake);
    let blocks =
        |from: u64| Choice::Round((from..from + 4).map(|it| CoreBlock(chunk + it * 2)).collect());
    assert_eq!(first, blocks(0));
    acp.speed(&CleaningLoad { in_flight: 4, ..load(1) });
    let speed = acp.speed(&load(2));
    assert_eq!((speed.in_flight_max, speed.ask_again), (0, Some(at(12))));
    assert!(acp.speed(&load(12)).in_flight_max > 0);
    assert_eq!(acp.choose(&load(12), &mut fake), blocks(4));
}
