//! Power cuts at every device operation of short workloads, judged by the witness.

use crate::machine::{Machine, small_cleaning};
use headpond_cache::{
    AlruConfig, BypassPolicy, CleaningConfig, CleaningPolicy, Mode, SliceConfig, StripeConfig,
};
use headpond_sim::{Ended, OperationTime};
use headpond_witness::Workload;
use std::time::Duration;

const SHORT: Workload = Workload {
    requests: 40,
    depth: 6,
    blocks: 24,
    blocks_max: 4,
    flush_percent: 12,
    discard_percent: 5,
    sector_percent: 20,
    ..Workload::BUSY
};

fn config(mode: Mode, policy: CleaningPolicy) -> SliceConfig {
    let stripe = StripeConfig { low_percent: 0, target_percent: 0, ..StripeConfig::default() };
    let alru = AlruConfig { activity_threshold_ms: 0, staleness_s: 1, ..AlruConfig::default() };
    let cleaning = CleaningConfig { policy, stripe, alru, ..small_cleaning() };
    let discard = policy == CleaningPolicy::Stripe;
    SliceConfig { mode, cleaning, discard, ..SliceConfig::default() }
}

fn sweep(config: SliceConfig, unit_bytes: u32, workload: &Workload, seed: u64, step: usize) -> u64 {
    let machine = || Machine::new(config.clone(), unit_bytes, seed);
    sweep_on(machine, workload, seed, step)[0]
}

/// Cuts the workload at every `step`-th device operation, recovers, judges, works on and cuts
/// again. Answers how many checkpoints the lives took that were not cut, and how many blocks they
/// completed.
fn sweep_on(
    machine: impl Fn() -> Machine,
    workload: &Workload,
    seed: u64,
    step: usize,
) -> [u64; 2] {
    let (mut cuts, mut checkpoints, mut completed) = (0, 0, 0);
    for at in (0..).step_by(step) {
        let machine = machine();
        machine.create(seed);
        machine.power.cut_after(at);
        let mut ended = machine.work(seed, workload, true);
        let finished = !ended.was_cut();
        for life in 1..4 {
            if let Ended::Finished(work) = ended {
                work.verdict.unwrap_or_else(|verdict| panic!("cut {at} seed {seed}: {verdict}"));
                assert_eq!(work.tally.failed_reads + work.tally.failed_others, 0);
                checkpoints += work.stats.counters.checkpoints;
                completed += work.stats.counters.parts_completed;
            } else {
                cuts += 1;
            }
            machine.crash(seed + at + life);
            if life == 1 {
                machine.power.cut_after(at * 7 % 400 + life);
            }
            ended = machine.work(seed + at + life, workload, life == 2);
        }
        if finished {
            break;
        }
    }
    assert!(cuts > 20, "the sweep cut only {cuts} times");
    [checkpoints, completed]
}

#[test]
fn write_back_keeps_its_promises_at_every_cut() {
    sweep(config(Mode::WriteBack, CleaningPolicy::Nop), 4096, &SHORT, 1, 3);
}

#[test]
fn write_back_with_cleaner_keeps_its_promises_at_every_cut() {
    sweep(config(Mode::WriteBack, CleaningPolicy::Stripe), 512, &SHORT, 2, 5);
}

/// So that parts of blocks are completed while others are on their way.
const SLOW: OperationTime =
    OperationTime { shortest: Duration::from_millis(5), longest: Duration::from_millis(40) };

/// Hardly anything but parts of blocks, of which the log has more than one by the time that they
/// are completed, checkpoints in between, and a core that is slower than that.
#[test]
fn parts_of_blocks_keep_their_promises_at_every_cut() {
    let sectors = Workload { sector_percent: 85, blocks: 200, blocks_max: 2, depth: 8, ..SHORT };
    for (policy, unit_bytes, line_bytes, every, seed) in [
        (CleaningPolicy::Nop, 512, 4096, 0, 41),
        (CleaningPolicy::Stripe, 512, 64 << 10, 1, 42),
        (CleaningPolicy::Alru, 4096, 4096, 1, 43),
    ] {
        let config =
            SliceConfig { checkpoint_every_bytes: every, ..config(Mode::WriteBack, policy) };
        let machine = || Machine {
            cache_time: SLOW,
            ..Machine::new(config.clone(), unit_bytes, seed).with_lines(line_bytes)
        };
        let sectors = Workload { requests: 90, read_percent: 15, ..sectors };
        let [_, completed] = sweep_on(machine, &sectors, seed, 7);
        assert!(completed > 100, "{completed}");
    }
}

/// The cache is full, small, and has little but parts, which reclaim carries on.
#[test]
fn parts_of_blocks_keep_their_promises_under_pressure() {
    let sectors = Workload { sector_percent: 60, ..PRESSURE };
    for (seed, every, line_bytes) in [(51, 0, 4096), (52, 1, 64 << 10)] {
        let config = SliceConfig {
            checkpoint_every_bytes: every,
            ..config(Mode::WriteBack, CleaningPolicy::Stripe)
        };
        let machine = Machine::new(config, 512, seed).with_lines(line_bytes);
        let machine = Machine { cache_time: SLOW, ..machine };
        let [.., completed] = lives_under_pressure(machine, &sectors, seed);
        assert!(completed > 100, "{completed}");
    }
}

#[test]
fn write_through_keeps_its_promises_at_every_cut() {
    sweep(config(Mode::WriteThrough, CleaningPolicy::Stripe), 4096, &SHORT, 3, 5);
}

/// With many requests past a cache that is slower than its core.
#[test]
fn adaptive_bypass_keeps_its_promises_at_any_cut() {
    let slow =
        OperationTime { shortest: Duration::from_millis(2), longest: Duration::from_millis(4) };
    let config = config(Mode::WriteBack, CleaningPolicy::Stripe);
    let config = SliceConfig { bypass: BypassPolicy::Adaptive, ..config };
    let busy = Workload { requests: 6000, depth: 8, blocks: 4096, ..SHORT };
    let workload = Workload { flush_percent: 3, sector_percent: 5, ..busy };
    let machine = |seed| {
        let machine = Machine { cache_time: slow, ..Machine::new(config.clone(), 4096, seed) };
        machine.create(seed);
        machine
    };
    let Ended::Finished(whole) = machine(1).work(1, &workload, true) else { panic!("no cut") };
    whole.verdict.unwrap_or_else(|verdict| panic!("{verdict}"));
    let past = whole.stats.counters.bypass.adaptive;
    assert!(past > 500, "{past} of {} went past", whole.stats.counters.requests());
    for at in (3000..12_000).step_by(1100) {
        let (machine, seed) = (machine(1 + at % 7), 1 + at % 7);
        machine.power.cut_after(at);
        assert!(machine.work(seed, &workload, true).was_cut(), "cut {at}");
        machine.crash(seed + at);
        let short = Workload { requests: 50, ..workload };
        let Ended::Finished(after) = machine.work(seed + at, &short, true) else {
            panic!("no cut")
        };
        after.verdict.unwrap_or_else(|verdict| panic!("cut {at}: {verdict}"));
    }
}

#[test]
fn pass_through_keeps_its_promises_at_every_cut() {
    // Past the cache the disk itself may put an older part of a block over a newer whole.
    let whole = Workload { sector_percent: 0, ..SHORT };
    sweep(config(Mode::PassThrough, CleaningPolicy::Stripe), 4096, &whole, 4, 5);
}

#[test]
fn modes_that_write_around_the_cache_keep_their_promises_at_every_cut() {
    // As above.
    let whole = Workload { sector_percent: 0, ..SHORT };
    sweep(config(Mode::WriteAround, CleaningPolicy::Stripe), 4096, &whole, 5, 5);
    sweep(config(Mode::WriteInvalidate, CleaningPolicy::Stripe), 4096, &whole, 6, 5);
    sweep(config(Mode::WriteOnly, CleaningPolicy::Nop), 4096, &SHORT, 7, 5);
}

#[test]
fn long_lines_keep_their_promises_at_every_cut() {
    for (line_bytes, policy, unit_bytes) in [
        (64 << 10, CleaningPolicy::Nop, 512),
        (64 << 10, CleaningPolicy::Stripe, 4096),
        (1 << 20, CleaningPolicy::Stripe, 512),
    ] {
        let config = config(Mode::WriteBack, policy);
        let machine = || Machine::new(config.clone(), unit_bytes, 5).with_lines(line_bytes);
        sweep_on(machine, &Workload { blocks: 96, blocks_max: 20, ..SHORT }, 5, 7);
    }
}

/// A checkpoint after every segment, and a reach that writers run into.
fn with_checkpoints(config: SliceConfig) -> SliceConfig {
    SliceConfig { checkpoint_every_bytes: 1, ..config }
}

/// Enough for several checkpoints in each life, and cuts in all of them.
fn checkpoints_keep_the_promises(step: usize, checkpoints_min: u64) {
    let long = Workload { requests: 260, depth: 8, blocks: 400, blocks_max: 16, ..SHORT };
    for (mode, policy, unit_bytes, seed) in [
        (Mode::WriteBack, CleaningPolicy::Nop, 4096, 21),
        (Mode::WriteBack, CleaningPolicy::Stripe, 512, 22),
        (Mode::WriteThrough, CleaningPolicy::Stripe, 4096, 23),
        (Mode::WriteBack, CleaningPolicy::Ordered, 4096, 24),
    ] {
        let config = with_checkpoints(config(mode, policy));
        let checkpoints = sweep(config, unit_bytes, &long, seed, step);
        assert!(checkpoints > checkpoints_min, "only {checkpoints}");
    }
}

#[test]
fn checkpoints_keep_the_promises_at_many_cuts() {
    checkpoints_keep_the_promises(67, 25);
}

#[test]
fn full_cache_with_checkpoints_keeps_its_promises() {
    for (seed, policy, line_bytes) in [
        (31, CleaningPolicy::Nop, 4096),
        (32, CleaningPolicy::Stripe, 4096),
        (33, CleaningPolicy::Stripe, 64 << 10),
        (34, CleaningPolicy::Ordered, 4096),
    ] {
        let config = with_checkpoints(config(Mode::WriteBack, policy));
        let machine = Machine::new(config, 4096, seed).with_lines(line_bytes);
        let checkpoints = under_pressure_on(machine, seed);
        assert!(checkpoints > 10, "only {checkpoints}");
    }
}

/// A cache that is always full, cut while it reclaims and cleans, life after life.
fn under_pressure(config: SliceConfig, seed: u64) {
    under_pressure_on(Machine::new(config, 4096, seed), seed);
}

const PRESSURE: Workload = Workload {
    requests: 1500,
    depth: 12,
    blocks: 6000,
    blocks_max: 12,
    flush_percent: 3,
    fua_percent: 3,
    read_percent: 10,
    discard_percent: 2,
    sector_percent: 5,
    ..Workload::BUSY
};

fn under_pressure_on(machine: Machine, seed: u64) -> u64 {
    let [checkpoints, ..] = lives_under_pressure(machine, &PRESSURE, seed);
    checkpoints
}

/// Checkpoints that were taken, and blocks that were ended for their extents, and completed.
fn lives_under_pressure(machine: Machine, workload: &Workload, seed: u64) -> [u64; 3] {
    machine.create(seed);
    let (mut reclaimed, mut cuts, mut checkpoints, mut thinned) = (0, 0, 0, 0);
    let mut completed = 0;
    for life in 0..12 {
        machine.power.cut_after(700 + (seed + life) * 977 % 4000);
        match machine.work(seed * 100 + life, workload, life % 5 == 4) {
            Ended::Finished(work) => {
                work.verdict.unwrap_or_else(|verdict| panic!("life {life} seed {seed}: {verdict}"));
                reclaimed += work.stats.counters.segments_reclaimed;
                checkpoints += work.stats.counters.checkpoints;
                thinned += work.stats.counters.thinned_blocks;
                completed += work.stats.counters.parts_completed;
            }
            Ended::Cut => cuts += 1,
        }
        machine.crash(seed + life);
    }
    let Ended::Finished(work) = machine.work(seed, workload, true) else { panic!("no cut") };
    work.verdict.unwrap_or_else(|verdict| panic!("seed {seed}: {verdict}"));
    reclaimed += work.stats.counters.segments_reclaimed;
    checkpoints += work.stats.counters.checkpoints;
    thinned += work.stats.counters.thinned_blocks;
    completed += work.stats.counters.parts_completed;
    assert!(cuts > 5 && reclaimed > 10, "{cuts} cuts, {reclaimed} segments");
    [checkpoints, thinned, completed]
}

#[test]
fn full_cache_without_cleaner_keeps_its_promises() {
    (1..3).for_each(|seed| under_pressure(config(Mode::WriteBack, CleaningPolicy::Nop), seed));
}

#[test]
fn full_cache_with_cleaner_keeps_its_promises() {
    (4..6).for_each(|seed| under_pressure(config(Mode::WriteBack, CleaningPolicy::Stripe), seed));
    for (seed, policy) in [(7, CleaningPolicy::Alru), (8, CleaningPolicy::Acp)] {
        under_pressure(config(Mode::WriteBack, policy), seed);
    }
}

/// The pool for scattered lines is used up, and cuts bring back what had been superseded.
#[test]
fn full_cache_with_long_lines_keeps_its_promises() {
    for (seed, line_bytes) in [(11, 64 << 10), (12, 16 << 10), (13, 1 << 20)] {
        for policy in [CleaningPolicy::Stripe, CleaningPolicy::Nop] {
            let machine = Machine::new(config(Mode::WriteBack, policy), 4096, seed);
            under_pressure_on(machine.with_lines(line_bytes), seed);
        }
    }
}

/// Single blocks all over the core: the cleaner ends them by tombstones, and what is discarded
/// afterwards goes past the cache.
#[test]
fn blocks_that_were_ended_for_their_extents_do_not_come_back() {
    let scattered =
        Workload { requests: 4000, blocks: 12_000, blocks_max: 1, discard_percent: 20, ..PRESSURE };
    for (seed, line_bytes) in [(41, 64 << 10), (42, 1 << 20), (43, 32 << 10)] {
        let config = config(Mode::WriteBack, CleaningPolicy::Stripe);
        let machine = Machine::new(config, 4096, seed).with_lines(line_bytes);
        let [_, thinned, _] = lives_under_pressure(machine, &scattered, seed);
        assert!(thinned > 300, "{thinned}");
    }
}

#[test]
fn full_write_through_cache_keeps_its_promises() {
    (8..10)
        .for_each(|seed| under_pressure(config(Mode::WriteThrough, CleaningPolicy::Stripe), seed));
}

/// Cuts at consecutive operations while segments are being reclaimed one after the other.
fn cut_in_reclaim(cuts: impl Iterator<Item = u64>) {
    let workload = Workload {
        requests: 1200,
        depth: 12,
        blocks: 3000,
        blocks_max: 16,
        flush_percent: 4,
        read_percent: 0,
        zeroes_percent: 0,
        fua_percent: 0,
        ..Workload::BUSY
    };
    for at in cuts {
        let machine = Machine::new(config(Mode::WriteBack, CleaningPolicy::Nop), 4096, 1);
        machine.create(1);
        machine.power.cut_after(1500 + at * 11);
        assert!(machine.work(at, &workload, false).was_cut());
        machine.crash(at);
        let Ended::Finished(work) = machine.work(at, &Workload { requests: 1, ..workload }, false)
        else {
            panic!("no cut")
        };
        work.verdict.unwrap_or_else(|verdict| panic!("cut {at}: {verdict}"));
    }
}

#[test]
fn cut_in_reclaim_loses_nothing() {
    cut_in_reclaim((0..70).step_by(4));
}

/// Dirty data is drained, overtaken by writes past the cache, and covered again, under way and cut.
#[test]
fn switching_modes_on_the_live_slice_keeps_its_promises() {
    let workload = Workload {
        requests: 300,
        blocks: 40,
        flush_percent: 4,
        fua_percent: 30,
        read_percent: 10,
        // Past the cache the disk itself may put an older part of a block over a newer whole.
        sector_percent: 0,
        ..SHORT
    };
    for at in 0..40 {
        let mut machine = Machine::new(config(Mode::WriteBack, CleaningPolicy::Stripe), 4096, at);
        machine.modes = vec![
            Mode::WriteBack,
            Mode::PassThrough,
            Mode::WriteAround,
            Mode::WriteOnly,
            Mode::WriteInvalidate,
            Mode::WriteThrough,
        ];
        machine.create(at);
        for life in 0..4 {
            machine.power.cut_after(200 + (at * 31 + life * 17) % 900);
            if let Ended::Finished(work) = machine.work(at * 10 + life, &workload, life == 2) {
                work.verdict.unwrap_or_else(|verdict| panic!("{at}, life {life}: {verdict}"));
            }
            machine.crash(at + life);
        }
        let Ended::Finished(work) = machine.work(at, &workload, true) else { panic!("no cut") };
        work.verdict.unwrap_or_else(|verdict| panic!("{at}: {verdict}"));
    }
}

/// Lives so short that the log goes round only over many of them, and with so few flushes that
/// whole segments of it are lost: their successors must still be told from them by the tail.
#[test]
fn many_short_lives_go_round_the_log() {
    let workload = Workload {
        requests: 1500,
        depth: 16,
        blocks: 768,
        blocks_max: 16,
        read_percent: 15,
        flush_percent: 1,
        fua_percent: 0,
        ..Workload::BUSY
    };
    for seed in 0..4 {
        let config = config(Mode::WriteBack, CleaningPolicy::Stripe);
        let machine = Machine::new(config, if seed % 2 == 0 { 512 } else { 4096 }, seed);
        machine.create(seed);
        for life in 0..60 {
            machine.power.cut_after(40 + (seed + life) * 7919 % 900);
            if let Ended::Finished(work) = machine.work(seed * 100 + life, &workload, false) {
                work.verdict.unwrap_or_else(|verdict| panic!("{seed}, life {life}: {verdict}"));
            }
            machine.crash(seed * 100 + life);
        }
        let Ended::Finished(work) = machine.work(seed, &workload, true) else { panic!("no cut") };
        work.verdict.unwrap_or_else(|verdict| panic!("{seed}: {verdict}"));
    }
}

/// The same at more cuts, for `make conclusions`.
mod conclusions {
    use super::*;

    #[test]
    fn checkpoints_keep_the_promises_at_every_cut() {
        checkpoints_keep_the_promises(17, 100);
    }

    #[test]
    fn cut_anywhere_in_reclaim_loses_nothing() {
        cut_in_reclaim(0..70);
    }
}
