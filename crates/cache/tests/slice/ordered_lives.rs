//! The core over many lives of its cache: a consistent past before, during and after every stop.
//!
//! The judge is that of `ordered`, which goes on through all lives: it looks at the core as it is
//! when a life ends, and as it is when its own memory is gone as well.

use crate::bench::{Bench, block, byte_at, simulate};
use crate::machine::Machine;
use crate::ordered::{History, config, image, work};
use headpond_block::decorators::{Fault, FaultRule};
use headpond_block::{BlockDevice, RequestKind, Runtime};
use headpond_cache::format::superblock::KEEPS_ORDER;
use headpond_cache::{CleaningPolicy, SliceConfig, StripeConfig, load, write_superblock};
use headpond_sim::{Random, Sim, run_until_cut};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

/// What of the order other lives have left.
#[derive(Default, Debug)]
struct Found {
    lives: u64,
    /// In which the core lacked more than one epoch, and was no mixture.
    in_order: u64,
    kept: u64,
}

struct Lives {
    machine: Machine,
    history: Rc<RefCell<History>>,
    found: Rc<RefCell<Found>>,
    random: Random,
}

impl Lives {
    fn new(config: SliceConfig, seed: u64) -> Self {
        let unit_bytes = if seed.is_multiple_of(2) { 512 } else { 4096 };
        let machine = Machine::new(config, unit_bytes, seed);
        machine.create(seed);
        let random = Random::new(seed);
        Self { machine, history: Rc::default(), found: Rc::default(), random }
    }

    /// Makes the cache one of before the order outlived a stop.
    fn forget_order(&self) {
        let main = async |runtime: Runtime, sim: Sim| {
            let cache = self.machine.disk(&self.machine.cache, &runtime, &sim);
            let mut superblock = load(&*cache).await.expect("a cache");
            superblock.features.incompat &= !KEEPS_ORDER;
            write_superblock(&*cache, &mut superblock).await.expect("writes");
        };
        assert!(!run_until_cut(1, &self.machine.power, main).expect("no deadlock").was_cut());
    }

    /// One life, which ends with a stop or a cut.
    fn live(&mut self, seed: u64) -> Result<(), String> {
        let stops = self.random.one_in(3);
        // Some are cut while they begin.
        let most = *self.random.pick(&[40, 400, 4000]);
        self.machine.power.cut_after(if stops { 1 << 40 } else { self.random.below(most) });
        let after = Duration::from_micros(500 + self.random.below(40_000));
        self.history.borrow_mut().is_over = false;
        let (history, found) = (Rc::clone(&self.history), Rc::clone(&self.found));
        let machine = &self.machine;
        let main = async |runtime: Runtime, sim: Sim| {
            let (slice, _) = machine.open(&runtime, &sim).await;
            if let Some(order) = slice.stats().order {
                let mut found = found.borrow_mut();
                found.lives += 1;
                found.in_order += u64::from(order.is_consistent && order.epochs_waiting > 1);
                found.kept += order.kept_blocks;
            }
            let workers: Vec<_> = (0..6)
                .map(|worker| {
                    let (slice, history) = (slice.clone(), Rc::clone(&history));
                    runtime.spawn(work(slice, history, runtime.clone(), seed * 100 + worker))
                })
                .collect();
            if stops {
                runtime.sleep(after).await;
                history.borrow_mut().is_over = true;
            }
            for worker in workers {
                worker.await;
            }
            slice.self_check();
            slice.stop().await.expect("stops");
        };
        let ended = run_until_cut(seed, &self.machine.power, main).expect("no deadlock");
        assert_eq!(ended.was_cut(), !stops);
        let judge = |when: &str| {
            let judged = self.history.borrow().judge(&image(&self.machine.core));
            judged.map_err(|told| format!("{when}: {told}"))
        };
        judge("as it is")?;
        self.machine.crash(seed);
        if !stops {
            self.history.borrow_mut().lose_power();
        }
        judge("without power")
    }
}

/// Eight lives with each seed; what the judge says of each.
fn live_on(
    seeds: impl IntoIterator<Item = u64>,
    config: &SliceConfig,
) -> (Vec<Result<(), String>>, Found) {
    let mut sum = Found::default();
    let judged = seeds.into_iter().map(|seed| {
        let mut lives = Lives::new(config.clone(), seed);
        let judged = (0..8).try_for_each(|life| {
            let judged = lives.live(seed * 1000 + life);
            judged.map_err(|told| format!("seed {seed}, life {life}: {told}"))
        });
        let found = lives.found.borrow();
        sum.lives += found.lives;
        sum.in_order += found.in_order;
        sum.kept += found.kept;
        judged
    });
    (judged.collect(), sum)
}

/// The cleaner takes its time, so that much is left at each stop.
fn lazy() -> SliceConfig {
    let mut config = config(CleaningPolicy::Ordered);
    config.cleaning.stripe = StripeConfig { low_percent: 0, ..StripeConfig::default() };
    config
}

fn assert_in_order(seeds: impl IntoIterator<Item = u64>, config: &SliceConfig) -> Found {
    let (judged, found) = live_on(seeds, config);
    judged.into_iter().for_each(|judged| judged.unwrap_or_else(|told| panic!("{told}")));
    found
}

fn order_goes_on(seeds: Range<u64>, kept_min: u64) {
    for config in [config(CleaningPolicy::Ordered), lazy()] {
        let found = assert_in_order(seeds.clone(), &config);
        assert!(found.in_order * 2 > found.lives, "it was hardly put to the test: {found:?}");
        assert!(found.kept > kept_min, "{found:?}");
    }
}

#[test]
fn order_goes_on_after_every_stop() {
    order_goes_on(0..12, 3000);
}

#[test]
fn order_goes_on_from_checkpoints_that_are_taken_while_it_serves() {
    let config = SliceConfig { checkpoint_every_bytes: 1, ..lazy() };
    let found = assert_in_order(100..130, &config);
    assert!(found.in_order * 2 > found.lives, "it was hardly put to the test: {found:?}");
}

/// Otherwise the tests above would prove nothing. A cache that was made before the order was kept
/// writes what is left at a stop as one lump.
#[test]
fn without_it_a_stop_leaves_a_mixture() {
    let is_mixture = |seed: u64| {
        let mut lives = Lives::new(config(CleaningPolicy::Ordered), seed);
        lives.forget_order();
        let judged = (0..8).try_for_each(|life| lives.live(seed * 1000 + life));
        assert_eq!(lives.found.borrow().in_order, 0, "and it says so");
        judged.is_err()
    };
    assert!((0..20).filter(|seed| is_mixture(*seed)).count() > 5);
}

/// The end of an epoch was taken to lie within the record behind it, where that has several blocks:
/// the first of them were of the epoch before.
#[test]
fn an_end_lies_before_all_of_the_record_behind_it() {
    assert_in_order([1213, 1517], &config(CleaningPolicy::Ordered));
}

/// A block that was written again while its parity was being settled was cleaned when that was
/// done, out of its order.
#[test]
fn what_waits_for_its_parity_is_not_cleaned_for_that() {
    assert_in_order([2], &config(CleaningPolicy::Ordered));
}

#[test]
fn parity_is_settled_without_a_change_of_contents() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let quiet = {
            let mut config = config(CleaningPolicy::Ordered);
            config.cleaning.stripe = StripeConfig::default();
            config
        };
        let core: &dyn BlockDevice = &*bench.core;
        core.write(0, block(9)).await.unwrap();
        let slice = bench.open(quiet.clone()).await;
        let device: &dyn BlockDevice = &slice;
        for byte in [1, 2] {
            device.write(0, block(byte)).await.unwrap();
            device.flush().await.unwrap();
        }
        drop(slice);
        let slice = bench.open(quiet).await;
        let order = || slice.stats().order.unwrap();
        assert_eq!((order().is_consistent, order().kept_blocks), (true, 1));
        assert_eq!(slice.stats().replayed_blocks, 1);
        let slow = FaultRule::on(RequestKind::Write, Fault::Delay(Duration::from_secs(1)));
        bench.core_faults.add(slow);
        let traffic = || slice.stats().counters.traffic.core;
        let mut told = Vec::new();
        while told.last() != Some(&2) {
            runtime.sleep(Duration::from_millis(100)).await;
            told.push(byte_at(&*bench.core, 0).await.unwrap());
            assert!(order().is_consistent);
        }
        told.dedup();
        assert_eq!(told, [9, 1, 2], "then both of them, in their order");
        slice.flush_dirty().await.unwrap();
        assert_eq!(traffic().written_by_cleaning, 3 * 4096);
    });
}

/// What the core is given while another policy is in force is in no order, and the next life knows.
#[test]
fn another_policy_ends_the_order_for_the_next_life_as_well() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let slice = bench.open(lazy()).await;
        let device: &dyn BlockDevice = &slice;
        for offset in [0, 4096] {
            device.write(offset, block(1)).await.unwrap();
            device.flush().await.unwrap();
        }
        slice.set_config(config(CleaningPolicy::Nop)).unwrap();
        runtime.sleep(Duration::from_secs(2)).await;
        drop(slice);
        let slice = bench.open(lazy()).await;
        assert!(!slice.stats().order.unwrap().is_consistent);
    });
}

/// What is being settled is dirty still when that is done.
#[test]
fn who_wants_everything_cleaned_waits_for_what_is_being_settled() {
    for wait_ms in [0, 10, 60, 110] {
        simulate(async |runtime| {
            let bench = Bench::new(&runtime).await;
            let mut quiet = config(CleaningPolicy::Ordered);
            quiet.cleaning.stripe = StripeConfig::default();
            let slice = bench.open(quiet.clone()).await;
            let device: &dyn BlockDevice = &slice;
            for at in 0..4 {
                device.write(at * 3 * 4096, block(7)).await.unwrap();
            }
            device.flush().await.unwrap();
            drop(slice);
            let slow = FaultRule::on(RequestKind::Write, Fault::Delay(Duration::from_millis(50)));
            bench.core_faults.add(slow);
            let slice = bench.open(quiet).await;
            runtime.sleep(Duration::from_millis(wait_ms)).await;
            slice.flush_dirty().await.unwrap();
            assert_eq!(slice.stats().dirty_bytes, 0, "{wait_ms}");
            for at in 0..4 {
                assert_eq!(byte_at(&*bench.core, at * 3 * 4096).await.unwrap(), 7, "{wait_ms}");
            }
        });
    }
}

/// The same in more lives, for `make conclusions`.
mod conclusions {
    use super::*;

    #[test]
    fn order_goes_on_after_every_stop() {
        order_goes_on(0..40, 10_000);
    }
}
