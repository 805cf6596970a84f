//! Writes a recording.
//!
//! **Invariants**: memory is one window of records and one block; what was pushed is in the file
//! after `finish`.

use std::io::{self, Write};

use super::{
    BLOCK_RECORDS_MAX, KIND_END, KIND_NAMES, KIND_RECORDS, NAME_DEVICE, NAME_PROCESS,
    PACKING_PLAIN, PACKING_ZSTD, PAYLOAD_BYTES_MAX, columns, encode,
};
use crate::format::Lacks;
use crate::record::TraceRecord;

/// Records held back to sort them by issue time.
const WINDOW_RECORDS: usize = 16 * 1024;

/// zstd's default; higher levels gain 1 %.
const PACKING_LEVEL: i32 = 3;

/// Takes records in order of completion or of issue and writes them in order of issue.
pub struct RecordingWriter<W: Write> {
    output: W,
    window: Vec<TraceRecord>,
    block: Vec<TraceRecord>,
    content: Vec<u8>,
    packer: zstd::bulk::Compressor<'static>,
    written: u64,
}

impl<W: Write> RecordingWriter<W> {
    /// Starts a recording; `started_unix_ns` is the wall-clock time of its time 0.
    ///
    /// # Errors
    /// The error of `output`.
    pub fn new(output: W, started_unix_ns: u64) -> io::Result<Self> {
        Self::lacking(output, started_unix_ns, Lacks::empty())
    }

    /// Starts a recording of a trace that lacks something.
    ///
    /// # Errors
    /// The error of `output`.
    pub fn lacking(mut output: W, started_unix_ns: u64, lacks: Lacks) -> io::Result<Self> {
        output.write_all(&encode::header(started_unix_ns, lacks))?;
        Ok(Self {
            output,
            window: Vec::with_capacity(WINDOW_RECORDS),
            block: Vec::with_capacity(BLOCK_RECORDS_MAX),
            content: Vec::with_capacity(PAYLOAD_BYTES_MAX),
            packer: zstd::bulk::Compressor::new(PACKING_LEVEL)?,
            written: 0,
        })
    }

    /// Names a process.
    ///
    /// # Errors
    /// The error of the output.
    pub fn name_process(&mut self, id: u32, name: &str) -> io::Result<()> {
        self.write_name(NAME_PROCESS, id, name)
    }

    /// Names the device with this index; indices must be named in rising order from 0.
    ///
    /// # Errors
    /// The error of the output.
    pub fn name_device(&mut self, index: u16, name: &str) -> io::Result<()> {
        self.write_name(NAME_DEVICE, u32::from(index), name)
    }

    /// Adds one record.
    ///
    /// # Errors
    /// What the output reports; the record is then lost.
    pub fn push(&mut self, record: TraceRecord) -> io::Result<()> {
        self.window.push(record);
        if self.window.len() == WINDOW_RECORDS { self.drain(WINDOW_RECORDS / 2) } else { Ok(()) }
    }

    /// Writes everything that is held back, so that a reader of the file finds it; the order of
    /// issue is kept only within what was held.
    ///
    /// # Errors
    /// The error of the output.
    pub fn sync(&mut self) -> io::Result<()> {
        self.drain(self.window.len())?;
        self.close_block()?;
        self.output.flush()
    }

    /// Records pushed so far.
    pub fn records(&self) -> u64 {
        self.written + self.window.len() as u64
    }

    /// Writes the pending records and the end, and returns the output.
    ///
    /// # Errors
    /// The error of the output.
    pub fn finish(mut self) -> io::Result<W> {
        self.sync()?;
        let count = self.written.to_le_bytes();
        self.write_block(KIND_END, 0, &count)?;
        self.output.flush()?;
        Ok(self.output)
    }

    fn drain(&mut self, count: usize) -> io::Result<()> {
        self.window.sort_by_key(|record| record.issued_ns);
        let window = std::mem::take(&mut self.window);
        let result = window[..count].iter().try_for_each(|record| self.append(record));
        self.window = window;
        self.window.drain(..count);
        result
    }

    fn append(&mut self, record: &TraceRecord) -> io::Result<()> {
        self.block.push(*record);
        self.written += 1;
        if self.block.len() == BLOCK_RECORDS_MAX { self.close_block() } else { Ok(()) }
    }

    fn close_block(&mut self) -> io::Result<()> {
        let block = std::mem::take(&mut self.block);
        let result = self.write_records(&block);
        self.block = block;
        self.block.clear();
        result
    }

    /// Records that take too many bytes for one block are written as two.
    fn write_records(&mut self, records: &[TraceRecord]) -> io::Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let mut content = std::mem::take(&mut self.content);
        content.clear();
        columns::encode(records, &mut content);
        let fits = content.len() <= PAYLOAD_BYTES_MAX;
        let written = match fits {
            true => self.write_block(KIND_RECORDS, records.len() as u32, &content),
            false => Ok(()),
        };
        self.content = content;
        if fits {
            return written;
        }
        let (first, second) = records.split_at(records.len() / 2);
        self.write_records(first)?;
        self.write_records(second)
    }

    fn write_name(&mut self, kind: u8, id: u32, name: &str) -> io::Result<()> {
        let mut content = Vec::new();
        encode::name(&mut content, kind, id, name);
        self.write_block(KIND_NAMES, 0, &content)
    }

    /// Packs the content where that makes it shorter.
    fn write_block(&mut self, kind: u8, records: u32, content: &[u8]) -> io::Result<()> {
        let packed = self.packer.compress(content)?;
        let (packing, payload) = match packed.len() < content.len() {
            true => (PACKING_ZSTD, packed.as_slice()),
            false => (PACKING_PLAIN, content),
        };
        let header = encode::block_header((kind, packing), records, content.len(), payload);
        self.output.write_all(&header)?;
        self.output.write_all(payload)
    }
}
