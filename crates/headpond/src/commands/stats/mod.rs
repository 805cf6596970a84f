//! `headpond stats`.

mod lines;
mod table;

use crate::args::StatsArgs;
use anyhow::Result;
use headpond_api::client::Client;
use headpond_api::outcome::{Exit, Failure};
use headpond_api::place::Places;
use serde_json::{Value, json};

/// Shows what a served volume has done since it was opened, or its counters were reset.
///
/// # Errors
/// Where it is not served, has no cache where classes are asked for, or not that class.
pub fn run(places: &Places, args: &StatsArgs) -> Result<Exit> {
    let client = Client::of(places, &args.name)?;
    let mut shown = Shown::of(client.get("/v1/stats")?, args)?;
    if args.reset {
        // Only now: whoever asks for what is not there keeps the counters.
        shown = Shown::of(client.post("/v1/stats/reset", &json!({}))?, args)?;
    }
    let Shown { stats, classes, core } = shown;
    if args.csv {
        let parts = classes.as_deref().or(core.as_ref().map(std::slice::from_ref));
        print!("{}", lines::csv(&stats, parts)?);
    } else if args.json {
        let shown = classes.map(Value::Array).or(core).unwrap_or(stats);
        println!("{}", serde_json::to_string_pretty(&shown)?);
    } else {
        match (classes, core) {
            (Some(classes), _) => classes.iter().for_each(|it| print!("{}", table::class(it))),
            (None, Some(core)) => print!("{}", table::core(&core)),
            (None, None) => print!("{}", table::volume(&stats)),
        }
        if args.reset {
            println!("The counters of {} are at zero now.", args.name);
        }
    }
    Ok(Exit::Ok)
}

/// What is asked for.
struct Shown {
    stats: Value,
    classes: Option<Vec<Value>>,
    core: Option<Value>,
}

impl Shown {
    fn of(stats: Value, args: &StatsArgs) -> Result<Self> {
        let stats = if args.tier { of_tier(stats, &args.name)? } else { stats };
        let classes = chosen(&stats, args)?;
        let core = args.core.as_deref().map(|core| core_of(&stats, args, core)).transpose()?;
        Ok(Self { stats, classes, core })
    }
}

/// The same document with the tier in the place of the cache.
fn of_tier(mut stats: Value, name: &str) -> Result<Value> {
    let (tier, slices) = (stats["tier"].take(), stats["tier_slices"].take());
    let (Some(all), Value::Object(tier)) = (stats.as_object_mut(), tier) else {
        return Err(Failure::usage(format!("{name} has no tier in memory")));
    };
    all.retain(|key, _| !key.starts_with("tier"));
    all.extend(tier);
    all.insert("slices".into(), slices);
    Ok(stats)
}

/// The classes that are asked for, where any are.
fn chosen(stats: &Value, args: &StatsArgs) -> Result<Option<Vec<Value>>> {
    if args.class.is_none() && !args.by_class {
        return Ok(None);
    }
    let name = &args.name;
    let no_cache = || Failure::usage(format!("{name} has no cache, and so no classes"));
    let all = stats["classes"].as_array().ok_or_else(no_cache)?;
    let is_chosen = |class: &&Value| args.class.is_none_or(|id| class["id"] == id);
    let chosen: Vec<Value> = all.iter().filter(is_chosen).cloned().collect();
    if let (Some(id), true) = (args.class, chosen.is_empty()) {
        let text = format!("{name} has no class {id}: no rule names it and no request had it");
        return Err(Failure::usage(text));
    }
    Ok(Some(chosen))
}

/// The core of this name, where there are several.
fn core_of(stats: &Value, args: &StatsArgs, name: &str) -> Result<Value> {
    let volume = &args.name;
    if rows(&stats["cores"]).count() < 2 {
        let text = format!("{volume} has one core: its statistics are those of the volume");
        return Err(Failure::usage(text));
    }
    let found = rows(&stats["cores"]).find(|core| core["name"] == name).cloned();
    found.ok_or_else(|| Failure::usage(format!("{volume} has no core {name}")))
}

/// The rows of a group, or of a class.
fn rows(of: &Value) -> impl Iterator<Item = &Value> {
    of.as_array().into_iter().flatten()
}

/// The groups of a volume, in the order in which casadm prints them.
const GROUPS: [(&str, &str); 4] = [
    ("/groups/usage", "usage"),
    ("/groups/requests", "requests"),
    ("/groups/blocks", "blocks"),
    ("/groups/errors", "errors"),
];
