//! What a simulated machine takes of the memory of the real one. Alone in its program: it counts
//! what everything here allocates.

use headpond_testkit::CountedMemory;
use headpond_whatif::{Experiment, Gauge, Load, Stack, job, simulate_watched};
use std::sync::Arc;

#[global_allocator]
static MEMORY: CountedMemory = CountedMemory::new();

const BLOCK_BYTES: f64 = 4096.0;

/// Peak of a run that fills the cache of a 160 TB array with dirty blocks, and goes on.
fn peak_bytes(cache_mib: u32) -> f64 {
    let stack = format!(
        "name = \"large\"\n[core]\nraid = 60\ngroups = 4\ndrive = \"hdd-7k2-4t\"\ndrives = 40\n\
         [cache]\nsize = \"{cache_mib}M\"\n"
    );
    let jobs = "[a]\nrw=randwrite\niodepth=32\nruntime=2\ntime_based\n";
    let load = Load::Jobs(job::parse(jobs).unwrap());
    let experiment = Experiment { stack: Stack::parse(&stack).unwrap(), load, seed: 1 };
    let before = MEMORY.now_bytes();
    let gauge = Arc::new(Gauge::default());
    let outcome = std::thread::scope(|scope| {
        let run = scope.spawn(|| simulate_watched(&experiment, &gauge));
        // The drive model is made from its description with more memory than it takes afterwards.
        while gauge.virtual_time().is_zero() && !gauge.is_over() {
            std::thread::yield_now();
        }
        MEMORY.forget_peak();
        run.join().expect("it does not panic").unwrap()
    });
    assert!(outcome.size_bytes > 120_000_000_000_000, "{}", outcome.size_bytes);
    let dirty = outcome.cache.as_ref().unwrap().dirty_ratio;
    assert!(dirty > 0.95, "{dirty}");
    (MEMORY.peak_bytes() - before) as f64
}

#[test]
fn an_array_of_160_tb_with_a_cache_of_29_gib_full_of_dirty_blocks_fits_in_2_gib() {
    let (small, large) = (256, 1024);
    let (at_small, at_large) = (peak_bytes(small), peak_bytes(large));
    let blocks = |mib: f64| mib * f64::from(1 << 20) / BLOCK_BYTES;
    let per_block = (at_large - at_small) / blocks(f64::from(large - small));
    assert!((15.0..64.0).contains(&per_block), "{per_block} bytes a block: {at_small}, {at_large}");
    let whole = at_large + per_block * blocks(29.2 * 1024.0);
    assert!(whole < f64::from(1u32 << 31), "{whole} bytes, {at_small} and {at_large} measured");
}
