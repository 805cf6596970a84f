//! Constants and flag sets of the protocol.
//!
//! **Source**: `doc/proto.md` of the NBD project, "Values", "Flag fields" and "Request types".

use bitflags::bitflags;

/// First eight bytes of every server: `NBDMAGIC`.
pub const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`: follows [`INIT_MAGIC`] in a newstyle server and opens every client option.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Opens every reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Opens every transmission request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Opens a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Opens a structured reply chunk.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Longest string in any message, in bytes.
pub const STRING_BYTES_MAX: usize = 4096;
/// The server's greeting: two magics and the handshake flags.
pub const GREETING_BYTES: usize = 18;
/// Zeroes that follow the answer to `NBD_OPT_EXPORT_NAME` unless `NO_ZEROES` was agreed.
pub const EXPORT_NAME_PADDING_BYTES: usize = 124;
/// A payload of this size must be answered in one chunk when `DF` is set.
pub const UNFRAGMENTED_BYTES_MIN: u32 = 65_536;

bitflags! {
    /// Handshake flags of the server (16 bits on the wire).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct HandshakeFlags: u16 {
        const FIXED_NEWSTYLE = 1 << 0;
        const NO_ZEROES = 1 << 1;
    }

    /// Handshake flags of the client (32 bits on the wire).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ClientFlags: u32 {
        const FIXED_NEWSTYLE = 1 << 0;
        const NO_ZEROES = 1 << 1;
    }

    /// What an export can do; sent at the end of the handshake.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct TransmissionFlags: u16 {
        const HAS_FLAGS = 1 << 0;
        const READ_ONLY = 1 << 1;
        const SEND_FLUSH = 1 << 2;
        const SEND_FUA = 1 << 3;
        const ROTATIONAL = 1 << 4;
        const SEND_TRIM = 1 << 5;
        const SEND_WRITE_ZEROES = 1 << 6;
        const SEND_DF = 1 << 7;
        const CAN_MULTI_CONN = 1 << 8;
        const SEND_RESIZE = 1 << 9;
        const SEND_CACHE = 1 << 10;
        const SEND_FAST_ZERO = 1 << 11;
    }

    /// Flags of one request.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct CommandFlags: u16 {
        const FUA = 1 << 0;
        const NO_HOLE = 1 << 1;
        const DF = 1 << 2;
        const REQ_ONE = 1 << 3;
        const FAST_ZERO = 1 << 4;
    }

    /// Flags of a structured reply chunk.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ChunkFlags: u16 {
        const DONE = 1 << 0;
    }
}

/// Option numbers (`NBD_OPT_*`).
pub mod opt {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Types of option replies (`NBD_REP_*`); bit 31 marks an error.
pub mod rep {
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    pub const ERROR_BIT: u32 = 1 << 31;
    pub const ERR_UNSUP: u32 = ERROR_BIT | 1;
    pub const ERR_POLICY: u32 = ERROR_BIT | 2;
    pub const ERR_INVALID: u32 = ERROR_BIT | 3;
    pub const ERR_PLATFORM: u32 = ERROR_BIT | 4;
    pub const ERR_TLS_REQD: u32 = ERROR_BIT | 5;
    pub const ERR_UNKNOWN: u32 = ERROR_BIT | 6;
    pub const ERR_SHUTDOWN: u32 = ERROR_BIT | 7;
    pub const ERR_BLOCK_SIZE_REQD: u32 = ERROR_BIT | 8;
    pub const ERR_TOO_BIG: u32 = ERROR_BIT | 9;
}

/// Information types of `NBD_OPT_INFO` and `NBD_OPT_GO` (`NBD_INFO_*`).
pub mod info {
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const DESCRIPTION: u16 = 2;
    pub const BLOCK_SIZE: u16 = 3;
}

/// Types of structured reply chunks (`NBD_REPLY_TYPE_*`); bit 15 marks an error.
pub mod chunk {
    pub const NONE: u16 = 0;
    pub const OFFSET_DATA: u16 = 1;
    pub const OFFSET_HOLE: u16 = 2;
    pub const BLOCK_STATUS: u16 = 5;
    pub const ERROR_BIT: u16 = 1 << 15;
    pub const ERROR: u16 = ERROR_BIT | 1;
    pub const ERROR_OFFSET: u16 = ERROR_BIT | 2;
}

/// What a request asks for (`NBD_CMD_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Command {
    Read = 0,
    Write = 1,
    Disconnect = 2,
    Flush = 3,
    Trim = 4,
    Cache = 5,
    WriteZeroes = 6,
    BlockStatus = 7,
}

impl Command {
    /// The command with this number, if the protocol has one.
    pub fn from_wire(number: u16) -> Option<Self> {
        Some(match number {
            0 => Self::Read,
            1 => Self::Write,
            2 => Self::Disconnect,
            3 => Self::Flush,
            4 => Self::Trim,
            5 => Self::Cache,
            6 => Self::WriteZeroes,
            7 => Self::BlockStatus,
            _ => return None,
        })
    }

    /// The number on the wire.
    pub fn to_wire(self) -> u16 {
        self as u16
    }
}

/// The errors that a reply may carry; values are fixed by the protocol, not by the platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u32)]
pub enum WireError {
    #[error("operation not permitted")]
    NotPermitted = 1,
    #[error("input/output error")]
    InputOutput = 5,
    #[error("cannot allocate memory")]
    NoMemory = 12,
    #[error("invalid argument")]
    Invalid = 22,
    #[error("no space left on device")]
    NoSpace = 28,
    #[error("value too large")]
    Overflow = 75,
    #[error("operation not supported")]
    NotSupported = 95,
    #[error("server is shutting down")]
    ShuttingDown = 108,
}

impl WireError {
    /// The error with this number; an undefined number counts as [`WireError::Invalid`], as the
    /// protocol requires of clients.
    pub fn from_wire(number: u32) -> Option<Self> {
        Some(match number {
            0 => return None,
            1 => Self::NotPermitted,
            5 => Self::InputOutput,
            12 => Self::NoMemory,
            28 => Self::NoSpace,
            75 => Self::Overflow,
            95 => Self::NotSupported,
            108 => Self::ShuttingDown,
            _ => Self::Invalid,
        })
    }

    /// The number on the wire; never 0.
    pub fn to_wire(self) -> u32 {
        self as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_number_comes_back_as_itself() {
        for number in 0..=u16::MAX {
            if let Some(command) = Command::from_wire(number) {
                assert_eq!(command.to_wire(), number);
            }
        }
        assert_eq!(Command::from_wire(8), None);
    }

    #[test]
    fn zero_is_success_and_unknown_errors_count_as_invalid() {
        assert_eq!(WireError::from_wire(0), None);
        assert_eq!(WireError::from_wire(28), Some(WireError::NoSpace));
        assert_eq!(WireError::from_wire(4_000_000), Some(WireError::Invalid));
    }

    #[test]
    fn magics_spell_what_the_protocol_says() {
        assert_eq!(&INIT_MAGIC.to_be_bytes(), b"NBDMAGIC");
        assert_eq!(&OPTION_MAGIC.to_be_bytes(), b"IHAVEOPT");
    }
}
