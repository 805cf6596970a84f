//! Replies of the transmission phase: simple ones, and chunks of structured ones.

use super::wire::{
    ChunkFlags, SIMPLE_REPLY_MAGIC, STRING_BYTES_MAX, STRUCTURED_REPLY_MAGIC, WireError, chunk,
};
use super::{CodecError, Cursor};

/// Bytes of a simple reply; the payload of a successful read follows.
pub const SIMPLE_BYTES: usize = 16;
/// Bytes of a chunk header; its payload follows.
pub const CHUNK_BYTES: usize = 20;
/// Bytes of a chunk header with the offset that opens an `OFFSET_DATA` payload.
pub const DATA_CHUNK_BYTES: usize = CHUNK_BYTES + 8;
/// Bytes of a whole error chunk without a message.
pub const ERROR_CHUNK_BYTES: usize = CHUNK_BYTES + 6;

/// A simple reply.
pub fn encode_simple(cookie: u64, error: Option<WireError>) -> [u8; SIMPLE_BYTES] {
    let mut bytes = [0; SIMPLE_BYTES];
    bytes[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    bytes[4..8].copy_from_slice(&error.map_or(0, WireError::to_wire).to_be_bytes());
    bytes[8..].copy_from_slice(&cookie.to_be_bytes());
    bytes
}

/// The final chunk of a successful reply that carries no data.
pub fn encode_done(cookie: u64) -> [u8; CHUNK_BYTES] {
    encode_chunk_header(chunk::NONE, cookie, 0)
}

/// Header and offset of the only content chunk of a read; `length_bytes` of data follow.
///
/// # Panics
/// When the payload does not fit the 32-bit length field.
pub fn encode_data(cookie: u64, offset: u64, length_bytes: u32) -> [u8; DATA_CHUNK_BYTES] {
    let payload_bytes = length_bytes.checked_add(8).expect("requests end far below 4 GiB");
    let mut bytes = [0; DATA_CHUNK_BYTES];
    let header = encode_chunk_header(chunk::OFFSET_DATA, cookie, payload_bytes);
    bytes[..CHUNK_BYTES].copy_from_slice(&header);
    bytes[CHUNK_BYTES..].copy_from_slice(&offset.to_be_bytes());
    bytes
}

/// A final error chunk without a message.
pub fn encode_error(cookie: u64, error: WireError) -> [u8; ERROR_CHUNK_BYTES] {
    let mut bytes = [0; ERROR_CHUNK_BYTES];
    bytes[..CHUNK_BYTES].copy_from_slice(&encode_chunk_header(chunk::ERROR, cookie, 6));
    bytes[CHUNK_BYTES..CHUNK_BYTES + 4].copy_from_slice(&error.to_wire().to_be_bytes());
    bytes
}

fn encode_chunk_header(kind: u16, cookie: u64, payload_bytes: u32) -> [u8; CHUNK_BYTES] {
    let mut bytes = [0; CHUNK_BYTES];
    bytes[..4].copy_from_slice(&STRUCTURED_REPLY_MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&ChunkFlags::DONE.bits().to_be_bytes());
    bytes[6..8].copy_from_slice(&kind.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..].copy_from_slice(&payload_bytes.to_be_bytes());
    bytes
}

/// The header of any message of a server in the transmission phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyHeader {
    Simple { error: Option<WireError>, cookie: u64 },
    Chunk(ChunkHeader),
}

/// The header of a structured reply chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkHeader {
    /// Whether this is the last chunk of its reply.
    pub is_done: bool,
    /// One of [`chunk`].
    pub kind: u16,
    pub cookie: u64,
    /// Bytes of payload that follow; untrusted.
    pub payload_bytes: u32,
}

impl ReplyHeader {
    /// Decodes the header at the front of `bytes`, and its size; `None` when more bytes are
    /// needed to tell.
    ///
    /// # Errors
    /// [`CodecError::BadMagic`]: the stream is out of sync and the connection must end.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, CodecError> {
        if bytes.len() < SIMPLE_BYTES {
            return Ok(None);
        }
        let mut cursor = Cursor::new("reply", bytes);
        let magic = cursor.u32()?;
        if magic == SIMPLE_REPLY_MAGIC {
            let error = WireError::from_wire(cursor.u32()?);
            return Ok(Some((Self::Simple { error, cookie: cursor.u64()? }, SIMPLE_BYTES)));
        }
        if magic != STRUCTURED_REPLY_MAGIC {
            let (expected, found) = (u64::from(SIMPLE_REPLY_MAGIC), u64::from(magic));
            return Err(CodecError::BadMagic { what: "reply", expected, found });
        }
        if bytes.len() < CHUNK_BYTES {
            return Ok(None);
        }
        let flags = ChunkFlags::from_bits_retain(cursor.u16()?);
        let (kind, cookie, payload_bytes) = (cursor.u16()?, cursor.u64()?, cursor.u32()?);
        let is_done = flags.contains(ChunkFlags::DONE);
        let header = ChunkHeader { is_done, kind, cookie, payload_bytes };
        Ok(Some((Self::Chunk(header), CHUNK_BYTES)))
    }
}

/// Decodes the payload of an `OFFSET_HOLE` chunk to its offset and its length in bytes.
///
/// # Errors
/// A [`CodecError`] when the payload is not exactly twelve bytes or the hole is empty.
pub fn decode_hole(payload: &[u8]) -> Result<(u64, u32), CodecError> {
    let mut cursor = Cursor::new("hole chunk", payload);
    let (offset, length_bytes) = (cursor.u64()?, cursor.u32()?);
    cursor.end()?;
    if length_bytes == 0 {
        return Err(CodecError::Forbidden { what: "length of a hole", found: 0 });
    }
    Ok((offset, length_bytes))
}

/// Decodes the payload of any error chunk to its error; message and offset are only checked.
///
/// # Errors
/// A [`CodecError`] when the message does not fit the payload or the error is 0.
pub fn decode_error(payload: &[u8]) -> Result<WireError, CodecError> {
    let mut cursor = Cursor::new("error chunk", payload);
    let number = cursor.u32()?;
    let message_bytes = usize::from(cursor.u16()?);
    if message_bytes > STRING_BYTES_MAX {
        let (found, max) = (message_bytes as u64, STRING_BYTES_MAX as u64);
        return Err(CodecError::TooLong { what: "error message", found, max });
    }
    cursor.bytes(message_bytes)?;
    WireError::from_wire(number)
        .ok_or(CodecError::Forbidden { what: "error of an error chunk", found: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn simple_replies_come_back() {
        for error in [None, Some(WireError::NoSpace)] {
            let bytes = encode_simple(77, error);
            let expected = (ReplyHeader::Simple { error, cookie: 77 }, SIMPLE_BYTES);
            assert_eq!(ReplyHeader::decode(&bytes), Ok(Some(expected)));
            assert_eq!(ReplyHeader::decode(&bytes[..15]), Ok(None));
        }
    }

    #[test]
    fn chunks_come_back() {
        let header = |bytes: &[u8]| match ReplyHeader::decode(bytes) {
            Ok(Some((ReplyHeader::Chunk(header), CHUNK_BYTES))) => header,
            other => panic!("{other:?}"),
        };
        let done = header(&encode_done(1));
        assert_eq!((done.is_done, done.kind, done.payload_bytes), (true, chunk::NONE, 0));
        let data = encode_data(2, 0x1000, 512);
        assert_eq!(header(&data).payload_bytes, 520);
        assert_eq!(&data[CHUNK_BYTES..], &0x1000u64.to_be_bytes());
        let error = encode_error(3, WireError::InputOutput);
        assert_eq!(header(&error).kind, chunk::ERROR);
        assert_eq!(decode_error(&error[CHUNK_BYTES..]), Ok(WireError::InputOutput));
    }

    #[test]
    fn a_hole_must_have_exactly_its_two_fields_and_a_length() {
        let mut payload = 4096u64.to_be_bytes().to_vec();
        payload.extend_from_slice(&512u32.to_be_bytes());
        assert_eq!(decode_hole(&payload), Ok((4096, 512)));
        assert!(decode_hole(&payload[..11]).is_err());
        payload[11] = 0;
        payload[10] = 0;
        assert!(decode_hole(&payload).is_err());
        payload.push(0);
        assert!(decode_hole(&payload).is_err());
    }

    #[test]
    fn an_error_message_that_is_longer_than_its_chunk_is_refused() {
        let mut payload = 5u32.to_be_bytes().to_vec();
        payload.extend_from_slice(&3u16.to_be_bytes());
        assert!(decode_error(&payload).is_err());
        payload.extend_from_slice(b"bad");
        assert_eq!(decode_error(&payload), Ok(WireError::InputOutput));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = ReplyHeader::decode(&bytes);
            let _ = decode_hole(&bytes);
            let _ = decode_error(&bytes);
        }
    }
}
