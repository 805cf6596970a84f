//! One drive: its queue, what it chooses next, and when it answers.
//!
//! Between events the mechanism is idle or has one job. When it is free it takes, of all commands
//! that are ready, the one whose first sector passes first (shortest access time); unwritten data
//! of the write cache takes part when nothing else is ready, when the cache is full, or when a
//! flush waits. A command that was passed over for too long is taken whatever it costs.

mod ahead;
mod writes;

use super::layout::{SECTOR_BYTES, Sector};
use super::mechanism::{Mechanism, Purpose};
use super::model::HddModel;
use super::overheads::Way;
use super::read_ahead::{ReadAhead, ReadAheadLimit};
use super::read_buffer::{Origin, ReadBuffer, SegmentsMax};
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
    /// Before this time the heads cannot leave their track.
    heads_free: u64,
    buffer: ReadBuffer,
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
    /// The buffer keeps what has passed from here on.
    kept_from: Sector,
    /// When its last bit passes.
    passed: u64,
    ends: u64,
    /// When who waits for it has its data.
    answered: u64,
}

/// How the sectors of a read come.
#[derive(Clone, Copy, Debug)]
struct Coming {
    /// So many are in memory.
    held: u64,
    /// When the first of the others begins to pass.
    first: u64,
    /// When the last has passed.
    passed: u64,
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
            self.replace(kind, &waiting.range);
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
        let merges = write.segments.is_none_or(|rules| rules.combines);
        Self {
            mechanism: Mechanism::new(model.clone(), phase_ns),
            heads_free: 0,
            buffer: ReadBuffer::new(SegmentsMax::new(read), segment_sectors),
            cache: WriteCache::new(cache_sectors, write.runs_max, merges),
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

    /// The time of the electronics for a command that arrives now.
    fn command_ns(&mut self, kind: CommandKind, range: &Range<Sector>) -> u64 {
        let (way, is_hit) = match kind {
            CommandKind::Read => (Way::Read, self.holds(range) || self.sends_start(range)),
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
            if self.model.parameters().read_buffer.drops_sent {
                self.give_up(&read.range);
            }
        } else {
            self.enqueue(read);
        }
    }

    /// Whether the drive has the range in memory: to be written, being written, written or read.
    fn holds(&mut self, range: &Range<Sector>) -> bool {
        let covers = |held: &Range<Sector>| held.start <= range.start && range.end <= held.end;
        let reads_written = self.model.parameters().read_buffer.written_segments != Some(0);
        let is_unwritten = || self.leaving().is_some_and(covers) || self.cache.contains(range);
        reads_written && is_unwritten() || self.buffer.hit(range)
    }

    /// Whether enough of the start of the range is in memory to be sent at once.
    fn sends_start(&self, range: &Range<Sector>) -> bool {
        let until = match self.is_coming(range) {
            true => self.stopped_reading_ahead().1.map_or(range.start, |read| read.end),
            false => self.held_until(range),
        };
        let held = until.saturating_sub(range.start);
        held > 0 && held >= self.sectors_to_begin(range.end - range.start, held)
    }

    /// Up to where the buffer holds the start of a range, if only the rest is read then.
    fn held_until(&self, range: &Range<Sector>) -> Sector {
        match self.model.parameters().read_buffer.partial_hits {
            true => self.buffer.held_until(range.start),
            false => range.start,
        }
    }

    /// How many sectors of a read have to be there before sending begins, where so many were in
    /// memory from the start.
    fn sectors_to_begin(&self, sectors: u64, held: u64) -> u64 {
        let parameters = self.model.parameters();
        let (interface, buffer) = (&parameters.interface, &parameters.read_buffer);
        if held > 0 && !interface.defers_partial_hits {
            return 1;
        }
        let whole = match interface.watermark_of_segment {
            true => buffer.segment_sectors(),
            false => sectors,
        };
        ((interface.read_watermark * whole as f64).ceil() as u64).clamp(1, sectors)
    }

    /// When so many sectors that are there have crossed the interface, for a command that was
    /// understood at `ready`.
    fn sent(&self, way: Way, ready: u64, sectors: u64) -> u64 {
        ready + self.model.overheads.data_ns(way) + self.model.wire_ns(way, sectors)
    }

    /// When a read has been answered: sending begins when enough is there, and the last sector is
    /// sent when it has passed.
    fn read_answered(&self, read: &WaitingRequest, comes: &Coming) -> u64 {
        let sectors = read.range.end - read.range.start;
        let enough = self.sectors_to_begin(sectors, comes.held);
        let there = match enough.checked_sub(comes.held) {
            None | Some(0) => 0,
            Some(more) => {
                comes.first + (comes.passed - comes.first) * more / (sectors - comes.held)
            }
        };
        let starts = there + self.model.overheads.reconnect_ns;
        let sent = self.sent(Way::Read, read.ready.max(starts), sectors);
        sent.max(comes.passed + self.model.wire_ns(Way::Read, 1))
            + self.model.overheads.completion_ns(Way::Read)
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
        let queued = self.queue.iter().map(|waiting| self.served_from(waiting)).min();
        let destage = (!self.cache.is_empty()).then(|| match self.destage_presses() {
            true => self.now.max(self.exclusive_until()),
            false => self.undisturbed_until().max(self.idle_since + self.model.idle_ns),
        });
        queued.into_iter().chain(destage).min()
    }

    /// A command that is not for what is being read ahead waits for the least of that.
    fn served_from(&self, waiting: &WaitingRequest) -> u64 {
        let exclusive_until = self.exclusive_until();
        let is_coming = || waiting.kind == CommandKind::Read && self.is_coming(&waiting.range);
        match exclusive_until <= waiting.ready || is_coming() {
            true => waiting.ready,
            false => exclusive_until,
        }
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
        let is_due = |waiting: &WaitingRequest| self.served_from(waiting) <= self.now;
        let overdue =
            |w: &&WaitingRequest| is_due(w) && w.ready + self.model.wait_max_ns <= self.now;
        let writes_first = self.writes_first() && self.exclusive_until() <= self.now;
        if self.queue.first().filter(overdue).is_some() && !writes_first {
            return Some(Choice::Queued(0));
        }
        let heads = self.stopped_reading_ahead().0;
        let queued = self.queue.iter().enumerate().filter(|(_, w)| is_due(w) && !writes_first);
        let queued = queued.map(|(index, w)| (self.starts(&heads, w), Choice::Queued(index)));
        let nearest = queued.min_by_key(|(starts, _)| *starts);
        let may_destage = self.destage_presses() && self.exclusive_until() <= self.now;
        if nearest.is_some() && !may_destage {
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
            _ => self.begin_write_through(&waiting),
        }
    }

    /// The heads are on their way to the end of this read, or have been there: it ends when they
    /// are.
    fn follow_read_ahead(&mut self, read: WaitingRequest) {
        let ahead = self.reading_ahead.take().expect("checked by the caller");
        let before = read.range.start.saturating_sub(ahead.from);
        let (sectors, since) = (read.range.end - ahead.from, ahead.since);
        // What had passed when the command was understood was in memory then.
        let passed = self.mechanism.clone().follow_until(ahead.from, sectors, since, read.ready);
        let held = passed.saturating_sub(before).min(sectors - before - 1);
        let first = match before + held {
            0 => ahead.since,
            sectors => self.mechanism.clone().follow(ahead.from, sectors, since),
        };
        let held = held + ahead.from.saturating_sub(read.range.start);
        let passed = self.mechanism.follow(ahead.from, sectors, ahead.since);
        let answered = self.read_answered(&read, &Coming { held, first, passed }).max(self.now);
        let (work, range, kept_from) =
            (Work::Read(read.tag), ahead.from..read.range.end, ahead.from);
        let ends = passed.max(self.now);
        self.job = Some(Job { work, range, kept_from, passed, ends, answered });
    }

    fn begin_read(&mut self, read: WaitingRequest) {
        let buffer = &self.model.parameters().read_buffer;
        let missing = self.held_until(&read.range)..read.range.end;
        if missing.is_empty() {
            return self.accept_read(read);
        }
        let at = self.now.max(self.heads_free);
        let (start, sectors) = self.physical(&missing);
        let kept_from = match buffer.reads_before && missing.start == read.range.start {
            true => self.mechanism.passing_before(start, at),
            false => read.range.start,
        };
        let (first, passed) = match buffer.on_arrival {
            true => self.mechanism.take_on_arrival(start, sectors, at, Purpose::Read),
            false => {
                let first = self.mechanism.reach(start, at, Purpose::Read);
                (first, self.mechanism.follow(start, sectors, first))
            }
        };
        let held = missing.start - read.range.start;
        let answered =
            self.read_answered(&read, &Coming { held, first: first.min(passed), passed });
        let work = Work::Read(read.tag);
        self.job = Some(Job { work, range: read.range, kept_from, passed, ends: passed, answered });
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
                if !self.model.parameters().read_buffer.drops_sent {
                    self.buffer.add(job.kept_from..job.range.end, Origin::Read);
                }
            }
            Work::Write(tag) => {
                self.answer(tag, job.answered);
                self.buffer.add(job.range, Origin::Written);
            }
            Work::Destage(_) => self.buffer.add(job.range, Origin::Written),
        }
        self.admit_waiting_writes();
        self.finish_flushes(self.now);
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
