//! What the cache costs by itself: 4 KiB requests, RAM cache device, null core, one thread, one
//! request in flight, beside plain copies of 4 KiB in the same run, alternating, medians; and in
//! instructions.

mod instructions;

use headpond_block::devices::{NullDevice, RamDevice};
use headpond_block::{BlockDevice, Buffer, Driver, Executor, Order, Runtime, Wait};
use headpond_cache::{
    CleaningConfig, CleaningPolicy, CreateOptions, Expected, Foundation, Mode, Slice, SliceConfig,
    create,
};
use instructions::Instructions;
use std::error::Error;
use std::hint::black_box;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

const CACHE_BYTES: u64 = 512 << 20;
const CORE_BYTES: u64 = 8 << 30;
const BLOCK: u64 = 4096;
/// Blocks that are filled, hit and read: less than half of the cache.
const BLOCKS: u64 = 48 << 10;
const ROUNDS: usize = 7;
/// Blocks that are hit where instructions are counted.
const BLOCKS_COUNTED: u64 = 4096;

struct Clock(Instant);

impl Driver for Clock {
    fn now(&self) -> headpond_block::Instant {
        headpond_block::Instant::from_nanos(self.0.elapsed().as_nanos() as u64)
    }

    fn park(&self, wait: Wait) -> std::io::Result<()> {
        match wait {
            Wait::Forever => Err(std::io::Error::other("nothing to wait for")),
            _ => Ok(()),
        }
    }

    fn unparker(&self) -> Arc<dyn Fn() + Send + Sync> {
        Arc::new(|| {})
    }
}

/// What is measured.
#[derive(Clone, Copy)]
enum Work {
    Fill,
    WriteHit,
    ReadHit,
}

const WORKS: [Work; 3] = [Work::Fill, Work::WriteHit, Work::ReadHit];

#[derive(Default)]
struct Samples {
    ours: Vec<f64>,
    limit: Vec<f64>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let executor = Executor::new(Box::new(Clock(Instant::now())), Order::Fifo);
    let runtime = executor.runtime();
    if let [_, command, work, count] = arguments.as_slice()
        && command == "count"
    {
        let work = WORKS.into_iter().find(|known| known.word() == work).ok_or("unknown work")?;
        return Ok(executor.block_on(work_alone(runtime, work, count.parse()?))?);
    }
    let rows = executor.block_on(measure(runtime))?;
    for (work, samples) in WORKS.into_iter().zip(rows) {
        let instructions = instructions::of_one(work.word())?;
        if instructions.is_none() {
            eprintln!("skipped: instructions of {}: valgrind is not installed", work.name());
        }
        report(work.name(), samples, instructions);
    }
    Ok(())
}

/// Operations without a clock beside them, for a tool that counts.
async fn work_alone(runtime: Runtime, work: Work, count: u64) {
    assert!(count <= BLOCKS, "more operations than blocks");
    let slice = open(&runtime, Rc::new(RamDevice::new("ram", CACHE_BYTES)), 0).await;
    if !matches!(work, Work::Fill) {
        writes(&slice, BLOCKS_COUNTED, |index| index).await;
    }
    let anywhere = |index| scatter(index, 0) % BLOCKS_COUNTED;
    match work {
        Work::Fill => writes(&slice, count, |index| index).await,
        Work::WriteHit => writes(&slice, count, anywhere).await,
        Work::ReadHit => reads(&slice, count, anywhere).await,
    };
}

async fn measure(runtime: Runtime) -> [Samples; 3] {
    let ram = Rc::new(RamDevice::new("ram", CACHE_BYTES));
    // Pages are taken before anything is measured.
    ram.memory().fill(1);
    let arena = Buffer::zeroed((BLOCKS * BLOCK) as usize);
    arena.fill(1);
    let mut rows = [(); 3].map(|()| Samples::default());
    for round in 0..ROUNDS {
        let seed = round as u64;
        let slice = open(&runtime, Rc::clone(&ram), seed).await;
        rows[0].limit.push(copies(&arena, |index| index, Direction::In));
        rows[0].ours.push(writes(&slice, BLOCKS, |index| index).await);
        rows[1].limit.push(copies(&arena, |index| scatter(index, seed), Direction::In));
        rows[1].ours.push(writes(&slice, BLOCKS, |index| scatter(index, seed)).await);
        rows[2].limit.push(copies(&arena, |index| scatter(index, seed), Direction::Out));
        rows[2].ours.push(reads(&slice, BLOCKS, |index| scatter(index, seed)).await);
    }
    rows
}

impl Work {
    fn name(self) -> &'static str {
        match self {
            Work::Fill => "engine fill 4k",
            Work::WriteHit => "engine write hit 4k",
            Work::ReadHit => "engine read hit 4k",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Work::Fill => "fill",
            Work::WriteHit => "write-hit",
            Work::ReadHit => "read-hit",
        }
    }
}

enum Direction {
    In,
    Out,
}

/// A permutation of the blocks.
fn scatter(index: u64, seed: u64) -> u64 {
    (index.wrapping_mul(2_654_435_761) ^ seed.wrapping_mul(40_503)) % BLOCKS
}

async fn open(runtime: &Runtime, ram: Rc<RamDevice>, seed: u64) -> Slice {
    let options = CreateOptions {
        cache: uuid::Uuid::from_u128(u128::from(seed) + 3),
        volume: uuid::Uuid::from_u128(1),
        core: uuid::Uuid::from_u128(2),
        core_bytes: CORE_BYTES,
        generation: 1,
        slices: 1,
        line_bytes: 4096,
        unit_bytes: None,
    };
    let superblock = create(&*ram, &options).await.expect("fits");
    let foundation = Foundation {
        runtime: runtime.clone(),
        cache: ram,
        core: Rc::new(NullDevice::new("null", CORE_BYTES)),
        label: None,
    };
    let cleaning = CleaningConfig { policy: CleaningPolicy::Nop, ..CleaningConfig::default() };
    let config =
        SliceConfig { mode: Mode::WriteBack, cleaning, allow_volatile: true, ..Default::default() };
    let expected = Expected { volume: options.volume, generation: 1 };
    Slice::open(foundation, &superblock, expected, 0, config).await.expect("opens").0
}

/// Nanoseconds a request.
async fn writes(slice: &Slice, count: u64, place: impl Fn(u64) -> u64) -> f64 {
    let data = Buffer::zeroed(BLOCK as usize);
    data.fill(0x5a);
    let device: &dyn BlockDevice = slice;
    let start = Instant::now();
    for index in 0..count {
        device.write(place(index) * BLOCK, &data).await.expect("written");
    }
    start.elapsed().as_nanos() as f64 / count as f64
}

async fn reads(slice: &Slice, count: u64, place: impl Fn(u64) -> u64) -> f64 {
    let data = Buffer::zeroed(BLOCK as usize);
    let device: &dyn BlockDevice = slice;
    let start = Instant::now();
    for index in 0..count {
        device.read(place(index) * BLOCK, &data).await.expect("read");
    }
    start.elapsed().as_nanos() as f64 / count as f64
}

fn copies(arena: &Buffer, place: impl Fn(u64) -> u64, direction: Direction) -> f64 {
    let mut block = [0x5a_u8; BLOCK as usize];
    // SAFETY: the arena belongs to this loop alone.
    let arena = unsafe { arena.as_mut_slice() };
    let start = Instant::now();
    for index in 0..BLOCKS {
        let at = (place(index) * BLOCK) as usize;
        let place = &mut arena[at..at + BLOCK as usize];
        match direction {
            Direction::In => place.copy_from_slice(black_box(&block)),
            Direction::Out => block.copy_from_slice(black_box(place)),
        }
        black_box(&mut block);
    }
    start.elapsed().as_nanos() as f64 / BLOCKS as f64
}

fn report(name: &str, samples: Samples, instructions: Option<Instructions>) {
    let median = |mut samples: Vec<f64>| {
        samples.sort_by(f64::total_cmp);
        samples[samples.len() / 2]
    };
    let (ours, limit) = (median(samples.ours), median(samples.limit));
    println!("{name:<24} {ours:>7.0} ns/op   copy {limit:>5.0} ns   {:.2} of it", limit / ours);
    let (ours, limit) = (1e9 / ours, 1e9 / limit);
    let counted = instructions.map_or_else(String::new, |counted| {
        let Instructions { engine, checksums, copies } = counted;
        let work = engine + checksums;
        println!(
            "{:<24} {work:>7.0} instructions/op, {checksums:.0} of them in checksums without \
             AVX-512; {copies:.0} more in copies",
            ""
        );
        format!(r#","instructions":{work:.0}"#)
    });
    println!(r#"{{"name":"{name}","unit":"op/s","ours":{ours:.0},"limit":{limit:.0}{counted}}}"#);
}
