//! Where the next write goes.

use super::wire::{Pattern, WireLoad};
use crate::draw::Draw;

/// One in so many blocks is hot, and nine in ten writes go there.
const HOT_SHARE: u64 = 20;
const HOT_PERCENT: u64 = 90;

/// Draws addresses.
pub(crate) struct Places {
    load: WireLoad,
    /// Places of the region that a write can begin at.
    places: u64,
    next: u64,
    draw: Draw,
}

impl Places {
    /// # Panics
    /// Where a write does not fit the region.
    pub fn new(load: WireLoad, region_blocks: u64, seed: u64) -> Self {
        let places = region_blocks / load.write_blocks;
        assert!(places > 0, "a write fits the region");
        Self { load, places, next: 0, draw: Draw::new(seed) }
    }

    /// The first block of the next write.
    pub fn next(&mut self) -> u64 {
        let place = match self.load.pattern {
            Pattern::Random => self.draw.below(self.places),
            Pattern::Sequential => {
                let place = self.next % self.places;
                self.next += 1;
                place
            }
            Pattern::Hot if self.draw.percent(HOT_PERCENT) => {
                self.draw.below(self.places.div_ceil(HOT_SHARE))
            }
            Pattern::Hot => self.draw.below(self.places),
        };
        place * self.load.write_blocks
    }
}
