//! Traffic of a slice on its two devices, in bytes: each operation counts for one purpose, at
//! submission, whether it succeeds or not.
//!
//! Recovery before a slice serves does not count.

use super::Counters;
use headpond_block::{BLOCK_BYTES, RequestKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bytes to and from both devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Traffic {
    pub cache: CacheTraffic,
    pub core: CoreTraffic,
}

/// Bytes to and from the cache device, by purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CacheTraffic {
    pub read_for_requests: u64,
    pub read_for_cleaning: u64,
    pub read_for_reclaim: u64,
    pub read_for_scrub: u64,
    /// Read directly from the device's memory, without a request.
    pub lent: u64,
    /// Client writes, and data read from the core: the first copy in the log.
    pub written_data: u64,
    /// The rest of blocks that were written in part, and the blocks that then replace the parts.
    pub written_completions: u64,
    /// Copied by reclaim.
    pub written_copies: u64,
    /// Metadata of the log: the descriptors of its records, without their padding.
    pub written_descriptors: u64,
    /// Of descriptors, to the unit of the log.
    pub written_padding: u64,
    /// Records without entries: flush marks, the tail for reclaim, replacements of failed ones.
    pub written_marks: u64,
    /// Checkpoints, at shutdown and while serving, headers, and marks of the flush order.
    pub written_checkpoints: u64,
    /// Discarded by reclaim.
    pub discarded: u64,
}

/// Bytes to and from the core device, by purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CoreTraffic {
    pub read_for_requests: u64,
    pub read_ahead: u64,
    /// The rest of partial blocks.
    pub read_to_complete: u64,
    /// Read to be written back with recomputed parity, after an unclean shutdown.
    pub read_for_parity: u64,
    pub written_by_requests: u64,
    pub written_by_cleaning: u64,
    pub discarded: u64,
    pub zeroed: u64,
}

/// Bytes to and from both devices for the blocks of one class, or of one core: those of requests,
/// the cleaner and readahead, and copies in the log. The log's metadata, and reads of reclaim and
/// scrubs, belong to none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct PartTraffic {
    pub core_read: u64,
    pub core_written: u64,
    /// Including direct reads of the device's memory.
    pub cache_read: u64,
    pub cache_written: u64,
}

sums!(PartTraffic: core_read, core_written, cache_read, cache_written);

impl CacheTraffic {
    /// By operations of the device.
    pub fn read(&self) -> u64 {
        let Self { read_for_requests, read_for_cleaning, read_for_reclaim, .. } = self;
        read_for_requests + read_for_cleaning + read_for_reclaim + self.read_for_scrub
    }

    pub fn written(&self) -> u64 {
        let Self { written_data, written_completions, written_copies, .. } = self;
        let Self { written_descriptors, written_padding, written_marks, .. } = self;
        let log = written_data + written_completions + written_copies;
        log + written_descriptors + written_padding + written_marks + self.written_checkpoints
    }

    /// Bytes written per byte inserted; none where nothing was.
    pub fn amplification(&self) -> Option<f64> {
        (self.written_data > 0).then(|| self.written() as f64 / self.written_data as f64)
    }
}

impl CoreTraffic {
    pub fn read(&self) -> u64 {
        self.read_for_requests + self.read_ahead + self.read_to_complete + self.read_for_parity
    }

    pub fn written(&self) -> u64 {
        self.written_by_requests + self.written_by_cleaning
    }
}

sums!(Traffic: cache, core);
sums!(
    CacheTraffic:
    read_for_requests, read_for_cleaning, read_for_reclaim, read_for_scrub, lent, written_data,
    written_completions, written_copies, written_descriptors, written_padding, written_marks,
    written_checkpoints, discarded
);
sums!(
    CoreTraffic:
    read_for_requests, read_ahead, read_to_complete, read_for_parity, written_by_requests,
    written_by_cleaning, discarded, zeroed
);

/// What the cache device is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheRead {
    Request,
    Cleaning,
    Reclaim,
    Scrub,
}

/// What the core is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CoreRead {
    Request,
    Ahead,
    /// The rest of a block.
    Rest,
    Parity,
}

impl Counters {
    #[inline]
    pub(crate) fn count_cache_read(&mut self, purpose: CacheRead, bytes: u64) {
        let cache = &mut self.traffic.cache;
        let field = match purpose {
            CacheRead::Request => &mut cache.read_for_requests,
            CacheRead::Cleaning => &mut cache.read_for_cleaning,
            CacheRead::Reclaim => &mut cache.read_for_reclaim,
            CacheRead::Scrub => &mut cache.read_for_scrub,
        };
        *field += bytes;
    }

    pub(crate) fn count_core_read(&mut self, purpose: CoreRead, bytes: u64) {
        let core = &mut self.traffic.core;
        match purpose {
            CoreRead::Request => core.read_for_requests += bytes,
            CoreRead::Ahead => core.read_ahead += bytes,
            CoreRead::Rest => core.read_to_complete += bytes,
            CoreRead::Parity => core.read_for_parity += bytes,
        }
    }

    /// A change of the core by a request.
    pub(crate) fn count_core_change(&mut self, kind: RequestKind, bytes: u64) {
        let core = &mut self.traffic.core;
        match kind {
            RequestKind::Write => core.written_by_requests += bytes,
            RequestKind::Discard => core.discarded += bytes,
            RequestKind::WriteZeroes => core.zeroed += bytes,
            RequestKind::Read | RequestKind::Flush => unreachable!("changes nothing"),
        }
    }

    /// What was written to the log, by purpose.
    pub(crate) fn log_traffic(&self) -> CacheTraffic {
        let mut cache = self.traffic.cache;
        cache.written_copies = self.reinserted_blocks * BLOCK_BYTES;
        let own = self.descriptor_bytes + cache.written_copies;
        // What completes a block may have been appended before the counters were reset.
        cache.written_completions = cache.written_completions.min(self.log_bytes - own);
        cache.written_data = self.log_bytes - own - cache.written_completions;
        cache.written_descriptors =
            self.descriptor_bytes - cache.written_padding - cache.written_marks;
        cache
    }
}
