//! What a slice does while it runs, on simulated devices.

use crate::bench::{Bench, block, simulate};
use crate::machine::{Machine, small_cleaning};
use headpond_block::BlockDevice;
use headpond_cache::{CleaningConfig, CleaningPolicy, Mode, SliceConfig};
use headpond_sim::Ended;
use headpond_witness::Workload;
use std::time::Duration;

pub const LONG: Workload = Workload {
    requests: 4000,
    depth: 16,
    blocks: 8192,
    blocks_max: 16,
    flush_percent: 1,
    discard_percent: 1,
    sector_percent: 10,
    ..Workload::BUSY
};

fn work(
    config: SliceConfig,
    unit_bytes: u32,
    workload: &Workload,
    seed: u64,
) -> crate::machine::Work {
    let machine = Machine::new(config, unit_bytes, seed);
    machine.create(seed);
    let Ended::Finished(work) = machine.work(seed, workload, true) else { panic!("no cut") };
    work.verdict.as_ref().unwrap_or_else(|verdict| panic!("{verdict}"));
    assert_eq!(work.tally.failed_reads + work.tally.failed_others, 0);
    let Ended::Finished(again) = machine.work(seed + 1, &Workload { requests: 50, ..LONG }, true)
    else {
        panic!("no cut")
    };
    again.verdict.unwrap_or_else(|verdict| panic!("{verdict}"));
    assert!(again.recovery.was_clean);
    work
}

fn config(mode: Mode, policy: CleaningPolicy) -> SliceConfig {
    let cleaning = CleaningConfig { policy, ..small_cleaning() };
    SliceConfig { mode, cleaning, ..SliceConfig::default() }
}

#[test]
fn full_of_dirty_data_without_a_cleaner_goes_past_the_cache_and_never_hangs() {
    let work = work(config(Mode::WriteBack, CleaningPolicy::Nop), 4096, &LONG, 1);
    assert!(work.stats.counters.bypass.dirty_limit > 100);
    assert!(work.stats.counters.segments_reclaimed > 0);
    assert!(work.stats.dirty_ratio > 0.9);
}

#[test]
fn full_of_dirty_data_waits_for_the_cleaner() {
    for unit_bytes in [512, 4096] {
        let config = config(Mode::WriteBack, CleaningPolicy::Stripe);
        let work = work(config, unit_bytes, &LONG, 2);
        assert_eq!(work.stats.counters.bypass.dirty_limit, 0);
        assert!(work.stats.counters.cleaned_blocks > 1000);
        assert!(work.stats.counters.segments_reclaimed > 10);
    }
}

#[test]
fn other_modes_agree_with_the_witness() {
    let modes = [Mode::WriteThrough, Mode::WriteAround, Mode::WriteInvalidate, Mode::PassThrough];
    for mode in modes {
        let work = work(config(mode, CleaningPolicy::Stripe), 4096, &LONG, 3);
        assert_eq!(work.stats.dirty_bytes, 0);
    }
    let work = work(config(Mode::WriteOnly, CleaningPolicy::Stripe), 4096, &LONG, 3);
    assert_eq!(work.stats.counters.inserted_blocks, 0);
}

/// Whoever detaches a cache gives its device to somebody else at once.
#[test]
fn a_slice_that_has_ended_lets_go_of_its_devices_though_a_flush_of_the_core_was_due() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let before = std::rc::Rc::strong_count(&bench.cache);
        let cleaning = CleaningConfig { core_flush_interval_ms: 60_000, ..small_cleaning() };
        let config = SliceConfig { mode: Mode::WriteThrough, cleaning, ..SliceConfig::default() };
        let slice = bench.open(config).await;
        let device: &dyn BlockDevice = &slice;
        for place in 0..100 {
            device.write(place * 4096, block(place as u8)).await.unwrap();
        }
        runtime.sleep(Duration::from_millis(5)).await;
        slice.stop().await.unwrap();
        drop(slice);
        runtime.sleep(Duration::from_millis(1)).await;
        assert_eq!(std::rc::Rc::strong_count(&bench.cache), before);
    });
}
