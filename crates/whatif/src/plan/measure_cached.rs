//! An array behind a cache, measured in virtual time.
//!
//! What hits is a small part of the cache, which is read into it first; the other requests are for
//! any block of the array, so that they hardly ever hit. The cache is cut short where it is large:
//! what counts is that it is full.

use super::Shape;
use super::cached::{CachedSpeeds, InFront};
use super::measure::{KINDS, core, job};
use crate::condition::Condition;
use crate::job::{Hot, Job};
use crate::load::Load;
use crate::outcome::Outcome;
use crate::simulate::Experiment;
use crate::stack::{CacheStack, Stack};
use headpond_sim::ssd::State;
use headpond_volume::{ArraySettings, CacheSettings, Size};

/// The most of a cache that is simulated.
pub const SIMULATED_CACHE_BYTES_MAX: u64 = 1 << 30;
/// Of the cache, so many parts are for what is seldom asked for.
const HOT_PART: u64 = 20;
/// Of the cache, what is written while it has room.
const ROOM_PART: u64 = 4;
/// Experiments for each depth.
const EACH: usize = 5;

/// What the simulator says of an array behind a cache, at each of some depths: five experiments
/// each.
pub fn cached_experiments(
    shape: Shape,
    model: &str,
    front: &InFront,
    depths: &[u32],
) -> Vec<Experiment> {
    let cache_bytes = front.size_bytes.min(SIMULATED_CACHE_BYTES_MAX);
    let stack = Stack {
        name: format!("{shape} behind {}", front.drive.name),
        engine: None,
        arrays: 1,
        core: core(shape, model, Condition::Healthy),
        array: ArraySettings::default(),
        cache: Some(device(front, cache_bytes)),
    };
    let hot = Hot { share: front.hit_share, bytes: cache_bytes / HOT_PART };
    let of = |&depth: &u32| {
        jobs(model, depth, hot, cache_bytes).map(|job| Experiment {
            stack: stack.clone(),
            load: Load::Jobs(vec![job]),
            seed: 1,
        })
    };
    depths.iter().flat_map(of).collect()
}

/// Random reads, random writes with room and without, and streams.
fn jobs(model: &str, depth: u32, hot: Hot, cache_bytes: u64) -> [Job; EACH] {
    let [read, write, stream_in, stream_out] = KINDS.map(|kind| job(model, kind, depth));
    let room = Job {
        ramp: std::time::Duration::ZERO,
        runtime: None,
        is_time_based: false,
        size: Some(cache_bytes / ROOM_PART),
        ..write.clone()
    };
    let [read, write] = [read, write].map(|job| Job { hot: Some(hot), ..job });
    [read, room, write, stream_in, stream_out]
}

fn device(front: &InFront, bytes: u64) -> CacheStack {
    CacheStack {
        size: Size(bytes),
        line: Size(4 << 10),
        settings: CacheSettings::default(),
        model: Some(front.drive.model.clone()),
        state: State::default(),
        read_us: 0.0,
        write_us: 0.0,
        flush_us: 0.0,
        mb_per_s: 10_000.0,
        endurance: None,
    }
}

/// How many they are.
pub fn cached_count(depths: &[u32]) -> usize {
    depths.len() * EACH
}

/// The outcomes of [`cached_experiments`].
///
/// # Panics
/// Where they are not five for each depth.
pub fn cached_speeds(depths: &[u32], outcomes: &[Outcome]) -> Vec<CachedSpeeds> {
    assert_eq!(outcomes.len(), depths.len() * EACH, "five for each depth");
    let speeds = |(&depth, of): (&u32, &[Outcome])| {
        let measured = |at: usize| &of[at].jobs[0].measured;
        CachedSpeeds {
            depth,
            read_hit_share: of[0].cache.map_or(0.0, |cache| cache.read_hit_ratio),
            random_read_iops: measured(0).read.iops,
            random_write_iops: measured(1).write.iops,
            random_write_iops_when_full: measured(2).write.iops,
            sequential_read_mb_per_s: measured(3).read.mb_per_s,
            sequential_write_mb_per_s: measured(4).write.mb_per_s,
        }
    };
    depths.iter().zip(outcomes.chunks(EACH)).map(speeds).collect()
}
