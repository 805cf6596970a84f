//! Flushes of the core that fail: whatever it had taken by then may be lost, and is written again.

use crate::bench::{Bench, block, byte_at, nop, simulate};
use crate::machine::{CACHE_BYTES, CORE_BYTES, EXPECTED, Machine, options, small_cleaning};
use headpond_block::devices::RamDevice;
use headpond_block::{
    BlockDevice, ByteRange, Cause, DeviceError, DeviceName, Geometry, Request, RequestKind,
    Runtime, Stability, Submission,
};
use headpond_cache::{
    CleaningConfig, CreateOptions, Foundation, Mode, Slice, SliceConfig, StripeConfig, create, load,
};
use headpond_sim::{Ended, Random};
use headpond_witness::Workload;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

const BLOCK: u64 = 4096;
const FLUSH: Duration = Duration::from_millis(300);

/// A core whose flushes take their time. One that fails loses whatever it took since the last one.
struct Forgetful {
    inner: Rc<RamDevice>,
    stable: Rc<RamDevice>,
    runtime: Runtime,
    /// Of so many flushes one fails; none while this is 0.
    one_fails_of: Cell<u32>,
    flushes: Cell<u32>,
    is_flushing: Cell<bool>,
}

impl Forgetful {
    fn new(bench: &Bench) -> Rc<Self> {
        let stable = Rc::new(RamDevice::with_geometry("stable", bench.core.geometry().clone()));
        Rc::new(Self {
            inner: Rc::clone(&bench.core),
            stable,
            runtime: bench.runtime.clone(),
            one_fails_of: Cell::new(1),
            flushes: Cell::default(),
            is_flushing: Cell::default(),
        })
    }

    fn fails(&self) -> bool {
        self.flushes.set(self.flushes.get() + 1);
        self.one_fails_of.get() > 0 && self.flushes.get().is_multiple_of(self.one_fails_of.get())
    }
}

struct Flushing<'a>(&'a Cell<bool>);

impl Drop for Flushing<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl BlockDevice for Forgetful {
    fn name(&self) -> &DeviceName {
        self.inner.name()
    }

    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        if request.kind != RequestKind::Flush {
            return self.inner.submit(request);
        }
        let fails = self.fails();
        Submission::pending(async move {
            // What is written meanwhile is not covered, and is lost as well.
            let covered = self.inner.memory().to_vec();
            // Of two that overlap nobody could say which of them an error is about.
            assert!(!self.is_flushing.replace(true), "one flush at a time");
            let flushing = Flushing(&self.is_flushing);
            self.runtime.sleep(FLUSH).await;
            drop(flushing);
            if fails {
                let stable = self.stable.memory().to_vec();
                self.inner.memory().copy_from(&stable);
                let range = ByteRange::at(0, BLOCK);
                return Err(DeviceError::new(self.name(), Cause::Media { range }));
            }
            self.stable.memory().copy_from(&covered);
            Ok(())
        })
    }
}

async fn open(bench: &Bench, core: &Rc<Forgetful>, config: SliceConfig) -> Slice {
    let superblock = load(&*bench.cache).await.unwrap();
    let core = Rc::clone(core) as Rc<dyn BlockDevice>;
    let foundation = Foundation { core, ..bench.foundation() };
    Slice::open(foundation, &superblock, EXPECTED, 0, config).await.unwrap().0
}

#[test]
fn flush_that_waits_for_one_that_fails_makes_nothing_clean() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let core = Forgetful::new(&bench);
        let slice = Rc::new(open(&bench, &core, nop()).await);
        let device: &dyn BlockDevice = &*slice;
        device.write(0, block(1)).await.unwrap();
        let first = Rc::clone(&slice);
        let first = runtime.spawn(async move { first.flush_dirty().await });
        runtime.sleep(FLUSH / 2).await;
        device.write(1 << 20, block(2)).await.unwrap();
        assert!(slice.flush_dirty().await.is_err() && first.await.is_err());
        assert_eq!(core.flushes.get(), 1);
        assert_eq!(slice.stats().dirty_bytes, 2 * BLOCK);
        core.one_fails_of.set(0);
        runtime.sleep(Duration::from_secs(1)).await;
        slice.flush_dirty().await.unwrap();
        assert_eq!(byte_at(&*core.stable, 0).await.unwrap(), 1);
        assert_eq!(byte_at(&*core.stable, 1 << 20).await.unwrap(), 2);
    });
}

#[test]
fn who_asks_while_a_flush_is_under_way_shares_the_next_one() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let core = Forgetful::new(&bench);
        core.one_fails_of.set(0);
        // Nobody flushes but who is asked to.
        let cleaning = CleaningConfig { core_flush_interval_ms: 60_000, ..nop().cleaning };
        let config = SliceConfig { mode: Mode::WriteThrough, cleaning, ..nop() };
        let slice = Rc::new(open(&bench, &core, config).await);
        let mut callers = Vec::new();
        for caller in 0..5_u8 {
            let (slice, asleep) = (Rc::clone(&slice), runtime.clone());
            callers.push(runtime.spawn(async move {
                asleep.sleep(FLUSH * u32::from(caller) / 5).await;
                let device: &dyn BlockDevice = &*slice;
                device.write(u64::from(caller) << 20, block(caller + 1)).await.unwrap();
                device.flush().await
            }));
        }
        for caller in callers {
            caller.await.unwrap();
        }
        assert_eq!((core.flushes.get(), slice.stats().counters.cleaning_flushes), (2, 2));
        for caller in 0..5 {
            assert_eq!(byte_at(&*core.stable, caller << 20).await.unwrap(), caller as u8 + 1);
        }
    });
}

#[test]
fn flush_that_its_caller_gives_up_holds_up_nobody() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let core = Forgetful::new(&bench);
        core.one_fails_of.set(0);
        let config = SliceConfig { mode: Mode::WriteThrough, ..nop() };
        let slice = Rc::new(open(&bench, &core, config).await);
        let device: &dyn BlockDevice = &*slice;
        device.write(0, block(1)).await.unwrap();
        let Err(given_up) = device.submit(Request::flush()).now_or() else { panic!("at once") };
        let other = Rc::clone(&slice);
        let waits = runtime.spawn(async move { (&*other as &dyn BlockDevice).flush().await });
        runtime.sleep(FLUSH / 2).await;
        drop(given_up);
        waits.await.unwrap();
        assert_eq!(byte_at(&*core.stable, 0).await.unwrap(), 1);
    });
}

#[test]
fn slices_of_one_core_hear_of_each_others_flushes_that_failed() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        create(&*bench.cache, &CreateOptions { slices: 2, ..options(4096) }).await.unwrap();
        let core = Forgetful::new(&bench);
        let superblock = load(&*bench.cache).await.unwrap();
        let ground = Rc::clone(&core) as Rc<dyn BlockDevice>;
        let foundation = Foundation { core: ground, ..bench.foundation() };
        // Nobody flushes but who is asked to.
        let cleaning = CleaningConfig { core_flush_interval_ms: 60_000, ..nop().cleaning };
        let config = SliceConfig { mode: Mode::WriteThrough, cleaning, ..nop() };
        let open = async |index| {
            let (foundation, config) = (foundation.clone(), config.clone());
            Slice::open(foundation, &superblock, EXPECTED, index, config).await.unwrap().0
        };
        core.one_fails_of.set(0);
        let (first, second) = (open(0).await, open(1).await);
        core.one_fails_of.set(1);
        let [one, other]: [&dyn BlockDevice; 2] = [&first, &second];
        one.write(0, block(1)).await.unwrap();
        other.write(4 << 20, block(2)).await.unwrap();
        assert!(one.flush().await.is_err());
        core.one_fails_of.set(0);
        other.flush().await.unwrap();
        assert_eq!(byte_at(&*core.stable, 4 << 20).await.unwrap(), 2);
        one.flush().await.unwrap();
        assert_eq!(byte_at(&*core.stable, 0).await.unwrap(), 1);
    });
}

#[derive(Clone, Copy)]
struct Churn {
    mode: Mode,
    line_bytes: u32,
    writes: u64,
    /// Who ask for flushes, which overlap.
    flushers: u64,
    seed: u64,
}

/// Writes all over the core through a full cache, while flushes fail now and then.
async fn nothing_is_lost(runtime: Runtime, churn: Churn) {
    let Churn { mode, line_bytes, writes, flushers, seed } = churn;
    let bench = Bench::with_lines(&runtime, line_bytes).await;
    let core = Forgetful::new(&bench);
    core.one_fails_of.set(3);
    let config = SliceConfig { mode, cleaning: small_cleaning(), ..SliceConfig::default() };
    let slice = open(&bench, &core, config).await;
    let device: &dyn BlockDevice = &slice;
    for number in 0..flushers {
        let (slice, asleep, mut random) = (slice.clone(), runtime.clone(), Random::new(number));
        drop(runtime.spawn(async move {
            let device: &dyn BlockDevice = &slice;
            loop {
                asleep.sleep(FLUSH * random.below(100) as u32 / 100).await;
                drop(device.flush().await);
            }
        }));
    }
    let (mut random, mut expected) = (Random::new(seed), vec![0; (CORE_BYTES / BLOCK) as usize]);
    for round in 0..writes {
        let (at, byte) = (random.below(CORE_BYTES / BLOCK), (round % 251) as u8 + 1);
        device.write(at * BLOCK, block(byte)).await.unwrap();
        expected[at as usize] = byte;
        if round % 8 == 0 {
            runtime.sleep(Duration::from_millis(1)).await;
        }
    }
    core.one_fails_of.set(0);
    runtime.sleep(Duration::from_secs(2)).await;
    slice.flush_dirty().await.unwrap();
    assert!(slice.stats().counters.reinserted_blocks > 0);
    let stable = core.stable.memory().to_vec();
    let lost = expected.iter().zip(stable.chunks(BLOCK as usize));
    let lost = lost.filter(|(byte, block)| **byte != block[0]).count();
    assert_eq!(lost, 0, "line of {line_bytes}, seed {seed}, {} flushes", core.flushes.get());
}

#[test]
fn what_reclaim_carries_on_beside_a_flush_that_fails_is_written_again() {
    for line_bytes in [4096, 65536] {
        for seed in 0..2 {
            let churn =
                Churn { mode: Mode::WriteBack, line_bytes, writes: 6000, flushers: 0, seed };
            simulate(|runtime| nothing_is_lost(runtime, churn));
        }
    }
}

/// Nor does reclaim go round and round in a log of which the core lacks all.
#[test]
fn what_reclaim_carries_on_beside_flushes_that_overlap_is_written_again() {
    for line_bytes in [4096, 65536] {
        let mode = Mode::WriteThrough;
        let churn = Churn { mode, line_bytes, writes: 3500, flushers: 3, seed: 0 };
        simulate(|runtime| nothing_is_lost(runtime, churn));
    }
}

/// Lives over a core whose flushes fail now and then, and lose what they were to make stable: what
/// the caller was told is stable is there after every cut, whoever asked for the flush that failed.
fn lives_over_a_core_that_forgets(modes: &[Mode], line_bytes: u32) {
    let failed: u64 = (0..12).map(|seed| failed_flushes(modes, line_bytes, seed)).sum();
    assert!(failed > 10, "{failed} flushes failed");
}

fn failed_flushes(modes: &[Mode], line_bytes: u32, seed: u64) -> u64 {
    let workload = Workload {
        requests: 1500,
        blocks: 300,
        flush_percent: 8,
        zeroes_percent: 0,
        ..Workload::BUSY
    };
    let stripe = StripeConfig { low_percent: 0, target_percent: 0, ..StripeConfig::default() };
    let cleaning = CleaningConfig { stripe, core_flush_interval_ms: 2, ..small_cleaning() };
    let config = SliceConfig { mode: modes[0], cleaning, ..SliceConfig::default() };
    let mut machine = Machine::new(config, 4096, seed).with_lines(line_bytes);
    machine.core_flushes_fail = Some(2);
    machine.modes = modes.to_vec();
    machine.create(seed);
    let mut failed = 0;
    for life in 0..6 {
        machine.power.cut_after(500 + (seed * 331 + life * 1777) % 6000);
        if let Ended::Finished(work) = machine.work(seed * 10 + life, &workload, false) {
            work.verdict.unwrap_or_else(|verdict| panic!("seed {seed}, life {life}: {verdict}"));
            failed += work.stats.counters.errors.core_flush;
        }
        machine.crash(seed + life);
    }
    machine.core_flushes_fail = None;
    let Ended::Finished(work) = machine.work(seed, &workload, true) else { panic!("no cut") };
    work.verdict.unwrap_or_else(|verdict| panic!("seed {seed}, at last: {verdict}"));
    failed
}

#[test]
fn what_was_written_back_survives_a_core_that_forgets() {
    lives_over_a_core_that_forgets(&[Mode::WriteBack], 4096);
}

#[test]
fn what_was_written_through_survives_a_core_that_forgets() {
    lives_over_a_core_that_forgets(&[Mode::WriteThrough], 4096);
    lives_over_a_core_that_forgets(&[Mode::WriteThrough], 65536);
}

#[test]
fn modes_that_change_survive_a_core_that_forgets() {
    lives_over_a_core_that_forgets(&[Mode::WriteBack, Mode::WriteThrough], 4096);
}

#[test]
fn what_went_past_the_cache_and_may_be_lost_is_told_to_who_flushes_next() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let core = Forgetful::new(&bench);
        let slice = open(&bench, &core, nop()).await;
        let device: &dyn BlockDevice = &slice;
        device.write(0, block(1)).await.unwrap();
        slice.set_config(SliceConfig { mode: Mode::WriteAround, ..nop() }).unwrap();
        device.write(1 << 20, block(2)).await.unwrap();
        // A flush that nobody of those who wrote has asked for.
        assert!(slice.flush_dirty().await.is_err());
        assert_eq!(byte_at(&*core.stable, 1 << 20).await.unwrap(), 0);
        core.one_fails_of.set(0);
        assert!(device.flush().await.is_err(), "nobody has been told");
        device.flush().await.unwrap();
        // What the cache has is not lost, and nobody is to be told.
        slice.set_config(SliceConfig { mode: Mode::WriteThrough, ..nop() }).unwrap();
        device.write(2 << 20, block(3)).await.unwrap();
        core.one_fails_of.set(1);
        assert!(slice.flush_dirty().await.is_err());
        core.one_fails_of.set(0);
        device.flush().await.unwrap();
        assert_eq!(byte_at(&*core.stable, 2 << 20).await.unwrap(), 3);
    });
}

/// Whatever a flush of a cache in memory has said to be stable, the core has for good.
#[test]
fn flush_of_a_volatile_cache_hears_of_every_flush_of_the_core_that_failed() {
    simulate(async |runtime| {
        let geometry = Geometry::of_size(CACHE_BYTES);
        let geometry = Geometry { stability: Stability::LostOnPower, ..geometry };
        let cache = Rc::new(RamDevice::with_geometry("cache", geometry));
        let bench = Bench { cache, ..Bench::new(&runtime).await };
        create(&*bench.cache, &options(4096)).await.unwrap();
        let core = Forgetful::new(&bench);
        core.one_fails_of.set(3);
        let config = SliceConfig { allow_volatile: true, ..nop() };
        let config = SliceConfig { cleaning: small_cleaning(), ..config };
        let slice = Rc::new(open(&bench, &core, config).await);
        let device: &dyn BlockDevice = &*slice;
        let (mut random, mut flushed) = (Random::new(7), 0);
        // Somebody else fills the cache meanwhile, so that reclaim asks for flushes as well.
        let (other, asleep) = (Rc::clone(&slice), runtime.clone());
        drop(runtime.spawn(async move {
            let (device, mut random): (&dyn BlockDevice, _) = (&*other, Random::new(8));
            loop {
                let at = CORE_BYTES / 2 + random.below(CORE_BYTES / 2 / BLOCK) * BLOCK;
                device.write(at, block(255)).await.unwrap();
                asleep.sleep(Duration::from_millis(1)).await;
            }
        }));
        let mut expected = vec![0; (CORE_BYTES / 2 / BLOCK) as usize];
        for round in 0..40_u64 {
            for _ in 0..100 {
                let (at, byte) = (random.below(expected.len() as u64), round as u8 + 1);
                device.write(at * BLOCK, block(byte)).await.unwrap();
                expected[at as usize] = byte;
            }
            if device.flush().await.is_err() {
                continue;
            }
            flushed += 1;
            let stable = core.stable.memory().to_vec();
            let lost = expected.iter().zip(stable.chunks(BLOCK as usize));
            let lost = lost.filter(|(byte, block)| **byte != block[0]).count();
            assert_eq!(lost, 0, "round {round}");
        }
        assert!(flushed > 5, "{flushed} of {}", core.flushes.get());
    });
}
