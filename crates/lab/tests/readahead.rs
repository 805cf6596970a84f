//! What reading ahead is worth, on modelled drives in virtual time.

use headpond_lab::{Experiment, Load, Outcome, Stack, job, simulate};

/// A RAID 6 of twelve drives behind a cache.
fn run(readahead: &str, job: &str) -> Outcome {
    let stack = format!(
        "name = \"ahead\"\n[core]\nraid = 6\ndrive = \"hdd-7k2-4t\"\ndrives = 12\n\
         [cache]\nsize = \"4G\"\nread_us = 80\nwrite_us = 20\nmb_per_s = 2000\n\
         [cache.readahead]\npolicy = \"{readahead}\"\n"
    );
    let load = Load::Jobs(job::parse(job).unwrap());
    let stack = Stack::parse(&stack).unwrap();
    simulate(&Experiment { stack, load, seed: 1 }).unwrap()
}

fn read_mb_per_s(readahead: &str, job: &str) -> f64 {
    run(readahead, job).jobs[0].measured.read.mb_per_s
}

#[test]
fn a_sequential_reader_at_depth_1_gains_by_a_clear_factor() {
    for (block, least) in [("16k", 1.5), ("64k", 1.6)] {
        let job =
            format!("[seq]\nrw=read\nbs={block}\niodepth=1\nruntime=2\nramp_time=1\ntime_based\n");
        let (with, without) = (read_mb_per_s("adaptive", &job), read_mb_per_s("off", &job));
        println!("{block}: {with:.0} MB/s with, {without:.0} without");
        assert!(with > least * without, "{block}: {with:.0} against {without:.0} MB/s");
    }
}

#[test]
fn random_readers_lose_nothing() {
    for depth in [1, 16] {
        let job = format!(
            "[random]\nrw=randread\nbs=4k\niodepth={depth}\nruntime=5\nramp_time=1\ntime_based\n"
        );
        let (with, without) = (read_mb_per_s("adaptive", &job), read_mb_per_s("off", &job));
        println!("depth {depth}: {with:.2} MB/s with, {without:.2} without");
        assert!(with > 0.99 * without, "depth {depth}: {with:.2} against {without:.2} MB/s");
    }
}
