//! How much is simulated in a second of one processor: cache hits and requests of hard disks.

use headpond_whatif::{Experiment, Load, Stack, job, simulate};
use rustix::time::{ClockId, clock_gettime};

const CACHED: &str = "name = \"cached\"\n[core]\nraid = 6\ndrive = \"hdd-7k2-4t\"\ndrives = 10\n\
                      [cache]\nsize = \"512M\"\ncleaning = \"nop\"\n";
const ARRAY: &str = "name = \"array\"\n[core]\nraid = 60\ngroups = 4\ndrive = \"hdd-7k2-4t\"\n\
                     drives = 40\n";

/// The region is written once, and hit ever after.
const READ_HITS: &str = "[fill]\nrw=write\nbs=1m\nsize=64m\n[hot]\nrw=randread\nsize=64m\n\
                         iodepth=16\nramp_time=100ms\nruntime=1500ms\ntime_based\n";
const WRITE_HITS: &str = "[fill]\nrw=write\nbs=1m\nsize=64m\n[hot]\nrw=randwrite\nsize=64m\n\
                          iodepth=16\nramp_time=100ms\nruntime=500ms\ntime_based\n";
const RANDOM_READS: &str = "[random]\nrw=randread\niodepth=256\nruntime=100s\ntime_based\n";

fn main() {
    for (name, stack, jobs) in [
        ("simulated read hits", CACHED, READ_HITS),
        ("simulated write hits", CACHED, WRITE_HITS),
        ("simulated drive reads", ARRAY, RANDOM_READS),
    ] {
        let rate = (0..3).map(|_| requests_a_second(stack, jobs)).fold(0.0, f64::max);
        let row = serde_json::json!({ "name": name, "unit": "ops/s", "ours": rate });
        println!("{row}");
    }
}

/// The best of several runs is what the code costs; the others are what the machine was doing.
fn requests_a_second(stack: &str, jobs: &str) -> f64 {
    let stack = Stack::parse(stack).expect("the stack is ours");
    let load = Load::Jobs(job::parse(jobs).expect("the jobs are ours"));
    let begun = processor_seconds();
    let outcome = simulate(&Experiment { stack, load, seed: 1 }).expect("it runs");
    let took = processor_seconds() - begun;
    let measured = &outcome.jobs.last().expect("a job").measured;
    (measured.read.requests + measured.write.requests) as f64 / took
}

/// What this thread has had of a processor: others may be busy on it too.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
