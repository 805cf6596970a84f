//! The on-disk format of a cache device, specified in `docs/format.md`.
//!
//! **Invariants**
//! - Every codec is total: any bytes give a value or a typed error, never a panic.
//! - A checksum covers everything that the codec relies on, and its own location on the device.

mod bytes;
pub mod checkpoint;
pub mod order_mark;
pub mod record;
pub mod slice_header;
pub mod superblock;

use crate::checksum::crc32c;

/// Why the bytes at a place are not what should be there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    #[error("no {what} found (magic {found:#018x})")]
    Magic { what: &'static str, found: u64 },
    #[error("{what} damaged: checksum {found:#010x}, expected {expected:#010x}")]
    Checksum { what: &'static str, expected: u32, found: u32 },
    #[error("{what} has version {found}; this Headpond reads {known}")]
    Version { what: &'static str, found: u32, known: u32 },
    #[error("{what} needs unknown features {unknown:#x}; use a newer Headpond")]
    Features { what: &'static str, unknown: u64 },
    #[error("{what} belongs elsewhere: {detail}")]
    Elsewhere { what: &'static str, detail: &'static str },
    #[error("{what} is malformed: {detail}")]
    Malformed { what: &'static str, detail: &'static str },
}

/// Checks magic and checksum of what takes a whole block of so many bytes, and begins alike: magic,
/// the checksum of all behind it, version. Answers the version.
fn check_block(
    what: &'static str,
    bytes: &[u8],
    magic: u64,
    len: usize,
) -> Result<u32, FormatError> {
    if bytes.len() < len {
        return Err(FormatError::Malformed { what, detail: "too short" });
    }
    let found = bytes::get_u64(bytes, 0);
    if found != magic {
        return Err(FormatError::Magic { what, found });
    }
    let (expected, found) = (bytes::get_u32(bytes, 8), crc32c(&bytes[12..len]));
    match expected == found {
        true => Ok(bytes::get_u32(bytes, 12)),
        false => Err(FormatError::Checksum { what, expected, found }),
    }
}
