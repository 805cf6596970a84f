//! The requests of a job, as fio makes them: a closed loop, or an open one that does not wait.

use crate::job::{ArrivalProcess, Arrivals, Hot, Job};
use crate::load::IN_FLIGHT_MAX;
use crate::measured::{Answered, JobTally, Kind, Measured};
use headpond_block::sync::{Permit, Semaphore};
use headpond_block::{
    BlockDevice, Buffer, ByteRange, Instant, JoinHandle, Request, RequestFlags, Runtime,
};
use headpond_sim::Random;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// Where the requests of a job go to and what they carry.
#[derive(Clone)]
pub(crate) struct Ground {
    pub device: Rc<dyn BlockDevice>,
    pub runtime: Runtime,
    pub answered: Rc<Cell<Answered>>,
    /// Whether an operating system would send it flushes: to a device without a volatile cache it
    /// sends none, and answers them itself.
    pub takes_flushes: bool,
    /// Memory for a request of so many bytes.
    pub memory: Memory,
}

/// Gives memory for requests.
pub type Memory = Rc<dyn Fn(usize) -> Buffer>;

/// When requests are made, and which of them count.
#[derive(Clone)]
pub(crate) struct Span {
    pub measured_from: Instant,
    pub ends_at: Option<Instant>,
    /// No request begins once this is set.
    pub is_over: Rc<Cell<bool>>,
}

/// Where the processes of jobs are in their regions. Who keeps it goes on from there when a job is
/// started again.
#[derive(Default)]
pub(crate) struct Positions(RefCell<BTreeMap<(String, usize), Position>>);

/// The number of the next block.
type Position = Rc<Cell<u64>>;

impl Positions {
    /// Of a process of the job with this name.
    fn of(&self, job: &str, process: usize) -> Position {
        Rc::clone(self.0.borrow_mut().entry((job.to_owned(), process)).or_default())
    }
}

/// Memory of requests that carry no payload.
pub(crate) fn no_memory() -> Memory {
    Rc::new(Buffer::payload_free)
}

/// Runs the processes of a job to their end.
pub(crate) async fn run(job: &Job, ground: &Ground, random: &mut Random) -> Measured {
    let runtime = &ground.runtime;
    let measured_from = runtime.now() + job.ramp;
    let ends_at = job.runtime.map(|runtime| measured_from + runtime);
    let span = Span { measured_from, ends_at, is_over: Rc::default() };
    if let Some(hot) = job.hot {
        warm(region(job, ground.device.size_bytes()), hot, &ground.device).await;
    }
    let tally = Rc::new(RefCell::new(JobTally::new()));
    for task in start(job, ground, random, &span, &tally, &Positions::default()) {
        task.await;
    }
    let tally = tally.borrow();
    tally.measured(runtime.now().max(measured_from).since(measured_from))
}

/// Starts the processes of a job.
pub(crate) fn start(
    job: &Job,
    ground: &Ground,
    random: &mut Random,
    span: &Span,
    tally: &Rc<RefCell<JobTally>>,
    positions: &Positions,
) -> Vec<JoinHandle<()>> {
    let processes = (0..job.jobs as usize).map(|process| {
        Rc::new(Process {
            job: job.clone(),
            region: region(job, ground.device.size_bytes()),
            ground: ground.clone(),
            random: RefCell::new(random.fork()),
            span: span.clone(),
            next: positions.of(&job.name, process),
            moved: Cell::new(0),
            written: Cell::new(0),
            line: Semaphore::new(1),
            next_turn: Cell::new(ground.runtime.now()),
            tally: Rc::clone(tally),
        })
    });
    let runtime = &ground.runtime;
    let processes: Vec<_> = processes.collect();
    match job.arrivals {
        Some(arrivals) => {
            let per_s = arrivals.per_s / f64::from(job.jobs);
            let each = Arrivals { per_s, ..arrivals };
            processes.into_iter().map(|one| runtime.spawn(one.as_they_come(each))).collect()
        }
        None => processes
            .into_iter()
            .flat_map(|process| (0..job.depth).map(move |_| Rc::clone(&process)))
            .map(|process| runtime.spawn(process.one_at_a_time()))
            .collect(),
    }
}

/// What a job may touch: whole requests only.
fn region(job: &Job, device_bytes: u64) -> ByteRange {
    let start = job.offset.next_multiple_of(job.block_bytes).min(device_bytes);
    let len = job.size.unwrap_or(u64::MAX).min(device_bytes - start);
    ByteRange::at(start, len / job.block_bytes * job.block_bytes)
}

const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(1);
/// Whoever waits for a turn looks so often whether all is over.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How finely the time between requests is drawn.
const GAP_PARTS: u64 = 1 << 32;
/// How finely the share of a hot part is drawn.
const HOT_PARTS: u64 = 1 << 20;
/// Long enough for a disk, and shorter than what counts as a stream.
const WARMING_BYTES: u64 = 256 << 10;

/// Has whoever keeps what is read keep the hot part.
async fn warm(region: ByteRange, hot: Hot, device: &Rc<dyn BlockDevice>) {
    let buffer = Buffer::payload_free(WARMING_BYTES as usize);
    let end = region.start() + hot.bytes.min(region.len());
    let mut offset = region.start();
    while offset + WARMING_BYTES <= end {
        // What cannot be read is counted when the job asks for it.
        let _ = device.submit(Request::read(offset, &buffer)).await;
        offset += WARMING_BYTES;
    }
}

/// One of the processes of a job; its tasks share the place in the region.
struct Process {
    job: Job,
    region: ByteRange,
    ground: Ground,
    random: RefCell<Random>,
    span: Span,
    /// Of what is sequential.
    next: Position,
    moved: Cell<u64>,
    written: Cell<u32>,
    /// Whoever writes and flushes is at its head, where flushes go in turn.
    line: Semaphore,
    next_turn: Cell<Instant>,
    tally: Rc<RefCell<JobTally>>,
}

impl Process {
    async fn one_at_a_time(self: Rc<Self>) {
        let buffer = (self.ground.memory)(self.job.block_bytes as usize);
        while self.goes_on() {
            self.wait_for_turn().await;
            let place = self.wait_for_flushes().await;
            let sent = self.ground.runtime.now();
            self.ask(&buffer, sent, place).await;
        }
    }

    /// A request that comes while too many are in flight waits, and its wait is part of its time.
    async fn as_they_come(self: Rc<Self>, arrivals: Arrivals) {
        let room = Semaphore::new(u64::from(IN_FLIGHT_MAX / self.job.jobs));
        let unused: Rc<RefCell<Vec<Buffer>>> = Rc::default();
        let mut turn = self.ground.runtime.now();
        while self.goes_on() {
            turn += self.gap(arrivals);
            if !self.comes(turn).await {
                break;
            }
            let permit = room.acquire(1).await;
            let (this, unused) = (Rc::clone(&self), Rc::clone(&unused));
            drop(self.ground.runtime.spawn(async move {
                let buffer = unused.borrow_mut().pop();
                let bytes = this.job.block_bytes as usize;
                let buffer = buffer.unwrap_or_else(|| (this.ground.memory)(bytes));
                let place = this.wait_for_flushes().await;
                this.ask(&buffer, turn, place).await;
                unused.borrow_mut().push(buffer);
                drop(permit);
            }));
        }
        drop(room.acquire(u64::from(IN_FLIGHT_MAX / self.job.jobs)).await);
    }

    /// Waits for a turn; says whether it comes before the end.
    async fn comes(&self, turn: Instant) -> bool {
        while self.ground.runtime.now() < turn {
            let step = turn.min(self.ground.runtime.now() + LOOK_EVERY);
            self.ground.runtime.sleep_until(step).await;
            if self.span.is_over.get() {
                return false;
            }
        }
        true
    }

    fn gap(&self, arrivals: Arrivals) -> Duration {
        let mean = 1.0 / arrivals.per_s;
        Duration::from_secs_f64(match arrivals.process {
            ArrivalProcess::Fixed => mean,
            ArrivalProcess::Poisson => {
                let drawn = self.random.borrow_mut().below(GAP_PARTS) as f64 + 0.5;
                -mean * (drawn / GAP_PARTS as f64).ln()
            }
        })
    }

    /// Waits, where flushes go in turn, until whoever writes has flushed.
    async fn wait_for_flushes(&self) -> Option<Permit> {
        let in_turn = self.job.flushes_in_turn && self.makes_pairs() && self.ground.takes_flushes;
        if in_turn { Some(self.line.acquire(1).await) } else { None }
    }

    /// One request, which wanted to be sent at that time. A read gives its place in the line to the
    /// next as it is sent, a write when it is stable.
    async fn ask(&self, buffer: &Buffer, wanted: Instant, place: Option<Permit>) {
        let is_read = self.is_read();
        let place = place.filter(|_| !is_read);
        let offset = self.next_offset();
        let (kind, mut request) = match is_read {
            true => (Kind::Read, Request::read(offset, buffer)),
            false => (Kind::Write, Request::write(offset, buffer)),
        };
        if self.job.fua && !is_read {
            request.flags |= RequestFlags::FUA;
        }
        let outcome = self.ground.device.submit(request).await;
        self.note(kind, wanted, outcome.is_ok());
        if outcome.is_err() {
            // What is refused at once would be asked for again without end.
            self.ground.runtime.sleep(PAUSE_AFTER_ERROR).await;
        }
        if !is_read && self.flush_if_due().await && outcome.is_ok() && self.makes_pairs() {
            self.note_stable(wanted);
        }
        drop(place);
    }

    /// Whether each write has a flush of its own.
    fn makes_pairs(&self) -> bool {
        self.job.flush_every == 1
    }

    fn goes_on(&self) -> bool {
        let now = self.ground.runtime.now();
        let in_time = self.span.ends_at.is_none_or(|end| now < end) && !self.span.is_over.get();
        let moved = self.moved.get();
        self.moved.set(moved + self.job.block_bytes);
        in_time && !self.region.is_empty() && (self.job.is_time_based || moved < self.region.len())
    }

    /// Keeps to the rate: each request has a turn, and none is made up for.
    async fn wait_for_turn(&self) {
        let Some(rate) = self.job.rate_iops else { return };
        let turn = self.next_turn.get().max(self.ground.runtime.now());
        self.next_turn.set(turn + Duration::from_nanos(1_000_000_000 / rate));
        self.ground.runtime.sleep_until(turn).await;
    }

    fn is_read(&self) -> bool {
        let rw = self.job.rw;
        let draws = || self.random.borrow_mut().below(100) < u64::from(self.job.read_percent);
        if rw.reads && rw.writes { draws() } else { rw.reads }
    }

    fn next_offset(&self) -> u64 {
        let blocks = self.region.len() / self.job.block_bytes;
        let block = match self.job.rw.is_random {
            true => self.random_block(blocks),
            false => self.next.replace((self.next.get() + 1) % blocks),
        };
        self.region.start() + block * self.job.block_bytes
    }

    fn random_block(&self, blocks: u64) -> u64 {
        let mut random = self.random.borrow_mut();
        let Some(hot) = self.job.hot else { return random.below(blocks) };
        let is_hot = (random.below(HOT_PARTS) as f64) < hot.share * HOT_PARTS as f64;
        let hot_blocks = (hot.bytes / self.job.block_bytes).clamp(1, blocks);
        random.below(if is_hot { hot_blocks } else { blocks })
    }

    fn note(&self, kind: Kind, sent: Instant, is_ok: bool) {
        let now = self.ground.runtime.now();
        let mut answered = self.ground.answered.get();
        answered.count(kind);
        self.ground.answered.set(answered);
        if !self.counts(now) {
            return;
        }
        let mut tally = self.tally.borrow_mut();
        if !is_ok {
            tally.errors += 1;
            return;
        }
        tally.note(kind, self.bytes_of(kind), now.since(sent));
        // What is not stable yet is shown when it is.
        if kind == Kind::Read || (kind == Kind::Write && !self.makes_pairs()) {
            tally.note_recent(now.since(sent));
        }
    }

    fn note_stable(&self, wanted: Instant) {
        let now = self.ground.runtime.now();
        if self.counts(now) {
            let mut tally = self.tally.borrow_mut();
            tally.note_stable(now.since(wanted));
            tally.note_recent(now.since(wanted));
        }
    }

    /// What was begun in time and ends late belongs to nobody's second.
    fn counts(&self, now: Instant) -> bool {
        now >= self.span.measured_from && self.span.ends_at.is_none_or(|end| now <= end)
    }

    /// Whether there was a flush, and it was answered well.
    async fn flush_if_due(&self) -> bool {
        if self.job.flush_every == 0 {
            return false;
        }
        let written = self.written.get() + 1;
        self.written.set(written % self.job.flush_every);
        if written < self.job.flush_every {
            return false;
        }
        let sent = self.ground.runtime.now();
        let is_ok = self.ground.device.flush().await.is_ok();
        self.note(Kind::Flush, sent, is_ok);
        is_ok
    }

    fn bytes_of(&self, kind: Kind) -> u64 {
        if kind == Kind::Flush { 0 } else { self.job.block_bytes }
    }
}
