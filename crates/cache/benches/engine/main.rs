//! What the cache costs by itself: RAM cache device, null core, one thread, one request in flight
//! or several, beside plain copies of as many bytes in the same run, alternating, medians; and in
//! instructions. Then what a second thread with a slice of its own adds.
//!
//! The log is written as in production, descriptors included, and checksums of the data where
//! memory is asked to have them; what is evicted is reclaimed with the flushes and announcements
//! that reclaim makes.

mod cores;
mod instructions;
mod work;

use headpond_block::devices::RamDevice;
use headpond_block::memory::ReservedMemory;
use headpond_block::{Buffer, Driver, Executor, Order, Runtime, Wait};
use instructions::Instructions;
use std::error::Error;
use std::hint::black_box;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use work::{Bench, CACHE_BYTES, LARGER, ROUNDS, ROWS, Row, WORKED_BYTES, Work, scatter, timed};

/// As in the daemon: with large pages.
#[global_allocator]
static MEMORY: ReservedMemory = ReservedMemory::new();

/// The cache where instructions are counted and it has to be full, in bytes: soon.
const COUNTED_CACHE_BYTES: u64 = 128 << 20;

/// Requests that are hit where instructions are counted: more than are counted.
const HIT_COUNTED: u64 = 2048;

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

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let executor = Executor::new(Box::new(Clock(Instant::now())), Order::Fifo);
    let runtime = executor.runtime();
    let find = |word: &String| ROWS.into_iter().find(|row| row.word() == *word);
    match arguments.as_slice() {
        [_, command, word, count] if command == "count" => {
            let row = find(word).ok_or("unknown work")?;
            return Ok(executor.block_on(work_alone(&runtime, row, count.parse()?))?);
        }
        [_, command] if command == "cores" => {
            cores::ROWS.into_iter().for_each(cores::measure);
            return Ok(());
        }
        // For a profiler.
        [_, command, word] if command == "only" => {
            let row = find(word).ok_or("unknown work")?;
            let (ram, arena) = memory(row.times);
            let samples = executor.block_on(measure(&runtime, &ram, &arena, row))?;
            report(row, samples, None);
            return Ok(());
        }
        _ => {}
    }
    for times in [1, LARGER] {
        let (ram, arena) = memory(times);
        for row in ROWS.into_iter().filter(|row| row.times == times) {
            let samples = executor.block_on(measure(&runtime, &ram, &arena, row))?;
            // In a large cache they are the same.
            let counted = if times == 1 { instructions::of_one(&row.word())? } else { None };
            if times == 1 && counted.is_none() {
                eprintln!("skipped: instructions of {}: valgrind is not installed", row.name());
            }
            report(row, samples, counted);
        }
    }
    cores::ROWS.into_iter().for_each(cores::measure);
    Ok(())
}

/// The cache device, and memory to copy to and from, so many times as large. Their pages are taken
/// before anything is measured.
fn memory(times: u64) -> (Rc<RamDevice>, Buffer) {
    let ram = RamDevice::new("ram", CACHE_BYTES * times);
    ram.memory().fill(1);
    let arena = Buffer::zeroed((WORKED_BYTES * times) as usize);
    arena.fill(1);
    (Rc::new(ram), arena)
}

/// Operations without a clock beside them, for a tool that counts.
async fn work_alone(runtime: &Runtime, row: Row, count: u64) {
    if row.work.cleans() {
        return clean_alone(runtime, row, count).await;
    }
    let is_hit = matches!(row.work, Work::WriteHit | Work::ReadHit);
    let cache_bytes = if is_hit { CACHE_BYTES } else { COUNTED_CACHE_BYTES };
    let ram = Rc::new(RamDevice::new("ram", cache_bytes));
    let bench = Bench::new(runtime, &ram, row, 0).await;
    row.prepare(&bench, HIT_COUNTED).await;
    row.carry_out(&bench, count, 0).await;
}

/// As many caches are dirty whatever the count is, so that only what is cleaned makes a difference.
async fn clean_alone(runtime: &Runtime, row: Row, count: u64) {
    let mut benches = Vec::new();
    for seed in 0..instructions::MANY / instructions::FEW {
        let ram = Rc::new(RamDevice::new("ram", CACHE_BYTES));
        let bench = Bench::new(runtime, &ram, row, seed).await;
        row.prepare(&bench, instructions::FEW).await;
        benches.push(bench);
    }
    for bench in &benches[..(count / instructions::FEW) as usize] {
        row.carry_out(bench, instructions::FEW, 0).await;
    }
}

async fn measure(runtime: &Runtime, ram: &Rc<RamDevice>, arena: &Buffer, row: Row) -> Samples {
    let mut samples = Samples::default();
    let requests = row.requests();
    let is_kept = matches!(row.work, Work::ReadMiss | Work::WriteThrough);
    let mut bench = Bench::new(runtime, ram, row, 0).await;
    row.prepare(&bench, requests).await;
    for round in 0..ROUNDS {
        if !is_kept && round > 0 {
            bench = Bench::new(runtime, ram, row, round).await;
            row.prepare(&bench, requests).await;
        }
        bench.check_dirty_data(row);
        samples.limit.push(copies(arena, row, round));
        samples.ours.push(timed(requests, row.carry_out(&bench, requests, round)).await);
    }
    samples
}

/// Nanoseconds of a plain copy of as many bytes, to or from the same kind of place.
fn copies(arena: &Buffer, row: Row, round: u64) -> f64 {
    let len = row.bytes as usize;
    // Aligned, as payload is: a copy from a line's middle takes up to twice as long.
    let block = Buffer::zeroed(len);
    block.fill(0x5a);
    // SAFETY: both belong to this loop alone.
    let (arena, block) = unsafe { (arena.as_mut_slice(), block.as_mut_slice()) };
    let requests = row.requests();
    let is_in_order = matches!(row.work, Work::Fill | Work::CheckedFill | Work::CleanInOrder);
    let is_out = matches!(row.work, Work::ReadHit | Work::ReadMiss) || row.work.cleans();
    let start = Instant::now();
    for index in 0..requests {
        let place = if is_in_order { index } else { scatter(index, round) % requests };
        let place = &mut arena[place as usize * len..][..len];
        match is_out {
            true => block.copy_from_slice(black_box(place)),
            false => place.copy_from_slice(black_box(block)),
        }
        black_box(&mut *block);
    }
    start.elapsed().as_nanos() as f64 / requests as f64
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn report(row: Row, samples: Samples, instructions: Option<Instructions>) {
    let name = row.name();
    let (ours, limit) = (median(samples.ours), median(samples.limit));
    println!("{name:<36} {ours:>7.0} ns/op   copy {limit:>5.0} ns   {:.2} of it", limit / ours);
    let (ours, limit) = (1e9 / ours, 1e9 / limit);
    let counted = instructions.map_or_else(String::new, |counted| {
        let Instructions { checksums, copies, .. } = counted;
        let work = counted.work();
        println!(
            "{:<36} {work:>7.0} instructions/op, {checksums:.0} of them in checksums without \
             AVX-512; {copies:.0} more in copies",
            ""
        );
        println!("{:<36} {}", "", counted.spent_on());
        format!(r#","instructions":{work:.0}"#)
    });
    println!(r#"{{"name":"{name}","unit":"op/s","ours":{ours:.0},"limit":{limit:.0}{counted}}}"#);
}
