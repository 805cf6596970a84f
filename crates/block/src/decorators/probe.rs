//! A device with statistics.

use crate::{
    BlockDevice, Buffer, ByteRange, DeviceName, Geometry, Instant, Outcome, Request, RequestFlags,
    RequestKind, Runtime, Submission,
};
use serde::Serialize;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

const RECENT_MAX: usize = 64;

/// Statistics of one kind of request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProbeCounts {
    pub requests: u64,
    pub bytes: u64,
    pub errors: u64,
    /// Sum and maximum of the time from submission to completion, in nanoseconds.
    pub nanos_total: u64,
    pub nanos_max: u64,
}

/// Everything a probe has seen.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ProbeSnapshot {
    pub reads: ProbeCounts,
    pub writes: ProbeCounts,
    pub flushes: ProbeCounts,
    pub discards: ProbeCounts,
    pub write_zeroes: ProbeCounts,
    /// Writes among `writes` that carried FUA.
    pub fua_writes: u64,
    pub in_flight: u64,
    pub in_flight_max: u64,
    /// Time with something in flight, in nanoseconds, up to the last start or end.
    pub busy_nanos: u64,
}

/// Counts and times the requests to `inner`, and stores the last few.
pub struct ProbeDevice {
    inner: Rc<dyn BlockDevice>,
    runtime: Runtime,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    seen: ProbeSnapshot,
    /// When `busy_nanos` was updated.
    counted_until: Instant,
    recent: VecDeque<(RequestKind, ByteRange)>,
}

impl ProbeDevice {
    pub fn new(inner: Rc<dyn BlockDevice>, runtime: Runtime) -> Self {
        Self { inner, runtime, state: RefCell::default() }
    }

    pub fn snapshot(&self) -> ProbeSnapshot {
        self.state.borrow().seen.clone()
    }

    pub fn reset(&self) {
        let mut state = self.state.borrow_mut();
        state.counted_until = self.runtime.now();
        let in_flight = state.seen.in_flight;
        state.seen = ProbeSnapshot { in_flight, ..ProbeSnapshot::default() };
    }

    /// The last requests, oldest first.
    pub fn recent(&self) -> Vec<(RequestKind, ByteRange)> {
        self.state.borrow().recent.iter().copied().collect()
    }

    async fn watch(&self, seen: SeenOperations, submission: Submission<'_>) -> Outcome {
        let outcome = submission.await;
        self.note_end(seen, &outcome);
        outcome
    }

    fn note_start(&self, request: &Request) -> SeenOperations {
        let state = &mut *self.state.borrow_mut();
        if state.recent.len() == RECENT_MAX {
            state.recent.pop_front();
        }
        state.recent.push_back((request.kind, request.range));
        state.count_busy(self.runtime.now());
        let seen = &mut state.seen;
        seen.in_flight += 1;
        seen.in_flight_max = seen.in_flight_max.max(seen.in_flight);
        let is_fua_write =
            request.kind == RequestKind::Write && request.flags.contains(RequestFlags::FUA);
        seen.fua_writes += u64::from(is_fua_write);
        SeenOperations { kind: request.kind, bytes: request.range.len(), at: self.runtime.now() }
    }

    fn note_end(&self, request: SeenOperations, outcome: &Outcome) {
        let took = self.runtime.now().since(request.at);
        let state = &mut *self.state.borrow_mut();
        state.count_busy(self.runtime.now());
        let seen = &mut state.seen;
        seen.in_flight -= 1;
        seen.of(request.kind).add(request.bytes, took, outcome.is_err());
    }
}

impl State {
    fn count_busy(&mut self, now: Instant) {
        if self.seen.in_flight > 0 {
            self.seen.busy_nanos += now.since(self.counted_until).as_nanos() as u64;
        }
        self.counted_until = now;
    }
}

impl ProbeSnapshot {
    fn of(&mut self, kind: RequestKind) -> &mut ProbeCounts {
        match kind {
            RequestKind::Read => &mut self.reads,
            RequestKind::Write => &mut self.writes,
            RequestKind::Flush => &mut self.flushes,
            RequestKind::Discard => &mut self.discards,
            RequestKind::WriteZeroes => &mut self.write_zeroes,
        }
    }
}

impl ProbeCounts {
    fn add(&mut self, bytes: u64, took: Duration, failed: bool) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.requests += 1;
        self.bytes += bytes;
        self.errors += u64::from(failed);
        self.nanos_total = self.nanos_total.saturating_add(nanos);
        self.nanos_max = self.nanos_max.max(nanos);
    }
}

#[derive(Clone, Copy)]
struct SeenOperations {
    kind: RequestKind,
    bytes: u64,
    at: Instant,
}

impl BlockDevice for ProbeDevice {
    fn name(&self) -> &DeviceName {
        self.inner.name()
    }

    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        let seen = self.note_start(&request);
        match self.inner.submit(request).now_or() {
            Ok(outcome) => {
                self.note_end(seen, &outcome);
                Submission::ready(outcome)
            }
            Err(pending) => Submission::pending(self.watch(seen, pending)),
        }
    }

    fn lend(&self, range: ByteRange) -> Option<Buffer> {
        self.inner.lend(range)
    }
}
