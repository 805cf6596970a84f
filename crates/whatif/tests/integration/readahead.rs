//! What reading ahead is worth, on modelled drives in virtual time.

use headpond_whatif::{Experiment, Load, Outcome, Stack, job, simulate};

/// A RAID 6 of twelve drives behind a cache.
fn run(readahead: &str, job: &str, seed: u64) -> Outcome {
    let stack = format!(
        "name = \"ahead\"\n[core]\nraid = 6\ndrive = \"hdd-7k2-4t\"\ndrives = 12\n\
         [cache]\nsize = \"4G\"\nread_us = 80\nwrite_us = 20\nmb_per_s = 2000\n\
         [cache.readahead]\npolicy = \"{readahead}\"\n"
    );
    let load = Load::Jobs(job::parse(job).unwrap());
    let stack = Stack::parse(&stack).unwrap();
    simulate(&Experiment { stack, load, seed }).unwrap()
}

fn read_mb_per_s(readahead: &str, job: &str, seed: u64) -> f64 {
    run(readahead, job, seed).jobs[0].measured.read.mb_per_s
}

fn sequential(block: &str, depth: u32, seed: u64) -> (f64, f64) {
    let job = format!(
        "[seq]\nrw=read\nbs={block}\niodepth={depth}\nruntime=2\nramp_time=1\ntime_based\n"
    );
    let (with, without) = (read_mb_per_s("adaptive", &job, seed), read_mb_per_s("off", &job, seed));
    println!("{block}, depth {depth}, seed {seed}: {with:.0} MB/s with, {without:.0} without");
    (with, without)
}

#[test]
fn a_sequential_reader_with_little_in_flight_gains_by_a_clear_factor() {
    for (block, depth, least) in
        [("4k", 1, 1.2), ("16k", 1, 1.35), ("64k", 1, 1.6), ("128k", 1, 1.4), ("16k", 4, 1.2)]
    {
        let (with, without) = sequential(block, depth, 1);
        assert!(with > least * without, "{block}, depth {depth}: {with:.0} against {without:.0}");
    }
}

/// The array gives 1,800 MB/s to who asks for enough; the cache device, which would have to take it
/// and give it back, half of 2,000.
#[test]
fn a_sequential_reader_with_enough_in_flight_loses_nothing() {
    for (block, depth) in [("1m", 1), ("256k", 1), ("256k", 4), ("64k", 4), ("64k", 8), ("64k", 32)]
    {
        let (with, without) = sequential(block, depth, 1);
        assert!(with > 0.99 * without, "{block}, depth {depth}: {with:.0} against {without:.0}");
    }
}

/// The drives read on behind what they are asked for, so that how they stand to each other is no
/// matter to who reads at less than their speed.
#[test]
fn how_the_disks_stand_costs_a_sequential_reader_nothing() {
    for seed in 2..=4 {
        for block in ["64k", "256k"] {
            let (with, without) = sequential(block, 1, seed);
            let (as_usual, alone) = sequential(block, 1, 1);
            assert!(
                (0.97..1.03).contains(&(with / as_usual)),
                "{block}, seed {seed}: {with:.0} MB/s"
            );
            assert!(
                (0.97..1.03).contains(&(without / alone)),
                "{block}, seed {seed}: {without:.0}"
            );
        }
    }
}

#[test]
fn random_readers_lose_nothing() {
    for depth in [1, 16] {
        let job = format!(
            "[random]\nrw=randread\nbs=4k\niodepth={depth}\nruntime=5\nramp_time=1\ntime_based\n"
        );
        let (with, without) = (read_mb_per_s("adaptive", &job, 1), read_mb_per_s("off", &job, 1));
        println!("depth {depth}: {with:.2} MB/s with, {without:.2} without");
        assert!(with > 0.99 * without, "depth {depth}: {with:.2} against {without:.2} MB/s");
    }
}
