//! Small requests beside streams that keep the array busy: nobody waits long for the cache, and it
//! makes nobody's small requests slower than the array alone does.

use headpond_whatif::{Experiment, Gauge, JobOutcome, Load, Outcome, Stack, job, simulate_all};

const CORE: &str = "[core]\nraid = 60\ngroups = 2\ndrive = \"hdd-7k2-4t\"\ndrives = 16\n";
/// `full-wait-ms`, unless it is set.
const FULL_WAIT_US: f64 = 5e6;
/// One run of a model is not exact.
const CHANCE: f64 = 0.85;
/// Beside a stream of writes that comes by a tenth faster, of small requests of which no write is
/// kept: a client has as much of the array as it has requests there.
const BESIDE_FASTER: f64 = 0.78;
/// Beside a stream of reads, of writes that wait for the cleaner, where it does not complete
/// stripes: the stream has three times what it has of the array alone, and `docs/limits.md` tells
/// of it.
const BESIDE_READS: f64 = 0.3;

/// Streams and small requests, all over the array.
const MIXES: [&str; 3] = [
    "[stream]\nrw=write\nbs=2m\niodepth=8\nsize=4t\n[small]\nrw=randwrite\nbs=4k\niodepth=10\nsize=4t\n",
    "[stream]\nrw=write\nbs=1m\niodepth=16\nsize=4t\n[small]\nrw=randrw\nbs=4k\niodepth=4\nsize=4t\n",
    "[stream]\nrw=read\nbs=1m\niodepth=8\nsize=4t\n[small]\nrw=randwrite\nbs=8k\niodepth=10\nsize=4t\n",
];
const CLEANING: [&str; 6] = [
    "policy = \"nop\"",
    "policy = \"alru\"",
    "policy = \"acp\"",
    "policy = \"acp\"\nacp = { wake_up_ms = 1, flush_max_buffers = 8192 }",
    "policy = \"stripe\"",
    "policy = \"ordered\"",
];
const MODES: [&str; 4] = ["write-back", "write-only", "write-through", "write-around"];
const CUTOFFS: [&str; 2] = ["full", "never"];
/// What enters the cache: all, or small requests only.
const CLASSES: [&str; 2] = ["", "classes = \"only:request_size:le:64K\"\n"];

struct Cell {
    name: String,
    cache: String,
    /// The share of the array's small requests that are to be served at least.
    floor: f64,
    is_buffered: bool,
    waits_for_cleaner: bool,
}

impl Cell {
    fn floor_in(&self, mix: &str) -> f64 {
        let reads_stream = mix == MIXES[2];
        if reads_stream && self.waits_for_cleaner {
            self.floor.min(BESIDE_READS)
        } else if mix == MIXES[1] && !self.is_buffered {
            self.floor.min(BESIDE_FASTER)
        } else {
            self.floor
        }
    }
}

fn cell(mode: &str, cutoff: &str, cleaning: &str, classes: &str) -> Cell {
    let cache = format!(
        "[cache]\nsize = \"256M\"\nmode = \"{mode}\"\nseq_cutoff = \"{cutoff}\"\n{classes}[cache.cleaning]\n{cleaning}\n"
    );
    let who = if classes.is_empty() { "all" } else { "small" };
    // All of a stream enters, and has the array flushed for its room: it goes faster, at the cost
    // of the small writes.
    let is_flushed = (mode, cutoff, classes) == ("write-through", "never", "");
    let floor = if is_flushed { 0.5 } else { CHANCE };
    let is_buffered = ["write-back", "write-only"].contains(&mode);
    let policies = ["alru", "acp", "ordered"];
    let waits_for_cleaner = is_buffered && policies.iter().any(|it| cleaning.contains(it));
    let name = format!("{mode}, {cutoff}, {cleaning:?}, {who}");
    Cell { name, cache, floor, is_buffered, waits_for_cleaner }
}

/// The small job's requests a second, and how long anybody waited, without the cache and with each.
fn play(mix: &str, cells: &[Cell]) -> Vec<Outcome> {
    let jobs = format!("[global]\ntime_based\nruntime=20\nramp_time=5\n{mix}");
    let experiment = |cache: &str| Experiment {
        stack: Stack::parse(&format!("name = \"one\"\n{CORE}{cache}")).unwrap(),
        load: Load::Jobs(job::parse(&jobs).unwrap()),
        seed: 1,
    };
    let mut experiments = vec![experiment("")];
    experiments.extend(cells.iter().map(|cell| experiment(&cell.cache)));
    let gauges = Gauge::for_each(experiments.len());
    simulate_all(&experiments, &gauges).into_iter().map(|outcome| outcome.unwrap()).collect()
}

fn iops(job: &JobOutcome) -> f64 {
    job.measured.read.iops + job.measured.write.iops
}

fn longest_us(outcome: &Outcome) -> f64 {
    let sides = outcome.jobs.iter().flat_map(|job| [&job.measured.read, &job.measured.write]);
    sides.map(|side| side.latency.max_us).fold(0.0, f64::max)
}

fn check(mix: &str, cells: &[Cell]) {
    let outcomes = play(mix, cells);
    let (plain, cached) = outcomes.split_first().expect("one without");
    let alone = iops(&plain.jobs[1]);
    let stream = iops(&plain.jobs[0]);
    println!(
        "{mix}without: {alone:.0}/s, at most {:.0} ms; stream {stream:.0}/s",
        longest_us(plain) / 1e3
    );
    let mut wrong = Vec::new();
    for (cell, outcome) in cells.iter().zip(cached) {
        let (small, longest) = (iops(&outcome.jobs[1]), longest_us(outcome));
        let stream = iops(&outcome.jobs[0]);
        println!(
            "{}: {small:.0}/s, at most {:.0} ms; stream {stream:.0}/s",
            cell.name,
            longest / 1e3
        );
        if longest > 2.0 * FULL_WAIT_US || small < cell.floor_in(mix) * alone {
            wrong.push(format!(
                "{}: {small:.0}/s of {alone:.0}, {:.0} ms",
                cell.name,
                longest / 1e3
            ));
        }
    }
    assert!(wrong.is_empty(), "{mix}{wrong:#?}");
}

#[test]
fn small_writes_are_served_beside_a_stream_in_every_policy() {
    let cells: Vec<Cell> =
        CLEANING.iter().map(|cleaning| cell("write-back", "full", cleaning, "")).collect();
    check(MIXES[0], &cells);
}

/// The whole product, for `make conclusions`.
mod conclusions {
    use super::*;

    fn whatever_is_set(mix: &str) {
        let mut cells = Vec::new();
        for mode in MODES {
            for cutoff in CUTOFFS {
                for classes in CLASSES {
                    cells.extend(CLEANING.map(|it| cell(mode, cutoff, it, classes)));
                }
            }
        }
        check(mix, &cells);
    }

    #[test]
    fn small_writes_do_not_starve_beside_a_stream_of_long_writes() {
        whatever_is_set(MIXES[0]);
    }

    #[test]
    fn small_reads_and_writes_do_not_starve_beside_a_stream_of_writes() {
        whatever_is_set(MIXES[1]);
    }

    #[test]
    fn small_writes_do_not_starve_beside_a_stream_of_reads() {
        whatever_is_set(MIXES[2]);
    }
}
