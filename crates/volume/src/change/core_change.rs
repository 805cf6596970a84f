//! Adding further cores to an open volume, and removing them.
//!
//! A cache maps blocks by addresses, which change: it is cleaned and detached before, and attached
//! again empty afterwards.
//!
//! Add: 1. the devices become an array, not in use yet; 2. the caller saves the description that
//! names it; 3. requests are quiesced; 4. the core gets the addresses behind the others. Remove: 1.
//! background work ends; 2. the caller saves the description without the core; 3. requests are
//! quiesced; 4. the cores behind it move up; 5. its array is stopped, with all its data.
//!
//! **Invariants**
//! - There is no cache while the cores change, and none is attached meanwhile.
//! - A core that is not added leaves its devices free.
//! - A removed core can be opened as a volume of its own.

use crate::CreateError;
use crate::assembly::cores::{Core, Cores, Shape, StripesDiffer};
use crate::assembly::create::{CoreFacts, CreateOptions, array_options, cache_options};
use crate::change::lifecycle::{AttachError, DetachError, Dirty, check_below, check_dirty_data};
use crate::change::tier::TierError;
use crate::description::{Description, DescriptionError, FurtherCoreDescription};
use crate::volume::kept::{CallerError, Keep};
use crate::volume::open::begin;
use crate::volume::{BusyError, Volume};
use headpond_block::{BlockDevice, BufferPool, DeviceError};
use headpond_raid::{AssembleError, AssembleOptions, Occupied, prepare};
use std::cell::Cell;
use std::rc::Rc;
use uuid::Uuid;

/// An array that may become a core.
pub struct NewCore {
    described: FurtherCoreDescription,
    core: Rc<Core>,
    members: Vec<Rc<dyn BlockDevice>>,
    /// Whether a description that was kept may name it.
    is_named: Cell<bool>,
}

/// Why the cores were not changed, or which step of the change failed.
#[derive(Debug, thiserror::Error)]
pub enum CoreChangeError {
    #[error("{volume} has no further core {name}{known}")]
    NoCore { volume: String, name: String, known: String },
    #[error(
        "the core has logical blocks of {core} bytes, and {volume} is exported with {offered}: attach \
         its members with smaller logical blocks"
    )]
    LogicalBlock { volume: String, core: u32, offered: u32 },
    #[error(transparent)]
    Description(#[from] DescriptionError),
    #[error(transparent)]
    Stripes(#[from] StripesDiffer),
    #[error(transparent)]
    Create(#[from] CreateError),
    #[error("the new core cannot be used: {0}")]
    Assemble(#[from] AssembleError),
    /// Nothing was changed.
    #[error("the cache does not support the changed cores: {0}")]
    Unfit(AttachError),
    /// The same.
    #[error("a cache could not be detached: {0}")]
    InTheWay(#[from] DetachError),
    #[error("the cores are unchanged: an array could not record the removal: {0}")]
    Record(DeviceError),
    #[error("the cores are unchanged: the description could not be saved: {0}")]
    Keep(CallerError),
    #[error("the core is removed, and its array was not shut down cleanly: {0}")]
    Array(#[from] DeviceError),
    #[error("{0}; the cache was cleaned, and starts empty")]
    Emptied(Box<Self>),
    #[error(
        "the cores are changed, and the cache could not be attached again: {0}; the volume continues \
         without a cache, attach one"
    )]
    Cacheless(AttachError),
    #[error(
        "{change}; and the cache could not be attached again: {back}; the volume continues without a cache, \
         attach one"
    )]
    Neither { change: Box<Self>, back: AttachError },
    #[error("the tier could not be attached again: {0}")]
    Tier(#[from] TierError),
    #[error(transparent)]
    Busy(#[from] BusyError),
}

impl CoreChangeError {
    /// Whether nothing was changed, because data could be lost or the cores do not match.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Create(error) => error.is_refusal(),
            Self::Unfit(error) => error.is_refusal(),
            Self::InTheWay(error) => error.is_refusal(),
            Self::NoCore { .. }
            | Self::LogicalBlock { .. }
            | Self::Description(_)
            | Self::Stripes(_)
            | Self::Busy(_) => true,
            Self::Assemble(_)
            | Self::Record(_)
            | Self::Keep(_)
            | Self::Array(_)
            | Self::Emptied(_)
            | Self::Cacheless(_)
            | Self::Neither { .. }
            | Self::Tier(_) => false,
        }
    }
}

impl NewCore {
    /// Erases the labels of the devices, where they can be written.
    async fn give_up(&self) {
        let _ = self.core.array.stop().await;
        for member in &self.members {
            let _ = headpond_raid::erase(&**member).await;
        }
    }
}

impl Volume {
    /// Makes devices the array of a further core; their contents are lost. The volume does not use
    /// it yet.
    ///
    /// # Errors
    /// Why it cannot be; refusals change nothing.
    pub async fn make_core(
        &self,
        described: FurtherCoreDescription,
        members: Vec<Rc<dyn BlockDevice>>,
        options: &CreateOptions,
        pool: BufferPool,
    ) -> Result<NewCore, CoreChangeError> {
        let _change = self.begin_change()?;
        let description = self.description_with_core(&described);
        description.check()?;
        let guard = |device| self.ownership.guard(device);
        let members: Vec<_> = members.into_iter().map(guard).collect();
        let name = description.array_name(&described.name);
        let array = array_options((name, described.uuid), &described.core, options, None);
        let record = headpond_raid::create::consider(&members, &array).await;
        let record = record.map_err(CreateError::from)?;
        let layout = record.layout().map_err(headpond_raid::CreateError::from);
        let planned = Shape::planned(&layout.map_err(CreateError::from)?);
        let cores = self.cores();
        let mut arrays = cores.arrangement();
        arrays.push((described.uuid, planned));
        let facts = CoreFacts::new(&arrays, cores.generation())?;
        self.consider_cache(&description, &cores, &facts)?;
        let offered = self.geometry().logical_block_bytes;
        if record.logical_block_bytes > offered {
            let (volume, core) = (description.name, record.logical_block_bytes);
            return Err(CoreChangeError::LogicalBlock { volume, core, offered });
        }
        headpond_raid::create(&members, &array).await.map_err(CreateError::from)?;
        let how = AssembleOptions {
            uuid: Some(described.uuid),
            tuning: self.tuning(pool),
            ..AssembleOptions::default()
        };
        let (array, _) = begin(prepare(&self.runtime, members.clone(), how).await?).await?;
        description.array.apply_to(&array);
        let core = Core::new(described.id, described.name.clone(), array, &self.runtime);
        Ok(NewCore { described, core, members, is_named: Cell::new(false) })
    }

    fn description_with_core(&self, core: &FurtherCoreDescription) -> Description {
        let mut description = self.description();
        description.further_cores.push(core.clone());
        description
    }

    fn description_without_core(&self, id: u16) -> Description {
        let mut description = self.description();
        description.further_cores.retain(|core| core.id != id);
        description
    }

    /// Adds a core, under load; the cache that is attached again gets `identity`. `keep` saves the
    /// description that names the core before it is used.
    ///
    /// # Errors
    /// Why not, or which step failed: the volume has its actual cores and cache, and its
    /// description must be saved again. The array of a core that was not added is erased.
    pub async fn add_core(
        &self,
        new: NewCore,
        identity: Uuid,
        keep: Keep<'_>,
    ) -> Result<(), CoreChangeError> {
        // Held until its devices are free as well, where it is not added.
        let change = self.begin_change();
        let added = match &change {
            Ok(_) => self.try_to_add(&new, identity, keep).await,
            Err(_) => Ok(()),
        };
        if !new.is_named.get() {
            new.give_up().await;
        }
        change?;
        added
    }

    async fn try_to_add(
        &self,
        new: &NewCore,
        identity: Uuid,
        keep: Keep<'_>,
    ) -> Result<(), CoreChangeError> {
        let description = self.description_with_core(&new.described);
        description.check()?;
        let cores = self.cores().with(Rc::clone(&new.core))?;
        self.consider_cache(&description, &cores, &CoreFacts::of(&cores))?;
        self.without_caches(identity, keep, self.put_core(new, keep)).await
    }

    async fn put_core(&self, new: &NewCore, keep: Keep<'_>) -> Result<(), CoreChangeError> {
        new.is_named.set(true);
        let kept = self.keep_before(&self.description_with_core(&new.described), keep).await;
        kept.map_err(|(error, is_back)| {
            new.is_named.set(!is_back);
            error
        })?;
        let held = self.dispatcher.hold().await;
        // Not before: another one may have grown.
        let cores = self.cores().with(Rc::clone(&new.core)).expect("their stripes stay");
        self.replace_cores(cores, &held);
        self.description.borrow_mut().further_cores.push(new.described.clone());
        self.begin_background();
        Ok(())
    }

    /// Removes a further core, under load; returns its description. Requests to it fail from then
    /// on. Its array has all written data, and its devices are free. `keep` saves the description
    /// without it before, and the cache that is attached again gets `identity`.
    ///
    /// # Errors
    /// Why not, or which step failed: the volume has its actual cores and cache, and its
    /// description must be saved again.
    pub async fn remove_core(
        &self,
        name: &str,
        identity: Uuid,
        keep: Keep<'_>,
    ) -> Result<FurtherCoreDescription, CoreChangeError> {
        let _change = self.begin_change()?;
        let description = self.description();
        let named = description.further_cores.iter().find(|core| core.name == name);
        let Some(described) = named.cloned() else {
            let known: Vec<&str> = description.further_cores.iter().map(|it| &*it.name).collect();
            let known = match known.is_empty() {
                true => String::new(),
                false => format!("; there are: {}", known.join(", ")),
            };
            let (volume, name) = (description.name, name.to_owned());
            return Err(CoreChangeError::NoCore { volume, name, known });
        };
        let description = self.description_without_core(described.id);
        let rest = self.cores().without(described.id);
        self.consider_cache(&description, &rest, &CoreFacts::of(&rest))?;
        self.without_caches(identity, keep, self.take_core(&described, keep)).await?;
        Ok(described)
    }

    async fn take_core(
        &self,
        described: &FurtherCoreDescription,
        keep: Keep<'_>,
    ) -> Result<(), CoreChangeError> {
        let cores = self.cores();
        let leaving = cores.iter().map(|(core, _)| core).find(|core| core.id == described.id);
        let leaving = Rc::clone(leaving.expect("the description names what there is"));
        // Its description is kept as it is now: nobody takes a role from here on.
        leaving.background.stop().await;
        if let Err(error) = self.let_core_go(&leaving, keep).await {
            leaving.background.begin_again();
            return Err(error);
        }
        let held = self.dispatcher.hold().await;
        // Not before: another one may have grown.
        self.replace_cores(self.cores().without(described.id), &held);
        self.description.replace(self.description_without_core(described.id));
        drop(held);
        Ok(leaving.array.stop().await?)
    }

    /// Records and saves the removal of a core before it takes effect.
    async fn let_core_go(&self, leaving: &Core, keep: Keep<'_>) -> Result<(), CoreChangeError> {
        if leaving.array.owner().is_some() {
            // Alone it would be refused for a cache that it lacks.
            leaving.array.set_owner(None).await.map_err(CoreChangeError::Record)?;
        }
        let generation = leaving.array.owner_generation();
        if generation > 0 && self.description.borrow().cache.is_some() {
            // That of all of them does not fall: a copy of the cache that was lost would be newer.
            let first = Rc::clone(&self.cores().first().array);
            first.raise_owner_generation(generation).await.map_err(CoreChangeError::Record)?;
        }
        let kept = self.keep_before(&self.description_without_core(leaving.id), keep).await;
        kept.map_err(|(error, _)| error)
    }

    /// Saves the next description; where that fails, saves the present one again. The error carries
    /// whether that succeeded.
    async fn keep_before(
        &self,
        next: &Description,
        keep: Keep<'_>,
    ) -> Result<(), (CoreChangeError, bool)> {
        match self.kept.keep_with(keep, next).await {
            Ok(()) => Ok(()),
            Err(error) => {
                let is_back = self.kept.keep_with(keep, &self.description()).await.is_ok();
                Err((CoreChangeError::Keep(error), is_back))
            }
        }
    }

    /// Checks whether the cache supports the changed cores, before it is changed.
    fn consider_cache(
        &self,
        description: &Description,
        cores: &Cores,
        facts: &CoreFacts,
    ) -> Result<(), CoreChangeError> {
        let Some(cached) = self.cached() else { return Ok(()) };
        check_below(description, cores).map_err(CoreChangeError::Unfit)?;
        let options = cache_options(description, Uuid::nil(), facts);
        headpond_cache::consider(&*cached.device, &options)
            .map_err(|error| CoreChangeError::Unfit(CreateError::from(error).into()))?;
        Ok(check_dirty_data(&cached, Dirty::Clean)?)
    }

    /// Changes the cores below the caches. These are cleaned before, and empty afterwards.
    async fn without_caches(
        &self,
        identity: Uuid,
        keep: Keep<'_>,
        change: impl Future<Output = Result<(), CoreChangeError>>,
    ) -> Result<(), CoreChangeError> {
        let exchange = async {
            if self.cached().is_none() {
                return change.await;
            }
            let device = self.take_cache(Dirty::Clean).await?.expect("there is a cache");
            let changed = change.await;
            let described = self.described_cache()?;
            let put = self.put_new(device.clone(), described, identity, Occupied::Overwrite, keep);
            let Err(back) = put.await else {
                return changed.map_err(|change| CoreChangeError::Emptied(Box::new(change)));
            };
            self.leave_device(device, keep).await;
            match changed {
                Ok(()) => Err(CoreChangeError::Cacheless(back)),
                Err(change) => Err(CoreChangeError::Neither { change: Box::new(change), back }),
            }
        };
        self.below_tier(Dirty::Clean, exchange).await
    }
}
