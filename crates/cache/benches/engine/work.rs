//! The work that is measured: which requests, on a slice that was prepared how.

use headpond_block::devices::RamDevice;
use headpond_block::{
    BlockDevice, Buffer, ByteRange, DeviceName, Geometry, Request, Runtime, Submission,
};
use headpond_cache::{
    Checksums, CleaningConfig, CleaningPolicy, Counters, CreateOptions, Expected, Foundation, Mode,
    Slice, SliceConfig, create,
};
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;

pub const CACHE_BYTES: u64 = 512 << 20;
const CORE_BYTES: u64 = 8 << 30;
/// What is filled, hit and copied: less than half of the cache.
pub const WORKED_BYTES: u64 = 192 << 20;

/// One kind of request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Work {
    Fill,
    /// With the checksums that memory otherwise has none of.
    CheckedFill,
    WriteHit,
    ReadHit,
    /// With insertion, and eviction of what was inserted before.
    ReadMiss,
    /// Of what is not mapped, with eviction.
    WriteThrough,
    /// A cache as full of dirty blocks as may be, each by itself somewhere on the core.
    CleanScattered,
    /// The same, in a row.
    CleanInOrder,
}

impl Work {
    pub fn cleans(self) -> bool {
        matches!(self, Self::CleanScattered | Self::CleanInOrder)
    }
}

/// Requests of so many bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Row {
    pub work: Work,
    pub bytes: u64,
    pub line_bytes: u64,
    /// Begun before the first of them is waited for.
    pub in_flight: usize,
    /// How many times as large cache, core and what is worked on are: what is kept of a large cache
    /// is in memory, and that of a small one near the processor.
    pub times: u64,
}

/// How often the work is carried out; what it is prepared with counts as one more.
pub const ROUNDS: u64 = 7;

const SMALL: u64 = 4 << 10;
const LARGE: u64 = 64 << 10;

/// A cache in which what is worked on is nearly all that may be dirty.
const CLEANED_CACHE_BYTES: u64 = WORKED_BYTES * 4 / 3;

/// How many are in flight where there are several.
const SEVERAL: usize = 32;

/// How many times as large a large cache is.
pub const LARGER: u64 = 8;

pub const ROWS: [Row; 35] = [
    Row::plain(Work::Fill, SMALL),
    Row::plain(Work::Fill, SMALL).several(),
    Row::plain(Work::CheckedFill, SMALL),
    Row::plain(Work::WriteHit, SMALL),
    Row::plain(Work::WriteHit, SMALL).several(),
    Row::plain(Work::ReadHit, SMALL),
    Row::plain(Work::ReadHit, SMALL).several(),
    Row::plain(Work::ReadMiss, SMALL),
    Row::plain(Work::ReadMiss, SMALL).several(),
    Row::plain(Work::WriteThrough, SMALL),
    Row::plain(Work::WriteThrough, SMALL).several(),
    Row::plain(Work::CleanScattered, SMALL),
    Row::plain(Work::CleanInOrder, SMALL),
    Row::plain(Work::Fill, SMALL).on(LARGE),
    Row::plain(Work::Fill, SMALL).on(LARGE).several(),
    Row::plain(Work::WriteHit, SMALL).on(LARGE),
    Row::plain(Work::WriteHit, SMALL).on(LARGE).several(),
    Row::plain(Work::ReadHit, SMALL).on(LARGE),
    Row::plain(Work::ReadHit, SMALL).on(LARGE).several(),
    Row::plain(Work::Fill, LARGE),
    Row::plain(Work::Fill, LARGE).several(),
    Row::plain(Work::Fill, LARGE).on(SMALL),
    Row::plain(Work::CheckedFill, LARGE),
    Row::plain(Work::WriteHit, LARGE),
    Row::plain(Work::WriteHit, LARGE).several(),
    Row::plain(Work::ReadHit, LARGE),
    Row::plain(Work::ReadHit, LARGE).several(),
    Row::plain(Work::ReadMiss, LARGE),
    Row::plain(Work::WriteThrough, LARGE),
    Row::plain(Work::WriteThrough, LARGE).several(),
    Row::plain(Work::Fill, SMALL).in_large_cache(),
    Row::plain(Work::WriteHit, SMALL).in_large_cache(),
    Row::plain(Work::ReadHit, SMALL).in_large_cache(),
    Row::plain(Work::ReadMiss, SMALL).in_large_cache(),
    Row::plain(Work::WriteThrough, SMALL).in_large_cache(),
];

impl Row {
    /// One at a time, on lines of as many bytes.
    pub const fn plain(work: Work, bytes: u64) -> Self {
        Self { work, bytes, line_bytes: bytes, in_flight: 1, times: 1 }
    }

    const fn on(self, line_bytes: u64) -> Self {
        Self { line_bytes, ..self }
    }

    const fn several(self) -> Self {
        Self { in_flight: SEVERAL, ..self }
    }

    const fn in_large_cache(self) -> Self {
        Self { times: LARGER, ..self }
    }

    pub fn name(self) -> String {
        let work = match self.work {
            Work::Fill => "fill",
            Work::CheckedFill => "checked fill",
            Work::WriteHit => "write hit",
            Work::ReadHit => "read hit",
            Work::ReadMiss => "read miss",
            Work::WriteThrough => "write-through",
            Work::CleanScattered => "clean scattered",
            Work::CleanInOrder => "clean in order",
        };
        let lines = match self.line_bytes == self.bytes {
            true => String::new(),
            false => format!(" on {}k lines", self.line_bytes >> 10),
        };
        let several = if self.in_flight > 1 { format!(" x{}", self.in_flight) } else { "".into() };
        let cache = match self.times {
            1 => String::new(),
            times => format!(" in {} GiB", (CACHE_BYTES * times) >> 30),
        };
        format!("engine {work} {}k{lines}{several}{cache}", self.bytes >> 10)
    }

    /// As an argument of this program.
    pub fn word(self) -> String {
        self.name().replace(' ', "-")
    }

    /// Requests for everything that is worked on: a quarter of it where requests are shorter than
    /// lines, whose pieces lie apart in the log, and for which there is memory for so many only.
    pub fn requests(self) -> u64 {
        let share = if self.line_bytes > self.bytes { 4 } else { 1 };
        WORKED_BYTES * self.times / self.bytes / share
    }

    pub fn checksums(self) -> Checksums {
        match self.work {
            Work::CheckedFill => Checksums::Always,
            _ => Checksums::Auto,
        }
    }

    pub fn mode(self) -> Mode {
        match self.work {
            Work::WriteThrough => Mode::WriteThrough,
            _ => Mode::WriteBack,
        }
    }

    /// Brings a new slice to where the work begins.
    pub async fn prepare(self, bench: &Bench, requests: u64) {
        let before = |index| self.fresh(index, ROUNDS);
        match self.work {
            Work::Fill | Work::CheckedFill => {}
            Work::WriteHit | Work::ReadHit | Work::CleanInOrder => {
                bench.writes(self, requests, |index| index).await;
            }
            Work::CleanScattered => bench.writes(self, requests, before).await,
            Work::ReadMiss => bench.misses(self, bench.full(self), before).await,
            Work::WriteThrough => bench.writes(self, bench.full(self), before).await,
        }
    }

    /// Carries out so many requests, `round` times as often as that before.
    pub async fn carry_out(self, bench: &Bench, requests: u64, round: u64) {
        let anywhere = |index| scatter(index, round) % requests;
        let elsewhere = |index| self.fresh(index, round);
        let before = bench.slice.stats().counters;
        match self.work {
            Work::Fill | Work::CheckedFill => {
                bench.writes(self, requests, |index| index).await;
            }
            Work::WriteHit => bench.writes(self, requests, anywhere).await,
            Work::ReadHit => bench.reads(self, requests, anywhere).await,
            Work::ReadMiss => bench.misses(self, requests, elsewhere).await,
            Work::WriteThrough => bench.writes(self, requests, elsewhere).await,
            Work::CleanScattered | Work::CleanInOrder => {
                bench.slice.flush_dirty().await.expect("cleaned");
            }
        }
        self.check(requests, &before, &bench.slice.stats().counters);
    }

    /// A place all over the core, another one for each request of each round.
    fn fresh(self, index: u64, round: u64) -> u64 {
        scatter(index + round * self.requests(), 0)
    }

    /// Whether the requests were what they are said to be.
    fn check(self, requests: u64, before: &Counters, after: &Counters) {
        let blocks = requests * self.bytes / 4096;
        let (reads, writes) =
            (after.read.hits - before.read.hits, after.write.hits - before.write.hits);
        let inserted = after.inserted_blocks - before.inserted_blocks;
        let missed = after.write.misses - before.write.misses;
        let is_right = match self.work {
            Work::Fill | Work::CheckedFill => missed == requests,
            Work::WriteHit => writes == requests,
            Work::ReadHit => reads == requests,
            Work::ReadMiss => inserted == blocks && reads == 0,
            Work::WriteThrough => missed == requests,
            Work::CleanScattered | Work::CleanInOrder => {
                after.cleaned_blocks - before.cleaned_blocks == blocks
            }
        };
        let evicts = matches!(self.work, Work::ReadMiss | Work::WriteThrough);
        let is_evicted = !evicts || after.segments_reclaimed > 0;
        assert!(is_right && is_evicted, "{}: {before:?} {after:?}", self.name());
    }
}

/// A permutation of what is worked on.
pub fn scatter(index: u64, seed: u64) -> u64 {
    index.wrapping_mul(2_654_435_761) ^ seed.wrapping_mul(40_503)
}

/// Answers at once, and leaves memory alone: a disk brings what it read there by itself, and the
/// null core of the engine that ours is compared with touches none either.
struct Core {
    name: DeviceName,
    geometry: Geometry,
}

impl Core {
    fn of_size(bytes: u64) -> Self {
        Self { name: "null".into(), geometry: Geometry::of_size(bytes) }
    }
}

impl BlockDevice for Core {
    fn name(&self) -> &DeviceName {
        &self.name
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        Submission::ready(request.check(&self.name, &self.geometry))
    }
}

/// A slice under load.
pub struct Bench {
    pub slice: Slice,
    cache_bytes: u64,
    runtime: Runtime,
}

impl Bench {
    pub async fn new(runtime: &Runtime, ram: &Rc<RamDevice>, row: Row, seed: u64) -> Self {
        let options = CreateOptions {
            cache: uuid::Uuid::from_u128(u128::from(seed) + 3),
            volume: uuid::Uuid::from_u128(1),
            core: uuid::Uuid::from_u128(2),
            core_bytes: CORE_BYTES * row.times,
            generation: 1,
            slices: 1,
            line_bytes: row.line_bytes as u32,
            device_bytes: row.work.cleans().then_some(CLEANED_CACHE_BYTES),
            unit_bytes: None,
        };
        let superblock = create(&**ram, &options).await.expect("fits");
        let foundation = Foundation::new(
            runtime.clone(),
            Rc::clone(ram) as Rc<dyn BlockDevice>,
            Rc::new(Core::of_size(CORE_BYTES * row.times)),
        );
        let cleaning = CleaningConfig { policy: CleaningPolicy::Nop, ..CleaningConfig::default() };
        let config = SliceConfig {
            mode: row.mode(),
            checksums: row.checksums(),
            cleaning,
            allow_volatile: true,
            ..SliceConfig::default()
        };
        let expected = Expected { volume: options.volume, generation: 1 };
        let opened = Slice::open(foundation, &superblock, expected, 0, config).await;
        let cache_bytes = ram.geometry().size_bytes;
        Self { slice: opened.expect("opens").0, cache_bytes, runtime: runtime.clone() }
    }

    /// Whether as good as everything that may be dirty is, where that is to be cleaned.
    pub fn check_dirty_data(&self, row: Row) {
        let stats = self.slice.stats();
        let is_full = stats.dirty_bytes * 10 >= stats.dirty_bytes_max * 9;
        let (dirty, most) = (stats.dirty_bytes, stats.dirty_bytes_max);
        assert!(!row.work.cleans() || is_full, "{dirty} of {most} bytes are dirty");
    }

    /// Requests until the cache is full, and evicts.
    fn full(&self, row: Row) -> u64 {
        self.cache_bytes / row.bytes
    }

    async fn writes(&self, row: Row, count: u64, place: impl Fn(u64) -> u64) {
        let data = Buffer::zeroed(row.bytes as usize);
        data.fill(0x5a);
        let device: &dyn BlockDevice = &self.slice;
        let write = |index| {
            announce(device, row, index, count, &place);
            device.write(offset(row, place(index)), &data)
        };
        in_turn(row, count, write, async || {}).await;
    }

    async fn reads(&self, row: Row, count: u64, place: impl Fn(u64) -> u64) {
        let data = Buffer::zeroed(row.bytes as usize);
        let device: &dyn BlockDevice = &self.slice;
        let read = |index| {
            announce(device, row, index, count, &place);
            device.read(offset(row, place(index)), &data)
        };
        in_turn(row, count, read, async || {}).await;
    }

    /// As `reads`, each with the insertion that it causes. Now and then reclaim has a turn: who
    /// writes waits for it, and who reads does not.
    async fn misses(&self, row: Row, count: u64, place: impl Fn(u64) -> u64) {
        let data = Buffer::zeroed(row.bytes as usize);
        let device: &dyn BlockDevice = &self.slice;
        let read = |index| device.read(offset(row, place(index)), &data);
        let answered = Cell::new(0_usize);
        let turn = async || {
            answered.set(answered.get() + 1);
            if answered.get().is_multiple_of(SEVERAL) {
                self.runtime.yield_now().await;
            }
        };
        in_turn(row, count, read, turn).await;
    }
}

/// So many requests, of which as many are in flight as the row says; `after` each that is answered.
async fn in_turn<'a>(
    row: Row,
    count: u64,
    begin: impl Fn(u64) -> Submission<'a>,
    after: impl AsyncFn(),
) {
    // A queue of one would cost as much as a fourteenth of a read hit.
    if row.in_flight == 1 {
        for index in 0..count {
            begin(index).await.expect("answered");
            after().await;
        }
        return;
    }
    let mut begun = VecDeque::with_capacity(row.in_flight);
    for index in 0..count {
        begun.push_back(begin(index));
        if begun.len() == row.in_flight {
            begun.pop_front().expect("some are begun").await.expect("answered");
            after().await;
        }
    }
    for rest in begun {
        rest.await.expect("answered");
        after().await;
    }
}

/// Tells of requests as a server does that has received several at a time.
fn announce(
    device: &dyn BlockDevice,
    row: Row,
    index: u64,
    count: u64,
    place: impl Fn(u64) -> u64,
) {
    const RECEIVED: u64 = 16;
    if row.in_flight > 1 && index.is_multiple_of(RECEIVED) {
        let range = |index| ByteRange::at(offset(row, place(index)), row.bytes);
        let ranges: Vec<ByteRange> = (index..count.min(index + RECEIVED)).map(range).collect();
        device.expect(&ranges);
    }
}

fn offset(row: Row, place: u64) -> u64 {
    place % (CORE_BYTES * row.times / row.bytes) * row.bytes
}

/// Nanoseconds for each of so many requests.
pub async fn timed(requests: u64, work: impl Future<Output = ()>) -> f64 {
    let start = Instant::now();
    work.await;
    start.elapsed().as_nanos() as f64 / requests as f64
}
