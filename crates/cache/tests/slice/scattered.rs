//! Lines in many pieces, once the map has hardly any extents left for them.

use crate::bench::{Bench, block, byte_at, nop, simulate};
use crate::machine::{CORE_BYTES, small_cleaning};
use headpond_block::decorators::{Fault, FaultRule};
use headpond_block::{BlockDevice, Buffer, RequestKind, Runtime};
use headpond_cache::{CleaningConfig, CleaningPolicy, Mode, Slice, SliceConfig};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

const LINE: u32 = 64 << 10;
/// Extents that new data may not take.
const KEPT_FOR_RECLAIM: u64 = 83;

/// A block in every line.
fn scattered_block(index: u64) -> u64 {
    index * 17 % (CORE_BYTES / 4096) * 4096
}

/// Uses the pool up with dirty blocks; how many there are.
async fn scatter(slice: &Slice) -> u64 {
    let mut written = 0;
    while slice.stats().counters.bypass.scattered == 0 {
        let device: &dyn BlockDevice = slice;
        device.write(scattered_block(written), block(written as u8)).await.unwrap();
        written += 1;
    }
    written
}

/// The oldest segment is all dirty, and would give nothing back for long.
#[test]
fn what_has_become_clean_makes_room_where_it_lies() {
    simulate(async |runtime| {
        let bench = Bench::with_lines(&runtime, LINE).await;
        let slice = bench.open(nop()).await;
        let device: &dyn BlockDevice = &slice;
        let written = scatter(&slice).await;
        let full = slice.stats().memory;
        // The newest becomes clean by itself, and by a write past the cache.
        slice.flush_dirty().await.unwrap();
        runtime.sleep(Duration::from_secs(1)).await;
        let stats = slice.stats();
        assert!(stats.counters.thinned_blocks > 100, "{:?}", stats.counters);
        assert_eq!(stats.counters.reinserted_blocks, 0);
        assert!(stats.memory.extents_used < full.extents_used * 4 / 5, "{:?}", stats.memory);
        slice.self_check();
        for index in 0..written {
            assert_eq!(byte_at(device, scattered_block(index)).await.unwrap(), index as u8);
        }
    });
}

/// A cut would bring back what the tombstone on its way has not ended yet, under what was written
/// past the cache meanwhile.
#[test]
fn a_write_past_the_cache_ends_blocks_whose_end_is_not_stable_yet() {
    simulate(async |runtime| {
        let bench = Bench::with_lines(&runtime, LINE).await;
        let slice = bench.open(nop()).await;
        let device: &dyn BlockDevice = &slice;
        scatter(&slice).await;
        let slow = Fault::Delay(Duration::from_millis(50));
        let rule = FaultRule::on(RequestKind::Write, slow);
        bench.cache_faults.add(FaultRule { times: Some(1), ..rule });
        slice.flush_dirty().await.unwrap();
        runtime.sleep(Duration::from_millis(10)).await;
        assert_eq!(bench.cache_faults.struck(), 1, "tombstones are on their way");
        slice.set_config(SliceConfig { mode: Mode::PassThrough, ..nop() }).unwrap();
        let before = slice.stats().counters;
        for index in 0..50 {
            device.write(scattered_block(index), block(99)).await.unwrap();
        }
        let after = slice.stats().counters;
        assert_eq!(after.tombstone_blocks - before.tombstone_blocks, 50);
        runtime.sleep(Duration::from_secs(1)).await;
        assert!(slice.stats().counters.thinned_blocks > 50);
        slice.self_check();
        for index in 0..50 {
            assert_eq!(byte_at(device, scattered_block(index)).await.unwrap(), 99);
        }
    });
}

/// Writes of single blocks all over the core, each an epoch of its own, use up what the map has
/// for scattered lines; parts of the oldest of them are written beside, which lock what the cleaner
/// has to write first.
#[test]
fn parts_of_blocks_are_written_in_order_though_the_pool_is_used_up() {
    simulate(async |runtime| {
        let bench = Bench::with_lines(&runtime, LINE).await;
        let slow = Fault::Delay(Duration::from_millis(5));
        bench.core_faults.add(FaultRule::on(RequestKind::Write, slow));
        let cleaning = CleaningConfig { policy: CleaningPolicy::Ordered, ..small_cleaning() };
        let slice = Rc::new(bench.open(SliceConfig { cleaning, ..nop() }).await);
        let answered = Rc::new(Cell::new(0));
        for index in 0..1500 {
            let (slice, answered) = (Rc::clone(&slice), Rc::clone(&answered));
            let write = async move {
                let device: &dyn BlockDevice = &*slice;
                let (part, at) = (index % 4 == 3, scattered_block(index - index % 4));
                let written = match part {
                    true => device.write(at + 512, Buffer::from_slice(&[9; 512])).await,
                    false => device.write(scattered_block(index), block(index as u8)).await,
                };
                written.unwrap();
                device.flush().await.unwrap();
                answered.set(answered.get() + 1);
            };
            drop(runtime.spawn(write));
            runtime.sleep(Duration::from_micros(200)).await;
        }
        runtime.sleep(Duration::from_secs(120)).await;
        assert_eq!(answered.get(), 1500);
        slice.stop().await.unwrap();
    });
}

#[test]
fn thinning_ends_no_more_than_it_has_to_while_nobody_waits() {
    simulate(async |runtime| {
        let bench = Bench::with_lines(&runtime, LINE).await;
        let slice = bench.open(SliceConfig { mode: Mode::WriteThrough, ..nop() }).await;
        let device: &dyn BlockDevice = &slice;
        let thinned = || slice.stats().counters.thinned_blocks;
        for index in 0..1000 {
            device.write(scattered_block(index), block(1)).await.unwrap();
            if index % 20 == 0 {
                runtime.sleep(Duration::from_secs(1)).await;
            }
            if thinned() > 0 {
                break;
            }
        }
        let memory = slice.stats().memory;
        assert!(thinned() > 0 && memory.extents_used > memory.extents / 3, "{memory:?}");
    });
}

/// With hardly any extents left and a cleaner that does not get on.
async fn nearly_used_up(runtime: &Runtime, line_bytes: u32) -> (Bench, Rc<Slice>) {
    let bench = Bench::with_lines(runtime, line_bytes).await;
    let slice = Rc::new(bench.open(nop()).await);
    let device: &dyn BlockDevice = &*slice;
    let room = || {
        let memory = slice.stats().memory;
        memory.extents - memory.extents_used
    };
    let mut index = 0;
    while room() > KEPT_FOR_RECLAIM + 1 {
        device.write(scattered_block(index), block(1)).await.unwrap();
        index += 1;
    }
    for kind in [RequestKind::Write, RequestKind::Flush] {
        bench.core_faults.add(FaultRule::on(kind, Fault::Delay(Duration::from_secs(60))));
    }
    let cleaning = CleaningConfig { policy: CleaningPolicy::Stripe, ..small_cleaning() };
    slice.set_config(SliceConfig { cleaning, ..nop() }).unwrap();
    (bench, slice)
}

#[test]
fn a_rewrite_that_gives_back_what_it_takes_does_not_wait_behind_one_that_does_not() {
    simulate(async |runtime| {
        let (_bench, slice) = nearly_used_up(&runtime, LINE / 2).await;
        let large = {
            let slice = Rc::clone(&slice);
            runtime.spawn(async move {
                let device: &dyn BlockDevice = &*slice;
                let bytes = Buffer::from_slice(&[2; LINE as usize]);
                let _ = device.write(700 * u64::from(LINE), bytes).await;
            })
        };
        runtime.sleep(Duration::from_micros(10)).await;
        assert_eq!(slice.stats().writes_waiting, 1);
        let quick = Rc::new(Cell::new(0));
        for index in 0..32 {
            let (slice, quick) = (Rc::clone(&slice), Rc::clone(&quick));
            drop(runtime.spawn(async move {
                let device: &dyn BlockDevice = &*slice;
                device.write(scattered_block(index), block(7)).await.unwrap();
                quick.set(quick.get() + 1);
            }));
        }
        runtime.sleep(Duration::from_millis(1)).await;
        // The others are the first of their windows, and give nothing back.
        assert!(quick.get() >= 16 && slice.stats().writes_waiting > 0, "{}", quick.get());
        drop(large);
    });
}
