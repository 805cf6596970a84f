//! The line map: where the newest version of each cached block is.
//!
//! One 16-byte slot for every 4 KiB of the log, found by its place, chained into hash buckets by
//! core block: the map from block to place and the one from place to block are the same memory.
//! With the bucket heads it takes 18 to 20 bytes for each 4 KiB of cache, whatever is mapped.
//!
//! Lifecycle of a slot: 1. free; 2. pending, from the moment its record is formed, ahead of the
//! older versions in its chain; 3. published when the record is written, which frees the older
//! versions, or failed; 4. dirty, written (the core has it), clean (the core has flushed); 5. free
//! again, when superseded, or dropped by reclaim.
//!
//! **Invariants**
//! - The order of versions in a chain is the order in which their records were formed.
//! - At most one published version of a block is mapped.
//!
//! **Not here**: I/O, the order of reclaim, which blocks to clean.

use crate::types::{CoreBlock, SlotIndex};

const NONE: u32 = u32::MAX;
const BLOCK_BITS: u32 = 40;
const BLOCK_MASK: u64 = (1 << BLOCK_BITS) - 1;
const STATE_SHIFT: u32 = 40;
const TARGET_SHIFT: u32 = 43;
const UNIT_SHIFT: u32 = 46;
const MARKS_SHIFT: u32 = 49;

/// State of a mapped version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Free,
    /// Its record is on its way to the device.
    Pending,
    /// Newer than the core.
    Dirty,
    /// The core has it, but has not flushed since.
    Written,
    /// The core has it for good.
    Clean,
}

/// Small facts about a version, combined by `|`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Marks(u64);

impl Marks {
    pub const NONE: Marks = Marks(0);
    /// The dirty index knows the block.
    pub const INDEXED: Marks = Marks(1);
    /// Read since it was written here.
    pub const REFERENCED: Marks = Marks(2);
    /// Came back from an unclean stop, as did its successors until one version of the block has
    /// been cleaned: parity is recomputed then.
    pub const REPLAYED: Marks = Marks(4);
    /// On its way to the core.
    pub const CLEANING: Marks = Marks(8);
    /// Written without payload: there is nothing to move, and nothing that could be checked.
    pub const PAYLOAD_FREE: Marks = Marks(16);

    pub fn contains(self, other: Marks) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for Marks {
    type Output = Marks;
    fn bitor(self, other: Marks) -> Marks {
        Marks(self.0 | other.0)
    }
}

#[derive(Clone, Copy)]
struct Slot {
    word: u64,
    checksum: u32,
    next: u32,
}

const _: () = assert!(size_of::<Slot>() == 16);

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    pub slot: SlotIndex,
    pub block: CoreBlock,
    pub state: State,
    /// What a pending version becomes; the state itself otherwise.
    pub target: State,
    pub unit: u8,
    pub checksum: u32,
    pub marks: Marks,
}

impl Version {
    /// Whether the core lacks it, or may lack it after a power cut.
    pub fn is_unsafe_at_core(&self) -> bool {
        matches!(self.target, State::Dirty | State::Written)
    }

    pub fn is_payload_free(&self) -> bool {
        self.marks.contains(Marks::PAYLOAD_FREE)
    }
}

/// Number of versions by state, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counts {
    pub pending_dirty: u64,
    pub pending_other: u64,
    pub dirty: u64,
    pub written: u64,
    pub clean: u64,
    /// Those of the dirty ones whose parity is not to be trusted.
    pub replayed: u64,
}

impl Counts {
    pub fn mapped(&self) -> u64 {
        self.dirty + self.written + self.clean
    }

    fn add(&mut self, word: u64) {
        *self.of(word) += 1;
        self.replayed += u64::from(owes_parity(word));
    }

    fn subtract(&mut self, word: u64) {
        *self.of(word) -= 1;
        self.replayed -= u64::from(owes_parity(word));
    }

    fn of(&mut self, word: u64) -> &mut u64 {
        match (state_of(word), target_of(word)) {
            (State::Pending, State::Dirty) => &mut self.pending_dirty,
            (State::Pending, _) => &mut self.pending_other,
            (State::Dirty, _) => &mut self.dirty,
            (State::Written, _) => &mut self.written,
            (State::Clean, _) => &mut self.clean,
            (State::Free, _) => unreachable!("free slots are not counted"),
        }
    }
}

pub struct LineMap {
    slots: Box<[Slot]>,
    heads: Box<[u32]>,
    counts: Counts,
}

impl LineMap {
    pub fn new(slots: u32) -> Self {
        assert!(slots > 0 && slots < NONE);
        let buckets = (slots as usize).next_power_of_two() / 2;
        let free = Slot { word: 0, checksum: 0, next: NONE };
        Self {
            slots: vec![free; slots as usize].into_boxed_slice(),
            heads: vec![NONE; buckets.max(16)].into_boxed_slice(),
            counts: Counts::default(),
        }
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    pub fn memory_bytes(&self) -> u64 {
        (self.slots.len() * size_of::<Slot>() + self.heads.len() * size_of::<u32>()) as u64
    }

    /// The newest version of a block, pending ones included.
    pub fn newest(&self, block: CoreBlock) -> Option<Version> {
        let mut at = self.heads[self.bucket(block)];
        while at != NONE {
            let slot = &self.slots[at as usize];
            if slot.word & BLOCK_MASK == block.0 {
                return Some(self.version(SlotIndex(at)));
            }
            at = slot.next;
        }
        None
    }

    /// The newest version of a block that is on the device: what a read gets.
    pub fn published(&self, block: CoreBlock) -> Option<Version> {
        let mut at = self.heads[self.bucket(block)];
        while at != NONE {
            let slot = &self.slots[at as usize];
            if slot.word & BLOCK_MASK == block.0 && state_of(slot.word) != State::Pending {
                return Some(self.version(SlotIndex(at)));
            }
            at = slot.next;
        }
        None
    }

    pub fn version(&self, slot: SlotIndex) -> Version {
        let Slot { word, checksum, .. } = self.slots[slot.0 as usize];
        Version {
            slot,
            block: CoreBlock(word & BLOCK_MASK),
            state: state_of(word),
            target: target_of(word),
            unit: (word >> UNIT_SHIFT & 7) as u8,
            checksum,
            marks: Marks(word >> MARKS_SHIFT),
        }
    }

    /// Maps a new version, ahead of all others of its block. `version.state` is taken as it is, so
    /// that replay can insert what is published already.
    ///
    /// # Panics
    /// Where the slot is not free.
    pub fn insert(&mut self, version: Version) {
        let place = &mut self.slots[version.slot.0 as usize];
        assert!(state_of(place.word) == State::Free, "slot is still in use");
        assert!(version.block.0 <= BLOCK_MASK && version.unit < 8);
        let word = version.block.0
            | (version.state as u64) << STATE_SHIFT
            | (version.target as u64) << TARGET_SHIFT
            | u64::from(version.unit) << UNIT_SHIFT
            | version.marks.0 << MARKS_SHIFT;
        let bucket = bucket_in(self.heads.len(), version.block);
        *place = Slot { word, checksum: version.checksum, next: self.heads[bucket] };
        self.heads[bucket] = version.slot.0;
        self.counts.add(word);
    }

    /// The record of a pending version has been written: the older versions are superseded. `false`
    /// where the version itself has been superseded or removed meanwhile.
    pub fn publish(&mut self, slot: SlotIndex) -> bool {
        let word = self.slots[slot.0 as usize].word;
        match state_of(word) {
            State::Pending => {}
            State::Free => return false,
            state => panic!("published twice, now {state:?}"),
        }
        let word = with_state(word, target_of(word));
        self.replace(slot, word);
        self.unlink_after(slot, CoreBlock(word & BLOCK_MASK));
        true
    }

    /// Drops one version; nothing where it is free already. The older versions of its block, if
    /// there are any, count again.
    pub fn remove(&mut self, slot: SlotIndex) {
        let word = self.slots[slot.0 as usize].word;
        if state_of(word) == State::Free {
            return;
        }
        let bucket = self.bucket(CoreBlock(word & BLOCK_MASK));
        let next = self.slots[slot.0 as usize].next;
        if self.heads[bucket] == slot.0 {
            self.heads[bucket] = next;
        } else {
            let mut at = self.heads[bucket];
            while self.slots[at as usize].next != slot.0 {
                at = self.slots[at as usize].next;
            }
            self.slots[at as usize].next = next;
        }
        self.free(slot.0);
    }

    /// Drops every version of a block, pending ones included; answers whether there was one.
    pub fn remove_block(&mut self, block: CoreBlock) -> bool {
        let Some(newest) = self.newest(block) else { return false };
        self.unlink_after(newest.slot, block);
        self.remove(newest.slot);
        true
    }

    /// Moves a published version to another state.
    pub fn set_state(&mut self, slot: SlotIndex, state: State) {
        let word = self.slots[slot.0 as usize].word;
        assert!(!matches!(state_of(word), State::Free | State::Pending) && state != State::Free);
        self.replace(slot, with_target(with_state(word, state), state));
    }

    pub fn mark(&mut self, slot: SlotIndex, marks: Marks) {
        assert!(!marks.contains(Marks::REPLAYED), "known when a version is inserted");
        self.slots[slot.0 as usize].word |= marks.0 << MARKS_SHIFT;
    }

    pub fn unmark(&mut self, slot: SlotIndex, marks: Marks) {
        let word = self.slots[slot.0 as usize].word;
        if word & marks.0 << MARKS_SHIFT != 0 {
            self.replace(slot, word & !(marks.0 << MARKS_SHIFT));
        }
    }

    /// Takes marks from all versions of a block, pending ones included.
    pub fn unmark_block(&mut self, block: CoreBlock, marks: Marks) {
        let mut at = self.heads[self.bucket(block)];
        while at != NONE {
            let Slot { word, next, .. } = self.slots[at as usize];
            if word & BLOCK_MASK == block.0 {
                self.unmark(SlotIndex(at), marks);
            }
            at = next;
        }
    }

    /// Every version that is mapped, in the order of the log's places.
    pub fn iter(&self) -> impl Iterator<Item = Version> + '_ {
        (0..self.slots.len() as u32)
            .map(|slot| self.version(SlotIndex(slot)))
            .filter(|version| version.state != State::Free)
    }

    /// Checks the counts and chains; for tests and simulation.
    ///
    /// # Panics
    /// Where an invariant does not hold.
    pub fn self_check(&self) {
        let mut counts = Counts::default();
        let mut published = std::collections::BTreeSet::new();
        for version in self.iter() {
            counts.add(self.slots[version.slot.0 as usize].word);
            if version.state != State::Pending {
                assert!(published.insert(version.block), "two published versions of a block");
            }
            let newest = self.newest(version.block).expect("a mapped block is found");
            assert_eq!(newest.block, version.block);
            if version.marks.contains(Marks::REPLAYED) {
                let debtor = self.published(version.block).filter(|it| it.state == State::Dirty);
                assert!(debtor.is_some_and(|it| it.marks.contains(Marks::REPLAYED)));
            }
        }
        assert_eq!(counts, self.counts);
    }

    /// Drops all versions of a block that follow `slot` in its chain.
    fn unlink_after(&mut self, slot: SlotIndex, block: CoreBlock) {
        let mut previous = slot.0;
        let mut at = self.slots[previous as usize].next;
        while at != NONE {
            let next = self.slots[at as usize].next;
            if self.slots[at as usize].word & BLOCK_MASK == block.0 {
                self.slots[previous as usize].next = next;
                self.free(at);
            } else {
                previous = at;
            }
            at = next;
        }
    }

    fn free(&mut self, slot: u32) {
        self.counts.subtract(self.slots[slot as usize].word);
        self.slots[slot as usize] = Slot { word: 0, checksum: 0, next: NONE };
    }

    fn replace(&mut self, slot: SlotIndex, word: u64) {
        let place = &mut self.slots[slot.0 as usize].word;
        self.counts.subtract(*place);
        self.counts.add(word);
        *place = word;
    }

    fn bucket(&self, block: CoreBlock) -> usize {
        bucket_in(self.heads.len(), block)
    }
}

/// Sixteen neighbouring blocks share a cache line of bucket heads.
fn bucket_in(buckets: usize, block: CoreBlock) -> usize {
    let group = (block.0 >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let group = group >> 24;
    ((group << 4 | block.0 & 15) as usize) & (buckets - 1)
}

/// One version of a block at most: those on their way to the log do not count yet.
fn owes_parity(word: u64) -> bool {
    state_of(word) == State::Dirty && Marks(word >> MARKS_SHIFT).contains(Marks::REPLAYED)
}

fn state_of(word: u64) -> State {
    state_from(word >> STATE_SHIFT & 7)
}

fn target_of(word: u64) -> State {
    state_from(word >> TARGET_SHIFT & 7)
}

fn state_from(code: u64) -> State {
    match code {
        0 => State::Free,
        1 => State::Pending,
        2 => State::Dirty,
        3 => State::Written,
        4 => State::Clean,
        _ => unreachable!("no such state"),
    }
}

fn with_state(word: u64, state: State) -> u64 {
    word & !(7 << STATE_SHIFT) | (state as u64) << STATE_SHIFT
}

fn with_target(word: u64, state: State) -> u64 {
    word & !(7 << TARGET_SHIFT) | (state as u64) << TARGET_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn pending(slot: u32, block: u64, target: State) -> Version {
        Version {
            slot: SlotIndex(slot),
            block: CoreBlock(block),
            state: State::Pending,
            target,
            unit: 0,
            checksum: slot,
            marks: Marks::NONE,
        }
    }

    #[test]
    fn reader_sees_the_old_version_until_the_new_one_is_written() {
        let mut map = LineMap::new(64);
        map.insert(pending(0, 5, State::Dirty));
        map.publish(SlotIndex(0));
        map.insert(pending(1, 5, State::Dirty));
        assert_eq!(map.published(CoreBlock(5)).unwrap().slot, SlotIndex(0));
        assert_eq!(map.newest(CoreBlock(5)).unwrap().slot, SlotIndex(1));
        map.publish(SlotIndex(1));
        assert_eq!(map.published(CoreBlock(5)).unwrap().slot, SlotIndex(1));
        assert_eq!(map.counts().dirty, 1);
    }

    #[test]
    fn failed_version_brings_the_older_one_back() {
        let mut map = LineMap::new(64);
        map.insert(pending(0, 5, State::Dirty));
        map.publish(SlotIndex(0));
        map.insert(pending(1, 5, State::Dirty));
        map.remove(SlotIndex(1));
        assert_eq!(map.newest(CoreBlock(5)).unwrap().slot, SlotIndex(0));
    }

    #[test]
    fn later_record_that_is_written_first_wins() {
        let mut map = LineMap::new(64);
        map.insert(pending(0, 5, State::Dirty));
        map.insert(pending(1, 5, State::Dirty));
        assert!(map.publish(SlotIndex(1)));
        assert!(!map.publish(SlotIndex(0)), "superseded while it was on its way");
        assert_eq!(map.published(CoreBlock(5)).unwrap().slot, SlotIndex(1));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64, bool),
        Publish(usize),
        Fail(usize),
        RemoveBlock(u64),
        /// As after an unclean stop, where nothing is mapped yet.
        Replay(u64),
        /// The core has a version of the block, its parity recomputed.
        Settle(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u64..12, any::<bool>()).prop_map(|(block, dirty)| Step::Insert(block, dirty)),
            4 => any::<usize>().prop_map(Step::Publish),
            1 => any::<usize>().prop_map(Step::Fail),
            1 => (0u64..12).prop_map(Step::RemoveBlock),
            2 => (0u64..12).prop_map(Step::Replay),
            1 => (0u64..12).prop_map(Step::Settle),
        ]
    }

    proptest! {
        /// The twin keeps for each block the list of its versions, oldest first.
        #[test]
        fn map_agrees_with_a_plain_twin(steps in prop::collection::vec(step(), 0..200)) {
            let mut map = LineMap::new(16);
            let mut twin: BTreeMap<u64, Vec<(u32, bool)>> = BTreeMap::new();
            let mut on_the_way: Vec<(u32, u64)> = Vec::new();
            for step in steps {
                let used = |slot: &u32| {
                    twin.values().flatten().any(|(used, _)| used == slot)
                        || on_the_way.iter().any(|(used, _)| used == slot)
                };
                let free = (0..16).find(|slot| !used(slot));
                match step {
                    Step::Insert(block, dirty) => {
                        let Some(slot) = free else { continue };
                        let target = if dirty { State::Dirty } else { State::Clean };
                        let older = map.newest(CoreBlock(block));
                        let inherits = dirty && older.is_some_and(|older| older.target == target
                            && older.marks.contains(Marks::REPLAYED));
                        let marks = if inherits { Marks::REPLAYED } else { Marks::NONE };
                        map.insert(Version { marks, ..pending(slot, block, target) });
                        twin.entry(block).or_default().push((slot, false));
                        on_the_way.push((slot, block));
                    }
                    Step::Replay(block) => {
                        let Some(slot) = free.filter(|_| map.newest(CoreBlock(block)).is_none())
                        else { continue };
                        let (state, marks) = (State::Dirty, Marks::REPLAYED);
                        map.insert(Version { state, marks, ..pending(slot, block, state) });
                        twin.entry(block).or_default().push((slot, true));
                    }
                    Step::Settle(block) => {
                        let before = map.counts().replayed;
                        let published = map.published(CoreBlock(block));
                        let owed = published.is_some_and(|it| it.marks.contains(Marks::REPLAYED));
                        map.unmark_block(CoreBlock(block), Marks::REPLAYED);
                        prop_assert_eq!(map.counts().replayed, before - u64::from(owed));
                    }
                    Step::Publish(index) if !on_the_way.is_empty() => {
                        let (slot, block) = on_the_way.remove(index % on_the_way.len());
                        let versions = twin.entry(block).or_default();
                        let place = versions.iter().position(|(used, _)| *used == slot);
                        prop_assert_eq!(map.publish(SlotIndex(slot)), place.is_some());
                        if let Some(place) = place {
                            versions[place].1 = true;
                            versions.drain(..place);
                        }
                    }
                    Step::Fail(index) if !on_the_way.is_empty() => {
                        let (slot, block) = on_the_way.remove(index % on_the_way.len());
                        map.remove(SlotIndex(slot));
                        twin.entry(block).or_default().retain(|(used, _)| *used != slot);
                    }
                    Step::RemoveBlock(block) => {
                        let there = twin.remove(&block).is_some_and(|v| !v.is_empty());
                        prop_assert_eq!(map.remove_block(CoreBlock(block)), there);
                    }
                    Step::Publish(_) | Step::Fail(_) => {}
                }
                map.self_check();
                for block in 0..12 {
                    let versions = twin.get(&block).cloned().unwrap_or_default();
                    let newest = map.newest(CoreBlock(block)).map(|version| version.slot.0);
                    prop_assert_eq!(newest, versions.last().map(|(slot, _)| *slot));
                    let published = map.published(CoreBlock(block)).map(|version| version.slot.0);
                    let expected = versions.iter().rev().find(|(_, published)| *published);
                    prop_assert_eq!(published, expected.map(|(slot, _)| *slot));
                }
            }
        }
    }
}
