//! A trace, played against a device in an open loop: requests come when they were recorded, however
//! far the device is behind.
//!
//! 1. Records are read one at a time, each at the time when it is due; 2. what has a place on the
//!    device is sent, and awaited in a task of its own where it is not answered at once; 3. its
//!    latency counts from the time it was due, so that what it waited for others is in it.
//!
//! **Invariants**: memory follows what is in flight, which has a limit, and not the length of the
//! trace.

use crate::load::{IN_FLIGHT_MAX, Pace, TraceLoad};
use crate::measured::{Answered, Kind, Latency, Measured, Tally};
use crate::place::{NoPlace, Place, place};
use crate::progress::Gauge;
use headpond_block::sync::{Permit, Semaphore};
use headpond_block::{
    BlockDevice, Buffer, ByteRange, Instant, Outcome, Request, RequestFlags, Runtime, start,
};
use headpond_trace::{Op, RecordFlags, TraceError, TraceFormat, TraceReader, TraceRecord};
use serde::Serialize;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// What was special about a replay.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Replay {
    pub format: TraceFormat,
    /// In the trace, from the first request to the last.
    pub span_s: f64,
    pub flushes: u64,
    pub discards: u64,
    pub write_zeroes: u64,
    /// Writes that had to be stable when answered.
    pub fua_writes: u64,
    /// Lay beyond the volume and were moved into it.
    pub wrapped: u64,
    /// Lay beyond the volume and were left out.
    pub skipped: u64,
    /// Made whole logical blocks of.
    pub rounded: u64,
    /// Asked for nothing, or had been refused and came once more: left out.
    pub empty: u64,
    /// Found as much in flight as may be, and waited.
    pub held_back: u64,
    pub in_flight_max: u64,
    /// What the requests took when they were recorded, where the trace tells.
    pub recorded_read: Option<Latency>,
    pub recorded_write: Option<Latency>,
}

/// Why a replay ended early.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error(
        "request {number} of the trace ends at byte {end_bytes}, beyond the volume of {size_bytes} bytes; \
         it can be wrapped or skipped"
    )]
    BeyondVolume { number: u64, end_bytes: u64, size_bytes: u64 },
}

/// Plays the whole trace, and waits for the last answer.
///
/// # Errors
/// Where the trace cannot be read on, or a request has no place and is not to be left out.
pub(crate) async fn run(
    load: &TraceLoad,
    device: &Rc<dyn BlockDevice>,
    runtime: &Runtime,
    answered: &Rc<Cell<Answered>>,
    gauge: &Gauge,
) -> Result<(Measured, Replay), ReplayError> {
    let player = Player::new(load, device, runtime, answered);
    let mut reader = load.reader()?;
    let mut number = 0;
    while let Some(record) = reader.next_record()? {
        number += 1;
        gauge.set_share(number as f64 / load.survey().records.max(1) as f64);
        player.play(number, &record).await?;
    }
    let limit = u64::from(player.limit);
    drop(player.places.acquire(limit).await);
    Ok(player.conclude(&reader))
}

struct Player {
    load: TraceLoad,
    device: Rc<dyn BlockDevice>,
    runtime: Runtime,
    begun: Instant,
    limit: u32,
    places: Semaphore,
    seen: Rc<Seen>,
}

/// What the tasks of a replay write to.
struct Seen {
    runtime: Runtime,
    tally: RefCell<Tally>,
    recorded: RefCell<Tally>,
    replay: RefCell<Replay>,
    answered: Rc<Cell<Answered>>,
    last_answer: Cell<Instant>,
}

/// A request on its way.
struct Sent {
    kind: Kind,
    bytes: u64,
    due: Instant,
    seen: Rc<Seen>,
    _place: Permit,
}

impl Player {
    fn new(
        load: &TraceLoad,
        device: &Rc<dyn BlockDevice>,
        runtime: &Runtime,
        answered: &Rc<Cell<Answered>>,
    ) -> Self {
        let limit = match load.pace {
            Pace::Recorded { .. } => IN_FLIGHT_MAX,
            Pace::AsFastAsPossible { depth } => depth,
        };
        let survey = load.survey();
        Self {
            load: load.clone(),
            device: Rc::clone(device),
            runtime: runtime.clone(),
            begun: runtime.now(),
            limit,
            places: Semaphore::new(limit.into()),
            seen: Rc::new(Seen {
                runtime: runtime.clone(),
                tally: RefCell::new(Tally::new()),
                recorded: RefCell::new(Tally::new()),
                replay: RefCell::new(Replay::new(survey.format, survey.span)),
                answered: Rc::clone(answered),
                last_answer: Cell::new(runtime.now()),
            }),
        }
    }

    async fn play(&self, number: u64, record: &TraceRecord) -> Result<(), ReplayError> {
        let Some(request) = self.request(number, record)? else { return Ok(()) };
        let due = self.wait_until_due(record).await;
        let permit = match self.places.try_acquire(1) {
            Some(permit) => permit,
            None => self.wait_for_place().await,
        };
        // A closed loop has no other time than the one at which it may send.
        let due = due.unwrap_or_else(|| self.runtime.now());
        let (seen, kind) = (Rc::clone(&self.seen), kind_of(record.op));
        let sent = Sent { kind, bytes: request.range.len(), due, seen, _place: permit };
        self.seen.note_sent(record, u64::from(self.limit) - self.places.free());
        let device = Rc::clone(&self.device);
        if record.flags.contains(RecordFlags::PREFLUSH) && record.op != Op::Flush {
            drop(self.runtime.spawn(async move {
                let outcome = match device.flush().await {
                    Ok(()) => device.submit(request).await,
                    failed => failed,
                };
                sent.done(&outcome);
            }));
            return Ok(());
        }
        match start(&device, request) {
            Ok(outcome) => sent.done(&outcome),
            Err(started) => {
                drop(self.runtime.spawn(async move { sent.done(&started.await) }));
            }
        }
        Ok(())
    }

    /// What is asked of the device; nothing where the record is left out.
    fn request(&self, number: u64, record: &TraceRecord) -> Result<Option<Request>, ReplayError> {
        if record.op == Op::Flush {
            return Ok(Some(Request::flush()));
        }
        let mut replay = self.seen.replay.borrow_mut();
        if record.length_bytes == 0 || record.flags.contains(RecordFlags::RETRIED) {
            replay.empty += 1;
            return Ok(None);
        }
        let geometry = self.device.geometry();
        let (size_bytes, block) = (geometry.size_bytes, u64::from(geometry.logical_block_bytes));
        let (start, end_bytes) = (record.offset_bytes, record.end_bytes());
        match place(self.load.fit, (start, end_bytes), size_bytes, block) {
            Ok(Place { range, is_wrapped, is_rounded }) => {
                replay.wrapped += u64::from(is_wrapped);
                replay.rounded += u64::from(is_rounded);
                Ok(Some(request(record, range)))
            }
            Err(NoPlace::Skipped) => {
                replay.skipped += 1;
                Ok(None)
            }
            Err(NoPlace::Refused) => {
                Err(ReplayError::BeyondVolume { number, end_bytes, size_bytes })
            }
        }
    }

    /// When the request is due, which is now at the earliest; nothing where there is no such time.
    async fn wait_until_due(&self, record: &TraceRecord) -> Option<Instant> {
        let Pace::Recorded { speed } = self.load.pace else { return None };
        let after_ns = record.issued_ns.saturating_sub(self.load.survey().first_ns);
        let after = Duration::from_nanos(after_ns).div_f64(speed);
        let due = self.begun + after;
        if due > self.runtime.now() {
            self.runtime.sleep_until(due).await;
        }
        Some(due)
    }

    async fn wait_for_place(&self) -> Permit {
        if matches!(self.load.pace, Pace::Recorded { .. }) {
            self.seen.replay.borrow_mut().held_back += 1;
        }
        self.places.acquire(1).await
    }

    fn conclude(&self, reader: &TraceReader) -> (Measured, Replay) {
        let time = self.seen.last_answer.get().since(self.begun);
        let measured = self.seen.tally.borrow().measured(time);
        let recorded = self.seen.recorded.borrow().measured(Duration::from_secs(1));
        let told = |side: crate::Side| (side.requests > 0).then_some(side.latency);
        let mut replay = *self.seen.replay.borrow();
        replay.format = reader.format();
        (replay.recorded_read, replay.recorded_write) = (told(recorded.read), told(recorded.write));
        (measured, replay)
    }
}

impl Seen {
    fn note_sent(&self, record: &TraceRecord, in_flight: u64) {
        let mut replay = self.replay.borrow_mut();
        replay.in_flight_max = replay.in_flight_max.max(in_flight);
        let is_fua = record.op == Op::Write && record.flags.contains(RecordFlags::FUA);
        replay.fua_writes += u64::from(is_fua);
        match record.op {
            Op::Flush => replay.flushes += 1,
            Op::Discard => replay.discards += 1,
            Op::WriteZeroes => replay.write_zeroes += 1,
            Op::Read | Op::Write => {}
        }
        if let Some(took) = record.response_ns() {
            let (kind, took) = (kind_of(record.op), Duration::from_nanos(took));
            self.recorded.borrow_mut().note(kind, record.length_bytes, took);
        }
    }
}

impl Sent {
    fn done(self, outcome: &Outcome) {
        let now = self.seen.runtime.now();
        self.seen.last_answer.set(now);
        let mut answered = self.seen.answered.get();
        answered.count(self.kind);
        self.seen.answered.set(answered);
        let mut tally = self.seen.tally.borrow_mut();
        match outcome {
            Ok(()) => tally.note(self.kind, self.bytes, now.since(self.due)),
            Err(_) => tally.errors += 1,
        }
    }
}

impl Replay {
    fn new(format: TraceFormat, span: Duration) -> Self {
        Self {
            format,
            span_s: span.as_secs_f64(),
            flushes: 0,
            discards: 0,
            write_zeroes: 0,
            fua_writes: 0,
            wrapped: 0,
            skipped: 0,
            rounded: 0,
            empty: 0,
            held_back: 0,
            in_flight_max: 0,
            recorded_read: None,
            recorded_write: None,
        }
    }
}

impl Replay {
    /// What a reader of the figures must know of.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        let mut remark = |count: u64, what: &str| {
            if count > 0 {
                remarks.push(format!("{count} requests of the trace {what}"));
            }
        };
        remark(self.wrapped, "lay beyond the volume and were wrapped into it");
        remark(self.skipped, "lay beyond the volume and were left out");
        remark(self.rounded, "were made whole logical blocks of");
        remark(self.empty, "asked for nothing and were left out");
        remark(self.held_back, "found as much in flight as may be: the machine does not keep up");
        remarks
    }
}

fn kind_of(op: Op) -> Kind {
    match op {
        Op::Read => Kind::Read,
        Op::Flush => Kind::Flush,
        Op::Write | Op::Discard | Op::WriteZeroes => Kind::Write,
    }
}

fn request(record: &TraceRecord, range: ByteRange) -> Request {
    let buffer = || Buffer::payload_free(range.len() as usize);
    let request = match record.op {
        Op::Read => Request::read(range.start(), buffer()),
        Op::Write => Request::write(range.start(), buffer()),
        Op::Discard => Request::discard(range),
        Op::WriteZeroes => Request::write_zeroes(range),
        Op::Flush => Request::flush(),
    };
    match record.flags.contains(RecordFlags::FUA) && record.op == Op::Write {
        true => request.with_flags(RequestFlags::FUA),
        false => request,
    }
}
