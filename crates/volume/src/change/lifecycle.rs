//! Putting a cache in front of a volume that is served, and taking it away again.
//!
//! Attach: 1. the device becomes an empty cache; 2. the caller keeps the description that names it;
//! 3. requests are held for a moment; 4. the members record the cache as theirs; 5. requests go
//! through it. Detach: 1. the cache takes nothing dirty any more and is cleaned; 2. requests are
//! held; 3. the members record that there is none; 4. requests go past it, and the device is no
//! cache any more.
//!
//! **Invariants**
//! - A cut leaves a volume with its cache or one without: what the members record decides, and a
//!   cache that they do not record has nothing that the array lacks.
//! - While requests change from one way to the other none is on either.

use crate::assembly::cached::Cached;
use crate::assembly::cores::Cores;
use crate::assembly::create::{CoreFacts, cache_options, consider_copies, refuse_occupied};
use crate::assembly::mirror::{CacheDevice, Mirror};
use crate::assembly::open::{Found, OpenError, Tolerance};
use crate::change::exchange::{CallerError, Keep};
use crate::change::tier::TierError;
use crate::description::{CacheDescription, Description, DescriptionError};
use crate::serving::dispatcher::Held;
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

/// What becomes of dirty data when a cache is detached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dirty {
    /// There must be none.
    Refuse,
    /// It is written to the array first.
    Clean,
    /// It is written where that is possible, and lost where it is not.
    Lose,
    /// It is lost.
    Drop,
}

/// Why a cache was not attached; the volume goes on without one.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    #[error("{volume} has a cache: detach or replace it")]
    HasCache { volume: String },
    #[error(
        "{volume}: one of its cores is growing, and when it has grown others may lie elsewhere: wait \
         for that, the cache knows where each of them lies"
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
    #[error("the tier in memory is in the way: {0}")]
    InTheWay(#[from] DetachError),
    #[error(transparent)]
    Tier(#[from] TierError),
    #[error("the description could not be kept: {0}")]
    Keep(CallerError),
    #[error("the device could not be opened again: {0}")]
    Reopen(CallerError),
    #[error(
        "copies are made anew to grow: that takes all of them, healthy, and no spare beside them \
         (`headpond array remove {volume} DEVICE --cache` takes one away)"
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
        "{device} has {bytes} bytes that the array lacks: let them be written first (--flush), or give \
         them up (--force)"
    )]
    Dirty { device: DeviceName, bytes: u64 },
    #[error(
        "{device} has {blocks} damaged blocks, which answer with errors; without the cache they would \
         answer with older data: write them again, or give them up (`headpond cache detach` with --force)"
    )]
    Damaged { device: DeviceName, blocks: u64 },
    #[error(
        "{0}; it stays attached: where the array takes no writes, mend that and detach again; what the \
         cache itself cannot read (`headpond cache scrub` lists it) is given up by `headpond cache \
         detach` with --force"
    )]
    Clean(#[from] CleanAllError),
    #[error(transparent)]
    Array(#[from] DeviceError),
    #[error("the tier in memory was not put back: {0}")]
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
    /// Whether it was refused for the sake of the data; not for a device that failed.
    pub fn is_refusal(&self) -> bool {
        !matches!(self, Self::Array(_) | Self::Clean(_) | Self::Tier(_))
    }
}

impl Volume {
    /// Makes a device an empty cache of this volume; what was on it is lost. The volume does not
    /// use it yet.
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

    /// Makes devices the copies of a cache that is to be attached; what was on them is lost.
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
        let made = Mirror::make(&self.runtime, devices, &options, pool).await;
        Ok(made.map_err(CreateError::from)?.into())
    }

    /// The description of this volume with a cache.
    pub(crate) fn description_with(&self, cache: &CacheDescription) -> Description {
        Description { cache: Some(cache.clone()), ..self.description() }
    }

    /// Puts a cache in front of the array, under load; `keep` is given the description that names
    /// it, before anything records that it is there.
    ///
    /// # Errors
    /// Why not; the volume goes on without one, and what is kept is to be kept anew.
    pub async fn attach(&self, new: NewCache, keep: Keep<'_>) -> Result<(), AttachError> {
        let _change = self.begin_change()?;
        if self.cached().is_some() {
            return Err(AttachError::HasCache { volume: self.description().name });
        }
        self.below_tier(Dirty::Clean, self.put_cache(new, keep)).await
    }

    /// Whoever keeps the description meanwhile, for another reason, keeps that it names the cache:
    /// without it a start would refuse what the arrays have recorded.
    pub(crate) async fn put_cache(&self, new: NewCache, keep: Keep<'_>) -> Result<(), AttachError> {
        let before = self.name_cache(Some(new.described.clone()));
        let put = match keep(&self.description()).await {
            Ok(()) => self.lead_through(new).await,
            Err(error) => Err(AttachError::Keep(error)),
        };
        if put.is_err() {
            self.name_cache(before);
        }
        put
    }

    /// Has the description name that cache, or none; answers with what it named before.
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
        let found = Found { described: &described, device, superblock };
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
        self.cached.replace(Some(Rc::new(cached)));
        self.follow_copies();
        self.verify_contents();
        self.lead(&held);
        Ok(())
    }

    /// Takes the cache away, under load; the array alone has everything afterwards. Where only the
    /// description still names one, it ends there.
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
                // Nobody takes them for the volume's any more, as above.
                let _ = device.dissolve().await;
            }
            Ok(())
        })
        .await
    }

    /// Whether there is too much in the cache for it to be taken away, while the tier is as it was.
    pub(crate) fn consider_dirty_data(&self, dirty: Dirty) -> Result<(), DetachError> {
        // Otherwise what the tier still has to write may take the place of what is damaged.
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
            self.cached.take();
            self.verify_contents();
            Ok(())
        };
        let device = self.take_out(cached, dirty, leave).await?;
        // It is no cache of this volume any more, whatever becomes of this.
        let _ = wipe(&*device.device).await;
        Ok(Some(device))
    }

    /// Takes a cache out of the way of requests, and lets go of it; answers with its device. What
    /// is to be done while no request is on the way `leave` does.
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
            // Given up: its cleaner must not write that over what comes past it.
            cached.close().await;
        }
        self.lead(&held);
        drop(held);
        cached.close().await;
        Ok(self.release(cached).await)
    }

    /// Lets no request in while nothing is dirty but what is given up.
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
            // The parity below them may be torn, and only their being cleaned makes it good.
            cached.clean_all().await.map_err(CleanAllError::from)?;
        }
        Ok(self.dispatcher.hold().await)
    }

    /// Waits a little until nobody else holds the device any more: timers of its slices may still
    /// run.
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

    /// Cleans a cache that takes nothing dirty any more, and lets no request in afterwards.
    async fn drain_and_hold(&self, cached: &Cached, dirty: Dirty) -> Result<Held<'_>, DetachError> {
        let may_lose = dirty == Dirty::Lose;
        let _job = self.begin_cleaning();
        // What is lost is what cannot be written, and not what there was no time for.
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

/// What can be said against a cache in front of the cores that are described, whatever it lies on;
/// these are the ones that there are by now.
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
