//! `headpond simulate`.

mod comparison;
mod page;
mod picture;
pub(super) mod progress;
mod report;

use super::analyze::write;
use super::reading::{read_stack, spare_inputs};
use crate::args::{FitChoice, SimulateArgs};
use crate::telling::print_json;
use anyhow::{Context, Result};
use headpond_api::answers::Versioned;
use headpond_api::outcome::{Exit, Failure};
use headpond_report::{Align, Table};
use headpond_trace::{Damage, ReadOptions};
use headpond_whatif::reference::{self, Cell, Reference, Score, Times, UnscoredCell};
use headpond_whatif::{Experiment, Fit, JobError, Load, Outcome, Pace, TraceLoad, job};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Runs the described stacks, or the published tables.
///
/// # Errors
/// If a file or a machine description is invalid; the error names it.
pub fn run(args: &SimulateArgs) -> Result<Exit> {
    match &args.reference {
        Some(folder) => run_reference(folder, args.json),
        None => run_stacks(args),
    }
}

fn run_stacks(args: &SimulateArgs) -> Result<Exit> {
    let inputs = args.stacks.iter().chain(&args.trace).chain(&args.job);
    spare_inputs(inputs.map(PathBuf::as_path), &args.html)?;
    let load = load(args)?;
    let experiment = |path: &std::path::PathBuf| -> Result<Experiment> {
        let stack = read_stack(path)?;
        Ok(Experiment { stack, load: load.clone(), seed: args.seed })
    };
    let experiments = args.stacks.iter().map(experiment).collect::<Result<Vec<_>>>()?;
    let outcomes = carry_out(&experiments)?;
    if let Some(path) = &args.html {
        write(path, page::page(&outcomes).as_bytes())?;
    }
    match args.json {
        true => print_json(&outcomes.iter().map(Versioned::new).collect::<Vec<_>>())?,
        false => print!("{}", report::text(&outcomes)),
    }
    Ok(Exit::Ok)
}

/// From the trace, the job file, or the equivalent flags.
fn load(args: &SimulateArgs) -> Result<Load> {
    if let Some(path) = &args.trace {
        return Ok(Load::Trace(trace(path, args)?));
    }
    if let Some(path) = &args.job {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        return Ok(Load::Jobs(job::parse(&text).with_context(|| path.display().to_string())?));
    }
    let Some(rw) = &args.rw else {
        return Err(Failure::usage(
            "the workload is missing: --trace FILE, --job FILE, or --rw with options",
        ));
    };
    let mut text = format!(
        "[{rw}]\nrw={rw}\nbs={}\niodepth={}\nnumjobs={}\nruntime={}\nramp_time={}\ntime_based\n",
        args.bs, args.iodepth, args.numjobs, args.runtime, args.ramp_time
    );
    if let Some(percent) = args.rwmixread {
        text += &format!("rwmixread={percent}\n");
    }
    Ok(Load::Jobs(job::parse(&text).map_err(wrong_option)?))
}

/// The line of a job file that the options stand for is not what was written.
fn wrong_option(error: JobError) -> anyhow::Error {
    Failure::usage(match error {
        JobError::Value { key, value, what, .. } => {
            format!("--{} {value} is not {what}", key.replace('_', "-"))
        }
        error => error.to_string(),
    })
}

fn trace(path: &Path, args: &SimulateArgs) -> Result<TraceLoad> {
    if path == Path::new("-") {
        return Err(Failure::usage("--trace needs a file: each stack reads it"));
    }
    let pace = match args.as_fast_as_possible {
        true => Pace::AsFastAsPossible { depth: args.iodepth },
        false => Pace::Recorded { speed: args.speed },
    };
    let fit = match args.fit {
        FitChoice::Wrap => Fit::Wrap,
        FitChoice::Skip => Fit::Skip,
        FitChoice::Refuse => Fit::Refuse,
    };
    let damage = if args.lenient { Damage::Skip } else { Damage::Fail };
    let options = ReadOptions { damage, format: args.format, ..ReadOptions::default() };
    Ok(TraceLoad::open(path, pace, fit, options)?)
}

/// Runs experiments with progress on standard error.
pub fn carry_out(experiments: &[Experiment]) -> Result<Vec<Outcome>> {
    let outcomes = progress::simulate_shown(experiments);
    let outcomes = outcomes.into_iter().zip(experiments);
    outcomes
        .map(|(outcome, experiment)| {
            outcome.with_context(|| format!("stack {}", experiment.stack.name))
        })
        .collect()
}

fn run_reference(folder: &Path, as_json: bool) -> Result<Exit> {
    let reference = reference::plan(folder, Times::default(), reference::OURS)?;
    let outcomes = progress::while_shown(reference.trials.len(), |gauges| reference.run(gauges))?;
    let cells = reference.compare(&outcomes);
    if as_json {
        let waiting = reference.waiting.iter();
        let waiting: Vec<_> =
            waiting.map(|(table, needs)| json!({ "table": table, "needs": needs })).collect();
        let report = json!({
            "cells": cells,
            "unscored": reference.compare_unscored(&outcomes),
            "score": Score::of(&cells),
            "score_of_checks": Score::of_checks(&cells),
            "score_of_tables": Score::of_tables(&cells),
            "not_yet": waiting,
            "remarks": reference.remarks,
        });
        print_json(&Versioned::new(report))?;
    } else {
        print_reference(&reference, &cells, &reference.compare_unscored(&outcomes));
    }
    Ok(Exit::Ok)
}

fn print_reference(reference: &Reference, cells: &[Cell], unscored: &[UnscoredCell]) {
    let left = ["table", "row", "column"].map(|name| (name, Align::Left));
    let right = ["published", "simulated", "ratio", "ours"].map(|name| (name, Align::Right));
    let last = ["with", "taught"].map(|name| (name, Align::Left));
    let mut table = Table::new(left.into_iter().chain(right).chain(last));
    for cell in cells {
        table.row([
            cell.table.to_owned(),
            cell.row.clone(),
            cell.column.clone(),
            format!("{:.0}", cell.published),
            format!("{:.0}", cell.simulated),
            format!("{:.2}", cell.simulated / cell.published),
            cell.ours.map(|ours| format!("{:.0}", ours.figure)).unwrap_or_default(),
            cell.ours.map(|ours| ours.settings.to_owned()).unwrap_or_default(),
            cell.taught.unwrap_or_default().to_owned(),
        ]);
    }
    print!("{}", table.render());
    println!();
    for (table, score) in Score::of_tables(cells) {
        print_score(table, &score);
    }
    print_score("all", &Score::of(cells));
    if let Some(score) = Score::of_checks(cells) {
        print_score("those that taught nothing", &score);
    }
    for cell in cells.iter().filter(|cell| !cell.is_settled) {
        println!("{}: {}, {}: simulated, it does not settle", cell.table, cell.row, cell.column);
    }
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

fn print_score(of: &str, score: &Score) {
    let Score { cells, median_error, worst_error, within_quarter, decisions, decisions_right } =
        score;
    print!(
        "{of}: {cells} cells: median error {:.1} %, worst {:.1} %, {:.0} % within 25 %",
        median_error * 100.0,
        worst_error * 100.0,
        within_quarter * 100.0
    );
    match decisions {
        0 => println!(),
        _ => println!(
            "; whether the cache is faster than the array alone: right in {decisions_right} of \
             {decisions} that are no tie (10 %)"
        ),
    }
}
