//! Attaching a cache to an open volume, and detaching it.
//!
//! Attach: 1. the device becomes an empty cache; 2. the caller saves the description that names it;
//! 3. requests are quiesced; 4. the members record the cache; 5. requests go through it. Detach: 1.
//! the cache takes no dirty data and is cleaned; 2. requests are quiesced; 3. the members record
//! that there is no cache; 4. requests go to the array, and the cache label is erased.
//!
//! **Invariants**
//! - A power cut leaves a volume with its cache or without: the records of the members decide, and
//!   a cache that they do not record has no dirty data.
//! - No request is in flight while the request path changes.

use crate::assembly::cached::Cached;
use crate::assembly::cores::Cores;
use crate::assembly::create::{CoreFacts, cache_options, consider_copies, refuse_occupied};
use crate::assembly::mirror::{CacheDevice, Mirror};
use crate::assembly::open::{FoundCache, OpenError, Tolerance};
use crate::change::tier::TierError;
use crate::description::{CacheDescription, Description, DescriptionError};
use crate::serving::dispatcher::Held;
use crate::volume::kept::{CallerError, Keep};
use crate::volume::{BusyError, Volume};
use crate::{CleanAllError, CreateError};
use headpond_block::{BlockDevice, BufferPool, DeviceError, DeviceName};
use headpond_cache::format::superblock::CORE_BYTES_MAX;
use headpond_cache::{CleanError, Mode, SliceConfig, Superblock, wipe};
use headpond_raid::Occupied;
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;

const RELEASE_POLL: Duration = Duration::from_millis(1);
const RELEASE_POLLS_MAX: u32 = 1000;

/// An empty cache that may be attached.
pub struct NewCache {
    described: CacheDescription,
    device: CacheDevice,
    superblock: Superblock,
}

impl NewCache {
    /// On the same copies as the one that is described now: a spare may have taken a copy's place
    /// while it was made.
    pub(crate) fn renew_copies(&mut self, now: Option<&CacheDescription>) {
        let Some(now) = now else { return };
        let uuid = |cache: &CacheDescription| cache.mirror.as_ref().map(|mirror| mirror.uuid);
        if uuid(now).is_some() && uuid(now) == uuid(&self.described) {
            (self.described.device, self.described.mirror) =
                (now.device.clone(), now.mirror.clone());
        }
    }
}

/// How dirty data is treated when a cache is detached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dirty {
    /// There must be none.
    Refuse,
    /// It is written to the array first.
    Clean,
    /// It is written where possible, and discarded otherwise.
    Lose,
    /// It is discarded.
    Drop,
}

/// Why a cache was not attached; the volume continues without one.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    #[error("{volume} has a cache: detach or replace it")]
    HasCache { volume: String },
    #[error(
        "{volume}: a reshape of one of its cores is in progress, after which addresses of others may \
         change, and a cache depends on them: wait for it to complete"
    )]
    Growing { volume: String },
    #[error("{volume} has a tier: detach it first")]
    HasTier { volume: String },
    #[error(transparent)]
    Description(#[from] DescriptionError),
    #[error(transparent)]
    Create(#[from] CreateError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("the tier could not be detached: {0}")]
    InTheWay(#[from] DetachError),
    #[error(transparent)]
    Tier(#[from] TierError),
    #[error("the description could not be saved: {0}")]
    Keep(CallerError),
    #[error("the device could not be reopened: {0}")]
    Reopen(CallerError),
    #[error(
        "resizing recreates the cache mirror, which requires all copies healthy, and no spare \
         (`headpond array remove {volume} DEVICE --cache` removes one)"
    )]
    CopiesNotWhole { volume: String },
    #[error(transparent)]
    Busy(#[from] BusyError),
}

/// Why a cache was not detached; it is used as before.
#[derive(Debug, thiserror::Error)]
pub enum DetachError {
    #[error("{volume} has no cache")]
    NoCache { volume: String },
    #[error("{volume} has no tier")]
    NoTier { volume: String },
    #[error(
        "{device} has {bytes} bytes of dirty data: flush it first (--flush), or discard it (--force)"
    )]
    Dirty { device: DeviceName, bytes: u64 },
    #[error(
        "{device} has {blocks} damaged blocks, which read as errors; without the cache they would read as \
         older data: write them again, or discard them (`headpond cache detach` with --force)"
    )]
    Damaged { device: DeviceName, blocks: u64 },
    #[error(
        "{0}; it stays attached: if the array refuses writes, repair that and detach again; blocks that \
         the cache cannot read (`headpond cache scrub` lists them) are discarded by `headpond cache \
         detach` with --force"
    )]
    Clean(#[from] CleanAllError),
    #[error(transparent)]
    Array(#[from] DeviceError),
    #[error("the tier could not be attached again: {0}")]
    Tier(#[from] TierError),
    #[error(transparent)]
    Busy(#[from] BusyError),
}

impl AttachError {
    /// Whether nothing was changed, and no device or file failed.
    pub fn is_refusal(&self) -> bool {
        use headpond_raid::CreateError as Array;
        match self {
            Self::Create(error) => !matches!(
                error,
                CreateError::Device(_)
                    | CreateError::Cache(headpond_cache::CreateError::Device(_))
                    | CreateError::Array(Array::Device(_))
            ),
            Self::Open(error) => error.is_refusal(),
            Self::InTheWay(error) => error.is_refusal(),
            Self::Tier(error) => matches!(error, TierError::Lasts { .. }),
            Self::Keep(_) | Self::Reopen(_) => false,
            Self::HasCache { .. }
            | Self::HasTier { .. }
            | Self::Growing { .. }
            | Self::CopiesNotWhole { .. }
            | Self::Description(_)
            | Self::Busy(_) => true,
        }
    }
}

impl DetachError {
    /// Whether it was refused to protect data, rather than for a failed device.
    pub fn is_refusal(&self) -> bool {
        !matches!(self, Self::Array(_) | Self::Clean(_) | Self::Tier(_))
    }
}

impl Volume {
    /// Makes a device an empty cache of this volume; its contents are lost. The volume does not use
    /// it yet.
    ///
    /// # Errors
    /// Why it cannot be; refusals change nothing.
    pub async fn make_cache(
        &self,
        device: impl Into<CacheDevice>,
        described: CacheDescription,
        identity: Uuid,
        occupied: Occupied,
    ) -> Result<NewCache, AttachError> {
        let description = self.description_with(&described);
        let cores = self.cores();
        check_below(&description, &cores)?;
        let mut device = device.into();
        if device.mirror.is_none() {
            device.device = self.ownership.guard(device.device);
        }
        // What copies hold that were just made is what their devices held, which was looked at.
        if occupied == Occupied::Refuse && device.mirror.is_none() {
            refuse_occupied(&*device.device, description.uuid).await?;
        }
        let options = cache_options(&description, identity, &CoreFacts::of(&cores));
        let bytes = options.device_bytes.unwrap_or(device.device.size_bytes());
        let (name, eviction) = (device.device.name(), described.slice_config().eviction);
        headpond_cache::check_memory(name, bytes, options.line_bytes, eviction)
            .map_err(OpenError::from)?;
        let superblock =
            headpond_cache::create(&*device.device, &options).await.map_err(CreateError::from)?;
        Ok(NewCache { described, device, superblock })
    }

    /// Makes devices the copies of a cache to be attached; their contents are lost.
    ///
    /// # Errors
    /// Why they cannot be; refusals change nothing.
    pub async fn make_copies(
        &self,
        devices: Vec<Rc<dyn BlockDevice>>,
        described: &CacheDescription,
        occupied: Occupied,
        pool: BufferPool,
    ) -> Result<CacheDevice, AttachError> {
        let description = self.description_with(described);
        description.check_new()?;
        // Everything that can be said against the cache on them, while they are as they were.
        let cache = cache_options(&description, Uuid::nil(), &CoreFacts::of(&self.cores()));
        let made = consider_copies(&description, &devices, &cache, occupied).await?;
        let options = made.expect("copies are described").array;
        let guard = |device| self.ownership.guard(device);
        let devices = devices.into_iter().map(guard).collect();
        let made = Mirror::make(&self.runtime, devices, &options, self.tuning(pool)).await;
        Ok(made.map_err(CreateError::from)?.into())
    }

    /// The description of this volume with a cache.
    pub(crate) fn description_with(&self, cache: &CacheDescription) -> Description {
        Description { cache: Some(cache.clone()), ..self.description() }
    }

    /// Attaches a cache, under load; `keep` saves the description that names it, before any device
    /// records it.
    ///
    /// # Errors
    /// Why not; the volume continues without one, and its description must be saved again.
    pub async fn attach(&self, new: NewCache, keep: Keep<'_>) -> Result<(), AttachError> {
        let _change = self.begin_change()?;
        if self.cached().is_some() {
            return Err(AttachError::HasCache { volume: self.description().name });
        }
        self.below_tier(Dirty::Clean, self.put_cache(new, keep)).await
    }

    /// The description names the cache from here on, also for concurrent saves: without it a start
    /// would refuse the record on the arrays.
    pub(crate) async fn put_cache(&self, new: NewCache, keep: Keep<'_>) -> Result<(), AttachError> {
        let before = self.name_cache(Some(new.described.clone()));
        let put = match self.kept.keep_with(keep, &self.description()).await {
            Ok(()) => self.lead_through(new).await,
            Err(error) => Err(AttachError::Keep(error)),
        };
        if put.is_err() {
            self.name_cache(before);
        }
        put
    }

    /// Names that cache in the description, or none; returns the one named before.
    pub(crate) fn name_cache(&self, cache: Option<CacheDescription>) -> Option<CacheDescription> {
        std::mem::replace(&mut self.description.borrow_mut().cache, cache)
    }

    async fn lead_through(&self, new: NewCache) -> Result<(), AttachError> {
        let NewCache { described, device, superblock } = new;
        let description = self.description();
        let held = self.dispatcher.hold().await;
        // The cache flushes the array for what it knows of; it cannot know what came before it.
        let cores = self.cores();
        if superblock.core != cores.identity() {
            return Err(AttachError::Growing { volume: description.name });
        }
        cores.device.flush().await.map_err(CreateError::from)?;
        let mirror = device.mirror.clone();
        let found = FoundCache { described: &described, device, superblock };
        let opened = Cached::open(&cores, &description, found, (Tolerance::Careful, None)).await;
        let cached = match opened {
            Ok((cached, _)) => cached,
            Err(error) => {
                let disowned = cores.disown().await;
                mirror.iter().for_each(|mirror| mirror.detach());
                disowned.map_err(CreateError::from)?;
                return Err(error.into());
            }
        };
        self.kept.note_attached(&cached);
        self.cached.replace(Some(Rc::new(cached)));
        self.follow_copies();
        self.verify_contents();
        self.lead(&held);
        Ok(())
    }

    /// Detaches the cache, under load; the array has all data afterwards. Also detaches one that
    /// only the description still names.
    ///
    /// # Errors
    /// Why not; the cache is used as before.
    pub async fn detach(&self, dirty: Dirty) -> Result<(), DetachError> {
        let _change = self.begin_change()?;
        self.consider_dirty_data(dirty)?;
        self.below_tier(dirty, async {
            let device = self.take_cache(dirty).await?;
            self.name_cache(None);
            if let Some(device) = device {
                // No member records them any more, as above.
                let _ = device.dissolve().await;
            }
            Ok(())
        })
        .await
    }

    /// Whether dirty data forbids detaching the cache, before the tier is changed.
    pub(crate) fn consider_dirty_data(&self, dirty: Dirty) -> Result<(), DetachError> {
        // Otherwise dirty data of the tier may overwrite damaged blocks.
        let is_said = self.tier().is_none_or(|tier| tier.dirty_bytes() == 0);
        self.cached().filter(|_| is_said).map_or(Ok(()), |cached| check_dirty_data(&cached, dirty))
    }

    /// Answers with its device, unless only the description names one; the description still does.
    pub(crate) async fn take_cache(
        &self,
        dirty: Dirty,
    ) -> Result<Option<CacheDevice>, DetachError> {
        let Some(cached) = self.cached() else {
            self.described_cache()?;
            return Ok(None);
        };
        let mirror = cached.mirror.clone();
        let leave = async move || {
            self.cores().disown().await?;
            // From here on no copy that leaves has the others made to fit again.
            mirror.iter().for_each(|mirror| mirror.detach());
            if let Some(cached) = self.cached.take() {
                self.kept.note_detached(&cached);
            }
            self.verify_contents();
            Ok(())
        };
        let device = self.take_out(cached, dirty, leave).await?;
        // It is no cache of this volume any more, whatever becomes of this.
        let _ = wipe(&*device.device).await;
        Ok(Some(device))
    }

    /// Detaches a cache from requests, and releases it; returns its device. `leave` runs while
    /// requests are quiesced.
    ///
    /// # Errors
    /// Why not, or that of `leave`: the cache is used as before.
    pub(crate) async fn take_out(
        &self,
        cached: Rc<Cached>,
        dirty: Dirty,
        leave: impl AsyncFnOnce() -> Result<(), DetachError>,
    ) -> Result<CacheDevice, DetachError> {
        check_dirty_data(&cached, dirty)?;
        let config = cached.slices[0].config();
        let left = match self.hold_without_dirty_data(&cached, dirty).await {
            Ok(held) => leave().await.map(|()| held),
            Err(error) => Err(error),
        };
        let held = match left {
            Ok(held) => held,
            Err(error) => {
                cached.configure(&config);
                return Err(error);
            }
        };
        if cached.dirty_bytes() > 0 {
            // Discarded: its cleaner must not write that over newer data.
            cached.close().await;
        }
        self.lead(&held);
        drop(held);
        cached.close().await;
        Ok(self.release(cached).await)
    }

    /// Quiesces requests once no dirty data is left but what is discarded.
    async fn hold_without_dirty_data(
        &self,
        cached: &Cached,
        dirty: Dirty,
    ) -> Result<Held<'_>, DetachError> {
        if dirty != Dirty::Drop {
            let config = cached.slices[0].config();
            cached.configure(&SliceConfig { mode: Mode::PassThrough, ..config });
            return self.drain_and_hold(cached, dirty).await;
        }
        if cached.replayed_blocks() > 0 {
            // The parity below them may be torn, and only cleaning them repairs it.
            cached.clean_all().await.map_err(CleanAllError::from)?;
        }
        Ok(self.dispatcher.hold().await)
    }

    /// Waits up to 1 s until no other reference to the device is left: timers of its slices may
    /// still run.
    async fn release(&self, cached: Rc<Cached>) -> CacheDevice {
        let (device, mirror) = (Rc::clone(&cached.device), cached.mirror.clone());
        drop(cached);
        let ours = 1 + mirror.iter().count();
        for _ in 0..RELEASE_POLLS_MAX {
            if Rc::strong_count(&device) == ours {
                break;
            }
            self.runtime.sleep(RELEASE_POLL).await;
        }
        CacheDevice { device, mirror }
    }

    /// Cleans a cache that takes no dirty data any more, and quiesces requests.
    async fn drain_and_hold(&self, cached: &Cached, dirty: Dirty) -> Result<Held<'_>, DetachError> {
        let may_lose = dirty == Dirty::Lose;
        let _job = self.begin_cleaning();
        // Only data that cannot be written is discarded, not data that was not reached.
        let is_lost = |cleaned: &Result<(), CleanError>| {
            may_lose && matches!(cleaned, Err(CleanError::Core { .. }))
        };
        let cleaned = cached.drain(&self.runtime).await;
        if !is_lost(&cleaned) {
            cleaned.map_err(CleanAllError::from)?;
        }
        let held = self.dispatcher.hold().await;
        let cleaned = cached.drain(&self.runtime).await;
        if !is_lost(&cleaned) {
            cleaned.map_err(CleanAllError::from)?;
        }
        if !may_lose {
            check_dirty_data(cached, dirty)?;
        }
        Ok(held)
    }
}

/// Checks whether the described cores may have a cache, on whatever device; `cores` are the present
/// ones.
pub(crate) fn check_below(description: &Description, cores: &Cores) -> Result<(), AttachError> {
    description.check_new()?;
    let is_single = description.further_cores.is_empty();
    if !is_single && cores.arrays().iter().any(|array| array.is_growing()) {
        return Err(AttachError::Growing { volume: description.name.clone() });
    }
    let core_bytes = cores.first().array.layout().array_bytes();
    if core_bytes > CORE_BYTES_MAX {
        // It may still have to grow so far.
        let too_large = headpond_cache::CreateError::CoreSize { core_bytes };
        return Err(CreateError::from(too_large).into());
    }
    Ok(())
}

pub(crate) fn check_dirty_data(cached: &Cached, dirty: Dirty) -> Result<(), DetachError> {
    let device = || cached.device.name().clone();
    let (bytes, blocks) = (cached.dirty_bytes(), cached.lost_blocks());
    match dirty {
        Dirty::Refuse if bytes > 0 => Err(DetachError::Dirty { device: device(), bytes }),
        Dirty::Refuse | Dirty::Clean if blocks > 0 => {
            Err(DetachError::Damaged { device: device(), blocks })
        }
        _ => Ok(()),
    }
}
