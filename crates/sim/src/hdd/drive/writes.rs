//! When a write is taken into the cache, and when unwritten data goes to the medium.

use super::{DESTAGE_SECTORS_MAX, Drive, Job, WaitingRequest, Work};
use crate::command::CommandKind;
use crate::hdd::layout::Sector;
use crate::hdd::mechanism::Purpose;
use crate::hdd::overheads::Way;
use crate::hdd::parameters::WriteSegmentParameters;
use std::ops::Range;

/// When the data of a write comes: at once, where it is in the cache.
#[derive(Clone, Copy, Debug, Default)]
struct Arrival {
    /// From then on the medium need not wait for it.
    keeps_up: u64,
    complete: u64,
    /// To take up the interface again for the answer.
    reconnect_ns: u64,
}

impl Drive {
    /// What becomes of a kind on this drive: a write passes the cache where that is off or too
    /// small.
    pub(super) fn effective(&self, kind: CommandKind, range: &Range<Sector>) -> CommandKind {
        let cache = &self.model.parameters().write_cache;
        let sectors = range.end - range.start;
        let cached = cache.enabled
            && match cache.segments.is_some() {
                true => sectors <= self.segment_sectors(),
                false => self.cache.may_hold(sectors),
            };
        match kind {
            CommandKind::Write if !cached => CommandKind::WriteThrough,
            kind => kind,
        }
    }

    fn segment_sectors(&self) -> u64 {
        self.model.parameters().read_buffer.segment_sectors()
    }

    /// Sectors that a segment would hold in which the range joins what is unwritten.
    fn joined(&self, rules: &WriteSegmentParameters, range: &Range<Sector>) -> Option<u64> {
        let touching = self.cache.sectors_touching(range);
        let leaving = self.leaving().filter(|leaving| leaving.end == range.start);
        let before = touching + leaving.map_or(0, |leaving| leaving.end - leaving.start);
        (rules.combines && before > 0).then_some(before + range.end - range.start)
    }

    fn has_room(&self, range: &Range<Sector>) -> bool {
        let cache = &self.model.parameters().write_cache;
        let Some(rules) = &cache.segments else { return self.cache.has_room(range) };
        match self.joined(rules, range) {
            Some(sectors) => sectors <= self.segment_sectors(),
            None if rules.streams_only => self.segments_used(rules) == 0,
            None => self.segments_used(rules) < cache.runs_max,
        }
    }

    fn segments_used(&self, rules: &WriteSegmentParameters) -> usize {
        let continued = |end| rules.combines && self.cache.has_run_at(end);
        let apart = self.leaving().is_some_and(|leaving| !continued(leaving.end));
        self.cache.runs() + usize::from(apart)
    }

    /// What is being written back.
    pub(super) fn leaving(&self) -> Option<&Range<Sector>> {
        let is_destage = |job: &&Job| matches!(job.work, Work::Destage(_));
        self.job.as_ref().filter(is_destage).map(|job| &job.range)
    }

    /// A write is about to change what was read.
    pub(super) fn replace(&mut self, kind: CommandKind, range: &Range<Sector>) {
        let buffer = &self.model.parameters().read_buffer;
        if buffer.written_segments.is_none() {
            return;
        }
        match kind == CommandKind::Write && buffer.reads_on_in_writes {
            true => self.protect_read_ahead(),
            false => self.stop_reading_ahead(),
        }
        self.buffer.forget(range);
    }

    pub(super) fn accept_cached_write(&mut self, write: WaitingRequest) {
        if self.roomless.is_empty() && self.has_room(&write.range) {
            self.admit(write);
        } else {
            self.roomless.push_back(write);
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

    pub(super) fn admit_waiting_writes(&mut self) {
        while self.roomless.front().is_some_and(|write| self.has_room(&write.range)) {
            let write = self.roomless.pop_front().expect("there is a front");
            self.admit(write);
        }
    }

    /// Whether unwritten data competes with commands.
    pub(super) fn destage_presses(&self) -> bool {
        !self.roomless.is_empty() || !self.flushes.is_empty() || self.writes_first()
    }

    /// Whether commands wait until all is written.
    pub(super) fn writes_first(&self) -> bool {
        let has_segments = self.model.parameters().write_cache.segments.is_some();
        has_segments && !self.cache.is_empty() && !self.queue.is_empty()
    }

    pub(super) fn begin_destage(&mut self, start: Sector) {
        self.stop_reading_ahead();
        let (range, oldest) = self.cache.take(start, DESTAGE_SECTORS_MAX);
        self.begin_write(Work::Destage(oldest), &range, Arrival::default());
    }

    /// A write past the cache.
    pub(super) fn begin_write_through(&mut self, write: &WaitingRequest) {
        self.cache.remove(&write.range);
        let overheads = &self.model.overheads;
        let complete = self.sent(Way::Write, write.ready, write.range.end - write.range.start);
        let settled = self.settled(write.range.start);
        let reconnect_ns = match overheads.stays_connected_in_seek && complete < settled {
            true => 0,
            false => overheads.reconnect_ns,
        };
        let arrival = Arrival { keeps_up: self.data_keeps_up(write), complete, reconnect_ns };
        self.begin_write(Work::Write(write.tag), &write.range, arrival);
    }

    /// When the heads could write on the track of a sector.
    fn settled(&self, sector: Sector) -> u64 {
        let place = self.model.layout().place(sector);
        self.mechanism.arrives(place, self.now.max(self.heads_free), Purpose::Write)
    }

    /// Before this time a write past the cache cannot begin: its data would not keep up.
    fn data_keeps_up(&self, write: &WaitingRequest) -> u64 {
        let sectors = write.range.end - write.range.start;
        let place = self.model.layout().place(write.range.start);
        let sector_ns = self.model.revolution_ns() / u64::from(place.sectors_per_track);
        let sent = self.sent(Way::Write, write.ready, sectors);
        sent.saturating_sub((sectors - 1) * sector_ns).max(self.sent(Way::Write, write.ready, 1))
    }

    fn begin_write(&mut self, work: Work, range: &Range<Sector>, arrival: Arrival) {
        let (start, sectors) = self.physical(range);
        let settled = self.settled(start);
        let mut at = self.now.max(self.heads_free);
        if (start, sectors) != (range.start, range.end - range.start) {
            // Part of a physical sector is read, changed and written a turn later.
            let first = self.mechanism.reach(start, at, Purpose::Read);
            at = self.mechanism.follow(start, sectors, first);
        }
        let on_arrival = self.model.parameters().write_cache.on_arrival;
        let passed = match on_arrival && arrival.complete <= settled {
            true => self.mechanism.take_on_arrival(start, sectors, at, Purpose::Write).1,
            false => {
                let not_before = arrival.keeps_up;
                let first = self.mechanism.reach_late(start, at, Purpose::Write, not_before);
                self.mechanism.follow(start, sectors, first)
            }
        };
        let completion_ns = self.model.overheads.completion_ns(Way::Write);
        let answered = passed + arrival.reconnect_ns + completion_ns;
        let (range, kept_from) = (range.clone(), range.start);
        self.job = Some(Job { work, range, kept_from, passed, ends: passed, answered });
    }
}
