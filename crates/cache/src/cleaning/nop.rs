//! `nop`: nothing is cleaned without a command, as long as the mode is write-back.

use super::policy::{Choice, DirtyData, Load, Policy, Speed};

pub(crate) struct Nop;

impl Policy for Nop {
    fn speed(&mut self, _load: &Load) -> Speed {
        Speed::default()
    }

    fn choose(&mut self, _load: &Load, _dirty_data: &mut dyn DirtyData) -> Choice {
        Choice::Nothing
    }
}
