//! Who enters the cache, request by request, as its users may rely on it.

use crate::bench::{Bench, block, byte_at, nop, simulate};
use crate::machine::CACHE_BYTES;
use headpond_block::{BlockDevice, Buffer, Hints, Request, RequestFlags};
use headpond_cache::classes::Classes;
use headpond_cache::{
    AdmissionConfig, CutoffPolicy, Mode, Promotion, PromotionPolicy, Slice, SliceConfig,
};
use std::sync::Arc;
use std::time::Duration;

const PLACE: u64 = 1 << 20;

fn with(admission: AdmissionConfig, mode: Mode) -> SliceConfig {
    SliceConfig { mode, admission, ..nop() }
}

fn nhit(trigger: u32) -> AdmissionConfig {
    let promotion = Promotion { policy: PromotionPolicy::Nhit, insertion_threshold: 3, trigger };
    AdmissionConfig { promotion, ..AdmissionConfig::default() }
}

/// Class 1 goes past the cache.
fn classes() -> AdmissionConfig {
    let text = "[[class]]\nid = 1\nwhen = \"never\"\npass_through = true\n\
                [[class]]\nid = 2\nwhen = \"never\"\n";
    let classes = Arc::new(Classes::parse(text).unwrap());
    AdmissionConfig { classes, ..AdmissionConfig::default() }
}

async fn rest(bench: &Bench) {
    bench.runtime.sleep(Duration::from_millis(1)).await;
}

async fn submit(slice: &Slice, request: Request, class: u8) {
    let hints = Hints { class, ..Hints::default() };
    (slice as &dyn BlockDevice).submit(request.with_hints(hints)).await.unwrap();
}

fn read(offset: u64) -> Request {
    Request::read(offset, Buffer::zeroed(4096))
}

#[test]
fn nhit_inserts_at_the_third_read_and_the_fourth_hits() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let slice = bench.open(with(nhit(0), Mode::WriteThrough)).await;
        let mut clean = Vec::new();
        for _ in 0..4 {
            submit(&slice, read(PLACE), 0).await;
            rest(&bench).await;
            clean.push(slice.stats().clean_bytes);
        }
        assert_eq!(clean, [0, 0, 4096, 4096]);
        let counters = slice.stats().counters;
        assert_eq!((counters.bypass.promotion, counters.read.hits), (2, 1));
        assert_eq!((counters.read.misses, counters.read.pass_through), (1, 2));
        assert!(slice.stats().memory_bytes > 0);
    });
}

#[test]
fn nhit_lets_the_third_write_in_whatever_the_mode() {
    for mode in [Mode::WriteThrough, Mode::WriteBack, Mode::WriteOnly] {
        simulate(async |runtime| {
            let bench = Bench::new(&runtime).await;
            let slice = bench.open(with(nhit(0), mode)).await;
            let mapped = || {
                let stats = slice.stats();
                stats.dirty_bytes + stats.written_bytes + stats.clean_bytes
            };
            let mut seen = Vec::new();
            for byte in 1..=4 {
                submit(&slice, Request::write(PLACE, block(byte)), 0).await;
                seen.push(mapped());
            }
            assert_eq!(seen, [0, 0, 4096, 4096], "{mode:?}");
            let counters = slice.stats().counters;
            assert_eq!((counters.bypass.promotion, counters.write.pass_through), (2, 2));
            assert_eq!((counters.write.misses, counters.write.hits), (1, 1));
            assert_eq!(byte_at(&slice, PLACE).await.unwrap(), 4);
        });
    }
}

#[test]
fn below_its_trigger_nhit_lets_everything_in() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let slice = bench.open(with(nhit(50), Mode::WriteBack)).await;
        let most = slice.stats().dirty_bytes_max;
        let mut offset = 0;
        while slice.stats().counters.bypass.promotion == 0 {
            submit(&slice, Request::write(offset, block(1)), 0).await;
            offset += 4096;
        }
        let ratio = slice.stats().dirty_bytes as f64 / most as f64;
        assert!((0.49..0.51).contains(&ratio), "{ratio}");
    });
}

#[test]
fn a_stream_enters_until_the_cache_is_full() {
    let stream = |offset: u64| read(offset).with_flags(RequestFlags::STREAMING);
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let cutoff = CutoffPolicy::Full;
        let admission = AdmissionConfig { cutoff, ..AdmissionConfig::default() };
        let slice = bench.open(with(admission, Mode::WriteThrough)).await;
        let mut last = 0;
        for offset in (0..3 * CACHE_BYTES).step_by(4096) {
            submit(&slice, stream(offset), 0).await;
            rest(&bench).await;
            last = slice.stats().counters.bypass.sequential;
        }
        // It is full when for each block that enters another one leaves.
        let entered = 3 * CACHE_BYTES / 4096 - last;
        let most = slice.stats().eviction.resident_bytes_max / 4096;
        assert!((most..most + 4).contains(&entered), "{entered} of {most}");
        let before = slice.stats().counters.inserted_blocks;
        submit(&slice, stream(50 << 20), 0).await;
        submit(&slice, read(60 << 20), 0).await;
        rest(&bench).await;
        let counters = slice.stats().counters;
        assert_eq!(counters.inserted_blocks, before + 1, "what is no stream still enters");
        let past = Request::read(55 << 20, Buffer::zeroed(4096));
        slice
            .set_config(with(
                AdmissionConfig { cutoff: CutoffPolicy::Never, ..nhit(100) },
                Mode::WriteThrough,
            ))
            .unwrap();
        submit(&slice, past.with_flags(RequestFlags::STREAMING), 0).await;
        assert_eq!(slice.stats().counters.bypass.sequential, last + 1);
    });
}

#[test]
fn a_class_past_the_cache_enters_neither_by_reading_nor_by_writing() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let slice = bench.open(with(classes(), Mode::WriteBack)).await;
        for offset in [0, 4096] {
            submit(&slice, read(offset), 1).await;
            submit(&slice, Request::write(offset + (1 << 20), block(1)), 1).await;
        }
        rest(&bench).await;
        let stats = slice.stats();
        assert_eq!((stats.dirty_bytes, stats.clean_bytes), (0, 0));
        assert_eq!(stats.counters.bypass.class, 4);
        // What others have brought in is served, and what only the cache has stays in the log.
        submit(&slice, read(0), 2).await;
        submit(&slice, Request::write(8 << 20, block(3)), 2).await;
        rest(&bench).await;
        submit(&slice, read(0), 1).await;
        submit(&slice, Request::write(8 << 20, block(4)), 1).await;
        let stats = slice.stats();
        assert_eq!((stats.dirty_bytes, stats.clean_bytes), (4096, 4096));
        // Over what is clean it goes to the core, and the mapping ends.
        submit(&slice, Request::write(0, block(5)), 1).await;
        assert_eq!(slice.stats().clean_bytes, 0);
        assert_eq!(byte_at(&slice, 0).await.unwrap(), 5);
        assert_eq!(byte_at(&slice, 8 << 20).await.unwrap(), 4);
    });
}

#[test]
fn each_request_is_counted_in_its_class_once() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let slice = bench.open(with(classes(), Mode::WriteBack)).await;
        for class in [0, 1, 2, 2, 7] {
            submit(&slice, Request::write(u64::from(class) << 20, block(1)), class).await;
            submit(&slice, read(u64::from(class) << 20), class).await;
        }
        let stats = slice.stats();
        let by_class: Vec<_> = stats
            .classes
            .iter()
            .map(|class| {
                (class.id.get(), class.write.requests, class.read.hits, class.bypass.class)
            })
            .collect();
        assert_eq!(by_class, [(0, 1, 1, 0), (1, 1, 0, 2), (2, 2, 2, 0), (7, 1, 1, 0)]);
        let sum: u64 = stats.classes.iter().map(|class| class.read.bytes).sum();
        assert_eq!(sum, stats.counters.read.bytes);
        assert_eq!((stats.counters.write.requests, stats.counters.bypass.class), (5, 2));
    });
}
