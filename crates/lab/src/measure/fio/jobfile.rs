//! The job file of a round, as a person could have written it.

use super::Ground;
use super::starts::Starts;
use crate::plan::{Beside, Cell, Plan, Sync, beside, own};
use headpond_whatif::ArrivalProcess;
use std::fmt::Write;
use std::path::Path;

/// Latencies that fio is asked to name; all others are in its bins.
const PERCENTILES: &str = "50:90:99:99.9:99.99";

/// Bins of fio's histograms over time are 2^4 of those in its JSON: four for each doubling.
pub(super) const HISTOGRAM_COARSENESS: u32 = 4;

/// Which round of a cell it is, and where its sequential jobs begin.
pub(super) struct Turn<'a> {
    pub number: u32,
    pub starts: &'a Starts,
}

/// The job file of a round; logs are written beside `stem`.
pub(super) fn text(
    plan: &Plan,
    cell: &Cell,
    ground: &Ground<'_>,
    engine: &str,
    stem: &Path,
    turn: &Turn<'_>,
) -> String {
    let number = turn.number;
    let target = &plan.targets[cell.target];
    let round = plan.rounds_of(target);
    let mut text = format!("; {}, round {number}\n[global]\n", cell.title(plan));
    text += &place(ground, engine);
    let size = plan.matrix.size.or(target.size).map(|size| size.bytes());
    if let Some(size) = size {
        line(&mut text, "size", size);
    }
    if !round.pass {
        line(&mut text, "runtime", format!("{}ms", (round.seconds * 1e3).round()));
        text += "time_based\n";
        let millis = (round.seconds * 1e3 / f64::from(round.windows)).max(1.0).round();
        line(&mut text, "log_avg_msec", millis);
        line(&mut text, "log_hist_msec", millis);
        line(&mut text, "log_hist_coarseness", HISTOGRAM_COARSENESS);
        text += "per_job_logs=0\n";
    }
    line(&mut text, "randseed", seed(plan, cell, number));
    line(&mut text, "percentile_list", PERCENTILES);
    text += "lat_percentiles=1\ngroup_reporting\nnorandommap\nrandom_generator=tausworthe64\n";
    let stem = stem.file_name().unwrap_or_default().to_string_lossy();
    for (index, word) in cell.load.rw.split('+').enumerate() {
        let _ = write!(text, "\n[{}]\nnew_group\n", own(index));
        if index > 0 {
            text += "stonewall\n";
        }
        text += &job(plan, cell, word, ground.is_nbd);
        text += &start(turn, &own(index), size);
        if !round.pass {
            line(&mut text, "write_iops_log", format!("{stem}-phase-{index}"));
            line(&mut text, "write_hist_log", format!("{stem}-phase-{index}"));
        }
        for (number, job) in plan.beside.iter().enumerate() {
            let name = beside(number, index);
            let _ = write!(text, "\n; {}\n[{name}]\nnew_group\n{}", job.name, job_beside(job));
            let size = job.size.map(|size| size.bytes()).or(size);
            text += &start(turn, &name, size);
        }
    }
    text
}

/// Where a job begins, if not at the beginning, and what is left of its region from there.
fn start(turn: &Turn<'_>, name: &str, size: Option<u64>) -> String {
    let (start, mut text) = (turn.starts.of(name), String::new());
    if start > 0 {
        line(&mut text, "offset", start);
        if let Some(size) = size {
            line(&mut text, "size", size - start);
        }
    }
    text
}

/// A seed of its own for every round of every cell: fio would ask for the same addresses again.
///
/// Source: the mixing function of SplitMix64 (Steele, Lea, Flood, 2014).
fn seed(plan: &Plan, cell: &Cell, number: u32) -> u64 {
    let mut mixed = plan.seed;
    for part in [cell.number as u64, u64::from(number)] {
        mixed = (mixed ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
    }
    mixed >> 1
}

fn place(ground: &Ground<'_>, engine: &str) -> String {
    let mut text = String::new();
    line(&mut text, "ioengine", engine);
    if ground.is_nbd {
        line(&mut text, "uri", &ground.place);
    } else {
        // fio takes a colon for the end of a name.
        line(&mut text, "filename", ground.place.replace(':', "\\:"));
        text += "direct=1\n";
    }
    if let Some(cpus) = &ground.cpus {
        line(&mut text, "cpus_allowed", cpus);
    }
    text
}

fn job(plan: &Plan, cell: &Cell, word: &str, is_nbd: bool) -> String {
    let load = &cell.load;
    let mut text = String::new();
    line(&mut text, "rw", word);
    if let Some(mix) = load.mix {
        line(&mut text, "rwmixread", mix);
    }
    line(&mut text, "bs", load.bs.bytes());
    line(&mut text, "numjobs", load.jobs);
    line(&mut text, "iodepth", load.depth);
    match load.sync {
        Sync::None => {}
        // fio's NBD client knows one kind of flush.
        Sync::Fdatasync if is_nbd => text += "fsync=1\n",
        Sync::Fdatasync => text += "fdatasync=1\n",
        Sync::Fsync => text += "fsync=1\n",
        Sync::Fua => text += "sync=dsync\n",
    }
    if let Some(rate) = load.rate {
        // Of each process, and of each direction by itself.
        let each = |share: f64| (rate * share / f64::from(load.jobs)).round().max(1.0);
        let reads = f64::from(load.mix.unwrap_or(50)) / 100.0;
        match load.mix {
            Some(_) => {
                line(&mut text, "rate_iops", format!("{},{}", each(reads), each(1.0 - reads)))
            }
            None => line(&mut text, "rate_iops", each(1.0)),
        }
        if plan.arrivals == ArrivalProcess::Poisson {
            text += "rate_process=poisson\n";
        }
    }
    text
}

fn job_beside(beside: &Beside) -> String {
    let mut text = String::new();
    line(&mut text, "rw", &beside.rw);
    line(&mut text, "rwmixread", beside.mix);
    line(&mut text, "bs", beside.bs.bytes());
    if let Some(size) = beside.size {
        line(&mut text, "size", size.bytes());
    }
    line(&mut text, "numjobs", beside.jobs);
    line(&mut text, "iodepth", beside.depth);
    text
}

/// A job file that writes everything once after the other, in order.
pub(in crate::measure) fn fill(
    ground: &Ground<'_>,
    engine: &str,
    plan: &Plan,
    size: Option<u64>,
) -> String {
    let precondition = &plan.precondition;
    let mut text = format!("; {} fills\n[fill]\n", precondition.fills);
    text += &place(ground, engine);
    if let Some(size) = size {
        line(&mut text, "size", size);
    }
    text += "rw=write\niodepth=32\nrefill_buffers\n";
    line(&mut text, "bs", precondition.fill_bytes());
    line(&mut text, "loops", precondition.fills);
    text
}

fn line(text: &mut String, key: &str, value: impl std::fmt::Display) {
    writeln!(text, "{key}={value}").expect("a string takes everything");
}
