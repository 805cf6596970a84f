//! What may be lost.

use crate::watch::status::CacheStatus;
use headpond_block::BLOCK_BYTES;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Of blocks that were written to the array, and are not clean yet.
pub(super) const UNFLUSHED: &str =
    "written to the array and not flushed there: lost if this device and power fail";

/// Data that may be lost, or cannot be served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Risk {
    /// Blocks of 4 KiB; zero if nothing is at risk, or the amount is unknown.
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

    /// Dirty data of a cache that cannot be used, as recorded when the volume was stopped.
    pub fn of_left(dirty_bytes: Option<u64>, otherwise: Self) -> Self {
        match dirty_bytes {
            Some(0) => Self::none("nothing: the cache was clean when the volume was stopped"),
            Some(bytes) => Self::of_bytes(bytes, "dirty in its cache when it was stopped"),
            None => otherwise,
        }
    }

    /// Dirty data that is on one cache device only. A failed cache keeps no copy past a stop.
    pub(super) fn of_dirty(cache: &CacheStatus) -> Self {
        let mirror = cache.mirror.as_ref().filter(|_| !cache.failed);
        match mirror.map_or(cache.unsafe_bytes(), |mirror| mirror.at_risk_bytes) {
            0 if cache.unsafe_bytes() > 0 => {
                Self::none("nothing: another copy of the cache has the dirty data")
            }
            0 => Self::none("nothing: the cache has no dirty data"),
            bytes if cache.dirty_bytes == 0 => Self::of_bytes(bytes, UNFLUSHED),
            bytes if cache.unflushed_bytes == 0 => {
                Self::of_bytes(bytes, "dirty on this device only")
            }
            bytes => {
                Self::of_bytes(bytes, "dirty on this device only, or not flushed by the array")
            }
        }
    }
}
