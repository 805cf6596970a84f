//! What is looked at when a life is over.

use crate::machine::Image;
use headpond_volume::{CacheSettings, Volume};
use headpond_witness::Client;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// What a life left, to be looked at when it is over.
#[derive(Clone, Default)]
pub(crate) struct Remains {
    pub volume: Rc<RefCell<Option<Rc<Volume>>>>,
    pub client: Rc<RefCell<Option<Client>>>,
    /// What it was doing.
    pub phase: Rc<Cell<&'static str>>,
    /// Disks that were copied on the way.
    pub image: Rc<RefCell<Option<Image>>>,
}

impl Remains {
    pub fn of_client(&self) -> headpond_witness::Tally {
        self.client.borrow().as_ref().map(Client::tally).unwrap_or_default()
    }

    /// The state of the volume as it was left, for whoever looks for a mistake.
    pub fn picture(&self) -> String {
        let volume = self.volume.borrow();
        let Some(volume) = volume.as_ref() else { return "never open".into() };
        format!("{:?} {:?}", volume.status(), volume.stats())
    }

    /// Whether dirty data was on its way to the core.
    pub fn was_cleaning(&self) -> bool {
        let volume = self.volume.borrow();
        let stats = volume.as_ref().map(|volume| volume.stats());
        stats.is_some_and(|stats| stats.slices.iter().any(|slice| slice.cleaning_in_flight > 0))
    }

    /// Whether a spare was being given a role, and whether every stripe was being looked at.
    pub fn was_rebuilding_or_scrubbing(&self) -> (bool, bool) {
        let volume = self.volume.borrow();
        let status = volume.as_ref().map(|volume| volume.status());
        let cores = status.iter().flat_map(|status| &status.cores);
        cores.fold((false, false), |(rebuilding, scrubbing), core| {
            let is_filling = core.array.members.iter().any(|member| member.filling.is_some());
            (rebuilding || is_filling, scrubbing || core.array.progress.scrubbing.is_some())
        })
    }

    /// Whether data was on its way to more members.
    pub fn was_growing(&self) -> bool {
        let volume = self.volume.borrow();
        let status = volume.as_ref().map(|volume| volume.status());
        let mut cores = status.iter().flat_map(|status| &status.cores);
        cores.any(|core| core.array.reshape.is_some())
    }

    /// Whether the mode makes no dirty data and there is some.
    pub fn was_draining(&self) -> bool {
        let volume = self.volume.borrow();
        let status = volume.as_ref().map(|volume| volume.status());
        status.is_some_and(|status| status.cache.is_some_and(|cache| cache.draining))
    }

    /// The settings in force at the end.
    pub fn settings(&self) -> Option<CacheSettings> {
        let volume = self.volume.borrow();
        Some(volume.as_ref()?.description().cache?.settings)
    }
}
