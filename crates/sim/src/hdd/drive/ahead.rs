//! When the heads stay on behind a read, and when they go on.

use super::{Drive, Job};
use crate::hdd::layout::Sector;
use crate::hdd::mechanism::{Mechanism, Purpose};
use crate::hdd::read_ahead::ReadAhead;
use std::ops::Range;

/// Reads in a row from which on a hit lets the drive go on reading ahead. Reads of a controller
/// that makes parity anew, with writes between them, do not: published arrays show that such
/// streams wait for the medium again and again.
const READS_IN_A_ROW_MIN: u32 = 16;

impl Drive {
    /// After a read the heads stay on. Where it continued what is held, a sequential reader is at
    /// work, and they stay until they have read as far ahead as they may.
    pub(super) fn start_reading_ahead(&mut self, read: &Job) {
        let from = read.range.end;
        let sectors_max = self.ahead_limit.after(self.model.layout(), &read.range);
        if sectors_max == 0 {
            return;
        }
        let since = self.mechanism.continues(from, read.passed);
        let undisturbed_until = match self.buffer.is_continued_at(read.range.start) {
            true => self.mechanism.clone().follow(from, sectors_max, since),
            false => 0,
        };
        let segment_sectors = self.model.parameters().read_buffer.segment_sectors();
        let held_from = read.range.start.max(from.saturating_sub(segment_sectors));
        let ahead = ReadAhead { held_from, from, since, sectors_max, undisturbed_until };
        self.reading_ahead = Some(ahead);
    }

    /// A read that the buffer has answered moves the limit of reading ahead, and the heads go on
    /// to it unless there is something else to read or to write.
    pub(super) fn read_on_behind(&mut self, read: &Range<Sector>) {
        let resumes = self.model.parameters().read_buffer.resumes_on_hit
            && self.reads_in_a_row >= READS_IN_A_ROW_MIN;
        if !resumes || !self.cache.is_empty() || !self.queue.is_empty() {
            return;
        }
        let Some(held) = self.buffer.segment_of(read) else { return };
        let end = read.end + self.ahead_limit.after(self.model.layout(), read);
        let sectors_max = end.saturating_sub(held.end);
        let (from, since) = match &self.reading_ahead {
            Some(ahead) if ahead.from == held.end => (ahead.from, ahead.since),
            None if self.job.is_none() => {
                (held.end, self.mechanism.reach(held.end, self.now, Purpose::Read))
            }
            _ => return,
        };
        if sectors_max == 0 {
            return;
        }
        let undisturbed_until = self.mechanism.clone().follow(from, sectors_max, since);
        let held_from = held.start;
        self.reading_ahead =
            Some(ReadAhead { held_from, from, since, sectors_max, undisturbed_until });
    }

    /// Where the heads are if they stop reading ahead now, and what they have read until then.
    pub(super) fn stopped_reading_ahead(&self) -> (Mechanism, Option<Range<Sector>>) {
        let mut heads = self.mechanism.clone();
        let read = self.reading_ahead.as_ref().map(|ahead| {
            let passed = heads.follow_until(ahead.from, ahead.sectors_max, ahead.since, self.now);
            ahead.from..ahead.from + passed
        });
        (heads, read)
    }

    /// Read-ahead that has come to its limit is over: the heads stand there and the buffer has it
    /// all.
    pub(super) fn end_spent_read_ahead(&mut self) {
        let Some(sectors_max) = self.reading_ahead.as_ref().map(|ahead| ahead.sectors_max) else {
            return;
        };
        let (_, read) = self.stopped_reading_ahead();
        if read.is_some_and(|read| read.end - read.start == sectors_max) {
            self.stop_reading_ahead();
        }
    }

    pub(super) fn stop_reading_ahead(&mut self) {
        let (heads, read) = self.stopped_reading_ahead();
        self.mechanism = heads;
        self.reading_ahead = None;
        self.buffer.add(read.unwrap_or(0..0));
    }
}
