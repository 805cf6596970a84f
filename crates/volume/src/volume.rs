//! The assembled volume.

use crate::description::Description;
use crate::front::Front;
use crate::initialise::Initialisation;
use crate::settings::{SettingChange, SettingError};
use headpond_block::{
    BlockDevice, DeviceError, DeviceName, Geometry, Request, Runtime, Stability, Submission,
};
use headpond_cache::{CleanError, ModeError, Slice, Superblock};
use headpond_raid::Array;
use std::cell::RefCell;
use std::rc::Rc;

/// An open volume: serves requests, changes its settings, tells its state.
pub struct Volume {
    pub(crate) description: RefCell<Description>,
    pub(crate) array: Rc<Array>,
    pub(crate) cached: Option<Cached>,
    pub(crate) front: Front,
    pub(crate) initialisation: Initialisation,
    warnings: Vec<String>,
}

/// The cache of a volume.
pub(crate) struct Cached {
    pub device: Rc<dyn BlockDevice>,
    pub slices: Vec<Slice>,
    pub superblock: Superblock,
}

impl Cached {
    /// Blocks that came back from an unclean stop and have not been cleaned since: the parity of
    /// their stripes may be torn.
    pub fn replayed_blocks(&self) -> u64 {
        self.slices.iter().map(|slice| slice.stats().replayed_blocks).sum()
    }
}

/// Why settings were refused.
#[derive(Debug, thiserror::Error)]
pub enum SetError {
    #[error("{volume} has no cache: there is nothing to set")]
    NoCache { volume: String },
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error(transparent)]
    Mode(#[from] ModeError),
    #[error(transparent)]
    Clean(#[from] CleanAllError),
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
        array: Rc<Array>,
        cached: Option<Cached>,
        front: Front,
        warnings: Vec<String>,
        runtime: &Runtime,
    ) -> Self {
        let initialisation = Initialisation::begin(&array, runtime);
        let description = RefCell::new(description.clone());
        Self { description, array, cached, front, initialisation, warnings }
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
        let mut description = self.description();
        let (Some(cached), Some(cache)) = (&self.cached, &mut description.cache) else {
            return Err(SetError::NoCache { volume: description.name });
        };
        cache.settings = cache.settings.with_all(changes)?;
        let config = cache.slice_config();
        // A mode that is asked for is refused even where it is only the effect that differs.
        if changes.iter().any(|change| change.concerns("mode")) {
            cached.slices.iter().try_for_each(|slice| slice.check_mode(config.mode))?;
        }
        cached.slices.iter().try_for_each(|slice| slice.set_config(config.clone()))?;
        self.front.set_cutoff(cache.settings.seq_cutoff);
        self.description.replace(description);
        Ok(())
    }

    /// Changes settings, and has everything cleaned that is dirty then: where the new mode makes no
    /// dirty data, there is none left.
    ///
    /// # Errors
    /// Before the change, what could not be cleaned or was refused; after it, what stays dirty.
    pub async fn set_and_clean(&self, changes: &[SettingChange]) -> Result<(), SetError> {
        // Most of it while the old settings hold, so that the new ones begin with little to do.
        self.clean_all().await?;
        self.set(changes)?;
        self.clean_all().await?;
        Ok(())
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
        let Some(cached) = &self.cached else { return Ok(0) };
        let dirty_bytes = cached.slices.iter().map(|slice| slice.stats().dirty_bytes).sum();
        for slice in &cached.slices {
            slice.flush_dirty().await?;
        }
        Ok(dirty_bytes)
    }

    /// Closes the volume: the cache saves its state, the array is recorded as clean. A cache in
    /// memory is cleaned first. Requests must have ended.
    ///
    /// # Errors
    /// Where a device fails; the next open recovers.
    pub async fn stop(&self) -> Result<(), StopError> {
        self.initialisation.stop().await;
        if let Some(cached) = &self.cached {
            if cached.device.geometry().stability == Stability::LostOnPower {
                self.clean_all().await.map_err(StopError::Memory)?;
            } else if cached.replayed_blocks() > 0 {
                self.clean_all().await.map_err(StopError::Parity)?;
            }
            for slice in &cached.slices {
                slice.stop().await?;
            }
        }
        Ok(self.array.stop().await?)
    }

    /// Checks the invariants of the cache; for tests and simulation.
    ///
    /// # Panics
    /// Where one does not hold.
    pub fn self_check(&self) {
        self.cached.iter().flat_map(|cached| &cached.slices).for_each(Slice::self_check);
    }
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
