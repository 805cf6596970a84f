//! A volume on an existing device whose head was lost: a new one is made from what its cache says.

use crate::args::ImportArgs;
use crate::commands::create::spec;
use crate::device::{Consent, DeviceSpec, Opener, vet_lasting};
use anyhow::Result;
use headpond_api::outcome::Failure;
use headpond_api::place::{Left, Places};
use headpond_block::{
    BlockDevice, BufferPool, Cause, DeviceError, DeviceName, Geometry, PoolConfig, Request,
    Runtime, Submission,
};
use headpond_cache::{Mode, Superblock};
use headpond_uring::{RingConfig, run_with_pool};
use headpond_volume::{
    ArraySettings, CacheDescription, CacheSettings, CoreDescription, CreateError, Decorator,
    Description, Devices, Dirty, OpenError, OpenOptions, Size, Tolerance, Volume,
};
use std::cell::Cell;
use std::fs;
use std::future::ready;
use std::rc::Rc;
use uuid::Uuid;

/// Takes the device anew, and empties its cache: of what is clean there it is unknown whether it is
/// current.
///
/// # Errors
/// Where the cache is of another device, or has dirty data and that is not forced.
pub fn import(places: &Places, args: &ImportArgs) -> Result<Description> {
    let [name, core, cache] = [&args.name, &args.core, &args.cache];
    let [name, core, cache] =
        [name, core, cache].map(|it| it.as_deref().expect("clap wants name, core and cache"));
    if places.exists(name) {
        return Err(Failure::refused(format!(
            "{name} is described in {}: `headpond serve {name}` starts it",
            places.description(name).display()
        )));
    }
    let head = places.head(name);
    if head.exists() {
        return Err(Failure::refused(format!(
            "{} is the head of a device of {name}, and knows whether that was used meanwhile: restore \
             {} beside it, or remove the head to import without it",
            head.display(),
            places.description(name).display()
        )));
    }
    let member = DeviceSpec::existing(spec(core)?, head.clone()).map_err(Failure::usage)?;
    let cache = spec(cache)?;
    vet_lasting(&member, Consent::Never)?;
    places.check_writable()?;
    let pool = BufferPool::new(&PoolConfig::default());
    let made = run_with_pool(&RingConfig::default(), &pool, |ring, runtime| {
        let opener = Opener::new(ring, runtime.clone());
        let how = (args.force, pool.clone());
        let devices = (name, &member, &cache);
        async move { take_anew(&opener, &runtime, devices, how).await }
    })
    .map_err(anyhow::Error::from)
    .and_then(|made| made);
    let saved = made.and_then(|description| {
        let size = fs::metadata(&head).ok().and(Some(0));
        places.note_left(name, &Left { dirty_bytes: size, size_bytes: None })?;
        places.save(&description)?;
        super::hide(places, name, &member);
        Ok(description)
    });
    if saved.is_err() {
        // Of no volume.
        let _ = fs::remove_file(&head);
    }
    saved
}

async fn take_anew(
    opener: &Opener,
    runtime: &Runtime,
    (name, member, cache): (&str, &DeviceSpec, &DeviceSpec),
    (is_forced, pool): (bool, BufferPool),
) -> Result<Description> {
    let DeviceSpec::Existing { body, head } = member else {
        unreachable!("it was named as an existing one")
    };
    let device = opener.open(cache).await?;
    let superblock = headpond_cache::load(&*device).await.map_err(Failure::refused)?;
    let taken = opener.take_existing(body, head).await?;
    let bytes = taken.size_bytes() - headpond_raid::superblock::DATA_OFFSET_MIN;
    if bytes != superblock.core_bytes {
        return Err(Failure::refused(format!(
            "{cache} is the cache of a core of {} bytes, and {body} has {bytes}",
            superblock.core_bytes
        )));
    }
    let description = describe(name, member, cache, &superblock, bytes);
    let created = Volume::create_below(&description, &taken, &superblock).await;
    created.map_err(|error| Failure::of(error, CreateError::is_refusal))?;
    let gate = Gate::default();
    let devices = Devices { cache: Some(device), members: vec![taken], ..Devices::default() };
    let options = OpenOptions {
        tolerance: Tolerance::Careful,
        pool,
        new_cache: Uuid::new_v4(),
        around_core: Some(gate.decorator()),
        watch_load: None,
        claimant: None,
    };
    let volume = Volume::open(runtime, &description, devices, options).await;
    let volume = Rc::new(volume.map_err(|error| Failure::of(error, OpenError::is_refusal))?);
    let emptied = empty(&volume, (body, cache), (is_forced, &gate)).await;
    let stopped = volume.stop().await;
    emptied?;
    stopped?;
    Ok(volume.description())
}

/// Nothing is cleaned before the dirty data is known: what an open volume does in the background
/// would overwrite the device.
#[derive(Clone, Default)]
struct Gate {
    is_open: Rc<Cell<bool>>,
}

impl Gate {
    fn decorator(&self) -> Decorator {
        let gate = self.clone();
        Rc::new(move |inner| Rc::new(GatedDevice { inner, gate: gate.clone() }))
    }
}

/// A core that refuses writes while its gate is closed.
struct GatedDevice {
    inner: Rc<dyn BlockDevice>,
    gate: Gate,
}

impl BlockDevice for GatedDevice {
    fn name(&self) -> &DeviceName {
        self.inner.name()
    }

    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        match request.is_mutation() && !self.gate.is_open.get() {
            true => Submission::ready(Err(DeviceError::new(self.name(), Cause::ReadOnly))),
            false => self.inner.submit(request),
        }
    }
}

/// Writes what is dirty to the device, and drops the rest.
async fn empty(
    volume: &Volume,
    (core, cache): (&DeviceSpec, &DeviceSpec),
    (is_forced, gate): (bool, &Gate),
) -> Result<()> {
    let dirty = volume.status().cache.map_or(0, |cache| cache.dirty_bytes);
    if dirty > 0 && !is_forced {
        return Err(Failure::refused(format!(
            "{cache} has {dirty} bytes of dirty data, and whether {core} was written to without it is \
             unknown, as its head was lost: --force writes that data to {core}; without it, start \
             from {core} alone"
        )));
    }
    gate.is_open.set(true);
    let identities = [Uuid::new_v4(), Uuid::new_v4()];
    let purged = volume.purge_cache(Dirty::Clean, identities, &|_| Box::pin(ready(Ok(())))).await;
    purged?;
    match dirty {
        0 => println!("{cache} had no dirty data; it starts empty"),
        bytes => println!("{bytes} bytes of dirty data of {cache} were written to {core}"),
    }
    Ok(())
}

fn describe(
    name: &str,
    member: &DeviceSpec,
    cache: &DeviceSpec,
    superblock: &Superblock,
    bytes: u64,
) -> Description {
    Description {
        name: name.to_owned(),
        uuid: superblock.volume,
        slices: superblock.slices.len() as u16,
        heartbeat_ms: headpond_volume::description::HEARTBEAT_MS_DEFAULT,
        tier: None,
        cache: Some(CacheDescription {
            device: cache.to_string(),
            line: Size(superblock.line_bytes.into()),
            size: None,
            settings: CacheSettings { mode: Mode::WriteThrough, ..CacheSettings::default() },
            volatile_allowed: false,
            mirror: None,
        }),
        core: CoreDescription::on_existing(member.to_string(), bytes),
        array: ArraySettings::default(),
        further_cores: Vec::new(),
        exports: Vec::new(),
    }
}
