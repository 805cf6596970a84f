//! A closed loop of requests, as fio makes it.

use crate::job::{Hot, Job};
use crate::measured::{Answered, Kind, Measured, Tally};
use headpond_block::{BlockDevice, Buffer, ByteRange, Instant, Request, Runtime};
use headpond_sim::Random;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// Runs the processes of a job to their end; requests carry no payload.
pub(crate) async fn run(
    job: &Job,
    device: &Rc<dyn BlockDevice>,
    runtime: &Runtime,
    random: &mut Random,
    answered: &Rc<Cell<Answered>>,
) -> Measured {
    let begun = runtime.now();
    let measured_from = begun + job.ramp;
    if let Some(hot) = job.hot {
        warm(region(job, device.size_bytes()), hot, device).await;
    }
    let tally = Rc::new(RefCell::new(Tally::new()));
    let processes = (0..job.jobs).map(|_| {
        Rc::new(Process {
            job: job.clone(),
            region: region(job, device.size_bytes()),
            device: Rc::clone(device),
            runtime: runtime.clone(),
            random: RefCell::new(random.fork()),
            measured_from,
            ends_at: job.runtime.map(|runtime| measured_from + runtime),
            next: Cell::new(0),
            moved: Cell::new(0),
            written: Cell::new(0),
            next_turn: Cell::new(begun),
            tally: Rc::clone(&tally),
            answered: Rc::clone(answered),
        })
    });
    let tasks: Vec<_> = processes
        .flat_map(|process| (0..job.depth).map(move |_| Rc::clone(&process)))
        .map(|process| runtime.spawn(process.one_at_a_time()))
        .collect();
    for task in tasks {
        task.await;
    }
    let tally = tally.borrow();
    tally.measured(runtime.now().max(measured_from).since(measured_from))
}

/// What a job may touch: whole requests only.
fn region(job: &Job, device_bytes: u64) -> ByteRange {
    let start = job.offset.next_multiple_of(job.block_bytes).min(device_bytes);
    let len = job.size.unwrap_or(u64::MAX).min(device_bytes - start);
    ByteRange::at(start, len / job.block_bytes * job.block_bytes)
}

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
    device: Rc<dyn BlockDevice>,
    runtime: Runtime,
    random: RefCell<Random>,
    measured_from: Instant,
    ends_at: Option<Instant>,
    next: Cell<u64>,
    moved: Cell<u64>,
    written: Cell<u32>,
    next_turn: Cell<Instant>,
    tally: Rc<RefCell<Tally>>,
    answered: Rc<Cell<Answered>>,
}

impl Process {
    async fn one_at_a_time(self: Rc<Self>) {
        let bytes = self.job.block_bytes;
        let buffer = Buffer::payload_free(bytes as usize);
        while self.goes_on() {
            self.wait_for_turn().await;
            let is_read = self.is_read();
            let offset = self.next_offset();
            let (kind, request) = match is_read {
                true => (Kind::Read, Request::read(offset, &buffer)),
                false => (Kind::Write, Request::write(offset, &buffer)),
            };
            let sent = self.runtime.now();
            let outcome = self.device.submit(request).await;
            self.note(kind, sent, outcome.is_ok());
            if !is_read {
                self.flush_if_due().await;
            }
        }
    }

    fn goes_on(&self) -> bool {
        let now = self.runtime.now();
        let in_time = self.ends_at.is_none_or(|end| now < end);
        let moved = self.moved.get();
        self.moved.set(moved + self.job.block_bytes);
        in_time && !self.region.is_empty() && (self.job.is_time_based || moved < self.region.len())
    }

    /// Keeps to the rate: each request has a turn, and none is made up for.
    async fn wait_for_turn(&self) {
        let Some(rate) = self.job.rate_iops else { return };
        let turn = self.next_turn.get().max(self.runtime.now());
        self.next_turn.set(turn + Duration::from_nanos(1_000_000_000 / rate));
        self.runtime.sleep_until(turn).await;
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
        let now = self.runtime.now();
        let mut answered = self.answered.get();
        answered.count(kind);
        self.answered.set(answered);
        // What was begun in time and ends late belongs to nobody's second.
        if now < self.measured_from || self.ends_at.is_some_and(|end| now > end) {
            return;
        }
        let mut tally = self.tally.borrow_mut();
        match is_ok {
            true => tally.note(kind, self.bytes_of(kind), now.since(sent)),
            false => tally.errors += 1,
        }
    }

    async fn flush_if_due(&self) {
        if self.job.flush_every == 0 {
            return;
        }
        let written = self.written.get() + 1;
        self.written.set(written % self.job.flush_every);
        if written >= self.job.flush_every {
            let sent = self.runtime.now();
            let outcome = self.device.flush().await;
            self.note(Kind::Flush, sent, outcome.is_ok());
        }
    }

    fn bytes_of(&self, kind: Kind) -> u64 {
        if kind == Kind::Flush { 0 } else { self.job.block_bytes }
    }
}
