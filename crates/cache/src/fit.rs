//! Whether a cache can be used as it is wanted: what its superblock tells, and whether there is
//! memory for what is kept of it.

use crate::config::SliceConfig;
use crate::error::{ModeError, OpenError};
use crate::format::superblock::Superblock;
use crate::layout::SliceLayout;
use crate::slice::Expected;
use headpond_block::{BLOCK_BYTES, BlockDevice, Stability, memory};

/// Bytes for each block of a cache, at most: map, checksums, what scattered lines take, and for a
/// moment who was resident and of which class.
const MAP_BYTES_PER_BLOCK: u64 = 24;
/// For each line that may be resident: of `arc`, which takes most.
const POLICY_BYTES_PER_LINE: u64 = 40;

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
    if config.mode.makes_dirt() && is_volatile && !config.allow_volatile {
        return Err(OpenError::Volatile { device: device() });
    }
    let blocks = superblock.device_bytes / BLOCK_BYTES;
    let lines = superblock.device_bytes / u64::from(superblock.line_bytes);
    let needed_bytes = MAP_BYTES_PER_BLOCK * blocks + POLICY_BYTES_PER_LINE * lines;
    match can_have(needed_bytes) {
        true => Ok(()),
        false => Err(OpenError::NoMemory { device: device(), needed_bytes }),
    }
}

/// Whether there is memory for another policy, beside the one that is in use.
///
/// # Errors
/// How much would be needed.
pub(crate) fn check_policy_memory(layout: &SliceLayout) -> Result<(), ModeError> {
    let lines = u64::from(layout.slots()) / layout.line_blocks();
    let needed_bytes = POLICY_BYTES_PER_LINE * lines;
    match can_have(needed_bytes) {
        true => Ok(()),
        false => Err(ModeError::NoMemory { needed_bytes }),
    }
}

fn can_have(bytes: u64) -> bool {
    usize::try_from(bytes).is_ok_and(memory::can_have)
}
