//! Giving a volume further cores while it is served, and taking them away.
//!
//! Add: 1. the devices become an array, which nobody uses yet; 2. the caller keeps the description
//! that names it; 3. requests are held for a moment; 4. the core has its place behind the others.
//! Remove: 1. requests are held; 2. the core loses its place, and those behind it move up; 3. its
//! array is stopped, with all that it holds.
//!
//! **Invariants**
//! - There is no cache meanwhile: it knows blocks by addresses, and those change.
//! - A removed core can be opened as a volume of its own.

use crate::CreateError;
use crate::cores::{Core, Places, Shape, StripesDiffer};
use crate::create::{CreateOptions, array_options};
use crate::description::{Description, DescriptionError, FurtherCoreDescription};
use crate::lifecycle::{DetachError, Dirty};
use crate::open::begin;
use crate::tier::TierError;
use crate::volume::{SetError, Volume};
use headpond_block::{BlockDevice, BufferPool, DeviceError, Outcome};
use headpond_raid::{AssembleError, AssembleOptions, Tuning, prepare};
use std::rc::Rc;

/// An array that may become a core.
pub struct NewCore {
    described: FurtherCoreDescription,
    core: Rc<Core>,
    members: Vec<Rc<dyn BlockDevice>>,
}

/// Why there is no further core; the volume has those that it had.
#[derive(Debug, thiserror::Error)]
pub enum AddCoreError {
    #[error("{volume} has a cache, which knows where its cores lie: detach it first")]
    HasCache { volume: String },
    #[error(
        "the core has logical blocks of {core} bytes, and clients of {volume} were told {offered}: attach \
         its members so that they show smaller ones"
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
    #[error("the tier in memory is in the way: {0}")]
    InTheWay(#[from] DetachError),
    #[error(transparent)]
    Tier(#[from] TierError),
    #[error(transparent)]
    Busy(#[from] SetError),
}

/// Why a core was not removed; it is served as before, unless the error is one of its array.
#[derive(Debug, thiserror::Error)]
pub enum RemoveCoreError {
    #[error("{volume} has a cache, which knows where its cores lie: detach it first")]
    HasCache { volume: String },
    #[error("{volume} has no further core {name}{known}")]
    NoCore { volume: String, name: String, known: String },
    #[error("the core is removed, and its array was not stopped in order: {0}")]
    Array(#[from] DeviceError),
    #[error("the tier in memory is in the way: {0}")]
    InTheWay(#[from] DetachError),
    #[error(transparent)]
    Tier(#[from] TierError),
    #[error(transparent)]
    Busy(#[from] SetError),
}

impl AddCoreError {
    /// Whether it was refused because data could be lost, or the cores do not fit together.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Create(error) => error.is_refusal(),
            Self::Assemble(_) | Self::Tier(_) => false,
            _ => true,
        }
    }
}

impl NewCore {
    /// The devices are no members of anything any more.
    ///
    /// # Errors
    /// Those of the devices.
    pub async fn give_up(self) -> Outcome {
        self.core.array.stop().await?;
        for member in &self.members {
            headpond_raid::erase(&**member).await?;
        }
        Ok(())
    }
}

impl Volume {
    /// Makes devices the array of a further core; what was on them is lost. The volume does not use
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
    ) -> Result<NewCore, AddCoreError> {
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
        let mut shapes: Vec<Shape> = self.cores().shapes();
        shapes.push(planned);
        Places::of(&shapes)?;
        let offered = self.geometry().logical_block_bytes;
        if record.logical_block_bytes > offered {
            let (volume, core) = (description.name, record.logical_block_bytes);
            return Err(AddCoreError::LogicalBlock { volume, core, offered });
        }
        headpond_raid::create(&members, &array).await.map_err(CreateError::from)?;
        let how = AssembleOptions {
            uuid: Some(described.uuid),
            tuning: Tuning::with_pool(pool),
            ..AssembleOptions::default()
        };
        let (array, _) = begin(prepare(&self.runtime, members.clone(), how).await?).await?;
        description.array.apply_to(&array);
        let core = Core::new(described.id, described.name.clone(), array, &self.runtime);
        Ok(NewCore { described, core, members })
    }

    /// The description of this volume with a further core, for whoever keeps it: before the core is
    /// added.
    pub fn description_with_core(&self, core: &FurtherCoreDescription) -> Description {
        let mut description = self.description();
        description.further_cores.push(core.clone());
        description
    }

    /// Gives a new core its place, under load.
    ///
    /// # Errors
    /// Why not; the volume goes on without it.
    pub async fn add_core(&self, new: NewCore) -> Result<(), AddCoreError> {
        let _change = self.begin_change()?;
        self.below_tier(Dirty::Clean, self.put_core(new)).await
    }

    async fn put_core(&self, new: NewCore) -> Result<(), AddCoreError> {
        if self.cached().is_some() {
            return Err(AddCoreError::HasCache { volume: self.description().name });
        }
        self.description_with_core(&new.described).check()?;
        let cores = self.cores().with(Rc::clone(&new.core))?;
        let held = self.front.hold().await;
        self.replace_cores(cores, &held);
        self.description.borrow_mut().further_cores.push(new.described);
        self.begin_upkeep();
        Ok(())
    }

    /// Takes a further core away, under load; answers with what it was. Requests to it fail from
    /// then on. Its array has all that was written, and its devices are free.
    ///
    /// # Errors
    /// Why not; the volume goes on with it, unless the error is one of its array.
    pub async fn remove_core(&self, name: &str) -> Result<FurtherCoreDescription, RemoveCoreError> {
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
            return Err(RemoveCoreError::NoCore { volume, name, known });
        };
        self.below_tier(Dirty::Clean, self.take_core(&described)).await?;
        Ok(described)
    }

    async fn take_core(&self, described: &FurtherCoreDescription) -> Result<(), RemoveCoreError> {
        if self.cached().is_some() {
            return Err(RemoveCoreError::HasCache { volume: self.description().name });
        }
        let cores = self.cores();
        let leaving = cores.iter().map(|(core, _)| core).find(|core| core.id == described.id);
        let leaving = Rc::clone(leaving.expect("the description names what there is"));
        let held = self.front.hold().await;
        self.replace_cores(cores.without(described.id), &held);
        self.description.borrow_mut().further_cores.retain(|core| core.id != described.id);
        drop(held);
        leaving.upkeep.stop().await;
        Ok(leaving.array.stop().await?)
    }
}
