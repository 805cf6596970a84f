//! The one source of chance here: SplitMix64, for payloads and for workloads.
//!
//! **Source**: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA
//! 2014, figure 17.

/// Draws from one seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draw(u64);

impl Draw {
    pub fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    /// A number below `bound`, which is above zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        ((u128::from(mix(self.0)) * u128::from(bound)) >> 64) as u64
    }

    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// One step of SplitMix64.
pub(crate) fn mix(state: u64) -> u64 {
    let z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
