//! `headpond advise`, and the advice of the demo.

mod journal;
mod live;
mod machine;

use super::analyze::write;
use super::reading::{read_through, spare_inputs, warn_of_damage};
use super::simulate::progress::simulate_shown;
use crate::args::{AdviseArgs, EffortChoice};
use crate::telling::{document, print_json};
use anyhow::{Result, ensure};
use headpond_advise::emit::{Occasion, Target, commands, emit};
use headpond_advise::picture::render_advice_page;
use headpond_advise::render::{render_advice, render_signature};
use headpond_advise::{
    Advice, Effort, Sample, Sampler, Setting, Signature, SignatureBuilder, Situation,
};
use headpond_api::answers::{Status, Versioned};
use headpond_api::client::Client;
use headpond_api::operations;
use headpond_api::outcome::{Exit, Failure};
use headpond_api::place::Places;
use headpond_trace::{Demand, ReadOptions, TraceFormat, TraceReader};
use headpond_volume::Description;
use machine::{Named, described, devices_of, served, stacked};
use serde_json::json;
use std::path::Path;

/// Signature and advice for a trace.
pub struct Findings {
    pub signature_text: String,
    pub advice_text: String,
    /// `key=value`, as for `headpond set`.
    pub settings: Vec<String>,
}

/// Advises on the workload of a trace.
///
/// # Errors
/// If the trace or the description of the machine cannot be read.
pub fn run(places: &Places, args: &AdviseArgs) -> Result<Exit> {
    if let Some(name) = &args.live.live {
        return live::run(places, args, name);
    }
    if let Some(name) = &args.live.journal {
        return journal::show(places, name, args.json);
    }
    of_trace(places, args, args.file.as_deref().expect("it is required"))
}

fn of_trace(places: &Places, args: &AdviseArgs, file: &str) -> Result<Exit> {
    let mut occasion = Occasion { trace: file.to_owned(), ..Occasion::default() };
    let mut situation = match (&args.volume, &args.stack) {
        (Some(volume), _) => {
            let status = Client::of(places, volume)?.call(&operations::STATUS)?;
            occasion = occasion_of(occasion, volume, &status);
            served(&places.load(volume)?, &status, args)?
        }
        (None, Some(path)) => stacked(path)?,
        (None, None) => described(args)?,
    };
    wish(&mut situation, args);
    rate_cache(&mut situation, args)?;
    let inputs = std::iter::once(Path::new(file)).chain(args.stack.as_deref());
    spare_inputs(inputs, &args.html)?;
    let mut reader = TraceReader::open(Path::new(file), args.read.options(Demand::default()))?;
    let (signature, sample) = read(&mut reader, situation.effort)?;
    let advice = advise(&signature, (sample, reader.format()), &situation)?;
    let commands = commands(&advice, &situation, &occasion);
    if let Some(path) = &args.html {
        let page = render_advice_page(file, &signature, &advice, &situation, &commands);
        write(path, page.as_bytes())?;
    }
    match args.emit {
        Some(target) => show_emitted(&advice, &situation, target, &occasion),
        None if args.json => {
            let both = json!({ "signature": signature, "advice": advice });
            print_json(&Versioned::new(both))?;
        }
        None => {
            print!("{}", render_advice(&advice, &commands));
            if args.signature {
                print!("\n{}", render_signature(&signature));
            }
        }
    }
    warn_of_damage(reader.tally());
    Ok(Exit::Ok)
}

/// The objective and limits of the advice.
fn wish(situation: &mut Situation, args: &AdviseArgs) {
    situation.goal = args.goal;
    situation.may_lose_dirty |= args.may_lose_dirty;
    situation.depth_unless_told = args.iodepth;
    situation.effort = match args.effort {
        EffortChoice::Quick => Effort::Quick,
        EffortChoice::Usual => Effort::Usual,
        EffortChoice::Exhaustive => Effort::Exhaustive,
    };
}

/// What may be written to the cache device.
fn rate_cache(situation: &mut Situation, args: &AdviseArgs) -> Result<()> {
    let Some(endurance) = args.cache_endurance else { return Ok(()) };
    let message = "the cache is memory, which does not wear out: leave out --cache-endurance";
    let failure = || Failure { exit: Exit::Usage, message: message.to_owned() };
    ensure!(!situation.cache_is_lost_on_power, failure());
    if let Some(cache) = &mut situation.stack.cache {
        cache.endurance = Some(endurance);
    }
    Ok(())
}

/// Remarks that do not fit into the file go to standard error.
fn show_emitted(advice: &Advice, situation: &Situation, target: Target, occasion: &Occasion) {
    let emission = emit(advice, situation, target, occasion);
    document(&emission.text);
    for remark in emission.remarks {
        eprintln!("headpond: note: {remark}");
    }
}

/// A served volume, and its cache device if it has a path.
fn occasion_of(occasion: Occasion, volume: &str, status: &Status) -> Occasion {
    let device = status.cache.as_ref().map(|cache| &cache.devices[0]);
    Occasion {
        volume: Some(volume.to_owned()),
        volume_has_cache: status.cache.is_some(),
        cache_device: device.filter(|name| name.starts_with('/')).cloned(),
        ..occasion
    }
}

/// Advises a served volume on a recording of its workload.
///
/// # Errors
/// Where the recording cannot be read.
pub fn advise_for(
    recording: &Path,
    description: &Description,
    status: &Status,
) -> Result<Findings> {
    let situation = devices_of(description, status, Named::default())?;
    let situation = Situation { effort: Effort::Quick, ..situation };
    let mut reader = TraceReader::open(recording, ReadOptions::default())?;
    let (signature, sample) = read(&mut reader, situation.effort)?;
    let advice = advise(&signature, (sample, reader.format()), &situation)?;
    Ok(Findings {
        signature_text: render_signature(&signature),
        advice_text: render_advice(&advice, &[]),
        settings: advice.settings.iter().map(Setting::to_string).collect(),
    })
}

/// Reads a trace once.
fn read(reader: &mut TraceReader, effort: Effort) -> Result<(Signature, Sample)> {
    let mut builder = SignatureBuilder::new();
    let mut sampler = Sampler::new(effort.requests_max());
    read_through(reader, |record| {
        builder.add(record);
        sampler.add(record);
    })?;
    Ok((builder.finish(reader.names()), sampler.finish()))
}

fn advise(
    signature: &Signature,
    sample: (Sample, TraceFormat),
    situation: &Situation,
) -> Result<Advice> {
    Ok(Advice::from(signature, sample, situation, &mut simulate_shown)?)
}
