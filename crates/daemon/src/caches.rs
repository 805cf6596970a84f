//! Commands about the cache device itself.

use super::members::vet_blocking;
use super::service::ControlService;
use crate::device::{Consent, DeviceSpec, check_copies, mirror_of};
use crate::run_blocking::run_blocking;
use anyhow::Result;
use headpond_api::answers::{Resized, Status};
use headpond_api::outcome::Failure;
use headpond_api::requests::{AttachBody, DetachBody, PurgeBody};
use headpond_block::{BLOCK_BYTES, BlockDevice};
use headpond_cache::{Mode, ScrubReport, is_line_size};
use headpond_raid::Occupied;
use headpond_volume::{
    AttachError, CacheDescription, CacheDevice, CacheSettings, Description, DescriptionError,
    DetachError, Dirty, ExchangeError, Keeping, NewDevice, Reopening, Replacement, ScrubCacheError,
    SettingChange, Size, TierDescription, bytes_on_copies,
};
use std::collections::BTreeSet;
use std::rc::Rc;
use uuid::Uuid;

impl ControlService {
    pub async fn scrub_cache(&self) -> Result<ScrubReport> {
        let report = self.volume.scrub_cache().await;
        report.map_err(|error| Failure::of(error, ScrubCacheError::is_refusal))
    }

    pub async fn attach(&self, body: &AttachBody) -> Result<Status> {
        match body.tier {
            true => self.put_tier(body).await?,
            false => self.put_cache(body).await?,
        }
        Ok(self.status())
    }

    pub async fn detach(&self, body: &DetachBody) -> Result<Status> {
        let _at_full_rate = self.flush_at_full_rate(body.pace);
        let dirty = match (body.force, body.flush) {
            (true, _) => Dirty::Lose,
            (false, true) => Dirty::Clean,
            (false, false) => Dirty::Refuse,
        };
        match body.tier {
            true => self.take_tier(dirty).await?,
            false => self.take_cache(dirty).await?,
        }
        Ok(self.status())
    }

    /// The settings stay, and dirty data is written to the array first.
    pub async fn replace(&self, body: &AttachBody) -> Result<Status> {
        check_line(body)?;
        if body.tier {
            let (described, device) = self.tier(body, self.volume.description().tier).await?;
            let replaced = self.volume.replace_tier(described, device, Dirty::Clean).await;
            self.save().await?;
            replaced.map_err(not_exchanged)?;
            return Ok(self.status());
        }
        let before = self.described()?;
        let specs = caches(body)?;
        let is_same = is_same(&before, &specs)?;
        let settings = self.consider(body, &before.settings, &specs, is_same).await?;
        let mirror = mirror_of(&specs[1..]);
        let mut described = CacheDescription {
            device: specs[0].to_string(),
            line: body.line.unwrap_or(before.line),
            size: body.size,
            settings,
            volatile_allowed: body.force,
            mirror,
        };
        let occupied = if body.force { Occupied::Overwrite } else { Occupied::Refuse };
        let open = |described| self.reopen(described);
        let device = match is_same {
            true => self.same_device(body.size, &open).await?,
            false => NewDevice::Other(self.make_device(&specs, &described, occupied).await?),
        };
        // Also settings that changed while its devices were being synced.
        described.settings = changed(body, &self.described()?.settings)?;
        let made = match &device {
            NewDevice::Other(made) => Some(made.clone()),
            _ => None,
        };
        let new = Replacement { device, described, identities: identities(), occupied };
        let replaced = self.volume.replace_cache(new, Dirty::Clean, &|it| self.keep(it)).await;
        if let (Err(_), Some(made)) = (&replaced, made)
            && !self.volume.lies_on(&made)
        {
            // A mirror without a cache would be refused as foreign.
            let _ = made.dissolve().await;
        }
        replaced.map_err(not_exchanged)?;
        Ok(self.status())
    }

    /// All cached data is invalidated: the log is reformatted, unless the size stays.
    pub async fn resize(&self, size: Option<Size>) -> Result<Resized> {
        let cache = self.described()?;
        let spec: DeviceSpec = cache.device.parse()?;
        let slices = usize::from(self.volume.description().slices);
        let least = Size(headpond_cache::bytes_min(slices));
        if let Some(size) = size.filter(|size| *size < least) {
            let text =
                format!("{size} is too small: a cache of this volume needs at least {least}");
            return Err(Failure::usage(text));
        }
        let has_changed = match (spec.path(), size) {
            (None, None) => {
                return Err(Failure::usage("a cache in memory needs a size"));
            }
            (None, Some(size)) if spec == DeviceSpec::Ram(size) => false,
            (None, Some(size)) => self.resize_memory(size, cache).await?,
            (Some(_), size) => {
                let open = |described| self.reopen(described);
                let device = self.same_device(size, &open).await?;
                let (identities, keep) = (identities(), |it: &Description| self.keep(it));
                let resized = self.volume.resize_cache(size, device, identities, &keep).await;
                resized.map_err(not_exchanged)?
            }
        };
        Ok(Resized { is_unchanged: !has_changed, status: self.status() })
    }

    /// The cache's device, reopened if it has grown and more of it is requested. The volume checks
    /// whether that is enough.
    async fn same_device<'a>(
        &self,
        size: Option<Size>,
        open: &'a dyn Fn(CacheDescription) -> Reopening<'a>,
    ) -> Result<NewDevice<'a>> {
        let seen = self.volume.cache_device_bytes().unwrap_or_default();
        if size.is_some_and(|size| size.bytes() <= seen) {
            return Ok(NewDevice::Same);
        }
        let Some(bytes) = self.room().await?.filter(|bytes| size.is_some() || *bytes > seen) else {
            return Ok(NewDevice::Same);
        };
        Ok(NewDevice::Reopened { bytes, open })
    }

    /// The present size of the cache's devices; none for memory.
    async fn room(&self) -> Result<Option<u64>> {
        let cache = self.described()?;
        let specs = copies_of(&cache)?;
        let look = move || {
            let mut smallest = None;
            for spec in specs {
                let Some(path) = spec.path() else { return Ok(None) };
                let bytes = headpond_uring::safety::inspect(path)?.size_bytes;
                smallest = Some(smallest.map_or(bytes, |smallest: u64| smallest.min(bytes)));
            }
            Ok(smallest)
        };
        let room = |bytes| if cache.mirror.is_some() { bytes_on_copies(bytes) } else { bytes };
        Ok(run_blocking(look).await?.map(room))
    }

    fn reopen(&self, described: CacheDescription) -> Reopening<'_> {
        Box::pin(async move {
            let reopened = |error: anyhow::Error| AttachError::Reopen(error.into());
            let specs = copies_of(&described).map_err(reopened)?;
            let opened = self.opener.open_all(&specs).await.map_err(reopened)?;
            self.unite(opened, &described, Occupied::Overwrite).await
        })
    }

    /// The devices of a new cache, as one.
    async fn make_device(
        &self,
        specs: &[DeviceSpec],
        described: &CacheDescription,
        occupied: Occupied,
    ) -> Result<CacheDevice> {
        let opened = self.opener.open_all(specs).await?;
        self.unite(opened, described, occupied).await.map_err(refused)
    }

    async fn unite(
        &self,
        mut opened: Vec<Rc<dyn BlockDevice>>,
        described: &CacheDescription,
        occupied: Occupied,
    ) -> Result<CacheDevice, AttachError> {
        match described.mirror {
            None => Ok(opened.remove(0).into()),
            Some(_) => {
                self.volume.make_copies(opened, described, occupied, self.pool.clone()).await
            }
        }
    }

    async fn resize_memory(&self, size: Size, before: CacheDescription) -> Result<bool> {
        let spec = DeviceSpec::Ram(size);
        let described = CacheDescription { device: spec.to_string(), size: None, ..before };
        let device = NewDevice::Other(self.opener.open(&spec).await?.into());
        let identities = identities();
        let new = Replacement { device, described, identities, occupied: Occupied::Overwrite };
        let replaced = self.volume.replace_cache(new, Dirty::Clean, &|it| self.keep(it)).await;
        replaced.map_err(not_exchanged).map(|()| true)
    }

    /// A new, empty cache takes a constant time.
    pub async fn purge(&self, body: &PurgeBody) -> Result<Status> {
        let dirty = match (body.force, body.flush) {
            (true, _) => Dirty::Drop,
            (false, true) => Dirty::Clean,
            (false, false) => Dirty::Refuse,
        };
        let purged = self.volume.purge_cache(dirty, identities(), &|it| self.keep(it)).await;
        purged.map_err(not_exchanged)?;
        Ok(self.status())
    }

    pub fn keep(&self, description: &Description) -> Keeping<'_> {
        let description = description.clone();
        Box::pin(async move { Ok(self.files.save(description).await?) })
    }

    fn described(&self) -> Result<CacheDescription> {
        let description = self.volume.description();
        let volume = description.name;
        description.cache.ok_or_else(|| Failure::refused(DetachError::NoCache { volume }))
    }

    /// Makes the device a cache, and puts it in front of the volume.
    async fn put_cache(&self, body: &AttachBody) -> Result<()> {
        let volume = &self.volume;
        if volume.status().cache.is_some() {
            let volume = volume.description().name;
            return Err(refused(AttachError::HasCache { volume }));
        }
        check_line(body)?;
        let specs = caches(body)?;
        let settings = self.consider(body, &self.defaults.cache, &specs, false).await?;
        let described = CacheDescription {
            device: specs[0].to_string(),
            line: body.line.unwrap_or(Size(BLOCK_BYTES)),
            size: body.size,
            settings,
            volatile_allowed: body.force,
            mirror: mirror_of(&specs[1..]),
        };
        let occupied = if body.force { Occupied::Overwrite } else { Occupied::Refuse };
        let device = self.make_device(&specs, &described, occupied).await?;
        let put = self.put_made(device.clone(), described, occupied).await;
        if put.is_err() && !volume.lies_on(&device) {
            // A mirror without a cache would be refused as foreign.
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
        let new = volume.make_cache(device, described, Uuid::new_v4(), occupied).await;
        let attached = volume.attach(new.map_err(refused)?, &|it| self.keep(it)).await;
        // Otherwise the next start would wait for the previous device.
        self.save().await?;
        attached.map_err(refused)
    }

    async fn take_cache(&self, dirty: Dirty) -> Result<()> {
        let detached = self.volume.detach(dirty).await;
        // Also if the tier is missing.
        self.save().await?;
        detached.map_err(not_detached)
    }

    async fn put_tier(&self, body: &AttachBody) -> Result<()> {
        let (described, device) = self.tier(body, None).await?;
        self.volume.attach_tier(described, device).await.map_err(refused)?;
        self.save().await
    }

    /// A new tier; unspecified properties are those of the previous one.
    async fn tier(
        &self,
        body: &AttachBody,
        before: Option<TierDescription>,
    ) -> Result<(TierDescription, Rc<dyn BlockDevice>)> {
        let named = |it: &SettingChange| it.of_tier().unwrap_or_else(|| it.clone());
        let changes: Vec<SettingChange> = body.changes.iter().map(named).collect();
        let (line, settings) = match before {
            Some(before) => (before.line, before.settings),
            None => (Size(BLOCK_BYTES), self.defaults.tier.clone()),
        };
        let settings = settings.with_all(&changes).map_err(Failure::usage)?;
        if !body.copies.is_empty() {
            return Err(Failure::refused("a tier is one piece of memory: `ram:SIZE`"));
        }
        if body.size.is_some() {
            let text = "a tier uses all of its memory: give the size there, as in `ram:1G`";
            return Err(Failure::usage(text));
        }
        let mut specs = caches(body)?;
        self.vet_caches(&specs, body.force, settings.mode, false).await?;
        let spec = specs.remove(0);
        let described = TierDescription {
            device: spec.to_string(),
            line: body.line.unwrap_or(line),
            settings,
            volatile_allowed: body.force,
        };
        let device = self.opener.open(&spec).await?;
        Ok((described, device))
    }

    async fn take_tier(&self, dirty: Dirty) -> Result<()> {
        self.volume.detach_tier(dirty).await.map_err(not_detached)?;
        self.save().await
    }

    /// All checks of devices before they are changed; returns the settings of the cache.
    async fn consider(
        &self,
        body: &AttachBody,
        settings: &CacheSettings,
        specs: &[DeviceSpec],
        are_ours: bool,
    ) -> Result<CacheSettings> {
        let settings = changed(body, settings)?;
        self.vet_caches(specs, body.force, settings.mode, are_ours).await?;
        Ok(settings)
    }

    /// The volume's own devices cannot be its cache, unless they are those of the present cache.
    async fn vet_caches(
        &self,
        specs: &[DeviceSpec],
        force: bool,
        mode: Mode,
        are_ours: bool,
    ) -> Result<()> {
        let consent = if force { Consent::Forced } else { Consent::Careful };
        for spec in specs {
            let vetted = match are_ours {
                true => vet_blocking(spec, consent).await,
                false => self.vet_cache(spec, consent).await,
            };
            vetted?.check_cache(spec, mode, consent)?;
        }
        Ok(())
    }
}

fn changed(body: &AttachBody, settings: &CacheSettings) -> Result<CacheSettings> {
    settings.with_all(&body.changes).map_err(Failure::usage)
}

fn caches(body: &AttachBody) -> Result<Vec<DeviceSpec>> {
    let words = std::iter::once(&body.device).chain(&body.copies);
    let spec = |word: &String| word.parse::<DeviceSpec>().map_err(Failure::usage);
    let specs = words.map(|word| Ok(spec(word)?.absolute()?));
    let specs = specs.collect::<Result<Vec<_>>>()?;
    check_copies(&specs)?;
    Ok(specs)
}

fn copies_of(cache: &CacheDescription) -> Result<Vec<DeviceSpec>> {
    cache.copies().map(|word| Ok(word.parse()?)).collect()
}

/// Whether these devices are those of the present cache.
///
/// # Errors
/// If they share some, but not all of their devices.
fn is_same(present: &CacheDescription, specs: &[DeviceSpec]) -> Result<bool> {
    let present: BTreeSet<String> = present.copies().map(str::to_owned).collect();
    let wanted: BTreeSet<String> = specs.iter().map(DeviceSpec::to_string).collect();
    match wanted.intersection(&present).next() {
        Some(name) if wanted != present => Err(Failure::refused(format!(
            "{name} is a device of the present cache: `headpond array replace` with --cache \
             replaces a single copy; otherwise detach with --flush, and attach",
        ))),
        shared => Ok(shared.is_some()),
    }
}

fn identities() -> [Uuid; 2] {
    [Uuid::new_v4(), Uuid::new_v4()]
}

fn not_detached(error: DetachError) -> anyhow::Error {
    Failure::of(error, DetachError::is_refusal)
}

fn not_exchanged(error: ExchangeError) -> anyhow::Error {
    Failure::of(error, ExchangeError::is_refusal)
}

fn check_line(body: &AttachBody) -> Result<()> {
    match body.line.filter(|line| !is_line_size(line.bytes())) {
        Some(line) => Err(Failure::usage(DescriptionError::Line { line })),
        None => Ok(()),
    }
}

fn refused(error: AttachError) -> anyhow::Error {
    Failure::of(error, AttachError::is_refusal)
}
