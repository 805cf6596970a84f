//! One drive: its queue, what it chooses next, and when it answers.
//!
//! Between events the mechanism is idle or has one job. When it is free it takes, of all commands
//! that are ready, the one whose first sector passes first (shortest access time); unwritten data
//! of the write cache takes part when nothing else is ready, when the cache is full, or when a
//! flush waits. A command that was passed over for too long is taken whatever it costs.

mod ahead;

use super::layout::{SECTOR_BYTES, Sector};
use super::mechanism::{Mechanism, Purpose};
use super::model::HddModel;
use super::overheads::Way;
use super::read_ahead::{ReadAhead, ReadAheadLimit};
use super::read_buffer::ReadBuffer;
use super::write_cache::WriteCache;
use crate::command::{Answer, Command, CommandKind, Machine, Tag};
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
    ahead_limit: ReadAheadLimit,
    /// Since the last write.
    reads_in_a_row: u32,
    /// What the command before was.
    before: Way,
    /// Commands that the drive may choose from, oldest first.
    queue: Vec<WaitingRequest>,
    /// Commands beyond the queue depth.
    outside: VecDeque<WaitingRequest>,
    /// Cached writes that wait for room.
    roomless: VecDeque<WaitingRequest>,
    flushes: Vec<PendingFlush>,
    last_flush: u64,
    answers: BinaryHeap<Reverse<Answer>>,
}

#[derive(Clone, Debug)]
struct WaitingRequest {
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
    /// When who waits for it has its data.
    answered: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Read(Tag),
    Write(Tag),
    /// Writes back cached data of this interval, and perhaps of later ones.
    Destage(u64),
}

#[derive(Clone, Copy, Debug)]
struct PendingFlush {
    /// Writes of the intervals before that which begins with it must be on the medium.
    tag: Tag,
    ready: u64,
}

#[derive(Clone, Copy, Debug)]
enum Choice {
    Queued(usize),
    Destage(Sector),
}

impl Machine for Drive {
    /// # Panics
    /// Where the range is not of whole sectors inside the drive.
    fn submit(&mut self, now: Instant, command: Command) -> Tag {
        assert!(command.range.is_aligned(SECTOR_BYTES), "whole sectors");
        assert!(command.range.end() <= self.model.size_bytes(), "inside the drive");
        self.catch_up(now.as_nanos());
        let tag = Tag(self.next_number);
        self.next_number += 1;
        let range = command.range.start() / SECTOR_BYTES..command.range.end() / SECTOR_BYTES;
        let kind = self.effective(command.kind, &range);
        self.reads_in_a_row = match kind {
            CommandKind::Read => self.reads_in_a_row.saturating_add(1),
            _ => 0,
        };
        if kind == CommandKind::Read {
            self.end_spent_read_ahead();
        }
        let ready = self.now + self.command_ns(kind, &range);
        let waiting = WaitingRequest { tag, kind, range, ready };
        if matches!(kind, CommandKind::Write | CommandKind::WriteThrough) {
            self.replace(&waiting.range);
        }
        match waiting.kind {
            CommandKind::Read => self.accept_read(waiting),
            CommandKind::Write => self.accept_cached_write(waiting),
            CommandKind::WriteThrough => self.enqueue(waiting),
            CommandKind::Flush => self.accept_flush(waiting),
            CommandKind::Discard => unreachable!("a disk is not told of discards"),
        }
        tag
    }

    /// The earliest time at which a command may be answered, if any waits. Looking at the drive
    /// before then changes nothing; at that time it may turn out to be later.
    fn next_answer(&self) -> Option<Instant> {
        let answered = self.answers.peek().map(|Reverse(answer)| answer.at.as_nanos());
        let waits = !(self.queue.is_empty() && self.flushes.is_empty() && self.roomless.is_empty());
        let serves = self.job.as_ref().is_some_and(|job| !matches!(job.work, Work::Destage(_)));
        let mechanical = if waits || serves { self.next_event() } else { None };
        answered.into_iter().chain(mechanical).min().map(Instant::from_nanos)
    }

    /// The next answer that is due at `now`, in the order of time.
    fn take_answer(&mut self, now: Instant) -> Option<Answer> {
        self.catch_up(now.as_nanos());
        match self.answers.peek() {
            Some(Reverse(answer)) if answer.at <= now => self.answers.pop().map(|Reverse(a)| a),
            _ => None,
        }
    }
}

impl Drive {
    /// A drive at rest whose spindle is `phase_ns` into its turn at time zero.
    pub fn new(model: Rc<HddModel>, phase_ns: u64) -> Self {
        let parameters = model.parameters();
        let (read, write) = (&parameters.read_buffer, &parameters.write_cache);
        let segment_sectors = read.segment_sectors();
        let cache_sectors = u64::from(write.capacity_kib) * 1024 / SECTOR_BYTES;
        Self {
            mechanism: Mechanism::new(model.clone(), phase_ns),
            buffer: ReadBuffer::new(read.segments, segment_sectors),
            written: ReadBuffer::new(
                read.written_segments.unwrap_or(read.segments),
                segment_sectors,
            ),
            cache: WriteCache::new(cache_sectors, write.runs_max),
            now: 0,
            next_number: 0,
            job: None,
            idle_since: 0,
            reading_ahead: None,
            ahead_limit: ReadAheadLimit::new(read),
            reads_in_a_row: 0,
            before: Way::Read,
            queue: Vec::new(),
            outside: VecDeque::new(),
            roomless: VecDeque::new(),
            flushes: Vec::new(),
            last_flush: 0,
            answers: BinaryHeap::new(),
            model,
        }
    }

    pub fn model(&self) -> &Rc<HddModel> {
        &self.model
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

    /// A write is about to change what was read.
    fn replace(&mut self, range: &Range<Sector>) {
        if self.model.parameters().read_buffer.written_segments.is_some() {
            self.stop_reading_ahead();
            self.buffer.forget(range);
            self.written.forget(range);
        }
    }

    /// The time of the electronics for a command that arrives now.
    fn command_ns(&mut self, kind: CommandKind, range: &Range<Sector>) -> u64 {
        let (way, is_hit) = match kind {
            CommandKind::Read => (Way::Read, self.holds(range) || self.holds_start(range)),
            CommandKind::Write => (Way::Write, true),
            CommandKind::WriteThrough => (Way::Write, false),
            CommandKind::Flush | CommandKind::Discard => {
                return self.model.overheads.command_ns(Way::Write, true, self.before);
            }
        };
        let before = std::mem::replace(&mut self.before, way);
        self.model.overheads.command_ns(way, is_hit, before)
    }

    fn accept_read(&mut self, read: WaitingRequest) {
        if self.holds(&read.range) {
            let at = self.sent(Way::Read, read.ready, read.range.end - read.range.start);
            self.answer(read.tag, at + self.model.overheads.completion_ns(Way::Read));
            self.read_on_behind(&read.range);
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

    /// Whether the heads, staying on behind a read, have come by the start of the range.
    fn holds_start(&self, range: &Range<Sector>) -> bool {
        self.is_coming(range)
            && self.stopped_reading_ahead().1.is_some_and(|read| range.start < read.end)
    }

    /// When so many sectors that are there have crossed the interface, for a command that was
    /// understood at `ready`.
    fn sent(&self, way: Way, ready: u64, sectors: u64) -> u64 {
        ready + self.model.overheads.data_ns(way) + self.model.wire_ns(sectors)
    }

    /// When a read whose sectors pass from `first` to `passed` has been answered: sending begins
    /// when enough is there, and the last sector is sent when it has passed.
    fn read_answered(&self, ready: u64, sectors: u64, first: u64, passed: u64) -> u64 {
        let interface = &self.model.parameters().interface;
        let enough = ((interface.read_watermark * sectors as f64).ceil() as u64).clamp(1, sectors);
        let there = first + (passed - first) * enough / sectors;
        let starts = there + self.model.overheads.reconnect_ns;
        let sent = self.sent(Way::Read, ready.max(starts), sectors);
        sent.max(passed + self.model.wire_ns(1)) + self.model.overheads.completion_ns(Way::Read)
    }

    /// Before this time a write past the cache cannot begin: its data would not keep up.
    fn data_keeps_up(&self, write: &WaitingRequest) -> u64 {
        let sectors = write.range.end - write.range.start;
        let place = self.model.layout().place(write.range.start);
        let sector_ns = self.model.revolution_ns() / u64::from(place.sectors_per_track);
        let sent = self.sent(Way::Write, write.ready, sectors);
        sent.saturating_sub((sectors - 1) * sector_ns).max(self.sent(Way::Write, write.ready, 1))
    }

    fn accept_cached_write(&mut self, write: WaitingRequest) {
        if self.roomless.is_empty() && self.cache.has_room(&write.range) {
            self.admit(write);
        } else {
            self.roomless.push_back(write);
        }
    }

    fn accept_flush(&mut self, flush: WaitingRequest) {
        self.last_flush = flush.tag.0;
        self.flushes.push(PendingFlush { tag: flush.tag, ready: flush.ready });
        self.finish_flushes(flush.ready);
    }

    fn enqueue(&mut self, waiting: WaitingRequest) {
        if self.queue.len() < self.model.parameters().interface.queue_depth {
            let ready = waiting.ready.max(self.now);
            self.queue.push(WaitingRequest { ready, ..waiting });
        } else {
            self.outside.push_back(waiting);
        }
    }

    fn admit(&mut self, write: WaitingRequest) {
        let ready = write.ready.max(self.now);
        let at = self.sent(Way::Write, ready, write.range.end - write.range.start);
        let at = at + self.model.overheads.completion_ns(Way::Write);
        if self.cache.is_empty() {
            self.idle_since = self.idle_since.max(at);
        }
        self.cache.insert(write.range, self.interval_of(write.tag));
        self.answer(write.tag, at);
    }

    /// Named after the flush that came before; of those that are answered none needs to be told
    /// from the next.
    fn interval_of(&self, write: Tag) -> u64 {
        if write.0 > self.last_flush {
            return self.last_flush;
        }
        let before = self.flushes.iter().map(|flush| flush.tag.0).filter(|tag| *tag < write.0);
        before.max().unwrap_or(0)
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
        let overdue =
            |waiting: &&WaitingRequest| waiting.ready + self.model.wait_max_ns <= self.now;
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
        // What came after a flush waits for what that waits for: a stream would always be nearer.
        let waited_for = self.flushes.iter().map(|flush| flush.tag.0).min();
        let dirty = self
            .cache
            .near(around, DESTAGE_CANDIDATES, waited_for)
            .map(|start| (heads.reach(start, self.now, Purpose::Write), Choice::Destage(start)));
        nearest.into_iter().chain(dirty).min_by_key(|(starts, _)| *starts).map(|(_, choice)| choice)
    }

    /// When the first sector of a queued command would pass.
    fn starts(&self, heads: &Mechanism, waiting: &WaitingRequest) -> u64 {
        match waiting.kind {
            CommandKind::Read if self.is_coming(&waiting.range) => self.comes(),
            CommandKind::Read => heads.reach(waiting.range.start, self.now, Purpose::Read),
            _ => heads.reach(waiting.range.start, self.now, Purpose::Write),
        }
    }

    /// Whether these are sectors that the heads are reading anyway.
    fn is_coming(&self, range: &Range<Sector>) -> bool {
        self.reading_ahead.as_ref().is_some_and(|ahead| ahead.covers(range))
    }

    /// When the heads come to where they read ahead, or now where they do so already.
    fn comes(&self) -> u64 {
        self.reading_ahead.as_ref().map_or(self.now, |ahead| ahead.since.max(self.now))
    }

    fn begin_queued(&mut self, index: usize) {
        let waiting = self.queue.remove(index);
        if let Some(next) = self.outside.pop_front() {
            self.enqueue(next);
        }
        if waiting.kind == CommandKind::Read && self.is_coming(&waiting.range) {
            return match self.holds(&waiting.range) {
                true => self.accept_read(waiting),
                false => self.follow_read_ahead(waiting),
            };
        }
        self.stop_reading_ahead();
        match waiting.kind {
            CommandKind::Read => self.begin_read(waiting),
            _ => {
                self.cache.remove(&waiting.range);
                self.begin_write(
                    Work::Write(waiting.tag),
                    &waiting.range,
                    self.data_keeps_up(&waiting),
                );
            }
        }
    }

    /// The heads are on their way to the end of this read, or have been there: it ends when they
    /// are.
    fn follow_read_ahead(&mut self, read: WaitingRequest) {
        let ahead = self.reading_ahead.take().expect("checked by the caller");
        let before = read.range.start.saturating_sub(ahead.from);
        let first = match before {
            0 => ahead.since,
            _ => self.mechanism.clone().follow(ahead.from, before, ahead.since),
        };
        let sectors = read.range.end - ahead.from;
        let passed = self.mechanism.follow(ahead.from, sectors, ahead.since);
        let asked = read.range.end - read.range.start;
        let answered = self.read_answered(read.ready, asked, first, passed).max(self.now);
        let (work, range) = (Work::Read(read.tag), ahead.from..read.range.end);
        self.job = Some(Job { work, range, passed, ends: passed.max(self.now), answered });
    }

    fn begin_destage(&mut self, start: Sector) {
        self.stop_reading_ahead();
        let (range, oldest) = self.cache.take(start, DESTAGE_SECTORS_MAX);
        self.begin_write(Work::Destage(oldest), &range, 0);
    }

    fn begin_read(&mut self, read: WaitingRequest) {
        let (start, sectors) = self.physical(&read.range);
        let (first, passed) = match self.model.parameters().read_buffer.on_arrival {
            true => self.mechanism.take_on_arrival(start, sectors, self.now, Purpose::Read),
            false => {
                let first = self.mechanism.reach(start, self.now, Purpose::Read);
                (first, self.mechanism.follow(start, sectors, first))
            }
        };
        let asked = read.range.end - read.range.start;
        let answered = self.read_answered(read.ready, asked, first.min(passed), passed);
        let work = Work::Read(read.tag);
        self.job = Some(Job { work, range: read.range, passed, ends: passed, answered });
    }

    fn begin_write(&mut self, work: Work, range: &Range<Sector>, not_before: u64) {
        let (start, sectors) = self.physical(range);
        let mut at = self.now;
        if (start, sectors) != (range.start, range.end - range.start) {
            // Part of a physical sector is read, changed and written a turn later.
            let first = self.mechanism.reach(start, at, Purpose::Read);
            at = self.mechanism.follow(start, sectors, first);
        }
        let on_arrival = self.model.parameters().write_cache.on_arrival;
        let passed = match on_arrival && not_before <= at {
            true => self.mechanism.take_on_arrival(start, sectors, at, Purpose::Write).1,
            false => {
                let first = self.mechanism.reach_late(start, at, Purpose::Write, not_before);
                self.mechanism.follow(start, sectors, first)
            }
        };
        let overheads = &self.model.overheads;
        let answered = passed + overheads.reconnect_ns + overheads.completion_ns(Way::Write);
        self.job = Some(Job { work, range: range.clone(), passed, ends: passed, answered });
    }

    /// The whole physical sectors that hold a range: the first, and how many of 512 bytes.
    fn physical(&self, range: &Range<Sector>) -> (Sector, u64) {
        let bytes = self.model.parameters().geometry.physical_sector_bytes;
        let sectors = u64::from(bytes) / SECTOR_BYTES;
        let start = range.start - range.start % sectors;
        (start, range.end.next_multiple_of(sectors) - start)
    }

    fn finish(&mut self, job: Job) {
        self.idle_since = self.idle_since.max(job.ends);
        match job.work {
            Work::Read(tag) => {
                self.answer(tag, job.answered);
                self.start_reading_ahead(&job);
                self.buffer.add(job.range);
            }
            Work::Write(tag) => {
                self.answer(tag, job.answered);
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
            if oldest.is_none_or(|oldest| oldest >= flush.tag.0) {
                self.answer(flush.tag, flush.ready.max(at));
            } else {
                self.flushes.push(flush);
            }
        }
    }
}

#[cfg(test)]
mod measured_tests;
#[cfg(test)]
mod tests;
