//! Statistics of a slice.

/// Adds up field by field; all of them are to be named.
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
pub use latency::{LatencyStats, Way, WayLatency};
pub(crate) use rate::Rate;
pub(crate) use traffic::{CacheRead, CoreRead};
pub use traffic::{CacheTraffic, CoreTraffic, PartTraffic, Traffic};

use crate::bypass::BypassReport;
use crate::classes::ClassId;
use crate::eviction::EvictionStats;
use crate::types::CoreBlock;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// So many blocks that differ are no rot.
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
    /// Of the requests, whatever else they count as: answered with an error.
    pub failed: u64,
}

sums!(
    RequestStats:
    requests, bytes, hits, partial_hits, misses, pass_through, blocks_hit, blocks_missed, failed
);

impl RequestStats {
    /// Those that went through the cache, as hit or miss.
    pub fn serviced(&self) -> u64 {
        self.hits + self.partial_hits + self.misses
    }
}

/// Why a request went past the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BypassReason {
    /// The mode sends it to the core.
    Mode,
    /// As much is dirty as may be, and the cleaner did not make room in time.
    DirtyLimit,
    /// The pool for lines in many pieces is used up, and nothing was cleaned or reclaimed in time.
    Scattered,
    /// Larger than a cache of this size takes.
    TooLarge,
    /// Part of a sequential stream that is longer than the cutoff.
    Sequential,
    /// The cache device failed.
    CacheError,
    /// Its class goes past the cache.
    Class,
    /// Its class holds its share of the cache, or those of a higher priority hold the rest.
    ClassShare,
    /// Not asked for often enough.
    Promotion,
    /// The core answers sooner than the cache does with as much in flight.
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

    /// As the statistics name it.
    pub fn word(self) -> &'static str {
        match self {
            BypassReason::Mode => "mode",
            BypassReason::DirtyLimit => "full_of_dirty",
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

/// What the blocks of one class, or of one core, are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ClassUsage {
    pub clean_blocks: u64,
    /// With what the core has, but has not flushed.
    pub dirty_blocks: u64,
    /// Those of all of them that stay when reclaim comes to them, where each line counts whole; not
    /// known of a core.
    pub resident_blocks: u64,
}

impl ClassUsage {
    pub fn occupied_blocks(&self) -> u64 {
        self.clean_blocks + self.dirty_blocks
    }
}

sums!(ClassUsage: clean_blocks, dirty_blocks, resident_blocks);

/// Requests of one class, each counted once, and what it holds.
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

/// Requests for one of several core devices, each counted once, and what the cache holds of it.
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

/// Errors of the devices below, and what they did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ErrorStats {
    pub cache_read: u64,
    pub cache_write: u64,
    pub cache_checksum: u64,
    pub cache_discard: u64,
    /// Blocks that one copy of a mirrored cache did not have as they were written, and another did.
    pub cache_repaired: u64,
    /// Blocks that requests wanted, that only the cache has, and that it could not give.
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
    /// Evicted ones that were asked for while they were still there, one for each line.
    pub readmitted_blocks: u64,
    /// Not evicted, but dropped where what the core lacks left no room for them.
    pub dropped_resident_blocks: u64,
    /// Writes of parts of blocks that were answered without the rest, and blocks that were
    /// completed since.
    pub parts_written: u64,
    pub parts_completed: u64,
    /// Ended while they were clean, for their extents.
    pub thinned_blocks: u64,
    pub inserted_blocks: u64,
    /// Read from the core for nobody yet.
    pub readahead_blocks: u64,
    pub tombstone_blocks: u64,
    pub segments_reclaimed: u64,
    /// Taken while serving, and what they held.
    pub checkpoints: u64,
    pub checkpoint_bytes: u64,
    pub cleaned_blocks: u64,
    /// Clean ones that were written along with them, so that a write was whole.
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
    /// Requests of all kinds that were counted.
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
/// Where it is not so.
fn check_requests([read, write]: [RequestStats; 2], bypass: BypassStats) {
    for side in [read, write] {
        let sum = side.serviced() + side.pass_through;
        assert_eq!(side.requests, sum, "each request counts once: {side:?}");
        assert!(side.failed <= side.requests, "more failed than came: {side:?}");
    }
    let past = read.pass_through + write.pass_through;
    assert_eq!(past, bypass.total(), "each bypass has a reason: {bypass:?}");
}

/// Memory of a slice in bytes: taken when it is opened, whatever it will hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct MemoryStats {
    /// Where each block is and what its state is, with whole lines in one extent each.
    pub map: u64,
    /// Where blocks are dirty, and where parity is owed.
    pub dirty_index: u64,
    pub segments: u64,
    /// One for each 4 KiB, at hand for every read.
    pub checksums: u64,
    /// For lines in more than one piece.
    pub extent_pool: u64,
    /// Extents in the pool, and how many of them are in use.
    pub extents: u64,
    pub extents_used: u64,
    /// Blocks at the core, which has not flushed them yet, those that reclaim copied on their way
    /// there, and scattered ones that are about to be ended: lists that grow with them.
    pub written_list: u64,
    /// What was written in part, until it is whole.
    pub parts: u64,
    /// Counters of promotion.
    pub hit_counts: u64,
    /// How long requests took.
    pub latencies: u64,
    /// The order in which lines leave.
    pub eviction_queues: u64,
    /// Lines that left, for the policy of eviction, and shadow caches.
    pub ghosts: u64,
    /// Which class each block is of, and each line that is resident.
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

/// How far the core is behind, in flush epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OrderStats {
    /// What the core holds is what it would hold after a power cut at some time past. Not so while
    /// it gets what was dirty when the order began: at a start, or with the policy.
    pub is_consistent: bool,
    /// That have ended and are not at the core.
    pub epochs_waiting: u64,
    /// Superseded versions that the core gets all the same.
    pub kept_blocks: u64,
}

/// How far a scrub is, in segments of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ScrubProgress {
    pub done: u32,
    pub total: u32,
}

/// What the comparison of some clean blocks with the core showed, at a start.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Sampled {
    pub compared: u32,
    /// Of them, those of which the core holds something else, in order.
    pub differing: Vec<CoreBlock>,
}

impl Sampled {
    /// Adds what another slice showed.
    pub fn add(&mut self, other: &Self) {
        self.compared += other.compared;
        self.differing.extend(&other.differing);
        self.differing.sort_unstable();
    }

    /// Whether something else wrote to the core, or it lost what it was given.
    pub fn is_changed(&self) -> bool {
        self.differing.len() >= CHANGED_MIN
    }
}

/// A snapshot of one slice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SliceStats {
    pub counters: Counters,
    /// How long they have been counting.
    pub counted_ms: u64,
    /// Requests that have arrived and are not answered.
    pub requests_in_flight: u64,
    /// Blocks cleaned a second, over the last ten.
    pub cleaned_per_s: f64,
    /// Class 0, and every class that has rules or has had requests; their sum is in `counters`.
    pub classes: Vec<ClassStats>,
    /// Every core, where there are several.
    pub cores: Vec<CoreStats>,
    /// May be dirty at most.
    pub dirty_bytes_max: u64,
    pub capacity_bytes: u64,
    pub dirty_bytes: u64,
    /// At the core, which has not flushed it yet.
    pub written_bytes: u64,
    pub clean_bytes: u64,
    pub dirty_ratio: f64,
    pub occupancy_ratio: f64,
    /// Bytes written to the cache device by byte that entered the log, written or read.
    pub write_amplification: Option<f64>,
    pub segments: u32,
    pub segments_free: u32,
    pub records_in_flight: u32,
    /// As many as the device rewards.
    pub records_in_flight_max: u32,
    pub writes_waiting: u64,
    pub cleaning_in_flight: u32,
    pub lost_blocks: u64,
    /// Only the cache has them, and it could not give them when it was last asked.
    pub unreadable_blocks: u64,
    /// Dirty since an unclean stop and not yet cleaned: until they are, the parity of their stripes
    /// may be torn.
    pub replayed_blocks: u64,
    /// A mode without dirty data is set, and there still is some.
    pub is_draining: bool,
    /// The cache device failed; writes go to the core.
    pub is_failed: bool,
    /// The device errs so often that it is in pass-through until a command ends that.
    pub is_in_fallback: bool,
    /// How far the scrub is that is under way.
    pub scrubbing: Option<ScrubProgress>,
    pub line_bytes: u64,
    pub eviction: EvictionStats,
    /// Where what is dirty goes to the core in the order of the flushes.
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
