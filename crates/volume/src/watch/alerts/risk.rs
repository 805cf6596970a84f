//! What may be lost.

use crate::watch::status::CacheStatus;
use headpond_block::BLOCK_BYTES;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Of blocks that count as written, and not as clean.
pub(super) const UNFLUSHED: &str =
    "that the array has and has not flushed yet: lost with this device and the power";

/// What may be lost or cannot be served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Risk {
    /// Blocks of 4 KiB; zero where it is nothing, or is not known.
    pub blocks: u64,
    pub bytes: u64,
    pub what: String,
}

impl Risk {
    pub(super) fn none(what: &str) -> Self {
        Self { what: what.into(), ..Self::default() }
    }

    pub(super) fn of_bytes(bytes: u64, why: &str) -> Self {
        let blocks = bytes / BLOCK_BYTES;
        Self { blocks, bytes, what: format!("{blocks} blocks ({bytes} bytes) {why}") }
    }

    /// What a cache that cannot be used holds, by what was left when the volume was stopped.
    pub fn of_left(dirty_bytes: Option<u64>, otherwise: Self) -> Self {
        match dirty_bytes {
            Some(0) => Self::none("nothing: its array had all of it when the volume was stopped"),
            Some(bytes) => Self::of_bytes(bytes, "that only its cache had when it was stopped"),
            None => otherwise,
        }
    }

    /// What lies on the one cache device alone. Of a cache that failed, no copy outlives a stop.
    pub(super) fn of_dirty(cache: &CacheStatus) -> Self {
        let mirror = cache.mirror.as_ref().filter(|_| !cache.failed);
        match mirror.map_or(cache.unsafe_bytes(), |mirror| mirror.at_risk_bytes) {
            0 if cache.unsafe_bytes() > 0 => {
                Self::none("nothing: another copy of the cache has it")
            }
            0 => Self::none("nothing: the array has all that the cache holds"),
            bytes if cache.dirty_bytes == 0 => Self::of_bytes(bytes, UNFLUSHED),
            bytes if cache.unflushed_bytes == 0 => {
                Self::of_bytes(bytes, "that only this device holds")
            }
            bytes => {
                Self::of_bytes(bytes, "that only this device holds, or the array has not flushed")
            }
        }
    }
}
