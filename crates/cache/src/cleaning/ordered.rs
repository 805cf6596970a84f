//! `ordered`: by flush epoch, so that the core is always a consistent past.
//!
//! What was written before a promise goes to the core before what was written after it, and the
//! core is flushed in between; within an epoch the order is that of the addresses. How fast is as
//! with `stripe`. The price: a flush of the core for each flush of the clients that left something
//! dirty, and writes of versions that have been superseded since.
//!
//! **Source**: Koller et al., "Write Policies for Host-side Flash Caches" (FAST '13), for a
//! write-back that keeps the core consistent; epochs that end with a promise, and addresses within
//! them, are ours.

use super::config::CleaningConfig;
use super::policy::{Choice, DirtyData, Load, Policy, Speed};
use super::stripe::Stripe;

pub(crate) struct Ordered(Stripe);

impl Ordered {
    pub fn new(config: &CleaningConfig) -> Self {
        Self(Stripe::new(config))
    }
}

impl Policy for Ordered {
    fn speed(&mut self, load: &Load) -> Speed {
        self.0.speed(load)
    }

    fn choose(&mut self, _load: &Load, _dirty_data: &mut dyn DirtyData) -> Choice {
        Choice::InOrder
    }

    fn keeps_order(&self) -> bool {
        true
    }
}
