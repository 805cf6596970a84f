//! Writes a recording.
//!
//! **Invariants**: memory is one window of records and one block; what was pushed is in the file
//! after `finish`.

use std::io::{self, Write};

use super::{
    BLOCK_RECORDS_MAX, KIND_END, KIND_NAMES, KIND_RECORDS, NAME_DEVICE, NAME_PROCESS,
    PAYLOAD_BYTES_MAX, encode,
};
use crate::record::{Op, TraceRecord};

/// Records held back to put them in the order of their issue.
const WINDOW_RECORDS: usize = 16 * 1024;

/// A block is closed when its payload exceeds this.
const PAYLOAD_BYTES_TARGET: usize = 64 * 1024;

/// More than one record can take.
const RECORD_BYTES_MAX: usize = 96;

const _: () = assert!(PAYLOAD_BYTES_TARGET + RECORD_BYTES_MAX <= PAYLOAD_BYTES_MAX);

/// Takes records in order of completion or of issue and writes them in order of issue.
pub struct RecordingWriter<W: Write> {
    output: W,
    window: Vec<TraceRecord>,
    payload: Vec<u8>,
    in_block: usize,
    before: TraceRecord,
    written: u64,
}

impl<W: Write> RecordingWriter<W> {
    /// Starts a recording; `started_unix_ns` is the wall-clock time of its time 0.
    ///
    /// # Errors
    /// What `output` reports.
    pub fn new(mut output: W, started_unix_ns: u64) -> io::Result<Self> {
        output.write_all(&encode::header(started_unix_ns))?;
        Ok(Self {
            output,
            window: Vec::with_capacity(WINDOW_RECORDS),
            payload: Vec::with_capacity(PAYLOAD_BYTES_MAX),
            in_block: 0,
            before: TraceRecord::new(0, Op::Read, 0, 0),
            written: 0,
        })
    }

    /// Names a process.
    ///
    /// # Errors
    /// What the output reports.
    pub fn name_process(&mut self, id: u32, name: &str) -> io::Result<()> {
        self.write_name(NAME_PROCESS, id, name)
    }

    /// Names the device with this index; indices must be named in rising order from 0.
    ///
    /// # Errors
    /// What the output reports.
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
    /// What the output reports.
    pub fn sync(&mut self) -> io::Result<()> {
        self.drain(self.window.len())?;
        self.close_block()?;
        self.output.flush()
    }

    /// Records pushed so far.
    pub fn records(&self) -> u64 {
        self.written + self.window.len() as u64
    }

    /// Writes what is held back and the end, and gives the output back.
    ///
    /// # Errors
    /// What the output reports.
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
        encode::record(&mut self.payload, &self.before, record);
        self.before = *record;
        self.in_block += 1;
        self.written += 1;
        let full = self.payload.len() > PAYLOAD_BYTES_TARGET || self.in_block == BLOCK_RECORDS_MAX;
        if full { self.close_block() } else { Ok(()) }
    }

    fn close_block(&mut self) -> io::Result<()> {
        if self.in_block == 0 {
            return Ok(());
        }
        let payload = std::mem::take(&mut self.payload);
        let result = self.write_block(KIND_RECORDS, self.in_block as u32, &payload);
        self.payload = payload;
        self.payload.clear();
        self.in_block = 0;
        self.before = TraceRecord::new(0, Op::Read, 0, 0);
        result
    }

    fn write_name(&mut self, kind: u8, id: u32, name: &str) -> io::Result<()> {
        let mut payload = Vec::new();
        encode::name(&mut payload, kind, id, name);
        self.write_block(KIND_NAMES, 0, &payload)
    }

    fn write_block(&mut self, kind: u8, records: u32, payload: &[u8]) -> io::Result<()> {
        self.output.write_all(&encode::block_header(kind, records, payload))?;
        self.output.write_all(payload)
    }
}
