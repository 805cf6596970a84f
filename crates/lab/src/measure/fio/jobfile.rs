//! The job file of a round, as a person could have written it.

use super::Ground;
use crate::plan::{Beside, Cell, Kind, Plan, Sync};
use headpond_whatif::ArrivalProcess;
use std::fmt::Write;
use std::path::Path;

/// Latencies that fio is asked to name; all others are in its bins.
const PERCENTILES: &str = "50:90:99:99.9:99.99";

/// The job file of round `number`; logs are written beside `stem`.
pub(super) fn text(
    plan: &Plan,
    cell: &Cell,
    ground: &Ground<'_>,
    engine: &str,
    stem: &Path,
    number: u32,
) -> String {
    let target = &plan.targets[cell.target];
    let round = plan.rounds_of(target);
    let mut text = format!("; {}, round {number}\n[global]\n", cell.title(plan));
    text += &place(ground, engine);
    if target.kind() == Kind::File {
        text += "; the file has its size already\n";
    }
    if let Some(size) = plan.matrix.size.or(target.size) {
        line(&mut text, "size", size.bytes());
    }
    if !round.pass {
        line(&mut text, "runtime", format!("{}ms", (round.seconds * 1e3).round()));
        text += "time_based\n";
        let millis = (round.seconds * 1e3 / f64::from(round.windows)).max(1.0).round();
        line(&mut text, "log_avg_msec", millis);
        text += "per_job_logs=0\n";
    }
    let seed = plan.seed.wrapping_mul(1_000_003).wrapping_add(u64::from(number)) >> 1;
    line(&mut text, "randseed", seed);
    line(&mut text, "percentile_list", PERCENTILES);
    text += "lat_percentiles=1\ngroup_reporting\nnorandommap\nrandom_generator=tausworthe64\n";
    let stem = stem.file_name().unwrap_or_default().to_string_lossy();
    for (index, word) in cell.load.rw.split('+').enumerate() {
        let name = if index == 0 { word.to_owned() } else { format!("{word}-{index}") };
        let _ = write!(text, "\n[{name}]\nnew_group\n");
        if index > 0 {
            text += "stonewall\n";
        }
        text += &job(plan, cell, word);
        if !round.pass {
            line(&mut text, "write_iops_log", format!("{stem}-phase-{index}"));
        }
        for beside in &plan.beside {
            let _ = write!(text, "\n[{}-{index}]\nnew_group\n{}", beside.name, job_beside(beside));
        }
    }
    text
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

fn job(plan: &Plan, cell: &Cell, word: &str) -> String {
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
        Sync::Fdatasync => text += "fdatasync=1\n",
        Sync::Fsync => text += "fsync=1\n",
        Sync::Fua => text += "sync=dsync\n",
    }
    if let Some(rate) = load.rate {
        line(&mut text, "rate_iops", (rate / f64::from(load.jobs)).ceil());
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
