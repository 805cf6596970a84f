//! What a slice has done and holds.

use crate::classes::ClassId;
use crate::scrub::ScrubProgress;
use serde::Serialize;
use std::ops::AddAssign;

/// Requests of one direction, each counted once; blocks are 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
pub struct RequestStats {
    pub requests: u64,
    pub bytes: u64,
    pub hits: u64,
    pub partial_hits: u64,
    pub misses: u64,
    pub pass_through: u64,
    pub blocks_hit: u64,
    pub blocks_missed: u64,
}

impl AddAssign for RequestStats {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.hits += other.hits;
        self.partial_hits += other.partial_hits;
        self.misses += other.misses;
        self.pass_through += other.pass_through;
        self.blocks_hit += other.blocks_hit;
        self.blocks_missed += other.blocks_missed;
    }
}

/// Why a request went past the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BypassReason {
    /// The mode sends it to the core.
    Mode,
    /// As much is dirty as may be, and the cleaner did not make room in time.
    FullOfDirty,
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
    /// Its class holds its share of the cache.
    ClassShare,
    /// Not asked for often enough.
    Promotion,
}

/// Requests past the cache by reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
pub struct BypassStats {
    pub mode: u64,
    pub full_of_dirty: u64,
    pub scattered: u64,
    pub too_large: u64,
    pub sequential: u64,
    pub cache_error: u64,
    pub class: u64,
    pub class_share: u64,
    pub promotion: u64,
}

impl BypassStats {
    pub(crate) fn count(&mut self, reason: BypassReason) {
        match reason {
            BypassReason::Mode => self.mode += 1,
            BypassReason::FullOfDirty => self.full_of_dirty += 1,
            BypassReason::Scattered => self.scattered += 1,
            BypassReason::TooLarge => self.too_large += 1,
            BypassReason::Sequential => self.sequential += 1,
            BypassReason::CacheError => self.cache_error += 1,
            BypassReason::Class => self.class += 1,
            BypassReason::ClassShare => self.class_share += 1,
            BypassReason::Promotion => self.promotion += 1,
        }
    }
}

impl AddAssign for BypassStats {
    fn add_assign(&mut self, other: Self) {
        let Self { mode, full_of_dirty, scattered, too_large, sequential, .. } = other;
        let Self { cache_error, class, class_share, promotion, .. } = other;
        self.mode += mode;
        self.full_of_dirty += full_of_dirty;
        self.scattered += scattered;
        self.too_large += too_large;
        self.sequential += sequential;
        self.cache_error += cache_error;
        self.class += class;
        self.class_share += class_share;
        self.promotion += promotion;
    }
}

/// Requests of one class, each counted once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
pub struct ClassStats {
    pub id: ClassId,
    pub read: RequestStats,
    pub write: RequestStats,
    pub bypass: BypassStats,
}

/// Errors of the devices below, and what they did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
pub struct ErrorStats {
    pub cache_read: u64,
    pub cache_write: u64,
    pub cache_checksum: u64,
    pub core_read: u64,
    pub core_write: u64,
    pub core_flush: u64,
}

/// Sums since the slice was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
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
    pub inserted_blocks: u64,
    /// Read from the core for nobody yet.
    pub ahead_blocks: u64,
    pub tombstone_blocks: u64,
    pub segments_reclaimed: u64,
    pub cleaned_blocks: u64,
    /// Clean ones that were written along with them, so that a write was whole.
    pub filled_blocks: u64,
    pub cleaning_writes: u64,
    pub full_stripe_writes: u64,
    pub cleaning_flushes: u64,
    /// Writes that waited for the cleaner.
    pub throttled: u64,
    pub errors: ErrorStats,
}

/// Memory of a slice in bytes: taken when it is opened, whatever it will hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
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
    /// Blocks at the core, which has not flushed them yet: a list that grows with them.
    pub written_list: u64,
    /// Counters of promotion.
    pub hit_counts: u64,
}

impl MemoryStats {
    pub fn total(&self) -> u64 {
        let Self { map, dirty_index, segments, checksums, extent_pool, .. } = *self;
        map + dirty_index + segments + checksums + extent_pool + self.written_list + self.hit_counts
    }
}

/// A snapshot of one slice.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SliceStats {
    pub counters: Counters,
    /// Class 0, and every class that has rules or has had requests; their sum is in `counters`.
    pub classes: Vec<ClassStats>,
    /// May be dirty at most.
    pub dirty_bytes_max: u64,
    pub capacity_bytes: u64,
    pub dirty_bytes: u64,
    /// At the core, which has not flushed it yet.
    pub written_bytes: u64,
    pub clean_bytes: u64,
    pub dirty_ratio: f64,
    pub occupancy_ratio: f64,
    /// Bytes written to the cache device by byte that was asked to be written.
    pub write_amplification: f64,
    pub segments: u32,
    pub segments_free: u32,
    pub records_in_flight: u32,
    pub writes_waiting: u64,
    pub cleaning_in_flight: u32,
    pub lost_blocks: u64,
    /// Dirty since an unclean stop and not yet cleaned: until they are, the parity of their stripes
    /// may be torn.
    pub replayed_blocks: u64,
    /// A mode without dirty data is set, and there still is some.
    pub is_draining: bool,
    /// The cache device failed; writes go to the core.
    pub is_failed: bool,
    /// How far the scrub is that is under way.
    pub scrubbing: Option<ScrubProgress>,
    pub line_bytes: u64,
    /// All of `memory`.
    pub memory_bytes: u64,
    pub memory: MemoryStats,
}
