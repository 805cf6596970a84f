//! `ordered`: by flush epoch, so that the core is always consistent at a point in time.
//!
//! Writes before a flush go to the core before those after it, and the core is flushed in between;
//! within an epoch they are in address order. The rate is that of `stripe`. The price: a flush of
//! the core for each client flush with dirty data, and writes of versions that have been superseded
//! since.
//!
//! **Source**: Koller et al., "Write Policies for Host-side Flash Caches" (FAST '13), for a
//! write-back that keeps the core consistent; epochs that end with a flush, and address order
//! within them, are original.

use super::config::CleaningConfig;
use super::policy::{Choice, CleaningLoad, DirtyData, Policy, Speed};
use super::stripe::Stripe;

pub(crate) struct Ordered(Stripe);

impl Ordered {
    pub fn new(config: &CleaningConfig) -> Self {
        Self(Stripe::new(config))
    }
}

impl Policy for Ordered {
    fn speed(&mut self, load: &CleaningLoad) -> Speed {
        self.0.speed(load)
    }

    fn choose(&mut self, _load: &CleaningLoad, _dirty_data: &mut dyn DirtyData) -> Choice {
        Choice::InOrder
    }

    fn keeps_order(&self) -> bool {
        true
    }
}
