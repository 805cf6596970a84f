//! How long a cache of a terabyte takes to open, after a clean stop and after an unclean one.
//!
//! `cargo run --release -p headpond-cache --example terabyte [GIB]` needs about a hundredth of the
//! cache's size as memory. The cache is full of dirty lines of 64 KiB; the device has modelled time
//! (3 GB/s, 80 µs) and keeps only what is not zero. It works on while the processor does, so what
//! is told is how long a real open takes, and beside it what the two have done; what the model of
//! the device takes of the processor is in neither.

#[allow(dead_code)]
#[path = "../tests/slice/scale.rs"]
mod scale;

use headpond_block::Runtime;
use headpond_block::memory::ReservedMemory;
use scale::{Full, processor_time};

/// The daemon's: with large pages for what is large.
#[global_allocator]
static MEMORY: ReservedMemory = ReservedMemory::new();

const EVERY: u64 = 256 << 20;

fn main() {
    let gib: u64 = std::env::args().nth(1).map_or(1024, |text| text.parse().expect("GiB"));
    headpond_sim::run(1, |runtime, _| measure(runtime, gib << 30)).expect("no deadlock");
}

async fn measure(runtime: Runtime, cache_bytes: u64) {
    let full = Full::new(&runtime, cache_bytes).await;
    full.cache.processor.set(Some(processor_time));
    println!("cache of {} GiB, {} GiB dirty", cache_bytes >> 30, full.dirty_blocks >> 18);
    let slice = open(&full, "clean").await;
    println!("  memory of the slice: {} MiB", slice.stats().memory_bytes >> 20);
    // Until just before the next checkpoint would be taken: the most that has to be read.
    let mut lines = 0;
    while slice.stats().counters.checkpoints < 1 || slice.stats().counters.log_bytes < EVERY {
        full.write_lines(&slice, lines..lines + 1000).await;
        lines += 1000;
    }
    let counters = slice.stats().counters;
    println!(
        "  written meanwhile: {} MiB of log in {} lines, {} checkpoints of {} MiB",
        counters.log_bytes >> 20,
        lines,
        counters.checkpoints,
        (counters.checkpoint_bytes >> 20) / counters.checkpoints,
    );
    full.write_lines(&slice, lines..lines + lines * 9 / 10).await;
    drop(slice);
    let slice = open(&full, "unclean").await;
    slice.stop().await.expect("stops");
}

async fn open(full: &Full, kind: &str) -> headpond_cache::Slice {
    full.cache.take_traffic();
    let (begun, processor) = (full.cache.clock(), processor_time());
    let (slice, recovery) = full.open(EVERY).await.expect("opens");
    let (took, processor) = (full.cache.clock() - begun, processor_time() - processor);
    let traffic = full.cache.take_traffic();
    println!(
        "{kind} open: {:.1} s, of which the processor worked {:.1} s (and {:.1} s more for the model) and the \
         device {:.1} s; read {} MiB, wrote {} MiB in {} operations; {} records, {} dirty blocks",
        took.as_secs_f64(),
        processor.saturating_sub(traffic.spent).as_secs_f64(),
        traffic.spent.as_secs_f64(),
        traffic.busy().as_secs_f64(),
        traffic.read_bytes >> 20,
        traffic.written_bytes >> 20,
        traffic.operations,
        recovery.records_replayed,
        recovery.dirty_blocks,
    );
    slice
}
