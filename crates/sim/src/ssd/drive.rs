//! One drive: commands on their way through link, buffer and flash.

use super::collector::Collector;
use super::flash::{Flash, Program, Purpose, Read, Work};
use super::model::{SsdModel, UNIT_BYTES, nanos};
use super::parameters::{SlcParameters, State};
use crate::Random;
use crate::command::{Answer, Command, CommandKind, Machine, Tag};
use headpond_block::{ByteRange, Instant};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::rc::Rc;

/// One drive of a model; see the module for its rules.
#[derive(Clone, Debug)]
pub struct SsdDrive {
    model: Rc<SsdModel>,
    random: Random,
    /// Everything before this time has happened.
    now: u64,
    next_tag: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    next_event: u64,
    ready: BinaryHeap<Reverse<Answer>>,
    /// Commands beyond the queue depth, or behind a flush that runs alone.
    outside: VecDeque<WaitingRequest>,
    in_flight: usize,
    runs_alone: bool,
    firmware: u64,
    link_in: u64,
    link_out: u64,
    /// Where the last write ended.
    written_to: u64,
    flash: Flash,
    space: Collector,
    reads: BTreeMap<u64, PendingRead>,
    buffer: Buffer,
    /// Programs that have not ended and that a flush may wait for.
    programming: BTreeSet<u64>,
    next_program: u64,
    flushes: Vec<PendingFlush>,
    /// Something was programmed whose place only the volatile map knows.
    journal_is_behind: bool,
    /// Writes that must be on the flash one after the other.
    commits: VecDeque<WaitingRequest>,
    commit: Option<PendingFlush>,
    copies: Copies,
    slc: Option<Slc>,
    last_command: u64,
}

#[derive(Clone, Copy, Debug)]
struct WaitingRequest {
    tag: Tag,
    command: Command,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A read has gone through the firmware.
    ReadBegins(u64),
    DieDone(usize),
    Answer(Tag),
    /// Perhaps nothing has been asked since then.
    IdleSince(u64),
}

#[derive(Clone, Copy, Debug)]
struct PendingRead {
    tag: Tag,
    range: ByteRange,
    parts: u64,
    ends: u64,
}

#[derive(Clone, Copy, Debug)]
struct PendingFlush {
    tag: Tag,
    /// Programs with smaller numbers must have ended.
    before: u64,
}

/// The write buffer.
#[derive(Clone, Debug, Default)]
struct Buffer {
    bytes: u64,
    bytes_max: u64,
    /// Of these, what no program has taken yet.
    loose: u64,
    /// Writes of which a part has no room yet.
    roomless: VecDeque<Roomless>,
}

#[derive(Clone, Copy, Debug)]
struct Roomless {
    tag: Tag,
    left: u64,
    /// When the link has carried all of it.
    arrives: u64,
}

/// What collection has copied and no program has taken yet.
#[derive(Clone, Copy, Debug, Default)]
struct Copies {
    units: u64,
    page_reads: f64,
}

#[derive(Clone, Debug)]
struct Slc {
    parameters: SlcParameters,
    used_units: u64,
    is_folding: bool,
}

impl Machine for SsdDrive {
    fn submit(&mut self, now: Instant, command: Command) -> Tag {
        assert!(command.range.end() <= self.model.size_bytes(), "inside the drive");
        self.catch_up(now.as_nanos());
        let tag = Tag(self.next_tag);
        self.next_tag += 1;
        self.last_command = self.now;
        self.outside.push_back(WaitingRequest { tag, command });
        self.admit();
        tag
    }

    fn next_answer(&self) -> Option<Instant> {
        let ready = self.ready.peek().map(|Reverse(answer)| answer.at.as_nanos());
        let waits = self.in_flight > 0 || !self.outside.is_empty();
        let event = self.events.peek().filter(|_| waits).map(|Reverse((at, _, _))| *at);
        ready.into_iter().chain(event).min().map(Instant::from_nanos)
    }

    fn take_answer(&mut self, now: Instant) -> Option<Answer> {
        self.catch_up(now.as_nanos());
        self.ready.pop().map(|Reverse(answer)| answer)
    }

    fn takes_discards(&self) -> bool {
        true
    }

    fn is_sent_flushes(&self) -> bool {
        self.model.reports_a_cache()
    }
}

impl SsdDrive {
    /// A drive at rest in `state`; what is not known exactly is drawn from `seed`.
    pub fn new(model: Rc<SsdModel>, state: State, seed: u64) -> Self {
        let parameters = model.parameters();
        let buffer_bytes = u64::from(parameters.write_cache.capacity_kib) * 1024;
        let slc = parameters.slc.clone();
        Self {
            random: Random::new(seed),
            now: 0,
            next_tag: 0,
            events: BinaryHeap::new(),
            next_event: 0,
            ready: BinaryHeap::new(),
            outside: VecDeque::new(),
            in_flight: 0,
            runs_alone: false,
            firmware: 0,
            link_in: 0,
            link_out: 0,
            written_to: 0,
            flash: Flash::new(Rc::clone(&model)),
            space: Collector::new(&model, state),
            reads: BTreeMap::new(),
            buffer: Buffer { bytes_max: buffer_bytes, ..Buffer::default() },
            programming: BTreeSet::new(),
            next_program: 0,
            flushes: Vec::new(),
            journal_is_behind: false,
            commits: VecDeque::new(),
            commit: None,
            copies: Copies::default(),
            slc: slc.map(|parameters| Slc { parameters, used_units: 0, is_folding: false }),
            last_command: 0,
            model,
        }
    }

    pub fn model(&self) -> &Rc<SsdModel> {
        &self.model
    }

    fn catch_up(&mut self, now: u64) {
        while let Some(Reverse((at, _, _))) = self.events.peek()
            && *at <= now
        {
            let Some(Reverse((at, _, event))) = self.events.pop() else { unreachable!("peeked") };
            self.now = self.now.max(at);
            self.happen(event);
        }
        self.now = self.now.max(now);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::ReadBegins(number) => self.read_pages(number),
            Event::DieDone(die) => self.die_done(die),
            Event::Answer(tag) => {
                self.in_flight -= 1;
                self.runs_alone = false;
                self.ready.push(Reverse(Answer { at: Instant::from_nanos(self.now), tag }));
                self.admit();
                self.notice_idleness();
            }
            Event::IdleSince(since) => {
                if self.is_idle() && self.last_command <= since {
                    self.fold();
                }
            }
        }
    }

    fn at(&mut self, time: u64, event: Event) {
        self.next_event += 1;
        self.events.push(Reverse((time.max(self.now), self.next_event, event)));
    }

    fn answer(&mut self, tag: Tag, at: u64) {
        self.at(at, Event::Answer(tag));
    }

    /// Takes in what waits outside, as far as it may.
    fn admit(&mut self) {
        let depth = self.model.parameters().interface.queue_depth;
        while let Some(next) = self.outside.front().copied()
            && self.in_flight < depth
            && !self.runs_alone
        {
            let wants_alone = next.command.kind == CommandKind::Flush && self.model.is_sata();
            if wants_alone && self.in_flight > 0 {
                return;
            }
            self.outside.pop_front();
            self.in_flight += 1;
            self.runs_alone = wants_alone;
            self.begin(next);
        }
    }

    fn begin(&mut self, waiting: WaitingRequest) {
        match waiting.command.kind {
            CommandKind::Read => self.begin_read(waiting),
            CommandKind::Write | CommandKind::WriteThrough => self.begin_write(waiting),
            CommandKind::Flush => {
                let flush_ns = nanos(self.model.parameters().controller.flush_us);
                match self.model.flushes_are_free() {
                    true => self.answer(waiting.tag, self.now + flush_ns),
                    false => self.flush(waiting.tag),
                }
            }
            CommandKind::Discard => {
                let write_ns = nanos(self.model.parameters().controller.write_us);
                let Self { space, random, .. } = self;
                // Only whole units can be given back.
                let range = waiting.command.range;
                let units = range.start().div_ceil(UNIT_BYTES)..range.end() / UNIT_BYTES;
                units.for_each(|unit| space.discard(unit, random));
                self.answer(waiting.tag, self.now + write_ns);
            }
        }
    }

    /// When the firmware has taken a command up; it does so many a second.
    fn firmware_turn(&mut self, iops_max: f64) -> u64 {
        let begin = self.firmware.max(self.now);
        self.firmware = begin + (1e9 / iops_max) as u64;
        begin
    }

    fn begin_read(&mut self, waiting: WaitingRequest) {
        let controller = &self.model.parameters().controller;
        let (iops_max, read_ns) = (controller.read_iops_max, nanos(controller.read_us));
        let begins = self.firmware_turn(iops_max) + read_ns;
        let number = waiting.tag.0;
        let range = waiting.command.range;
        let pending = PendingRead { tag: waiting.tag, range, parts: 0, ends: begins };
        self.reads.insert(number, pending);
        self.at(begins, Event::ReadBegins(number));
    }

    fn read_pages(&mut self, number: u64) {
        let page_bytes = u64::from(self.model.parameters().flash.page_kib) * 1024;
        let pending = self.reads.get_mut(&number).expect("it waits");
        let range = pending.range;
        pending.parts = range.end().div_ceil(page_bytes) - range.start() / page_bytes;
        for part in range.split_at_multiples(page_bytes) {
            if !self.space.is_mapped(part.start() / UNIT_BYTES) {
                self.part_read(number, self.now, part.len());
                continue;
            }
            let page = part.start() / page_bytes;
            let die = self.flash.die_of(page);
            let read = Read { command: number, page, bytes: part.len() };
            if let Some(ends) = self.flash.read(die, read, self.now) {
                self.at(ends, Event::DieDone(die));
            }
        }
    }

    /// A part of a read is out of the flash at `from`, and crosses the link.
    fn part_read(&mut self, number: u64, from: u64, bytes: u64) {
        let takes = self.model.out_ns(bytes);
        let link = if self.model.is_sata() { &mut self.link_in } else { &mut self.link_out };
        *link = (*link).max(from) + takes;
        let ends = *link;
        let pending = self.reads.get_mut(&number).expect("it waits");
        pending.ends = pending.ends.max(ends);
        pending.parts -= 1;
        if pending.parts == 0 {
            let (tag, ends) = (pending.tag, pending.ends);
            self.reads.remove(&number);
            self.answer(tag, ends);
        }
    }

    fn begin_write(&mut self, waiting: WaitingRequest) {
        let range = waiting.command.range;
        let controller = &self.model.parameters().controller;
        let (iops_max, write_ns) = (controller.write_iops_max, nanos(controller.write_us));
        let turn = self.firmware_turn(iops_max);
        self.link_in = self.link_in.max(self.now) + self.model.in_ns(range.len());
        let is_fua = waiting.command.kind == CommandKind::WriteThrough;
        let is_alone = self.model.writes_through() || is_fua;
        let held = self.map_units(range, is_alone);
        if self.model.writes_through() {
            self.commits.push_back(waiting);
            self.commit_next();
            return;
        }
        if is_fua && !self.model.flushes_are_free() {
            self.buffer.bytes += held;
            self.buffer.loose += held;
            self.flush(waiting.tag);
            return;
        }
        let arrived = self.link_in.max(turn) + write_ns;
        match self.take_in(held) {
            0 => self.answer(waiting.tag, arrived),
            left => {
                let roomless = Roomless { tag: waiting.tag, left, arrives: arrived };
                self.buffer.roomless.push_back(roomless);
            }
        }
        self.program_whole_units();
    }

    /// Maps what a write touches, and says how many bytes it takes: whole units, but not again that
    /// which the write before it ended in, unless it has to be on the flash by itself.
    fn map_units(&mut self, range: ByteRange, is_alone: bool) -> u64 {
        let Self { space, random, written_to, .. } = self;
        let goes_on = !is_alone && range.start() == *written_to;
        let first =
            if goes_on { written_to.div_ceil(UNIT_BYTES) } else { range.start() / UNIT_BYTES };
        let units = first..range.end().div_ceil(UNIT_BYTES);
        *written_to = range.end();
        let bytes = (units.end - first) * UNIT_BYTES;
        units.for_each(|unit| space.write(unit, random));
        bytes
    }

    /// Takes bytes into the buffer, behind those that wait; how many find no room.
    fn take_in(&mut self, bytes: u64) -> u64 {
        let buffer = &mut self.buffer;
        let free = if buffer.roomless.is_empty() {
            buffer.bytes_max.saturating_sub(buffer.bytes)
        } else {
            0
        };
        let taken = bytes.min(free);
        buffer.bytes += taken;
        buffer.loose += taken;
        bytes - taken
    }

    /// Room has come free.
    fn take_in_roomless(&mut self) {
        let write_ns = nanos(self.model.parameters().controller.write_us);
        while let Some(mut next) = self.buffer.roomless.pop_front() {
            let taken = next.left.min(self.buffer.bytes_max.saturating_sub(self.buffer.bytes));
            self.buffer.bytes += taken;
            self.buffer.loose += taken;
            next.left -= taken;
            if next.left > 0 {
                self.buffer.roomless.push_front(next);
                return;
            }
            self.answer(next.tag, next.arrives.max(self.now + write_ns));
        }
    }

    /// What the next program of host data takes, and how long: one bit a cell while there is room.
    fn program_shape(&self) -> (u64, u64, bool) {
        let slc = self.slc.as_ref().filter(|slc| slc.used_units < self.slc_units(slc));
        match slc {
            Some(slc) => {
                let parameters = &slc.parameters;
                (u64::from(parameters.program_kib) * 1024, nanos(parameters.program_us), true)
            }
            None => (self.model.program_units * UNIT_BYTES, self.model.program_ns, false),
        }
    }

    fn slc_units(&self, slc: &Slc) -> u64 {
        let units = self.model.size_bytes() / UNIT_BYTES;
        let empty = 1.0 - self.space.occupancy(units);
        let mib = slc.parameters.static_mib as f64 + slc.parameters.dynamic_mib as f64 * empty;
        (mib * (1u64 << 20) as f64) as u64 / UNIT_BYTES
    }

    fn program_whole_units(&mut self) {
        loop {
            let (bytes, takes_ns, _) = self.program_shape();
            // A buffer too small for a whole unit is programmed as it comes.
            if self.buffer.loose < bytes.min(self.buffer.bytes_max) {
                return;
            }
            self.program_host(bytes.min(self.buffer.loose), bytes, takes_ns);
        }
    }

    /// Programs `bytes` of the buffer; the rest of the unit stays empty.
    fn program_host(&mut self, bytes: u64, unit_bytes: u64, takes_ns: u64) {
        let (_, _, is_slc) = self.program_shape();
        self.buffer.loose -= bytes;
        let padding = (unit_bytes - bytes) / UNIT_BYTES;
        self.space.pad(padding);
        if let Some(slc) = self.slc.as_mut().filter(|_| is_slc) {
            slc.used_units += unit_bytes / UNIT_BYTES;
        }
        self.journal_is_behind = true;
        self.program(Purpose::Host, bytes, takes_ns);
        self.collect(unit_bytes / UNIT_BYTES);
    }

    fn program(&mut self, purpose: Purpose, bytes: u64, takes_ns: u64) {
        let number = self.next_program;
        self.next_program += 1;
        if matches!(purpose, Purpose::Host | Purpose::Journal) {
            self.programming.insert(number);
        }
        let program = Program { number, purpose, bytes, takes_ns };
        let (die, ends) = self.flash.program(program, self.now);
        if let Some(ends) = ends {
            self.at(ends, Event::DieDone(die));
        }
    }

    /// Collects garbage for so much space that was used up.
    fn collect(&mut self, units: u64) {
        let collected = self.space.collect(units);
        self.copies.units += collected.units;
        self.copies.page_reads += collected.page_reads;
        let unit = self.model.program_units;
        while self.copies.units >= unit {
            let share = unit as f64 / self.copies.units as f64;
            let page_reads = self.copies.page_reads * share;
            self.copies.units -= unit;
            self.copies.page_reads -= page_reads;
            let reads_ns = (page_reads * self.model.read_ns as f64) as u64;
            // What is copied leaves one die and goes to another: it crosses the channels twice.
            let takes_ns = reads_ns + self.model.program_ns;
            self.program(Purpose::Collection, 2 * unit * UNIT_BYTES, takes_ns);
        }
        for _ in 0..collected.superblocks_erased {
            let mut begun = Vec::new();
            self.flash.erase_everywhere(self.now, &mut begun);
            begun.into_iter().for_each(|(die, ends)| self.at(ends, Event::DieDone(die)));
        }
    }

    /// Programs all that is in the buffer and what the map needs to find it again.
    fn flush(&mut self, tag: Tag) {
        self.program_loose();
        if std::mem::take(&mut self.journal_is_behind) {
            let bytes = u64::from(self.model.parameters().flash.page_kib) * 1024;
            let (_, takes_ns, _) = self.program_shape();
            self.program(Purpose::Journal, bytes, takes_ns);
        }
        self.flushes.push(PendingFlush { tag, before: self.next_program });
        self.end_flushes();
    }

    fn program_loose(&mut self) {
        while self.buffer.loose > 0 {
            let (bytes, takes_ns, _) = self.program_shape();
            self.program_host(bytes.min(self.buffer.loose), bytes, takes_ns);
        }
    }

    fn end_flushes(&mut self) {
        let flush_ns = nanos(self.model.parameters().controller.flush_us);
        let oldest = self.programming.first().copied().unwrap_or(u64::MAX);
        let (ended, waiting): (Vec<_>, Vec<_>) =
            self.flushes.drain(..).partition(|flush| oldest >= flush.before);
        self.flushes = waiting;
        ended.iter().for_each(|flush| self.answer(flush.tag, self.now + flush_ns));
        if let Some(commit) = self.commit.filter(|commit| oldest >= commit.before) {
            self.commit = None;
            let write_ns = nanos(self.model.parameters().controller.write_us);
            self.answer(commit.tag, self.now + write_ns);
            self.commit_next();
        }
    }

    /// Begins the next write of a drive whose cache is off.
    fn commit_next(&mut self) {
        if self.commit.is_some() {
            return;
        }
        let Some(next) = self.commits.pop_front() else { return };
        let range = next.command.range;
        let units = range.end().div_ceil(UNIT_BYTES) - range.start() / UNIT_BYTES;
        self.buffer.bytes += units * UNIT_BYTES;
        self.buffer.loose += units * UNIT_BYTES;
        self.program_loose();
        let bytes = u64::from(self.model.parameters().flash.page_kib) * 1024;
        let (_, takes_ns, _) = self.program_shape();
        self.program(Purpose::Journal, bytes, takes_ns);
        self.commit = Some(PendingFlush { tag: next.tag, before: self.next_program });
    }

    fn die_done(&mut self, die: usize) {
        let (work, next) = self.flash.done(die, self.now);
        if let Some(ends) = next {
            self.at(ends, Event::DieDone(die));
        }
        match work {
            Work::Read(read) => {
                let carried = self.flash.carry(die, read.bytes, self.now);
                self.part_read(read.command, carried, read.bytes);
            }
            Work::Program(program) => self.programmed(program),
        }
    }

    fn programmed(&mut self, program: Program) {
        match program.purpose {
            Purpose::Host => {
                self.programming.remove(&program.number);
                self.buffer.bytes -= program.bytes;
                self.take_in_roomless();
                self.program_whole_units();
                self.end_flushes();
            }
            Purpose::Journal => {
                self.programming.remove(&program.number);
                self.end_flushes();
            }
            Purpose::Collection => {}
            Purpose::Folding => {
                let slc = self.slc.as_mut().expect("something was folded");
                slc.is_folding = false;
                if self.is_idle() {
                    self.fold();
                } else {
                    self.notice_idleness();
                }
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.outside.is_empty()
    }

    fn notice_idleness(&mut self) {
        let Some(slc) = self.slc.as_ref().filter(|slc| slc.used_units > 0) else { return };
        if self.is_idle() {
            let at = self.now + nanos(slc.parameters.idle_ms * 1e3);
            self.at(at, Event::IdleSince(self.now));
        }
    }

    /// Folds a stripe over all dies; the next one follows when the last of its programs is done.
    fn fold(&mut self) {
        let unit = self.model.program_units;
        let dies = self.model.dies as u64;
        let pages = unit * UNIT_BYTES / (u64::from(self.model.parameters().flash.page_kib) * 1024);
        let takes_ns = pages.max(1) * self.model.read_ns + self.model.program_ns;
        let Some(slc) = self.slc.as_mut().filter(|slc| slc.used_units > 0 && !slc.is_folding)
        else {
            return;
        };
        slc.used_units = slc.used_units.saturating_sub(unit * dies);
        slc.is_folding = true;
        // All dies work alike, so one of them speaks for the stripe.
        for _ in 1..dies {
            self.program(Purpose::Collection, 2 * unit * UNIT_BYTES, takes_ns);
        }
        self.program(Purpose::Folding, 2 * unit * UNIT_BYTES, takes_ns);
    }
}
