//! Blocks of stripes with suspect parity, until a log above the array has written them again.
//!
//! 1. After an unclean shutdown the owner of the log names the blocks in it, before any of them is
//!    written again; 2. the parity beside those blocks is suspect: it replaces nothing, and is not
//!    updated by a difference; 3. writing there recomputes the parity, and clears the suspicion. A
//!    member that is lost meanwhile costs the data that only suspect parity could reconstruct:
//!    reads of it fail, and a rebuild puts it on the list of lost blocks.
//!
//! A write tears the parity beside the blocks that it changes, and no other: the rest of what it
//! writes is unchanged. So suspicion is about a block of every parity strip, not about a stripe.
//!
//! **Invariants**: suspicion is cleared only when the parity there was recomputed from data alone,
//! or the data that it would have reconstructed is on the list of lost blocks.
//! **Not here**: stripes that an unclean shutdown may have torn and no log knows (`resync`); these
//! are known stripe by stripe.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use headpond_block::{BLOCK_BYTES, ByteRange};

use super::Array;
use crate::layout::Stripe;
use crate::plan::{ParityTrust, Span};
use crate::split;

/// Blocks that share a word.
const WORD_BLOCKS: u64 = u64::BITS as u64;

/// A set of places: a stripe, and a block of each of its parity strips.
#[derive(Default)]
pub(super) struct SuspectParity {
    /// A bit for each block, numbered through all stripes.
    words: RefCell<BTreeMap<u64, u64>>,
    count: Cell<u64>,
}

impl SuspectParity {
    pub fn is_empty(&self) -> bool {
        self.count.get() == 0
    }

    pub fn count(&self) -> u64 {
        self.count.get()
    }

    /// Whether there is any among some blocks.
    fn any(&self, blocks: std::ops::Range<u64>) -> bool {
        let words = self.words.borrow();
        let near = blocks.start / WORD_BLOCKS..blocks.end.div_ceil(WORD_BLOCKS);
        words.range(near).any(|(index, word)| word & mask(*index, &blocks) != 0)
    }

    fn contains(&self, block: u64) -> bool {
        !self.is_empty() && self.any(block..block + 1)
    }

    fn add(&self, blocks: std::ops::Range<u64>) {
        let mut words = self.words.borrow_mut();
        for index in blocks.start / WORD_BLOCKS..blocks.end.div_ceil(WORD_BLOCKS) {
            let word = words.entry(index).or_default();
            let new = mask(index, &blocks) & !*word;
            *word |= new;
            self.count.update(|count| count + u64::from(new.count_ones()));
        }
    }

    /// Checks the count; for tests and simulation.
    ///
    /// # Panics
    /// Where it is wrong.
    pub fn self_check(&self) {
        let words = self.words.borrow();
        assert!(words.values().all(|word| *word != 0), "each word has a doubt");
        let count: u64 = words.values().map(|word| u64::from(word.count_ones())).sum();
        assert_eq!(count, self.count.get(), "doubts are counted");
    }

    fn remove(&self, blocks: std::ops::Range<u64>) {
        let mut words = self.words.borrow_mut();
        let near = blocks.start / WORD_BLOCKS..blocks.end.div_ceil(WORD_BLOCKS);
        let mut empty = Vec::new();
        for (index, word) in words.range_mut(near) {
            let old = *word & mask(*index, &blocks);
            *word &= !old;
            self.count.update(|count| count - u64::from(old.count_ones()));
            if *word == 0 {
                empty.push(*index);
            }
        }
        for index in empty {
            words.remove(&index);
        }
    }
}

/// The bits of a word that stand for some blocks.
fn mask(index: u64, blocks: &std::ops::Range<u64>) -> u64 {
    let first = index * WORD_BLOCKS;
    let (start, end) = (blocks.start.max(first), blocks.end.min(first + WORD_BLOCKS));
    if start >= end {
        return 0;
    }
    u64::MAX >> (WORD_BLOCKS - (end - start)) << (start - first)
}

impl Array {
    /// Marks the parity beside a range as suspect that a log above has found after an unclean
    /// shutdown, and will write again with `RECOMPUTE_PARITY`. No parity is suspect where no such
    /// log was in front of the array, where the stripe journal has the torn stripes, or where
    /// suspect parity is used by force.
    pub fn mark_suspect(&self, range: ByteRange) {
        if let Some(former) = self.former() {
            former.mark_suspect(range.intersect(ByteRange::at(0, former.layout.array_bytes())));
        }
        if !self.needs_parity.get() || headpond_block::defect!(PatchTornParity) {
            return;
        }
        for piece in split::pieces(&self.layout, range) {
            if !self.is_verified(piece.stripe) {
                self.suspect_parity.add(self.blocks_around(piece.stripe, &piece.extent.span));
            }
        }
    }

    /// Whether a log above may have blocks of an unclean shutdown.
    pub(crate) fn await_log(&self, is_sound: bool) {
        self.needs_parity.set(!is_sound);
    }

    /// Blocks of a member in stripes, whose parity replaces nothing until the log has written them
    /// again.
    pub fn suspect_parity_blocks(&self) -> u64 {
        self.suspect_parity.count() + self.former().map_or(0, Array::suspect_parity_blocks)
    }

    /// Whether the parity of a part of a stripe matches its data.
    pub(super) fn parity_trust_in(&self, stripe: Stripe, span: &Span) -> ParityTrust {
        let is_suspect = !self.suspect_parity.is_empty()
            && self.suspect_parity.any(self.blocks_around(stripe, span));
        if is_suspect { ParityTrust::Stale } else { self.parity_trust(stripe) }
    }

    /// The suspect parts of its parity strips, block by block.
    pub(super) fn suspect_in(&self, stripe: Stripe) -> impl Iterator<Item = Span> + '_ {
        let (first, block_bytes) = (self.first_block(stripe), BLOCK_BYTES as u32);
        let blocks = 0..self.layout.strip_bytes() / block_bytes;
        let is_suspect = move |block: &u32| self.suspect_parity.contains(first + u64::from(*block));
        blocks.filter(is_suspect).map(move |it| it * block_bytes..(it + 1) * block_bytes)
    }

    /// The parity of a part of a stripe was recomputed from its data.
    pub(super) fn clear_suspect_parity(&self, stripe: Stripe, span: &Span) {
        if self.suspect_parity.is_empty() {
            return;
        }
        let block_bytes = BLOCK_BYTES as u32;
        let first = self.first_block(stripe);
        let start = first + u64::from(span.start.div_ceil(block_bytes));
        let end = first + u64::from(span.end / block_bytes);
        if start < end {
            self.suspect_parity.remove(start..end);
        }
    }

    /// The same for whole stripes.
    pub(super) fn clear_suspect_parity_of(&self, stripes: std::ops::RangeInclusive<Stripe>) {
        let next = Stripe(stripes.end().0 + 1);
        self.suspect_parity.remove(self.first_block(*stripes.start())..self.first_block(next));
    }

    /// The same for what lies in front of a byte, and counts no more.
    pub(super) fn clear_suspect_parity_before(&self, byte: u64) {
        let stripe = Stripe(byte.min(self.layout.array_bytes()) / self.layout.stripe_bytes());
        self.suspect_parity.remove(0..self.first_block(stripe));
    }

    fn first_block(&self, stripe: Stripe) -> u64 {
        stripe.0 * (u64::from(self.layout.strip_bytes()) / BLOCK_BYTES)
    }

    fn blocks_around(&self, stripe: Stripe, span: &Span) -> std::ops::Range<u64> {
        let block_bytes = BLOCK_BYTES as u32;
        let first = self.first_block(stripe);
        let start = first + u64::from(span.start / block_bytes);
        start..first + u64::from(span.end.div_ceil(block_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_testkit::{Break, assert_trips};

    #[test]
    fn check_notices_what_is_wrong_with_doubts() {
        let make = || {
            let suspect_parity = SuspectParity::default();
            suspect_parity.add(60..70);
            suspect_parity
        };
        let breaks: [Break<SuspectParity>; 3] = [
            ("doubts are counted", |it| it.count.set(9)),
            ("doubts are counted", |it| _ = it.words.borrow_mut().pop_first()),
            ("each word has a doubt", |it| _ = it.words.borrow_mut().insert(7, 0)),
        ];
        assert_trips(make, SuspectParity::self_check, &breaks);
    }

    #[test]
    fn doubts_are_added_and_ended_across_words_and_counted_once() {
        let suspect_parity = SuspectParity::default();
        suspect_parity.add(60..70);
        suspect_parity.add(68..130);
        assert_eq!(suspect_parity.count(), 70);
        assert!(
            suspect_parity.contains(60)
                && suspect_parity.contains(129)
                && !suspect_parity.contains(130)
        );
        suspect_parity.remove(64..128);
        assert_eq!(suspect_parity.count(), 6);
        assert!(
            suspect_parity.any(0..61)
                && !suspect_parity.any(64..128)
                && suspect_parity.any(100..129)
        );
        suspect_parity.remove(0..1000);
        assert!(suspect_parity.is_empty() && suspect_parity.words.borrow().is_empty());
    }
}
