//! What clients ask for, by core, and how long it takes.

use super::exposition::Exposition;
use super::family::families;
use headpond_api::answers::Status;
use headpond_api::word;
use headpond_cache::WayTimes;
use headpond_volume::VolumeCounts;
use std::time::Duration;

families! { "Requests of clients":
    INFO = Gauge "headpond_core_info" ["core", "level"]
        "1, with the level of its array.";
    SIZE = Gauge "headpond_core_size_bytes" ["core"]
        "Size.";
    REQUESTS = Counter "headpond_core_requests_total" ["core", "op"]
        "Requests: `read`, `write`, `flush`, `other` (discards and writes of zeros).";
    BYTES = Counter "headpond_core_request_bytes_total" ["core", "op"]
        "Bytes of reads and writes.";
    IN_FLIGHT = Gauge "headpond_requests_in_flight" []
        "Requests of clients and block devices that are not answered yet.";
    DURATION = Histogram "headpond_request_duration_seconds" ["way"]
        "Time that requests took in a volume with a cache or a tier, by the way that they took: \
         `read_hit`, `read_miss`, `read_past_cache`, `write_to_cache`, `write_through`, \
         `write_past_cache`, `flush`, `discard`. Of hits and writes to the cache one of 32 is timed \
         and counts 32 times.";
    READ_AHEAD = Counter "headpond_readahead_bytes_total" []
        "Bytes that were read ahead.";
    READ_AHEAD_USED = Counter "headpond_readahead_used_bytes_total" []
        "Of them, bytes that their reader then asked for.";
}

/// The upper bounds of the buckets; one more has all requests.
const BOUNDS: [Duration; 13] = [
    Duration::from_micros(10),
    Duration::from_micros(30),
    Duration::from_micros(100),
    Duration::from_micros(300),
    Duration::from_millis(1),
    Duration::from_millis(3),
    Duration::from_millis(10),
    Duration::from_millis(30),
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(10),
];

const _: () = assert!(BOUNDS.len() < 15, "a scrape has at most 15 buckets for each way");

pub fn add(out: &mut Exposition, status: &Status, counts: &VolumeCounts) {
    for core in &status.cores {
        out.add(&INFO, &[&core.name, &core.level.to_string()], 1_u64);
        out.add_known(&SIZE, &[&core.name], core.size_bytes);
        let Some((_, its)) = counts.cores.iter().find(|(id, _)| *id == core.id) else { continue };
        for (op, requests) in [
            ("read", its.reads),
            ("write", its.writes),
            ("flush", its.flushes),
            ("other", its.others),
        ] {
            out.add(&REQUESTS, &[&core.name, op], requests);
        }
        out.add(&BYTES, &[&core.name, "read"], its.read_bytes);
        out.add(&BYTES, &[&core.name, "write"], its.written_bytes);
    }
    let devices = status.server.iter().flat_map(|server| &server.block_devices);
    let in_flight: u64 = devices.map(|device| device.in_flight).sum();
    let clients: u64 = status.clients.iter().map(|client| client.in_flight).sum();
    out.add(&IN_FLIGHT, &[], in_flight + clients);
    out.add(&READ_AHEAD, &[], counts.readahead.bytes);
    out.add(&READ_AHEAD_USED, &[], counts.readahead.used_bytes);
    // What is first in the way of requests has timed all of them.
    let timed = counts.tier.as_ref().or(counts.cache.as_ref());
    for times in timed.iter().flat_map(|cache| cache.latency.times(&BOUNDS)) {
        add_times(out, &times);
    }
}

fn add_times(out: &mut Exposition, times: &WayTimes) {
    let bounds = BOUNDS.iter().map(Duration::as_secs_f64);
    let buckets = bounds.zip(times.at_most.iter().copied());
    let sum = times.sum_nanos as f64 / 1e9;
    out.add_histogram(&DURATION, &[&word(times.way)], buckets, (sum, times.requests));
}
