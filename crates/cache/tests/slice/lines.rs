//! Cache lines longer than a block: validity stays with the blocks.

use crate::bench::{Bench, block, byte_at, nop, simulate};
use crate::machine::{CORE_BYTES, EXPECTED, Machine, options, small_cleaning};
use headpond_block::decorators::ProbeDevice;
use headpond_block::devices::{NullDevice, RamDevice};
use headpond_block::{BlockDevice, Buffer, ByteRange, Request, Runtime};
use headpond_cache::{
    CleaningConfig, CleaningPolicy, CreateError, CreateOptions, EvictionPolicy, Foundation, Mode,
    Slice, SliceConfig, SliceStats, create, load,
};
use headpond_sim::Ended;
use headpond_witness::Workload;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

const LINES: [u32; 9] =
    [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20];
const LINE: u32 = 64 << 10;

/// A slice whose core is watched.
async fn watched(
    bench: &Bench,
    runtime: &Runtime,
    config: SliceConfig,
) -> (Slice, Rc<ProbeDevice>) {
    let core = Rc::clone(&bench.core) as Rc<dyn BlockDevice>;
    let probe = Rc::new(ProbeDevice::new(core, runtime.clone()));
    let core = Rc::clone(&probe) as Rc<dyn BlockDevice>;
    let superblock = load(&*bench.cache).await.unwrap();
    let foundation = Foundation { core, ..bench.foundation() };
    let (slice, _) = Slice::open(foundation, &superblock, EXPECTED, 0, config).await.unwrap();
    (slice, probe)
}

#[test]
fn line_size_that_is_no_power_of_two_up_to_1_mib_is_refused() {
    simulate(async |_| {
        let ram = RamDevice::new("ram", 16 << 20);
        for line_bytes in [0, 512, 2048, 12_288, 2 << 20] {
            let options = CreateOptions { line_bytes, ..options(4096) };
            let refused = create(&ram, &options).await.unwrap_err();
            assert!(
                matches!(refused, CreateError::LineSize { line_bytes: found } if found == line_bytes)
            );
        }
        for line_bytes in LINES {
            let options = CreateOptions { line_bytes, ..options(4096) };
            assert_eq!(create(&ram, &options).await.unwrap().line_bytes, line_bytes);
            assert_eq!(load(&ram).await.unwrap().line_bytes, line_bytes);
        }
    });
}

/// SEMANTICS, point 2.
#[test]
fn one_block_written_into_an_unmapped_line_is_one_dirty_block_and_no_core_read() {
    simulate(async |runtime| {
        let bench = Bench::with_lines(&runtime, LINE).await;
        bench.core.memory().fill(3);
        let (slice, core) = watched(&bench, &runtime, nop()).await;
        let device: &dyn BlockDevice = &slice;
        device.write(u64::from(LINE) + 8192, block(7)).await.unwrap();
        let stats = slice.stats();
        assert_eq!((stats.dirty_bytes, stats.clean_bytes), (4096, 0));
        assert_eq!((stats.line_bytes, core.snapshot().reads.requests), (u64::from(LINE), 0));

        let whole = Buffer::zeroed(LINE as usize);
        device.read(u64::from(LINE), &whole).await.unwrap();
        let bytes = whole.to_vec();
        assert!(bytes[..8192].iter().all(|byte| *byte == 3));
        assert!(bytes[8192..12_288].iter().all(|byte| *byte == 7));
        assert!(bytes[12_288..].iter().all(|byte| *byte == 3));
        let read = slice.stats().counters.read;
        assert_eq!((read.partial_hits, read.blocks_hit, read.blocks_missed), (1, 1, 15));
        assert_eq!(core.snapshot().reads.requests, 1, "one core read spans what is missing");
    });
}

/// SEMANTICS, point 1.
#[test]
fn partial_hit_inserts_the_rest_and_leaves_the_dirty_blocks_dirty() {
    simulate(async |runtime| {
        let bench = Bench::with_lines(&runtime, LINE).await;
        let (slice, core) = watched(&bench, &runtime, nop()).await;
        let device: &dyn BlockDevice = &slice;
        device.write(12_288, block(7)).await.unwrap();
        device.read(0, Buffer::zeroed(LINE as usize)).await.unwrap();
        runtime.sleep(Duration::from_millis(10)).await;
        let stats = slice.stats();
        assert_eq!((stats.dirty_bytes, stats.clean_bytes), (4096, u64::from(LINE) - 4096));
        assert_eq!(core.snapshot().writes.requests, 0, "nothing is cleaned by a read");
        device.read(0, Buffer::zeroed(LINE as usize)).await.unwrap();
        assert_eq!(slice.stats().counters.read.hits, 1);
        assert_eq!(core.snapshot().reads.requests, 1);
        slice.self_check();
    });
}

/// SEMANTICS, point 3.
#[test]
fn half_a_kilobyte_is_served_at_every_line_size() {
    simulate(async |runtime| {
        for line_bytes in LINES {
            let bench = Bench::with_lines(&runtime, line_bytes).await;
            bench.core.memory().fill(3);
            let slice = bench.open(nop()).await;
            let device: &dyn BlockDevice = &slice;
            let at = u64::from(line_bytes) + 1024;
            device.write(at, Buffer::from_slice(&[9; 512])).await.unwrap();
            for (offset, expected) in [(at - 512, 3), (at, 9), (at + 512, 3)] {
                assert_eq!(byte_at(device, offset).await.unwrap(), expected);
            }
            assert_eq!(slice.stats().dirty_bytes, 4096, "lines of {line_bytes} bytes");
            slice.stop().await.unwrap();
            let slice = bench.open(nop()).await;
            assert_eq!(byte_at(&slice, at).await.unwrap(), 9);
            assert_eq!(slice.stats().dirty_bytes, 4096);
            slice.self_check();
        }
    });
}

fn mixed(line_bytes: u32, config: SliceConfig, workload: &Workload) -> SliceStats {
    let seed = u64::from(line_bytes);
    let machine = Machine::new(config, 512, seed).with_lines(line_bytes);
    machine.create(seed);
    let Ended::Finished(work) = machine.work(seed, workload, true) else { panic!("no cut") };
    work.verdict.as_ref().unwrap_or_else(|verdict| panic!("{line_bytes}: {verdict}"));
    assert_eq!(work.tally.failed_reads + work.tally.failed_others, 0);
    work.stats
}

#[test]
fn every_line_size_agrees_with_the_witness() {
    let workload = Workload {
        requests: 1500,
        depth: 16,
        blocks: 8192,
        blocks_max: 40,
        flush_percent: 1,
        discard_percent: 2,
        sector_percent: 20,
        ..Workload::BUSY
    };
    for line_bytes in LINES {
        for mode in [Mode::WriteBack, Mode::WriteThrough] {
            let config = SliceConfig { mode, cleaning: small_cleaning(), ..Default::default() };
            let stats = mixed(line_bytes, config, &workload);
            assert!(stats.counters.segments_reclaimed > 10, "lines of {line_bytes} bytes");
        }
    }
}

const SCATTERED: Workload = Workload {
    requests: 4000,
    depth: 16,
    blocks: 12_000,
    blocks_max: 1,
    flush_percent: 1,
    zeroes_percent: 0,
    ..Workload::BUSY
};

#[test]
fn lines_in_too_many_pieces_go_past_the_cache_without_a_cleaner_and_are_counted() {
    let stats = mixed(LINE, nop(), &SCATTERED);
    assert!(stats.counters.bypass.scattered > 100, "{:?}", stats.counters.bypass);
    assert!(stats.dirty_ratio < 0.5, "long before as much is dirty as may be");
    let memory = stats.memory;
    assert!(memory.extents_used <= memory.extents && memory.extents_used > memory.extents / 2);
}

#[test]
fn lines_in_too_many_pieces_wait_for_cleaner_and_reclaim() {
    for mode in [Mode::WriteBack, Mode::WriteThrough] {
        for line_bytes in [LINE, 1 << 20] {
            let config = SliceConfig { mode, cleaning: small_cleaning(), ..Default::default() };
            let stats = mixed(line_bytes, config, &SCATTERED);
            assert_eq!(stats.counters.bypass.scattered, 0, "{mode:?}");
            assert!(stats.counters.segments_reclaimed > 10);
        }
    }
}

#[test]
fn whoever_evicts_long_lines_agrees_with_the_witness() {
    let workload = Workload {
        requests: 1500,
        depth: 16,
        blocks: 8192,
        blocks_max: 40,
        discard_percent: 5,
        ..Workload::BUSY
    };
    let every = EvictionPolicy::PLAIN.into_iter().chain([EvictionPolicy::Adaptive]);
    for (eviction, mode) in every
        .flat_map(|eviction| [Mode::WriteBack, Mode::WriteThrough].map(|mode| (eviction, mode)))
    {
        let config = SliceConfig { eviction, mode, cleaning: small_cleaning(), ..nop() };
        let stats = mixed(LINE, config, &workload);
        assert!(stats.counters.segments_reclaimed > 10, "{eviction:?}");
    }
}

/// What a slice of this size takes, before and after it has been filled.
async fn memory_of(runtime: &Runtime, line_bytes: u32, request_bytes: u64) -> [SliceStats; 2] {
    const CACHE: u64 = 256 << 20;
    let ram: Rc<dyn BlockDevice> = Rc::new(RamDevice::new("ram", CACHE));
    let core: Rc<dyn BlockDevice> = Rc::new(NullDevice::new("null", 64 * CACHE));
    let core_bytes = core.size_bytes();
    let options = CreateOptions { line_bytes, core_bytes, unit_bytes: Some(512), ..options(512) };
    let superblock = create(&*ram, &options).await.unwrap();
    let foundation = Foundation::new(runtime.clone(), ram, core);
    let cleaning = CleaningConfig { policy: CleaningPolicy::Nop, ..small_cleaning() };
    let config = SliceConfig { cleaning, allow_volatile: true, ..Default::default() };
    let (slice, _) = Slice::open(foundation, &superblock, EXPECTED, 0, config).await.unwrap();
    let before = slice.stats();
    let data = Buffer::payload_free(request_bytes as usize);
    let device: &dyn BlockDevice = &slice;
    for index in 0..CACHE * 3 / 4 / request_bytes {
        // All over the core, whole lines.
        let line = index.wrapping_mul(2_654_435_761) % (core_bytes / request_bytes);
        device.write(line * request_bytes, &data).await.unwrap();
    }
    [before, slice.stats()]
}

#[test]
fn memory_is_within_the_bounds_of_the_issue_and_taken_at_the_start() {
    simulate(async |runtime| {
        for (line_bytes, request_bytes, most, ghosts_max) in
            [(4 << 10, 4 << 10, 16.0, 8.5), (64 << 10, 64 << 10, 2.0, 0.55)]
        {
            let [before, after] = memory_of(&runtime, line_bytes, request_bytes).await;
            let blocks = (after.capacity_bytes / 4096) as f64;
            let memory = after.memory;
            let apart = memory.checksums + memory.extent_pool + memory.latencies + memory.ghosts;
            let each = (after.memory_bytes - apart) as f64 / blocks;
            assert!(each <= most, "{each} bytes for each block, lines of {line_bytes}: {memory:?}");
            assert!(memory.checksums as f64 / blocks <= 4.0);
            assert!(memory.eviction_queues > 0, "among what is counted");
            assert!(memory.ghosts as f64 / blocks <= ghosts_max, "{memory:?}");
            assert!(memory.latencies <= 64 << 10, "whatever the cache holds");
            assert_eq!(memory.extents_used, 0, "whole lines take nothing from the pool");
            assert!(after.dirty_bytes > after.capacity_bytes * 6 / 10, "filled");
            assert_eq!(before.memory_bytes, after.memory_bytes, "nothing grows");
        }
    });
}

#[test]
fn last_block_of_the_core_is_cleaned_from_a_long_line() {
    simulate(async |runtime| {
        let bench = Bench::with_lines(&runtime, 1 << 20).await;
        let slice = bench.open(nop()).await;
        let device: &dyn BlockDevice = &slice;
        let last = CORE_BYTES - 4096;
        device.write(last, block(5)).await.unwrap();
        assert_eq!(byte_at(device, last).await.unwrap(), 5);
        slice.flush_dirty().await.unwrap();
        assert_eq!(byte_at(&*bench.core, last).await.unwrap(), 5);
    });
}

/// A block of one line after the other.
fn lone_block(index: u64) -> u64 {
    index * 5 % (CORE_BYTES / 4096) * 4096
}

async fn write_alone(slice: &Slice, runtime: &Runtime, index: u64) {
    let device: &dyn BlockDevice = slice;
    device.write(lone_block(index), block(index as u8)).await.unwrap();
    runtime.sleep(Duration::from_micros(10)).await;
}

/// Writes lone blocks into lines of two until one goes past the cache; how many there are.
async fn fill_with_lone_blocks(slice: &Slice, runtime: &Runtime) -> u64 {
    let mut written = 0;
    while slice.stats().counters.bypass.dirty_limit == 0 {
        write_alone(slice, runtime, written).await;
        written += 1;
    }
    assert_eq!(slice.stats().counters.bypass.scattered, 0);
    written
}

async fn read_alone(slice: &Slice, indices: Range<u64>) {
    slice.self_check();
    for index in indices {
        assert_eq!(byte_at(slice, lone_block(index)).await.unwrap(), index as u8);
    }
}

/// One block of a window takes nothing from the pool, and every second one does when reclaim has
/// packed them: no more become dirty than the pool is enough for, as long as a part of them leaves.
#[test]
fn lone_blocks_in_lines_of_two_leave_reclaim_what_it_needs_to_carry_them_on() {
    simulate(async |runtime| {
        let bench = Bench::with_lines(&runtime, 8 << 10).await;
        let slice = bench.open(nop()).await;
        let device: &dyn BlockDevice = &slice;
        let written = fill_with_lone_blocks(&slice, &runtime).await;
        let kept = written * 2 / 3;
        for index in kept..6 * written {
            let range = ByteRange::at(lone_block(index), 4096);
            device.submit(Request::discard(range)).await.unwrap();
            write_alone(&slice, &runtime, index + written - kept).await;
        }
        let counters = slice.stats().counters;
        assert!(counters.reinserted_blocks > 100, "{counters:?}");
        assert_eq!(counters.cleaned_blocks, 0, "{counters:?}");
        read_alone(&slice, 0..kept).await;
    });
}

/// The log goes round while all of them stay, until reclaim has used the pool up. Tombstones keep
/// it going when nobody else may.
#[test]
fn what_reclaim_has_no_extents_for_is_cleaned_where_it_lies() {
    simulate(async |runtime| {
        let bench = Bench::with_lines(&runtime, 8 << 10).await;
        let slice = bench.open(nop()).await;
        let device: &dyn BlockDevice = &slice;
        let written = fill_with_lone_blocks(&slice, &runtime).await;
        while slice.stats().counters.bypass.scattered == 0 {
            write_alone(&slice, &runtime, 0).await;
        }
        let kept = written * 2 / 3;
        for index in (kept..written).rev() {
            let range = ByteRange::at(lone_block(index), 4096);
            device.submit(Request::discard(range)).await.unwrap();
            runtime.sleep(Duration::from_micros(10)).await;
        }
        let counters = slice.stats().counters;
        assert!(counters.reinserted_blocks > 100, "{counters:?}");
        assert!(counters.cleaned_blocks > 0, "{counters:?}");
        read_alone(&slice, 0..kept).await;
    });
}

/// The dirty index has no bit for each line of such a core.
#[test]
fn cache_a_million_times_smaller_than_its_core_is_cleaned_in_order() {
    simulate(async |runtime| {
        let core_bytes = 16 << 40;
        for line_bytes in [4096, LINE] {
            let cache: Rc<dyn BlockDevice> = Rc::new(RamDevice::new("ram", 16 << 20));
            let options = CreateOptions { line_bytes, core_bytes, ..options(512) };
            let superblock = create(&*cache, &options).await.unwrap();
            let null = Rc::new(NullDevice::new("null", core_bytes));
            let core = Rc::new(ProbeDevice::new(null, runtime.clone()));
            let watched = Rc::clone(&core);
            let foundation = Foundation::new(runtime.clone(), cache, core);
            let cleaning = CleaningConfig { in_flight_max: 1, ..nop().cleaning };
            let config = SliceConfig { cleaning, allow_volatile: true, ..nop() };
            let opened = Slice::open(foundation, &superblock, EXPECTED, 0, config).await;
            let (slice, _) = opened.unwrap();
            let device: &dyn BlockDevice = &slice;
            for index in 0..300u64 {
                let place = index.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (core_bytes / 4096);
                device.write(place * 4096, Buffer::payload_free(4096)).await.unwrap();
            }
            slice.self_check();
            slice.flush_dirty().await.unwrap();
            let stats = slice.stats();
            assert_eq!((stats.dirty_bytes, stats.counters.cleaned_blocks), (0, 300));
            let recent: Vec<u64> = watched
                .recent()
                .iter()
                .map(|(_, range)| range.start())
                .filter(|at| *at > 0)
                .collect();
            assert!(recent.len() > 10 && recent.is_sorted(), "{recent:?}");
        }
    });
}
