//! One drive: its queue, what it chooses next, and when it answers.
//!
//! Between events the mechanism is idle or has one job. When it is free it takes, of all commands
//! that are ready, the one whose first sector passes first (shortest access time); unwritten data
//! of the write cache takes part when nothing else is ready, when the cache is full, or when a
//! flush waits. A command that was passed over for too long is taken whatever it costs.

use super::command::{Answer, Command, CommandKind, Tag};
use super::layout::{SECTOR_BYTES, Sector};
use super::mechanism::{Mechanism, Purpose};
use super::model::HddModel;
use super::read_buffer::ReadBuffer;
use super::write_cache::WriteCache;
use headpond_block::Instant;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;
use std::rc::Rc;

/// Runs of the write cache that are weighed at once, on either side of the heads.
const DESTAGE_CANDIDATES: usize = 32;

/// At most this much of a run is written in one go, so that others get their turn.
const DESTAGE_SECTORS_MAX: u64 = 2048;

/// One drive of a model; see the module for its rules.
#[derive(Clone, Debug)]
pub struct Drive {
    model: Rc<HddModel>,
    mechanism: Mechanism,
    buffer: ReadBuffer,
    /// What was written lately and is still held, beside the read segments.
    written: ReadBuffer,
    cache: WriteCache,
    /// Everything before this time has happened.
    now: u64,
    next_number: u64,
    job: Option<Job>,
    /// When the mechanism last became free, or data came that it might write.
    idle_since: u64,
    /// What has been passing under the heads since the last read ended.
    reading_ahead: Option<ReadAhead>,
    /// Commands that the drive may choose from, oldest first.
    queue: Vec<Waiting>,
    /// Commands beyond the queue depth.
    outside: VecDeque<Waiting>,
    /// Cached writes that wait for room.
    roomless: VecDeque<Waiting>,
    flushes: Vec<PendingFlush>,
    answers: BinaryHeap<Reverse<Answer>>,
}

#[derive(Clone, Debug)]
struct Waiting {
    tag: Tag,
    kind: CommandKind,
    range: Range<Sector>,
    ready: u64,
}

#[derive(Clone, Debug)]
struct Job {
    work: Work,
    range: Range<Sector>,
    /// When its last bit passes.
    passed: u64,
    ends: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Read(Tag),
    Write(Tag),
    /// Writes back cached data; the number of its oldest write.
    Destage(u64),
}

/// The heads follow the track from `from`, whose first bit passes at `since`.
#[derive(Clone, Debug)]
struct ReadAhead {
    from: Sector,
    since: u64,
    sectors_max: u64,
    /// Before this time unwritten data stays unwritten, because a sequential reader is being
    /// served.
    undisturbed_until: u64,
}

#[derive(Clone, Copy, Debug)]
struct PendingFlush {
    tag: Tag,
    /// Writes with numbers up to here must be on the medium.
    up_to: u64,
    ready: u64,
}

#[derive(Clone, Copy, Debug)]
enum Choice {
    Queued(usize),
    Destage(Sector),
}

impl Drive {
    /// A drive at rest whose spindle is `phase_ns` into its turn at time zero.
    pub fn new(model: Rc<HddModel>, phase_ns: u64) -> Self {
        let parameters = model.parameters();
        let (read, write) = (&parameters.read_buffer, &parameters.write_cache);
        let segment_sectors = u64::from(read.read_ahead_kib) * 1024 / SECTOR_BYTES;
        let cache_sectors = u64::from(write.capacity_kib) * 1024 / SECTOR_BYTES;
        Self {
            mechanism: Mechanism::new(model.clone(), phase_ns),
            buffer: ReadBuffer::new(read.segments, segment_sectors),
            written: ReadBuffer::new(read.segments, segment_sectors),
            cache: WriteCache::new(cache_sectors, write.runs_max),
            now: 0,
            next_number: 0,
            job: None,
            idle_since: 0,
            reading_ahead: None,
            queue: Vec::new(),
            outside: VecDeque::new(),
            roomless: VecDeque::new(),
            flushes: Vec::new(),
            answers: BinaryHeap::new(),
            model,
        }
    }

    pub fn model(&self) -> &Rc<HddModel> {
        &self.model
    }

    /// Hands a command to the drive at `now`, or at the drive's own time if that is later.
    ///
    /// # Panics
    /// Where the range is not of whole sectors inside the drive.
    pub fn submit(&mut self, now: Instant, command: Command) -> Tag {
        assert!(command.range.is_aligned(SECTOR_BYTES), "whole sectors");
        assert!(command.range.end() <= self.model.size_bytes(), "inside the drive");
        self.catch_up(now.as_nanos());
        let tag = Tag(self.next_number);
        self.next_number += 1;
        let range = command.range.start() / SECTOR_BYTES..command.range.end() / SECTOR_BYTES;
        let ready = self.now + self.model.command_ns;
        let waiting = Waiting { tag, kind: self.effective(command.kind, &range), range, ready };
        match waiting.kind {
            CommandKind::Read => self.accept_read(waiting),
            CommandKind::Write => self.accept_cached_write(waiting),
            CommandKind::WriteThrough => self.enqueue(waiting),
            CommandKind::Flush => self.accept_flush(waiting),
        }
        tag
    }

    /// The earliest time at which a command may be answered, if any waits. Looking at the drive
    /// before then changes nothing; at that time it may turn out to be later.
    pub fn next_answer(&self) -> Option<Instant> {
        let answered = self.answers.peek().map(|Reverse(answer)| answer.at.as_nanos());
        let waits = !(self.queue.is_empty() && self.flushes.is_empty() && self.roomless.is_empty());
        let serves = self.job.as_ref().is_some_and(|job| !matches!(job.work, Work::Destage(_)));
        let mechanical = if waits || serves { self.next_event() } else { None };
        answered.into_iter().chain(mechanical).min().map(Instant::from_nanos)
    }

    /// The next answer that is due at `now`, in the order of time.
    pub fn take_answer(&mut self, now: Instant) -> Option<Answer> {
        self.catch_up(now.as_nanos());
        match self.answers.peek() {
            Some(Reverse(answer)) if answer.at <= now => self.answers.pop().map(|Reverse(a)| a),
            _ => None,
        }
    }

    /// What becomes of a kind on this drive: a write passes the cache where that is off or too
    /// small.
    fn effective(&self, kind: CommandKind, range: &Range<Sector>) -> CommandKind {
        let cached = self.model.parameters().write_cache.enabled
            && self.cache.may_hold(range.end - range.start);
        match kind {
            CommandKind::Write if !cached => CommandKind::WriteThrough,
            kind => kind,
        }
    }

    fn accept_read(&mut self, read: Waiting) {
        self.end_spent_read_ahead();
        if self.holds(&read.range) {
            let bytes = (read.range.end - read.range.start) * SECTOR_BYTES;
            self.answer(read.tag, read.ready + self.model.wire_ns(bytes));
        } else {
            self.enqueue(read);
        }
    }

    /// Whether the drive has the range in memory: to be written, being written, written or read.
    fn holds(&mut self, range: &Range<Sector>) -> bool {
        let is_leaving = self.job.as_ref().is_some_and(|job| {
            let covers = job.range.start <= range.start && range.end <= job.range.end;
            covers && matches!(job.work, Work::Destage(_))
        });
        is_leaving
            || self.cache.contains(range)
            || self.written.hit(range)
            || self.buffer.hit(range)
    }

    fn accept_cached_write(&mut self, write: Waiting) {
        if self.roomless.is_empty() && self.cache.has_room(&write.range) {
            self.admit(write);
        } else {
            self.roomless.push_back(write);
        }
    }

    fn accept_flush(&mut self, flush: Waiting) {
        let up_to = flush.tag.0;
        self.flushes.push(PendingFlush { tag: flush.tag, up_to, ready: flush.ready });
        self.finish_flushes(flush.ready);
    }

    fn enqueue(&mut self, waiting: Waiting) {
        if self.queue.len() < self.model.parameters().interface.queue_depth {
            let ready = waiting.ready.max(self.now);
            self.queue.push(Waiting { ready, ..waiting });
        } else {
            self.outside.push_back(waiting);
        }
    }

    fn admit(&mut self, write: Waiting) {
        let bytes = (write.range.end - write.range.start) * SECTOR_BYTES;
        let at = write.ready.max(self.now) + self.model.wire_ns(bytes);
        if self.cache.is_empty() {
            self.idle_since = self.idle_since.max(at);
        }
        self.cache.insert(write.range, write.tag.0);
        self.answer(write.tag, at);
    }

    fn answer(&mut self, tag: Tag, at: u64) {
        self.answers.push(Reverse(Answer { at: Instant::from_nanos(at), tag }));
    }

    /// Lives through everything up to `until`.
    fn catch_up(&mut self, until: u64) {
        while let Some(event) = self.next_event().filter(|&event| event <= until) {
            self.now = event.max(self.now);
            match self.job.take() {
                Some(job) => self.finish(job),
                None => self.begin_next(),
            }
        }
        self.now = until.max(self.now);
    }

    /// When the mechanism next has something to do: the end of its job, or the start of one.
    fn next_event(&self) -> Option<u64> {
        if let Some(job) = &self.job {
            return Some(job.ends);
        }
        let queued = self.queue.iter().map(|waiting| waiting.ready).min();
        let destage = (!self.cache.is_empty()).then(|| match self.destage_presses() {
            true => self.now,
            false => self.undisturbed_until().max(self.idle_since + self.model.idle_ns),
        });
        queued.into_iter().chain(destage).min()
    }

    fn undisturbed_until(&self) -> u64 {
        self.reading_ahead.as_ref().map_or(0, |ahead| ahead.undisturbed_until)
    }

    /// Whether unwritten data competes with commands.
    fn destage_presses(&self) -> bool {
        !self.roomless.is_empty() || !self.flushes.is_empty()
    }

    fn begin_next(&mut self) {
        assert!(self.job.is_none(), "one job at a time");
        match self.choose() {
            Some(Choice::Queued(index)) => self.begin_queued(index),
            Some(Choice::Destage(start)) => self.begin_destage(start),
            None => unreachable!("an event without work"),
        }
    }

    fn choose(&self) -> Option<Choice> {
        let overdue = |waiting: &&Waiting| waiting.ready + self.model.wait_max_ns <= self.now;
        if let Some(index) = self.queue.first().filter(overdue).map(|_| 0) {
            return Some(Choice::Queued(index));
        }
        let heads = self.stopped_reading_ahead().0;
        let queued = self.queue.iter().enumerate().filter(|(_, w)| w.ready <= self.now);
        let queued = queued.map(|(index, w)| (self.starts(&heads, w), Choice::Queued(index)));
        let nearest = queued.min_by_key(|(starts, _)| *starts);
        if nearest.is_some() && !self.destage_presses() {
            return nearest.map(|(_, choice)| choice);
        }
        let around = heads.last();
        let dirty = self
            .cache
            .near(around, DESTAGE_CANDIDATES)
            .map(|start| (heads.reach(start, self.now, Purpose::Write), Choice::Destage(start)));
        nearest.into_iter().chain(dirty).min_by_key(|(starts, _)| *starts).map(|(_, choice)| choice)
    }

    /// When the first sector of a queued command would pass.
    fn starts(&self, heads: &Mechanism, waiting: &Waiting) -> u64 {
        match waiting.kind {
            CommandKind::Read if self.is_coming(waiting) => self.now,
            CommandKind::Read => heads.reach(waiting.range.start, self.now, Purpose::Read),
            _ => heads.reach(waiting.range.start, self.now, Purpose::Write),
        }
    }

    /// Whether the read asks for what the heads are reading anyway.
    fn is_coming(&self, read: &Waiting) -> bool {
        self.reading_ahead.as_ref().is_some_and(|ahead| {
            ahead.from <= read.range.start && read.range.end <= ahead.from + ahead.sectors_max
        })
    }

    fn begin_queued(&mut self, index: usize) {
        let waiting = self.queue.remove(index);
        if let Some(next) = self.outside.pop_front() {
            self.enqueue(next);
        }
        if waiting.kind == CommandKind::Read && self.is_coming(&waiting) {
            return self.follow_read_ahead(waiting);
        }
        self.stop_reading_ahead();
        let work = match waiting.kind {
            CommandKind::Read => Work::Read(waiting.tag),
            _ => {
                self.cache.remove(&waiting.range);
                Work::Write(waiting.tag)
            }
        };
        self.begin(work, waiting.range);
    }

    /// The heads are on their way to the end of this read, or have been there: it ends when they
    /// are.
    fn follow_read_ahead(&mut self, read: Waiting) {
        let ahead = self.reading_ahead.take().expect("checked by the caller");
        let sectors = read.range.end - ahead.from;
        let passed = self.mechanism.follow(ahead.from, sectors, ahead.since);
        let range = ahead.from..read.range.end;
        self.job =
            Some(Job { work: Work::Read(read.tag), range, passed, ends: passed.max(self.now) });
    }

    fn begin_destage(&mut self, start: Sector) {
        self.stop_reading_ahead();
        let (range, oldest) = self.cache.take(start, DESTAGE_SECTORS_MAX);
        self.begin(Work::Destage(oldest), range);
    }

    fn begin(&mut self, work: Work, range: Range<Sector>) {
        let physical =
            u64::from(self.model.parameters().geometry.physical_sector_bytes) / SECTOR_BYTES;
        let start = range.start - range.start % physical;
        let sectors = range.end.next_multiple_of(physical) - start;
        let is_read = matches!(work, Work::Read(_));
        let mut at = self.now;
        let is_partial = start != range.start || sectors != range.end - range.start;
        if !is_read && is_partial {
            // Part of a physical sector is read, changed and written a turn later.
            let first = self.mechanism.reach(start, at, Purpose::Read);
            at = self.mechanism.follow(start, sectors, first);
        }
        let purpose = if is_read { Purpose::Read } else { Purpose::Write };
        let first = self.mechanism.reach(start, at, purpose);
        let ends = self.mechanism.follow(start, sectors, first);
        self.job = Some(Job { work, range, passed: ends, ends });
    }

    fn finish(&mut self, job: Job) {
        self.idle_since = self.idle_since.max(job.ends);
        match job.work {
            Work::Read(tag) => {
                self.answer(tag, job.ends);
                self.start_reading_ahead(&job);
                self.buffer.add(job.range);
            }
            Work::Write(tag) => {
                self.answer(tag, job.ends);
                self.written.add(job.range);
            }
            Work::Destage(_) => self.written.add(job.range),
        }
        self.admit_waiting_writes();
        self.finish_flushes(self.now);
    }

    fn admit_waiting_writes(&mut self) {
        while self.roomless.front().is_some_and(|write| self.cache.has_room(&write.range)) {
            let write = self.roomless.pop_front().expect("there is a front");
            self.admit(write);
        }
    }

    /// Answers each flush whose writes are all on the medium.
    fn finish_flushes(&mut self, at: u64) {
        if self.flushes.is_empty() {
            return;
        }
        let destaging = match &self.job {
            Some(Job { work: Work::Destage(oldest), .. }) => Some(*oldest),
            _ => None,
        };
        let oldest = self.cache.oldest().into_iter().chain(destaging).min();
        let flushes = std::mem::take(&mut self.flushes);
        for flush in flushes {
            if oldest.is_none_or(|oldest| oldest > flush.up_to) {
                self.answer(flush.tag, flush.ready.max(at));
            } else {
                self.flushes.push(flush);
            }
        }
    }

    /// After a read the heads stay on. Where it continued what is held, a sequential reader is at
    /// work, and they stay until they have read as far ahead as they may.
    fn start_reading_ahead(&mut self, read: &Job) {
        let from = read.range.end;
        let limit = u64::from(self.model.parameters().read_buffer.read_ahead_kib) * 1024;
        let left = self.model.size_bytes() / SECTOR_BYTES - from;
        let sectors_max = (limit / SECTOR_BYTES).min(left);
        if sectors_max == 0 {
            return;
        }
        let since = self.mechanism.continues(from, read.passed);
        let undisturbed_until = match self.buffer.is_continued_at(read.range.start) {
            true => self.mechanism.clone().follow(from, sectors_max, since),
            false => 0,
        };
        let ahead = ReadAhead { from, since, sectors_max, undisturbed_until };
        self.reading_ahead = Some(ahead);
    }

    /// Where the heads are if they stop reading ahead now, and what they have read until then.
    fn stopped_reading_ahead(&self) -> (Mechanism, Option<Range<Sector>>) {
        let mut heads = self.mechanism.clone();
        let read = self.reading_ahead.as_ref().map(|ahead| {
            let passed = heads.follow_until(ahead.from, ahead.sectors_max, ahead.since, self.now);
            ahead.from..ahead.from + passed
        });
        (heads, read)
    }

    /// Read-ahead that has come to its limit is over: the heads stand there and the buffer has it
    /// all.
    fn end_spent_read_ahead(&mut self) {
        let Some(sectors_max) = self.reading_ahead.as_ref().map(|ahead| ahead.sectors_max) else {
            return;
        };
        let (_, read) = self.stopped_reading_ahead();
        if read.is_some_and(|read| read.end - read.start == sectors_max) {
            self.stop_reading_ahead();
        }
    }

    fn stop_reading_ahead(&mut self) {
        let (heads, read) = self.stopped_reading_ahead();
        self.mechanism = heads;
        self.reading_ahead = None;
        self.buffer.add(read.unwrap_or(0..0));
    }
}

#[cfg(test)]
mod tests;
