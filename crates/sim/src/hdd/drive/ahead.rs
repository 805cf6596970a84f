//! When the heads stay on behind a read, and when they go on.

use super::{Drive, Job};
use crate::hdd::layout::Sector;
use crate::hdd::mechanism::{Mechanism, Purpose};
use crate::hdd::read_ahead::{self, ReadAhead};
use crate::hdd::read_buffer::Origin;
use std::ops::Range;

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
        let is_continued = self.buffer.is_continued_at(read.range.start);
        let buffer = &self.model.parameters().read_buffer;
        let held_from = match buffer.drops_sent {
            true => from,
            false => read.kept_from.max(from.saturating_sub(buffer.segment_sectors())),
        };
        self.read_ahead(held_from..from, since, sectors_max, is_continued);
    }

    /// Stays on behind what is held; undisturbed as far as it may, or else for the least.
    fn read_ahead(&mut self, held: Range<Sector>, since: u64, sectors_max: u64, undisturbed: bool) {
        let (held_from, from) = (held.start, held.end);
        let least_kib = self.model.parameters().read_buffer.read_ahead_least_kib;
        let least = read_ahead::sectors(least_kib).min(sectors_max);
        let until = |sectors| match sectors {
            0 => 0,
            sectors => self.mechanism.clone().follow(from, sectors, since),
        };
        let exclusive_until = until(least);
        let undisturbed_until = if undisturbed { until(sectors_max) } else { exclusive_until };
        self.reading_ahead = Some(ReadAhead {
            held_from,
            from,
            since,
            sectors_max,
            undisturbed_until,
            exclusive_until,
        });
    }

    /// A read that the buffer has answered moves the limit of reading ahead, and the heads go on
    /// to it unless there is something else to read or to write.
    pub(super) fn read_on_behind(&mut self, read: &Range<Sector>) {
        let resumes = self.model.parameters().read_buffer.resumes_on_hit
            && self.reads_in_a_row >= self.model.parameters().read_buffer.resumes_after;
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
        self.read_ahead(held.start..from, since, sectors_max, true);
    }

    /// Whether these are sectors that the heads are reading anyway.
    pub(super) fn is_coming(&self, range: &Range<Sector>) -> bool {
        let Some(ahead) = self.reading_ahead.as_ref().filter(|ahead| ahead.covers(range)) else {
            return false;
        };
        // What is read takes the place of the oldest in the segment.
        let segment_sectors = self.model.parameters().read_buffer.segment_sectors();
        let read = || self.stopped_reading_ahead().1.map_or(0, |read| read.end);
        ahead.from + ahead.sectors_max <= range.start + segment_sectors
            || read() <= range.start + segment_sectors
    }

    pub(super) fn undisturbed_until(&self) -> u64 {
        self.reading_ahead.as_ref().map_or(0, |ahead| ahead.undisturbed_until)
    }

    pub(super) fn exclusive_until(&self) -> u64 {
        self.reading_ahead.as_ref().map_or(0, |ahead| ahead.exclusive_until)
    }

    /// Unwritten data waits until all has been read ahead.
    pub(super) fn protect_read_ahead(&mut self) {
        if let Some(ahead) = &mut self.reading_ahead {
            let mut heads = self.mechanism.clone();
            ahead.undisturbed_until = heads.follow(ahead.from, ahead.sectors_max, ahead.since);
        }
    }

    /// What has been sent makes room.
    pub(super) fn give_up(&mut self, sent: &Range<Sector>) {
        self.buffer.give_up(sent);
        if let Some(ahead) = &mut self.reading_ahead {
            ahead.held_from = sent.end.clamp(ahead.held_from, ahead.from);
        }
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
        let whole_sectors = self.model.parameters().read_buffer.whole_sectors;
        match (self.reading_ahead.take(), read) {
            (Some(ahead), Some(read)) if whole_sectors && self.is_in_sector(&ahead, &read) => {
                let sectors = read.end - read.start + 1;
                self.heads_free = self.mechanism.follow(ahead.from, sectors, ahead.since);
                self.buffer.add(read.start..read.end + 1, Origin::Read);
            }
            (_, read) => {
                self.mechanism = heads;
                self.buffer.add(read.unwrap_or(0..0), Origin::Read);
            }
        }
    }

    fn is_in_sector(&self, ahead: &ReadAhead, read: &Range<Sector>) -> bool {
        let passed = read.end - read.start;
        if passed == ahead.sectors_max {
            return false;
        }
        let begins = match passed {
            0 => ahead.since,
            passed => {
                let ended = self.mechanism.clone().follow(ahead.from, passed, ahead.since);
                self.mechanism.continues(ahead.from + passed, ended)
            }
        };
        begins < self.now
    }
}
