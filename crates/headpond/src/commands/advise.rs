//! `headpond advise`, and the advice of the demo.

use super::analyze::{open, warn_of_damage};
use crate::args::AdviseArgs;
use crate::client::Client;
use crate::outcome::{Exit, Failure};
use crate::place::Places;
use anyhow::{Context, Result, ensure};
use headpond_advise::render::{render_advice, render_signature};
use headpond_advise::{
    Advice, CacheFacts, CoreFacts, CoreLevel, MemberFacts, Setting, Signature, Situation,
};
use headpond_raid::Level;
use serde_json::{Value, json};
use std::path::Path;

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
/// Where the trace cannot be read, or the array described is none.
pub fn run(places: &Places, args: &AdviseArgs) -> Result<Exit> {
    let situation = match &args.volume {
        Some(volume) => situation_of(&Client::of(places, volume)?.get("/v1/status")?)?,
        None => described(args)?,
    };
    let mut reader = open(Path::new(&args.file), args.lenient)?;
    let signature = Signature::of(&mut reader)?;
    let advice = Advice::from(&signature, &situation);
    if args.json {
        let both = json!({ "signature": signature, "advice": advice });
        println!("{}", serde_json::to_string_pretty(&both)?);
    } else {
        print!("{}\n{}", render_signature(&signature), render_advice(&advice));
    }
    warn_of_damage(reader.tally());
    Ok(Exit::Ok)
}

/// Advises a served volume on a recording of its workload.
///
/// # Errors
/// Where the recording cannot be read.
pub fn advise_for(recording: &Path, status: &Value) -> Result<Findings> {
    let situation = situation_of(status)?;
    let signature = Signature::of(&mut open(recording, false)?)?;
    let advice = Advice::from(&signature, &situation);
    Ok(Findings {
        signature_text: render_signature(&signature),
        advice_text: render_advice(&advice),
        settings: advice.settings.iter().map(Setting::to_string).collect(),
    })
}

/// What the user said of the devices. What was not said the advice assumes, and says so.
fn described(args: &AdviseArgs) -> Result<Situation> {
    let member = if args.flash { MemberFacts::SATA_SSD } else { MemberFacts::DISK_7200 };
    let core = match (args.raid, args.members) {
        (Some(raid), Some(members)) => {
            let strip_bytes = args.strip.bytes();
            Some(core(raid, members.into(), args.groups.into(), strip_bytes, member)?)
        }
        _ => None,
    };
    let facts = if args.cache_volatile { CacheFacts::ram } else { CacheFacts::nvme };
    let cache = args.cache_size.map(|size| facts(size.bytes()));
    Ok(Situation { core, cache, may_lose_dirty: false })
}

/// The devices of a served volume, from its status.
fn situation_of(status: &Value) -> Result<Situation> {
    let array = &status["array"];
    let number = |value: &Value, what: &str| -> Result<u64> {
        value.as_u64().with_context(|| format!("the status tells no {what}"))
    };
    let level = Level::try_from(number(&array["level"], "level")? as u8)?;
    let members = array["members"].as_array().context("the status tells no members")?.len();
    let groups = number(&array["groups"], "groups")?;
    let strip_bytes = number(&array["strip_bytes"], "strip")?;
    let is_rotational = status["rotational"].as_bool().unwrap_or(true);
    let member = if is_rotational { MemberFacts::DISK_7200 } else { MemberFacts::SATA_SSD };
    let core = core(level, members as u32, groups as u32, strip_bytes, member)?;
    let cache = &status["cache"];
    if cache.is_null() {
        return Ok(Situation { core: Some(core), cache: None, may_lose_dirty: false });
    }
    let capacity = number(&cache["capacity_bytes"], "cache size")?;
    let is_volatile = cache["lost_on_power"].as_bool().unwrap_or(false);
    let facts = if is_volatile { CacheFacts::ram(capacity) } else { CacheFacts::nvme(capacity) };
    // Write-back on such a cache was allowed when the volume was created, by force.
    let may_lose_dirty = cache["volatile_allowed"].as_bool().unwrap_or(false);
    Ok(Situation { core: Some(core), cache: Some(facts), may_lose_dirty })
}

fn core(
    level: Level,
    members: u32,
    groups: u32,
    strip_bytes: u64,
    member: MemberFacts,
) -> Result<CoreFacts> {
    let named = match level {
        Level::Raid0 => CoreLevel::Raid0,
        Level::Raid1 => CoreLevel::Raid1,
        Level::Raid10 => CoreLevel::Raid10,
        Level::Raid5 => CoreLevel::Raid5,
        Level::Raid6 => CoreLevel::Raid6,
        Level::Raid50 => CoreLevel::Raid50,
        Level::Raid60 => CoreLevel::Raid60,
    };
    let needed = level.group_members_min() as u32 * groups.max(1);
    ensure!(
        members >= needed.min(if level == Level::Raid0 { 1 } else { needed }),
        Failure {
            exit: Exit::Usage,
            message: format!("{level} in {groups} groups needs {needed} members, not {members}"),
        }
    );
    Ok(CoreFacts::array(named, members, groups, strip_bytes, member))
}
