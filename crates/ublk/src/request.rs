//! A request of the kernel as one of ours, and our errors as the kernel's.

use headpond_block::{
    Buffer, ByteRange, Cause, DeviceError, Hints, Request, RequestFlags, RequestKind,
};
use headpond_uring::ublk::Descriptor;

const SECTOR_BYTES: u64 = 512;
/// Flags of a request (`UBLK_IO_F_*`).
const META: u32 = 1 << 11;
const FUA: u32 = 1 << 13;
const NO_UNMAP: u32 = 1 << 15;

const EIO: i32 = 5;
const ENOMEM: i32 = 12;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const EOPNOTSUPP: i32 = 95;
const ETIMEDOUT: i32 = 110;

/// What a request is, with this memory for its data; an error number where it is none.
pub(crate) fn request(descriptor: &Descriptor, memory: &Buffer) -> Result<Request, i32> {
    let kind = match descriptor.operation_and_flags & 0xff {
        0 => RequestKind::Read,
        1 => RequestKind::Write,
        2 => return Ok(Request::flush()),
        3 => RequestKind::Discard,
        5 => RequestKind::WriteZeroes,
        _ => return Err(EOPNOTSUPP),
    };
    let start = descriptor.first_sector.checked_mul(SECTOR_BYTES).ok_or(EINVAL)?;
    let len = u64::from(descriptor.sectors) * SECTOR_BYTES;
    start.checked_add(len).ok_or(EINVAL)?;
    let range = ByteRange::at(start, len);
    let flag = |bit: u32| descriptor.operation_and_flags & bit != 0;
    let data = || match usize::try_from(len) {
        Ok(len) if (1..=memory.len()).contains(&len) => Ok(memory.slice(0..len)),
        _ => Err(EINVAL),
    };
    let request = match kind {
        RequestKind::Read => Request::read(start, data()?),
        RequestKind::Write => Request::write(start, data()?),
        RequestKind::Discard => Request::discard(range),
        _ => Request::write_zeroes(range),
    };
    let mut flags = RequestFlags::empty();
    flags.set(RequestFlags::FUA, flag(FUA));
    flags.set(RequestFlags::NO_UNMAP, kind == RequestKind::WriteZeroes && flag(NO_UNMAP));
    let hints = Hints { metadata: flag(META), ..Hints::default() };
    Ok(request.with_flags(flags).with_hints(hints))
}

/// What the kernel is answered: the bytes that were moved, or an error number below zero.
pub(crate) fn result(moved_bytes: u64, outcome: &Result<(), DeviceError>) -> i32 {
    match outcome {
        Ok(()) => moved_bytes as i32,
        Err(error) => -errno(error),
    }
}

fn errno(error: &DeviceError) -> i32 {
    match error.cause() {
        Cause::OutOfRange { .. } | Cause::Misaligned { .. } => EINVAL,
        Cause::NoSpace => ENOSPC,
        Cause::ReadOnly => EROFS,
        Cause::Unsupported { .. } => EOPNOTSUPP,
        Cause::Timeout { .. } => ETIMEDOUT,
        Cause::Os { errno: errno @ (ENOMEM | ENOSPC | EOPNOTSUPP), .. } => *errno,
        // The kernel does with these what it does with a drive that cannot read its medium.
        Cause::Os { .. } | Cause::Media { .. } | Cause::Corrupt { .. } | Cause::Gone => EIO,
    }
}
