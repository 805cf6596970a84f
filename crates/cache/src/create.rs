//! Creates a cache on a device, and identifies the cache on a device.
//!
//! Creation: 1. both superblock copies are wiped and flushed, so that no older cache is found; 2.
//! the slice headers are written and flushed; 3. the superblock, copy by copy. A power cut anywhere
//! leaves no cache or a complete one.

use crate::checkpoint::write_empty;
use crate::copies::read_best;
use crate::error::{CreateError, OpenError};
use crate::format::FormatError;
use crate::format::slice_header::SliceHeader;
use crate::format::superblock::{
    COPY_OFFSETS, CORE_BYTES_MAX, Features, INCOMPAT, SLICES_MAX, SLICES_OFFSET, SUPERBLOCK_BYTES,
    Superblock,
};
use crate::layout::{SliceLayout, is_line_size};
use crate::types::{Epoch, Position, SegmentIndex, Sequence};
use headpond_block::{
    BLOCK_BYTES, BlockDevice, Buffer, ByteRange, DeviceError, Outcome, Stability,
};
use uuid::Uuid;

/// Slices are multiples of this, in bytes.
const SLICE_ALIGNMENT_BYTES: u64 = 64 << 10;

/// What a new cache is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateOptions {
    /// A new, random identity of the cache.
    pub cache: Uuid,
    pub volume: Uuid,
    /// Identity of the core: its array, or the volume's own UUID for a plain device.
    pub core: Uuid,
    pub core_bytes: u64,
    /// Generation on the core's label.
    pub generation: u64,
    pub slices: usize,
    /// A power of two from 4 KiB to 1 MiB.
    pub line_bytes: u32,
    /// So much of the device is used; `None` takes all of it.
    pub device_bytes: Option<u64>,
    /// 512 or 4096; `None` chooses: 512 for RAM, else 4096.
    pub unit_bytes: Option<u32>,
}

/// Makes `device` an empty cache; what was on it is lost.
///
/// # Errors
/// Where sizes do not fit, with the device unchanged; or where it fails, with no cache on it.
pub async fn create(
    device: &dyn BlockDevice,
    options: &CreateOptions,
) -> Result<Superblock, CreateError> {
    let superblock = plan(device, options)?;
    wipe(device).await?;
    for index in 0..superblock.slices.len() {
        let layout = superblock.layout(index).expect("one of its slices");
        write_first_headers(device, &superblock, index as u16, &layout).await?;
    }
    device.flush().await?;
    let mut superblock = superblock;
    for _ in COPY_OFFSETS {
        write_superblock(device, &mut superblock).await?;
    }
    Ok(superblock)
}

/// Whether `device` can be made such a cache; nothing is written.
///
/// # Errors
/// Why not.
pub fn consider(device: &dyn BlockDevice, options: &CreateOptions) -> Result<(), CreateError> {
    plan(device, options).map(drop)
}

/// Ends a cache: the device is no cache any more.
///
/// # Errors
/// The device's.
pub async fn wipe(device: &dyn BlockDevice) -> Outcome {
    for offset in COPY_OFFSETS {
        device.write(offset, Buffer::zeroed(SUPERBLOCK_BYTES)).await?;
    }
    device.flush().await
}

/// Writes the next version of the superblock to the copy whose turn it is, stable.
///
/// # Errors
/// The device's; the other copy is whole.
pub async fn write_superblock(device: &dyn BlockDevice, superblock: &mut Superblock) -> Outcome {
    superblock.sequence += 1;
    let offset = COPY_OFFSETS[(superblock.sequence % 2) as usize];
    device.flush().await?;
    device.write(offset, Buffer::from_slice(&superblock.encode())).await?;
    device.flush().await
}

/// Reads the superblock: of the valid copies the newer one; one that cannot be read is not valid. A
/// later generation is newer whatever the sequence, which begins anew with each cache that is made.
///
/// # Errors
/// Where no copy is valid, or none can be read.
pub async fn load(device: &dyn BlockDevice) -> Result<Superblock, OpenError> {
    let age = |superblock: &Superblock| (superblock.generation, superblock.sequence);
    let mut best: Option<Superblock> = None;
    let mut worst: Option<FormatError> = None;
    let mut unread: Option<DeviceError> = None;
    for offset in COPY_OFFSETS {
        let range = ByteRange::at(offset, SUPERBLOCK_BYTES as u64);
        let is_better = |one: &Superblock, other: &Superblock| age(one) > age(other);
        let read = read_best(device, range, Superblock::decode, is_better).await;
        let Ok(read) = read.map_err(|error| unread = Some(error)) else { continue };
        match read {
            Ok(found) if best.as_ref().is_none_or(|best| age(best) < age(&found)) => {
                best = Some(found);
            }
            Ok(_) => {}
            // A damaged or newer copy says more than an empty one.
            Err(FormatError::Magic { .. }) if worst.is_some() => {}
            Err(error) => worst = Some(error),
        }
    }
    if let (None, None, Some(error)) = (&best, &worst, unread) {
        return Err(error.into());
    }
    let source = worst.unwrap_or(FormatError::Malformed { what: "cache", detail: "no copy" });
    let newer = matches!(source, FormatError::Version { .. } | FormatError::Features { .. });
    match best {
        Some(best) if !newer => Ok(best),
        _ => Err(OpenError::NoCache { device: device.name().clone(), source }),
    }
}

/// The smallest device that can be a cache of so many slices, in bytes.
pub fn bytes_min(slices: usize) -> u64 {
    SLICES_OFFSET + slices as u64 * SliceLayout::slice_bytes_min()
}

fn plan(device: &dyn BlockDevice, options: &CreateOptions) -> Result<Superblock, CreateError> {
    let geometry = device.geometry();
    let name = || device.name().clone();
    if !(1..=SLICES_MAX).contains(&options.slices) {
        return Err(CreateError::SliceCount { slices: options.slices });
    }
    if !is_line_size(u64::from(options.line_bytes)) {
        return Err(CreateError::LineSize { line_bytes: options.line_bytes });
    }
    let core_bytes = options.core_bytes;
    if core_bytes == 0 || core_bytes > CORE_BYTES_MAX || !core_bytes.is_multiple_of(BLOCK_BYTES) {
        return Err(CreateError::CoreSize { core_bytes });
    }
    let device_bytes = options.device_bytes.unwrap_or(geometry.size_bytes);
    if device_bytes > geometry.size_bytes {
        let (found_bytes, asked_bytes) = (geometry.size_bytes, device_bytes);
        return Err(CreateError::BeyondDevice { device: name(), found_bytes, asked_bytes });
    }
    let room = device_bytes.saturating_sub(SLICES_OFFSET) / options.slices as u64;
    let slice_bytes = room - room % SLICE_ALIGNMENT_BYTES;
    let segment_bytes = SliceLayout::segment_bytes_for(slice_bytes.max(1));
    let unit_bytes = options.unit_bytes.unwrap_or_else(|| default_unit_bytes(device));
    let logical_block_bytes = geometry.logical_block_bytes;
    if logical_block_bytes > unit_bytes {
        return Err(CreateError::LogicalBlock { device: name(), logical_block_bytes, unit_bytes });
    }
    let start = |index: usize| SLICES_OFFSET + index as u64 * slice_bytes;
    let slices: Vec<ByteRange> =
        (0..options.slices).map(|index| ByteRange::at(start(index), slice_bytes)).collect();
    if SliceLayout::new(slices[0], segment_bytes, u64::from(unit_bytes)).is_none() {
        let needed_bytes = bytes_min(options.slices);
        if device_bytes >= needed_bytes {
            return Err(CreateError::TooLarge { device: name(), slices: options.slices });
        }
        let device = name();
        return Err(match options.device_bytes {
            Some(asked_bytes) if geometry.size_bytes >= needed_bytes => {
                CreateError::TooLittle { device, asked_bytes, needed_bytes }
            }
            _ => CreateError::TooSmall { device, found_bytes: geometry.size_bytes, needed_bytes },
        });
    }
    Ok(Superblock {
        features: Features { incompat: INCOMPAT, ..Features::default() },
        sequence: 0,
        volume: options.volume,
        cache: options.cache,
        generation: options.generation,
        core: options.core,
        core_bytes,
        device_bytes,
        segment_bytes: segment_bytes as u32,
        line_bytes: options.line_bytes,
        unit_bytes,
        slices,
    })
}

/// RAM takes half a kilobyte as readily as four; flash does not, whatever it says.
fn default_unit_bytes(device: &dyn BlockDevice) -> u32 {
    let geometry = device.geometry();
    let is_ram = geometry.stability == Stability::LostOnPower
        || device.lend(ByteRange::at(0, BLOCK_BYTES)).is_some();
    if is_ram && geometry.logical_block_bytes == 512 { 512 } else { 4096 }
}

/// Writes both copies, so that one that is not valid is always one that was damaged or torn.
async fn write_first_headers(
    device: &dyn BlockDevice,
    superblock: &Superblock,
    slice: u16,
    layout: &SliceLayout,
) -> Result<(), DeviceError> {
    let segments = vec![Sequence(1); layout.segments() as usize];
    let checkpoint = write_empty(device, layout, &segments).await?;
    device.flush().await?;
    let header = SliceHeader {
        cache: superblock.cache,
        slice,
        sequence: 1,
        epoch: Epoch(0),
        next_record: Sequence(1),
        tail: Sequence(1),
        tail_segment: SegmentIndex(0),
        head: Position(0),
        head_segment: SegmentIndex(0),
        is_clean: true,
        checkpoint,
        reach: 0,
        order: Some(Position(0)),
    };
    for sequence in [0, 1] {
        let header = SliceHeader { sequence, ..header };
        let offset = layout.header_offset(sequence as usize);
        device.write(offset, Buffer::from_slice(&header.encode())).await?;
    }
    Ok(())
}
