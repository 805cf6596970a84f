//! The machine that advice is for: a described one, or a served volume.

use crate::args::AdviseArgs;
use crate::commands::class::read_named_file;
use crate::commands::reading::read_stack;
use crate::device::DeviceSpec;
use anyhow::{Result, ensure};
use headpond_advise::{Effort, Freedom, Goal, Situation};
use headpond_api::answers::Status;
use headpond_api::outcome::{Exit, Failure};
use headpond_raid::Level;
use headpond_report::size;
use headpond_volume::{Description, Size};
use headpond_whatif::{CoreStack, Stack};
use std::path::Path;

/// Assumed if unknown.
const DISK: &str = "hdd-7k2-4t";
const FLASH: &str = "ssd-dc-960g";
const IMAGE: &str = "rbd";
const CACHE: &str = "nvme-dc-2t";
const MEMBERS: u16 = 12;
const CACHE_BYTES: u64 = 64 << 30;
const STRIP: Size = Size(64 << 10);
const IODEPTH: u32 = 16;

/// What the user specifies about the devices of an existing volume.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Named<'a> {
    /// The model of the members.
    pub drive: Option<&'a str>,
    /// That of the cache device.
    pub cache_drive: Option<&'a str>,
}

/// A machine described in a file.
pub(super) fn stacked(path: &Path) -> Result<Situation> {
    let stack = read_stack(path)?;
    let message = || Failure {
        exit: Exit::Usage,
        message: format!(
            "{} has no [cache]: describe the present or planned cache",
            path.display()
        ),
    };
    ensure!(stack.cache.is_some(), message());
    let is_memory = stack.cache.as_ref().is_some_and(|it| it.model.is_none() && it.read_us == 0.0);
    Ok(Situation { cache_is_lost_on_power: is_memory, ..situation(stack) })
}

/// The devices as the user specified them; the rest is assumed, and reported.
pub(super) fn described(args: &AdviseArgs) -> Result<Situation> {
    let mut assumptions = Vec::new();
    if args.core.is_none() && args.raid.is_none() {
        assumptions
            .push("the array is assumed: specify it with --raid, --members and --drive".into());
    }
    if args.cache_size.is_none() {
        assumptions
            .push("the cache is assumed: specify it with --cache-size and --cache-drive".into());
    }
    let raid = args.raid.unwrap_or(Level::Raid6);
    let members = args.members.unwrap_or(MEMBERS);
    let drive = args.drive.as_deref().unwrap_or(DISK);
    let groups = args.groups.unwrap_or(raid.usual_groups(members));
    let core = match &args.core {
        Some(model) => CoreStack::single(model),
        None => core((raid, members, groups), args.strip.unwrap_or(STRIP), drive)?,
    };
    let bytes = args.cache_size.map_or(CACHE_BYTES, |size| size.bytes());
    let device = args.cache_drive.as_deref().unwrap_or(CACHE);
    let device = (!args.cache_volatile).then_some(device);
    let stack = machine(core, bytes, device)?;
    let freedom = Freedom { cache: true, array: args.core.is_none() && args.strip.is_none() };
    let cache_is_lost_on_power = args.cache_volatile;
    Ok(Situation { assumptions, freedom, cache_is_lost_on_power, ..situation(stack) })
}

/// A served volume with what is set on it.
pub(super) fn served(
    description: &Description,
    status: &Status,
    args: &AdviseArgs,
) -> Result<Situation> {
    let named = Named { drive: args.drive.as_deref(), cache_drive: args.cache_drive.as_deref() };
    let mut situation = devices_of(description, status, named)?;
    let stack = &mut situation.stack;
    stack.array = description.array.clone();
    if let (Some(cache), Some(described)) = (&mut stack.cache, &description.cache) {
        cache.settings = described.settings.clone();
        read_named_file(&mut cache.settings.classes)?;
        cache.line = described.line;
    }
    situation.stands = description.cache.is_some();
    Ok(situation)
}

/// The devices of a served volume; unknown properties are assumed.
pub(super) fn devices_of(
    description: &Description,
    status: &Status,
    named: Named<'_>,
) -> Result<Situation> {
    let mut assumptions = Vec::new();
    let core = core_of(description, status, named.drive, &mut assumptions)?;
    let live = status.live_cache();
    let is_volatile = live.is_some_and(|cache| cache.lost_on_power);
    let bytes = match live.map(|cache| cache.capacity_bytes) {
        Some(bytes) => bytes,
        None => {
            assumptions
                .push(format!("the volume has no cache: one of {} is assumed", size(CACHE_BYTES)));
            CACHE_BYTES
        }
    };
    let modelled = description.cache.as_ref().and_then(|it| model_of([&it.device]));
    let device = match named.cache_drive.map(str::to_owned).or(modelled) {
        None if is_volatile => None,
        None => {
            assumptions.push(format!(
                "the cache device is assumed to be {CACHE}: specify it with --cache-drive"
            ));
            Some(CACHE.to_owned())
        }
        told => told,
    };
    // Write-back on such a cache was allowed with --force when the volume was created.
    let may_lose_dirty = status.cache.as_ref().is_some_and(|cache| cache.volatile_allowed);
    let stack = machine(core, bytes, device.as_deref())?;
    let cache_is_lost_on_power = is_volatile;
    Ok(Situation { assumptions, may_lose_dirty, cache_is_lost_on_power, ..situation(stack) })
}

fn core_of(
    description: &Description,
    status: &Status,
    named: Option<&str>,
    assumptions: &mut Vec<String>,
) -> Result<CoreStack> {
    let described = &description.core;
    let told = named.map(str::to_owned).or_else(|| model_of(&described.members));
    let drive = told.unwrap_or_else(|| {
        let guessed = match status.rotational.unwrap_or(true) {
            _ if are_images(&described.members) => IMAGE,
            true => DISK,
            false => FLASH,
        };
        let how = match guessed {
            IMAGE => "measure one (headpond model fit --device), and name the file with --drive",
            _ => "specify them with --drive",
        };
        assumptions.push(format!("the members are assumed to be {guessed}: {how}"));
        guessed.to_owned()
    });
    let shape = (described.raid, described.members.len() as u16, described.groups);
    core(shape, described.strip, &drive)
}

/// Whether all are images of Ceph, as they are or with a head.
fn are_images(members: &[String]) -> bool {
    let is_image = |device: &String| match device.parse() {
        Ok(DeviceSpec::Existing { body, .. }) => matches!(*body, DeviceSpec::Rbd(_)),
        Ok(spec) => matches!(spec, DeviceSpec::Rbd(_)),
        Err(_) => false,
    };
    members.iter().all(is_image)
}

/// What these are models of, where all are of the same.
fn model_of<'a>(devices: impl IntoIterator<Item = &'a String>) -> Option<String> {
    let mut models = devices.into_iter().map(|device| match device.parse() {
        Ok(DeviceSpec::Model { model, .. }) => Some(model),
        _ => None,
    });
    let first = models.next()??;
    models.all(|other| other.as_ref() == Some(&first)).then_some(first)
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
    Ok(CoreStack { raid: level, groups, strip, drives: members, ..CoreStack::single(drive) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_volume::CacheStatus;

    /// What a volume of these members and this cache device comes to.
    fn devices(members: [&str; 2], cache: &str, named: Named<'_>) -> Situation {
        let text = format!(
            "name = \"v\"\nuuid = \"7f9c24e8-3b12-4fef-91e0-1f2d0c7f1f5a\"\nslices = 1\n\
             [cache]\ndevice = {cache:?}\n[core]\nraid = 0\nstrip = \"64K\"\nmembers = {members:?}\n"
        );
        let description = Description::parse(&text).unwrap();
        let mut status = Status::described(&description);
        let live = CacheStatus { capacity_bytes: 1 << 30, ..CacheStatus::default() };
        (status.rotational, status.cache.as_mut().unwrap().live) = (Some(false), Some(live));
        devices_of(&description, &status, named).unwrap()
    }

    fn models(situation: &Situation) -> (&str, Option<&str>) {
        let cache = situation.stack.cache.as_ref().unwrap();
        (&situation.stack.core.drive, cache.model.as_deref())
    }

    const DISKS: [&str; 2] = ["model:hdd-7k2-14t?store=/a", "model:hdd-7k2-14t?store=/b"];
    const OPTANE: &str = "model:nvme-optane-375g?store=/c";

    #[test]
    fn modelled_devices_are_what_they_are_models_of_and_nothing_is_assumed() {
        let situation = devices(DISKS, OPTANE, Named::default());
        assert_eq!(models(&situation), ("hdd-7k2-14t", Some("nvme-optane-375g")));
        assert!(situation.assumptions.is_empty(), "{:?}", situation.assumptions);
    }

    #[test]
    fn what_the_user_says_of_the_devices_comes_first() {
        let named = Named { drive: Some(DISK), cache_drive: Some(FLASH) };
        let situation = devices(DISKS, OPTANE, named);
        assert_eq!(models(&situation), (DISK, Some(FLASH)));
        assert!(situation.assumptions.is_empty(), "{:?}", situation.assumptions);
    }

    #[test]
    fn images_of_ceph_are_no_disks() {
        let images = ["rbd:rbd/a", "rbd:rbd/b"];
        let situation = devices(images, OPTANE, Named::default());
        assert_eq!(models(&situation).0, IMAGE);
        assert!(situation.assumptions[0].contains("model fit"), "{:?}", situation.assumptions);
        let situation = devices([images[0], "/b"], OPTANE, Named::default());
        assert_eq!(models(&situation).0, FLASH);
    }

    #[test]
    fn devices_that_tell_nothing_or_different_things_are_assumed_and_that_is_said() {
        for members in [["/a", "/b"], [DISKS[0], "/b"], [DISKS[0], OPTANE]] {
            let situation = devices(members, "/c", Named::default());
            assert_eq!(models(&situation), (FLASH, Some(CACHE)), "{members:?}");
            assert_eq!(situation.assumptions.len(), 2, "{:?}", situation.assumptions);
        }
    }
}
