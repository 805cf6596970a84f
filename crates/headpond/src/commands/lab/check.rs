//! What a plan will do.

use super::consent;
use super::surroundings::Served;
use crate::telling::print_json;
use anyhow::Result;
use headpond_api::answers::Versioned;
use headpond_api::outcome::{Exit, Failure, told};
use headpond_lab::{
    Estimate, FILL_MB_PER_S, Kind, ModelTime, Plan, Sweep, check_fio, check_places, check_settings,
    estimate, model_time,
};
use headpond_report::{Align, Table, duration};
use serde_json::json;
use std::collections::{BTreeSet, HashSet};

/// Prints what a plan will do, without running it.
///
/// # Errors
/// If the plan or a target cannot be read.
pub fn run(plan: &Plan, served: &Served<'_>, as_json: bool) -> Result<Exit> {
    check_places(plan).map_err(consent::wrong_place)?;
    check_settings(plan, served)?;
    let estimate = estimate(plan, &BTreeSet::new());
    let models = model_time(plan, &BTreeSet::new())?;
    let overwritten: Vec<_> = consent::overwritten(plan).collect();
    let refusals = refusals(plan, &estimate, served);
    if as_json {
        let targets = plan.targets.iter().map(|target| {
            json!({ "name": target.name, "place": target.place(), "alike": target.alike,
                    "load": how(plan, target) })
        });
        let said = json!({
            "plan": plan.name,
            "cells": plan.cells().len(),
            "seconds_least": estimate.least,
            "seconds_most": estimate.most,
            "seconds_of_fills": estimate.fills,
            "seconds_of_models": estimate.of_models,
            "seconds_of_models_here": models.map(|it| it.seconds),
            "fills_mb_per_s": FILL_MB_PER_S,
            "seconds_unknown": estimate.unknown,
            "targets": targets.collect::<Vec<_>>(),
            "overwrites": overwritten,
            "refused_because": refusals,
        });
        print_json(&Versioned::new(said))?;
        return Ok(Exit::Ok);
    }
    print_targets(plan);
    if let Some(sweep) = &plan.sweep {
        println!("\n{}", swept(sweep));
    }
    print_time(plan, &estimate, models);
    plan.caveats().iter().for_each(|words| println!("Note: {words}."));
    print_changes(plan, &overwritten);
    refusals.iter().for_each(|why| println!("It will be refused: {why}"));
    Ok(Exit::Ok)
}

/// Why it cannot run at present.
fn refusals(plan: &Plan, estimate: &Estimate, served: &Served<'_>) -> Vec<String> {
    let mut refusals: Vec<_> = beyond_limit(plan, estimate).into_iter().collect();
    refusals.extend(check_fio(plan).err().map(|error| error.to_string()));
    let contents = plan.targets.iter().flat_map(headpond_lab::Target::each);
    let contents = contents.filter_map(|target| consent::contents(plan, &target, served).err());
    refusals.extend(contents.map(|error| told(&error)));
    // Several targets may have the same obstacle.
    let mut seen = HashSet::new();
    refusals.retain(|refusal| seen.insert(refusal.clone()));
    refusals
}

fn print_time(plan: &Plan, estimate: &Estimate, models: Option<ModelTime>) {
    let Estimate { least, most, fills, of_models, unknown } = estimate;
    let time = |seconds: f64| duration((seconds * 1e9) as u64);
    match plan.targets.iter().all(|target| target.kind() == Kind::Machine) {
        // The length of a pass is known only at its end.
        true if *of_models == 0.0 => println!("\nAll targets are models."),
        true => {
            println!("\nAll targets are models, with up to {} of virtual time.", time(*of_models))
        }
        false if *most == 0.0 => {}
        false if least == most => println!("\nIt takes {}.", time(*most)),
        false => println!("\nIt takes {} to {}.", time(*least), time(*most)),
    }
    if let Some(ModelTime { seconds, probed, cells, at_once }) = models {
        println!(
            "The models take about {} of real time, {at_once} in parallel, estimated for {cells} \
             cells from parts of {probed}.",
            time(seconds)
        );
    }
    if *fills > 0.0 {
        println!("Of that, {} for fills at {FILL_MB_PER_S} MB/s.", time(*fills));
    }
    for what in unknown {
        println!("Not included, since unknown: how long it takes {what}.");
    }
}

fn print_targets(plan: &Plan) {
    let cells = plan.cells();
    println!("{}: {}", plan.name, plan.question);
    let columns = ["target", "is", "load by", "cells", "rounds of each"];
    let mut table = Table::new(columns.map(|name| (name, Align::Left)));
    for (index, target) in plan.targets.iter().enumerate() {
        let of = cells.iter().filter(|cell| cell.target == index).count();
        let rounds = plan.rounds_of(target);
        let length = match rounds.pass {
            true => "one pass".to_owned(),
            false => duration((rounds.seconds * 1e9) as u64),
        };
        let count = match rounds.fewest() == rounds.most() {
            true => rounds.most().to_string(),
            false => format!("{} to {}", rounds.fewest(), rounds.most()),
        };
        table.row([
            target.name.clone(),
            places(target),
            how(plan, target).to_owned(),
            of.to_string(),
            format!("{count} of {length}, {} not counted", rounds.warm_up),
        ]);
    }
    print!("{}", table.render());
}

fn swept(sweep: &Sweep) -> String {
    let whose = match &sweep.tracked[..] {
        [] => "each cell".to_owned(),
        tracked => tracked.join(" and "),
    };
    format!("It measures all cells round after round; a steady state is that of {whose}.")
}

fn print_changes(plan: &Plan, overwritten: &[String]) {
    for (name, values) in &plan.matrix.settings {
        let values: Vec<_> = values.iter().map(ToString::to_string).collect();
        println!("It sets {name}: {}.", values.join(", "));
    }
    for target in plan.targets.iter().filter(|_| !plan.matrix.settings.is_empty()) {
        let Some(command) = &target.set else { continue };
        println!("It runs, on this machine: {command}");
        match &target.restore {
            Some(command) => println!("At the end, in any case, it runs: {command}"),
            None => println!("Nothing restores {}: add restore = \"...\".", target.name),
        }
    }
    match overwritten.is_empty() {
        true => println!("Nothing is overwritten."),
        false => {
            println!("It overwrites {}; allow it with:", overwritten.join(" and "));
            let words: Vec<_> =
                overwritten.iter().map(|place| format!("--overwrite {place}")).collect();
            println!("  headpond lab run ... {}", words.join(" "));
        }
    }
}

/// The devices under load; several are loaded concurrently.
fn places(target: &headpond_lab::Target) -> String {
    let places: Vec<_> = target.each().iter().filter_map(headpond_lab::Target::place).collect();
    if places.is_empty() { "a model".into() } else { places.join(" + ") }
}

/// The load generator.
fn how(plan: &Plan, target: &headpond_lab::Target) -> &'static str {
    match (target.kind(), target.is_in_process(&plan.matrix)) {
        (Kind::Machine, _) => "this program, in virtual time",
        (_, true) => "this program",
        (_, false) if plan.matrix.rate.is_empty() => "fio",
        // fio measures latency from submission, which is late when it lags.
        (_, false) => "fio (open loop; latency from submission)",
    }
}

/// Checks that the rest of a plan takes no longer than its limit.
///
/// # Errors
/// Where it does.
pub fn within_limits(plan: &Plan, done: &BTreeSet<usize>) -> Result<()> {
    match beyond_limit(plan, &estimate(plan, done)) {
        Some(words) => Err(Failure::usage(words)),
        None => Ok(()),
    }
}

fn beyond_limit(plan: &Plan, estimate: &Estimate) -> Option<String> {
    let (limit, hours) = (plan.limits.hours?, estimate.least / 3600.0);
    (hours > limit).then(|| {
        format!(
            "the plan takes {hours:.1} hours at least, and its limit is {limit} (limits.hours); measure \
             less, or raise the limit"
        )
    })
}
