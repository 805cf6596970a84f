//! Replacing the cache under load.
//!
//! On another device, in another size, or the same one emptied: 1. the new one is checked; 2. the
//! old one is cleaned and detached; 3. the device becomes an empty cache, the caller saves the
//! description that names it, and it is attached; 4. where that fails, the old device is attached
//! again, empty, with its settings.
//!
//! **Invariants**
//! - A refusal changes nothing.
//! - A power cut leaves the volume with the old cache, with the new one or with none: the saved
//!   description names the old one until the new one is an empty cache.

use crate::Size;
use crate::assembly::create::{CoreFacts, CreateError, cache_options, refuse_occupied};
use crate::assembly::mirror::{CacheDevice, Mirror};
use crate::assembly::open::{OpenError, is_memory};
use crate::change::lifecycle::{AttachError, DetachError, Dirty};
use crate::change::tier::TierError;
use crate::description::{CacheDescription, Description, TierDescription};
use crate::volume::kept::Keep;
use crate::volume::{BusyError, Volume};
use headpond_block::{BlockDevice, DeviceName, LocalFuture};
use headpond_raid::{ArrayState, Occupied};
use std::rc::Rc;
use uuid::Uuid;

const ATTACHED: &str = "what is only named was refused";

/// The device of a new cache.
pub enum NewDevice<'a> {
    Other(CacheDevice),
    /// The old one's.
    Same,
    /// The old one's, reopened to show its new size; the old handles are closed by then.
    Reopened {
        /// Size of a cache there.
        bytes: u64,
        /// For this description, as a mirror where it has several copies.
        open: &'a dyn Fn(CacheDescription) -> Reopening<'a>,
    },
}

/// The devices of a cache being reopened.
pub type Reopening<'a> = LocalFuture<'a, Result<CacheDevice, AttachError>>;

/// The new cache.
pub struct Replacement<'a> {
    pub device: NewDevice<'a>,
    pub described: CacheDescription,
    /// Of the new cache, and of the old one should it be attached again: random, and never used
    /// before.
    pub identities: [Uuid; 2],
    pub occupied: Occupied,
}

/// Why there is no new cache.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// Nothing was changed.
    #[error(transparent)]
    Refused(#[from] AttachError),
    /// The old one is used as before.
    #[error(transparent)]
    Detach(#[from] DetachError),
    #[error("{reason}; the old {what} is attached again, and empty")]
    Back { what: &'static str, reason: Box<AttachError> },
    #[error(
        "{reason}; and the old {what} could not be attached again ({back}): the volume continues without \
         a {what}, attach one"
    )]
    Gone { what: &'static str, reason: Box<AttachError>, back: Box<AttachError> },
    #[error("{reason}; the volume continues without a cache, attach one")]
    NotReopened { reason: Box<AttachError> },
    #[error("the tier could not be attached again: {0}")]
    Tier(#[from] TierError),
    #[error(transparent)]
    Busy(#[from] BusyError),
}

impl ExchangeError {
    /// Whether nothing was changed, to protect data.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Refused(error) => error.is_refusal(),
            Self::Detach(error) => error.is_refusal(),
            Self::Busy(_) => true,
            Self::Back { .. } | Self::Gone { .. } | Self::NotReopened { .. } | Self::Tier(_) => {
                false
            }
        }
    }
}

impl Volume {
    /// Replaces the cache.
    ///
    /// # Errors
    /// Why it was not replaced, and which cache there is now.
    pub async fn replace_cache(
        &self,
        new: Replacement<'_>,
        dirty: Dirty,
        keep: Keep<'_>,
    ) -> Result<(), ExchangeError> {
        let _change = self.begin_change()?;
        self.exchange(new, dirty, keep).await
    }

    /// Empties the cache.
    ///
    /// # Errors
    /// As [`Self::replace_cache`].
    pub async fn purge_cache(
        &self,
        dirty: Dirty,
        identities: [Uuid; 2],
        keep: Keep<'_>,
    ) -> Result<(), ExchangeError> {
        let _change = self.begin_change()?;
        let (device, described) = (NewDevice::Same, self.described_cache()?);
        let occupied = Occupied::Overwrite;
        self.exchange(Replacement { device, described, identities, occupied }, dirty, keep).await
    }

    /// Sets how much of its device the cache uses; `None` for all of it. Returns whether the size
    /// changed: where it did not, the cache keeps its contents.
    ///
    /// # Errors
    /// As [`Self::replace_cache`].
    pub async fn resize_cache(
        &self,
        size: Option<Size>,
        device: NewDevice<'_>,
        identities: [Uuid; 2],
        keep: Keep<'_>,
    ) -> Result<bool, ExchangeError> {
        let _change = self.begin_change()?;
        let mut described = CacheDescription { size, ..self.described_cache()? };
        if let (Some(cached), NewDevice::Same) = (self.cached(), &device) {
            let wanted = size.map_or(cached.device.size_bytes(), Size::bytes);
            if wanted == cached.superblock.device_bytes {
                let description = self.description_with(&described);
                let kept = self.kept.keep_with(keep, &description).await;
                kept.map_err(AttachError::Keep)?;
                self.description.replace(description);
                return Ok(false);
            }
        }
        if let (NewDevice::Reopened { .. }, Some(mirror)) = (&device, &mut described.mirror) {
            // A missing one of the old copies may be reconnected.
            mirror.uuid = identities[0];
        }
        let occupied = Occupied::Overwrite;
        let new = Replacement { device, described, identities, occupied };
        self.exchange(new, Dirty::Clean, keep).await?;
        Ok(true)
    }

    /// Replaces the tier.
    ///
    /// # Errors
    /// As [`Self::replace_cache`].
    pub async fn replace_tier(
        &self,
        described: TierDescription,
        device: Rc<dyn BlockDevice>,
        dirty: Dirty,
    ) -> Result<(), ExchangeError> {
        let _change = self.begin_change()?;
        self.consider_tier(&described, &*device)?;
        let before = self.description();
        if before.tier.is_none() {
            return Err(DetachError::NoTier { volume: before.name }.into());
        }
        let old = self.take_tier(dirty).await?;
        self.description.borrow_mut().tier = Some(described);
        let Err(reason) = self.put_tier(device).await else { return Ok(()) };
        self.description.borrow_mut().tier = before.tier;
        let reason = Box::new(AttachError::from(reason));
        let back = match old {
            Some(old) => self.put_tier(old).await,
            None => return Err((*reason).into()),
        };
        match back {
            Ok(()) => Err(ExchangeError::Back { what: "tier", reason }),
            Err(back) => {
                self.description.borrow_mut().tier = None;
                let back = Box::new(AttachError::from(back));
                Err(ExchangeError::Gone { what: "tier", reason, back })
            }
        }
    }

    /// The size of the device of the cache.
    pub fn cache_device_bytes(&self) -> Option<u64> {
        self.cached().map(|cached| cached.device.size_bytes())
    }

    /// Whether the cache is on that device.
    pub fn lies_on(&self, device: &CacheDevice) -> bool {
        self.cached().is_some_and(|cached| Rc::ptr_eq(&cached.device, &device.device))
    }

    pub(crate) fn described_cache(&self) -> Result<CacheDescription, DetachError> {
        let description = self.description();
        let volume = description.name;
        description.cache.ok_or(DetachError::NoCache { volume })
    }

    async fn exchange(
        &self,
        new: Replacement<'_>,
        dirty: Dirty,
        keep: Keep<'_>,
    ) -> Result<(), ExchangeError> {
        self.described_cache()?;
        if self.cached().is_none() && !matches!(new.device, NewDevice::Other(_)) {
            // A device that is only named may be in other use by now.
            return Err(DetachError::NoCache { volume: self.description().name }.into());
        }
        self.consider(&new).await?;
        self.consider_dirty_data(dirty)?;
        self.below_tier(dirty, self.change_places(new, dirty, keep)).await
    }

    /// Checks the new cache while the old one is still attached.
    async fn consider(&self, new: &Replacement<'_>) -> Result<(), AttachError> {
        let description = self.description_with(&new.described);
        description.check_new()?;
        let device = match &new.device {
            NewDevice::Other(device) => Rc::clone(&device.device),
            _ => Rc::clone(&self.cached().expect(ATTACHED).device),
        };
        let mut options =
            cache_options(&description, new.identities[0], &CoreFacts::of(&self.cores()));
        match &new.device {
            // The contents of copies were checked when they were made.
            NewDevice::Other(CacheDevice { mirror: None, .. })
                if new.occupied == Occupied::Refuse =>
            {
                refuse_occupied(&*device, description.uuid).await?;
            }
            NewDevice::Reopened { bytes, .. } => {
                self.check_copies(self.cached().and_then(|it| it.mirror.clone()).as_deref())?;
                let asked_bytes = options.device_bytes.unwrap_or(*bytes);
                if asked_bytes > *bytes {
                    let (device, found_bytes) = (device.name().clone(), *bytes);
                    let beyond = headpond_cache::CreateError::BeyondDevice {
                        device,
                        found_bytes,
                        asked_bytes,
                    };
                    return Err(CreateError::from(beyond).into());
                }
                options.device_bytes = Some(asked_bytes.min(device.size_bytes()));
            }
            _ => {}
        }
        headpond_cache::consider(&*device, &options).map_err(CreateError::from)?;
        check_volatile(&*device, &new.described)
    }

    fn consider_tier(
        &self,
        described: &TierDescription,
        device: &dyn BlockDevice,
    ) -> Result<(), AttachError> {
        if !is_memory(device) {
            return Err(TierError::Lasts { device: device.name().clone() }.into());
        }
        let description = Description { tier: Some(described.clone()), ..self.description() };
        description.check()?;
        let options = self.tier_options(&description, described);
        Ok(headpond_cache::consider(device, &options).map_err(CreateError::from)?)
    }

    async fn change_places(
        &self,
        new: Replacement<'_>,
        dirty: Dirty,
        keep: Keep<'_>,
    ) -> Result<(), ExchangeError> {
        let mut old = self.take_cache(dirty).await?;
        // A spare may have replaced a copy meanwhile.
        let mut before = self.described_cache()?;
        let Replacement { device, mut described, identities: [first, second], occupied } = new;
        let is_other = matches!(device, NewDevice::Other(_));
        let (device, occupied) = match (device, &mut old) {
            (NewDevice::Other(device), _) => (Ok(device), occupied),
            (NewDevice::Reopened { open, .. }, old) => {
                let opened = self.reopen(old, &mut before, &described, open).await;
                (opened, Occupied::Overwrite)
            }
            (NewDevice::Same, old) => {
                (described.device, described.mirror) =
                    (before.device.clone(), before.mirror.clone());
                (Ok(old.clone().expect(ATTACHED)), Occupied::Overwrite)
            }
        };
        let put = match device {
            Ok(device) => self.put_new(device, described, first, occupied, keep).await,
            Err(error) => Err(error),
        };
        let Err(reason) = put else {
            if let Some(old) = old.filter(|_| is_other) {
                // Whatever its copies say, the arrays name another cache.
                let _ = old.dissolve().await;
            }
            return Ok(());
        };
        let (what, reason) = ("cache", Box::new(reason));
        let Some(old) = old else {
            self.name_cache(None);
            let _ = self.kept.keep_with(keep, &self.description()).await;
            return Err(ExchangeError::NotReopened { reason });
        };
        let back = self.put_new(old.clone(), before, second, Occupied::Overwrite, keep).await;
        let Err(back) = back else { return Err(ExchangeError::Back { what, reason }) };
        self.leave_device(old, keep).await;
        Err(ExchangeError::Gone { what, reason, back: Box::new(back) })
    }

    /// Reopens the devices of the old cache for another one; `before` describes where the old one
    /// could be attached then. A refusal leaves the old device.
    async fn reopen<'a>(
        &self,
        old: &mut Option<CacheDevice>,
        before: &mut CacheDescription,
        described: &CacheDescription,
        open: &'a dyn Fn(CacheDescription) -> Reopening<'a>,
    ) -> Result<CacheDevice, AttachError> {
        self.check_copies(old.as_ref().and_then(|old| old.mirror.as_deref()))?;
        if let Some(old) = old.take() {
            // Its labels of copies are overwritten where that fails.
            let _ = old.dissolve().await;
        }
        let opened = open(described.clone()).await;
        *old = opened.as_ref().ok().cloned();
        // Recreated copies have another identity, and perhaps another order.
        (before.device, before.mirror) = (described.device.clone(), described.mirror.clone());
        opened
    }

    /// There is no cache any more, on this device or another.
    pub(crate) async fn leave_device(&self, device: CacheDevice, keep: Keep<'_>) {
        // Copies without a cache would be refused as in use.
        let _ = device.dissolve().await;
        self.name_cache(None);
        // Where it cannot be saved, the next start notes a cache that is not attached.
        let _ = self.kept.keep_with(keep, &self.description()).await;
    }

    pub(crate) async fn put_new(
        &self,
        device: CacheDevice,
        described: CacheDescription,
        identity: Uuid,
        occupied: Occupied,
        keep: Keep<'_>,
    ) -> Result<(), AttachError> {
        let mut new = self.make_cache(device, described, identity, occupied).await?;
        new.renew_copies(self.description.borrow().cache.as_ref());
        self.put_cache(new, keep).await
    }

    /// Copies are recreated only if all of them are healthy, and there is no spare.
    fn check_copies(&self, mirror: Option<&Mirror>) -> Result<(), AttachError> {
        let described = self.described_cache()?;
        let is_whole = mirror.is_none_or(|it| it.core.array.state() == ArrayState::Optimal);
        match is_whole && described.copies().count() == described.devices().count() {
            true => Ok(()),
            false => Err(AttachError::CopiesNotWhole { volume: self.description().name }),
        }
    }
}

/// Dirty data is kept in memory only where that is allowed.
fn check_volatile(
    device: &dyn BlockDevice,
    described: &CacheDescription,
) -> Result<(), AttachError> {
    let is_write_back = described.settings.mode.is_write_back();
    match is_write_back && is_memory(device) && !described.volatile_allowed {
        true => {
            let device: DeviceName = device.name().clone();
            Err(OpenError::Cache(headpond_cache::OpenError::Volatile { device }).into())
        }
        false => Ok(()),
    }
}
