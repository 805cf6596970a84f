//! `headpond lab`.

mod args;
mod check;
mod compare;
mod consent;
mod progress;
mod surroundings;

pub use args::LabCommand;

use crate::interrupt;
use crate::telling::{document, print_json};
use anyhow::{Context, Result, anyhow};
use args::{PlanArgs, PlansArgs, ReportArgs, ResumeArgs, RunArgs, ShownArgs};
use headpond_api::answers::Versioned;
use headpond_api::outcome::{Exit, Failure, told};
use headpond_api::place::Places;
use headpond_lab::{Course, Folder, Plan, Results, Surroundings, Target, builtin, report};
use headpond_report::{Align, Table};
use progress::Bar;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use surroundings::Served;

/// Runs plans and reports results.
///
/// # Errors
/// Where a plan or a folder cannot be used, or a target must not be written to.
pub fn run(places: &Places, command: &LabCommand) -> Result<Exit> {
    match command {
        LabCommand::Plans(args) => plans(args),
        LabCommand::Check(args) => {
            let served = Served::new(places);
            check::run(&plan(&args.plan, &served)?, &served, args.json)
        }
        LabCommand::Run(args) => start(places, args),
        LabCommand::Resume(args) => resume(places, args),
        LabCommand::Report(args) => report(args),
        LabCommand::Compare(args) => compare::run(args),
    }
}

fn plans(args: &PlansArgs) -> Result<Exit> {
    if let Some(name) = &args.name {
        document(builtin::text(name).ok_or_else(|| unknown(name))?);
        return Ok(Exit::Ok);
    }
    let columns = ["plan", "question", "cells"];
    let mut table = Table::new(columns.map(|name| (name, Align::Left)));
    for builtin in builtin::ALL {
        let plan = Plan::parse(builtin.text)?;
        let cells = plan.cells().len().to_string();
        table.row([plan.name, plan.question, cells]);
    }
    print!("{}", table.render());
    Ok(Exit::Ok)
}

/// The plan that is meant, with the targets that the user names.
fn plan(args: &PlanArgs, served: &Served<'_>) -> Result<Plan> {
    let is_file = args.plan.contains('/') || args.plan.ends_with(".toml");
    let plan = match builtin::text(&args.plan) {
        Some(text) if !is_file => Plan::parse(text)?,
        _ if is_file || Path::new(&args.plan).exists() => {
            let text = std::fs::read_to_string(&args.plan).with_context(|| args.plan.clone())?;
            Plan::parse(&text).with_context(|| args.plan.clone())?
        }
        _ => return Err(unknown(&args.plan)),
    };
    if args.target.is_empty() {
        let targets = plan.targets.clone().into_iter().map(with_whole_paths);
        return Ok(Plan { targets: targets.collect(), ..plan });
    }
    let set = |target: &Target| {
        let (set, restore) = (args.set.clone(), args.restore.clone());
        let array = args.array.clone();
        with_whole_paths(Target { set, restore, array, ..target.clone() })
    };
    let setting_of =
        |target: &Target, name: &str| served.setting_of(target.volume.as_ref()?, name).ok();
    let targets = at_once(args.target.iter().map(set))?;
    let (plan, left_out) = plan.with_targets(targets, &setting_of).map_err(Failure::usage)?;
    if !left_out.is_empty() {
        eprintln!(
            "headpond: note: {} is not set: it cannot be changed there (--set COMMAND, where a \
             command can)",
            left_out.join(", ")
        );
    }
    Ok(plan)
}

/// A resume may run in another folder.
fn with_whole_paths(target: Target) -> Target {
    let whole = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
    let is_path = target.device.is_some() || target.file.is_some();
    let alike = target.alike.into_iter().map(|place| match is_path {
        true => whole(place.into()).display().to_string(),
        false => place,
    });
    let alike = alike.collect();
    Target { device: target.device.map(whole), file: target.file.map(whole), alike, ..target }
}

/// Targets of one name are one, whose arrays are loaded at the same time.
fn at_once(named: impl Iterator<Item = Target>) -> Result<Vec<Target>> {
    let mut targets: Vec<Target> = Vec::new();
    for target in named {
        let Some(first) = targets.iter_mut().find(|first| first.name == target.name) else {
            targets.push(target);
            continue;
        };
        if (first.kind(), first.size) != (target.kind(), target.size) {
            return Err(Failure::usage(format!(
                "--target: those that are named {} are loaded concurrently, and must be of one \
                 kind \
                 and size",
                first.name
            )));
        }
        first.alike.extend(target.place());
    }
    Ok(targets)
}

fn unknown(name: &str) -> anyhow::Error {
    let known: Vec<_> = builtin::ALL.iter().map(|plan| plan.name).collect();
    Failure::usage(format!(
        "no plan is named {name}; there are {}, or a file (with a / or .toml)",
        known.join(", ")
    ))
}

fn start(places: &Places, args: &RunArgs) -> Result<Exit> {
    let served = Served::new(places);
    let plan = plan(&args.plan, &served)?;
    check::within_limits(&plan, &BTreeSet::new())?;
    args.shown.check(Some(&args.out))?;
    consent::check(&plan, &args.overwrite, &served)?;
    let course = Course::create(&plan, &args.out, &served)?;
    carry_out(&plan, course, (&args.out, &args.overwrite), &args.shown)
}

fn resume(places: &Places, args: &ResumeArgs) -> Result<Exit> {
    let plan = Folder::plan(&args.folder)?;
    args.shown.check(None)?;
    check::within_limits(&plan, &Folder::done(&args.folder)?)?;
    let served = Served::new(places);
    consent::check(&plan, &args.overwrite, &served)?;
    let course = Course::resume(&plan, &args.folder, &served)?;
    if course.left().next().is_none() {
        eprintln!("headpond: all cells are measured already");
    }
    carry_out(&plan, course, (&args.folder, &args.overwrite), &args.shown)
}

fn carry_out(
    plan: &Plan,
    mut course: Course<'_>,
    (folder, allowed): (&Path, &[String]),
    shown: &ShownArgs,
) -> Result<Exit> {
    let stop = course.stop();
    let note = "ending; a second signal does not wait for the round under way";
    interrupt::ends(note, move || stop.ask());
    let mut bar = Bar::new(plan, course.left());
    let outcome = course.run(&mut bar);
    bar.end();
    let allowed: String = allowed.iter().map(|place| format!(" --overwrite {place}")).collect();
    outcome.map_err(|error| {
        let (why, folder) = (told(&error.into()), folder.display());
        anyhow!("{why}; results are kept, continue with: headpond lab resume {folder}{allowed}")
    })?;
    show(&Results::read(folder)?, shown)
}

fn report(args: &ReportArgs) -> Result<Exit> {
    show(&Results::read(&args.folder)?, &args.shown)
}

fn show(results: &Results, shown: &ShownArgs) -> Result<Exit> {
    let write = |path: &Path, text: String| {
        std::fs::write(path, text).with_context(|| path.display().to_string())
    };
    if let Some(path) = &shown.html {
        write(path, report::page(results))?;
    }
    if let Some(path) = &shown.csv {
        write(path, report::csv(results))?;
    }
    match shown.json {
        true => print_json(&Versioned::new(report::json(results)))?,
        false => print!("{}", report::text(results)),
    }
    Ok(Exit::Ok)
}
