//! What was asked and answered, with the time of each: one record per write, flush and power cut.
//!
//! Time is the number of events so far; every event has its own.

use crate::{BLOCK_BYTES, Content, WriteId};
use std::ops::Range;

/// A time: the number of the event.
pub(crate) type Time = u64;

/// What the acknowledgement of a write means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// Stable after the next flush.
    Volatile,
    /// Stable when acknowledged (FUA).
    Stable,
}

/// What a write leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Payload,
    Zeroes,
    /// Zeros, or what was newest before.
    Unspecified,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    InFlight,
    Acknowledged,
    /// Cut off: it has happened or it has not.
    Uncertain,
    /// Answered with an error: the same.
    Failed,
}

#[derive(Clone, Debug)]
pub(crate) struct WriteRecord {
    pub range: Range<u64>,
    pub value: Value,
    pub promise: Promise,
    pub begin: Time,
    /// `Time::MAX` while in flight.
    pub end: Time,
    pub fate: Fate,
}

impl WriteRecord {
    /// Whether it replaces the block at `block` as a whole.
    pub fn covers_block(&self, block: u64) -> bool {
        let is_atomic = self.value != Value::Unspecified;
        is_atomic && self.range.start <= block && block + BLOCK_BYTES <= self.range.end
    }

    /// Whether a sector may read as `content` because of this write; of a discard, because it has
    /// left zeros.
    pub fn shows(&self, id: WriteId, content: Content) -> bool {
        match (self.value, content) {
            (Value::Payload, Content::Written { write, .. }) => write == id,
            (Value::Zeroes, Content::Zeroes) => true,
            (Value::Unspecified, Content::Zeroes) => true,
            _ => false,
        }
    }
}

/// The records of a run.
#[derive(Clone, Debug)]
pub(crate) struct Book {
    now: Time,
    writes: Vec<WriteRecord>,
    /// Begin and acknowledgement of each completed flush.
    pub flushes: Vec<Range<Time>>,
    pub crashes: Vec<Time>,
    /// What else happened, for the story.
    pub notes: Vec<(Time, String)>,
    /// Everything acknowledged before this time is stable.
    pub flushed_before: Time,
    /// Writes that failed may still show, or cease to, until they are replaced.
    pub failures_linger: bool,
}

impl Book {
    pub fn new(size_bytes: u64) -> Self {
        let start = WriteRecord {
            range: 0..size_bytes,
            value: Value::Zeroes,
            promise: Promise::Stable,
            begin: 0,
            end: 0,
            fate: Fate::Acknowledged,
        };
        let (flushes, crashes, notes) = (Vec::new(), Vec::new(), Vec::new());
        let (flushed_before, failures_linger) = (0, false);
        let writes = vec![start];
        Self { now: 0, writes, flushes, crashes, notes, flushed_before, failures_linger }
    }

    pub fn tick(&mut self) -> Time {
        self.now += 1;
        self.now
    }

    pub fn begin_write(&mut self, range: Range<u64>, value: Value, promise: Promise) -> WriteId {
        let (begin, end, fate) = (self.tick(), Time::MAX, Fate::InFlight);
        self.writes.push(WriteRecord { range, value, promise, begin, end, fate });
        WriteId(self.writes.len() as u64 - 1)
    }

    pub fn end_write(&mut self, id: WriteId, fate: Fate) {
        let end = self.tick();
        let record = &mut self.writes[id.0 as usize];
        assert_eq!(record.fate, Fate::InFlight, "a write is answered once");
        (record.end, record.fate) = (end, fate);
    }

    pub fn end_flush(&mut self, begin: Time) {
        let end = self.tick();
        self.flushes.push(begin..end);
        self.flushed_before = self.flushed_before.max(begin);
    }

    /// Every write in flight ends uncertain.
    pub fn crash(&mut self) {
        let at = self.tick();
        self.crashes.push(at);
        for record in self.writes.iter_mut().filter(|record| record.fate == Fate::InFlight) {
            (record.end, record.fate) = (at, Fate::Uncertain);
        }
    }

    /// Whether the write may still come, or go, though a read has told what the sector holds.
    pub fn may_linger(&self, id: WriteId) -> bool {
        self.failures_linger && self.write(id).fate == Fate::Failed
    }

    pub fn write(&self, id: WriteId) -> &WriteRecord {
        &self.writes[id.0 as usize]
    }

    pub fn knows(&self, id: WriteId) -> bool {
        (id.0 as usize) < self.writes.len()
    }

    /// All writes that touch `range`, oldest first.
    pub fn touching(&self, range: Range<u64>) -> impl Iterator<Item = (WriteId, &WriteRecord)> {
        let writes = self.writes.iter().enumerate();
        writes
            .filter(move |(_, w)| w.range.start < range.end && range.start < w.range.end)
            .map(|(index, record)| (WriteId(index as u64), record))
    }
}
