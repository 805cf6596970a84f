//! Bytes that a peer or a file gives us: numbers of one to ten bytes, and a reader that never goes
//! past the end.

/// The bytes are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    #[error("it ends in the middle")]
    Truncated,
    #[error("a number has more than 64 bits")]
    Number,
    #[error("{found} is no kind of {what}")]
    Tag { what: &'static str, found: u8 },
    #[error("there are {0} bytes too many")]
    Trailing(usize),
    #[error("{what}: {found} is more than the {max} that are allowed")]
    TooMany { what: &'static str, found: u64, max: u64 },
    #[error("the text of a message is not understood")]
    Text,
    #[error("a checksum does not fit")]
    Checksum,
}

/// Appends seven bits a byte, the lowest first; a set high bit says that there are more.
pub fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Takes fields off the front.
#[derive(Clone, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }

    pub fn rest(&self) -> &'a [u8] {
        self.0
    }

    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], CodecError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(CodecError::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    pub fn byte(&mut self) -> Result<u8, CodecError> {
        Ok(self.bytes(1)?[0])
    }

    pub fn u32(&mut self) -> Result<u32, CodecError> {
        Ok(u32::from_le_bytes(self.bytes(4)?.try_into().expect("four bytes")))
    }

    pub fn u64(&mut self) -> Result<u64, CodecError> {
        Ok(u64::from_le_bytes(self.bytes(8)?.try_into().expect("eight bytes")))
    }

    pub fn number(&mut self) -> Result<u64, CodecError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return Err(CodecError::Number);
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(CodecError::Number)
    }

    /// A number of at most `max`: whatever it counts is allocated only then.
    pub fn number_max(&mut self, what: &'static str, max: u64) -> Result<u64, CodecError> {
        match self.number()? {
            found if found > max => Err(CodecError::TooMany { what, found, max }),
            number => Ok(number),
        }
    }

    pub fn end(self) -> Result<(), CodecError> {
        if self.0.is_empty() { Ok(()) } else { Err(CodecError::Trailing(self.0.len())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_survive(number in any::<u64>()) {
            let mut bytes = Vec::new();
            put_number(&mut bytes, number);
            let mut reader = Reader::new(&bytes);
            prop_assert_eq!(reader.number(), Ok(number));
            prop_assert_eq!(reader.end(), Ok(()));
        }

        #[test]
        fn no_bytes_break_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..20)) {
            let _ = Reader::new(&bytes).number();
        }
    }

    #[test]
    fn a_number_of_more_than_64_bits_is_refused() {
        assert_eq!(Reader::new(&[0xff; 20]).number(), Err(CodecError::Number));
        let mut most = vec![0xff; 9];
        most.push(1);
        assert_eq!(Reader::new(&most).number(), Ok(u64::MAX));
        most[9] = 2;
        assert_eq!(Reader::new(&most).number(), Err(CodecError::Number));
    }
}
