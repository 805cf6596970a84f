//! The job file of a round, as a person could have written it.

use super::Ground;
use super::starts::Starts;
use crate::plan::{Beside, Cell, Plan, Sync, beside, own};
use headpond_whatif::ArrivalProcess;
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::fmt::Write;
use std::path::Path;

/// Latencies that fio is asked to name; all others are in its bins.
const PERCENTILES: &str = "50:90:99:99.9:99.99";

/// Bins of fio's histograms over time are 2^4 of those in its JSON: four for each doubling.
pub(super) const HISTOGRAM_COARSENESS: u32 = 4;

/// Jobs that are processes of their own begin a session each, and would outlive whoever ends fio.
const ONE_PROCESS: &str = "thread\n";

/// Which round of a cell it is, and where its sequential jobs begin.
pub(super) struct CellRound<'a> {
    pub number: u32,
    pub starts: &'a Starts,
}

/// The job file of a round; logs are written beside `stem`. Where several arrays are loaded at
/// once, jobs that do the same on each of them are one group, which fio reports as one.
pub(super) fn text(
    plan: &Plan,
    cell: &Cell,
    grounds: &[Ground<'_>],
    engine: &str,
    stem: &Path,
    turn: &CellRound<'_>,
) -> String {
    let number = turn.number;
    let target = &plan.targets[cell.target];
    let round = plan.rounds_of(target);
    let mut text = format!("; {}, round {number}\n[global]\n{ONE_PROCESS}", cell.title(plan));
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
        let mut body = job(plan, cell, word, grounds[0].is_nbd);
        body += &start(turn, &own(index), size);
        if !round.pass {
            line(&mut body, "write_iops_log", format!("{stem}-phase-{index}"));
            line(&mut body, "write_hist_log", format!("{stem}-phase-{index}"));
        }
        let first = if index > 0 { "stonewall\n" } else { "" };
        text += &group(&own(index), first, &body, grounds, engine);
        for (number, job) in plan.beside.iter().enumerate() {
            let name = beside(number, index);
            let size = job.size.map(|size| size.bytes()).or(size);
            let body = job_beside(job) + &start(turn, &name, size);
            let _ = write!(text, "\n; {}", job.name);
            text += &group(&name, "", &body, grounds, engine);
        }
    }
    text
}

/// A job on each of the grounds, in a group of their own that is called like the first of them.
fn group(name: &str, first: &str, body: &str, grounds: &[Ground<'_>], engine: &str) -> String {
    let mut text = String::new();
    for (array, ground) in grounds.iter().enumerate() {
        let _ = match array {
            0 => write!(text, "\n[{name}]\nnew_group\n{first}"),
            array => write!(text, "\n[{name}-on-{array}]\n"),
        };
        text += &place(ground, engine);
        text += body;
    }
    text
}

/// Where a job begins, if not at the beginning, and what is left of its region from there.
fn start(turn: &CellRound<'_>, name: &str, size: Option<u64>) -> String {
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
fn seed(plan: &Plan, cell: &Cell, number: u32) -> u64 {
    let parts = [cell.number as u64, u64::from(number)];
    let mix = |seed, part| SplitMix64::seed_from_u64(seed ^ part).next_u64();
    parts.into_iter().fold(plan.seed, mix) >> 1
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
    if let Some(node) = ground.memory_node {
        line(&mut text, "numa_mem_policy", format!("bind:{node}"));
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
    let mut text = format!("; {} fills\n[fill]\n{ONE_PROCESS}", precondition.fills);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The job file of the first round of a cell with these lines in its matrix.
    fn written(matrix: &str, ground: &Ground<'_>, engine: &str) -> String {
        let target = match ground.is_nbd {
            true => "export = \"nbd://h/x\"",
            false => "device = \"/dev/a:b\"",
        };
        let text = format!(
            "name = \"t\"\n[[target]]\nname = \"it\"\n{target}\nload = \"fio\"\n[matrix]\n\
             bs = [\"4K\"]\nsize = \"1G\"\n{matrix}\n[rounds]\nseconds = 2\nwindows = 4\n"
        );
        let plan = Plan::parse(&text).unwrap();
        let turn = CellRound { number: 0, starts: &Starts::default() };
        let grounds = std::slice::from_ref(ground);
        super::text(&plan, &plan.cells()[0], grounds, engine, Path::new("/raw/stem"), &turn)
    }

    fn ground(is_nbd: bool) -> Ground<'static> {
        let place = if is_nbd { "nbd://h/x" } else { "/dev/a:b" };
        let (raw, cpus) = (Path::new("/raw"), Some("0-3".into()));
        Ground { place: place.into(), is_nbd, raw, bytes: None, cpus, memory_node: Some(1) }
    }

    #[test]
    fn each_kind_of_stable_write_has_its_line_and_no_other() {
        let lines = ["fsync=1", "fdatasync=1", "sync=dsync"];
        for (sync, is_nbd, wanted) in [
            ("none", false, None),
            ("fsync", false, Some("fsync=1")),
            ("fdatasync", false, Some("fdatasync=1")),
            ("fua", false, Some("sync=dsync")),
            ("none", true, None),
            ("fsync", true, Some("fsync=1")),
            ("fdatasync", true, Some("fsync=1")),
        ] {
            let matrix = format!("rw = [\"randwrite\"]\nsync = [\"{sync}\"]");
            let text = written(&matrix, &ground(is_nbd), "libaio");
            let found: Vec<_> = text.lines().filter(|line| lines.contains(line)).collect();
            assert_eq!(found, wanted.into_iter().collect::<Vec<_>>(), "{sync}: {text}");
        }
    }

    #[test]
    fn a_job_says_where_how_much_how_long_and_on_which_processors() {
        let matrix = "rw = [\"randrw\"]\nmix = [70]\njobs = [2]\ndepth = [8]";
        let text = written(matrix, &ground(false), "io_uring");
        for line in [
            "[own-0]",
            "thread",
            "ioengine=io_uring",
            "filename=/dev/a\\:b",
            "direct=1",
            "cpus_allowed=0-3",
            "numa_mem_policy=bind:1",
            "size=1073741824",
            "runtime=2000ms",
            "time_based",
            "log_avg_msec=500",
            "rw=randrw",
            "rwmixread=70",
            "bs=4096",
            "numjobs=2",
            "iodepth=8",
            "norandommap",
            "randseed=3395948882924712079",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}: {text}");
        }
        let text = written(matrix, &ground(true), "nbd");
        assert!(text.contains("uri=nbd://h/x\n") && !text.contains("direct="), "{text}");
    }

    #[test]
    fn a_rate_is_parted_among_processes_and_directions() {
        let matrix = "rw = [\"randrw\"]\nmix = [70]\njobs = [2]\nrate = [1000]";
        let text = written(matrix, &ground(false), "libaio");
        assert!(text.contains("rate_iops=350,150\nrate_process=poisson\n"), "{text}");
        let reads = written("rw = [\"randread\"]\nrate = [1000]", &ground(false), "libaio");
        assert!(reads.contains("rate_iops=1000\n"), "{reads}");
    }
}
