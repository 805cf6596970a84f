//! `headpond simulate`.

use crate::args::SimulateArgs;
use crate::outcome::{Exit, Failure};
use anyhow::{Context, Result};
use headpond_advise::render::{Align, Table, count, throughput};
use headpond_lab::reference::{self, Cell, Reference, Score, Times, UnscoredCell};
use headpond_lab::{Experiment, Job, JobOutcome, Outcome, Stack, job, simulate_all};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::path::Path;

/// Runs what is described, or the published tables.
///
/// # Errors
/// Where a file cannot be used, or a machine cannot be put together; the error names it.
pub fn run(args: &SimulateArgs) -> Result<Exit> {
    match &args.reference {
        Some(folder) => run_reference(folder, args.json),
        None => run_stacks(args),
    }
}

fn run_stacks(args: &SimulateArgs) -> Result<Exit> {
    let jobs = jobs(args)?;
    let experiment = |path: &std::path::PathBuf| -> Result<Experiment> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let stack = Stack::parse(&text).with_context(|| path.display().to_string())?;
        Ok(Experiment { stack, jobs: jobs.clone(), seed: args.seed })
    };
    let experiments = args.stacks.iter().map(experiment).collect::<Result<Vec<_>>>()?;
    let outcomes = carry_out(&experiments)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&outcomes)?);
    } else {
        print(&outcomes);
    }
    Ok(Exit::Ok)
}

/// From the job file, or from the flags that say the same.
fn jobs(args: &SimulateArgs) -> Result<Vec<Job>> {
    if let Some(path) = &args.job {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        return job::parse(&text).with_context(|| path.display().to_string());
    }
    let Some(rw) = &args.rw else {
        return Err(Failure::usage(
            "say what is asked of the machine: --job FILE, or --rw and more",
        ));
    };
    let mut text = format!(
        "[{rw}]\nrw={rw}\nbs={}\niodepth={}\nnumjobs={}\nruntime={}\nramp_time={}\ntime_based\n",
        args.bs, args.iodepth, args.numjobs, args.runtime, args.ramp_time
    );
    if let Some(percent) = args.rwmixread {
        text += &format!("rwmixread={percent}\n");
    }
    Ok(job::parse(&text)?)
}

/// Runs experiments with a bar on standard error.
fn carry_out(experiments: &[Experiment]) -> Result<Vec<Outcome>> {
    let bar = ProgressBar::new(experiments.len() as u64).with_message("simulating");
    let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} (left: {eta})");
    bar.set_style(style.expect("the template is ours"));
    bar.tick();
    let outcomes = simulate_all(experiments, |_| bar.inc(1));
    bar.finish_and_clear();
    let outcomes = outcomes.into_iter().zip(experiments);
    outcomes
        .map(|(outcome, experiment)| {
            outcome.with_context(|| format!("stack {}", experiment.stack.name))
        })
        .collect()
}

fn print(outcomes: &[Outcome]) {
    let right = ["", "IOPS", "MB/s", "mean ms", "p50", "p99", "p99.9", "p99.99"];
    let columns = [("stack", Align::Left), ("job", Align::Left)]
        .into_iter()
        .chain(right.map(|name| (name, Align::Right)));
    let mut table = Table::new(columns);
    for outcome in outcomes {
        for job in &outcome.jobs {
            rows(&mut table, &outcome.name, job);
        }
    }
    print!("{}", table.render());
    for outcome in outcomes {
        println!("\n{}:", outcome.name);
        outcome.why.iter().for_each(|line| println!("  - {line}"));
    }
}

fn rows(table: &mut Table, stack: &str, job: &JobOutcome) {
    let sides = [("read", job.measured.read), ("write", job.measured.write)];
    for (name, side) in sides.into_iter().filter(|(_, side)| side.requests > 0) {
        let ms = |micros: f64| format!("{:.2}", micros / 1e3);
        let latency = side.latency;
        table.row([
            stack.to_owned(),
            job.name.clone(),
            name.to_owned(),
            count(side.iops.round() as u64),
            throughput(side.mb_per_s * 1e6),
            ms(latency.mean_us),
            ms(latency.p50_us),
            ms(latency.p99_us),
            ms(latency.p99_9_us),
            ms(latency.p99_99_us),
        ]);
    }
}

fn run_reference(folder: &Path, as_json: bool) -> Result<Exit> {
    let reference = reference::plan(folder, Times::default())?;
    let outcomes = carry_out(&reference.experiments)?;
    let cells = reference.compare(&outcomes);
    if as_json {
        let waiting = reference.waiting.iter();
        let waiting: Vec<_> =
            waiting.map(|(table, needs)| json!({ "table": table, "needs": needs })).collect();
        let score = Score::of(&cells);
        let report = json!({
            "cells": cells,
            "unscored": reference.compare_unscored(&outcomes),
            "score": score,
            "not_yet": waiting,
            "remarks": reference.remarks,
        });
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print_reference(&reference, &cells, &reference.compare_unscored(&outcomes));
    }
    Ok(Exit::Ok)
}

fn print_reference(reference: &Reference, cells: &[Cell], unscored: &[UnscoredCell]) {
    let left = ["table", "row", "column"].map(|name| (name, Align::Left));
    let right = ["published", "simulated", "ratio"].map(|name| (name, Align::Right));
    let mut table = Table::new(left.into_iter().chain(right));
    for cell in cells {
        table.row([
            cell.table.to_owned(),
            cell.row.clone(),
            cell.column.clone(),
            format!("{:.0}", cell.published),
            format!("{:.0}", cell.simulated),
            format!("{:.2}", cell.simulated / cell.published),
        ]);
    }
    print!("{}", table.render());
    let Score { cells, median_error, worst_error, within_quarter } = Score::of(cells);
    println!(
        "\n{cells} cells: median error {:.1} %, worst {:.1} %, {:.0} % of the cells within 25 %",
        median_error * 100.0,
        worst_error * 100.0,
        within_quarter * 100.0
    );
    for UnscoredCell { table, row, column, published, simulated } in unscored {
        println!(
            "{table}: {row}, {column}: published {published}, simulated {simulated:.0}; no score"
        );
    }
    reference.remarks.iter().for_each(|remark| println!("{remark}"));
    for (table, needs) in &reference.waiting {
        println!("{table}: not yet: needs {needs}");
    }
}
