//! Settings of a slice, some of them changeable while it runs.

use crate::admission::AdmissionConfig;
use crate::bypass::BypassPolicy;
use crate::cleaning::CleaningConfig;
use crate::eviction::EvictionPolicy;
use crate::fallback::FallbackConfig;
use headpond_block::{BlockDevice, Stability};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How requests use the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Writes are acknowledged when they are in the cache.
    #[default]
    WriteBack,
    /// Writes are acknowledged when they are in the cache and on the core.
    WriteThrough,
    /// Writes go to the core, and update the cache where it has all their blocks.
    WriteAround,
    /// Writes go to the core, and invalidate their blocks in the cache.
    WriteInvalidate,
    /// As write-back, but reads are not inserted.
    WriteOnly,
    /// The cache is not used, except for dirty data.
    PassThrough,
}

impl Mode {
    pub const ALL: [Self; 6] = [
        Self::WriteBack,
        Self::WriteThrough,
        Self::WriteAround,
        Self::WriteInvalidate,
        Self::WriteOnly,
        Self::PassThrough,
    ];

    /// As it is written in a description.
    pub fn name(self) -> &'static str {
        match self {
            Self::WriteBack => "write-back",
            Self::WriteThrough => "write-through",
            Self::WriteAround => "write-around",
            Self::WriteInvalidate => "write-invalidate",
            Self::WriteOnly => "write-only",
            Self::PassThrough => "pass-through",
        }
    }

    /// Whether writes leave dirty data in the cache.
    pub fn is_write_back(self) -> bool {
        matches!(self, Self::WriteBack | Self::WriteOnly)
    }

    /// Whether read misses are inserted.
    pub fn inserts_reads(self) -> bool {
        !matches!(self, Self::WriteOnly | Self::PassThrough)
    }
}

/// Where the cache device's blocks have checksums, which every read compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Checksums {
    /// Everywhere except in memory, which is volatile and has ECC of its own.
    #[default]
    Auto,
    /// In memory too: what is written from here on.
    Always,
}

/// Settings of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceConfig {
    pub mode: Mode,
    pub cleaning: CleaningConfig,
    pub admission: AdmissionConfig,
    pub eviction: EvictionPolicy,
    pub fallback: FallbackConfig,
    /// Segments that reclaim has freed are discarded on the cache device, until one refuses.
    pub discard: bool,
    pub checksums: Checksums,
    pub bypass: BypassPolicy,
    /// Most records in flight to the cache device.
    pub records_in_flight_max: u32,
    /// An idle log is sealed so long after a flush.
    pub seal_delay: Duration,
    /// Allows write-back on a volatile cache device.
    pub allow_volatile: bool,
    /// A checkpoint is taken after so many bytes of log, or eight times as many as the last one
    /// had, if that is more. 0 = none: an open after an unclean shutdown reads the whole log.
    pub checkpoint_every_bytes: u64,
}

impl SliceConfig {
    /// Bytes of log between checkpoints on this device; 0 = none.
    pub(crate) fn checkpoint_every_on(&self, cache: &dyn BlockDevice) -> u64 {
        match cache.geometry().stability {
            // What is lost with the power needs no short way back.
            Stability::LostOnPower => 0,
            _ => self.checkpoint_every_bytes,
        }
    }
}

impl Default for SliceConfig {
    fn default() -> Self {
        Self {
            mode: Mode::WriteBack,
            cleaning: CleaningConfig::default(),
            admission: AdmissionConfig::default(),
            eviction: EvictionPolicy::default(),
            fallback: FallbackConfig::default(),
            discard: false,
            checksums: Checksums::default(),
            bypass: BypassPolicy::default(),
            records_in_flight_max: 32,
            seal_delay: Duration::from_millis(20),
            allow_volatile: false,
            checkpoint_every_bytes: 256 << 20,
        }
    }
}
