//! Wishes about the cache device itself.

use super::message::{AttachBody, DetachBody, PurgeBody};
use super::serving::Desk;
use crate::device::{Consent, DeviceSpec, check_copies, mirror_of};
use crate::outcome::Failure;
use anyhow::{Result, anyhow};
use headpond_block::{BLOCK_BYTES, BlockDevice};
use headpond_cache::{Mode, is_line_size};
use headpond_raid::Occupied;
use headpond_volume::{
    AttachError, CacheDescription, CacheDevice, CacheSettings, CallerError, Description,
    DescriptionError, DetachError, Dirty, ExchangeError, NewDevice, Replacement, SettingChange,
    SettingError, Size, TierDescription, TierSettings,
};
use serde_json::Value;
use std::rc::Rc;
use uuid::Uuid;

impl Desk {
    pub async fn scrub_cache(&self) -> Result<Value> {
        let report = self.volume.scrub_cache().await;
        let report = report.map_err(|error| Failure::refused(error.to_string()))?;
        Ok(serde_json::to_value(report)?)
    }

    pub async fn attach(&self, body: &AttachBody) -> Result<Value> {
        match body.tier {
            true => self.put_tier(body).await?,
            false => self.put_cache(body, CacheSettings::default(), Size(BLOCK_BYTES)).await?,
        }
        self.status()
    }

    pub async fn detach(&self, body: &DetachBody) -> Result<Value> {
        let dirty = match (body.force, body.flush) {
            (true, _) => Dirty::Lose,
            (false, true) => Dirty::Clean,
            (false, false) => Dirty::Refuse,
        };
        match body.tier {
            true => self.take_tier(dirty).await?,
            false => self.take_cache(dirty).await?,
        }
        self.status()
    }

    /// The settings stay, and what is dirty is written to the array first.
    pub async fn replace(&self, body: &AttachBody) -> Result<Value> {
        check_line(body)?;
        check_single(body)?;
        if body.tier {
            let (described, device) = self.tier(body)?;
            let replaced = self.volume.replace_tier(described, device, Dirty::Clean).await;
            self.places.save(&self.volume.description())?;
            replaced.map_err(not_exchanged)?;
            return self.status();
        }
        let before = self.described()?;
        let (mut specs, settings) = self.consider(body, &before.settings)?;
        let spec = specs.remove(0);
        let described = CacheDescription {
            device: spec.to_string(),
            line: body.line.unwrap_or(before.line),
            size: body.size,
            settings,
            volatile_allowed: body.force,
            mirror: None,
        };
        let open = || Ok(self.opener.open(&spec)?);
        let device = match described.device == before.device && before.mirror.is_none() {
            true => self.same_device(&spec, body.size, &open)?,
            false => NewDevice::Other(self.opener.open(&spec)?),
        };
        let occupied = if body.force { Occupied::Overwrite } else { Occupied::Refuse };
        let new = Replacement { device, described, identities: identities(), occupied };
        let replaced = self.volume.replace_cache(new, Dirty::Clean, &|it| self.keep(it)).await;
        replaced.map_err(not_exchanged)?;
        self.status()
    }

    /// What is cached does not outlive it: the log is laid out anew, unless its size stays.
    pub async fn resize(&self, size: Option<Size>) -> Result<Value> {
        let cache = self.described()?;
        if cache.mirror.is_some() {
            return Err(Failure::refused(
                "a cache on copies keeps its size: detach it with --flush, and attach it again with \
                 --size",
            ));
        }
        let spec: DeviceSpec = cache.device.parse()?;
        let slices = usize::from(self.volume.description().slices);
        let least = Size(headpond_cache::bytes_min(slices));
        if let Some(size) = size.filter(|size| *size < least) {
            let text =
                format!("{size} is too little: a cache of this volume takes {least} or more");
            return Err(Failure::usage(text));
        }
        let has_changed = match (spec.path(), size) {
            (None, None) => {
                return Err(Failure::usage("memory is as large as it is asked for: name a size"));
            }
            (None, Some(size)) if spec == DeviceSpec::Ram(size) => false,
            (None, Some(size)) => self.resize_memory(size, cache).await?,
            (Some(path), size) => {
                let most = Size(headpond_uring::safety::inspect(path)?.size_bytes);
                if let Some(size) = size.filter(|size| *size > most) {
                    let text = format!("{spec} has {most}, and not the {size} that were asked for");
                    return Err(Failure::refused(text));
                }
                let open = || Ok(self.opener.open(&spec)?);
                let device = self.same_device(&spec, size, &open)?;
                let (identities, keep) = (identities(), |it: &Description| self.keep(it));
                let resized = self.volume.resize_cache(size, device, identities, &keep).await;
                resized.map_err(not_exchanged)?
            }
        };
        let mut status = self.status()?;
        status["unchanged"] = (!has_changed).into();
        Ok(status)
    }

    /// The device that the cache lies on, opened again where more of it is wanted than it had.
    fn same_device<'a>(
        &self,
        spec: &DeviceSpec,
        size: Option<Size>,
        open: &'a dyn Fn() -> Result<Rc<dyn BlockDevice>, CallerError>,
    ) -> Result<NewDevice<'a>> {
        let Some(path) = spec.path() else { return Ok(NewDevice::Same) };
        let bytes = headpond_uring::safety::inspect(path)?.size_bytes;
        let seen = self.volume.cache_device_bytes().unwrap_or_default();
        let wanted = size.map_or(bytes, Size::bytes);
        Ok(if wanted > seen { NewDevice::Reopened { bytes, open } } else { NewDevice::Same })
    }

    async fn resize_memory(&self, size: Size, before: CacheDescription) -> Result<bool> {
        let spec = DeviceSpec::Ram(size);
        let described = CacheDescription { device: spec.to_string(), size: None, ..before };
        let (device, identities) = (NewDevice::Other(self.opener.open(&spec)?), identities());
        let new = Replacement { device, described, identities, occupied: Occupied::Overwrite };
        let replaced = self.volume.replace_cache(new, Dirty::Clean, &|it| self.keep(it)).await;
        replaced.map_err(not_exchanged).map(|()| true)
    }

    /// A new, empty cache in the place of the old one is what takes no longer the more it held.
    pub async fn purge(&self, body: &PurgeBody) -> Result<Value> {
        let dirty = match (body.force, body.flush) {
            (true, _) => Dirty::Drop,
            (false, true) => Dirty::Clean,
            (false, false) => Dirty::Refuse,
        };
        let purged = self.volume.purge_cache(dirty, identities(), &|it| self.keep(it)).await;
        purged.map_err(not_exchanged)?;
        self.status()
    }

    fn keep(&self, description: &Description) -> Result<(), CallerError> {
        Ok(self.places.save(description)?)
    }

    fn described(&self) -> Result<CacheDescription> {
        let description = self.volume.description();
        let volume = description.name;
        description
            .cache
            .ok_or_else(|| Failure::refused(DetachError::NoCache { volume }.to_string()))
    }

    /// Makes the device a cache, and puts it in front of the volume.
    pub async fn put_cache(
        &self,
        body: &AttachBody,
        settings: CacheSettings,
        line: Size,
    ) -> Result<()> {
        let volume = &self.volume;
        if volume.status().cache.is_some() {
            let volume = volume.description().name;
            return Err(refused(AttachError::HasCache { volume }));
        }
        check_line(body)?;
        let (specs, settings) = self.consider(body, &settings)?;
        let described = CacheDescription {
            device: specs[0].to_string(),
            line: body.line.unwrap_or(line),
            size: body.size,
            settings,
            volatile_allowed: body.force,
            mirror: mirror_of(&specs[1..]),
        };
        let occupied = if body.force { Occupied::Overwrite } else { Occupied::Refuse };
        let opened = specs.iter().map(|spec| self.opener.open(spec));
        let mut opened = opened.collect::<Result<Vec<_>>>()?;
        let device: CacheDevice = match described.mirror {
            None => opened.remove(0).into(),
            Some(_) => {
                let made = volume.make_copies(opened, &described, occupied, self.pool()).await;
                made.map_err(refused)?
            }
        };
        let put = self.put_made(device.clone(), described, occupied).await;
        if put.is_err() && volume.status().cache.is_none() {
            // Copies without a cache would be refused as somebody's.
            let _ = device.dissolve().await;
        }
        put
    }

    async fn put_made(
        &self,
        device: CacheDevice,
        described: CacheDescription,
        occupied: Occupied,
    ) -> Result<()> {
        let volume = &self.volume;
        let new = volume.make_cache(device, described.clone(), Uuid::new_v4(), occupied).await;
        let new = new.map_err(refused)?;
        self.places.save(&volume.description_with(&described))?;
        let attached = volume.attach(new).await;
        // What was kept before would be waited for by the next start.
        self.places.save(&volume.description())?;
        attached.map_err(refused)
    }

    pub async fn take_cache(&self, dirty: Dirty) -> Result<()> {
        self.volume.detach(dirty).await.map_err(not_detached)?;
        self.places.save(&self.volume.description())
    }

    async fn put_tier(&self, body: &AttachBody) -> Result<()> {
        let (described, device) = self.tier(body)?;
        self.volume.attach_tier(described, device).await.map_err(refused)?;
        self.places.save(&self.volume.description())
    }

    fn tier(&self, body: &AttachBody) -> Result<(TierDescription, Rc<dyn BlockDevice>)> {
        let named = body.changes.iter().map(|text| text.strip_prefix("tier.").unwrap_or(text));
        let settings = TierSettings::default().with_all(&parse(named)?);
        let settings = settings.map_err(|error| Failure::usage(error.to_string()))?;
        if !body.copies.is_empty() {
            return Err(Failure::refused("a tier is one piece of memory: `ram:SIZE`"));
        }
        let spec = vet_caches(self, body, settings.mode)?.remove(0);
        let described = TierDescription {
            device: spec.to_string(),
            line: body.line.unwrap_or(Size(BLOCK_BYTES)),
            settings,
            volatile_allowed: body.force,
        };
        let device = self.opener.open(&spec)?;
        Ok((described, device))
    }

    async fn take_tier(&self, dirty: Dirty) -> Result<()> {
        self.volume.detach_tier(dirty).await.map_err(not_detached)?;
        self.places.save(&self.volume.description())
    }

    /// Everything that can be said against a device before it is touched.
    fn consider(
        &self,
        body: &AttachBody,
        settings: &CacheSettings,
    ) -> Result<(Vec<DeviceSpec>, CacheSettings)> {
        let settings = settings.with_all(&parse(body.changes.iter().map(String::as_str))?);
        let settings = settings.map_err(|error| Failure::usage(error.to_string()))?;
        Ok((vet_caches(self, body, settings.mode)?, settings))
    }
}

fn parse<'a>(changes: impl Iterator<Item = &'a str>) -> Result<Vec<SettingChange>> {
    let changes: Result<Vec<_>, _> = changes.map(str::parse).collect();
    changes.map_err(|error: SettingError| Failure::usage(error.to_string()))
}

fn vet_caches(desk: &Desk, body: &AttachBody, mode: Mode) -> Result<Vec<DeviceSpec>> {
    let mut specs = Vec::new();
    for word in std::iter::once(&body.device).chain(&body.copies) {
        specs.push(word.parse::<DeviceSpec>()?.absolute()?);
    }
    check_copies(&specs)?;
    let consent = if body.force { Consent::Forced } else { Consent::Careful };
    for spec in &specs {
        desk.vet_cache(spec, consent)?.check_cache(spec, mode, consent)?;
    }
    Ok(specs)
}

/// What takes the place of a cache has one device.
fn check_single(body: &AttachBody) -> Result<()> {
    match body.copies.is_empty() {
        true => Ok(()),
        false => Err(Failure::refused(
            "this takes one device: for a cache on copies, detach the one that is there with \
             --flush, and attach several devices",
        )),
    }
}

fn identities() -> [Uuid; 2] {
    [Uuid::new_v4(), Uuid::new_v4()]
}

fn not_detached(error: DetachError) -> anyhow::Error {
    match error.is_refusal() {
        true => Failure::refused(error.to_string()),
        false => anyhow!(error),
    }
}

fn not_exchanged(error: ExchangeError) -> anyhow::Error {
    match error.is_refusal() {
        true => Failure::refused(error.to_string()),
        false => anyhow!(error),
    }
}

fn check_line(body: &AttachBody) -> Result<()> {
    match body.line.filter(|line| !is_line_size(line.bytes())) {
        Some(line) => Err(Failure::usage(DescriptionError::Line { line }.to_string())),
        None => Ok(()),
    }
}

fn refused(error: AttachError) -> anyhow::Error {
    match error.is_refusal() {
        true => Failure::refused(error.to_string()),
        false => anyhow!(error),
    }
}
