//! The decorator.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use headpond_block::{
    BlockDevice, Buffer, ByteRange, DeviceName, Geometry, Instant, Outcome, Request, RequestFlags,
    RequestKind, Runtime, Submission,
};

use super::recorder::{Recorder, Session};
use crate::record::{Op, RecordFlags, TraceRecord};

/// Passes requests to `inner` and notes them while it has a recorder.
pub struct CaptureDevice {
    inner: Rc<dyn BlockDevice>,
    runtime: Runtime,
    queue: u16,
    active: RefCell<Option<Rc<Active>>>,
}

/// A capture under way. Requests in flight keep it until they have ended.
struct Active {
    session: RefCell<Session>,
    start: Instant,
    noted: Cell<u64>,
}

impl CaptureDevice {
    /// Watches `inner`; `queue` tells the requests of this device (a slice, a thread) from others'.
    pub fn new(inner: Rc<dyn BlockDevice>, runtime: Runtime, queue: u16) -> Self {
        Self { inner, runtime, queue, active: RefCell::new(None) }
    }

    /// Notes requests from now on, which is time 0 of the recording; an earlier capture ends.
    pub fn start(&self, recorder: Recorder) {
        let session = RefCell::new(Session::new(recorder));
        let start = self.runtime.now();
        *self.active.borrow_mut() = Some(Rc::new(Active { session, start, noted: Cell::new(0) }));
    }

    /// Notes no further requests; those in flight are still noted when they end.
    pub fn stop(&self) {
        *self.active.borrow_mut() = None;
    }

    /// True between [`CaptureDevice::start`] and [`CaptureDevice::stop`].
    pub fn is_recording(&self) -> bool {
        self.active.borrow().is_some()
    }

    /// Requests of which the capture under way has noted the end.
    pub fn noted(&self) -> u64 {
        self.active.borrow().as_ref().map_or(0, |active| active.noted.get())
    }

    fn note_start(&self, active: &Active, request: &Request) -> TraceRecord {
        let op = op_of(request.kind);
        let is_flush = op == Op::Flush;
        let mut record = TraceRecord::new(
            self.since(active),
            op,
            if is_flush { 0 } else { request.range.start() },
            if is_flush { 0 } else { request.range.len() },
        );
        record.queue = self.queue;
        record.process = request.hints.stream.map_or(0, |stream| stream.saturating_add(1));
        record.flags.set(RecordFlags::FUA, request.flags.contains(RequestFlags::FUA));
        record.flags.set(RecordFlags::METADATA, request.hints.metadata);
        record
    }

    fn note_end(&self, active: &Active, mut record: TraceRecord, outcome: &Outcome) {
        let now_ns = self.since(active);
        record.completed_ns = Some(now_ns);
        record.flags.set(RecordFlags::FAILED, outcome.is_err());
        active.noted.set(active.noted.get() + 1);
        active.session.borrow_mut().push(record, now_ns);
    }

    fn since(&self, active: &Active) -> u64 {
        self.runtime.now().as_nanos().saturating_sub(active.start.as_nanos())
    }
}

impl BlockDevice for CaptureDevice {
    fn name(&self) -> &DeviceName {
        self.inner.name()
    }

    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        let Some(active) = self.active.borrow().clone() else {
            return self.inner.submit(request);
        };
        let record = self.note_start(&active, &request);
        match self.inner.submit(request).now_or() {
            Ok(outcome) => {
                self.note_end(&active, record, &outcome);
                Submission::ready(outcome)
            }
            Err(pending) => Submission::pending(async move {
                let outcome = pending.await;
                self.note_end(&active, record, &outcome);
                outcome
            }),
        }
    }

    fn expect(&self, ranges: &[ByteRange]) {
        self.inner.expect(ranges);
    }

    /// Lent memory is read without a request: while recording nothing is lent.
    fn lend(&self, range: ByteRange) -> Option<Buffer> {
        if self.is_recording() { None } else { self.inner.lend(range) }
    }
}

fn op_of(kind: RequestKind) -> Op {
    match kind {
        RequestKind::Read => Op::Read,
        RequestKind::Write => Op::Write,
        RequestKind::Flush => Op::Flush,
        RequestKind::Discard => Op::Discard,
        RequestKind::WriteZeroes => Op::WriteZeroes,
    }
}
