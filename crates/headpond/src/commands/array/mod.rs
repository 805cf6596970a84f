//! `headpond array`: what an array would be, by formulas and beside them by the simulator; and what
//! can be done to one that is served.

mod args;
mod every;
mod journal;
mod live;
mod mixed;
mod page;
mod report;

pub use args::ArrayCommand;

use super::analyze::write;
use super::simulate::carry_out;
use super::simulate::progress::while_shown;
use crate::telling::print_json;
use anyhow::{Context, Result};
use args::PlanArgs;
use headpond_api::answers::Versioned;
use headpond_api::outcome::{Exit, Failure};
use headpond_api::place::Places;
use headpond_raid::{Level, Spread};
use headpond_volume::{BackgroundRate, Size};
use headpond_whatif::Condition;
use headpond_whatif::plan::{
    Assumptions, CachedSpeeds, DriveFigures, InFront, PRESET_40, Plan, RebuildTimes, Shape,
    Simulated, array_experiments, array_speeds, cached_count, cached_experiments, cached_speeds,
    rebuild_times,
};
use headpond_whatif::reference::{self, ExpectedCell, Times};
use serde::Serialize;
use serde_json::json;
use std::path::Path;

/// The drive of the preset, where none is named.
const PRESET_DRIVE: &str = "hdd-7k2-4t";

/// Below it, there is hardly room for a log.
const CACHE_BYTES_MIN: u64 = 64 << 20;

/// Of a drive in a rebuild that is simulated.
const REBUILD_BYTES_MIN: u64 = 16 << 20;

/// One array of the comparison.
#[derive(Serialize)]
pub struct Planned {
    pub name: String,
    #[serde(flatten)]
    pub plan: Plan,
    /// What the simulator says of it, where it was asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub simulated: Vec<Simulated>,
    /// And of it behind the cache, where there is one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub simulated_behind_cache: Vec<CachedSpeeds>,
    /// How long the simulator rebuilds it, where it was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rebuilt: Option<RebuildTimes>,
}

/// # Errors
/// Where the drive is unknown, the members do not fit the level, or a file cannot be used; what the
/// daemon refuses.
pub fn run(places: &Places, command: &ArrayCommand) -> Result<Exit> {
    match command {
        ArrayCommand::Plan(args) => plan(args),
        ArrayCommand::AddSpare(args) => live::add_spare(places, args),
        ArrayCommand::ReAdd(args) => live::re_add(places, args),
        ArrayCommand::Replace(args) => live::replace(places, args),
        ArrayCommand::Grow(args) => live::grow(places, args),
        ArrayCommand::Fail(args) => live::fail(places, args),
        ArrayCommand::Remove(args) => live::remove(places, args),
        ArrayCommand::DropCopy(args) => live::drop_copy(places, args),
        ArrayCommand::SetJournal(args) => journal::set(places, args),
        ArrayCommand::DropJournal(of) => journal::take_away(places, of),
        ArrayCommand::Scrub(args) => live::scrub(places, args),
        ArrayCommand::Pause(args) => live::pause(places, args),
        ArrayCommand::Resume(args) => live::resume(places, args),
        ArrayCommand::Wait(of) => live::wait(places, of),
        ArrayCommand::Rate(args) => live::rate(places, args),
    }
}

fn plan(args: &PlanArgs) -> Result<Exit> {
    if let Some(folder) = &args.reference {
        return run_reference(folder, args);
    }
    if args.drive.len() > 1 {
        return mixed::plan(args);
    }
    if args.members.is_none() && args.preset.is_none() {
        return Err(Failure::usage("how many such drives: --members, or name each with --drive"));
    }
    let drive = drive(args)?;
    let given = Assumptions {
        depths: args.depth.clone(),
        pace: pace(args)?,
        replace_hours: f64::from(args.replace),
        cache: args.cache.as_deref().map(|word| in_front(args, word)).transpose()?,
    };
    let mut arrays = arrays(args, &drive, &given)?;
    if args.simulate {
        simulate(&mut arrays, &drive, &given)?;
    }
    if let Some(size) = args.simulate_rebuild {
        for array in &mut arrays {
            rebuild(array, &drive, size, &given)?;
        }
    }
    if let Some(path) = &args.html {
        write(path, page::page(&drive, &given, &arrays).as_bytes())?;
    }
    if args.json {
        let all = json!({ "drive": drive, "assumptions": given, "arrays": arrays });
        print_json(&Versioned::new(all))?;
    } else {
        print!("{}", report::text(&drive, &given, &arrays));
    }
    Ok(Exit::Ok)
}

fn pace(args: &PlanArgs) -> Result<BackgroundRate> {
    let pace = BackgroundRate { min: args.rate_min, max: args.rate_max };
    pace.check().map_err(Failure::usage)?;
    Ok(pace)
}

fn drive(args: &PlanArgs) -> Result<DriveFigures> {
    let word = args.drive.first().map_or(PRESET_DRIVE, String::as_str);
    let mut drive = find(word)?;
    if let Some(percent) = args.afr {
        drive.failures_per_year = percent / 100.0;
    }
    drive.unreadable_bits = args.ure.unwrap_or(drive.unreadable_bits);
    Ok(drive)
}

fn in_front(args: &PlanArgs, word: &str) -> Result<InFront> {
    let drive = find(word)?;
    let size = args.cache_size.unwrap_or(Size(drive.capacity_bytes));
    if !(CACHE_BYTES_MIN..=drive.capacity_bytes).contains(&size.bytes()) {
        let (least, most) = (Size(CACHE_BYTES_MIN), Size(drive.capacity_bytes));
        return Err(Failure::usage(format!(
            "--cache-size {size}: a cache on {word} has {least} to {most}"
        )));
    }
    let hit_share = match args.working_set {
        Some(Size(0)) => return Err(Failure::usage("--working-set 0: nothing is asked for")),
        Some(set) => (size.bytes() as f64 / set.bytes() as f64).min(1.0),
        None => args.hit_ratio / 100.0,
    };
    Ok(InFront { drive, size_bytes: size.bytes(), hit_share })
}

/// Has the simulator say how long the array lacks a member, and with that how safe it is.
fn rebuild(
    array: &mut Planned,
    drive: &DriveFigures,
    size: Size,
    given: &Assumptions,
) -> Result<()> {
    if array.plan.redundancy == 0 {
        return Ok(());
    }
    if size.bytes() < REBUILD_BYTES_MIN {
        let least = Size(REBUILD_BYTES_MIN);
        return Err(Failure::usage(format!(
            "--simulate-rebuild {size}: at least {least} of each drive, to have stripes to rebuild"
        )));
    }
    let times = rebuild_times(array.plan.shape, &drive.model, size.bytes())?;
    let plan = array.plan.clone().with_rebuild(drive, &times, given);
    array.plan = plan.map_err(Failure::usage)?;
    array.rebuilt = Some(times);
    Ok(())
}

fn find(word: &str) -> Result<DriveFigures> {
    DriveFigures::find(word).map_err(Failure::usage)
}

/// What was asked for, or of all levels those that fit.
fn arrays(args: &PlanArgs, drive: &DriveFigures, given: &Assumptions) -> Result<Vec<Planned>> {
    let levels = if args.compare { &Level::ALL[..] } else { &args.level };
    let mut shapes: Vec<Result<Shape>> = levels.iter().map(|&level| shape(args, level)).collect();
    if args.preset.is_some() {
        shapes.extend(PRESET_40.map(Ok));
    }
    let plans = shapes.into_iter().map(|shape| {
        let plan = Plan::of(drive, shape?, given);
        let plan = plan.map_err(Failure::usage)?;
        Ok(Planned {
            name: plan.shape.to_string(),
            plan,
            simulated: Vec::new(),
            simulated_behind_cache: Vec::new(),
            rebuilt: None,
        })
    });
    if !args.compare {
        return plans.collect();
    }
    let (fitting, others): (Vec<_>, Vec<_>) = plans.partition(Result::is_ok);
    // Where nothing fits at all, what is wrong with the first says most.
    match others.into_iter().next() {
        Some(error) if fitting.is_empty() => error.map(|array| vec![array]),
        _ => fitting.into_iter().collect(),
    }
}

fn shape(args: &PlanArgs, level: Level) -> Result<Shape> {
    let members = args.members.unwrap_or_default();
    let usual = level.usual_groups(members);
    // Side by side, one number of groups cannot be meant for mirrors too.
    let is_meant = args.level.len() == 1 || (level.has_groups() && !level.is_mirrored());
    let groups = args.groups.filter(|_| is_meant).unwrap_or(usual);
    let strip_bytes = u32::try_from(args.strip.bytes())
        .map_err(|_| Failure::usage("--strip is a power of two from 4K to 1M"))?;
    let spread = args.width.map(|width| Spread { width, spares: args.distributed_spares });
    Ok(Shape { level, members, groups, spread, strip_bytes })
}

fn conditions(array: &Planned) -> Vec<Condition> {
    array.plan.expected.iter().map(|it| it.condition).collect()
}

fn simulate(arrays: &mut [Planned], drive: &DriveFigures, given: &Assumptions) -> Result<()> {
    let (model, depths) = (&drive.model, &given.depths);
    let of = |it: &Planned| {
        let shape = it.plan.shape;
        let mut all = array_experiments(shape, model, &conditions(it), depths);
        let behind = |cache| cached_experiments(shape, model, cache, depths);
        all.extend(given.cache.iter().flat_map(behind));
        all
    };
    let each: Vec<Vec<_>> = arrays.iter().map(of).collect();
    let outcomes = carry_out(&each.concat())?;
    let mut rest = &outcomes[..];
    for (array, experiments) in arrays.iter_mut().zip(each) {
        let (its, others) = rest.split_at(experiments.len());
        let behind = if given.cache.is_some() { cached_count(depths) } else { 0 };
        let (alone, behind) = its.split_at(its.len() - behind);
        array.simulated = array_speeds(&conditions(array), depths, alone);
        if given.cache.is_some() {
            array.simulated_behind_cache = cached_speeds(depths, behind);
        }
        rest = others;
    }
    Ok(())
}

fn run_reference(folder: &Path, args: &PlanArgs) -> Result<Exit> {
    let mut cells = reference::expected(folder)?;
    if args.simulate {
        let runs = reference::plan_expected(folder, Times::default())?;
        let outcomes = while_shown(runs.trials.len(), |gauges| runs.run(gauges))?;
        for run in runs.compare(&outcomes) {
            let is_its =
                |cell: &&mut ExpectedCell| (&cell.metric, &cell.array) == (&run.row, &run.column);
            let cell = cells.iter_mut().find(is_its).context("a cell that is not in the table")?;
            cell.simulated = Some(run.simulated);
        }
    }
    if args.json {
        print_json(&cells.iter().map(Versioned::new).collect::<Vec<_>>())?;
    } else {
        print!("{}", report::reference(&cells));
    }
    Ok(Exit::Ok)
}
