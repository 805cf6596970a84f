//! `headpond create`.

use super::contents;
use super::existing;
use super::striping;
use crate::args::CreateArgs;
use crate::device::claims;
use crate::device::{
    Consent, DeviceSpec, Opener, check_copies, expect_zeros, mirror_of, vet, vet_lasting,
};
use anyhow::Result;
use headpond_api::config::SettingDefaults;
use headpond_api::outcome::{Exit, Failure};
use headpond_api::place::{Left, Places};
use headpond_block::{BLOCK_BYTES, BufferPool, PoolConfig};
use headpond_cache::Mode;
use headpond_daemon::export;
use headpond_raid::superblock::DATA_OFFSET_MIN;
use headpond_raid::{Intent, Occupied, Striping};
use headpond_uring::{RingConfig, run_with_pool};
use headpond_volume::{
    BackgroundRate, CacheDescription, CoreDescription, CreateError, CreateOptions, Description,
    Devices, ExportDescription, JournalDescription, SettingChange, Size, TierDescription, Volume,
};
use std::fs;
use uuid::Uuid;

/// Creates the volume; nothing is written before every check has passed.
///
/// # Errors
/// Refusals, and write errors.
pub fn run(places: &Places, defaults: &SettingDefaults, args: &CreateArgs) -> Result<Exit> {
    let consent = if args.force { Consent::Forced } else { Consent::Careful };
    let members = members(places, args)?;
    let caches = specs(&args.cache)?;
    check_copies(&caches)?;
    let journal = args.journal.iter().map(|journal| spec(journal)).next().transpose()?;
    let tier = args.tier.iter().map(|tier| spec(tier)).next().transpose()?;
    let mut description = describe(args, defaults, &members, &caches, tier.as_ref())?;
    description.core.journal = journal
        .as_ref()
        .map(|device| JournalDescription::of(device.to_string(), args.journal_when));
    description.check_new().map_err(Failure::usage)?;
    if places.exists(&args.name) {
        let name = &args.name;
        return Err(Failure::refused(format!(
            "volume {name} exists already: `headpond destroy {name}` removes it"
        )));
    }
    let devices = [&members[..], journal.as_slice(), &caches];
    let claims = claims::check(places, &devices.concat(), &args.name, consent)?;
    let mut with_write_cache = Vec::new();
    for device in members.iter().chain(&journal) {
        let vetted = vet_lasting(device, consent)?;
        with_write_cache.extend(vetted.write_cache.then(|| device.to_string()));
    }
    for device in &caches {
        let vetted = vet(device, consent)?;
        with_write_cache.extend(vetted.write_cache.then(|| device.to_string()));
        let described = description.cache.as_ref().expect("a cache that is named is described");
        vetted.check_cache(device, described.settings.mode, consent)?;
    }
    if let (Some(device), Some(described)) = (&tier, &description.tier) {
        let vetted = vet(device, consent)?;
        vetted.check_tier(device)?;
        check_tier_size(device, description.slices)?;
        vetted.check_cache(device, described.settings.mode, consent)?;
    }
    places.check_writable()?;
    let written = write(places, description, devices, args);
    if let (Err(_), [DeviceSpec::Existing { head, .. }]) = (&written, &members[..]) {
        // Of no volume.
        let _ = fs::remove_file(head);
    }
    let (description, notes) = written?;
    claims::tell_lost(&claims);
    tell_of_write_caches(&with_write_cache);
    notes.iter().for_each(|note| println!("{note}"));
    if let [existing @ DeviceSpec::Existing { .. }] = &members[..] {
        existing::taken(places, &description, &description.name, existing);
    }
    println!("created {}: serve it with `headpond serve {}`", description.name, description.name);
    Ok(Exit::Ok)
}

/// What the flags say, and otherwise the machine's defaults.
fn settings(args: &CreateArgs, defaults: &SettingDefaults) -> Result<SettingDefaults> {
    // Of what has parameters, only what the flag says is changed.
    let flags = [
        args.mode.map(|mode| SettingChange::new("mode", mode)),
        args.cleaning.map(|cleaning| SettingChange::new("cleaning", cleaning.policy)),
        args.seq_cutoff.map(|cutoff| SettingChange::new("seq-cutoff", cutoff.setting())),
    ];
    let flags: Vec<SettingChange> = flags.into_iter().flatten().collect();
    let changes = super::class::read_named_files(&args.settings)?;
    let of = SettingChange::by_owner(&changes);
    if let (None, Some(change)) = (&args.tier, of.tier.first()) {
        return Err(Failure::usage(format!("tier.{change} needs a tier: name its memory, --tier")));
    }
    if let (true, Some(change)) = (args.cache.is_empty(), of.cache.first()) {
        return Err(Failure::usage(format!("{change} needs a cache: name its device, --cache")));
    }
    let mut defaults = defaults.clone();
    if args.keep {
        // A device that is used past its cache by mistake is then behind by nothing.
        defaults.cache.mode = Mode::WriteThrough;
    }
    Ok(SettingDefaults {
        cache: defaults.cache.with_all(&[flags, of.cache].concat()).map_err(Failure::usage)?,
        tier: defaults.tier.with_all(&of.tier).map_err(Failure::usage)?,
        array: defaults.array.with_all(&of.array).map_err(Failure::usage)?,
    })
}

/// The members of a new array, or the existing device.
fn members(places: &Places, args: &CreateArgs) -> Result<Vec<DeviceSpec>> {
    let Some(core) = &args.core else {
        existing::refuse_keep_alone(args.keep)?;
        return specs(&args.members);
    };
    let existing = DeviceSpec::existing(spec(core)?, places.head(&args.name));
    Ok(vec![existing.map_err(Failure::usage)?])
}

/// The core of a new array, or of the existing device.
fn core(args: &CreateArgs, members: &[DeviceSpec]) -> Result<CoreDescription> {
    if let [existing @ DeviceSpec::Existing { .. }] = members {
        // Its size is known when it is open.
        return Ok(CoreDescription::on_existing(existing.to_string(), 0));
    }
    let level = args.array.level()?;
    Ok(CoreDescription {
        raid: level,
        groups: args.array.groups(level, members.len()),
        strip: args.array.strip,
        intent: !args.array.no_intent,
        integrity: args.array.integrity,
        members: members.iter().map(DeviceSpec::to_string).collect(),
        spares: Vec::new(),
        declustered: args.array.declustered(),
        striping: Striping::Plain,
        background: BackgroundRate::default(),
        journal: None,
    })
}

fn describe(
    args: &CreateArgs,
    defaults: &SettingDefaults,
    members: &[DeviceSpec],
    caches: &[DeviceSpec],
    tier: Option<&DeviceSpec>,
) -> Result<Description> {
    striping::check(&args.array)?;
    let settings = settings(args, defaults)?;
    let tier = tier.map(|device| TierDescription {
        device: device.to_string(),
        line: Size(BLOCK_BYTES),
        settings: settings.tier,
        volatile_allowed: args.force,
    });
    let cache = caches.first().map(|device| CacheDescription {
        device: device.to_string(),
        line: args.line,
        size: args.cache_size,
        settings: settings.cache,
        volatile_allowed: args.force,
        mirror: mirror_of(&caches[1..]),
    });
    let described =
        |address: &String| ExportDescription { address: address.clone(), insecure: args.insecure };
    let exports: Vec<ExportDescription> = args.exports.iter().map(described).collect();
    export::check(&exports)?;
    let description = Description {
        name: args.name.clone(),
        uuid: Uuid::new_v4(),
        slices: args.slices,
        heartbeat_ms: args.heartbeat_ms,
        tier,
        cache,
        core: core(args, members)?,
        array: settings.array,
        further_cores: Vec::new(),
        exports,
    };
    description.check_new().map_err(Failure::usage)?;
    Ok(description)
}

/// A start would continue without a tier that is too small, and report it only then.
fn check_tier_size(tier: &DeviceSpec, slices: u16) -> Result<()> {
    let least = Size(headpond_cache::bytes_min(usize::from(slices)));
    match tier {
        DeviceSpec::Ram(size) if *size < least => Err(Failure::usage(format!(
            "{tier} is too small for a tier of this volume: at least {least}"
        ))),
        _ => Ok(()),
    }
}

fn tell_of_write_caches(devices: &[String]) {
    if !devices.is_empty() {
        eprintln!(
            "headpond: note: these devices have write caches, and whether they have power-loss \
             protection is unknown; durability depends on their flushes: {}",
            devices.join(", ")
        );
    }
}

/// Creates the volume and saves its description, or neither; prints how it is striped, and further
/// notes.
fn write(
    places: &Places,
    mut description: Description,
    [members, journals, caches]: [&[DeviceSpec]; 3],
    args: &CreateArgs,
) -> Result<(Description, Vec<String>)> {
    let options = CreateOptions {
        contents: contents::contents(&args.array),
        intent: if args.array.no_intent { Intent::None } else { Intent::Bitmap },
        occupied: if args.force { Occupied::Overwrite } else { Occupied::Refuse },
        cache: Uuid::new_v4(),
        journal: Uuid::new_v4(),
    };
    let pool = BufferPool::new(&PoolConfig::default());
    run_with_pool(&RingConfig::default(), &pool, |ring, runtime| async move {
        let opener = Opener::new(ring, runtime.clone());
        let members = match members {
            [existing @ DeviceSpec::Existing { body, head }] => {
                let taken = opener.take_existing(body, head).await?;
                let bytes = taken.size_bytes() - DATA_OFFSET_MIN;
                description.core = CoreDescription::on_existing(existing.to_string(), bytes);
                vec![taken]
            }
            members => opener.open_all(members).await?,
        };
        let journals = opener.open_all(journals).await?;
        let mut devices = Devices { members, journals, ..Devices::default() };
        match opener.open_all(caches).await? {
            copies if copies.len() > 1 => devices.copies = copies,
            single => devices.cache = single.into_iter().next(),
        }
        if args.array.zeroed {
            expect_zeros(&devices.members).await?;
        }
        let found = striping::find(&args.array, &devices.members, &runtime).await?;
        description.core.striping = found.striping;
        let created = Volume::create(&description, &devices, &options).await;
        let size = created.map_err(|error| Failure::of(error, CreateError::is_refusal))?;
        if let Err(error) = keep(places, &description, size) {
            // The volume could not be found again.
            let erased = Volume::destroy(&description, &devices).await;
            erased.failed.iter().for_each(|error| eprintln!("headpond: not erased: {error}"));
            return Err(error);
        }
        let notes = found.notes.into_iter().chain(contents::note(&args.array));
        Ok((description, notes.collect()))
    })?
}

fn keep(places: &Places, description: &Description, size_bytes: u64) -> Result<()> {
    let left = Left { dirty_bytes: Some(0), size_bytes: Some(size_bytes) };
    places.note_left(&description.name, &left)?;
    places.save(description)
}

pub fn specs(names: &[String]) -> Result<Vec<DeviceSpec>> {
    names.iter().map(|name| spec(name)).collect()
}

/// A device as the daemon, in its own folder, finds it.
pub fn spec(name: &str) -> Result<DeviceSpec> {
    let spec: DeviceSpec = name.parse().map_err(Failure::usage)?;
    Ok(spec.absolute()?)
}
