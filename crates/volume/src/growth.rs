//! Giving an array of a volume more members while it is served.
//!
//! 1. what speaks against it is looked for, and nothing written; 2. the array begins to grow, which
//!    changes nothing yet; 3. requests are held for a moment, and the array is put together again,
//!    as one that grows; 4. its data moves beside the requests (`upkeep`). The volume has its new
//!    size when it is opened the next time.
//!
//! **Invariants**
//! - There is no cache meanwhile: it knows the size of what lies below.

use crate::cores::{Core, Places, Shape};
use crate::members::{ChangeMembersError, NewMember};
use crate::open::begin;
use crate::volume::Volume;
use headpond_block::{BlockDevice, BufferPool};
use headpond_raid::create::refuse_occupied;
use headpond_raid::{Addition, AssembleOptions, Occupied, Tuning, prepare};
use std::rc::Rc;
use uuid::Uuid;

/// What an array is to grow by.
pub enum GrowBy {
    /// A spare that stands by, by the name of its device.
    Spare(String),
    New(NewMember),
}

impl Volume {
    /// Whether a device stands by for an array as a spare.
    pub fn is_spare(&self, core: Option<&str>, device: &str) -> bool {
        self.core(core).is_ok_and(|core| core.array.spare_on(device).is_some())
    }

    /// Gives the array of a core more members, under load. Its data moves from now on, beside the
    /// requests.
    ///
    /// # Errors
    /// What speaks against it; the array is then as it was, but for new devices, which may be
    /// spares. Where it could not be put together again, the volume serves that core no more until
    /// it is opened the next time.
    pub async fn grow_array(
        &self,
        core: Option<&str>,
        by: Vec<GrowBy>,
        pool: BufferPool,
    ) -> Result<(), ChangeMembersError> {
        let _turn = self.change_members()?;
        if self.cached().is_some() || self.tier().is_some() {
            return Err(ChangeMembersError::HasCache { volume: self.description().name });
        }
        let core = self.core(core)?;
        let (additions, words) = self.additions(&core, by).await?;
        self.consider_growth(&core, &additions)?;
        let names: Vec<String> = additions.iter().map(|it| it.device.name().to_string()).collect();
        let joined = core.array.join_to_grow(&additions).await;
        for (name, word) in names.iter().zip(words) {
            if let (Some(word), true) = (word, core.array.spare_on(name).is_some()) {
                self.describe_spare(&core, name, word);
            }
        }
        joined?;
        // A kill from here on must find the new devices listed.
        self.kept.tell(&self.description());
        core.array.begin_growth(&additions).await?;
        self.put_together_again(&core, pool).await
    }

    /// The devices to grow by, and what the description is to call those that are new.
    async fn additions(
        &self,
        core: &Core,
        by: Vec<GrowBy>,
    ) -> Result<(Vec<Addition>, Vec<Option<String>>), ChangeMembersError> {
        let present = core.array.devices();
        let (mut additions, mut words) = (Vec::new(), Vec::new());
        for one in by {
            match one {
                GrowBy::Spare(name) => {
                    let device = present.iter().find(|device| device.name().as_str() == name);
                    let device = device.ok_or_else(|| self.no_member(&name))?;
                    additions.push(Addition { device: Rc::clone(device), uuid: Uuid::nil() });
                    words.push(None);
                }
                GrowBy::New(new) => {
                    if new.occupied == Occupied::Refuse {
                        refuse_occupied(&*new.device).await?;
                    }
                    additions.push(Addition { device: new.device, uuid: new.uuid });
                    words.push(Some(new.word));
                }
            }
        }
        Ok((additions, words))
    }

    /// Whether the array may grow, and can lie among the other cores when it has.
    fn consider_growth(
        &self,
        core: &Core,
        additions: &[Addition],
    ) -> Result<(), ChangeMembersError> {
        let record = core.array.consider_growth(additions)?;
        let layout = record.layout().expect("it was considered");
        let cores = self.cores();
        let shapes = cores.iter().map(|(other, _)| match other.id == core.id {
            true => Shape::planned(&layout),
            false => Shape::of(other.array.geometry()),
        });
        Places::of(&shapes.collect::<Vec<Shape>>())?;
        Ok(())
    }

    async fn put_together_again(
        &self,
        core: &Core,
        pool: BufferPool,
    ) -> Result<(), ChangeMembersError> {
        let held = self.front.hold().await;
        core.upkeep.stop().await;
        let again = |error: headpond_raid::AssembleError| ChangeMembersError::Reopen {
            volume: self.description().name,
            cause: error.to_string(),
        };
        core.array.stop().await.map_err(|error| again(error.into()))?;
        let devices: Vec<Rc<dyn BlockDevice>> = core.array.devices();
        let how = AssembleOptions {
            uuid: Some(core.array.uuid()),
            tuning: Tuning::with_pool(pool),
            ..AssembleOptions::default()
        };
        let prepared = prepare(&self.runtime, devices, how).await.map_err(again)?;
        let (array, _) = begin(prepared).await.map_err(again)?;
        self.description().array.apply_to(&array);
        let grown = Core::new(core.id, core.name.clone(), array, &self.runtime);
        self.members_have_joined(&grown);
        self.replace_cores(self.cores().with_in_place(grown)?, &held);
        self.begin_upkeep();
        Ok(())
    }
}
