//! A trace, played against a device: requests come when they were recorded, however far the device
//! is behind, or as soon as so many others are answered.
//!
//! 1. Records are read one at a time, each at the time when it is due; 2. what has a place on the
//!    device is sent, and awaited in a task of its own where it is not answered at once; 3. its
//!    latency counts from the time it was due, so that what it waited for others is in it.
//!
//! **Invariants**: memory follows what is in flight, which has a limit, and not the length of the
//! trace, unless that is in memory already.

mod depth;
mod kinds;
mod laps;

use crate::load::{Excerpt, Fit, IN_FLIGHT_MAX, Pace, TraceLoad};
use crate::measured::{Answered, Bins, JobTally, Kind, Latency, Measured};
use crate::place::{NoPlace, PreparedPlace, place};
use crate::progress::Gauge;
use depth::RecordedDepth;
use headpond_block::sync::{Permit, Semaphore};
use headpond_block::{
    BlockDevice, Buffer, ByteRange, Hints, Instant, Outcome, Request, RequestFlags, Runtime, start,
};
use headpond_trace::{Op, RecordFlags, TraceError, TraceFormat, TraceRecord};
use kinds::Kinds;
use laps::Laps;
use serde::Serialize;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

pub use kinds::KindShare;
pub use laps::{LAPS, Lap};

/// In flight while a machine is brought into its state.
const WARM_UP_DEPTH: u32 = 32;

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

/// What came of a replay.
pub(crate) struct Played {
    pub measured: Measured,
    pub replay: Replay,
    pub laps: Vec<Lap>,
    pub kinds: Vec<KindShare>,
    /// Of reads and writes, from when they were due.
    pub took: Bins,
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
) -> Result<Played, ReplayError> {
    let survey = load.survey();
    let replay = Replay::new(survey.format, survey.span);
    let (pace, fit) = (load.pace, load.fit);
    let mut player = Player::new(Manner { pace, fit }, replay, (device, runtime, answered));
    player.first_ns = survey.first_ns;
    let mut reader = load.reader()?;
    let mut number = 0;
    while let Some(record) = reader.next_record()? {
        number += 1;
        gauge.set_share(number as f64 / survey.records.max(1) as f64);
        player.play(number, &record).await?;
    }
    player.drain().await;
    player.seen.replay.borrow_mut().format = reader.format();
    Ok(player.conclude())
}

/// Brings the machine into its state with the first requests of an excerpt, awaits what is to be
/// done then, and plays the others. Requests that come at their recorded times do so from the first
/// on: how much is dirty then depends on how much time there was to clean it.
///
/// # Errors
/// As [`run`].
pub(crate) async fn run_excerpt(
    excerpt: &Excerpt,
    device: &Rc<dyn BlockDevice>,
    runtime: &Runtime,
    answered: &Rc<Cell<Answered>>,
    gauge: &Gauge,
    when_warm: impl Future<Output = ()>,
) -> Result<Played, ReplayError> {
    let (warm_up, measured) = excerpt.parts();
    let (format, fit) = (excerpt.format, excerpt.fit);
    let pace = match excerpt.pace {
        recorded @ Pace::Recorded { .. } => recorded,
        _ => Pace::AsFastAsPossible { depth: WARM_UP_DEPTH },
    };
    let warming = Replay::new(format, Duration::ZERO);
    let mut player = Player::new(Manner { pace, fit }, warming, (device, runtime, answered));
    player.first_ns = warm_up.first().map_or(0, |record| record.issued_ns);
    let share = |number: usize| gauge.set_share(number as f64 / excerpt.records.len() as f64);
    player.play_all(warm_up, 0, share).await?;
    when_warm.await;
    let first_ns = measured.first().map_or(0, |record| record.issued_ns);
    let last_ns = measured.iter().map(|record| record.issued_ns).max().unwrap_or(first_ns);
    let replay = Replay::new(format, Duration::from_nanos(last_ns - first_ns));
    let manner = Manner { pace: excerpt.pace, fit };
    player = Player::new(manner, replay, (device, runtime, answered));
    player.first_ns = first_ns;
    player.keep_parts(measured.len() as u64);
    player.play_all(measured, warm_up.len(), share).await?;
    Ok(player.conclude())
}

/// When requests are sent, and where.
#[derive(Clone, Copy)]
struct Manner {
    pace: Pace,
    fit: Fit,
}

struct Player {
    manner: Manner,
    /// The time of the trace at which it begins.
    first_ns: u64,
    recorded_depth: RecordedDepth,
    device: Rc<dyn BlockDevice>,
    runtime: Runtime,
    begun: Instant,
    places: Semaphore,
    sent: u64,
    seen: Rc<ReplayTotals>,
}

/// What the tasks of a replay write to.
struct ReplayTotals {
    runtime: Runtime,
    tally: RefCell<JobTally>,
    recorded: RefCell<JobTally>,
    replay: RefCell<Replay>,
    parts: RefCell<Option<Parts>>,
    answered: Rc<Cell<Answered>>,
    last_answer: Cell<Instant>,
}

/// What is kept where memory for each request is at hand.
struct Parts {
    laps: Laps,
    kinds: Kinds,
}

/// A request on its way.
struct Sent {
    kind: Kind,
    bytes: u64,
    number: u64,
    due: Instant,
    seen: Rc<ReplayTotals>,
    _place: Permit,
}

impl Player {
    fn new(
        manner: Manner,
        replay: Replay,
        (device, runtime, answered): (&Rc<dyn BlockDevice>, &Runtime, &Rc<Cell<Answered>>),
    ) -> Self {
        Self {
            manner,
            first_ns: 0,
            recorded_depth: RecordedDepth::default(),
            device: Rc::clone(device),
            runtime: runtime.clone(),
            begun: runtime.now(),
            places: Semaphore::new(IN_FLIGHT_MAX.into()),
            sent: 0,
            seen: Rc::new(ReplayTotals {
                runtime: runtime.clone(),
                tally: RefCell::new(JobTally::new()),
                recorded: RefCell::new(JobTally::new()),
                replay: RefCell::new(replay),
                parts: RefCell::default(),
                answered: Rc::clone(answered),
                last_answer: Cell::new(runtime.now()),
            }),
        }
    }

    fn keep_parts(&self, requests: u64) {
        let (laps, kinds) = (Laps::of(requests, self.begun), Kinds::default());
        *self.seen.parts.borrow_mut() = Some(Parts { laps, kinds });
    }

    /// Requests of which so many others come before, and waits for the last answer.
    async fn play_all(
        &mut self,
        records: &[TraceRecord],
        before: usize,
        share: impl Fn(usize),
    ) -> Result<(), ReplayError> {
        for (number, record) in (before + 1..).zip(records) {
            share(number);
            self.play(number as u64, record).await?;
        }
        self.drain().await;
        Ok(())
    }

    async fn play(&mut self, number: u64, record: &TraceRecord) -> Result<(), ReplayError> {
        let Some(request) = self.request(number, record)? else { return Ok(()) };
        let due = self.wait_until_due(record).await;
        let permit = match self.places.try_acquire(1) {
            Some(permit) => permit,
            None => self.wait_for_place().await,
        };
        // A closed loop has no other time than the one at which it may send.
        let due = due.unwrap_or_else(|| self.runtime.now());
        let (seen, kind, number) = (Rc::clone(&self.seen), kind_of(record.op), self.sent);
        self.sent += 1;
        let sent = Sent { kind, bytes: request.range.len(), number, due, seen, _place: permit };
        self.seen.note_sent(record, u64::from(IN_FLIGHT_MAX) - self.places.free());
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
        let mut started = match start(&device, request) {
            Ok(outcome) => {
                sent.done(&outcome);
                return Ok(());
            }
            Err(started) => started,
        };
        // It reaches the device now: tasks run in any order, and a stream would come out of order.
        match poll_fn(|context| Poll::Ready(Pin::new(&mut started).poll(context))).await {
            Poll::Ready(outcome) => sent.done(&outcome),
            Poll::Pending => {
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
        match place(self.manner.fit, (start, end_bytes), size_bytes, block) {
            Ok(PreparedPlace { range, is_wrapped, is_rounded }) => {
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

    /// When the request is due, which is now at the earliest; nothing where there is no such time,
    /// and it is sent as soon as enough others are answered.
    async fn wait_until_due(&mut self, record: &TraceRecord) -> Option<Instant> {
        let depth = match self.manner.pace {
            Pace::Recorded { speed } => {
                let after_ns = record.issued_ns.saturating_sub(self.first_ns);
                let due = self.begun + Duration::from_nanos(after_ns).div_f64(speed);
                if due > self.runtime.now() {
                    self.runtime.sleep_until(due).await;
                }
                return Some(due);
            }
            Pace::AsFastAsPossible { depth } => depth,
            Pace::AsDeepAsRecorded { unknown } => self.recorded_depth.at(record).unwrap_or(unknown),
        };
        // All places but those that the others may have.
        let others = u64::from(depth.clamp(1, IN_FLIGHT_MAX) - 1);
        drop(self.places.acquire(u64::from(IN_FLIGHT_MAX) - others).await);
        None
    }

    async fn wait_for_place(&self) -> Permit {
        self.seen.replay.borrow_mut().held_back += 1;
        self.places.acquire(1).await
    }

    /// Waits for everything that is in flight.
    async fn drain(&self) {
        drop(self.places.acquire(IN_FLIGHT_MAX.into()).await);
    }

    fn conclude(&self) -> Played {
        let time = self.seen.last_answer.get().since(self.begun);
        let measured = self.seen.tally.borrow().measured(time);
        let recorded = self.seen.recorded.borrow().measured(Duration::from_secs(1));
        let told = |side: crate::Side| (side.requests > 0).then_some(side.latency);
        let mut replay = *self.seen.replay.borrow();
        (replay.recorded_read, replay.recorded_write) = (told(recorded.read), told(recorded.write));
        let mut parts = self.seen.parts.borrow_mut();
        let (laps, kinds) = match parts.as_mut() {
            Some(Parts { laps, kinds }) => (laps.summary(), kinds.summary()),
            None => Default::default(),
        };
        let [read, write, _] = self.seen.tally.borrow().bins();
        let took = Bins::merge([&read, &write]);
        Played { measured, replay, laps, kinds, took }
    }
}

impl ReplayTotals {
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
        let took = now.since(self.due);
        if let Some(Parts { laps, kinds }) = self.seen.parts.borrow_mut().as_mut() {
            laps.note(laps.lap_of(self.number), took, now);
            kinds.note(self.kind, self.bytes, took);
        }
        let mut tally = self.seen.tally.borrow_mut();
        match outcome {
            Ok(()) => tally.note(self.kind, self.bytes, took),
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
    let metadata = record.flags.contains(RecordFlags::METADATA);
    let request = request.with_hints(Hints { metadata, ..Hints::default() });
    match record.flags.contains(RecordFlags::FUA) && record.op == Op::Write {
        true => request.with_flags(RequestFlags::FUA),
        false => request,
    }
}
