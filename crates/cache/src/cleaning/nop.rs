//! `nop`: nothing is cleaned without a command, as long as the mode is write-back.

use super::policy::{Choice, CleaningLoad, DirtyData, Policy, Speed};

pub(crate) struct Nop;

impl Policy for Nop {
    fn speed(&mut self, _load: &CleaningLoad) -> Speed {
        Speed::default()
    }

    fn choose(&mut self, _load: &CleaningLoad, _dirty_data: &mut dyn DirtyData) -> Choice {
        Choice::Nothing
    }
}
