//! Where a volume is written most: the blocks written in each extent of it.
//!
//! Extents begin small; when too many are written to, two neighbours become one.
//!
//! **Invariants**: at most `EXTENTS_MAX` extents; counts are exact, and merging two traces gives
//! what one pass over both would give.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use serde::{Deserialize, Serialize};

use super::spatial_sample::BLOCK_BYTES;

const EXTENTS_MAX: usize = 8192;

/// Devices that are told apart; others are taken for the last of these.
const DEVICES_MAX: u16 = 4096;

const _: () = assert!((DEVICES_MAX as usize) < EXTENTS_MAX);

/// The smallest extent: 16 blocks, 64 KiB.
const EXPONENT_MIN: u32 = 4;

/// Extents that are named.
const NAMED_MAX: usize = 10;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub(crate) struct Extents {
    /// An extent has two to the power of this, in blocks.
    exponent: u32,
    /// By extent and device, packed.
    blocks: HashMap<u64, u64, FixedState>,
}

/// Exponent, then device, extent and blocks in order of place.
#[derive(Clone, Serialize, Deserialize)]
struct Stored(u32, Vec<(u16, u64, u64)>);

/// Where the writes go.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HotSpots {
    pub extent_bytes: u64,
    /// Extents that were written to at all.
    pub extents: u64,
    /// Share of the blocks written that went to the busiest hundredth of these extents (at least
    /// one), and to the busiest tenth.
    pub hottest_hundredth: f64,
    pub hottest_tenth: f64,
    /// The busiest ones.
    pub hottest: Vec<HotExtent>,
}

/// One extent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct HotExtent {
    /// Number of the device in the trace.
    pub device: u16,
    pub offset_bytes: u64,
    /// Blocks written to it, in bytes, and their share of all.
    pub written_bytes: u64,
    pub share: f64,
}

impl Default for Extents {
    fn default() -> Self {
        Self { exponent: EXPONENT_MIN, blocks: HashMap::with_hasher(FixedState::default()) }
    }
}

impl Extents {
    /// Blocks `first` to `last` of a device are written.
    #[inline]
    pub(crate) fn add(&mut self, device: u16, first: u64, last: u64) {
        let mut at = first;
        loop {
            let end = (at | ((1 << self.exponent) - 1)).min(last);
            self.add_to(pack(device, at >> self.exponent), end - at + 1);
            if end == last {
                return;
            }
            at = end + 1;
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        while self.exponent < other.exponent {
            self.enlarge();
        }
        for (&packed, &blocks) in &other.blocks {
            let (device, extent) = unpack(packed);
            self.add_to(pack(device, extent >> (self.exponent - other.exponent)), blocks);
        }
    }

    #[inline]
    fn add_to(&mut self, packed: u64, blocks: u64) {
        match self.blocks.get_mut(&packed) {
            Some(sum) => *sum = sum.saturating_add(blocks),
            None => self.enter(packed, blocks),
        }
    }

    fn enter(&mut self, packed: u64, blocks: u64) {
        self.blocks.insert(packed, blocks);
        while self.blocks.len() > EXTENTS_MAX {
            self.enlarge();
        }
    }

    fn enlarge(&mut self) {
        self.exponent += 1;
        let small = std::mem::take(&mut self.blocks);
        for (packed, blocks) in small {
            let (device, extent) = unpack(packed);
            let sum = self.blocks.entry(pack(device, extent / 2)).or_default();
            *sum = sum.saturating_add(blocks);
        }
    }

    /// The busiest first; equals in order of place.
    fn ranked(&self) -> Vec<((u16, u64), u64)> {
        let all = self.blocks.iter().map(|(&packed, &blocks)| (unpack(packed), blocks));
        let mut ranked: Vec<_> = all.collect();
        ranked.sort_unstable_by_key(|&(at, blocks)| (std::cmp::Reverse(blocks), at));
        ranked
    }

    pub(crate) fn summary(&self) -> HotSpots {
        let ranked = self.ranked();
        let total: u128 = ranked.iter().map(|&(_, blocks)| u128::from(blocks)).sum();
        let share = |blocks: u128| blocks as f64 / total.max(1) as f64;
        let share_of = |count: usize| {
            share(ranked.iter().take(count).map(|&(_, blocks)| u128::from(blocks)).sum())
        };
        let extent_bytes = BLOCK_BYTES << self.exponent;
        let named = ranked.iter().take(NAMED_MAX).map(|&((device, extent), blocks)| HotExtent {
            device,
            offset_bytes: extent.saturating_mul(extent_bytes),
            written_bytes: blocks.saturating_mul(BLOCK_BYTES),
            share: share(u128::from(blocks)),
        });
        HotSpots {
            extent_bytes,
            extents: ranked.len() as u64,
            hottest_hundredth: share_of(ranked.len().div_ceil(100)),
            hottest_tenth: share_of(ranked.len().div_ceil(10)),
            hottest: named.collect(),
        }
    }

    /// False where damage has left what no trace gives.
    pub(crate) fn is_sound(&self) -> bool {
        (EXPONENT_MIN..52).contains(&self.exponent)
    }
}

/// An extent has at least 16 blocks of 4 KiB, so its number fits in 48 bits.
#[inline]
fn pack(device: u16, extent: u64) -> u64 {
    extent << 16 | u64::from(device.min(DEVICES_MAX - 1))
}

#[inline]
fn unpack(packed: u64) -> (u16, u64) {
    (packed as u16, packed >> 16)
}

impl From<Stored> for Extents {
    fn from(Stored(exponent, extents): Stored) -> Self {
        let packed = |(device, extent, blocks)| (pack(device, extent), blocks);
        Self { exponent, blocks: extents.into_iter().map(packed).collect() }
    }
}

impl From<Extents> for Stored {
    fn from(extents: Extents) -> Self {
        let all = extents.blocks.into_iter().map(|(packed, blocks)| {
            let (device, extent) = unpack(packed);
            (device, extent, blocks)
        });
        let mut all: Vec<_> = all.collect();
        all.sort_unstable();
        Self(extents.exponent, all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(runs: &[(u16, u64, u64)]) -> Extents {
        let mut extents = Extents::default();
        runs.iter().for_each(|&(device, first, count)| extents.add(device, first, first + count));
        extents
    }

    #[test]
    fn a_journal_beside_scattered_writes_is_a_hot_spot() {
        let mut extents = Extents::default();
        for n in 0..50_000u64 {
            let block = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            extents.add(0, block, block);
            extents.add(3, 1 << 30, 1 << 30);
        }
        let spots = extents.summary();
        assert_eq!((spots.hottest[0].device, spots.hottest[0].share), (3, 0.5));
        assert!(spots.extents <= EXTENTS_MAX as u64 && spots.extent_bytes > 64 << 10);
        assert!((0.5..0.6).contains(&spots.hottest_hundredth), "{}", spots.hottest_hundredth);
    }

    #[test]
    fn more_devices_than_extents_are_not_told_apart() {
        let mut extents = Extents::default();
        (0..3 * EXTENTS_MAX as u64).for_each(|device| extents.add(device as u16, device, device));
        assert_eq!(extents.blocks.values().sum::<u64>(), 3 * EXTENTS_MAX as u64);
        assert!(extents.blocks.len() <= EXTENTS_MAX && extents.is_sound());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn merging_is_one_pass_over_both_in_any_order(
            one in prop::collection::vec((0u16..3, 0u64..1 << 40, 0u64..3000), 0..200),
            many in prop::collection::vec((0u16..3, 0u64..1 << 24, 0u64..300), 0..3000),
        ) {
            let whole = written(&[one.clone(), many.clone()].concat());
            let mut merged = written(&one);
            merged.merge(&written(&many));
            prop_assert_eq!(&merged, &whole);
            let mut merged = written(&many);
            merged.merge(&written(&one));
            prop_assert_eq!(&merged, &whole);
            let stored = serde_json::to_string(&whole).unwrap();
            prop_assert_eq!(serde_json::from_str::<Extents>(&stored).unwrap(), whole);
        }
    }
}
