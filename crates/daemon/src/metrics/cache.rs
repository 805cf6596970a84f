//! The cache, and the tier in memory in front of it.

mod requests;

use super::exposition::Exposition;
use super::family::families;
use headpond_api::answers::{CacheAnswer, Status};
use headpond_api::word;
use headpond_block::UtcTime;
use headpond_cache::{SliceStats, Traffic};
use headpond_volume::{CacheCounts, CacheStatus, VolumeCounts};

pub const REQUESTS: super::family::Group = requests::GROUP;

families! { "Cache and tier":
    INFO = Gauge "headpond_cache_info" ["cache", "device", "mode", "cleaning", "eviction"]
        "1, with the device and the settings. `cache` is `cache` or `tier` here and below.";
    STATE = Gauge "headpond_cache_state" ["cache", "state"]
        "1 for the present state: `in_use`, `draining`, `in_fallback`, `failed`.";
    DEVICE = Gauge "headpond_cache_device_bytes" ["cache"]
        "Size of its device, as far as it is used.";
    CAPACITY = Gauge "headpond_cache_capacity_bytes" ["cache"]
        "Size of its log.";
    DIRTY = Gauge "headpond_cache_dirty_bytes" ["cache"]
        "Data that is newer than the array's.";
    UNFLUSHED = Gauge "headpond_cache_unflushed_bytes" ["cache"]
        "Data that was written to the array, and not flushed there.";
    DIRTY_MAX = Gauge "headpond_cache_dirty_limit_bytes" ["cache"]
        "The most dirty data that it takes.";
    DIRTY_RATIO = Gauge "headpond_cache_dirty_ratio" ["cache"]
        "Dirty data as a share of this limit.";
    CLEAN = Gauge "headpond_cache_clean_bytes" ["cache"]
        "Data that the array has, too.";
    OCCUPANCY = Gauge "headpond_cache_occupancy_ratio" ["cache"]
        "Share of its log that has valid data.";
    LOST = Gauge "headpond_cache_lost_bytes" ["cache"]
        "Data that is damaged: reads of it fail.";
    UNREADABLE = Gauge "headpond_cache_unreadable_bytes" ["cache"]
        "Dirty data that was unreadable when it was last read.";
    REPLAYED = Gauge "headpond_cache_replayed_bytes" ["cache"]
        "Dirty data since an unclean shutdown, beside which parity is suspect.";
    SEGMENTS = Gauge "headpond_cache_segments" ["cache", "state"]
        "Segments of its log: `free`, `used`.";
    WAITING = Gauge "headpond_cache_writes_waiting" ["cache"]
        "Writes that wait for a place in the log.";
    MEMORY = Gauge "headpond_cache_memory_bytes" ["cache"]
        "Memory for its map and all else.";
    ENTERED = Gauge "headpond_cache_wear_entered_bytes" ["cache"]
        "Data that has entered the cache in all its runs; a crash forgets those of its run.";
    WORN = Gauge "headpond_cache_wear_written_bytes" ["cache"]
        "Bytes that were written to its device for that, likewise.";
    WRITTEN = Counter "headpond_cache_device_written_bytes_total" ["cache", "purpose"]
        "Bytes written to its device: `data`, `completions`, `copies`, `descriptors`, `padding`, \
         `marks`, `checkpoints`.";
    READ = Counter "headpond_cache_device_read_bytes_total" ["cache", "purpose"]
        "Bytes read from its device, for `requests`, `cleaning`, `reclaim`, `scrub`; `lent` were \
         read in its memory.";
    DISCARDED = Counter "headpond_cache_device_discarded_bytes_total" ["cache"]
        "Bytes of its device that were discarded.";
    CORE_READ = Counter "headpond_cache_core_read_bytes_total" ["cache", "purpose"]
        "Bytes read from the core, for `requests`, `readahead`, `completions` (the rest of partly \
         written blocks), `parity`.";
    CORE_WRITTEN = Counter "headpond_cache_core_written_bytes_total" ["cache", "purpose"]
        "Bytes written to the core, for `requests`, `cleaning`.";
    CLEANED = Counter "headpond_cache_cleaned_bytes_total" ["cache"]
        "Dirty data that the cleaner has written to the core.";
    CLEANING_WRITES = Counter "headpond_cache_cleaning_writes_total" ["cache", "stripe"]
        "Writes of the cleaner: of a `full` stripe, or of a `part` of one.";
    CORE_FLUSHES = Counter "headpond_cache_core_flushes_total" ["cache"]
        "Flushes of the core by the cleaner.";
    THROTTLED = Counter "headpond_cache_throttled_writes_total" ["cache"]
        "Writes that waited for the cleaner.";
    RECORDS = Counter "headpond_cache_records_total" ["cache"]
        "Records that were written to the log.";
    RECLAIMED = Counter "headpond_cache_segments_reclaimed_total" ["cache"]
        "Segments that were reclaimed.";
    CHECKPOINTS = Counter "headpond_cache_checkpoints_total" ["cache"]
        "Checkpoints that were written while it was in use.";
    ERRORS = Counter "headpond_cache_errors_total" ["cache", "error"]
        "Failed operations as requests felt them: `cache_read`, `cache_write`, `cache_checksum`, \
         `cache_discard`, `dirty_unreadable` (dirty blocks), `core_read`, `core_write`, \
         `core_flush`.";
    REPAIRED = Counter "headpond_cache_repaired_blocks_total" ["cache"]
        "Blocks that were damaged in one copy of a mirrored cache, and correct in another.";
    SCRUBBED = Gauge "headpond_cache_last_scrub_timestamp_seconds" ["cache"]
        "End of its newest complete scrub.";
    SCRUB_FOUND = Gauge "headpond_cache_last_scrub_damaged_bytes" ["cache", "contents"]
        "What that found damaged: `clean` was dropped, `dirty` is lost.";
}

const STATES: [&str; 4] = ["in_use", "draining", "in_fallback", "failed"];
const BLOCK_BYTES: u64 = headpond_block::BLOCK_BYTES;

pub fn add(out: &mut Exposition, status: &Status, counts: &VolumeCounts) {
    let caches = [("cache", &status.cache, &counts.cache), ("tier", &status.tier, &counts.tier)];
    for (name, answer, counts) in caches {
        let (Some(answer), Some(counts)) = (answer, counts) else { continue };
        let Some(live) = &answer.live else { continue };
        add_state(out, name, answer, live);
        add_log(out, name, &counts.slices);
        add_work(out, name, &counts.slices);
        add_traffic(out, name, live, &counts.slices);
        requests::add(out, name, status, &counts.slices);
    }
    let slices = |counts: &CacheCounts| counts.slices.clone();
    let first = counts.cache.as_ref().map(slices).unwrap_or_default();
    requests::add_classes(out, status, &first);
}

fn add_state(out: &mut Exposition, name: &str, answer: &CacheAnswer, live: &CacheStatus) {
    let (settings, of) = (&answer.settings, &[name][..]);
    let (cleaning, eviction) = (word(settings.cleaning.policy), word(settings.eviction));
    let info = [name, &live.device, settings.mode.name(), &cleaning, &eviction];
    out.add(&INFO, &info, 1_u64);
    let state = match live {
        CacheStatus { failed: true, .. } => "failed",
        CacheStatus { in_fallback: true, .. } => "in_fallback",
        CacheStatus { draining: true, .. } => "draining",
        _ => "in_use",
    };
    out.add_state(&STATE, of, &STATES, state);
    out.add(&DEVICE, of, live.device_bytes);
    out.add(&CAPACITY, of, live.capacity_bytes);
    out.add(&DIRTY, of, live.dirty_bytes);
    out.add(&UNFLUSHED, of, live.unflushed_bytes);
    out.add(&DIRTY_MAX, of, live.dirty_bytes_max);
    out.add(&DIRTY_RATIO, of, live.dirty_ratio);
    out.add(&CLEAN, of, live.clean_bytes);
    let valid = (live.dirty_bytes + live.unflushed_bytes + live.clean_bytes) as f64;
    out.add(&OCCUPANCY, of, valid / live.capacity_bytes.max(1) as f64);
    out.add(&LOST, of, live.lost_blocks * BLOCK_BYTES);
    out.add(&UNREADABLE, of, live.unreadable_blocks * BLOCK_BYTES);
    out.add(&REPLAYED, of, live.replayed_blocks * BLOCK_BYTES);
    if let Some(scrub) = &live.last_scrub {
        let ended_s = scrub.ended_at.seconds_since(UtcTime::from_unix_s(0));
        out.add(&SCRUBBED, of, ended_s);
        out.add(&SCRUB_FOUND, &[name, "clean"], scrub.dropped_blocks * BLOCK_BYTES);
        out.add(&SCRUB_FOUND, &[name, "dirty"], scrub.lost_blocks * BLOCK_BYTES);
    }
}

fn add_log(out: &mut Exposition, name: &str, slices: &[SliceStats]) {
    let sum = |pick: fn(&SliceStats) -> u64| slices.iter().map(pick).sum::<u64>();
    let of = &[name][..];
    let (all, free) = (sum(|it| it.segments.into()), sum(|it| it.segments_free.into()));
    out.add(&SEGMENTS, &[name, "free"], free);
    out.add(&SEGMENTS, &[name, "used"], all - free);
    out.add(&WAITING, of, sum(|it| it.writes_waiting));
    out.add(&MEMORY, of, sum(|it| it.memory_bytes));
    out.add(&RECORDS, of, sum(|it| it.counters.records));
    out.add(&RECLAIMED, of, sum(|it| it.counters.segments_reclaimed));
    out.add(&CHECKPOINTS, of, sum(|it| it.counters.checkpoints));
}

fn add_work(out: &mut Exposition, name: &str, slices: &[SliceStats]) {
    let sum = |pick: fn(&SliceStats) -> u64| slices.iter().map(pick).sum::<u64>();
    let of = &[name][..];
    let (all, full) =
        (sum(|it| it.counters.cleaning_writes), sum(|it| it.counters.full_stripe_writes));
    out.add(&CLEANED, of, sum(|it| it.counters.cleaned_blocks) * BLOCK_BYTES);
    out.add(&CLEANING_WRITES, &[name, "full"], full);
    out.add(&CLEANING_WRITES, &[name, "part"], all.saturating_sub(full));
    out.add(&CORE_FLUSHES, of, sum(|it| it.counters.cleaning_flushes));
    out.add(&THROTTLED, of, sum(|it| it.counters.throttled));
    type Counted = fn(&SliceStats) -> u64;
    let errors: [(&str, Counted); 8] = [
        ("cache_read", |it| it.counters.errors.cache_read),
        ("cache_write", |it| it.counters.errors.cache_write),
        ("cache_checksum", |it| it.counters.errors.cache_checksum),
        ("cache_discard", |it| it.counters.errors.cache_discard),
        ("dirty_unreadable", |it| it.counters.errors.dirty_unreadable),
        ("core_read", |it| it.counters.errors.core_read),
        ("core_write", |it| it.counters.errors.core_write),
        ("core_flush", |it| it.counters.errors.core_flush),
    ];
    errors.into_iter().for_each(|(error, pick)| out.add(&ERRORS, &[name, error], sum(pick)));
    out.add(&REPAIRED, of, sum(|it| it.counters.errors.cache_repaired));
}

fn add_traffic(out: &mut Exposition, name: &str, live: &CacheStatus, slices: &[SliceStats]) {
    let mut traffic = Traffic::default();
    slices.iter().for_each(|slice| traffic += slice.counters.traffic);
    let Traffic { cache, core } = traffic;
    out.add(&ENTERED, &[name], live.wear.all_runs.entered_bytes);
    out.add(&WORN, &[name], live.wear.all_runs.written_bytes);
    for share in &live.wear.purposes {
        out.add(&WRITTEN, &[name, &word(share.purpose)], share.bytes);
    }
    for (purpose, bytes) in [
        ("requests", cache.read_for_requests),
        ("cleaning", cache.read_for_cleaning),
        ("reclaim", cache.read_for_reclaim),
        ("scrub", cache.read_for_scrub),
        ("lent", cache.lent),
    ] {
        out.add(&READ, &[name, purpose], bytes);
    }
    out.add(&DISCARDED, &[name], cache.discarded);
    for (purpose, bytes) in [
        ("requests", core.read_for_requests),
        ("readahead", core.read_ahead),
        ("completions", core.read_to_complete),
        ("parity", core.read_for_parity),
    ] {
        out.add(&CORE_READ, &[name, purpose], bytes);
    }
    out.add(&CORE_WRITTEN, &[name, "requests"], core.written_by_requests);
    out.add(&CORE_WRITTEN, &[name, "cleaning"], core.written_by_cleaning);
}
