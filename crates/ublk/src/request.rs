//! A request of the kernel as one of ours, and our errors as the kernel's.

use headpond_block::{
    Buffer, ByteRange, Cause, DeviceError, Hints, Request, RequestFlags, RequestKind,
};
use headpond_uring::ublk::Descriptor;
use rustix::io::Errno;

const SECTOR_BYTES: u64 = 512;
/// Flags of a request (`UBLK_IO_F_*`).
const META: u32 = 1 << 11;
const FUA: u32 = 1 << 13;
const NO_UNMAP: u32 = 1 << 15;

/// What a request is, with this memory for its data; an error number where it is none.
pub(crate) fn request(descriptor: &Descriptor, memory: &Buffer) -> Result<Request, Errno> {
    let kind = match descriptor.operation_and_flags & 0xff {
        0 => RequestKind::Read,
        1 => RequestKind::Write,
        2 => return Ok(Request::flush()),
        3 => RequestKind::Discard,
        5 => RequestKind::WriteZeroes,
        _ => return Err(Errno::OPNOTSUPP),
    };
    let start = descriptor.first_sector.checked_mul(SECTOR_BYTES).ok_or(Errno::INVAL)?;
    let len = u64::from(descriptor.sectors) * SECTOR_BYTES;
    start.checked_add(len).ok_or(Errno::INVAL)?;
    let range = ByteRange::at(start, len);
    let flag = |bit: u32| descriptor.operation_and_flags & bit != 0;
    let data = || match usize::try_from(len) {
        Ok(len) if (1..=memory.len()).contains(&len) => Ok(memory.slice(0..len)),
        _ => Err(Errno::INVAL),
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
        Err(error) => -errno(error).raw_os_error(),
    }
}

fn errno(error: &DeviceError) -> Errno {
    match error.cause() {
        Cause::OutOfRange { .. } | Cause::Misaligned { .. } => Errno::INVAL,
        Cause::NoSpace => Errno::NOSPC,
        Cause::ReadOnly => Errno::ROFS,
        Cause::Unsupported { .. } => Errno::OPNOTSUPP,
        Cause::Timeout { .. } => Errno::TIMEDOUT,
        Cause::Os { errno, .. } => {
            // A device may have any number there.
            let passed = [Errno::NOMEM, Errno::NOSPC, Errno::OPNOTSUPP];
            let known = passed.into_iter().find(|it| it.raw_os_error() == *errno);
            known.unwrap_or(Errno::IO)
        }
        // The kernel does with these what it does with a drive that cannot read its medium.
        Cause::Media { .. } | Cause::Corrupt { .. } | Cause::Gone => Errno::IO,
    }
}
