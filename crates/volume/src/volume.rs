//! The assembled volume.

use crate::cached::{Cached, Core};
use crate::description::Description;
use crate::front::Front;
use crate::initialise::Initialisation;
use crate::settings::{SettingChange, SettingError};
use crate::slicing::Slicing;
use headpond_block::sync::{Busy, BusyGuard};
use headpond_block::{
    BlockDevice, DeviceError, DeviceName, Geometry, Request, Stability, Submission,
};
use headpond_cache::{CleanError, ModeError, ScrubError, ScrubReport, Slice};
use std::cell::RefCell;
use std::rc::Rc;

/// An open volume: serves requests, changes its settings, tells its state.
pub struct Volume {
    pub(crate) description: RefCell<Description>,
    pub(crate) core: Core,
    pub(crate) cached: RefCell<Option<Rc<Cached>>>,
    pub(crate) front: Front,
    pub(crate) initialisation: Initialisation,
    /// Settings and devices are changed one at a time.
    changing: Busy,
    warnings: Vec<String>,
}

/// Why settings were refused.
#[derive(Debug, thiserror::Error)]
pub enum SetError {
    #[error("{volume} has no cache: there is nothing to set")]
    NoCache { volume: String },
    #[error("{volume} is being changed by another command: wait for it")]
    Busy { volume: String },
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error(transparent)]
    Mode(#[from] ModeError),
    #[error(transparent)]
    Clean(#[from] CleanAllError),
}

/// Why a cache was not scrubbed to the end.
#[derive(Debug, thiserror::Error)]
pub enum ScrubCacheError {
    #[error("{volume} has no cache: there is nothing to scrub")]
    NoCache { volume: String },
    #[error(transparent)]
    Scrub(#[from] ScrubError),
}

/// Why not everything is at the core.
#[derive(Debug, thiserror::Error)]
#[error("not all dirty data could be written to the array: {0}")]
pub struct CleanAllError(#[from] CleanError);

/// Why a volume was not stopped cleanly; the next open recovers it.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    #[error(transparent)]
    Cache(#[from] headpond_cache::StopError),
    #[error("the cache is memory, and its dirty data could not be saved: {0}")]
    Memory(CleanAllError),
    #[error("the parity under dirty data from before an unclean stop could not be made good: {0}")]
    Parity(CleanAllError),
    #[error(transparent)]
    Array(#[from] DeviceError),
}

impl Volume {
    pub(crate) fn assembled(
        description: &Description,
        core: Core,
        cached: Option<Cached>,
        warnings: Vec<String>,
    ) -> Self {
        let array = core.array.geometry();
        let stripe_bytes = array.stripe.map_or(array.preferred_bytes, |stripe| stripe.width_bytes);
        let slicing = Slicing::new(description.slices, u64::from(stripe_bytes));
        let parts = match &cached {
            Some(cached) => cached.parts(),
            None => core.parts(description.slices),
        };
        let name = DeviceName::new(description.name.as_str());
        let front = Front::new(name, lasting(parts[0].geometry()), slicing, parts);
        if let (Some(cached), Some(cache)) = (&cached, &description.cache) {
            front.read_ahead_into(&cached.slices);
            front.set(&cache.settings);
        }
        let initialisation = Initialisation::begin(&core.array, &core.runtime);
        let (description, cached) = (description.clone().into(), cached.map(Rc::new).into());
        let changing = Busy::default();
        Self { description, core, cached, front, initialisation, changing, warnings }
    }

    /// Has metadata recognised from now on, where a rule asks for it.
    pub(crate) async fn recognise(&self) {
        if self.front.lacks_recogniser() {
            self.front.recognise(&self.core.runtime).look().await;
        }
    }

    /// The same, without waiting for it.
    pub(crate) fn recognise_beside(&self) {
        if self.front.lacks_recogniser() {
            self.front.recognise(&self.core.runtime).look_now();
        }
    }

    pub(crate) fn cached(&self) -> Option<Rc<Cached>> {
        self.cached.borrow().clone()
    }

    /// What the user should know of how it was opened.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Changes settings, all of them or none.
    ///
    /// # Errors
    /// At the first that is refused.
    pub fn set(&self, changes: &[SettingChange]) -> Result<(), SetError> {
        let _change = self.begin_change()?;
        self.apply(changes)
    }

    fn apply(&self, changes: &[SettingChange]) -> Result<(), SetError> {
        let mut description = self.description();
        let (Some(cached), Some(cache)) = (self.cached(), &mut description.cache) else {
            return Err(SetError::NoCache { volume: description.name });
        };
        cache.settings = cache.settings.with_all(changes)?;
        let config = cache.slice_config();
        // A mode that is asked for is refused even where it is only the effect that differs.
        if changes.iter().any(|change| change.concerns("mode")) {
            cached.slices.iter().try_for_each(|slice| slice.check_mode(config.mode))?;
        }
        cached.slices.iter().try_for_each(|slice| slice.set_config(config.clone()))?;
        self.front.set(&cache.settings);
        self.recognise_beside();
        self.description.replace(description);
        Ok(())
    }

    /// Changes settings, and has everything cleaned that is dirty then: where the new mode makes no
    /// dirty data, there is none left.
    ///
    /// # Errors
    /// Before the change, what could not be cleaned or was refused; after it, what stays dirty.
    pub async fn set_and_clean(&self, changes: &[SettingChange]) -> Result<(), SetError> {
        let _change = self.begin_change()?;
        // Most of it while the old settings hold, so that the new ones begin with little to do.
        self.clean_all().await?;
        self.apply(changes)?;
        self.clean_all().await?;
        Ok(())
    }

    pub(crate) fn begin_change(&self) -> Result<BusyGuard, SetError> {
        if !self.changing.is_idle() {
            return Err(SetError::Busy { volume: self.description().name });
        }
        Ok(self.changing.begin())
    }

    /// The description with the settings in force.
    pub fn description(&self) -> Description {
        self.description.borrow().clone()
    }

    /// Writes everything that is dirty now to the array; the bytes that were dirty.
    ///
    /// # Errors
    /// What stays dirty, and why.
    pub async fn clean_all(&self) -> Result<u64, CleanAllError> {
        let Some(cached) = self.cached() else { return Ok(0) };
        let dirty_bytes = cached.stats().iter().map(|slice| slice.dirty_bytes).sum();
        cached.clean_all().await?;
        Ok(dirty_bytes)
    }

    /// Reads all that the cache device holds, and compares it with its checksums.
    ///
    /// # Errors
    /// Where there is no cache, a scrub is under way, or a damaged block could not be ended.
    pub async fn scrub_cache(&self) -> Result<ScrubReport, ScrubCacheError> {
        let no_cache = || ScrubCacheError::NoCache { volume: self.description().name };
        let cached = self.cached().ok_or_else(no_cache)?;
        Ok(cached.scrub().await?)
    }

    /// Closes the volume: the cache saves its state, the array is recorded as clean. A cache in
    /// memory is cleaned first. Requests must have ended.
    ///
    /// # Errors
    /// Where a device fails; the next open recovers.
    pub async fn stop(&self) -> Result<(), StopError> {
        self.changing.until_idle().await;
        self.initialisation.stop().await;
        if let Some(cached) = self.cached() {
            if cached.is_memory() {
                self.clean_all().await.map_err(StopError::Memory)?;
            } else if cached.replayed_blocks() > 0 {
                self.clean_all().await.map_err(StopError::Parity)?;
            }
            for slice in &cached.slices {
                slice.stop().await?;
            }
        }
        Ok(self.core.array.stop().await?)
    }

    /// Checks the invariants of the cache; for tests and simulation.
    ///
    /// # Panics
    /// Where one does not hold.
    pub fn self_check(&self) {
        self.cached().iter().flat_map(|cached| &cached.slices).for_each(Slice::self_check);
    }
}

/// What may be promised to those above for as long as the volume is open: a cache that is attached
/// later may have to be flushed where the array need not be.
fn lasting(geometry: &Geometry) -> Geometry {
    Geometry { stability: geometry.stability.worst(Stability::Flushable), ..geometry.clone() }
}

impl BlockDevice for Volume {
    fn name(&self) -> &DeviceName {
        self.front.name()
    }

    fn geometry(&self) -> &Geometry {
        self.front.geometry()
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        self.front.submit(request)
    }
}
