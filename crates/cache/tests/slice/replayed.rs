//! What came back from an unclean stop: cleaned first and unasked, and nothing else with it.

use crate::bench::{Bench, flushable, nop, simulate};
use crate::machine::{CACHE_BYTES, EXPECTED, Machine, options};
use headpond_block::decorators::{Fault, FaultControl, FaultDevice, FaultRule};
use headpond_block::devices::NullDevice;
use headpond_block::sync::join_all;
use headpond_block::{
    BlockDevice, Buffer, ByteRange, DeviceName, Geometry, Request, RequestFlags, RequestKind,
    Runtime, Submission,
};
use headpond_cache::{
    CleaningConfig, CleaningPolicy, CreateOptions, Foundation, Mode, Slice, SliceConfig,
    SliceStats, create, load,
};
use headpond_sim::{Ended, Sim, run_until_cut};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

const BLOCK: u64 = 4096;
/// In which every replayed block has been cleaned, with a flush of the core behind it.
const SOON: Duration = Duration::from_secs(2);

fn config(policy: CleaningPolicy) -> SliceConfig {
    let cleaning = CleaningConfig { policy, ..CleaningConfig::default() };
    SliceConfig { cleaning, ..SliceConfig::default() }
}

fn block(byte: u8) -> Buffer {
    Buffer::from_slice(&[byte; BLOCK as usize])
}

/// Distant blocks.
fn scattered(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(|index| index * 37)
}

async fn write(slice: &Slice, byte: u8, blocks: impl Iterator<Item = u64>) {
    let device: &dyn BlockDevice = slice;
    for index in blocks {
        device.write(index * BLOCK, block(byte)).await.unwrap();
    }
    device.flush().await.unwrap();
}

async fn byte_at(slice: &Slice, index: u64) -> u8 {
    let buffer = Buffer::zeroed(BLOCK as usize);
    (slice as &dyn BlockDevice).read(index * BLOCK, &buffer).await.unwrap();
    buffer.to_vec()[9]
}

fn live<F: Future>(
    machine: &Machine,
    seed: u64,
    life: impl FnOnce(Runtime, Sim) -> F,
) -> F::Output {
    match run_until_cut(seed, &machine.power, life).expect("no deadlock") {
        Ended::Finished(output) => output,
        Ended::Cut => panic!("nobody cuts the power meanwhile"),
    }
}

/// A machine whose power went when blocks of ones were dirty.
fn after_a_cut(config: SliceConfig, blocks: impl Iterator<Item = u64>) -> Machine {
    let mut machine = Machine::new(SliceConfig::default(), 4096, 1);
    machine.create(1);
    live(&machine, 2, async |runtime, sim| {
        let (slice, _) = machine.open(&runtime, &sim).await;
        write(&slice, 1, blocks).await;
        assert!(slice.stats().dirty_ratio < 0.1, "nothing is cleaned for its own sake");
        assert_eq!(slice.stats().replayed_blocks, 0);
    });
    machine.crash(3);
    machine.config = config;
    machine
}

/// A core that keeps what it was asked to change.
struct Watched {
    inner: Rc<dyn BlockDevice>,
    changes: RefCell<Vec<Request>>,
}

impl BlockDevice for Watched {
    fn name(&self) -> &DeviceName {
        self.inner.name()
    }

    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        if request.is_mutation() {
            self.changes.borrow_mut().push(request.clone());
        }
        self.inner.submit(request)
    }
}

fn settles(change: &Request) -> bool {
    change.flags.contains(RequestFlags::RECOMPUTE_PARITY)
}

async fn open_on(
    machine: &Machine,
    runtime: &Runtime,
    cache: Rc<dyn BlockDevice>,
    core: Rc<dyn BlockDevice>,
) -> Slice {
    let superblock = load(&*cache).await.expect("a cache");
    let foundation = Foundation::new(runtime.clone(), cache, core);
    let opening = Slice::open(foundation, &superblock, EXPECTED, 0, machine.config.clone());
    opening.await.expect("opens").0
}

fn requests(stats: &SliceStats) -> u64 {
    let counters = &stats.counters;
    counters.read.requests + counters.write.requests + counters.flushes + counters.discards
}

#[test]
fn replayed_blocks_become_clean_unasked_and_the_others_stay_dirty() {
    for policy in [CleaningPolicy::Stripe, CleaningPolicy::Nop] {
        let machine = after_a_cut(config(policy), scattered(18));
        live(&machine, 4, async |runtime: Runtime, sim| {
            let (slice, recovery) = machine.open(&runtime, &sim).await;
            assert_eq!((recovery.dirty_blocks, slice.stats().replayed_blocks), (18, 18));
            assert!((0.005..0.015).contains(&slice.stats().dirty_ratio), "about 1 %");
            runtime.sleep(SOON).await;
            slice.self_check();
            let stats = slice.stats();
            assert_eq!((stats.replayed_blocks, stats.dirty_bytes, stats.written_bytes), (0, 0, 0));
            assert_eq!((stats.clean_bytes, stats.counters.cleaned_blocks), (18 * BLOCK, 18));
            assert_eq!(requests(&stats), 0);
            write(&slice, 2, scattered(20)).await;
            runtime.sleep(SOON).await;
            let stats = slice.stats();
            assert_eq!((stats.dirty_bytes, stats.counters.cleaned_blocks), (20 * BLOCK, 18));
        });
    }
}

#[test]
fn fresh_neighbours_of_replayed_blocks_stay_dirty() {
    let machine = after_a_cut(config(CleaningPolicy::Stripe), scattered(18));
    live(&machine, 4, async |runtime: Runtime, sim| {
        let (slice, _) = machine.open(&runtime, &sim).await;
        write(&slice, 2, scattered(18).map(|index| index + 1)).await;
        runtime.sleep(SOON).await;
        slice.self_check();
        let stats = slice.stats();
        assert_eq!((stats.replayed_blocks, stats.counters.cleaned_blocks), (0, 18));
        assert_eq!(stats.dirty_bytes, 18 * BLOCK);
    });
}

#[test]
fn block_that_is_overwritten_all_the_time_is_cleaned_once_and_then_left_alone() {
    let machine = after_a_cut(config(CleaningPolicy::Stripe), scattered(1));
    live(&machine, 4, async |runtime: Runtime, sim| {
        let (slice, _) = machine.open(&runtime, &sim).await;
        let device: &dyn BlockDevice = &slice;
        for _ in 0..400 {
            device.write(0, block(2)).await.unwrap();
        }
        let stats = slice.stats();
        assert_eq!(stats.replayed_blocks, 0);
        assert!((1..3).contains(&stats.counters.cleaning_writes), "{:?}", stats.counters);
        slice.self_check();
        slice.flush_dirty().await.unwrap();
        assert_eq!((slice.stats().dirty_bytes, byte_at(&slice, 0).await), (0, 2));
    });
}

#[test]
fn requests_hold_the_cleaning_of_replayed_blocks_back() {
    let machine = after_a_cut(config(CleaningPolicy::Stripe), scattered(150));
    let (busy, idle) = live(&machine, 4, async |runtime: Runtime, sim| {
        let (slice, _) = machine.open(&runtime, &sim).await;
        let device: &dyn BlockDevice = &slice;
        let mut busy = 0;
        for _ in 0..10 {
            let reads = scattered(8).map(|index| device.read(index * BLOCK, Buffer::zeroed(4096)));
            join_all(reads.collect()).await;
            busy = busy.max(slice.stats().cleaning_in_flight);
        }
        assert!(slice.stats().replayed_blocks > 100, "the window was not over");
        let mut idle = 0;
        while slice.stats().replayed_blocks > 0 {
            idle = idle.max(slice.stats().cleaning_in_flight);
            runtime.sleep(Duration::from_micros(50)).await;
        }
        (busy, idle)
    });
    assert!((1..=2).contains(&busy) && idle >= 16, "{busy} while busy, {idle} while idle");
}

#[test]
fn a_core_that_fails_keeps_the_blocks_replayed_until_it_takes_them() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        write(&bench.open(nop()).await, 1, scattered(5)).await;
        bench.core_faults.add(FaultRule::on(RequestKind::Write, Fault::Media));
        let slice = bench.open(nop()).await;
        runtime.sleep(SOON).await;
        slice.self_check();
        assert_eq!((slice.stats().replayed_blocks, slice.stats().dirty_bytes), (5, 5 * BLOCK));
        bench.core_faults.clear();
        runtime.sleep(SOON).await;
        slice.self_check();
        assert_eq!((slice.stats().replayed_blocks, slice.stats().dirty_bytes), (0, 0));
    });
}

/// Found by the swarm (seed 91002810): before a core so large that the cleaner gathers what it
/// takes, a block that owed no parity any more was named by neither index.
#[test]
fn block_of_a_very_large_core_that_is_overwritten_while_its_debt_is_paid_is_cleaned_later() {
    simulate(async |runtime| {
        const FAR_BYTES: u64 = 1 << 40;
        let cache = flushable("cache", CACHE_BYTES);
        let superblock = create(&*cache, &CreateOptions { core_bytes: FAR_BYTES, ..options(4096) })
            .await
            .unwrap();
        let delays = FaultControl::default();
        let core: Rc<dyn BlockDevice> = Rc::new(NullDevice::new("core", FAR_BYTES));
        let core = Rc::new(FaultDevice::new(core, delays.clone(), runtime.clone()));
        let open = async || {
            let (cache, core) = (Rc::clone(&cache) as Rc<dyn BlockDevice>, Rc::clone(&core));
            let foundation = Foundation::new(runtime.clone(), cache, core);
            Slice::open(foundation, &superblock, EXPECTED, 0, nop()).await.unwrap().0
        };
        write(&open().await, 1, scattered(1)).await;
        let slow = Fault::Delay(Duration::from_millis(500));
        delays.add(FaultRule::on(RequestKind::Write, slow));
        let slice = open().await;
        while slice.stats().cleaning_in_flight == 0 {
            runtime.sleep(Duration::from_millis(1)).await;
        }
        write(&slice, 2, scattered(1)).await;
        runtime.sleep(4 * SOON).await;
        slice.self_check();
        assert_eq!((slice.stats().replayed_blocks, slice.stats().dirty_bytes), (0, BLOCK));
        slice.flush_dirty().await.unwrap();
        assert_eq!(slice.stats().dirty_bytes, 0);
    });
}

/// What it is, in which mode, how many replayed blocks it covers, and the request.
type Past = (&'static str, Mode, u64, fn() -> Request);

#[test]
fn what_changes_the_core_past_the_log_first_settles_the_parity() {
    const FIRST: u64 = 8000 * BLOCK;
    let past: [Past; 4] = [
        ("write past", Mode::PassThrough, 1, || Request::write(FIRST, block(7))),
        ("write through", Mode::WriteThrough, 1, || Request::write(FIRST, block(7))),
        ("part written through", Mode::WriteThrough, 1, || {
            Request::write(FIRST + 512, Buffer::from_slice(&[7; 512]))
        }),
        ("discard", Mode::WriteBack, 8, || Request::discard(ByteRange::at(FIRST, 64 * BLOCK))),
    ];
    for (what, mode, covered, request) in past {
        // One write in flight, so that the cleaner itself is far from the last blocks.
        let cleaning = CleaningConfig { in_flight_max: 1, ..CleaningConfig::default() };
        let config = SliceConfig { mode, cleaning, ..SliceConfig::default() };
        let machine = after_a_cut(config, scattered(100).chain(8000..8008));
        live(&machine, 4, async |runtime: Runtime, sim| {
            let inner = machine.disk(&machine.core, &runtime, &sim);
            let core = Rc::new(Watched { inner, changes: RefCell::default() });
            let cache = machine.disk(&machine.cache, &runtime, &sim);
            let slice = open_on(&machine, &runtime, cache, core.clone()).await;
            slice.submit(request()).await.unwrap();
            slice.self_check();
            assert!(slice.stats().replayed_blocks > 50, "{what}: the cleaner was there first");
            let at = |change: &&Request| change.range.start() >= FIRST;
            let changes = core.changes.take();
            let settled = changes.iter().filter(at).take_while(|change| settles(change));
            let settled: u64 = settled.map(|change| change.range.len() / BLOCK).sum();
            let other = changes.iter().filter(at).find(|change| !settles(change));
            assert!(other.is_some(), "{what}: the request itself");
            assert_eq!(settled, covered, "{what}: blocks settled before it");
            runtime.sleep(SOON).await;
            assert_eq!(slice.stats().replayed_blocks, 0);
        });
    }
}

#[test]
fn the_count_outlives_a_clean_stop_and_reclaim() {
    let machine = after_a_cut(config(CleaningPolicy::Nop), scattered(30));
    live(&machine, 4, async |runtime: Runtime, sim| {
        let (slice, _) = machine.open(&runtime, &sim).await;
        slice.stop().await.expect("stops");
        assert_eq!(slice.stats().replayed_blocks * BLOCK, slice.stats().dirty_bytes);
        assert!(slice.stats().replayed_blocks > 0, "the stop does not wait for the cleaner");
    });
    live(&machine, 5, async |runtime: Runtime, sim| {
        let (slice, recovery) = machine.open(&runtime, &sim).await;
        assert!(recovery.was_clean);
        let before = slice.stats().replayed_blocks;
        assert!(before > 0 && before == recovery.dirty_blocks);
        // Round the log, so that what is left of the old blocks is carried on.
        for round in 0..4 {
            write(&slice, 3, 2000..2900).await;
            slice.self_check();
            assert!(slice.stats().replayed_blocks <= before, "round {round}");
        }
        assert!(slice.stats().counters.segments_reclaimed > 0);
        runtime.sleep(SOON).await;
        slice.self_check();
        assert_eq!((slice.stats().replayed_blocks, slice.stats().dirty_bytes), (0, 900 * BLOCK));
    });
}
