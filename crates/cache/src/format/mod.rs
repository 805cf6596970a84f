//! What lies on a cache device. The layouts are written down in `docs/format.md`.
//!
//! **Invariants**
//! - Every codec is total: any bytes give a value or a typed error, never a panic.
//! - A checksum covers everything that the codec believes, and its own place on the device.

mod bytes;
pub mod checkpoint;
pub mod order_mark;
pub mod record;
pub mod slice_header;
pub mod superblock;

/// Why the bytes at a place are not what should be there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    #[error("no {what} here (magic {found:#018x})")]
    Magic { what: &'static str, found: u64 },
    #[error("{what} damaged: checksum {found:#010x}, expected {expected:#010x}")]
    Checksum { what: &'static str, expected: u32, found: u32 },
    #[error("{what} has version {found}; this Headpond reads {known}")]
    Version { what: &'static str, found: u32, known: u32 },
    #[error("{what} needs unknown features {unknown:#x}; a newer Headpond reads it")]
    Features { what: &'static str, unknown: u64 },
    #[error("{what} belongs elsewhere: {detail}")]
    Elsewhere { what: &'static str, detail: &'static str },
    #[error("{what} is malformed: {detail}")]
    Malformed { what: &'static str, detail: &'static str },
}
