//! The NBD wire format as pure functions: bytes to values and values to bytes.
//!
//! 1. [`wire`] holds every constant and flag set of the protocol that Headpond speaks.
//! 2. [`option`] decodes and encodes options; [`option_reply`] their replies.
//! 3. [`request`] is the 28-byte transmission header; [`reply`] simple replies and chunks.
//!
//! **Invariants**
//! - No function here does I/O, waits or reads the clock.
//! - Nothing is allocated by a length that the peer sent: decoded strings borrow the input, and an
//!   input is as long as its caller chose to receive.
//! - Bytes from the peer are never asserted; every malformed input is a [`CodecError`].
//!
//! **Not here**: TLS, extended headers (`NBD_OPT_EXTENDED_HEADERS`), resize, oldstyle handshake.
//!
//! **Source**: `doc/proto.md` of the NBD project; all integers are big-endian.

mod cursor;
pub mod option;
pub mod option_reply;
pub mod reply;
pub mod request;
pub mod wire;

pub use cursor::Cursor;

/// Why bytes from the peer are not a message of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// A magic number is wrong: another protocol, or the stream is out of sync.
    #[error("bad magic for {what}: expected {expected:#x}, found {found:#x}")]
    BadMagic { what: &'static str, expected: u64, found: u64 },
    /// A field or string reaches past the end of its message.
    #[error("{what} is truncated: {needed} bytes needed, {left} left")]
    Truncated { what: &'static str, needed: u64, left: u64 },
    /// A message has bytes after its last field.
    #[error("{what} has {extra} bytes too many")]
    Trailing { what: &'static str, extra: u64 },
    /// A string is longer than the protocol allows.
    #[error("{what} is {found} bytes long, at most {max} are allowed")]
    TooLong { what: &'static str, found: u64, max: u64 },
    /// A string is not UTF-8.
    #[error("{what} is not valid UTF-8")]
    NotUtf8 { what: &'static str },
    /// A field has a value that the protocol forbids.
    #[error("{what} has the forbidden value {found:#x}")]
    Forbidden { what: &'static str, found: u64 },
}
