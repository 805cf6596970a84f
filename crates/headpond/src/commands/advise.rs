//! `headpond advise`, and the advice of the demo.

mod journal;
mod live;

use super::analyze::{open, warn_of_damage, write};
use super::simulate::progress::simulate_shown;
use crate::args::{AdviseArgs, EffortChoice};
use crate::client::Client;
use crate::device::DeviceSpec;
use crate::outcome::{Exit, Failure};
use crate::place::Places;
use anyhow::{Context, Result, ensure};
use headpond_advise::emit::{Occasion, Target, emit};
use headpond_advise::picture::render_advice_page;
use headpond_advise::render::{render_advice, render_signature};
use headpond_advise::{
    Advice, Effort, Freedom, Goal, Sample, Sampler, Setting, Signature, SignatureBuilder, Situation,
};
use headpond_raid::Level;
use headpond_report::size;
use headpond_trace::{TraceFormat, TraceReader};
use headpond_volume::{Description, Size};
use headpond_whatif::{Condition, CoreStack, Stack};
use serde_json::{Value, json};
use std::path::Path;

/// Assumed where nobody says.
const DISK: &str = "hdd-7k2-4t";
const FLASH: &str = "ssd-dc-960g";
const CACHE: &str = "nvme-dc-2t";
const MEMBERS: u16 = 12;
const CACHE_BYTES: u64 = 64 << 30;
const STRIP: Size = Size(64 << 10);
const IODEPTH: u32 = 16;

/// What a trace says about a volume.
pub struct Findings {
    pub signature_text: String,
    pub advice_text: String,
    /// `key=value`, as `headpond set` takes them.
    pub settings: Vec<String>,
}

/// Advises on the workload of a trace.
///
/// # Errors
/// Where the trace cannot be read, or the machine described is none.
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
            let status = Client::of(places, volume)?.get("/v1/status")?;
            occasion = occasion_of(occasion, volume, &status);
            served(places.load(volume)?, &status, args)?
        }
        (None, Some(path)) => stacked(path)?,
        (None, None) => described(args)?,
    };
    wish(&mut situation, args);
    let mut reader = open(Path::new(file), args.lenient)?;
    let (signature, sample) = read(&mut reader, situation.effort)?;
    let advice = advise(&signature, (sample, reader.format()), &situation)?;
    if let Some(path) = &args.html {
        let page = render_advice_page(file, &signature, &advice, &situation);
        write(path, page.as_bytes())?;
    }
    match args.emit {
        Some(target) => show_emitted(&advice, &situation, target, &occasion),
        None if args.json => {
            let both = json!({ "signature": signature, "advice": advice });
            println!("{}", serde_json::to_string_pretty(&both)?);
        }
        None => print!("{}\n{}", render_signature(&signature), render_advice(&advice)),
    }
    warn_of_damage(reader.tally());
    Ok(Exit::Ok)
}

/// What is wanted of the advice.
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

/// A served volume with what is set on it.
fn served(description: Description, status: &Value, args: &AdviseArgs) -> Result<Situation> {
    let mut situation = situation_of(status)?;
    let stack = &mut situation.stack;
    stack.array = description.array;
    if let (Some(cache), Some(described)) = (&mut stack.cache, &description.cache) {
        cache.settings = described.settings.clone();
        cache.line = described.line;
    }
    if let Some(drive) = &args.drive {
        stack.core.drive.clone_from(drive);
        situation.assumptions.retain(|line| !line.contains("members are taken for"));
    }
    if let (Some(drive), Some(cache)) = (&args.cache_drive, &mut stack.cache) {
        cache.model = Some(drive.clone());
        situation.assumptions.retain(|line| !line.contains("cache device is taken for"));
    }
    stack.parts()?;
    situation.stands = description.cache.is_some();
    Ok(situation)
}

/// What a file has no place for goes to standard error.
fn show_emitted(advice: &Advice, situation: &Situation, target: Target, occasion: &Occasion) {
    let emission = emit(advice, situation, target, occasion);
    print!("{}", emission.text);
    for remark in emission.remarks {
        eprintln!("headpond: note: {remark}");
    }
}

/// A volume that is served, and its cache device where it has a path.
fn occasion_of(occasion: Occasion, volume: &str, status: &Value) -> Occasion {
    let cache = &status["cache"];
    let device = cache["device"].as_str().filter(|name| name.starts_with('/'));
    Occasion {
        volume: Some(volume.to_owned()),
        volume_has_cache: cache.is_object(),
        cache_device: device.map(str::to_owned),
        ..occasion
    }
}

/// Advises a served volume on a recording of its workload.
///
/// # Errors
/// Where the recording cannot be read.
pub fn advise_for(recording: &Path, status: &Value) -> Result<Findings> {
    let situation = Situation { effort: Effort::Quick, ..situation_of(status)? };
    let mut reader = open(recording, false)?;
    let (signature, sample) = read(&mut reader, situation.effort)?;
    let advice = advise(&signature, (sample, reader.format()), &situation)?;
    Ok(Findings {
        signature_text: render_signature(&signature),
        advice_text: render_advice(&advice),
        settings: advice.settings.iter().map(Setting::to_string).collect(),
    })
}

/// Reads a trace once.
fn read(reader: &mut TraceReader, effort: Effort) -> Result<(Signature, Sample)> {
    let mut builder = SignatureBuilder::new();
    let mut sampler = Sampler::new(effort.requests_max());
    while let Some(record) = reader.next_record()? {
        builder.add(&record);
        sampler.add(&record);
    }
    Ok((builder.finish(reader.names()), sampler.finish()))
}

fn advise(
    signature: &Signature,
    sample: (Sample, TraceFormat),
    situation: &Situation,
) -> Result<Advice> {
    Ok(Advice::from(signature, sample, situation, &mut simulate_shown)?)
}

/// A machine in a file.
fn stacked(path: &Path) -> Result<Situation> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let stack = Stack::parse(&text).with_context(|| path.display().to_string())?;
    let message = || Failure {
        exit: Exit::Usage,
        message: format!(
            "{} has no [cache]: say which cache there is or could be bought",
            path.display()
        ),
    };
    ensure!(stack.cache.is_some(), message());
    let is_memory = stack.cache.as_ref().is_some_and(|it| it.model.is_none() && it.read_us == 0.0);
    Ok(Situation { cache_is_lost_on_power: is_memory, ..situation(stack) })
}

/// What the user said of the devices. What was not said is assumed, and said.
fn described(args: &AdviseArgs) -> Result<Situation> {
    let mut assumptions = Vec::new();
    if args.raid.is_none() {
        assumptions
            .push("the array is assumed: --raid, --members and --drive say what it is".into());
    }
    if args.cache_size.is_none() {
        assumptions
            .push("the cache is assumed: --cache-size and --cache-drive say what it is".into());
    }
    let raid = args.raid.unwrap_or(Level::Raid6);
    let members = args.members.unwrap_or(MEMBERS);
    let drive = args.drive.as_deref().unwrap_or(DISK);
    let core = core((raid, members, args.groups), args.strip.unwrap_or(STRIP), drive)?;
    let bytes = args.cache_size.map_or(CACHE_BYTES, |size| size.bytes());
    let device = args.cache_drive.as_deref().unwrap_or(CACHE);
    let device = (!args.cache_volatile).then_some(device);
    let stack = machine(core, bytes, device)?;
    let freedom = Freedom { cache: true, array: args.strip.is_none() };
    let cache_is_lost_on_power = args.cache_volatile;
    Ok(Situation { assumptions, freedom, cache_is_lost_on_power, ..situation(stack) })
}

/// The devices of a served volume, from its status.
fn situation_of(status: &Value) -> Result<Situation> {
    let array = &status["array"];
    let number = |value: &Value, what: &str| -> Result<u64> {
        value.as_u64().with_context(|| format!("the status tells no {what}"))
    };
    let level = Level::try_from(number(&array["level"], "level")? as u8)?;
    let members = array["members"].as_array().context("the status tells no members")?;
    let groups = number(&array["groups"], "groups")?;
    let strip = Size(number(&array["strip_bytes"], "strip")?);
    let named = members.first().and_then(|member| modelled(&member["device"]));
    let is_rotational = status["rotational"].as_bool().unwrap_or(true);
    let guessed = if is_rotational { DISK } else { FLASH };
    let drive = named.as_deref().unwrap_or(guessed);
    let core = core((level, members.len() as u16, groups as u16), strip, drive)?;
    let cache = &status["cache"];
    let is_volatile = cache["lost_on_power"].as_bool().unwrap_or(false);
    let device = if is_volatile { None } else { Some(CACHE) };
    let mut assumptions = Vec::new();
    if named.is_none() {
        assumptions.push(format!("the members are taken for {drive}: --drive says what they are"));
    }
    let bytes = match cache["capacity_bytes"].as_u64() {
        Some(bytes) => bytes,
        None => {
            assumptions.push(format!("there is no cache: one of {} is assumed", size(CACHE_BYTES)));
            CACHE_BYTES
        }
    };
    if !is_volatile {
        assumptions
            .push(format!("the cache device is taken for {CACHE}: --cache-drive says what it is"));
    }
    // Modes with dirty data on such a cache were allowed when the volume was created, by force.
    let may_lose_dirty = cache["volatile_allowed"].as_bool().unwrap_or(false);
    let stack = machine(core, bytes, device)?;
    let cache_is_lost_on_power = is_volatile;
    Ok(Situation { assumptions, may_lose_dirty, cache_is_lost_on_power, ..situation(stack) })
}

/// What a modelled member is a model of.
fn modelled(device: &Value) -> Option<String> {
    match device.as_str()?.parse() {
        Ok(DeviceSpec::Model { model, .. }) => Some(model),
        _ => None,
    }
}

/// Of a machine of which everything can be said, and nothing changed but what can be set.
fn situation(stack: Stack) -> Situation {
    Situation {
        stack,
        assumptions: Vec::new(),
        cache_is_lost_on_power: false,
        cache_is_mirrored: false,
        may_lose_dirty: false,
        goal: Goal::default(),
        freedom: Freedom { cache: false, array: false },
        stands: false,
        keeps_promises: false,
        effort: Effort::default(),
        depth_unless_told: IODEPTH,
    }
}

/// A cache of so many bytes on a model, or in memory.
fn machine(core: CoreStack, cache_bytes: u64, device: Option<&str>) -> Result<Stack> {
    let mut text =
        format!("name = \"advised\"\n[core]\nraid = 0\ndrive = \"{DISK}\"\ndrives = 1\n");
    text += &format!("[cache]\nsize = \"{cache_bytes}\"\n");
    if let Some(device) = device {
        text += &format!("model = {device:?}\n");
    }
    let stack = Stack { core, ..Stack::parse(&text)? };
    stack.parts()?;
    Ok(stack)
}

fn core(
    (level, members, groups): (Level, u16, u16),
    strip: Size,
    drive: &str,
) -> Result<CoreStack> {
    let each = level.group_members_min() as u16 * groups.max(1);
    ensure!(
        members >= each,
        Failure {
            exit: Exit::Usage,
            message: format!("{level} in {groups} groups needs {each} members, not {members}"),
        }
    );
    Ok(CoreStack {
        raid: level,
        groups,
        declustered: None,
        strip,
        drive: drive.to_owned(),
        drives: members,
        drive_write_cache: None,
        drive_state: headpond_sim::ssd::State::default(),
        controller: None,
        network: None,
        intent: false,
        condition: Condition::Healthy,
    })
}
