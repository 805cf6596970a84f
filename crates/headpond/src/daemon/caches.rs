//! Wishes about the cache device itself.

use super::message::{AttachBody, DetachBody};
use super::serving::Desk;
use crate::device::{Consent, DeviceSpec, vet};
use crate::outcome::Failure;
use anyhow::{Result, anyhow};
use headpond_block::BLOCK_BYTES;
use headpond_cache::{Mode, is_line_size};
use headpond_raid::Occupied;
use headpond_volume::{
    AttachError, CacheDescription, CacheSettings, DescriptionError, DetachError, Dirty,
    SettingChange, SettingError, Size, TierDescription, TierSettings,
};
use serde_json::Value;
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

    pub async fn replace(&self, body: &AttachBody) -> Result<Value> {
        check_line(body)?;
        if body.tier {
            self.take_tier(Dirty::Clean).await?;
            self.put_tier(body).await?;
            return self.status();
        }
        let description = self.volume.description();
        let cache = description.cache.as_ref();
        let settings = cache.map(|cache| cache.settings.clone()).unwrap_or_default();
        let line = cache.map_or(Size(BLOCK_BYTES), |cache| cache.line);
        let is_same = cache.is_some_and(|cache| cache.device == body.device);
        if !is_same {
            // What could be said against the new one is said while there still is the old one.
            self.consider(body, &settings)?;
        }
        self.exchange(body, Dirty::Clean, settings, line).await
    }

    /// What is cached does not outlive it: the log is laid out anew.
    pub async fn resize(&self, size: Option<Size>) -> Result<Value> {
        let cache = self.described()?;
        let spec: DeviceSpec = cache.device.parse()?;
        let slices = usize::from(self.volume.description().slices);
        let least = Size(headpond_cache::bytes_min(slices));
        if let Some(size) = size.filter(|size| *size < least) {
            let text = format!("{size} is too little: a cache of {slices} slices takes {least}");
            return Err(Failure::usage(text));
        }
        let device = match (spec.path(), size) {
            (None, None) => {
                return Err(Failure::usage("memory is as large as it is asked for: name a size"));
            }
            (None, Some(size)) => DeviceSpec::Ram(size).to_string(),
            (Some(path), size) => {
                let most = Size(headpond_uring::safety::inspect(path)?.size_bytes);
                if let Some(size) = size.filter(|size| *size > most) {
                    let text = format!("{spec} has {most}, and not the {size} that were asked for");
                    return Err(Failure::refused(text));
                }
                cache.device.clone()
            }
        };
        let size = size.filter(|_| spec.path().is_some());
        let body =
            AttachBody { device, size, force: cache.volatile_allowed, ..AttachBody::default() };
        self.exchange(&body, Dirty::Clean, cache.settings, cache.line).await
    }

    /// A new, empty cache in the place of the old one is what takes no longer the more it held.
    pub async fn purge(&self, flush: bool) -> Result<Value> {
        let CacheDescription { device, line, size, settings, volatile_allowed: force } =
            self.described()?;
        let body = AttachBody { device, size, force, ..AttachBody::default() };
        let dirty = if flush { Dirty::Clean } else { Dirty::Refuse };
        self.exchange(&body, dirty, settings, line).await
    }

    fn described(&self) -> Result<CacheDescription> {
        let description = self.volume.description();
        let volume = description.name;
        description
            .cache
            .ok_or_else(|| Failure::refused(DetachError::NoCache { volume }.to_string()))
    }

    async fn exchange(
        &self,
        body: &AttachBody,
        dirty: Dirty,
        settings: CacheSettings,
        line: Size,
    ) -> Result<Value> {
        self.take_cache(dirty).await?;
        let put = self.put_cache(body, settings, line).await;
        put.map_err(|error| error.context("the old cache is detached, and there is no new one"))?;
        self.status()
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
        let (spec, settings) = self.consider(body, &settings)?;
        let device = self.opener.open(&spec)?;
        let described = CacheDescription {
            device: spec.to_string(),
            line: body.line.unwrap_or(line),
            size: body.size,
            settings,
            volatile_allowed: body.force,
        };
        let occupied = if body.force { Occupied::Overwrite } else { Occupied::Refuse };
        let new = volume.make_cache(device, described.clone(), Uuid::new_v4(), occupied).await;
        let new = new.map_err(refused)?;
        self.places.save(&volume.description_with(&described))?;
        let attached = volume.attach(new).await;
        self.places.save(&volume.description())?;
        attached.map_err(refused)
    }

    pub async fn take_cache(&self, dirty: Dirty) -> Result<()> {
        self.volume.detach(dirty).await.map_err(not_detached)?;
        self.places.save(&self.volume.description())
    }

    async fn put_tier(&self, body: &AttachBody) -> Result<()> {
        let named = body.changes.iter().map(|text| text.strip_prefix("tier.").unwrap_or(text));
        let settings = TierSettings::default().with_all(&parse(named)?);
        let settings = settings.map_err(|error| Failure::usage(error.to_string()))?;
        let spec = vet_cache(body, settings.mode)?;
        let described = TierDescription {
            device: spec.to_string(),
            line: body.line.unwrap_or(Size(BLOCK_BYTES)),
            settings,
            volatile_allowed: body.force,
        };
        let device = self.opener.open(&spec)?;
        self.volume.attach_tier(described, device).await.map_err(refused)?;
        self.places.save(&self.volume.description())
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
    ) -> Result<(DeviceSpec, CacheSettings)> {
        let settings = settings.with_all(&parse(body.changes.iter().map(String::as_str))?);
        let settings = settings.map_err(|error| Failure::usage(error.to_string()))?;
        Ok((vet_cache(body, settings.mode)?, settings))
    }
}

fn parse<'a>(changes: impl Iterator<Item = &'a str>) -> Result<Vec<SettingChange>> {
    let changes: Result<Vec<_>, _> = changes.map(str::parse).collect();
    changes.map_err(|error: SettingError| Failure::usage(error.to_string()))
}

fn vet_cache(body: &AttachBody, mode: Mode) -> Result<DeviceSpec> {
    let spec: DeviceSpec = body.device.parse()?;
    let consent = if body.force { Consent::Forced } else { Consent::Careful };
    vet(&spec, consent)?.check_cache(&spec, mode, consent)?;
    Ok(spec)
}

fn not_detached(error: DetachError) -> anyhow::Error {
    match error {
        DetachError::Array(_) | DetachError::Clean(_) => anyhow!(error),
        refusal => Failure::refused(refusal.to_string()),
    }
}

fn check_line(body: &AttachBody) -> Result<()> {
    match body.line.filter(|line| !is_line_size(line.bytes())) {
        Some(line) => Err(Failure::usage(DescriptionError::Line { line }.to_string())),
        None => Ok(()),
    }
}

fn refused(error: AttachError) -> anyhow::Error {
    Failure::refused(error.to_string())
}
