//! What can be set on a slice, some of it while it runs.

use crate::admission::AdmissionConfig;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How requests use the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Writes are acknowledged when the cache has them.
    #[default]
    WriteBack,
    /// Writes are acknowledged when cache and core have them.
    WriteThrough,
    /// Writes go to the core, and to the cache where it has all that they write to.
    WriteAround,
    /// Writes go to the core, and end what the cache has of them.
    WriteInvalidate,
    /// As write-back, but what is read is not inserted.
    WriteOnly,
    /// The cache is not used, except for what only it has.
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

    /// Whether writes leave the cache with what the core lacks.
    pub fn makes_dirt(self) -> bool {
        matches!(self, Self::WriteBack | Self::WriteOnly)
    }

    /// Whether what was read from the core goes into the cache.
    pub fn inserts_reads(self) -> bool {
        !matches!(self, Self::WriteOnly | Self::PassThrough)
    }
}

/// What writes dirty data to the core, and in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CleaningPolicy {
    /// Nothing does, but for an explicit flush of the dirty data. What came back from an unclean
    /// stop is cleaned all the same: not for its own sake, but for the parity that the stop may
    /// have torn.
    Nop,
    /// In address order, by the stripes of the core.
    #[default]
    Stripe,
}

/// Settings of the cleaner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CleaningConfig {
    pub policy: CleaningPolicy,
    /// Most core writes in flight.
    pub in_flight_max: u32,
    /// Below this dirty ratio, in per cent of what may be dirty, nothing is cleaned unasked but
    /// what came back from an unclean stop.
    pub low_percent: u32,
    /// From this ratio on the cleaner works at full speed.
    pub high_percent: u32,
    /// Longest run of blocks in one core write, in bytes; a full stripe may be longer.
    pub write_bytes_max: u32,
    /// The core is flushed at least this often while there is something to flush.
    pub core_flush_interval: Duration,
}

impl Default for CleaningConfig {
    fn default() -> Self {
        Self {
            policy: CleaningPolicy::Stripe,
            in_flight_max: 1024,
            low_percent: 10,
            high_percent: 75,
            write_bytes_max: 1 << 20,
            core_flush_interval: Duration::from_millis(100),
        }
    }
}

/// Settings of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceConfig {
    pub mode: Mode,
    pub cleaning: CleaningConfig,
    pub admission: AdmissionConfig,
    /// Most records on their way to the cache device.
    pub records_in_flight_max: u32,
    /// How long a write waits for the cleaner before it goes past a full cache.
    pub full_wait: Duration,
    /// An idle log is sealed so long after a flush.
    pub seal_delay: Duration,
    /// Allows write-back though the cache device is lost on power.
    pub allow_volatile: bool,
}

impl Default for SliceConfig {
    fn default() -> Self {
        Self {
            mode: Mode::WriteBack,
            cleaning: CleaningConfig::default(),
            admission: AdmissionConfig::default(),
            records_in_flight_max: 8,
            full_wait: Duration::from_secs(5),
            seal_delay: Duration::from_millis(20),
            allow_volatile: false,
        }
    }
}
