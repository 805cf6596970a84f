//! What the adaptive bypass is worth before a fast array, and what it costs before a slow one.

use headpond_whatif::{Experiment, Load, Stack, job, simulate};

/// Before eight NVMe drives, one SSD whose operations are short and whose bandwidth is not theirs.
const FAST: &str = "[core]\nraid = 0\ndrive = \"nvme-dc-2t\"\ndrives = 8\n";
const CACHE: &str = "[cache]\nsize = \"1G\"\nread_us = 20\nwrite_us = 20\nmb_per_s = 500\n";
const DISKS: &str = "[core]\nraid = 6\ndrive = \"hdd-7k2-4t\"\ndrives = 40\n";

/// Requests a second of the last job.
fn iops(core: &str, cache: &str, policy: &str, jobs: &str) -> f64 {
    let bypass = if cache.is_empty() { String::new() } else { format!("bypass = \"{policy}\"\n") };
    let stack = Stack::parse(&format!("name = \"bypass\"\n{core}{cache}{bypass}")).unwrap();
    let load = Load::Jobs(job::parse(jobs).unwrap());
    let outcome = simulate(&Experiment { stack, load, seed: 1 }).unwrap();
    let measured = &outcome.jobs.last().expect("a job").measured;
    measured.read.iops + measured.write.iops
}

/// Random reads of what a cache of this size holds wholly once it is warm.
fn reads(depth: u32) -> String {
    format!(
        "[global]\nbs=4k\nsize=100m\ntime_based\n[reads]\nrw=randread\niodepth={depth}\n\
         ramp_time=2\nruntime=1\n"
    )
}

#[test]
fn with_little_in_flight_hits_stay_in_the_cache() {
    let jobs = reads(1);
    let off = iops(FAST, CACHE, "off", &jobs);
    let adaptive = iops(FAST, CACHE, "adaptive", &jobs);
    println!("depth 1: {off:.0} without, {adaptive:.0} with");
    assert!(adaptive > 0.98 * off, "{adaptive:.0} of {off:.0}");
}

#[test]
fn before_forty_disks_it_costs_nothing() {
    // Writes into a large region: in a small one they wait for the cleaner, now more, now less.
    // Reads of a region that has been read in: before, the disks tell more than the bypass does.
    for (rw, depth, size, ramp) in [("randread", 4, "64m", 10), ("randwrite", 32, "512m", 0)] {
        let jobs = format!(
            "[global]\nbs=4k\nsize={size}\ntime_based\n[job]\nrw={rw}\niodepth={depth}\n\
             ramp_time={ramp}\nruntime=1\n"
        );
        let off = iops(DISKS, CACHE, "off", &jobs);
        let adaptive = iops(DISKS, CACHE, "adaptive", &jobs);
        println!("{rw} at depth {depth}: {off:.0} without, {adaptive:.0} with");
        assert!(adaptive > 0.98 * off, "{rw}, depth {depth}: {adaptive:.0} of {off:.0}");
    }
}

/// Minutes of simulation, for `make conclusions`.
mod conclusions {
    use super::*;

    #[test]
    fn hits_go_where_they_are_answered_sooner() {
        for depth in [32, 128] {
            let jobs = reads(depth);
            let cache = iops(FAST, CACHE, "off", &jobs);
            let array = iops(FAST, "", "", &jobs);
            let both = iops(FAST, CACHE, "adaptive", &jobs);
            println!(
                "depth {depth}: cache {cache:.0}, array {array:.0}, adaptive {both:.0} a second"
            );
            assert!(array > 2.0 * cache, "the cache is what holds it back");
            assert!(both >= 0.95 * array, "{both:.0} of {cache:.0} and {array:.0}");
        }
    }
}
