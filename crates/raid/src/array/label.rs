//! Reading and writing the metadata before the data area of one member.

use std::rc::Rc;
use std::time::Duration;

use headpond_block::{
    BlockDevice, Buffer, ByteRange, DeviceError, Outcome, Request, RequestFlags, Runtime,
};

use crate::intent::PAGE_BYTES;
use crate::superblock::{
    ABSENCE_OFFSET, COPY_OFFSETS, DATA_OFFSET_MIN, DecodeError, INTEGRITY_OFFSET, INTENT_BYTES,
    INTENT_OFFSET, SUPERBLOCK_BYTES, Superblock, decode, encode,
};

use crate::volume_record;

/// How long a device is waited for that is of no use any more.
const ERASURE_MAX: Duration = Duration::from_secs(1);

/// What is found where a superblock would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inspection {
    /// Zeros in both places.
    Empty,
    /// Something that is not Headpond's.
    Foreign,
    /// A member of an array: its newest superblock.
    Member(Box<Superblock>),
    /// A superblock that cannot be used.
    Unusable(DecodeError),
}

/// Looks at a device without changing it.
///
/// # Errors
/// Where neither copy can be read.
pub async fn inspect(device: &dyn BlockDevice) -> Result<Inspection, DeviceError> {
    if device.geometry().size_bytes < DATA_OFFSET_MIN {
        return Ok(Inspection::Foreign);
    }
    let first = read_copy(device, COPY_OFFSETS[0]).await;
    let second = read_copy(device, COPY_OFFSETS[1]).await;
    match (first, second) {
        (Err(error), Err(_)) => Err(error),
        (Ok(only), Err(_)) | (Err(_), Ok(only)) => Ok(judge([only])),
        (Ok(first), Ok(second)) => Ok(judge([first, second])),
    }
}

/// Overwrites both superblocks with zeros: the device is no member any more.
///
/// # Errors
/// Those of the device; it may then still be a member.
pub async fn erase(device: &dyn BlockDevice) -> Outcome {
    zero_copy(device, 0).await?;
    zero_copy(device, 1).await?;
    let record = volume_record::AREA;
    write_stable(device, record.start(), &vec![0; record.len() as usize]).await
}

/// The same for a device that is not listed any more: one that cannot be written keeps its label,
/// and one that does not respond is not waited for.
pub async fn erase_unlisted(runtime: &Runtime, device: Rc<dyn BlockDevice>) {
    let erase = async move { drop(erase(&*device).await) };
    let _ = runtime.deadline(runtime.now() + ERASURE_MAX, erase).await;
}

/// Overwrites one copy with zeros, stably.
pub(crate) async fn zero_copy(device: &dyn BlockDevice, copy: usize) -> Outcome {
    write_stable(device, COPY_OFFSETS[copy], &[0; SUPERBLOCK_BYTES]).await
}

/// Writes a superblock, stably, to the copy whose turn it is.
pub(crate) async fn write_superblock(device: &dyn BlockDevice, superblock: Superblock) -> Outcome {
    let offset = COPY_OFFSETS[(superblock.sequence % 2) as usize];
    write_stable(device, offset, &encode(&superblock)).await
}

/// One of the bitmaps of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bitmap {
    /// What is being written.
    Intent,
    /// Writes that members missed.
    Absence,
    /// What was written to since a scrub signed it.
    Unsigned,
}

impl Bitmap {
    fn page_offset(self, number: usize) -> u64 {
        let start = match self {
            Bitmap::Intent => INTENT_OFFSET,
            Bitmap::Absence => ABSENCE_OFFSET,
            Bitmap::Unsigned => INTEGRITY_OFFSET,
        };
        start + (number * PAGE_BYTES) as u64
    }
}

/// Writes a page of a bitmap, stably.
pub(crate) async fn write_bitmap_page(
    device: &dyn BlockDevice,
    bitmap: Bitmap,
    number: usize,
    bytes: &[u8],
) -> Outcome {
    assert!((number * PAGE_BYTES + bytes.len()) as u64 <= INTENT_BYTES, "it has its own pages");
    device.submit(stable_write(bitmap.page_offset(number), bytes)).await
}

/// Reads a page of a bitmap.
pub(crate) async fn read_bitmap_page(
    device: &dyn BlockDevice,
    bitmap: Bitmap,
    number: usize,
) -> Result<Vec<u8>, DeviceError> {
    let buffer = Buffer::zeroed(PAGE_BYTES);
    device.submit(Request::read(bitmap.page_offset(number), &buffer)).await?;
    Ok(buffer.to_vec())
}

async fn read_copy(
    device: &dyn BlockDevice,
    offset: u64,
) -> Result<Result<Superblock, DecodeError>, DeviceError> {
    let buffer = Buffer::zeroed(SUPERBLOCK_BYTES);
    device.submit(Request::read(offset, &buffer)).await?;
    Ok(decode(&buffer.to_vec()))
}

/// The newest valid copy; but a copy of a version or with features not known here may be newer
/// still.
fn judge<const N: usize>(copies: [Result<Superblock, DecodeError>; N]) -> Inspection {
    let mut newest: Option<Superblock> = None;
    let mut unusable = None;
    let mut foreign = false;
    for copy in copies {
        match copy {
            Ok(superblock) => {
                if newest.as_ref().is_none_or(|newest| newest.sequence < superblock.sequence) {
                    newest = Some(superblock);
                }
            }
            Err(DecodeError::Zeroed) => {}
            Err(DecodeError::Foreign) => foreign = true,
            Err(error @ (DecodeError::Version { .. } | DecodeError::Incompatible { .. })) => {
                return Inspection::Unusable(error);
            }
            Err(error) => unusable = Some(error),
        }
    }
    match (newest, unusable) {
        (Some(superblock), _) => Inspection::Member(Box::new(superblock)),
        (None, Some(error)) => Inspection::Unusable(error),
        (None, None) if foreign => Inspection::Foreign,
        (None, None) => Inspection::Empty,
    }
}

/// Writes metadata before the data area, stably.
pub(super) async fn write_stable(device: &dyn BlockDevice, offset: u64, bytes: &[u8]) -> Outcome {
    assert!(ByteRange::at(offset, bytes.len() as u64).end() <= DATA_OFFSET_MIN);
    device.submit(stable_write(offset, bytes)).await
}

fn stable_write(offset: u64, bytes: &[u8]) -> Request {
    Request::write(offset, Buffer::from_slice(bytes)).with_flags(RequestFlags::FUA)
}
