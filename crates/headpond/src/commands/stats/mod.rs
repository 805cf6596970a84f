//! `headpond stats`.

mod lines;
mod table;

use crate::args::StatsArgs;
use crate::telling::{document, print_json};
use anyhow::Result;
use headpond_api::answers::{Stats, Versioned};
use headpond_api::client::Client;
use headpond_api::operations;
use headpond_api::outcome::{Exit, Failure};
use headpond_api::place::Places;
use headpond_volume::{ClassReport, CoreReport};

/// Shows statistics of a served volume since it was opened or its counters were reset.
///
/// # Errors
/// If it is not served, or lacks the requested cache or class.
pub fn run(places: &Places, args: &StatsArgs) -> Result<Exit> {
    let client = Client::of(places, &args.name)?;
    let mut shown = Shown::of(client.call(&operations::STATS)?, args)?;
    if args.reset {
        // Only now: if what is requested does not exist, the counters stay.
        shown = Shown::of(client.call(&operations::RESET_STATS)?, args)?;
    }
    if args.csv {
        document(&lines::csv(&shown)?);
    } else if args.json {
        shown.print_json()?;
    } else {
        match &shown {
            Shown::Classes(classes) => classes.iter().for_each(|it| print!("{}", table::class(it))),
            Shown::Core(core) => print!("{}", table::core(core)),
            Shown::Volume(stats) => print!("{}", table::volume(stats)),
        }
        if args.reset {
            println!("The counters of {} are reset.", args.name);
        }
    }
    Ok(Exit::Ok)
}

/// The requested statistics.
enum Shown {
    Volume(Box<Stats>),
    Classes(Vec<ClassReport>),
    Core(Box<CoreReport>),
}

impl Shown {
    fn of(mut stats: Stats, args: &StatsArgs) -> Result<Self> {
        let name = &args.name;
        if args.tier && stats.report.tier.is_none() {
            return Err(Failure::usage(format!("{name} has no tier in memory")));
        }
        let is_by_class = args.class.is_some() || args.by_class;
        // The document has both, each in its place.
        if args.tier && (is_by_class || !args.json) {
            stats.report.cache = stats.report.tier.take();
        }
        if is_by_class {
            return Ok(Self::Classes(chosen(stats, args)?));
        }
        let Some(core) = &args.core else { return Ok(Self::Volume(Box::new(stats))) };
        if stats.report.cores.len() < 2 {
            let text = format!("{name} has one core: its statistics are those of the volume");
            return Err(Failure::usage(text));
        }
        let found = stats.report.cores.into_iter().find(|it| it.name == *core);
        let no_core = || Failure::usage(format!("{name} has no core {core}"));
        Ok(Self::Core(Box::new(found.ok_or_else(no_core)?)))
    }

    fn print_json(&self) -> Result<()> {
        match self {
            Self::Volume(stats) => print_json(&Versioned::new(stats))?,
            Self::Classes(classes) => {
                print_json(&classes.iter().map(Versioned::new).collect::<Vec<_>>())?;
            }
            Self::Core(core) => print_json(&Versioned::new(core))?,
        }
        Ok(())
    }
}

/// The classes that are asked for.
fn chosen(stats: Stats, args: &StatsArgs) -> Result<Vec<ClassReport>> {
    let name = &args.name;
    let no_cache = || Failure::usage(format!("{name} has no cache, and hence no classes"));
    let mut classes = stats.report.cache.ok_or_else(no_cache)?.classes;
    classes.retain(|class| args.class.is_none_or(|id| u16::from(class.id) == u16::from(id)));
    if let (Some(id), true) = (args.class, classes.is_empty()) {
        let text = format!("{name} has no class {id}: no rule defines it and no request had it");
        return Err(Failure::usage(text));
    }
    Ok(classes)
}
