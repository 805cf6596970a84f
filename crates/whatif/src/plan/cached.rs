//! What a write-back cache in front of an array is expected to do.
//!
//! A share *h* of the random requests is for what the cache holds. Reads of the others come from
//! the array and are written to the cache as well; every write goes to the cache alone, which is a
//! log: one append at the rate of its sequential writes. Once as much is dirty as may be, each
//! write waits for a block to be cleaned; what is written again meanwhile is cleaned once, so 1 - h
//! of the writes reach the array. Streams go past the cache when it is full.
//!
//! **Source**: asymptotic bounds of a closed network of two centres, E. Lazowska et al.,
//! "Quantitative System Performance", 1984, section 5.2: the busier one of cache and array is the
//! limit; between one request and that as for the array alone (`speed`).
//! **Not here**: that a cleaner writes in the order of addresses, which a disk likes: the simulator
//! has it, and more of it the larger the cache is.

use super::drive::DriveFigures;
use super::speed::{AtDepth, Speeds, closed};
use serde::Serialize;

/// A block of a random request.
const BLOCK_BYTES: f64 = 4096.0;

/// A cache in front of the array.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InFront {
    pub drive: DriveFigures,
    /// Of its device, what is used.
    pub size_bytes: u64,
    /// Of the random requests, those for what it holds.
    pub hit_share: f64,
}

/// An array behind a cache, with so many requests in flight.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CachedSpeeds {
    pub depth: u32,
    /// Of the random reads, what the cache answered.
    pub read_hit_share: f64,
    pub random_read_iops: f64,
    /// While the cache has room for what is dirty.
    pub random_write_iops: f64,
    /// Once as much is dirty as may be.
    pub random_write_iops_when_full: f64,
    /// With a cache that is full.
    pub sequential_read_mb_per_s: f64,
    pub sequential_write_mb_per_s: f64,
}

/// Of an array that does `full` with enough in flight and `alone` with one request.
pub(super) fn expected(
    front: &InFront,
    full: Speeds,
    alone: Speeds,
    by_depth: &[AtDepth],
) -> Vec<CachedSpeeds> {
    let (cache, hits) = (&front.drive, front.hit_share);
    let misses = 1.0 - hits;
    let append_iops = cache.sequential_write_mb_per_s * 1e6 / BLOCK_BYTES;
    let read_ms = hits * cache.lone_read_ms + misses * 1000.0 / alone.random_read_iops;
    let of_cache = 1.0 / (hits / cache.random_read_iops + misses / append_iops);
    let read_limit = of_cache.min(full.random_read_iops / misses);
    let write_limit = full.random_write_iops / misses;
    let at = |it: &AtDepth| {
        let room = closed(it.depth, cache.lone_write_ms(), append_iops);
        CachedSpeeds {
            depth: it.depth,
            read_hit_share: hits,
            random_read_iops: closed(it.depth, read_ms, read_limit),
            random_write_iops: room,
            random_write_iops_when_full: room.min(write_limit),
            sequential_read_mb_per_s: it.speeds.sequential_read_mb_per_s,
            sequential_write_mb_per_s: it.speeds.sequential_write_mb_per_s,
        }
    };
    by_depth.iter().map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn front(hit_share: f64) -> InFront {
        let disk = DriveFigures::find("hdd-14t").unwrap();
        let drive = DriveFigures {
            lone_read_ms: 0.1,
            lone_write_ms: Some(0.02),
            random_read_iops: 200_000.0,
            sequential_write_mb_per_s: 819.2,
            revolution_ms: 0.0,
            ..disk
        };
        InFront { drive, size_bytes: 1 << 40, hit_share }
    }

    fn at(hit_share: f64, depth: u32) -> CachedSpeeds {
        let speeds = |random_read_iops, random_write_iops| Speeds {
            random_read_iops,
            random_write_iops,
            sequential_read_mb_per_s: 1000.0,
            sequential_write_mb_per_s: 900.0,
        };
        let (full, alone) = (speeds(2000.0, 500.0), speeds(100.0, 50.0));
        expected(&front(hit_share), full, alone, &[AtDepth { depth, speeds: full }])[0]
    }

    #[test]
    fn what_hits_takes_the_cache_and_what_misses_the_array() {
        assert!((at(1.0, 1).random_read_iops - 10_000.0).abs() < 1e-6);
        assert!((at(0.0, 1).random_read_iops - 100.0).abs() < 1e-6);
        let mixed_ms = 0.8 * 0.1 + 0.2 * 10.0;
        assert!((at(0.8, 1).random_read_iops - 1000.0 / mixed_ms).abs() < 1e-6);
    }

    #[test]
    fn the_busier_of_cache_and_array_is_the_limit() {
        let many = 1 << 20;
        assert!((at(0.8, many).random_read_iops / (2000.0 / 0.2) - 1.0).abs() < 1e-3);
        assert!((at(1.0, many).random_read_iops / 200_000.0 - 1.0).abs() < 1e-3);
        // 819.2 MB/s are 200,000 blocks, of which half are read.
        let almost = at(0.9999, many).random_read_iops;
        assert!((almost / 200_000.0 - 1.0).abs() < 1e-2, "{almost}");
    }

    #[test]
    fn a_full_cache_writes_as_fast_as_the_array_takes_what_is_not_written_again() {
        let writes = at(0.75, 32);
        assert!((writes.random_write_iops_when_full - 2000.0).abs() < 1e-6, "{writes:?}");
        assert!(writes.random_write_iops > 100_000.0, "{writes:?}");
        let all_again = at(1.0, 32);
        assert_eq!(all_again.random_write_iops_when_full, all_again.random_write_iops);
        assert_eq!(writes.sequential_write_mb_per_s, 500.0 + 400.0);
    }
}
