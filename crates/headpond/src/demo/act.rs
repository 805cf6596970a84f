//! The acts of the demo, in order.

use super::burst::{burst, offline_cleaning, sustained};
use super::load::{Fio, Limit, LoadMaker, Measured, OwnLoad, Target, WORKLOADS, Workload};
use super::machine::{DRIVE, DRIVES, GROUPS, Machine};
use super::outcome::{DemoOutcome, Row};
use super::progress::Progress;
use super::{DemoArgs, page};
use crate::commands::advise::{Findings, advise_for};
use crate::commands::analyze::write;
use crate::interrupt;
use crate::telling::print_json;
use anyhow::{Context, Result};
use headpond_api::answers::Versioned;
use headpond_api::outcome::{Exit, Failure, told};
use headpond_report::shell_words;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Runs of one workload must not repeat each other's addresses.
const RUNS_PER_WORKLOAD: u64 = 8;
const STEPS: u32 = 2 + 4 + 2 + 8 + 1 + 1;

/// Runs the demo and prints table and page.
///
/// # Errors
/// What failed; all files are removed regardless.
pub fn run(args: &DemoArgs) -> Result<Exit> {
    if args.cache.bytes() < 16 << 20 || args.seconds == 0 {
        return Err(Failure::usage("the demo needs a cache of at least 16M and at least 1 second"));
    }
    let note =
        "ending after this step, and removing the demo's files; a second signal ends at once";
    interrupt::ends(note, || ());
    let folder = Folder::make(args)?;
    let load = pick_load(args);
    let outcome = play(args, folder.path(), &*load)?;
    tell(args, &outcome)?;
    if args.keep {
        eprintln!("kept: {}", folder.keep().display());
    }
    Ok(Exit::Ok)
}

fn play(args: &DemoArgs, folder: &Path, load: &dyn LoadMaker) -> Result<DemoOutcome> {
    let mut progress = Progress::new(STEPS);
    let what = format!(
        "creating RAID 60 of {DRIVES} x {DRIVE} ({GROUPS} groups of 8+2, strip 64K), cache ram:{}",
        args.cache
    );
    eprintln!("the cache is volatile memory: the demo uses --force");
    let mut machine = progress.step(&what, || Machine::create(folder, args.cache))?;
    progress.step("serving it over NBD on a Unix socket", || machine.serve())?;
    let size_bytes = machine.size_bytes()?;
    eprintln!(
        "        volume {:.1} TB; random requests fall anywhere in it; load by {}",
        size_bytes as f64 / 1e12,
        load.name()
    );
    let socket = machine.socket();
    let target = Target { socket: &socket, size_bytes, run: 0 };
    let (before, recording) = first_half(&machine, load, &target, args, &mut progress)?;
    let what = "analysing the recording";
    let findings = progress.step(what, || find(&machine, &recording))?;
    eprintln!("\n{}\n{}\n", findings.signature_text, findings.advice_text);
    let settings = findings.settings.clone();
    let what = format!("applying the advice: set {}", shell_words(&settings));
    progress.step(&what, || machine.set(&settings))?;
    let (rows, offline_cleaning_iops) =
        second_half(&machine, load, &target, args, &before, &mut progress)?;
    progress.step("stopping", || machine.stop())?;
    Ok(DemoOutcome {
        load_by: load.name(),
        volume_bytes: size_bytes,
        cache_bytes: args.cache.bytes(),
        applied: settings,
        rows,
        offline_cleaning_iops,
        signature: findings.signature_text,
        advice: findings.advice_text,
    })
}

fn first_half(
    machine: &Machine,
    load: &dyn LoadMaker,
    target: &Target,
    args: &DemoArgs,
    progress: &mut Progress,
) -> Result<(Vec<Measured>, PathBuf)> {
    let recording = machine.start_recording()?;
    let limit = Limit { time: Duration::from_secs(args.seconds), bytes: None };
    let mut before = Vec::new();
    for (index, workload) in WORKLOADS.iter().enumerate() {
        let target = run_of(target, index, 0);
        let what = format!("before, pass-through: {}", workload.name);
        before.push(progress.step(&what, || load.run(workload, &target, limit))?);
    }
    machine.stop_recording()?;
    Ok((before, recording))
}

fn second_half(
    machine: &Machine,
    load: &dyn LoadMaker,
    target: &Target,
    args: &DemoArgs,
    before: &[Measured],
    progress: &mut Progress,
) -> Result<(Vec<Row>, f64)> {
    let time = Duration::from_secs(args.seconds);
    let mut rows = Vec::new();
    let mut offline = 0.0;
    for (index, (workload, before)) in WORKLOADS.iter().zip(before).enumerate() {
        let row_target = run_of(target, index, 1);
        let what = format!("after, burst: {}", workload.name);
        let in_burst = progress.step(&what, || burst(machine, load, workload, &row_target))?;
        let row_target = run_of(target, index, 2);
        let what = format!("after, cache full of dirty data: {}", workload.name);
        let (long_run, ratio) =
            progress.step(&what, || sustained(machine, load, workload, &row_target, time))?;
        if index == 0 {
            let target = run_of(target, index, 4);
            let what = "cleaning the same dirty set offline, in address order";
            offline = progress.step(what, || offline_cleaning(machine, load, workload, &target))?;
        }
        rows.push(row(workload, before, in_burst, long_run, ratio));
    }
    Ok((rows, offline))
}

fn row(
    workload: &Workload,
    before: &Measured,
    burst: Measured,
    sustained: Measured,
    sustained_dirty_ratio: f64,
) -> Row {
    Row { workload: *workload, before: *before, burst, sustained, sustained_dirty_ratio }
}

fn run_of<'a>(target: &Target<'a>, workload: usize, run: u64) -> Target<'a> {
    Target { run: workload as u64 * RUNS_PER_WORKLOAD + run, ..*target }
}

fn find(machine: &Machine, recording: &Path) -> Result<Findings> {
    advise_for(recording, &machine.description()?, &machine.status()?)
}

fn pick_load(args: &DemoArgs) -> Box<dyn LoadMaker> {
    if args.own_load {
        return Box::new(OwnLoad);
    }
    match Fio::find() {
        Ok(fio) => Box::new(fio),
        Err(error) => {
            eprintln!("{}: Headpond's own NBD client makes the load instead", told(&error));
            Box::new(OwnLoad)
        }
    }
}

fn tell(args: &DemoArgs, outcome: &DemoOutcome) -> Result<()> {
    if args.json {
        print_json(&Versioned::new(outcome))?;
    } else {
        println!("\n{}", outcome.grid().render());
        for note in outcome.footnotes() {
            println!("{note}");
        }
    }
    write(&args.report, page::page(outcome).as_bytes())?;
    eprintln!("\npage with table and chart: {}", args.report.display());
    Ok(())
}

/// Temporary files need no disk, and a disk's own latency would mix with the models'.
const MEMORY_FOLDER: &str = "/dev/shm";
/// The region of the sequential writes with its parity, the random blocks, and spare space.
const MEMORY_BYTES_MIN: u64 = 4 << 30;

fn has_room_in_memory() -> bool {
    let room = rustix::fs::statvfs(MEMORY_FOLDER);
    room.is_ok_and(|room| room.f_bavail * room.f_frsize >= MEMORY_BYTES_MIN)
        && tempfile::tempfile_in(MEMORY_FOLDER).is_ok()
}

/// The folder of the sparse files: removed at the end unless it is to be kept.
struct Folder(tempfile::TempDir);

impl Folder {
    fn make(args: &DemoArgs) -> Result<Self> {
        let mut builder = tempfile::Builder::new();
        builder.prefix("headpond-");
        let made = match &args.folder {
            Some(parent) => {
                std::fs::create_dir_all(parent)
                    .with_context(|| format!("cannot make {}", parent.display()))?;
                builder.tempdir_in(parent)
            }
            None if has_room_in_memory() => builder.tempdir_in(MEMORY_FOLDER),
            None => builder.tempdir(),
        };
        Ok(Self(made.context("cannot make a folder for the demo's files")?))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn keep(self) -> PathBuf {
        self.0.keep()
    }
}
