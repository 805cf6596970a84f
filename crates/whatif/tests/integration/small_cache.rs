//! A cache that is full of dirty data before few drives: writers get what the drives do, evenly.

use headpond_whatif::{Experiment, Load, Outcome, Stack, job, simulate};

fn run(size: &str, level: u32, drives: u32, seed: u64) -> Outcome {
    let stack = format!(
        "name = \"small\"\n[core]\nraid = {level}\ndrive = \"hdd-7k2-4t\"\ndrives = {drives}\n\
         [cache]\nsize = \"{size}\"\nread_us = 80\nwrite_us = 20\nmb_per_s = 2000\n"
    );
    let job = "[w]\nrw=randwrite\nbs=4k\niodepth=32\nruntime=20\nramp_time=0\ntime_based\n";
    let (load, stack) = (Load::Jobs(job::parse(job).unwrap()), Stack::parse(&stack).unwrap());
    simulate(&Experiment { stack, load, seed }).unwrap()
}

/// Minutes of simulation, for `make conclusions`.
mod conclusions {
    use super::*;

    /// It stood still for seconds: writes in the queues of the drives held segments of the log, for
    /// which reclaim waited, and room came in bursts. And, where nothing was pinned any more, for a
    /// third of a second while the array flushed: reclaim wanted the core to have a segment before
    /// it copied the rest, with those behind it emptied already and writers in want of room.
    #[test]
    fn a_small_cache_before_few_drives_never_stands_still() {
        let arrays = [("64M", 5, 4, 1..=3), ("256M", 5, 4, 1..=2), ("64M", 6, 12, 1..=10)];
        for (size, level, drives, seeds) in arrays {
            for seed in seeds {
                let outcome = run(size, level, drives, seed);
                let full = outcome.windows.iter().filter(|window| window.at_s > 3.0);
                let iops: Vec<f64> = full.map(|window| window.write_iops).collect();
                let mean = iops.iter().sum::<f64>() / iops.len() as f64;
                let what = format!("{size}, RAID {level} of {drives}, seed {seed}");
                println!("{what}: {mean:.0} IOPS, {iops:.0?}");
                // Of a third of a second, shorter than the array's own cycle of write and flush.
                let still = iops.iter().filter(|iops| **iops < 0.5 * mean).count();
                let seconds = iops.chunks_exact(3).map(|thirds| thirds.iter().sum::<f64>() / 3.0);
                let uneven =
                    seconds.filter(|iops| !(0.6 * mean..1.4 * mean).contains(iops)).count();
                assert_eq!((still, uneven), (0, 0), "{what}: {iops:.0?}");
            }
        }
    }
}
