//! `headpond scan`, `import` and `describe`: volumes by what their devices say.

use super::serve::begin_log;
use crate::args::{DescribeArgs, FoundArgs, ImportArgs, LogArgs, ScanArgs};
use crate::telling::print_json;
use anyhow::Result;
use headpond_api::answers::Versioned;
use headpond_api::client::Client;
use headpond_api::config::ConfigFile;
use headpond_api::outcome::{Exit, Failure};
use headpond_api::place::Places;
use headpond_block::{BufferPool, PoolConfig};
use headpond_daemon::ServeOptions;
use headpond_daemon::assembly::{SearchPlaces, candidates, refuse_duplicates};
use headpond_daemon::device::Opener;
use headpond_report::{Align, Table, size};
use headpond_uring::{RingConfig, run_with_pool};
use headpond_volume::{
    ArraySettings, Description, FoundPart, FoundVolume, Part, RolePresence, Tolerance,
    found_volumes, read_labels,
};
use serde::Serialize;
use uuid::Uuid;

/// A volume that was found.
#[derive(Serialize)]
struct FoundAnswer {
    name: String,
    uuid: Uuid,
    state: FoundState,
    level: String,
    is_served: bool,
    /// Whether this machine has a description of it.
    is_described: bool,
    /// Whether its settings are on its members.
    is_recorded: bool,
    devices: Vec<DeviceAnswer>,
    missing: Vec<String>,
    duplicates: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum FoundState {
    Complete,
    /// It can start without what is missing.
    Degraded,
    /// It cannot.
    Incomplete,
    /// Two devices claim to be the same part.
    Ambiguous,
}

#[derive(Serialize)]
struct DeviceAnswer {
    device: String,
    part: String,
    size_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_count: Option<u64>,
}

#[derive(Serialize)]
struct ScanAnswer {
    volumes: Vec<FoundAnswer>,
}

/// Lists the volumes whose devices are on this machine.
///
/// # Errors
/// Where the devices cannot be read at all.
pub fn run(places: &Places, args: &ScanArgs) -> Result<Exit> {
    let found = find(&args.found)?;
    let volumes = found.iter().map(|found| answer(places, found)).collect::<Result<Vec<_>>>()?;
    let is_well = volumes.iter().all(|it| it.state == FoundState::Complete);
    let exit = if is_well { Exit::Ok } else { Exit::Degraded };
    if args.json {
        print_json(&Versioned::new(ScanAnswer { volumes }))?;
        return Ok(exit);
    }
    if volumes.is_empty() {
        println!("no volume was found; images in files are found with `headpond scan --in FOLDER`");
        return Ok(Exit::Ok);
    }
    volumes.iter().for_each(print);
    Ok(exit)
}

/// Serves volumes from what their devices say.
///
/// # Errors
/// Where there is none of that name, or it cannot be served.
pub fn import(places: &Places, file: &ConfigFile, args: &ImportArgs) -> Result<Exit> {
    let defaults = file.config.defaults.clone();
    let threads = file.config.threads;
    let tolerance = Tolerance::Careful;
    let options = ServeOptions { tolerance, defaults, wait_for_devices: None, threads };
    if args.core.is_some() {
        let description = super::existing::import(places, args)?;
        begin_log(&file.config, &LogArgs::default())?;
        return headpond_daemon::serve(places, description, options);
    }
    let found = find(&args.found)?;
    if args.all {
        let mut exit = Exit::Ok;
        for found in found.iter().filter(|found| !places.exists(&found.description.name)) {
            if let Err(error) = describe_one(places, found) {
                eprintln!("headpond: error: {}: {error:#}", found.description.name);
                exit = Exit::Error;
            }
        }
        return match exit {
            Exit::Ok => super::serve::all::run(places, &LogArgs::default()),
            exit => Ok(exit),
        };
    }
    let name = args.name.as_deref().expect("clap wants a name or --all");
    let found = pick(&found, name)?;
    let description = describe_one(places, found)?;
    begin_log(&file.config, &LogArgs::default())?;
    headpond_daemon::serve(places, description, options)
}

/// Writes the description of a volume anew.
///
/// # Errors
/// Where there is none of that name, or the file cannot be written.
pub fn describe(places: &Places, args: &DescribeArgs) -> Result<Exit> {
    let found = find(&args.found)?;
    let description = describe_one(places, pick(&found, &args.name)?)?;
    println!("{}", places.description(&description.name).display());
    Ok(Exit::Ok)
}

fn find(args: &FoundArgs) -> Result<Vec<FoundVolume>> {
    let devices = args.devices.iter().map(std::path::absolute).collect::<Result<_, _>>()?;
    let folders = args.folders.iter().map(std::path::absolute).collect::<Result<_, _>>()?;
    let search = SearchPlaces { folders, devices };
    for path in search.folders.iter().chain(&search.devices) {
        if !path.exists() {
            return Err(Failure::usage(format!("{} does not exist", path.display())));
        }
    }
    let pool = BufferPool::new(&PoolConfig::default());
    run_with_pool(&RingConfig::default(), &pool, |ring, runtime| async move {
        let opener = Opener::new(ring, runtime.clone());
        let candidates = candidates(&opener, &runtime, &search, &[]).await?;
        let deadlines = ArraySettings::default().deadlines();
        let (labelled, _) = read_labels(&runtime, candidates, deadlines).await;
        Ok::<_, anyhow::Error>(found_volumes(&labelled))
    })?
}

fn pick<'a>(found: &'a [FoundVolume], wanted: &str) -> Result<&'a FoundVolume> {
    let uuid = wanted.parse::<Uuid>().ok();
    let is_it =
        |it: &&FoundVolume| it.description.name == wanted || Some(it.description.uuid) == uuid;
    let mut matching = found.iter().filter(is_it);
    let Some(first) = matching.next() else {
        let names: Vec<&str> = found.iter().map(|it| it.description.name.as_str()).collect();
        let known = match names.is_empty() {
            true => "no volume was found".to_owned(),
            false => format!("found: {}", names.join(", ")),
        };
        return Err(Failure::usage(format!(
            "no device of a volume {wanted} was found ({known}): `headpond scan` lists them, and \
             --in FOLDER looks at images in files"
        )));
    };
    if let Some(second) = matching.next() {
        let [one, other] = [first, second].map(|it| it.description.uuid);
        return Err(Failure::usage(format!(
            "several volumes are called {wanted}: name the UUID, such as {one} or {other}"
        )));
    }
    Ok(first)
}

/// Saves the description, with what this machine had of it.
fn describe_one(places: &Places, found: &FoundVolume) -> Result<Description> {
    let name = &found.description.name;
    refuse_duplicates(name, found)?;
    let before = match places.exists(name) {
        true => places.load(name).ok(),
        false => None,
    };
    let description = match before {
        Some(before) if before.uuid != found.description.uuid => {
            return Err(Failure::refused(format!(
                "another volume {name} ({}) is described in {}: the one found is {}",
                before.uuid,
                places.description(name).display(),
                found.description.uuid
            )));
        }
        Some(before) => {
            let adopted =
                found.adopt(&before, &before.devices().map(str::to_owned).collect::<Vec<_>>());
            adopted.differences.iter().for_each(|it| eprintln!("headpond: note: {it}"));
            adopted.description
        }
        None => found.description.clone(),
    };
    if !found.is_recorded {
        eprintln!(
            "headpond: note: the settings of {name} are not on its members: defaults are used, and \
             a cache writes through; `headpond set {name}` shows them"
        );
    }
    for lacking in &found.lacking {
        eprintln!("headpond: note: {} was not found", lacking.what);
    }
    places.save(&description)?;
    Ok(description)
}

fn answer(places: &Places, found: &FoundVolume) -> Result<FoundAnswer> {
    let Description { name, uuid, core, .. } = &found.description;
    let state = match (found.duplicates.is_empty(), found.lacking.is_empty(), found.can_start) {
        (false, ..) => FoundState::Ambiguous,
        (true, true, true) => FoundState::Complete,
        (true, _, true) => FoundState::Degraded,
        (true, _, false) => FoundState::Incomplete,
    };
    let is_described = places.exists(name) && places.load(name).is_ok_and(|it| it.uuid == *uuid);
    let device = |part: &FoundPart| DeviceAnswer {
        device: part.word.clone(),
        part: words_of(&part.part),
        size_bytes: part.size_bytes,
        event_count: part.event_count,
    };
    Ok(FoundAnswer {
        name: name.clone(),
        uuid: *uuid,
        state,
        level: core.raid.to_string(),
        is_served: is_described && Client::of(places, name)?.is_served(),
        is_described,
        is_recorded: found.is_recorded,
        devices: found.parts.iter().map(device).collect(),
        missing: found.lacking.iter().map(|it| it.what.clone()).collect(),
        duplicates: found.duplicates.clone(),
    })
}

fn words_of(part: &Part) -> String {
    let of = |core: &Option<String>| match core {
        Some(core) => format!(" of core {core}"),
        None => String::new(),
    };
    match part {
        Part::Member { core, role, state: RolePresence::Active } => {
            format!("member {role}{}", of(core))
        }
        Part::Member { core, role, state: RolePresence::Excluded } => {
            format!("member {role}{}, out of date", of(core))
        }
        Part::Spare { core } => format!("spare{}", of(core)),
        Part::Former { core } => format!("former member{}", of(core)),
        Part::Cache => "cache".into(),
        Part::CacheCopy => "cache copy".into(),
        Part::Journal => "stripe journal".into(),
    }
}

fn print(volume: &FoundAnswer) {
    let state = crate::telling::word(volume.state);
    let served = match (volume.is_served, volume.is_described) {
        (true, _) => "served",
        (false, true) => "not served",
        (false, false) => "no description here: `headpond import` makes one",
    };
    println!("{}: {}, {state}, {served}", volume.name, volume.level);
    println!("  uuid      {}", volume.uuid);
    let columns = [("device", Align::Left), ("part", Align::Left), ("size", Align::Right)];
    let mut table = Table::new(columns);
    for device in &volume.devices {
        table.row([device.device.clone(), device.part.clone(), size(device.size_bytes)]);
    }
    for line in table.render().lines() {
        println!("  {line}");
    }
    volume.missing.iter().for_each(|what| println!("  missing   {what}"));
    volume.duplicates.iter().for_each(|what| println!("  ambiguous {what}"));
}
