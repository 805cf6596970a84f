//! Why a cache cannot be created, opened, changed or stopped.

use crate::format::FormatError;
use crate::stats::Sampled;
use headpond_block::{DeviceError, DeviceName};
use uuid::Uuid;

/// Why a cache cannot be created. Nothing usable was written.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    #[error("{device} is too small for a cache: {found_bytes} bytes, {needed_bytes} are required")]
    TooSmall { device: DeviceName, found_bytes: u64, needed_bytes: u64 },
    #[error(
        "{asked_bytes} bytes of {device} are too few for a cache, which requires {needed_bytes}: \
        give a larger size, or none to use the whole device"
    )]
    TooLittle { device: DeviceName, asked_bytes: u64, needed_bytes: u64 },
    #[error(
        "{device} has {found_bytes} bytes, fewer than the {asked_bytes} requested: give a smaller \
        size, or none to use the whole device"
    )]
    BeyondDevice { device: DeviceName, found_bytes: u64, asked_bytes: u64 },
    #[error("{device} is too large for {slices} slices; use more slices")]
    TooLarge { device: DeviceName, slices: usize },
    #[error(
        "{device} has logical blocks of {logical_block_bytes} bytes, larger than the cache's write \
        unit of {unit_bytes}: format it with smaller blocks"
    )]
    LogicalBlock { device: DeviceName, logical_block_bytes: u32, unit_bytes: u32 },
    #[error("{slices} slices: a cache has 1 to 64")]
    SliceCount { slices: usize },
    #[error("lines of {line_bytes} bytes: a line is a power of two from 4 KiB to 1 MiB")]
    LineSize { line_bytes: u32 },
    #[error("the core has {core_bytes} bytes, which is no multiple of 4096 below 4 PiB")]
    CoreSize { core_bytes: u64 },
    #[error("writing the cache failed: {0}")]
    Device(#[from] DeviceError),
}

/// Why a cache cannot be used. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{device} has no cache: {source}")]
    NoCache { device: DeviceName, source: FormatError },
    #[error("{device}: no usable copy of the header of slice {slice}: {source}")]
    NoSlice { device: DeviceName, slice: u16, source: FormatError },
    #[error(
        "{device}: the newest readable header of slice {slice} is of epoch {found}, but its log has \
        records of epoch {expected}: a newer header is damaged, and without it the slice would be \
        rolled back"
    )]
    StaleHeader { device: DeviceName, slice: u16, expected: u64, found: u64 },
    #[error("{device}: the checkpoint of slice {slice} is damaged: {detail}")]
    Checkpoint { device: DeviceName, slice: u16, detail: String },
    #[error(
        "{device} belongs to volume {found}, not to {expected}; attach the cache of {expected}"
    )]
    ForeignVolume { device: DeviceName, expected: Uuid, found: Uuid },
    #[error(
        "{device} has generation {found}, but its core has {expected}: the core was changed without \
         this cache, whose contents are stale"
    )]
    Generation { device: DeviceName, expected: u64, found: u64 },
    #[error(
        "{device} was created for a core of {expected_bytes} bytes, this one has {found_bytes}"
    )]
    CoreSize { device: DeviceName, expected_bytes: u64, found_bytes: u64 },
    #[error("{device} has {found_bytes} bytes, the cache was created for {expected_bytes}")]
    DeviceSize { device: DeviceName, expected_bytes: u64, found_bytes: u64 },
    #[error("{device}: the cache has no slice {slice}")]
    SliceIndex { device: DeviceName, slice: u16 },
    #[error(
        "{device} is volatile, so write-back is refused: use write-through, or allow it explicitly"
    )]
    Volatile { device: DeviceName },
    #[error(
        "{device}: {records} flushed records are missing, and their contents are unknown: the \
        device lost flushed data"
    )]
    LostRecords { device: DeviceName, records: u64 },
    #[error(
        "{device}: of {} cached blocks compared with the core {} differ, the first at byte {}: the \
        core was written past the volume while it was stopped, or lost written data, and the \
        {dirty_blocks} dirty blocks here may be older than its data",
        sampled.compared,
        sampled.differing.len(),
        sampled.differing.first().map_or(0, |block| block.range(1).start())
    )]
    CoreChanged {
        device: DeviceName,
        sampled: Sampled,
        dirty_blocks: u64,
        /// Every slice had a clean shutdown, not only those that could be compared.
        was_clean: bool,
    },
    #[error(
        "{device}: not enough memory for the metadata of this cache, {needed_bytes} bytes: use \
        longer lines (`line`), a smaller cache, or give this process more memory"
    )]
    NoMemory { device: DeviceName, needed_bytes: u64 },
    #[error("the cache and its core cannot be used together: {detail}")]
    Unfit { detail: &'static str },
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Why a setting was refused. The old value stays.
#[derive(Debug, thiserror::Error)]
pub enum ModeError {
    #[error(
        "{device} is volatile, and this mode keeps the only copy of new data there: use \
        write-through, or replace the device with itself and allow it there (--force)"
    )]
    Volatile { device: DeviceName },
    #[error("{device} failed; the cache stays in pass-through")]
    Failed { device: DeviceName },
    #[error(
        "not enough memory for this eviction policy, {needed_bytes} bytes: the policy is unchanged"
    )]
    NoMemory { needed_bytes: u64 },
}

/// Why some dirty data was not cleaned. It stays dirty.
#[derive(Debug, thiserror::Error)]
pub enum CleanError {
    #[error("{blocks} blocks stay dirty: {source}")]
    Core { blocks: u64, source: DeviceError },
    #[error("{blocks} blocks stay dirty in the cache: the volume is being stopped")]
    Ended { blocks: u64 },
}

/// Why a slice could not be stopped cleanly. The next open recovers it.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    #[error("the state of slice {slice} could not be saved: {source}")]
    Device { slice: u16, source: DeviceError },
    #[error("slice {slice} has been stopped already")]
    Stopped { slice: u16 },
}
