//! Who stays in the cache: as many misses as the policy on paper, or fewer.

use crate::bench::{Bench, block, byte_at, nop, simulate};
use crate::machine::{CACHE_BYTES, CORE_BYTES};
use crate::twins::twin;
use headpond_block::{BlockDevice, Buffer, ByteRange, Request, Runtime};
use headpond_cache::{EvictionPolicy, Mode, Slice, SliceConfig, SliceStats};
use std::rc::Rc;
use std::time::Duration;

const REQUESTS: u64 = 12_000;
/// More than the cache keeps.
const BLOCKS: u64 = CACHE_BYTES / 4096 * 2;
const LINE: u64 = 64 << 10;
const _: () = assert!(BLOCKS * 4096 <= CORE_BYTES);

fn with(eviction: EvictionPolicy, mode: Mode) -> SliceConfig {
    SliceConfig { eviction, mode, ..nop() }
}

/// Some blocks often, most now and then, and rounds through many.
fn trace() -> impl Iterator<Item = u64> {
    let mut state = 7u64;
    (0..REQUESTS).map(move |index| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
        let draw = state >> 33;
        match index / 1000 % 4 {
            3 => 700 + index % 1000 * 3,
            _ if draw.is_multiple_of(3) => draw / 3 % 300,
            _ => draw / 3 % BLOCKS,
        }
    })
}

async fn read_line(slice: &Slice, line: u64) {
    let device: &dyn BlockDevice = slice;
    device.read(line * LINE, Buffer::zeroed(LINE as usize)).await.unwrap();
}

/// Until everything that follows from a request has been done.
async fn rest(runtime: &Runtime) {
    runtime.sleep(Duration::from_millis(20)).await;
}

fn misses(stats: &SliceStats) -> u64 {
    stats.counters.read.blocks_missed + stats.counters.write.blocks_missed
}

fn capacity(slice: &Slice) -> usize {
    (slice.stats().eviction.resident_bytes_max / 4096) as usize
}

#[test]
fn reads_miss_what_the_twin_misses_less_what_was_still_there() {
    for eviction in EvictionPolicy::PLAIN {
        simulate(async |runtime| {
            let bench = Bench::new(&runtime).await;
            let slice = bench.open(with(eviction, Mode::WriteThrough)).await;
            let mut twin = twin(eviction.word(), capacity(&slice));
            let mut expected = 0;
            for place in trace() {
                expected += u64::from(!twin.access(place));
                byte_at(&slice, place * 4096).await.unwrap();
                rest(&runtime).await;
            }
            slice.self_check();
            let stats = slice.stats();
            let (found, again) = (misses(&stats), stats.counters.readmitted_blocks);
            assert_eq!(found + again, expected, "{eviction:?}: {again} were still there");
            assert_eq!(stats.eviction.resident_bytes / 4096, twin.residents().len() as u64);
            assert_eq!(stats.counters.dropped_resident_blocks, 0);
            let counters = stats.counters;
            assert!(counters.segments_reclaimed > 20 && counters.reinserted_blocks > 0);
            assert!(found > REQUESTS / 5, "a cache that is too small for them");
        });
    }
}

/// The twin sees lines.
#[test]
fn reads_of_long_lines_miss_what_the_twin_misses_less_what_was_still_there() {
    for eviction in EvictionPolicy::PLAIN {
        simulate(async |runtime| {
            let bench = Bench::with_lines(&runtime, LINE as u32).await;
            let slice = bench.open(with(eviction, Mode::WriteThrough)).await;
            let most = slice.stats().eviction.resident_bytes_max / LINE;
            let (mut twin, mut expected) = (twin(eviction.word(), most as usize), 0);
            for line in trace().map(|block| block * 4096 / LINE) {
                expected += u64::from(!twin.access(line));
                read_line(&slice, line).await;
                rest(&runtime).await;
            }
            slice.self_check();
            let stats = slice.stats();
            let (found, again) = (stats.counters.read.misses, stats.counters.readmitted_blocks);
            assert_eq!(found + again, expected, "{eviction:?}: {again} were still there");
            assert_eq!(stats.eviction.resident_bytes / LINE, twin.residents().len() as u64);
            assert_eq!(stats.counters.dropped_resident_blocks, 0);
            assert!(stats.counters.segments_reclaimed > 20 && found > REQUESTS / 10);
        });
    }
}

#[test]
fn a_long_line_is_resident_as_long_as_anything_of_it_is_mapped() {
    for eviction in EvictionPolicy::PLAIN {
        simulate(async |runtime| {
            let bench = Bench::with_lines(&runtime, LINE as u32).await;
            let slice = bench.open(with(eviction, Mode::WriteThrough)).await;
            let device: &dyn BlockDevice = &slice;
            let resident = || slice.stats().eviction.resident_bytes / LINE;
            for line in 0..8 {
                read_line(&slice, line).await;
            }
            rest(&runtime).await;
            // Line 3 in pieces, one of them in another place.
            device.write(3 * LINE + 8192, block(7)).await.unwrap();
            assert_eq!(resident(), 8);
            for (start, end, expected) in [(0, 8192, 8), (12_288, LINE, 8), (8192, 12_288, 7)] {
                let range = ByteRange::at(3 * LINE + start, end - start);
                device.submit(Request::discard(range)).await.unwrap();
                rest(&runtime).await;
                assert_eq!(resident(), expected, "{eviction:?}");
                slice.self_check();
            }
            read_line(&slice, 3).await;
            rest(&runtime).await;
            assert_eq!(resident(), 8);
            slice.self_check();
        });
    }
}

/// Each piece would else be a hit of its line, and what is read once look as if it was wanted.
#[test]
fn a_long_line_that_is_read_piece_by_piece_is_hit_once() {
    simulate(async |runtime| {
        let bench = Bench::with_lines(&runtime, LINE as u32).await;
        let slice = bench.open(with(EvictionPolicy::S3Fifo, Mode::WriteThrough)).await;
        let lines = slice.stats().eviction.resident_bytes_max / LINE;
        let wanted = lines / 2;
        for line in (0..3).flat_map(|_| (0..wanted).map(|index| index * 2)) {
            read_line(&slice, line).await;
            rest(&runtime).await;
        }
        for line in (0..3 * lines).map(|index| 2 * wanted + index * 2) {
            read_line(&slice, line).await;
            rest(&runtime).await;
            for piece in 0..LINE / 4096 {
                byte_at(&slice, line * LINE + piece * 4096).await.unwrap();
            }
        }
        let before = slice.stats().counters;
        for line in (0..wanted).map(|index| index * 2) {
            read_line(&slice, line).await;
            rest(&runtime).await;
        }
        let after = slice.stats().counters;
        assert_eq!(after.read.hits - before.read.hits, wanted);
        assert_eq!(after.readmitted_blocks, before.readmitted_blocks, "none of them had left");
    });
}

#[test]
fn reads_writes_and_discards_miss_no_more_than_the_twin() {
    for (eviction, mode) in EvictionPolicy::PLAIN
        .into_iter()
        .flat_map(|eviction| [Mode::WriteBack, Mode::WriteThrough].map(|mode| (eviction, mode)))
    {
        simulate(async |runtime| {
            let bench = Bench::new(&runtime).await;
            let cleaning = headpond_cache::CleaningConfig::default();
            let config = SliceConfig { cleaning, ..with(eviction, mode) };
            let slice = bench.open(config).await;
            let device: &dyn BlockDevice = &slice;
            let mut twin = twin(eviction.word(), capacity(&slice));
            let mut expected = 0;
            for (index, place) in trace().enumerate() {
                match index % 16 {
                    0..5 => device.write(place * 4096, block(place as u8)).await.unwrap(),
                    5 => {
                        twin.remove(place);
                        let range = ByteRange::at(place * 4096, 4096);
                        device.submit(Request::discard(range)).await.unwrap();
                    }
                    _ => device.read(place * 4096, Buffer::zeroed(4096)).await.unwrap(),
                }
                if index % 16 != 5 {
                    expected += u64::from(!twin.access(place));
                }
                rest(&runtime).await;
            }
            slice.self_check();
            let stats = slice.stats();
            assert!(misses(&stats) <= expected, "{} of {expected}, {eviction:?}", misses(&stats));
            assert_eq!(stats.eviction.resident_bytes / 4096, twin.residents().len() as u64);
            assert_eq!(stats.counters.dropped_resident_blocks, 0);
        });
    }
}

async fn fill(slice: &Slice, runtime: &Runtime) {
    for place in trace().take(3000) {
        (slice as &dyn BlockDevice).write(place * 4096, block(place as u8)).await.unwrap();
        rest(runtime).await;
    }
}

#[test]
fn after_any_stop_what_the_log_holds_is_resident_again() {
    for (eviction, is_clean) in
        EvictionPolicy::PLAIN.into_iter().flat_map(|it| [(it, true), (it, false)])
    {
        let config = with(eviction, Mode::WriteBack);
        let kept = Rc::new(std::cell::RefCell::new(None));
        let keep = Rc::clone(&kept);
        simulate(async |runtime| {
            let bench = Bench::new(&runtime).await;
            let slice = bench.open(config.clone()).await;
            fill(&slice, &runtime).await;
            if is_clean {
                slice.stop().await.unwrap();
            }
            keep.replace(Some(bench));
        });
        let bench = kept.take().expect("devices");
        simulate(async |runtime| {
            let bench = Bench { runtime: runtime.clone(), ..bench.clone() };
            let slice = bench.open(config.clone()).await;
            slice.self_check();
            let stats = slice.stats();
            let mapped = stats.dirty_bytes + stats.clean_bytes + stats.written_bytes;
            let most = stats.eviction.resident_bytes_max;
            assert!(mapped > most / 2, "{mapped} bytes are mapped");
            assert_eq!(stats.eviction.resident_bytes, mapped.min(most), "{eviction:?}");
            fill(&slice, &runtime).await;
            slice.self_check();
        });
    }
}

#[test]
fn a_policy_that_is_changed_takes_in_what_is_there() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let slice = bench.open(with(EvictionPolicy::S3Fifo, Mode::WriteThrough)).await;
        for (index, place) in trace().enumerate() {
            byte_at(&slice, place * 4096).await.unwrap();
            rest(&runtime).await;
            if index % 500 == 499 {
                let all = EvictionPolicy::PLAIN;
                let next = match index / 500 % 5 {
                    4 => EvictionPolicy::Adaptive,
                    at => all[at],
                };
                let before = slice.stats();
                slice.set_config(with(next, Mode::WriteThrough)).unwrap();
                let after = slice.stats();
                assert_eq!(after.eviction.setting, next);
                let mapped = before.clean_bytes + before.written_bytes;
                let most = after.eviction.resident_bytes_max;
                assert_eq!(after.eviction.resident_bytes, mapped.min(most));
                slice.self_check();
            }
        }
    });
}

/// Rounds through a little more than the cache keeps: the worst for recency.
#[test]
fn adaptive_says_what_it_has_chosen_and_why() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let slice = bench.open(with(EvictionPolicy::Lru, Mode::WriteThrough)).await;
        slice.set_config(with(EvictionPolicy::Adaptive, Mode::WriteThrough)).unwrap();
        assert_eq!(slice.stats().eviction.policy, EvictionPolicy::Lru, "until it knows better");
        let around = capacity(&slice) as u64 * 5 / 4;
        for index in 0..around * 12 {
            byte_at(&slice, index % around * 4096).await.unwrap();
            rest(&runtime).await;
        }
        slice.self_check();
        let stats = slice.stats().eviction;
        assert_eq!((stats.setting, stats.changes), (EvictionPolicy::Adaptive, 1), "{stats:?}");
        let ratio = |policy| {
            stats.sampled.iter().find(|it| it.policy == policy).expect("compared").miss_ratio
        };
        assert_ne!(stats.policy, EvictionPolicy::Lru);
        assert!(ratio(stats.policy) < 0.95 * ratio(EvictionPolicy::Lru), "{stats:?}");
    });
}

/// Misses of the last third of the trace, with a stop before it where `stops` says so.
fn misses_at_the_end(eviction: EvictionPolicy, stops: bool, keeps: bool) -> u64 {
    let found = Rc::new(std::cell::Cell::new(0));
    let place = Rc::clone(&found);
    simulate(async move |runtime| {
        let bench = Bench::new(&runtime).await;
        if !keeps {
            bench.forget_classes().await;
        }
        let mut slice = bench.open(with(eviction, Mode::WriteThrough)).await;
        let mut before = 0;
        for (index, place) in trace().enumerate() {
            if index as u64 == REQUESTS * 2 / 3 {
                before = misses(&slice.stats());
                if stops {
                    slice.stop().await.unwrap();
                    slice = bench.open(with(eviction, Mode::WriteThrough)).await;
                    // What is known of a line outlives another stop without being asked for.
                    slice.stop().await.unwrap();
                    slice = bench.open(with(eviction, Mode::WriteThrough)).await;
                    slice.self_check();
                    before = 0;
                }
            }
            byte_at(&slice, place * 4096).await.unwrap();
            rest(&runtime).await;
        }
        place.set(misses(&slice.stats()) - before);
    });
    found.get()
}

#[test]
fn a_stop_costs_few_hits() {
    for eviction in EvictionPolicy::PLAIN {
        let without = misses_at_the_end(eviction, false, true);
        let with = misses_at_the_end(eviction, true, true);
        assert!(with * 100 <= without * 115, "{eviction:?}: {with} misses instead of {without}");
        // Those of which a mark tells what was asked for again.
        if matches!(eviction, EvictionPolicy::S3Fifo | EvictionPolicy::Arc) {
            let forgetful = misses_at_the_end(eviction, true, false);
            assert!(with * 110 <= forgetful * 100, "{eviction:?}: {with}, not {forgetful}");
        }
    }
}
