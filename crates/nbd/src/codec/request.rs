//! The header of a transmission request; the payload of a write follows it.

use super::wire::{CommandFlags, REQUEST_MAGIC};
use super::{CodecError, Cursor};

/// One request as it stands on the wire: nothing in it is checked but the magic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHeader {
    /// All sixteen flag bits, also those that the protocol does not define.
    pub flags: CommandFlags,
    /// The number of the command; see [`super::wire::Command::from_wire`].
    pub command: u16,
    /// Chosen by the client and returned in the reply.
    pub cookie: u64,
    pub offset: u64,
    /// Length of the range and, for a write, of the payload.
    pub length_bytes: u32,
}

impl RequestHeader {
    /// Bytes on the wire.
    pub const BYTES: usize = 28;

    /// Decodes the first [`Self::BYTES`] of `bytes`.
    ///
    /// # Errors
    /// [`CodecError::BadMagic`]: the stream is out of sync and the connection must end.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Result<Self, CodecError> {
        let mut cursor = Cursor::new("request", bytes);
        cursor.magic32(REQUEST_MAGIC)?;
        Ok(Self {
            flags: CommandFlags::from_bits_retain(cursor.u16()?),
            command: cursor.u16()?,
            cookie: cursor.u64()?,
            offset: cursor.u64()?,
            length_bytes: cursor.u32()?,
        })
    }

    /// The bytes on the wire.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.bits().to_be_bytes());
        bytes[6..8].copy_from_slice(&self.command.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..].copy_from_slice(&self.length_bytes.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_request_lies_on_the_wire_as_the_protocol_draws_it() {
        let header = RequestHeader {
            flags: CommandFlags::FUA,
            command: 1,
            cookie: 0x0102_0304_0506_0708,
            offset: 0x1000,
            length_bytes: 0x200,
        };
        let expected: [u8; 28] = [
            0x25, 0x60, 0x95, 0x13, 0, 1, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0x10, 0,
            0, 0, 2, 0,
        ];
        assert_eq!(header.encode(), expected);
    }

    proptest! {
        #[test]
        fn every_request_comes_back(
            flags: u16, command: u16, cookie: u64, offset: u64, length_bytes: u32,
        ) {
            let flags = CommandFlags::from_bits_retain(flags);
            let header = RequestHeader { flags, command, cookie, offset, length_bytes };
            prop_assert_eq!(RequestHeader::decode(&header.encode()), Ok(header));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in any::<[u8; RequestHeader::BYTES]>()) {
            let _ = RequestHeader::decode(&bytes);
        }
    }
}
