//! In which order things were used last, and how many were used since a given one.
//!
//! Every use takes the next slot of a bitmap, and the slot of the use before is cleared: what is
//! set behind a slot was used later. A Fenwick tree over the words of the bitmap counts them;
//! when the slots run out, those in use move together.
//!
//! **Invariants**: a slot that is set has one holder; memory is bounded by twice the holders.
//!
//! **Source**: Bennett and Kruskal, *LRU stack processing*, IBM J. Res. Dev. 19 (1975): a tree
//! over the times of last use. Fenwick, *A new data structure for cumulative frequency tables*,
//! 1994. Ours counts words of 64 slots, so that the tree stays in the nearest cache.

/// Who used a slot.
pub(crate) type Holder = u32;

const SLOTS_MIN: usize = 1024;

#[derive(Clone, Debug)]
pub(crate) struct Recency {
    holders: Vec<Holder>,
    /// A bit for each slot in use.
    words: Vec<u64>,
    /// Fenwick tree of the bits set in each word; the first entry is not used.
    sums: Vec<u32>,
    next: usize,
    live: usize,
}

impl Recency {
    pub(crate) fn new() -> Self {
        let mut recency =
            Self { holders: Vec::new(), words: Vec::new(), sums: Vec::new(), next: 0, live: 0 };
        recency.resize(SLOTS_MIN);
        recency
    }

    /// True when the next use needs [`Self::make_room`] first.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.next == self.holders.len()
    }

    /// A use now: its slot.
    #[inline]
    pub(crate) fn push(&mut self, holder: Holder) -> u32 {
        assert!(!self.is_full(), "there is a slot");
        let slot = self.next;
        self.holders[slot] = holder;
        self.words[slot / 64] |= 1 << (slot % 64);
        self.count(slot / 64, 1);
        self.next += 1;
        self.live += 1;
        slot as u32
    }

    /// The use at this slot is not the last one any more.
    #[inline]
    pub(crate) fn remove(&mut self, slot: u32) {
        let slot = slot as usize;
        let bit = 1 << (slot % 64);
        assert!(self.words[slot / 64] & bit != 0, "slot {slot} is in use");
        self.words[slot / 64] &= !bit;
        self.count(slot / 64, u32::MAX);
        self.live -= 1;
    }

    /// How many were used after this slot.
    #[inline]
    pub(crate) fn newer_than(&self, slot: u32) -> u64 {
        let slot = slot as usize;
        let until = self.words[slot / 64] & (u64::MAX >> (63 - slot % 64));
        let mut older = until.count_ones() as usize;
        let mut at = slot / 64;
        while at > 0 {
            older += self.sums[at] as usize;
            at &= at - 1;
        }
        (self.live - older) as u64
    }

    /// Moves those in use together, with as many free slots behind them at least; `moved` is told
    /// where each one is now.
    pub(crate) fn make_room(&mut self, mut moved: impl FnMut(Holder, u32)) {
        let in_use = |slot: &usize| self.words[slot / 64] & (1 << (slot % 64)) != 0;
        let slots = (0..self.next).filter(in_use);
        let kept: Vec<Holder> = slots.map(|slot| self.holders[slot]).collect();
        assert_eq!(kept.len(), self.live);
        self.resize((2 * self.live).next_power_of_two().max(SLOTS_MIN));
        for holder in kept {
            moved(holder, self.push(holder));
        }
    }

    /// Gives every holder another number.
    pub(crate) fn rename(&mut self, rename: impl Fn(Holder) -> Holder) {
        for slot in 0..self.next {
            if self.words[slot / 64] & (1 << (slot % 64)) != 0 {
                self.holders[slot] = rename(self.holders[slot]);
            }
        }
    }

    fn resize(&mut self, slots: usize) {
        let words = slots / 64;
        (self.next, self.live) = (0, 0);
        for (entries, len) in [(&mut self.holders, slots), (&mut self.sums, words + 1)] {
            entries.clear();
            entries.resize(len, 0);
        }
        self.words.clear();
        self.words.resize(words, 0);
    }

    /// Adds to the count of a word, modulo 2^32.
    #[inline]
    fn count(&mut self, word: usize, change: u32) {
        let mut at = word + 1;
        while at < self.sums.len() {
            self.sums[at] = self.sums[at].wrapping_add(change);
            at += at & at.wrapping_neg();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn newer_ones_are_those_in_front_of_the_stack(
            uses in prop::collection::vec(0u32..700, 1..6000),
        ) {
            let mut recency = Recency::new();
            let mut slots = vec![None; 700];
            let mut stack: Vec<u32> = Vec::new();
            for holder in uses {
                let depth = stack.iter().position(|&other| other == holder);
                let slot: Option<u32> = slots[holder as usize];
                prop_assert_eq!(
                    slot.map(|slot| recency.newer_than(slot)),
                    depth.map(|depth| depth as u64)
                );
                if let (Some(slot), Some(depth)) = (slot, depth) {
                    recency.remove(slot);
                    stack.remove(depth);
                }
                if recency.is_full() {
                    recency.make_room(|holder, slot| slots[holder as usize] = Some(slot));
                }
                slots[holder as usize] = Some(recency.push(holder));
                stack.insert(0, holder);
            }
        }
    }
}
