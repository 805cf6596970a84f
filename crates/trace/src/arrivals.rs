//! From lines or records to requests: names, order, and times from the start of the trace.
//!
//! **Invariants**: requests address no byte beyond 2^64, and do not end before they begin.

use crate::damage::DamageCounts;
use crate::event::BATCH;
use crate::names::Names;
use crate::order::{OrderWindow, Timed};
use crate::record::{Op, RecordFlags, TraceRecord};
use crate::tally::Tally;

/// The largest displacement of a request that is corrected.
const WINDOW_REQUESTS: usize = 128;

/// One request as in its format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival<'a> {
    /// In the clock of the trace.
    pub at_ns: u64,
    pub op: Op,
    pub offset_bytes: u64,
    pub length_bytes: u64,
    pub flags: RecordFlags,
    /// From issue to dispatch, where the format has it.
    pub queue_ns: Option<u64>,
    /// From issue to completion, likewise.
    pub response_ns: Option<u64>,
    /// The device's name in the format; empty where there is only one.
    pub device: &'a [u8],
}

/// What one line or record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry<'a> {
    Request(Arrival<'a>),
    /// Nothing that concerns a request.
    Remark,
    /// A command that moves no data.
    OtherCommand,
    Damaged,
}

/// Pending requests.
pub(crate) struct Arrivals {
    window: OrderWindow<TraceRecord>,
    start_ns: Option<u64>,
    last_device: (Vec<u8>, u16),
    pub(crate) names: Names,
    pub(crate) tally: Tally,
}

impl Timed for TraceRecord {
    fn time_ns(&self) -> u64 {
        self.issued_ns
    }
}

impl<'a> Arrival<'a> {
    pub(crate) fn new(at_ns: u64, op: Op, offset_bytes: u64, length_bytes: u64) -> Self {
        Self {
            at_ns,
            op,
            offset_bytes,
            length_bytes,
            flags: RecordFlags::empty(),
            queue_ns: None,
            response_ns: None,
            device: b"",
        }
    }

    /// The request, where its range is possible.
    pub(crate) fn checked(self) -> Entry<'a> {
        match self.offset_bytes.checked_add(self.length_bytes) {
            Some(_) => Entry::Request(self),
            None => Entry::Damaged,
        }
    }
}

impl Arrivals {
    pub(crate) fn new() -> Self {
        Self {
            window: OrderWindow::new(WINDOW_REQUESTS),
            start_ns: None,
            last_device: (Vec::new(), 0),
            names: Names::default(),
            tally: Tally::default(),
        }
    }

    /// Adds a request, and moves the earliest to `batch` once enough are pending.
    #[inline]
    pub(crate) fn push(&mut self, arrival: &Arrival<'_>, batch: &mut Vec<TraceRecord>) {
        let mut record =
            TraceRecord::new(arrival.at_ns, arrival.op, arrival.offset_bytes, arrival.length_bytes);
        record.device = self.device(arrival.device);
        record.flags = arrival.flags;
        record.dispatched_ns = arrival.queue_ns.map(|queue| arrival.at_ns.saturating_add(queue));
        record.completed_ns = arrival.response_ns.map(|after| arrival.at_ns.saturating_add(after));
        if let Some(earliest) = self.window.push(record) {
            self.give(earliest, batch);
        }
    }

    /// At the end of the input, moves pending requests to `batch`, up to [`BATCH`] per call;
    /// returns whether more are pending.
    pub(crate) fn drain(&mut self, batch: &mut Vec<TraceRecord>) -> bool {
        while batch.len() < BATCH {
            let Some(earliest) = self.window.pop() else {
                self.tally.out_of_order += self.window.take_out_of_order();
                return false;
            };
            self.give(earliest, batch);
        }
        true
    }

    /// Counts skipped damage.
    pub(crate) fn passed_over(&mut self, damage: DamageCounts) {
        self.tally.note_damage(damage);
    }

    /// Times before the first request become 0.
    #[inline]
    fn give(&mut self, record: TraceRecord, batch: &mut Vec<TraceRecord>) {
        let start_ns = *self.start_ns.get_or_insert(record.issued_ns);
        batch.push(record);
        let Some(record) = batch.last_mut() else {
            return;
        };
        for at_ns in [&mut record.dispatched_ns, &mut record.completed_ns].into_iter().flatten() {
            *at_ns = at_ns.saturating_sub(start_ns);
        }
        record.issued_ns = record.issued_ns.saturating_sub(start_ns);
    }

    #[inline]
    fn device(&mut self, name: &[u8]) -> u16 {
        if name.is_empty() {
            return 0;
        }
        if self.last_device.0 != name {
            self.last_device.0.clear();
            self.last_device.0.extend_from_slice(name);
            self.last_device.1 = self.names.device_index(&String::from_utf8_lossy(name));
        }
        self.last_device.1
    }
}
