//! Lost blocks of the array: more of their stripe could not be read than the redundancy tolerates.
//! They read as errors until they are written again.
//!
//! The list is kept by groups of 64 neighbouring blocks with a bit for each, so that removing
//! blocks never makes it longer: no write fails because a split does not fit in the list.
//!
//! **Invariants**: every group on the list has a block on it; there are never more than
//! [`GROUPS_MAX`] of them.
//! **Not here**: when blocks are added and removed, and the location of the list on the members
//! (`array::lost`).
//! **Source**: `docs/format.md`, "Lost blocks". Linux md keeps a bad-block log for each member; one
//! for the array suffices here, since a stripe with lost blocks is made consistent at once.

mod codec;

use std::collections::BTreeMap;

use headpond_block::ByteRange;
use thiserror::Error;

pub use codec::{DecodeError, HEADER_BYTES, decode, encode};

/// Where the two copies begin on a member, by the parity of their sequence.
pub const COPY_OFFSETS: [u64; 2] = [192 << 10, 256 << 10];
/// Bytes set aside for a copy.
pub const COPY_BYTES: usize = 64 << 10;
/// The maximum of groups of blocks on the list: as many as fit into a copy.
pub const GROUPS_MAX: usize = (COPY_BYTES - HEADER_BYTES) / codec::GROUP_BYTES;

/// Blocks of a group, a bit each.
const GROUP_BLOCKS: u64 = 64;

/// The list has no room for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the list of lost blocks is full")]
pub struct Full;

/// The lost blocks of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostBlocks {
    /// The logical block of the array.
    block_bytes: u32,
    /// By number of the group: its lost blocks, the first in the lowest bit.
    groups: BTreeMap<u64, u64>,
}

impl LostBlocks {
    /// None are lost.
    pub fn new(block_bytes: u32) -> LostBlocks {
        assert!(block_bytes.is_power_of_two());
        LostBlocks { block_bytes, groups: BTreeMap::new() }
    }

    /// The logical block of the array.
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Bytes of all lost blocks.
    pub fn bytes(&self) -> u64 {
        let blocks: u64 = self.groups.values().map(|bits| u64::from(bits.count_ones())).sum();
        blocks * u64::from(self.block_bytes)
    }

    /// The first lost bytes of a range that follow each other.
    pub fn first_in(&self, range: ByteRange) -> Option<ByteRange> {
        if self.is_empty() || range.is_empty() {
            return None;
        }
        runs(self.bits_in(range)).next().map(|(start, end)| self.bytes_of(start, end))
    }

    /// Puts blocks on the list, as far as they are not on it.
    ///
    /// # Errors
    /// Where there is no room for all of them; the list is then as before.
    pub fn insert(&mut self, ranges: &[ByteRange]) -> Result<(), Full> {
        let mut groups = self.groups.clone();
        for range in ranges.iter().filter(|range| !range.is_empty()) {
            let (first, last) = self.groups_of(*range);
            for group in first..=last {
                *groups.entry(group).or_default() |= self.mask(group, *range);
            }
            if groups.len() > GROUPS_MAX {
                return Err(Full);
            }
        }
        self.groups = groups;
        Ok(())
    }

    /// Takes blocks off the list, as far as they are on it.
    pub fn remove(&mut self, range: ByteRange) {
        if self.is_empty() || range.is_empty() {
            return;
        }
        let (first, last) = self.groups_of(range);
        let listed: Vec<u64> = self.groups.range(first..=last).map(|(group, _)| *group).collect();
        for group in listed {
            let mask = self.mask(group, range);
            let bits = self.groups.get_mut(&group).expect("it is listed");
            *bits &= !mask;
            if *bits == 0 {
                self.groups.remove(&group);
            }
        }
    }

    /// Runs of lost bytes, ascending, as long as they can be.
    pub fn ranges(&self) -> impl Iterator<Item = ByteRange> + '_ {
        let bits = self.groups.iter().map(|(group, bits)| (*group, *bits));
        runs(bits).map(|(start, end)| self.bytes_of(start, end))
    }

    /// Checks what bounds the list; for tests and simulation.
    ///
    /// # Panics
    /// Where an invariant does not hold.
    pub fn self_check(&self) {
        assert!(self.groups.values().all(|bits| *bits != 0), "each group has a block on the list");
        assert!(self.groups.len() <= GROUPS_MAX, "the list fits a member");
        assert!(self.block_bytes.is_power_of_two(), "blocks are what can be addressed");
    }

    /// The listed blocks of a range, by groups.
    fn bits_in(&self, range: ByteRange) -> impl Iterator<Item = (u64, u64)> + '_ {
        let (first, last) = self.groups_of(range);
        let listed = self.groups.range(first..=last);
        listed.map(move |(group, bits)| (*group, bits & self.mask(*group, range)))
    }

    /// The first and last group of a range that is not empty.
    fn groups_of(&self, range: ByteRange) -> (u64, u64) {
        let group_bytes = GROUP_BLOCKS * u64::from(self.block_bytes);
        (range.start() / group_bytes, (range.end() - 1) / group_bytes)
    }

    /// The blocks of a group that a range touches.
    fn mask(&self, group: u64, range: ByteRange) -> u64 {
        let block_bytes = u64::from(self.block_bytes);
        let first = group * GROUP_BLOCKS;
        let start = (range.start() / block_bytes).saturating_sub(first).min(GROUP_BLOCKS);
        let end = range.end().div_ceil(block_bytes).saturating_sub(first).min(GROUP_BLOCKS);
        below(end) & !below(start)
    }

    fn bytes_of(&self, start: u64, end: u64) -> ByteRange {
        let block_bytes = u64::from(self.block_bytes);
        ByteRange::between(start * block_bytes, end * block_bytes)
    }
}

/// The lowest `count` bits.
fn below(count: u64) -> u64 {
    if count >= GROUP_BLOCKS { u64::MAX } else { (1 << count) - 1 }
}

/// Runs of set bits over ascending groups, as first block and end.
fn runs(groups: impl Iterator<Item = (u64, u64)>) -> impl Iterator<Item = (u64, u64)> {
    let parts = groups.flat_map(|(group, bits)| runs_of(group * GROUP_BLOCKS, bits));
    let mut parts = parts.peekable();
    std::iter::from_fn(move || {
        let (start, mut end) = parts.next()?;
        while let Some((_, further)) = parts.next_if(|(next, _)| *next == end) {
            end = further;
        }
        Some((start, end))
    })
}

/// Runs of set bits in one group, whose first block is `first`.
fn runs_of(first: u64, mut bits: u64) -> impl Iterator<Item = (u64, u64)> {
    std::iter::from_fn(move || {
        if bits == 0 {
            return None;
        }
        let start = u64::from(bits.trailing_zeros());
        let end = start + u64::from((bits >> start).trailing_ones());
        bits &= !below(end);
        Some((first + start, first + end))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_testkit::{Break, assert_trips};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const BLOCK: u64 = 512;

    fn blocks(start: u64, count: u64) -> ByteRange {
        ByteRange::at(start * BLOCK, count * BLOCK)
    }

    #[test]
    fn check_notices_what_is_wrong_with_a_list() {
        let make = || {
            let mut list = LostBlocks::new(512);
            list.insert(&[blocks(3, 200)]).expect("there is room");
            list
        };
        let breaks: [Break<LostBlocks>; 3] = [
            ("each group has a block", |it| it.groups.values_mut().for_each(|bits| *bits = 0)),
            ("fits a member", |it| it.groups.extend((0..=GROUPS_MAX as u64).map(|at| (at, 1)))),
            ("what can be addressed", |it| it.block_bytes += 1),
        ];
        assert_trips(make, LostBlocks::self_check, &breaks);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn it_lists_what_a_set_of_blocks_does(
            steps in prop::collection::vec((any::<bool>(), 0_u64..400, 0_u64..200), 1..30),
            asked in (0_u64..400, 0_u64..200),
        ) {
            let (mut list, mut twin) = (LostBlocks::new(512), BTreeSet::new());
            for (is_lost, start, count) in steps {
                match is_lost {
                    true => {
                        list.insert(&[blocks(start, count)]).unwrap();
                        twin.extend(start..start + count);
                    }
                    false => {
                        list.remove(blocks(start, count));
                        twin.retain(|block| !(start..start + count).contains(block));
                    }
                }
                list.self_check();
            }
            prop_assert_eq!(list.bytes(), twin.len() as u64 * BLOCK);
            let ranges: Vec<ByteRange> = list.ranges().collect();
            prop_assert!(ranges.windows(2).all(|pair| pair[0].end() < pair[1].start()));
            let listed = ranges.iter().flat_map(|it| it.start() / BLOCK..it.end() / BLOCK);
            prop_assert!(listed.eq(twin.iter().copied()));
            let (start, count) = asked;
            let first = list.first_in(blocks(start, count)).map(|it| it.start() / BLOCK);
            prop_assert_eq!(first, twin.range(start..start + count).next().copied());
        }
    }

    #[test]
    fn a_full_list_takes_nothing_more_and_lets_everything_go() {
        let mut list = LostBlocks::new(512);
        let group = |number: u64| blocks(number * GROUP_BLOCKS, GROUP_BLOCKS);
        let all: Vec<ByteRange> = (0..GROUPS_MAX as u64).map(|number| group(2 * number)).collect();
        list.insert(&all).unwrap();
        let before = list.clone();
        assert_eq!(list.insert(&[blocks(0, 1), group(1)]), Err(Full));
        assert_eq!(list, before);
        for number in 0..GROUPS_MAX as u64 {
            list.remove(blocks(2 * number * GROUP_BLOCKS + 31, 1));
        }
        assert_eq!(list.ranges().count(), 2 * GROUPS_MAX);
        list.remove(ByteRange::at(0, 1 << 60));
        assert!(list.is_empty());
    }
}
