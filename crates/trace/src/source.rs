//! Where a trace's bytes come from: a file, standard input or memory, plain or compressed, with a
//! known position.
//!
//! **Invariants**: memory is one buffer of fixed size, for any input; `offset()` is the position of
//! the next unread byte in the decompressed input.
//!
//! **Not here**: the meaning of the bytes.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::error::{Position, TraceError, preview};
use crate::meter::{Meter, Metered};

/// The largest piece that a format may request at once.
pub(crate) const BUFFER_BYTES: usize = 256 * 1024;

/// The longest line of a text format.
const LINE_BYTES_MAX: usize = 64 * 1024;

const _: () = assert!(LINE_BYTES_MAX < BUFFER_BYTES);

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const XZ_MAGIC: [u8; 6] = [0xfd, b'7', b'z', b'X', b'Z', 0];

/// Memory limit of the xz decoder; `xz -9` needs 65 MiB.
const XZ_MEMORY_KIB_MAX: u32 = 256 * 1024;

/// A buffered input with its name and position.
pub struct ByteSource {
    name: String,
    input: Box<dyn Read + Send>,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    offset: u64,
    lines: u64,
    ended: bool,
    meter: Meter,
}

impl ByteSource {
    /// Opens `path`, or standard input for `-`, and decompresses gzip, zstd and xz.
    ///
    /// # Errors
    /// [`TraceError::Open`] when the file cannot be opened, [`TraceError::Read`] when its start
    /// cannot be read.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        if path == Path::new("-") {
            return Self::new("standard input", Box::new(io::stdin()));
        }
        let file = File::open(path)
            .map_err(|source| TraceError::Open { path: path.to_owned(), source })?;
        let regular = file.metadata().ok().filter(|known| known.is_file());
        let file = Metered::new(file, regular.map(|known| known.len()));
        let meter = file.meter();
        let mut source = Self::new(&path.display().to_string(), Box::new(file))?;
        source.meter = meter;
        Ok(source)
    }

    /// Wraps any input under a name for messages, and decompresses gzip, zstd and xz.
    ///
    /// # Errors
    /// [`TraceError::Read`] when the start cannot be read.
    pub fn new(name: &str, input: Box<dyn Read + Send>) -> Result<Self, TraceError> {
        let mut plain = Self::over(name, input);
        let head = plain.require(XZ_MAGIC.len())?;
        if head.starts_with(&GZIP_MAGIC) {
            return Ok(Self::over(name, Box::new(flate2::read::MultiGzDecoder::new(plain))));
        }
        if head.starts_with(&ZSTD_MAGIC) {
            let decoder = zstd::stream::read::Decoder::new(plain).map_err(|source| {
                TraceError::Read { name: name.to_owned(), at: Position::Byte(0), source }
            })?;
            return Ok(Self::over(name, Box::new(decoder)));
        }
        if head.starts_with(&XZ_MAGIC) {
            let decoder = lzma_rust2::XzReader::new_mem_limit(plain, true, XZ_MEMORY_KIB_MAX);
            return Ok(Self::over(name, Box::new(decoder)));
        }
        Ok(plain)
    }

    fn over(name: &str, input: Box<dyn Read + Send>) -> Self {
        Self {
            name: name.to_owned(),
            input,
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            offset: 0,
            lines: 0,
            ended: false,
            meter: Meter::default(),
        }
    }

    /// Position in its file.
    pub(crate) fn meter(&self) -> Meter {
        self.meter.clone()
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Position of the next unread byte.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Number of the line that [`ByteSource::line`] gave last, from 1.
    pub(crate) fn line_number(&self) -> u64 {
        self.lines
    }

    /// The buffered, unread bytes.
    pub(crate) fn buffered(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// At least `wanted_bytes` unread bytes, or all that are left when the input ends before.
    pub(crate) fn require(&mut self, wanted_bytes: usize) -> Result<&[u8], TraceError> {
        assert!(wanted_bytes <= BUFFER_BYTES, "a format asks for more than the buffer holds");
        while self.end - self.start < wanted_bytes && !self.ended {
            self.refill()?;
        }
        Ok(self.buffered())
    }

    pub(crate) fn consume(&mut self, bytes: usize) {
        assert!(bytes <= self.end - self.start, "consumed more than was buffered");
        self.start += bytes;
        self.offset += bytes as u64;
    }

    /// The next line without its end, or `None` at the end of the input.
    ///
    /// # Errors
    /// [`TraceError::Read`]; [`TraceError::Damaged`] for a line longer than 64 KiB, which is
    /// skipped.
    pub(crate) fn line(&mut self) -> Result<Option<&[u8]>, TraceError> {
        let mut searched = 0;
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.buffered()[searched..]) {
                let length = searched + at;
                if length > LINE_BYTES_MAX {
                    return Err(self.overlong_line()?);
                }
                let from = self.start;
                self.consume(length + 1);
                self.lines += 1;
                return Ok(Some(without_return(&self.buffer[from..from + length])));
            }
            searched = self.end - self.start;
            if searched >= LINE_BYTES_MAX {
                return Err(self.overlong_line()?);
            }
            if self.ended {
                break;
            }
            self.refill()?;
        }
        if searched == 0 {
            return Ok(None);
        }
        let from = self.start;
        self.consume(searched);
        self.lines += 1;
        Ok(Some(without_return(&self.buffer[from..from + searched])))
    }

    /// Skips the whole line and reports it.
    fn overlong_line(&mut self) -> Result<TraceError, TraceError> {
        let found = preview(self.buffered());
        self.lines += 1;
        loop {
            let end = memchr::memchr(b'\n', self.buffered());
            self.consume(end.map_or(self.end - self.start, |at| at + 1));
            if end.is_some() || self.ended {
                break;
            }
            self.refill()?;
        }
        Ok(TraceError::Damaged {
            name: self.name.clone(),
            format: "text",
            at: Position::Line(self.lines),
            expected: "a line of at most 64 KiB",
            found,
        })
    }

    fn refill(&mut self) -> Result<(), TraceError> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        assert!(self.end < self.buffer.len(), "refill of a full buffer");
        let count = loop {
            match self.input.read(&mut self.buffer[self.end..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => break other,
            }
        };
        let count = count.map_err(|source| TraceError::Read {
            name: self.name.clone(),
            at: Position::Byte(self.offset + (self.end as u64)),
            source,
        })?;
        self.ended = count == 0;
        self.end += count;
        Ok(())
    }
}

/// Lets a decompressor continue where detection stopped.
impl Read for ByteSource {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let available = self.require(1).map_err(io::Error::other)?;
        let count = available.len().min(into.len());
        into[..count].copy_from_slice(&available[..count]);
        self.consume(count);
        Ok(count)
    }
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Cursor, Write};

    /// `hello` and a line's end, a thousand times, by `xz -6`.
    const XZ_OF_HELLOS: [u8; 104] = [
        0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00, 0x00, 0x04, 0xe6, 0xd6, 0xb4, 0x46, 0x02, 0x00, 0x21,
        0x01, 0x16, 0x00, 0x00, 0x00, 0x74, 0x2f, 0xe5, 0xa3, 0xe0, 0x17, 0x6f, 0x00, 0x27, 0x5d,
        0x00, 0x34, 0x19, 0x49, 0xee, 0x8d, 0xdd, 0x5d, 0xf1, 0xf0, 0xf7, 0x17, 0x44, 0x50, 0x85,
        0x62, 0xc3, 0x08, 0x82, 0xdc, 0x61, 0x13, 0x60, 0x33, 0xe1, 0x91, 0xb5, 0x69, 0x53, 0x25,
        0x1e, 0xba, 0x71, 0x4f, 0xab, 0xeb, 0xfb, 0x64, 0x8c, 0x00, 0x00, 0x00, 0xdc, 0xa2, 0x0f,
        0x5c, 0x37, 0xb8, 0x24, 0x38, 0x00, 0x01, 0x43, 0xf0, 0x2e, 0x00, 0x00, 0x00, 0x4f, 0x24,
        0x40, 0x42, 0xb1, 0xc4, 0x67, 0xfb, 0x02, 0x00, 0x00, 0x00, 0x00, 0x04, 0x59, 0x5a,
    ];

    fn source(bytes: &[u8]) -> ByteSource {
        ByteSource::new("test", Box::new(Cursor::new(bytes.to_vec()))).unwrap()
    }

    #[test]
    fn lines_are_counted_and_lose_their_ends() {
        let mut input = source(b"one\r\n\nthree");
        assert_eq!(input.line().unwrap(), Some(&b"one"[..]));
        assert_eq!(input.line().unwrap(), Some(&b""[..]));
        assert_eq!(input.line().unwrap(), Some(&b"three"[..]));
        assert_eq!(input.line_number(), 3);
        assert_eq!(input.line().unwrap(), None);
    }

    #[test]
    fn overlong_line_is_an_error_with_its_number_and_is_passed_over() {
        let mut bytes = b"short\n".to_vec();
        bytes.extend(std::iter::repeat_n(b'x', LINE_BYTES_MAX + 5));
        bytes.extend(b"\nnext\n");
        let mut input = source(&bytes);
        input.line().unwrap();
        let error = input.line().expect_err("the line is too long");
        assert_eq!(error.position(), Some(Position::Line(2)));
        assert_eq!(input.line().unwrap(), Some(&b"next"[..]));
    }

    #[test]
    fn compression_is_looked_through() {
        let text = b"hello\n".repeat(1000);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&text).unwrap();
        let zstd = zstd::encode_all(&text[..], 1).unwrap();
        for packed in [gzip.finish().unwrap(), zstd, XZ_OF_HELLOS.to_vec()] {
            let mut unpacked = Vec::new();
            source(&packed).read_to_end(&mut unpacked).unwrap();
            assert_eq!(unpacked, text);
        }
    }

    #[test]
    fn cut_compression_is_a_read_error() {
        let packed = zstd::encode_all(&b"hello\n".repeat(1000)[..], 1).unwrap();
        let mut input = source(&packed[..packed.len() - 4]);
        let error = loop {
            match input.line() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("a cut input ended without an error"),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, TraceError::Read { .. }), "{error}");
    }
}
