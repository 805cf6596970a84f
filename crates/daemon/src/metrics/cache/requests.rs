//! Hits, misses and bypasses, by core and by class.

use crate::metrics::exposition::Exposition;
use crate::metrics::family::families;
use headpond_api::answers::Status;
use headpond_block::BLOCK_BYTES;
use headpond_cache::{
    BypassReason, BypassStats, ClassStats, ClassUsage, CoreStats, RequestStats, SliceStats,
};
use std::collections::BTreeMap;

families! { "Hits and misses":
    REQUESTS = Counter "headpond_cache_requests_total" ["cache", "core", "op", "result"]
        "Reads and writes: `hit`, `partial_hit`, `miss`, or `pass_through` (past the cache).";
    BYTES = Counter "headpond_cache_request_bytes_total" ["cache", "core", "op"]
        "Bytes of them.";
    LOOKED_UP = Counter "headpond_cache_lookup_bytes_total" ["cache", "core", "op", "result"]
        "Bytes of them that were in the cache, in blocks of 4 KiB: `hit`, `miss`.";
    FAILED = Counter "headpond_cache_failed_requests_total" ["cache", "core", "op"]
        "Those that failed; they also count as one of the above.";
    PAST = Counter "headpond_cache_bypassed_requests_total" ["cache", "core", "reason"]
        "Those past the cache, by reason: `mode`, `dirty_limit`, `scattered`, `too_large`, \
         `sequential`, `cache_error`, `class`, `class_share`, `promotion`, `adaptive`.";
    CORE_DATA = Gauge "headpond_cache_core_bytes" ["cache", "core", "state"]
        "Data of a core in the cache: `clean`, `dirty`.";
    FLUSHES = Counter "headpond_cache_flushes_total" ["cache"]
        "Flushes.";
    DISCARDS = Counter "headpond_cache_discards_total" ["cache"]
        "Discards, and writes of zeros.";
    CLASS_REQUESTS = Counter "headpond_class_requests_total" ["class", "op", "result"]
        "Reads and writes of an I/O class in the cache, as above. `class` is its name, or its number.";
    CLASS_BYTES = Counter "headpond_class_request_bytes_total" ["class", "op"]
        "Bytes of them.";
    CLASS_DATA = Gauge "headpond_class_bytes" ["class", "state"]
        "Data of a class in the cache: `clean`, `dirty`.";
}

/// Of one core.
#[derive(Default)]
struct Part {
    usage: ClassUsage,
    read: RequestStats,
    write: RequestStats,
    bypass: BypassStats,
}

pub fn add(out: &mut Exposition, cache: &str, status: &Status, slices: &[SliceStats]) {
    let parts = parts(slices);
    for core in &status.cores {
        let Some(part) = parts.get(&core.id) else { continue };
        for (op, side) in [("read", part.read), ("write", part.write)] {
            let of = [cache, &*core.name, op];
            for (result, requests) in results(&side) {
                out.add(&REQUESTS, &[cache, &core.name, op, result], requests);
            }
            out.add(&BYTES, &of, side.bytes);
            out.add(&FAILED, &of, side.failed);
            for (result, blocks) in [("hit", side.blocks_hit), ("miss", side.blocks_missed)] {
                out.add(&LOOKED_UP, &[cache, &core.name, op, result], blocks * BLOCK_BYTES);
            }
        }
        for reason in BypassReason::ALL {
            out.add(&PAST, &[cache, &core.name, reason.word()], part.bypass.of(reason));
        }
        for (state, blocks) in usage(part.usage) {
            out.add(&CORE_DATA, &[cache, &core.name, state], blocks * BLOCK_BYTES);
        }
    }
    let sum = |pick: fn(&SliceStats) -> u64| slices.iter().map(pick).sum::<u64>();
    out.add(&FLUSHES, &[cache], sum(|it| it.counters.flushes));
    out.add(&DISCARDS, &[cache], sum(|it| it.counters.discards));
}

pub fn add_classes(out: &mut Exposition, status: &Status, slices: &[SliceStats]) {
    let Some(cache) = &status.cache else { return };
    let rules = cache.settings.classes.classes();
    let mut classes: BTreeMap<_, ClassStats> = BTreeMap::new();
    for class in slices.iter().flat_map(|slice| &slice.classes) {
        let sum = classes.entry(class.id).or_default();
        sum.usage += class.usage;
        sum.read += class.read;
        sum.write += class.write;
    }
    for (id, class) in classes {
        let name = rules.get(id).map_or_else(|| u8::from(id).to_string(), |it| it.name.clone());
        for (op, side) in [("read", class.read), ("write", class.write)] {
            for (result, requests) in results(&side) {
                out.add(&CLASS_REQUESTS, &[&name, op, result], requests);
            }
            out.add(&CLASS_BYTES, &[&name, op], side.bytes);
        }
        for (state, blocks) in usage(class.usage) {
            out.add(&CLASS_DATA, &[&name, state], blocks * BLOCK_BYTES);
        }
    }
}

/// By core. One that is alone is not counted apart.
fn parts(slices: &[SliceStats]) -> BTreeMap<u16, Part> {
    let mut parts: BTreeMap<u16, Part> = BTreeMap::new();
    for slice in slices {
        let alone = slice.cores.is_empty().then(|| CoreStats {
            core: headpond_volume::FIRST_CORE,
            read: slice.counters.read,
            write: slice.counters.write,
            bypass: slice.counters.bypass,
            usage: ClassUsage {
                clean_blocks: slice.clean_bytes / BLOCK_BYTES,
                dirty_blocks: (slice.dirty_bytes + slice.written_bytes) / BLOCK_BYTES,
                resident_blocks: 0,
            },
            ..CoreStats::default()
        });
        for core in alone.iter().chain(&slice.cores) {
            let sum = parts.entry(core.core).or_default();
            sum.usage += core.usage;
            sum.read += core.read;
            sum.write += core.write;
            sum.bypass += core.bypass;
        }
    }
    parts
}

fn results(side: &RequestStats) -> [(&'static str, u64); 4] {
    let RequestStats { hits, partial_hits, misses, pass_through, .. } = *side;
    [("hit", hits), ("partial_hit", partial_hits), ("miss", misses), ("pass_through", pass_through)]
}

fn usage(usage: ClassUsage) -> [(&'static str, u64); 2] {
    [("clean", usage.clean_blocks), ("dirty", usage.dirty_blocks)]
}
