//! Pairs the kernel's events into requests: queued, dispatched, completed, whatever was merged or
//! split between.
//!
//! A queued request waits here until the bytes it asks for have completed, in one piece or in
//! several, alone or inside a merged neighbour. Requests leave in the order in which they were
//! queued.
//!
//! **Invariants**: at most `OUTSTANDING_MAX` requests wait; beyond that the oldest leaves without a
//! completion, counted. `index` holds exactly the waiting requests that are not done and have a
//! length.
//!
//! **Not here**: the forms in which events are written.

use std::collections::VecDeque;

use crate::event::{Action, BlockEvent, SECTOR_BYTES};
use crate::names::Names;
use crate::record::{Op, RecordFlags, TraceRecord};
use crate::tally::Tally;
use crate::waiting::{Touched, WaitingIndex};

/// How many requests may wait for their completion, or behind one that does.
const OUTSTANDING_MAX: usize = 65_536;

/// How many completions without a request may come before a capture holds nothing else.
const ORPHANS_MAX: usize = OUTSTANDING_MAX;

/// Requests on their way.
pub(crate) struct Pairer {
    queue: VecDeque<Outstanding>,
    /// Number of the request at the front of `queue`; numbers rise by one.
    first_id: u64,
    /// What is not done, by the bytes that it touches.
    index: WaitingIndex,
    /// Flushes that are not done, oldest first.
    flushes: VecDeque<u64>,
    matches: Vec<u64>,
    orphans: Orphans,
    /// The capture has queue events: a dispatch without one is the kernel's own.
    has_queued: bool,
    remapped: Option<(u32, u64)>,
    device: Option<(u32, u16)>,
    start_ns: Option<u64>,
}

/// Completions of requests that the capture does not show.
enum Orphans {
    /// Nothing was queued or dispatched so far: the capture may hold nothing but completions.
    Held(Vec<TraceRecord>),
    /// It holds nothing else: they are the requests.
    Requests,
    /// Their requests began before the capture.
    Ignored,
}

struct Outstanding {
    record: TraceRecord,
    remaining_bytes: u64,
    done: bool,
}

impl Pairer {
    pub(crate) fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            first_id: 0,
            index: WaitingIndex::default(),
            flushes: VecDeque::new(),
            matches: Vec::new(),
            orphans: Orphans::Held(Vec::new()),
            has_queued: false,
            remapped: None,
            device: None,
            start_ns: None,
        }
    }

    /// Takes one event in.
    pub(crate) fn take(&mut self, event: &BlockEvent, names: &mut Names, tally: &mut Tally) {
        if event.action == Action::Other {
            return;
        }
        let Some(op) = event.op() else {
            tally.other_commands += u64::from(event.action == Action::Queue);
            return;
        };
        if event.end_bytes().is_none() {
            tally.impossible_ranges += 1;
            return;
        }
        let start_ns = *self.start_ns.get_or_insert(event.time_ns);
        let at_ns = event.time_ns.saturating_sub(start_ns);
        let device = self.device_index(event.device, names);
        if matches!(event.action, Action::Queue | Action::Issue) {
            self.ignore_orphans(tally);
        }
        match event.action {
            Action::Queue => self.queued(event, op, device, at_ns, names),
            Action::Issue => self.dispatched(event, op, device, at_ns, names, tally),
            Action::Complete => self.completed(event, op, device, at_ns, names, tally),
            Action::Remap => {
                tally.remaps += 1;
                self.remapped = Some((event.device, event.sector));
            }
            Action::BackMerge | Action::FrontMerge => {
                tally.merges += 1;
                self.mark(event, op, device, RecordFlags::MERGED);
            }
            Action::Split => {
                tally.splits += 1;
                self.mark(event, op, device, RecordFlags::SPLIT);
            }
            Action::Requeue => {
                tally.requeues += 1;
                self.requeued(event, op, device);
            }
            Action::Abort => self.aborted(event, op, device, tally),
            Action::Other => {}
        }
    }

    /// The oldest request, once it is done or too many wait behind it.
    pub(crate) fn ready(&mut self, tally: &mut Tally) -> Option<TraceRecord> {
        let front = self.queue.front()?;
        if front.done || self.queue.len() > OUTSTANDING_MAX { self.leave(tally) } else { None }
    }

    /// The oldest request, done or not: for the end of the trace.
    pub(crate) fn leave(&mut self, tally: &mut Tally) -> Option<TraceRecord> {
        let front = self.queue.pop_front()?;
        let id = self.first_id;
        self.first_id += 1;
        if !front.done {
            tally.incomplete += 1;
            self.forget(id, &front.record);
        }
        Some(front.record)
    }

    /// No event comes after this.
    pub(crate) fn end(&mut self, tally: &mut Tally) {
        if let Orphans::Held(held) = std::mem::replace(&mut self.orphans, Orphans::Ignored) {
            self.adopt(held, tally);
        }
    }

    fn queued(&mut self, event: &BlockEvent, op: Op, device: u16, at_ns: u64, names: &Names) {
        self.has_queued = true;
        let mut record = self.admit(event, op, device, at_ns, names);
        if self.remapped.take() == Some((event.device, event.sector)) {
            record.flags |= RecordFlags::REMAPPED;
        }
        self.enter(record);
    }

    fn dispatched(
        &mut self,
        event: &BlockEvent,
        op: Op,
        device: u16,
        at_ns: u64,
        names: &Names,
        tally: &mut Tally,
    ) {
        let is_known = match op {
            Op::Flush => self.flush_dispatched(device, at_ns) || self.has_queued,
            _ => {
                self.find(event, op, device);
                if !self.has_queued {
                    // Each is a request, but for those that come again.
                    let (queue, first_id) = (&self.queue, self.first_id);
                    self.matches.retain(|&id| {
                        queue[(id - first_id) as usize].record.dispatched_ns.is_none()
                    });
                }
                !self.matches.is_empty()
            }
        };
        if !is_known {
            tally.dispatched_unqueued += 1;
            let mut record = self.admit(event, op, device, at_ns, names);
            record.dispatched_ns = Some(at_ns);
            return self.enter(record);
        }
        if op == Op::Flush {
            return;
        }
        self.prefer(event, |waiting| waiting.record.dispatched_ns.is_none());
        for position in 0..self.matches.len() {
            let id = self.matches[position];
            self.waiting(id).record.dispatched_ns.get_or_insert(at_ns);
        }
    }

    fn completed(
        &mut self,
        event: &BlockEvent,
        op: Op,
        device: u16,
        at_ns: u64,
        names: &Names,
        tally: &mut Tally,
    ) {
        let is_known = match op {
            Op::Flush => self.flush_completed(event, device, at_ns),
            _ => self.range_completed(event, op, device, at_ns),
        };
        if !is_known {
            let mut record = self.admit(event, op, device, at_ns, names);
            record.flags |= event.outcome();
            self.orphan(record, tally);
        }
    }

    /// False where no request waits for these bytes.
    fn range_completed(&mut self, event: &BlockEvent, op: Op, device: u16, at_ns: u64) -> bool {
        self.find(event, op, device);
        let is_whole =
            |waiting: &Outstanding| waiting.remaining_bytes == waiting.record.length_bytes;
        self.prefer(event, is_whole);
        let range_end = event.sector * SECTOR_BYTES + u64::from(event.bytes);
        let mut cursor = event.sector * SECTOR_BYTES;
        for position in 0..self.matches.len() {
            let id = self.matches[position];
            let waiting = self.waiting(id);
            let from = waiting.record.offset_bytes.max(event.sector * SECTOR_BYTES);
            if from < cursor {
                continue;
            }
            let to = waiting.record.end_bytes().min(range_end);
            cursor = to;
            waiting.remaining_bytes = waiting.remaining_bytes.saturating_sub(to - from);
            waiting.record.flags |= event.outcome();
            if waiting.remaining_bytes == 0 {
                self.finish(id, at_ns);
            }
        }
        !self.matches.is_empty()
    }

    /// False where none waits for it.
    fn flush_dispatched(&mut self, device: u16, at_ns: u64) -> bool {
        let mut is_known = false;
        for position in 0..self.flushes.len() {
            let record = &mut self.waiting(self.flushes[position]).record;
            if record.device == device && record.dispatched_ns.is_none() {
                record.dispatched_ns = Some(at_ns);
                is_known = true;
            }
        }
        is_known
    }

    /// The kernel lets several flushes share one; each then tells its own end, oldest first. False
    /// where none waits.
    fn flush_completed(&mut self, event: &BlockEvent, device: u16, at_ns: u64) -> bool {
        let ours = |id: &u64| self.queue[(id - self.first_id) as usize].record.device == device;
        let Some(position) = self.flushes.iter().position(ours) else {
            return false;
        };
        let id = self.flushes[position];
        self.waiting(id).record.flags |= event.outcome();
        self.finish(id, at_ns);
        true
    }

    /// Takes in the completion of a request that does not wait here.
    fn orphan(&mut self, record: TraceRecord, tally: &mut Tally) {
        match &mut self.orphans {
            Orphans::Ignored => {
                tally.unmatched_completions += u64::from(record.op != Op::Flush);
            }
            Orphans::Requests => self.adopt(vec![record], tally),
            Orphans::Held(held) => {
                held.push(record);
                if held.len() > ORPHANS_MAX {
                    let held = std::mem::take(held);
                    self.orphans = Orphans::Requests;
                    self.adopt(held, tally);
                }
            }
        }
    }

    /// The capture shows requests: what completed before them began before it.
    fn ignore_orphans(&mut self, tally: &mut Tally) {
        let orphans = std::mem::replace(&mut self.orphans, Orphans::Ignored);
        if let Orphans::Held(held) = orphans {
            held.into_iter().for_each(|record| self.orphan(record, tally));
        }
    }

    fn adopt(&mut self, orphans: Vec<TraceRecord>, tally: &mut Tally) {
        tally.completed_unqueued += orphans.len() as u64;
        let done = |record| Outstanding { record, remaining_bytes: 0, done: true };
        self.queue.extend(orphans.into_iter().map(done));
    }

    fn mark(&mut self, event: &BlockEvent, op: Op, device: u16, flag: RecordFlags) {
        self.find(event, op, device);
        for position in 0..self.matches.len() {
            let id = self.matches[position];
            let waiting = self.waiting(id);
            if waiting.record.offset_bytes == event.sector * SECTOR_BYTES {
                waiting.record.flags |= flag;
            }
        }
    }

    fn requeued(&mut self, event: &BlockEvent, op: Op, device: u16) {
        self.find(event, op, device);
        for position in 0..self.matches.len() {
            let id = self.matches[position];
            let record = &mut self.waiting(id).record;
            record.dispatched_ns = None;
            record.flags |= RecordFlags::REQUEUED;
        }
    }

    fn aborted(&mut self, event: &BlockEvent, op: Op, device: u16, tally: &mut Tally) {
        tally.aborts += 1;
        self.find(event, op, device);
        for position in 0..self.matches.len() {
            let id = self.matches[position];
            let waiting = self.waiting(id);
            waiting.record.flags |= RecordFlags::FAILED;
            waiting.done = true;
            let record = waiting.record;
            self.forget(id, &record);
        }
    }

    fn admit(
        &mut self,
        event: &BlockEvent,
        op: Op,
        device: u16,
        at_ns: u64,
        names: &Names,
    ) -> TraceRecord {
        let is_flush = op == Op::Flush;
        TraceRecord {
            issued_ns: at_ns,
            offset_bytes: if is_flush { 0 } else { event.sector * SECTOR_BYTES },
            length_bytes: u64::from(event.bytes),
            dispatched_ns: None,
            completed_ns: None,
            process: names.issuer(event.pid),
            device,
            queue: u16::try_from(event.cpu).unwrap_or(u16::MAX),
            op,
            flags: event.flags(),
        }
    }

    fn enter(&mut self, record: TraceRecord) {
        let id = self.first_id + self.queue.len() as u64;
        if record.op == Op::Flush {
            self.flushes.push_back(id);
        } else {
            self.index.insert(id, touched(&record));
        }
        let remaining_bytes = record.length_bytes;
        self.queue.push_back(Outstanding { record, remaining_bytes, done: false });
    }

    /// Fills `matches` with the waiting requests of this kind that the event's range touches, by
    /// offset and age.
    #[inline]
    fn find(&mut self, event: &BlockEvent, op: Op, device: u16) {
        self.matches.clear();
        let start = event.sector * SECTOR_BYTES;
        let end = (start + u64::from(event.bytes)).max(start.saturating_add(1));
        self.index.find(Touched { device, start, end }, &mut self.matches);
        let (queue, first_id) = (&self.queue, self.first_id);
        let record = |id: u64| &queue[(id - first_id) as usize].record;
        self.matches.retain(|&id| {
            let record = record(id);
            let is_kin = record.op == op && record.device == device;
            is_kin && record.offset_bytes < end && record.end_bytes() > start
        });
        if self.matches.len() > 1 {
            self.matches.sort_unstable_by_key(|&id| (record(id).offset_bytes, id));
            self.matches.dedup();
        }
    }

    /// Of several matches, the oldest that is exactly the event's range is the one, where it fits.
    /// (The others touch it by overlapping requests, not by a merge.)
    fn prefer(&mut self, event: &BlockEvent, fits: impl Fn(&Outstanding) -> bool) {
        if self.matches.len() < 2 {
            return;
        }
        let start = event.sector * SECTOR_BYTES;
        let is_it = |id: &u64| {
            let waiting = &self.queue[(id - self.first_id) as usize];
            let record = &waiting.record;
            let is_exact =
                record.offset_bytes == start && record.length_bytes == u64::from(event.bytes);
            is_exact && fits(waiting)
        };
        if let Some(id) = self.matches.iter().copied().filter(is_it).min() {
            self.matches.clear();
            self.matches.push(id);
        }
    }

    fn finish(&mut self, id: u64, at_ns: u64) {
        let waiting = self.waiting(id);
        waiting.done = true;
        waiting.record.completed_ns = Some(at_ns.max(waiting.record.issued_ns));
        let record = waiting.record;
        self.forget(id, &record);
    }

    fn forget(&mut self, id: u64, record: &TraceRecord) {
        if record.op == Op::Flush {
            self.flushes.retain(|&flush| flush != id);
        } else {
            self.index.remove(id, touched(record));
        }
    }

    fn waiting(&mut self, id: u64) -> &mut Outstanding {
        &mut self.queue[(id - self.first_id) as usize]
    }

    fn device_index(&mut self, device: u32, names: &mut Names) -> u16 {
        if let Some((known, index)) = self.device
            && known == device
        {
            return index;
        }
        let index = names.number_index(device);
        self.device = Some((device, index));
        index
    }
}

fn touched(record: &TraceRecord) -> Touched {
    Touched { device: record.device, start: record.offset_bytes, end: record.end_bytes() }
}

#[cfg(test)]
#[path = "pair_tests.rs"]
mod tests;
