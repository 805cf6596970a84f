//! How much an open reads: what the last checkpoint has and the log since, however large the cache
//! is. `cargo run --release -p headpond-cache --example terabyte` has the seconds.

use crate::bench::{Bench, block, nop, simulate};
use crate::scale::{Full, LATENCY, LINE_BYTES};

use headpond_block::{BlockDevice, Request};
use headpond_cache::LoadProgress;
use std::cell::RefCell;

const GIB: u64 = 1 << 30;
const EVERY: u64 = 64 << 20;

#[test]
fn clean_open_reads_the_checkpoint_and_nothing_of_the_log() {
    simulate(async |runtime| {
        let full = Full::new(&runtime, 16 * GIB).await;
        full.cache.take_traffic();
        let (slice, recovery) = full.open(EVERY).await.unwrap();
        let traffic = full.cache.take_traffic();
        assert!(recovery.was_clean);
        assert_eq!(recovery.dirty_blocks, full.dirty_blocks);
        // 76 bytes a line, twice.
        let lines = full.dirty_blocks * 4096 / LINE_BYTES;
        let most = 2 * lines * 76 + (1 << 20);
        assert!(traffic.read_bytes <= most, "{traffic:?}");
        assert!(traffic.operations <= traffic.read_bytes / (1 << 20) + 20, "{traffic:?}");
        assert!(traffic.written_bytes <= 8192, "{traffic:?}");
        drop(slice);
    });
}

#[test]
fn unclean_open_reads_the_last_checkpoint_and_an_interval_and_a_half_of_log() {
    simulate(async |runtime| {
        let full = Full::new(&runtime, 16 * GIB).await;
        let (slice, _) = full.open(EVERY).await.unwrap();
        full.write_lines(&slice, 0..12_000).await;
        let counters = slice.stats().counters;
        assert!(counters.checkpoints >= 3, "{} checkpoints", counters.checkpoints);
        let checkpoint_bytes = counters.checkpoint_bytes / counters.checkpoints;
        assert!(counters.checkpoint_bytes * 6 < counters.log_bytes, "cost too much");
        drop(slice);
        full.cache.take_traffic();
        let (slice, recovery) = full.open(EVERY).await.unwrap();
        let traffic = full.cache.take_traffic();
        assert!(!recovery.was_clean);
        assert_eq!((recovery.dirty_blocks, recovery.lost_blocks), (full.dirty_blocks, 0));
        let interval = EVERY.max(8 * checkpoint_bytes) + (4 << 20);
        let most = 2 * checkpoint_bytes + interval * 3 / 2 + 9 * (4 << 20) + (1 << 20);
        assert!(traffic.read_bytes <= most, "{traffic:?}, at most {most}");
        assert!(traffic.read_bytes < 16 * GIB / 20, "{traffic:?}");
        assert!(traffic.written_bytes <= checkpoint_bytes + (1 << 20), "{traffic:?}");
        drop(slice);
    });
}

/// A sixty-fourth of a terabyte. What an open looks at is looked at while the device goes on: it is
/// never without something to read, and a real device answers sooner than it is looked at.
#[test]
fn an_open_leaves_the_device_no_rest_while_it_reads() {
    simulate(async |runtime| {
        let full = Full::new(&runtime, 16 * GIB).await;
        for is_clean in [true, false] {
            full.cache.take_traffic();
            let begun = full.cache.clock();
            let (slice, recovery) = full.open(EVERY).await.unwrap();
            let (took, traffic) = (full.cache.clock() - begun, full.cache.take_traffic());
            assert_eq!(recovery.was_clean, is_clean);
            // Of what it found it writes one piece after the other, and headers with flushes.
            let writes = traffic.written_bytes.div_ceil(1 << 20) as u32 + 2;
            let (busy, most) = (traffic.busy(), traffic.busy() * 26 / 25 + LATENCY * (writes + 12));
            assert!(took >= busy && took <= most, "{took:?} of {busy:?} to {most:?}: {traffic:?}");
            full.write_lines(&slice, 0..3000).await;
        }
    });
}

/// The swarm found a checkpoint's blocks cleaned with their parity patched (seed 770730).
#[test]
fn dirty_blocks_of_a_checkpoint_owe_parity_after_an_unclean_stop() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let slice = bench.open(nop()).await;
        for index in 0..10 {
            slice.submit(Request::write(index * 4096, block(1))).await.unwrap();
        }
        slice.stop().await.unwrap();
        drop(bench.open(nop()).await);
        let stats = bench.open(nop()).await.stats();
        assert_eq!((stats.dirty_bytes, stats.replayed_blocks), (10 * 4096, 10));
    });
}

/// What is told of an open adds up to about what the device was asked for.
#[test]
fn whoever_waits_for_an_open_is_told_how_much_of_how_much_is_read() {
    simulate(async |runtime| {
        let full = Full::new(&runtime, 4 * GIB).await;
        for is_clean in [true, false] {
            let told: RefCell<Vec<LoadProgress>> = RefCell::default();
            full.cache.take_traffic();
            let watch = |progress| told.borrow_mut().push(progress);
            let (slice, recovery) = full.open_watched(EVERY, &watch).await.unwrap();
            assert_eq!(recovery.was_clean, is_clean);
            let (told, traffic) = (told.into_inner(), full.cache.take_traffic());
            let (first, last) = (told[0], told[told.len() - 1]);
            assert_eq!((first.read_bytes, last.read_bytes), (0, last.bytes));
            assert_eq!((first.segments_read, last.segments_read), (0, last.segments));
            assert_eq!(last.segments > 0, !is_clean);
            assert!(
                told.iter().all(|now| (now.segments, now.bytes) == (first.segments, first.bytes))
            );
            assert!(told.is_sorted_by_key(|now| (now.read_bytes, now.segments_read)));
            assert!(told.len() > 4, "{} times", told.len());
            // Not told of: headers, and the segments that are looked at to find the end of the log.
            let untold = traffic.read_bytes.abs_diff(last.bytes);
            let most = if is_clean { 1 << 20 } else { 4 * (4 << 20) };
            assert!(untold <= most, "{traffic:?}, {last:?}");
            full.write_lines(&slice, 0..3000).await;
        }
    });
}
