//! The tier: a cache in memory in front of all other layers of a volume.
//!
//! It is the same cache with the slices below as its core, and a mode of its own. It begins empty
//! with every open, and whenever the layer below it is exchanged.
//!
//! **Invariant**: no flushed data is in the tier alone: a flush cleans it to the layer below, and
//! flushes that.

use crate::assembly::cached::Cached;
use crate::assembly::create::{CoreFacts, cache_options};
use crate::assembly::open::{OpenError, is_memory};
use crate::change::lifecycle::{AttachError, DetachError, Dirty};
use crate::description::settings::CacheSettings;
use crate::description::{Description, TierDescription};
use crate::volume::Volume;
use headpond_block::{BlockDevice, DeviceError, DeviceName};
use headpond_cache::CreateOptions;
use std::rc::Rc;

/// Why there is no tier.
#[derive(Debug, thiserror::Error)]
pub enum TierError {
    #[error(
        "{device} is non-volatile, and a tier starts empty: use memory (ram:SIZE) as a tier, or \
         {device} as the cache"
    )]
    Lasts { device: DeviceName },
    #[error("the layer below the tier cannot be flushed: {0}")]
    Below(#[from] DeviceError),
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl Volume {
    pub(crate) fn tier(&self) -> Option<Rc<Cached>> {
        self.tier.borrow().clone()
    }

    /// Attaches a tier, under load; the contents of the device are lost.
    ///
    /// # Errors
    /// Why not; the volume goes on without one.
    pub async fn attach_tier(
        &self,
        described: TierDescription,
        device: Rc<dyn BlockDevice>,
    ) -> Result<(), AttachError> {
        let _change = self.begin_change()?;
        if self.tier().is_some() {
            return Err(AttachError::HasTier { volume: self.description().name });
        }
        let description = Description { tier: Some(described), ..self.description() };
        description.check()?;
        let before = self.description.replace(description).tier;
        let put = self.put_tier(device).await;
        if put.is_err() {
            self.description.borrow_mut().tier = before;
        }
        Ok(put?)
    }

    /// Detaches the tier, under load; also one that only the description still names.
    ///
    /// # Errors
    /// Why not; it is used as before.
    pub async fn detach_tier(&self, dirty: Dirty) -> Result<(), DetachError> {
        let _change = self.begin_change()?;
        let was_there = self.take_tier(dirty).await?.is_some();
        let mut description = self.description.borrow_mut();
        let was_named = description.tier.take().is_some();
        match was_there || was_named {
            true => Ok(()),
            false => Err(DetachError::NoTier { volume: description.name.clone() }),
        }
    }

    /// Changes the layer below the tier, which is detached meanwhile, and empty afterwards.
    pub(crate) async fn below_tier<E: From<DetachError> + From<TierError>>(
        &self,
        dirty: Dirty,
        change: impl Future<Output = Result<(), E>>,
    ) -> Result<(), E> {
        let device = self.take_tier(dirty).await?;
        let changed = change.await;
        let put = match device {
            Some(device) => self.put_tier(device).await,
            None => Ok(()),
        };
        changed.and(put.map_err(E::from))
    }

    /// Makes the device the tier that the description names.
    pub(crate) async fn put_tier(&self, device: Rc<dyn BlockDevice>) -> Result<(), TierError> {
        if !is_memory(&*device) {
            return Err(TierError::Lasts { device: device.name().clone() });
        }
        let description = self.description();
        let Some(described) = &description.tier else { return Ok(()) };
        let settings = description.tier_settings(described);
        let config = settings.of_slice(described.volatile_allowed);
        let options = self.tier_options(&description, described);
        let below = self.below_tiers();
        let held = self.dispatcher.hold().await;
        // The tier flushes what lies below for what it knows of; it cannot know what came before.
        for device in &below {
            device.flush().await?;
        }
        let (runtime, cores) = (&self.runtime, self.cores());
        let history = cores.first().array.history();
        let tier = Cached::in_memory(runtime, device, &options, &below, &config, history).await?;
        tier.tell_cores(&cores);
        self.tier.replace(Some(Rc::new(tier)));
        self.cached().inspect(|below| below.set_from_another_cache(true));
        self.lead(&held);
        Ok(())
    }

    pub(crate) fn tier_options(
        &self,
        description: &Description,
        described: &TierDescription,
    ) -> CreateOptions {
        CreateOptions {
            line_bytes: described.line.bytes() as u32,
            device_bytes: None,
            // No non-volatile device records it.
            generation: 0,
            ..cache_options(description, description.uuid, &CoreFacts::of(&self.cores()))
        }
    }

    /// Detaches the tier from requests; returns its device, where there was one.
    pub(crate) async fn take_tier(
        &self,
        dirty: Dirty,
    ) -> Result<Option<Rc<dyn BlockDevice>>, DetachError> {
        let Some(tier) = self.tier() else { return Ok(None) };
        let leave = async || {
            self.tier.take();
            Ok(())
        };
        let device = self.take_out(tier, dirty, leave).await?.device;
        self.cached().inspect(|below| below.set_from_another_cache(false));
        Ok(Some(device))
    }
}

impl Description {
    /// The tier's settings, with those of the cache that hold for both.
    pub fn tier_settings(&self, tier: &TierDescription) -> CacheSettings {
        tier.settings.beside(&self.cache_settings())
    }

    /// Those that requests come by; where there is no cache, the defaults.
    pub(crate) fn cache_settings(&self) -> CacheSettings {
        self.cache.as_ref().map(|cache| cache.settings.clone()).unwrap_or_default()
    }
}
