//! Checks that a cache can be used with given settings: its superblock, and memory for its
//! metadata.

use crate::config::SliceConfig;
use crate::error::OpenError;
use crate::eviction::EvictionPolicy;
use crate::format::superblock::Superblock;
use crate::layout::SliceLayout;
use headpond_block::{BLOCK_BYTES, BlockDevice, DeviceName, Stability, memory};
use uuid::Uuid;

/// What the cache must match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    pub volume: Uuid,
    /// On the core's label.
    pub generation: u64,
}

/// Bytes for each block of a cache: its map and its checksum, and for a moment who was resident and
/// of which class. With long lines what scattered ones take is most of it.
const MAP_BYTES_PER_BLOCK: u64 = 18;
const LONG_MAP_BYTES_PER_BLOCK: u64 = 10;

/// Queues and ghosts, for each line of the cache.
fn policy_bytes_per_line(eviction: EvictionPolicy) -> u64 {
    match eviction {
        // Adaptive begins with it, and asks before it changes.
        EvictionPolicy::Fifo | EvictionPolicy::Adaptive => 4,
        EvictionPolicy::S3Fifo => 13,
        EvictionPolicy::Lru => 20,
        EvictionPolicy::Arc => 40,
    }
}

/// Whether a cache belongs to a core of so many bytes and can be used as it is wanted, as far as
/// its superblock tells.
///
/// # Errors
/// Why not.
pub fn check_fit(
    cache: &dyn BlockDevice,
    core_bytes: u64,
    superblock: &Superblock,
    expected: Expected,
    config: &SliceConfig,
) -> Result<(), OpenError> {
    let device = || cache.name().clone();
    if superblock.volume != expected.volume {
        let (expected, found) = (expected.volume, superblock.volume);
        return Err(OpenError::ForeignVolume { device: device(), expected, found });
    }
    if superblock.generation != expected.generation {
        let (expected, found) = (expected.generation, superblock.generation);
        return Err(OpenError::Generation { device: device(), expected, found });
    }
    // A core may have grown since; one of the same identity with less room is another.
    if core_bytes < superblock.core_bytes {
        let (expected_bytes, found_bytes) = (superblock.core_bytes, core_bytes);
        return Err(OpenError::CoreSize { device: device(), expected_bytes, found_bytes });
    }
    if cache.size_bytes() < superblock.device_bytes {
        let (expected_bytes, found_bytes) = (superblock.device_bytes, cache.size_bytes());
        return Err(OpenError::DeviceSize { device: device(), expected_bytes, found_bytes });
    }
    if cache.geometry().logical_block_bytes > superblock.unit_bytes {
        let detail = "the cache device has larger logical blocks than when the cache was made";
        return Err(OpenError::Unfit { detail });
    }
    let is_volatile = cache.geometry().stability == Stability::LostOnPower;
    if config.mode.is_write_back() && is_volatile && !config.allow_volatile {
        return Err(OpenError::Volatile { device: device() });
    }
    Ok(())
}

/// Whether there is memory for what is kept of a cache on so much of a device, in such lines.
///
/// # Errors
/// How much it would be.
pub fn check_memory(
    device: &DeviceName,
    bytes: u64,
    line_bytes: u32,
    eviction: EvictionPolicy,
) -> Result<(), OpenError> {
    let (blocks, lines) = (bytes / BLOCK_BYTES, bytes / u64::from(line_bytes));
    let is_long = u64::from(line_bytes) > BLOCK_BYTES;
    let each = if is_long { LONG_MAP_BYTES_PER_BLOCK } else { MAP_BYTES_PER_BLOCK };
    let needed_bytes = each * blocks + policy_bytes_per_line(eviction) * lines;
    match can_have(needed_bytes) {
        true => Ok(()),
        false => Err(OpenError::NoMemory { device: device.clone(), needed_bytes }),
    }
}

/// What a policy takes of a slice that is cut like this, in bytes.
pub(crate) fn policy_bytes(layout: &SliceLayout, eviction: EvictionPolicy) -> u64 {
    policy_bytes_per_line(eviction) * u64::from(layout.slots()) / layout.line_blocks()
}

pub(crate) fn can_have(bytes: u64) -> bool {
    usize::try_from(bytes).is_ok_and(memory::can_have)
}
