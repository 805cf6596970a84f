//! Conditions that want the operator: what happened, what is at risk, and what to do about it.
//!
//! A condition that lies in the past, as an error of a device, is told until the statistics are
//! reset; one that holds now, for as long as it does.

use crate::open::OpenError;
use crate::status::CacheStatus;
use headpond_block::BLOCK_BYTES;
use headpond_cache::format::FormatError;
use headpond_cache::{CleaningPolicy, ErrorStats, OpenError as CacheOpenError};
use headpond_raid::AssembleError;
use headpond_raid::superblock::DecodeError;
use serde::Serialize;
use std::fmt;

/// So much of what may be dirty is dirty that writes soon have to wait.
const FULL_PERCENT: u64 = 95;

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Alert {
    pub kind: AlertKind,
    pub happened: String,
    pub at_risk: Risk,
    /// The command, where there is one.
    pub to_do: String,
}

/// Which conditions there are, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AlertKind {
    /// The volume was not opened.
    StartRefused,
    /// The cache device takes no more writes, and is used no more but for what only it has.
    CacheFailed,
    /// The cache device errs so often that nothing new is put on it.
    CacheFallback,
    /// What was promised is damaged: reads of it fail.
    DamagedBlocks,
    /// What only the cache has could not be read.
    DirtyUnreadable,
    /// Blocks of the cache did not fit their checksums.
    CacheCorruption,
    /// Reads from the cache device failed.
    CacheReadErrors,
    /// Writes to the cache device failed, or flushes.
    CacheWriteErrors,
    /// Writes to the array failed, or flushes: what is dirty stays dirty.
    ArrayWriteErrors,
    /// As much is dirty as may be.
    CacheFull,
}

/// What may be lost or cannot be served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Risk {
    /// Blocks of 4 KiB; zero where it is nothing, or is not known.
    pub blocks: u64,
    pub bytes: u64,
    pub what: String,
}

impl fmt::Display for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; at risk: {}; to do: {}", self.happened, self.at_risk.what, self.to_do)
    }
}

impl Risk {
    fn none(what: &str) -> Self {
        Self { what: what.into(), ..Self::default() }
    }

    fn of_bytes(bytes: u64, why: &str) -> Self {
        let blocks = bytes / BLOCK_BYTES;
        Self { blocks, bytes, what: format!("{blocks} blocks ({bytes} bytes) {why}") }
    }

    /// What lies on the one cache device alone.
    fn of_dirty(cache: &CacheStatus) -> Self {
        match cache.dirty_bytes {
            0 => Self::none("nothing: the array has all that the cache holds"),
            bytes => Self::of_bytes(bytes, "that only this device holds"),
        }
    }
}

/// The conditions of a cache, worst first.
pub(crate) fn of_cache(volume: &str, cache: &CacheStatus, errors: &ErrorStats) -> Vec<Alert> {
    let mut alerts = of_contents(volume, cache, errors);
    alerts.extend(of_devices(volume, cache, errors));
    alerts.sort_by_key(|alert| alert.kind);
    alerts
}

fn of_contents(volume: &str, cache: &CacheStatus, errors: &ErrorStats) -> Vec<Alert> {
    let device = &cache.device;
    let mut alerts = Vec::new();
    if cache.failed {
        alerts.push(failed(volume, cache));
    }
    if cache.in_fallback && !cache.failed {
        let mode = cache.settings.mode.name();
        let (errors, window) = (cache.settings.fallback.errors, cache.settings.fallback.window_s);
        alerts.push(Alert {
            kind: AlertKind::CacheFallback,
            happened: format!(
                "{device} gave {errors} errors within {window} s: requests go past it"
            ),
            at_risk: Risk::of_dirty(cache),
            to_do: format!(
                "`headpond cache replace {volume} DEVICE`, or use it again: `headpond set {volume} \
                 mode={mode}`"
            ),
        });
    }
    if cache.lost_blocks > 0 {
        let lost = cache.lost_blocks;
        alerts.push(Alert {
            kind: AlertKind::DamagedBlocks,
            happened: format!("{lost} blocks in the cache are damaged"),
            at_risk: Risk::of_bytes(
                lost * BLOCK_BYTES,
                "that answer with errors until written again",
            ),
            to_do: format!("`headpond cache scrub {volume}`, and write what is damaged again"),
        });
    }
    if errors.dirty_unreadable > 0 {
        let times = errors.dirty_unreadable;
        alerts.push(Alert {
            kind: AlertKind::DirtyUnreadable,
            happened: format!("{times} reads from {device} of what only it holds failed"),
            at_risk: Risk::of_dirty(cache),
            to_do: format!(
                "`headpond cache scrub {volume}` lists the blocks: write them again, or give up what \
                 cannot be read with `headpond cache detach {volume} --force`"
            ),
        });
    }
    if errors.cache_checksum > 0 {
        let times = errors.cache_checksum;
        alerts.push(Alert {
            kind: AlertKind::CacheCorruption,
            happened: format!("{times} reads from {device} did not fit their checksums"),
            at_risk: Risk::of_dirty(cache),
            to_do: format!(
                "`headpond cache scrub {volume}` drops what is damaged and lists what is lost; then \
                 replace the device"
            ),
        });
    }
    alerts
}

fn failed(volume: &str, cache: &CacheStatus) -> Alert {
    let device = &cache.device;
    let (at_risk, to_do) = match cache.dirty_bytes {
        0 => (
            Risk::none("nothing: the array has everything"),
            format!(
                "`headpond cache detach {volume}`, then `headpond cache attach {volume} DEVICE` with \
                 another one"
            ),
        ),
        bytes => (
            Risk::of_bytes(bytes, "that the array lacks; without the device reads of them fail"),
            format!(
                "`headpond flush {volume}` writes to the array what the device still reads; \
                 `headpond cache detach {volume} --force` gives up the rest"
            ),
        ),
    };
    let happened = format!("the cache device failed: writes go past {device} to the array");
    Alert { kind: AlertKind::CacheFailed, happened, at_risk, to_do }
}

fn of_devices(volume: &str, cache: &CacheStatus, errors: &ErrorStats) -> Vec<Alert> {
    let device = &cache.device;
    let mut alerts = Vec::new();
    let replace = format!(
        "`headpond cache replace {volume} DEVICE` if it goes on; `headpond stats {volume} --reset` \
         ends this alert"
    );
    if errors.cache_read > 0 {
        alerts.push(Alert {
            kind: AlertKind::CacheReadErrors,
            happened: format!("{} reads from {device} failed", errors.cache_read),
            at_risk: Risk::of_dirty(cache),
            to_do: format!("`headpond cache scrub {volume}` reads all of it; {replace}"),
        });
    }
    if errors.cache_write > 0 {
        alerts.push(Alert {
            kind: AlertKind::CacheWriteErrors,
            happened: format!("{} writes to {device}, or flushes, failed", errors.cache_write),
            at_risk: Risk::of_dirty(cache),
            to_do: replace,
        });
    }
    let core = errors.core_write + errors.core_flush;
    if core > 0 {
        alerts.push(Alert {
            kind: AlertKind::ArrayWriteErrors,
            happened: format!("{core} writes to the array, or flushes, failed"),
            at_risk: Risk::of_dirty(cache),
            to_do: format!(
                "look at the members with `headpond status {volume}`; then `headpond flush {volume}` \
                 says whether they take it now"
            ),
        });
    }
    alerts.extend(full(volume, cache));
    alerts
}

fn full(volume: &str, cache: &CacheStatus) -> Option<Alert> {
    let (dirty, most) = (cache.dirty_bytes, cache.dirty_bytes_max);
    if dirty == 0 || dirty * 100 < most * FULL_PERCENT {
        return None;
    }
    let to_do = match cache.settings.cleaning.policy {
        CleaningPolicy::Nop => {
            format!("`headpond set {volume} cleaning=stripe`: nothing cleans now")
        }
        _ => format!("nothing where it passes; else `headpond flush {volume}`, or a larger cache"),
    };
    Some(Alert {
        kind: AlertKind::CacheFull,
        happened: format!("{dirty} of {most} bytes that may be dirty are"),
        at_risk: Risk::none("speed alone: writes wait for the cleaner, or go past the cache"),
        to_do,
    })
}

impl OpenError {
    /// Whether a format is not known, rather than broken.
    fn is_of_a_newer_program(&self) -> bool {
        match self {
            Self::Cache(CacheOpenError::NoCache { source, .. }) => {
                matches!(source, FormatError::Version { .. } | FormatError::Features { .. })
            }
            Self::Array(AssembleError::Unusable { cause, .. }) => {
                matches!(cause, DecodeError::Version { .. } | DecodeError::Incompatible { .. })
            }
            _ => false,
        }
    }

    /// The refusal as the operator's view of it.
    pub fn alert(&self, volume: &str) -> Alert {
        let serve = format!("`headpond serve {volume}`");
        let forced = format!("`headpond serve {volume} --force` does without it");
        let (what, to_do) = match self {
            Self::Cache(_) if self.is_of_a_newer_program() => (
                "what only that cache holds; nothing was changed",
                format!(
                    "{serve} with the newer Headpond that wrote it; {forced}, and that is lost"
                ),
            ),
            Self::Array(_) if self.is_of_a_newer_program() => {
                ("nothing was changed", format!("{serve} with the newer Headpond that wrote it"))
            }
            Self::NoCacheDevice { .. } | Self::UnnamedCache { .. } => (
                "what only that cache holds; nothing was changed",
                format!("bring the cache back and {serve}; {forced}, and that is lost"),
            ),
            Self::Cache(CacheOpenError::Generation { .. }) => (
                "what only that cache held; nothing was changed",
                format!("{forced}: the array goes on, and what only the cache held is lost"),
            ),
            Self::OtherCores { .. } => (
                "what only that cache holds; nothing was changed",
                format!("put the cores of the description back as they were and {serve}; {forced}"),
            ),
            Self::OtherCache { .. } | Self::Cache(CacheOpenError::ForeignVolume { .. }) => (
                "nothing as long as it is not used: both volumes are as they were",
                format!("name the volume's own cache in its description, then {serve}"),
            ),
            Self::Cache(_) => (
                "what the cache holds; nothing was changed",
                format!("bring the device back as it was and {serve}; {forced}"),
            ),
            _ => (
                "nothing was changed",
                format!("bring every device back and {serve}; `--force` uses what may be torn"),
            ),
        };
        Alert {
            kind: AlertKind::StartRefused,
            happened: self.to_string(),
            at_risk: Risk::none(what),
            to_do,
        }
    }
}
