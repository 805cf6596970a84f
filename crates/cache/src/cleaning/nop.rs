//! `nop`: nothing is cleaned unasked, as long as the mode makes dirty data.

use super::policy::{Choice, Dirt, Load, Policy, Speed};

pub(crate) struct Nop;

impl Policy for Nop {
    fn speed(&mut self, _load: &Load) -> Speed {
        Speed::default()
    }

    fn choose(&mut self, _load: &Load, _dirt: &mut dyn Dirt) -> Choice {
        Choice::Nothing
    }
}
