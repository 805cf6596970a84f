//! Statistics of a slice.

/// Adds all fields.
macro_rules! sums {
    ($name:ident: $($field:ident),+) => {
        impl std::ops::AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                let Self { $($field),+ } = other;
                $(self.$field += $field;)+
            }
        }
    };
}

mod latency;
mod rate;
mod traffic;

pub(crate) use latency::{Begun, Latencies};
pub use latency::{LatencyStats, Way, WayLatency, WayTimes};
pub(crate) use rate::Rate;
pub(crate) use traffic::{CacheRead, CoreRead};
pub use traffic::{CacheTraffic, CoreTraffic, PartTraffic, Traffic};

use crate::bypass::BypassReport;
use crate::classes::ClassId;
use crate::eviction::EvictionStats;
use crate::types::CoreBlock;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// So many differing blocks are no bit rot.
const CHANGED_MIN: usize = 2;

/// Requests of one direction, each counted once; blocks are 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct RequestStats {
    pub requests: u64,
    pub bytes: u64,
    pub hits: u64,
    pub partial_hits: u64,
    pub misses: u64,
    pub pass_through: u64,
    pub blocks_hit: u64,
    pub blocks_missed: u64,
    /// Failed requests; they also count as hit, miss or past the cache.
    pub failed: u64,
}

sums!(
    RequestStats:
    requests, bytes, hits, partial_hits, misses, pass_through, blocks_hit, blocks_missed, failed
);

impl RequestStats {
    /// Requests served through the cache, as hit or miss.
    pub fn serviced(&self) -> u64 {
        self.hits + self.partial_hits + self.misses
    }
}

/// Why a request went past the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BypassReason {
    /// The mode sends it to the core.
    Mode,
    /// The dirty limit is reached, and the cleaner did not free space in time.
    DirtyLimit,
    /// The extent pool for fragmented lines is used up, and nothing was cleaned or reclaimed in
    /// time.
    Scattered,
    /// Too large for a cache of this size.
    TooLarge,
    /// Part of a sequential stream that is longer than the cutoff.
    Sequential,
    /// The cache device failed.
    CacheError,
    /// Its class goes past the cache.
    Class,
    /// Its class holds its share of the cache, or those of a higher priority hold the rest.
    ClassShare,
    /// Not requested often enough.
    Promotion,
    /// At this queue depth the core completes requests sooner than the cache.
    Adaptive,
}

/// Requests past the cache by reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct BypassStats {
    pub mode: u64,
    pub dirty_limit: u64,
    pub scattered: u64,
    pub too_large: u64,
    pub sequential: u64,
    pub cache_error: u64,
    pub class: u64,
    pub class_share: u64,
    pub promotion: u64,
    pub adaptive: u64,
}

impl BypassStats {
    pub(crate) fn count(&mut self, reason: BypassReason) {
        match reason {
            BypassReason::Mode => self.mode += 1,
            BypassReason::DirtyLimit => self.dirty_limit += 1,
            BypassReason::Scattered => self.scattered += 1,
            BypassReason::TooLarge => self.too_large += 1,
            BypassReason::Sequential => self.sequential += 1,
            BypassReason::CacheError => self.cache_error += 1,
            BypassReason::Class => self.class += 1,
            BypassReason::ClassShare => self.class_share += 1,
            BypassReason::Promotion => self.promotion += 1,
            BypassReason::Adaptive => self.adaptive += 1,
        }
    }
}

impl BypassReason {
    pub const ALL: [BypassReason; 10] = [
        BypassReason::Mode,
        BypassReason::DirtyLimit,
        BypassReason::Scattered,
        BypassReason::TooLarge,
        BypassReason::Sequential,
        BypassReason::CacheError,
        BypassReason::Class,
        BypassReason::ClassShare,
        BypassReason::Promotion,
        BypassReason::Adaptive,
    ];

    /// Its name in the statistics.
    pub fn word(self) -> &'static str {
        match self {
            BypassReason::Mode => "mode",
            BypassReason::DirtyLimit => "dirty_limit",
            BypassReason::Scattered => "scattered",
            BypassReason::TooLarge => "too_large",
            BypassReason::Sequential => "sequential",
            BypassReason::CacheError => "cache_error",
            BypassReason::Class => "class",
            BypassReason::ClassShare => "class_share",
            BypassReason::Promotion => "promotion",
            BypassReason::Adaptive => "adaptive",
        }
    }
}

impl BypassStats {
    pub fn of(&self, reason: BypassReason) -> u64 {
        match reason {
            BypassReason::Mode => self.mode,
            BypassReason::DirtyLimit => self.dirty_limit,
            BypassReason::Scattered => self.scattered,
            BypassReason::TooLarge => self.too_large,
            BypassReason::Sequential => self.sequential,
            BypassReason::CacheError => self.cache_error,
            BypassReason::Class => self.class,
            BypassReason::ClassShare => self.class_share,
            BypassReason::Promotion => self.promotion,
            BypassReason::Adaptive => self.adaptive,
        }
    }

    pub fn total(&self) -> u64 {
        BypassReason::ALL.into_iter().map(|reason| self.of(reason)).sum()
    }
}

sums!(
    BypassStats:
    mode, dirty_limit, scattered, too_large, sequential, cache_error, class, class_share,
    promotion, adaptive
);

/// Blocks of one class, or of one core, by state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ClassUsage {
    pub clean_blocks: u64,
    /// Including blocks that the core has written, but not flushed.
    pub dirty_blocks: u64,
    /// Resident blocks, where each line counts in full; not known of a core.
    pub resident_blocks: u64,
}

impl ClassUsage {
    pub fn occupied_blocks(&self) -> u64 {
        self.clean_blocks + self.dirty_blocks
    }
}

sums!(ClassUsage: clean_blocks, dirty_blocks, resident_blocks);

/// Requests of one class, each counted once, and its blocks in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ClassStats {
    pub id: ClassId,
    pub usage: ClassUsage,
    pub read: RequestStats,
    pub write: RequestStats,
    pub bypass: BypassStats,
    pub traffic: PartTraffic,
    pub errors: ErrorStats,
}

/// Requests for one of several core devices, each counted once, and its blocks in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CoreStats {
    /// As [`CorePlace`](crate::CorePlace) names it.
    pub core: u16,
    pub usage: ClassUsage,
    pub read: RequestStats,
    pub write: RequestStats,
    pub bypass: BypassStats,
    pub traffic: PartTraffic,
    pub errors: ErrorStats,
}

/// Errors of the devices below, and their effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ErrorStats {
    pub cache_read: u64,
    pub cache_write: u64,
    pub cache_checksum: u64,
    pub cache_discard: u64,
    /// Blocks that were damaged in one copy of a mirrored cache, and correct in another.
    pub cache_repaired: u64,
    /// Requested dirty blocks that the cache could not read.
    pub dirty_unreadable: u64,
    pub core_read: u64,
    pub core_write: u64,
    pub core_flush: u64,
}

sums!(
    ErrorStats:
    cache_read, cache_write, cache_checksum, cache_discard, cache_repaired, dirty_unreadable,
    core_read, core_write, core_flush
);

/// Sums since the slice was opened, or the counters were reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Counters {
    pub read: RequestStats,
    pub write: RequestStats,
    pub bypass: BypassStats,
    pub flushes: u64,
    pub discards: u64,
    pub records: u64,
    pub seals: u64,
    /// Written to the cache device by records, descriptors included.
    pub log_bytes: u64,
    pub descriptor_bytes: u64,
    pub reinserted_blocks: u64,
    /// Evicted lines that were requested while still mapped.
    pub readmitted_blocks: u64,
    /// Resident blocks dropped because dirty data left no space for them.
    pub dropped_resident_blocks: u64,
    /// Partial writes acknowledged without a read of the rest, and blocks completed since.
    pub parts_written: u64,
    pub parts_completed: u64,
    /// Clean blocks invalidated to free extents.
    pub thinned_blocks: u64,
    pub inserted_blocks: u64,
    /// Blocks of readahead.
    pub readahead_blocks: u64,
    pub tombstone_blocks: u64,
    pub segments_reclaimed: u64,
    /// Checkpoints while serving, and their size.
    pub checkpoints: u64,
    pub checkpoint_bytes: u64,
    pub cleaned_blocks: u64,
    /// Clean blocks written along to fill gaps and stripes.
    pub filled_blocks: u64,
    pub cleaning_writes: u64,
    pub full_stripe_writes: u64,
    pub cleaning_flushes: u64,
    /// Writes that waited for the cleaner.
    pub throttled: u64,
    pub errors: ErrorStats,
    pub traffic: Traffic,
}

impl Counters {
    /// Requests of all kinds.
    pub fn requests(&self) -> u64 {
        self.read.requests + self.write.requests + self.flushes + self.discards
    }
}

impl ClassStats {
    pub(crate) fn self_check(&self) {
        check_requests([self.read, self.write], self.bypass);
    }
}

impl CoreStats {
    pub(crate) fn self_check(&self) {
        check_requests([self.read, self.write], self.bypass);
    }
}

/// Each request is a hit, a partial hit, a miss or past the cache, and past it for one reason.
///
/// # Panics
/// Where it does not hold.
fn check_requests([read, write]: [RequestStats; 2], bypass: BypassStats) {
    for side in [read, write] {
        let sum = side.serviced() + side.pass_through;
        assert_eq!(side.requests, sum, "each request counts once: {side:?}");
        assert!(side.failed <= side.requests, "more failed than came: {side:?}");
    }
    let past = read.pass_through + write.pass_through;
    assert_eq!(past, bypass.total(), "each bypass has a reason: {bypass:?}");
}

/// Memory of a slice in bytes: allocated at open, regardless of its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct MemoryStats {
    /// Position and state of each block, with whole lines in one extent each.
    pub map: u64,
    /// Dirty blocks, and blocks with suspect parity.
    pub dirty_index: u64,
    pub segments: u64,
    /// One for each 4 KiB, needed for every read.
    pub checksums: u64,
    /// For lines in more than one piece.
    pub extent_pool: u64,
    /// Extents in the pool, and how many of them are in use.
    pub extents: u64,
    pub extents_used: u64,
    /// Lists of blocks written to the core but not yet flushed, of those that reclaim copied in the
    /// meantime, and of fragmented ones about to be invalidated.
    pub written_list: u64,
    /// Partial blocks, until they are complete.
    pub parts: u64,
    /// Counters of promotion.
    pub hit_counts: u64,
    /// Latencies of requests.
    pub latencies: u64,
    /// The eviction order of lines.
    pub eviction_queues: u64,
    /// Evicted lines (ghosts) of the eviction policy, and shadow caches.
    pub ghosts: u64,
    /// Classes of blocks and of resident lines.
    pub classes: u64,
}

impl MemoryStats {
    pub fn total(&self) -> u64 {
        let Self { map, dirty_index, segments, checksums, extent_pool, .. } = *self;
        let Self { written_list, hit_counts, latencies, eviction_queues, .. } = *self;
        let Self { ghosts, classes, parts, .. } = *self;
        let fixed = map + dirty_index + segments + checksums + extent_pool + latencies;
        fixed + written_list + parts + hit_counts + eviction_queues + ghosts + classes
    }
}

/// Lag of the core, in flush epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OrderStats {
    /// The core is in a state that a power cut in the past could have left. False while data that
    /// was dirty when the order began is cleaned: after a start, or a change of policy.
    pub is_consistent: bool,
    /// Epochs that have ended and are not on the core.
    pub epochs_waiting: u64,
    /// Superseded versions that are still to be written to the core.
    pub kept_blocks: u64,
}

/// Progress of a scrub, in segments of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ScrubProgress {
    pub done: u32,
    pub total: u32,
}

/// Result of the comparison of some clean blocks with the core at a start.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Sampled {
    pub compared: u32,
    /// Those that differ on the core, in order.
    pub differing: Vec<CoreBlock>,
}

impl Sampled {
    /// Adds the result of another slice.
    pub fn add(&mut self, other: &Self) {
        self.compared += other.compared;
        self.differing.extend(&other.differing);
        self.differing.sort_unstable();
    }

    /// Whether the core was written past the cache, or lost written data.
    pub fn is_changed(&self) -> bool {
        self.differing.len() >= CHANGED_MIN
    }
}

/// A snapshot of one slice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SliceStats {
    pub counters: Counters,
    /// Time since the counters were reset.
    pub counted_ms: u64,
    /// Requests in flight.
    pub requests_in_flight: u64,
    /// Blocks cleaned a second, over the last ten.
    pub cleaned_per_s: f64,
    /// Class 0, and every class that has rules or has had requests; their sum is in `counters`.
    pub classes: Vec<ClassStats>,
    /// Every core, where there are several.
    pub cores: Vec<CoreStats>,
    /// The dirty limit.
    pub dirty_bytes_max: u64,
    pub capacity_bytes: u64,
    pub dirty_bytes: u64,
    /// Written to the core, but not yet flushed.
    pub written_bytes: u64,
    pub clean_bytes: u64,
    pub dirty_ratio: f64,
    pub occupancy_ratio: f64,
    /// Bytes written to the cache device by byte that entered the log, written or read.
    pub write_amplification: Option<f64>,
    pub segments: u32,
    pub segments_free: u32,
    pub records_in_flight: u32,
    /// Adapted to the device.
    pub records_in_flight_max: u32,
    pub writes_waiting: u64,
    pub cleaning_in_flight: u32,
    pub lost_blocks: u64,
    /// Dirty blocks that were unreadable at the last attempt.
    pub unreadable_blocks: u64,
    /// Dirty since an unclean shutdown and not yet cleaned: until then the parity of their stripes
    /// is suspect.
    pub replayed_blocks: u64,
    /// A mode without dirty data is set, but some is left.
    pub is_draining: bool,
    /// The cache device failed; writes go to the core.
    pub is_failed: bool,
    /// In pass-through after too many errors of the device, until a command ends it.
    pub is_in_fallback: bool,
    /// Progress of a running scrub.
    pub scrubbing: Option<ScrubProgress>,
    pub line_bytes: u64,
    pub eviction: EvictionStats,
    /// Where dirty data is cleaned in flush order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<OrderStats>,
    pub bypass: BypassReport,
    /// All of `memory`.
    pub memory_bytes: u64,
    pub memory: MemoryStats,
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_testkit::{Break, assert_trips};

    #[test]
    fn a_reason_is_called_as_its_counter() {
        let counters = format!("{:?}", BypassStats::default());
        for reason in BypassReason::ALL {
            assert!(counters.contains(&format!(" {}: 0", reason.word())), "{reason:?}: {counters}");
        }
    }

    #[test]
    fn check_notices_requests_that_do_not_add_up() {
        let make = || {
            let mut stats = ClassStats::default();
            (stats.read.requests, stats.read.hits) = (3, 2);
            stats.read.pass_through = 1;
            stats.bypass.count(BypassReason::Sequential);
            stats
        };
        let breaks: [Break<ClassStats>; 4] = [
            ("each request counts once", |it| it.read.hits += 1),
            ("each request counts once", |it| it.write.requests += 1),
            ("more failed than came", |it| it.read.failed = 4),
            ("each bypass has a reason", |it| it.bypass.count(BypassReason::Sequential)),
        ];
        assert_trips(make, ClassStats::self_check, &breaks);
    }
}
