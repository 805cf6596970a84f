//! A checked reader over bytes that a peer sent.

use super::CodecError;

/// Takes big-endian fields off the front of a message; never reads past its end.
#[derive(Debug, Clone)]
pub struct Cursor<'a> {
    what: &'static str,
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// Starts at the front of `bytes`; `what` names the message in errors.
    pub fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, rest: bytes }
    }

    /// The bytes not yet consumed.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Takes exactly `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], CodecError> {
        let Some((taken, rest)) = self.rest.split_at_checked(len) else {
            let (needed, left) = (len as u64, self.rest.len() as u64);
            return Err(CodecError::Truncated { what: self.what, needed, left });
        };
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], CodecError> {
        let bytes = self.bytes(N)?;
        Ok(bytes.try_into().expect("bytes(N) returned N bytes"))
    }

    pub fn u16(&mut self) -> Result<u16, CodecError> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub fn u32(&mut self) -> Result<u32, CodecError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64, CodecError> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// Takes a `u32` that must equal `expected`.
    pub fn magic32(&mut self, expected: u32) -> Result<(), CodecError> {
        let found = self.u32()?;
        self.expect_magic(u64::from(expected), u64::from(found))
    }

    /// Takes a `u64` that must equal `expected`.
    pub fn magic64(&mut self, expected: u64) -> Result<(), CodecError> {
        let found = self.u64()?;
        self.expect_magic(expected, found)
    }

    fn expect_magic(&self, expected: u64, found: u64) -> Result<(), CodecError> {
        if found == expected {
            return Ok(());
        }
        Err(CodecError::BadMagic { what: self.what, expected, found })
    }

    /// Takes a string of `len` bytes, at most `max`; it borrows the message.
    pub fn text(&mut self, len: u32, max: usize) -> Result<&'a str, CodecError> {
        if len as usize > max {
            let (found, max) = (u64::from(len), max as u64);
            return Err(CodecError::TooLong { what: self.what, found, max });
        }
        let bytes = self.bytes(len as usize)?;
        std::str::from_utf8(bytes).map_err(|_| CodecError::NotUtf8 { what: self.what })
    }

    /// Takes everything that is left as a string of at most `max` bytes.
    pub fn text_to_end(&mut self, max: usize) -> Result<&'a str, CodecError> {
        let len = u32::try_from(self.rest.len()).unwrap_or(u32::MAX);
        self.text(len, max)
    }

    /// Confirms that the message ends here.
    pub fn end(self) -> Result<(), CodecError> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(CodecError::Trailing { what: self.what, extra: self.rest.len() as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_taken_in_network_order() {
        let mut cursor = Cursor::new("test", &[1, 2, 0, 0, 0, 3, 0xaa]);
        assert_eq!(cursor.u16(), Ok(0x0102));
        assert_eq!(cursor.u32(), Ok(3));
        assert_eq!(cursor.rest(), &[0xaa]);
        assert!(matches!(cursor.clone().end(), Err(CodecError::Trailing { extra: 1, .. })));
        let truncated = CodecError::Truncated { what: "test", needed: 4, left: 1 };
        assert_eq!(cursor.u32(), Err(truncated));
    }

    #[test]
    fn a_lying_string_length_is_refused_before_anything_is_read() {
        let mut cursor = Cursor::new("test", b"abc");
        assert!(matches!(cursor.text(u32::MAX, 4096), Err(CodecError::TooLong { .. })));
        assert!(matches!(cursor.text(4, 4096), Err(CodecError::Truncated { .. })));
        assert_eq!(cursor.text(3, 4096), Ok("abc"));
    }

    #[test]
    fn text_must_be_utf8() {
        let mut cursor = Cursor::new("test", &[0xff, 0xfe]);
        assert_eq!(cursor.text_to_end(10), Err(CodecError::NotUtf8 { what: "test" }));
    }
}
