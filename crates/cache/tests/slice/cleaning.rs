//! What each policy does with dirty data, seen from outside: when, in which order, in which writes.

use crate::bench::{Bench, block, byte_at, nop, simulate};
use crate::machine::{CACHE_BYTES, CORE_BYTES, EXPECTED, options};
use headpond_block::decorators::{Fault, FaultRule, ProbeDevice};
use headpond_block::devices::RamDevice;
use headpond_block::{
    BlockDevice, ByteRange, Geometry, RequestKind, Runtime, Stability, StripeGeometry,
};
use headpond_cache::{
    AcpConfig, AlruConfig, CleaningConfig, CleaningPolicy, CleaningPreset, Foundation, Slice,
    SliceConfig, create, load,
};
use std::rc::Rc;
use std::time::Duration;

const BLOCK: u64 = 4096;

/// A slice whose core is watched, and has stripes of eight blocks.
struct Watched {
    bench: Bench,
    slice: Slice,
    core: Rc<ProbeDevice>,
}

impl Watched {
    async fn new(runtime: &Runtime, cleaning: CleaningConfig) -> Self {
        Self::on(Bench::new(runtime).await, cleaning).await
    }

    async fn on(bench: Bench, cleaning: CleaningConfig) -> Self {
        let runtime = &bench.runtime;
        let stripe = StripeGeometry { strip_bytes: 2 * 4096, width_bytes: 8 * 4096 };
        let geometry = Geometry {
            stability: Stability::Flushable,
            stripe: Some(stripe),
            ..Geometry::of_size(CORE_BYTES)
        };
        let core = Rc::new(RamDevice::with_geometry("core", geometry));
        let core = Rc::new(ProbeDevice::new(core, runtime.clone()));
        let watched: Rc<dyn BlockDevice> = core.clone();
        let foundation = Foundation { core: watched, ..bench.foundation() };
        let superblock = load(&*bench.cache).await.unwrap();
        let config = SliceConfig { cleaning, ..SliceConfig::default() };
        let slice = Slice::open(foundation, &superblock, EXPECTED, 0, config).await.unwrap().0;
        Self { bench, slice, core }
    }

    async fn write(&self, number: u64, byte: u8) {
        (&self.slice as &dyn BlockDevice).write(number * BLOCK, block(byte)).await.unwrap();
    }

    async fn sleep(&self, time: Duration) {
        self.bench.runtime.sleep(time).await;
    }

    /// Blocks that are dirty.
    fn dirty(&self) -> u64 {
        self.slice.stats().dirty_bytes / BLOCK
    }

    fn set(&self, cleaning: CleaningConfig) {
        self.slice.set_config(SliceConfig { cleaning, ..self.slice.config() }).unwrap();
    }

    /// What was written to the core lately, as first block and count.
    fn core_writes(&self) -> Vec<(u64, u64)> {
        let run = |range: ByteRange| (range.start() / BLOCK, range.len() / BLOCK);
        let recent = self.core.recent();
        let writes = recent.iter().filter(|(kind, _)| *kind == RequestKind::Write);
        writes.map(|(_, range)| run(*range)).collect()
    }
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn with(policy: CleaningPolicy) -> CleaningConfig {
    CleaningConfig { policy, ..CleaningConfig::default() }
}

#[test]
fn alru_cleans_what_is_stale_when_nobody_has_come_for_a_while() {
    simulate(async |runtime| {
        let alru = AlruConfig { wake_up_s: 1, staleness_s: 30, ..AlruConfig::default() };
        let cleaning = CleaningConfig { alru, ..with(CleaningPolicy::Alru) };
        let watched = Watched::new(&runtime, cleaning).await;
        watched.write(70, 1).await;
        watched.sleep(seconds(20)).await;
        watched.write(8, 2).await;
        watched.sleep(seconds(9)).await;
        assert_eq!(watched.dirty(), 2);
        // The first is stale now, and the last request nearly ten seconds ago.
        watched.sleep(seconds(4)).await;
        assert_eq!(watched.dirty(), 1);
        assert_eq!(watched.core_writes(), [(70, 1)]);
        for _ in 0..12 {
            // Reads keep it from the second one.
            byte_at(&watched.slice, 0).await.unwrap();
            watched.sleep(seconds(5)).await;
        }
        assert_eq!(watched.dirty(), 1);
        watched.sleep(seconds(15)).await;
        assert_eq!(watched.dirty(), 0);
    });
}

#[test]
fn alru_above_its_dirty_ratio_cleans_young_data_under_load() {
    simulate(async |runtime| {
        let mut cleaning = with(CleaningPolicy::Alru);
        cleaning.alru.dirty_ratio_threshold_percent = 1;
        cleaning.alru.dirty_ratio_inertia_mib = 0;
        let watched = Watched::new(&runtime, cleaning).await;
        let most = watched.slice.stats().dirty_bytes_max / BLOCK / 100;
        for number in 0..4 * most {
            watched.write(number * 3, 1).await;
            watched.sleep(Duration::from_millis(300)).await;
        }
        assert!(watched.dirty() <= most + 8, "{} of {most}", watched.dirty());
    });
}

#[test]
fn acp_begins_with_the_region_that_has_the_most_and_never_waits_for_quiet() {
    simulate(async |runtime| {
        let acp = AcpConfig { wake_up_ms: 50, flush_max_buffers: 4 };
        let cleaning = CleaningConfig { acp, ..with(CleaningPolicy::Nop) };
        let watched = Watched::new(&runtime, cleaning).await;
        for number in 0..10 {
            watched.write(number * 2, 1).await;
        }
        watched.set(CleaningConfig { policy: CleaningPolicy::Acp, ..cleaning });
        for left in [6, 2, 0] {
            watched.sleep(Duration::from_millis(30)).await;
            assert_eq!(watched.dirty(), left);
            byte_at(&watched.slice, 1 << 20).await.unwrap();
            watched.sleep(Duration::from_millis(20)).await;
        }
    });
}

#[test]
fn stripe_leaves_a_little_dirt_alone_until_nobody_comes() {
    simulate(async |runtime| {
        let watched = Watched::new(&runtime, CleaningConfig::default()).await;
        for number in 0..10 {
            watched.write(number * 5, 1).await;
            watched.sleep(seconds(4)).await;
        }
        assert_eq!(watched.dirty(), 10);
        watched.sleep(seconds(2)).await;
        assert_eq!(watched.dirty(), 0);
    });
}

#[test]
fn gap_that_is_cached_and_clean_is_closed() {
    simulate(async |runtime| {
        let watched = Watched::new(&runtime, CleaningConfig::default()).await;
        for number in 0..3 {
            watched.write(number, 1).await;
        }
        watched.slice.flush_dirty().await.unwrap();
        watched.write(0, 2).await;
        watched.write(2, 2).await;
        watched.slice.flush_dirty().await.unwrap();
        assert_eq!(watched.core_writes(), [(0, 3), (0, 3)]);
        let counters = watched.slice.stats().counters;
        assert_eq!((counters.cleaned_blocks, counters.filled_blocks), (5, 1));
        watched.set(with(CleaningPolicy::Acp));
        watched.write(0, 3).await;
        watched.write(2, 3).await;
        watched.slice.flush_dirty().await.unwrap();
        let mut others = watched.core_writes().split_off(2);
        others.sort_unstable();
        assert_eq!(others, [(0, 1), (2, 1)], "other policies do not");
        for (number, byte) in [(0, 3), (1, 1), (2, 3)] {
            assert_eq!(byte_at(&*watched.core, number * BLOCK).await.unwrap(), byte);
        }
        watched.slice.self_check();
    });
}

#[test]
fn stripe_that_is_half_dirty_is_completed_from_the_cache() {
    simulate(async |runtime| {
        let watched = Watched::new(&runtime, CleaningConfig::default()).await;
        for number in 16..24 {
            watched.write(number, 1).await;
        }
        watched.slice.flush_dirty().await.unwrap();
        let before = watched.slice.stats().counters;
        for number in 18..22 {
            watched.write(number, 2).await;
        }
        // Of this stripe too little is dirty, and of the next one not all is cached.
        watched.write(24, 2).await;
        watched.slice.flush_dirty().await.unwrap();
        let mut writes = watched.core_writes();
        writes.sort_unstable();
        assert_eq!(writes, [(16, 8), (16, 8), (24, 1)]);
        let counters = watched.slice.stats().counters;
        assert_eq!(counters.filled_blocks - before.filled_blocks, 4);
        assert_eq!(counters.full_stripe_writes - before.full_stripe_writes, 1);
        watched.slice.self_check();
    });
}

/// This core does not turn.
#[test]
fn scattered_dirt_goes_oldest_first_with_what_is_dirty_beside_it() {
    simulate(async |runtime| {
        let cache = Rc::new(RamDevice::with_geometry("cache", Geometry::of_size(4 * CACHE_BYTES)));
        let bench = Bench { cache, ..Bench::new(&runtime).await };
        create(&*bench.cache, &options(4096)).await.unwrap();
        let watched = Watched::on(bench, CleaningConfig::default()).await;
        for round in 0..2 {
            for number in 0..1200 {
                watched.write(number * 13 % 1200 * 8, round).await;
            }
            watched.slice.flush_dirty().await.unwrap();
        }
        watched.set(with(CleaningPolicy::Nop));
        // A stripe of each, here and there: more than are put in order together.
        let order: Vec<u64> = (0..1201).map(|number| number * 700 % 1201 * 8).collect();
        for number in order.iter().copied().chain([order[5] + 1]) {
            watched.write(number, 3).await;
        }
        let before = watched.core.snapshot().writes.requests;
        watched.set(CleaningConfig::default());
        watched.sleep(seconds(10)).await;
        assert_eq!(watched.dirty(), 0);
        let writes = watched.core.snapshot().writes.requests - before;
        assert_eq!(writes, 1201, "the last one goes with one of the first");
        let youngest: Vec<_> = order[1024..].iter().map(|number| (*number, 1)).collect();
        let last = watched.core_writes();
        assert!(last.len() > 40 && last.iter().all(|it| youngest.contains(it)), "{last:?}");
        watched.slice.self_check();
    });
}

#[test]
fn policies_take_over_from_one_another_and_nothing_is_forgotten() {
    simulate(async |runtime| {
        let watched = Watched::new(&runtime, with(CleaningPolicy::Nop)).await;
        let default = CleaningConfig::default();
        let settings = [
            CleaningPreset::AlruVeryAggressive.apply(default),
            CleaningPreset::AcpVeryAggressive.apply(default),
            with(CleaningPolicy::Alru),
            with(CleaningPolicy::Acp),
            CleaningPreset::Lustre.apply(default),
            default,
        ];
        for (round, cleaning) in settings.into_iter().cycle().take(60).enumerate() {
            for number in 0..40 {
                watched.write((number * 37 + round as u64 * 11) % 900, round as u8).await;
            }
            watched.set(cleaning);
            watched.sleep(Duration::from_millis(round as u64 * 7 % 40)).await;
            watched.slice.self_check();
        }
        watched.set(CleaningPreset::AcpVeryAggressive.apply(default));
        watched.sleep(seconds(10)).await;
        assert_eq!(watched.dirty(), 0);
        watched.slice.self_check();
    });
}

#[test]
fn writes_that_find_no_room_have_the_oldest_cleaned_though_the_policy_rests() {
    for policy in [CleaningPolicy::Alru, CleaningPolicy::Acp] {
        simulate(async |runtime| {
            let acp = AcpConfig { wake_up_ms: 10_000, flush_max_buffers: 1 };
            let watched = Watched::new(&runtime, CleaningConfig { acp, ..with(policy) }).await;
            let most = watched.slice.stats().dirty_bytes_max / BLOCK;
            for number in 0..most + 500 {
                watched.write(number * 2, 1).await;
            }
            let counters = watched.slice.stats().counters;
            assert_eq!(counters.bypass.dirty_limit, 0, "{policy}");
            assert!((490..1100).contains(&counters.cleaned_blocks), "{policy}: {counters:?}");
            watched.slice.self_check();
        });
    }
}

/// What reclaim copies while it is on its way to the core is there with its original.
#[test]
fn what_reclaim_carries_on_while_it_is_cleaned_is_cleaned_once() {
    for line_bytes in [4096, 65536] {
        simulate(async |runtime| {
            let bench = Bench::with_lines(&runtime, line_bytes).await;
            let foundation = bench.foundation();
            let core = Rc::new(ProbeDevice::new(foundation.core.clone(), runtime.clone()));
            let foundation = Foundation { core: core.clone(), ..foundation };
            let superblock = load(&*bench.cache).await.unwrap();
            let opening = Slice::open(foundation, &superblock, EXPECTED, 0, nop());
            let slice = Rc::new(opening.await.unwrap().0);
            let device: &dyn BlockDevice = &*slice;
            device.write(0, block(7)).await.unwrap();
            let slow = FaultRule::on(RequestKind::Write, Fault::Delay(seconds(30)));
            bench.core_faults.add(slow);
            let cleaner = Rc::clone(&slice);
            let cleaned = runtime.spawn(async move { cleaner.flush_dirty().await });
            runtime.sleep(seconds(1)).await;
            for round in 0..3 * CACHE_BYTES / BLOCK {
                device.write(1 << 20, block(round as u8)).await.unwrap();
            }
            assert!(slice.stats().counters.reinserted_blocks > 0);
            bench.core_faults.clear();
            cleaned.await.unwrap();
            assert_eq!(slice.stats().dirty_bytes, BLOCK, "the other one");
            let first = (RequestKind::Write, ByteRange::at(0, BLOCK));
            assert_eq!(core.recent().iter().filter(|it| **it == first).count(), 1);
            assert_eq!(byte_at(&*bench.core, 0).await.unwrap(), 7);
            slice.self_check();
        });
    }
}
