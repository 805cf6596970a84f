//! What the cache costs by itself: 4 KiB requests, RAM cache device, null core, one thread, one
//! request in flight, beside plain copies of 4 KiB in the same run, alternating, medians.

use headpond_block::devices::{NullDevice, RamDevice};
use headpond_block::{BlockDevice, Buffer, Driver, Executor, Order, Wait};
use headpond_cache::{
    CleaningConfig, CleaningPolicy, CreateOptions, Expected, Foundation, Mode, Slice, SliceConfig,
    create,
};
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

#[derive(Default)]
struct Samples {
    ours: Vec<f64>,
    limit: Vec<f64>,
}

fn main() {
    let executor = Executor::new(Box::new(Clock(Instant::now())), Order::Fifo);
    let runtime = executor.runtime();
    let rows = executor.block_on(async move {
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
            rows[0].ours.push(writes(&slice, |index| index).await);
            rows[1].limit.push(copies(&arena, |index| scatter(index, seed), Direction::In));
            rows[1].ours.push(writes(&slice, |index| scatter(index, seed)).await);
            rows[2].limit.push(copies(&arena, |index| scatter(index, seed), Direction::Out));
            rows[2].ours.push(reads(&slice, |index| scatter(index, seed)).await);
        }
        rows
    });
    let rows = rows.expect("nothing stalls");
    let names = ["engine fill 4k", "engine write hit 4k", "engine read hit 4k"];
    for (name, samples) in names.into_iter().zip(rows) {
        report(name, samples);
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

async fn open(runtime: &headpond_block::Runtime, ram: Rc<RamDevice>, seed: u64) -> Slice {
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
async fn writes(slice: &Slice, place: impl Fn(u64) -> u64) -> f64 {
    let data = Buffer::zeroed(BLOCK as usize);
    data.fill(0x5a);
    let device: &dyn BlockDevice = slice;
    let start = Instant::now();
    for index in 0..BLOCKS {
        device.write(place(index) * BLOCK, &data).await.expect("written");
    }
    start.elapsed().as_nanos() as f64 / BLOCKS as f64
}

async fn reads(slice: &Slice, place: impl Fn(u64) -> u64) -> f64 {
    let data = Buffer::zeroed(BLOCK as usize);
    let device: &dyn BlockDevice = slice;
    let start = Instant::now();
    for index in 0..BLOCKS {
        device.read(place(index) * BLOCK, &data).await.expect("read");
    }
    start.elapsed().as_nanos() as f64 / BLOCKS as f64
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

fn report(name: &str, samples: Samples) {
    let median = |mut samples: Vec<f64>| {
        samples.sort_by(f64::total_cmp);
        samples[samples.len() / 2]
    };
    let (ours, limit) = (median(samples.ours), median(samples.limit));
    println!("{name:<24} {ours:>7.0} ns/op   copy {limit:>5.0} ns   {:.2} of it", limit / ours);
    let (ours, limit) = (1e9 / ours, 1e9 / limit);
    println!(r#"{{"name":"{name}","unit":"op/s","ours":{ours:.0},"limit":{limit:.0}}}"#);
}
