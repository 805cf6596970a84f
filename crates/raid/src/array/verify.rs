//! Verifying what a scrub reads: by the checksums of the integrity region, where they are valid,
//! and, on a mismatch, by those of a verifier.
//!
//! A wrong block counts as missing: where the redundancy suffices, all such blocks at one location
//! of a stripe are reconstructed from the others, if need be with one more that has no checksum;
//! the results must match their checksums. Where everything else at a location is known to be
//! correct, the rest is reconstructed from it. Else nothing is changed, and it is reported.
//!
//! **Invariants**: a block is only overwritten with contents that match its checksum, follow from
//! blocks that match theirs, or are a copy of one that does; a block that matches its checksum is
//! never changed; for unverified blocks the signed checksum stays.
//!
//! **Not here**: keeping the checksums (`integrity`), consistent stripes without them (`scrub`).

use std::collections::BTreeSet;

use headpond_block::{Buffer, Buffers};
use smallvec::SmallVec;

use super::Array;
use super::columns::{Columns, ParityMemory};
use super::scrub::{Copies, SECTOR_BYTES, Strips, bytes};
use crate::history::Trouble;
use crate::integrity::{BLOCK_BYTES, NO_SUM, sum_of};
use crate::layout::{Strip, StripCell, Stripe};
use crate::parity::Lost;

const BLOCK: usize = BLOCK_BYTES as usize;

/// The expected checksums of the blocks of a stripe's strips, or of its copies; empty where unknown
/// anything.
pub(super) struct Sums(Vec<Vec<u32>>);

/// What was changed in memory.
pub(super) struct JudgedOf<T> {
    pub(super) changed: SmallVec<[T; 2]>,
    /// Blocks whose correct contents are unknown.
    pub(super) suspect: BTreeSet<usize>,
    /// Those of them where a checksum speaks against what was found, and nothing has it.
    pub(super) disputed: BTreeSet<usize>,
}

pub(super) type Judged = JudgedOf<Strip>;
pub(super) type JudgedCopies = JudgedOf<StripCell>;

/// The places of strips in a stripe, or of copies.
type Places = SmallVec<[usize; 4]>;

impl<T: PartialEq> JudgedOf<T> {
    fn nothing() -> JudgedOf<T> {
        JudgedOf { changed: SmallVec::new(), suspect: BTreeSet::new(), disputed: BTreeSet::new() }
    }

    fn dispute(&mut self, block: usize) {
        self.suspect.insert(block);
        self.disputed.insert(block);
    }

    pub(super) fn note_changed(&mut self, what: T) {
        if !self.changed.contains(&what) {
            self.changed.push(what);
        }
    }
}

impl Sums {
    /// Of every strip of a stripe, in the order of [`crate::layout::Layout::strips`], by the
    /// integrity region.
    pub(super) fn of_parity(array: &Array, stripe: Stripe) -> Sums {
        if array.integrity.is_none() {
            return Sums(Vec::new());
        }
        let cells = array.cells_of(stripe).into_iter();
        Sums(cells.map(|cell| array.sums_of(stripe, cell)).collect())
    }

    /// Of every copy, by the integrity region.
    pub(super) fn of_copies(array: &Array, stripe: Stripe, copies: &Copies) -> Sums {
        if array.integrity.is_none() {
            return Sums(Vec::new());
        }
        Sums(copies.iter().map(|(cell, _)| array.sums_of(stripe, *cell)).collect())
    }

    /// Adds the verifier's checksums, strip after strip, of mismatched blocks without a checksum.
    pub(super) fn learn<'a>(
        &mut self,
        verified: impl Iterator<Item = &'a Vec<u32>>,
        misfits: &BTreeSet<usize>,
    ) {
        for (place, verified) in verified.enumerate() {
            if self.0.len() <= place {
                self.0.push(vec![NO_SUM; verified.len()]);
            }
            let known = &mut self.0[place];
            for block in misfits {
                if known[*block] == NO_SUM {
                    known[*block] = verified[*block];
                }
            }
        }
    }

    /// Whether a strip is, in this block, what it ought to be.
    pub(super) fn verifies(&self, strips: &Strips, strip: Strip, block: usize) -> bool {
        let place = strips.iter().position(|(read, _)| read.strip == strip);
        place.is_some_and(|place| self.is_right(place, block, &block_of(&strips[place].1, block)))
    }

    fn expected(&self, place: usize, block: usize) -> u32 {
        self.0.get(place).map_or(NO_SUM, |sums| sums[block])
    }

    fn is_right(&self, place: usize, block: usize, content: &Buffer) -> bool {
        let expected = self.expected(place, block);
        expected != NO_SUM && expected == sum_of(bytes(content))
    }

    /// Whether a block is, as far as anything is known of it.
    fn may_be(&self, place: usize, block: usize, content: &Buffer) -> bool {
        self.expected(place, block) == NO_SUM || self.is_right(place, block, content)
    }
}

/// The blocks of a strip of which some copy is not like the first.
pub(super) fn blocks_that_differ(copies: &Copies) -> BTreeSet<usize> {
    // All may have gone away meanwhile.
    let first = copies.first().map_or(&[][..], |(_, first)| bytes(first));
    let differs = |block: &usize| {
        let part = block * BLOCK..first.len().min((block + 1) * BLOCK);
        copies.iter().any(|(_, copy)| bytes(copy)[part.clone()] != first[part.clone()])
    };
    (0..first.len().div_ceil(BLOCK)).filter(differs).collect()
}

impl Array {
    /// Puts right in memory the blocks that are not what they ought to be, where the others
    /// suffice; of those that do not fit also where everything else is known to be right.
    pub(super) fn locate_by_sums(
        &self,
        stripe: Stripe,
        strips: &Strips,
        sums: &Sums,
        misfits: &BTreeSet<usize>,
    ) -> Judged {
        let mut judged = Judged::nothing();
        let blocks = if sums.0.is_empty() { 0 } else { self.blocks_of_strip() };
        for block in 0..blocks {
            let mut wrong = Places::new();
            let mut unknown = Places::new();
            for (place, (_, content)) in strips.iter().enumerate() {
                let content = block_of(content, block);
                match sums.expected(place, block) {
                    NO_SUM => unknown.push(place),
                    _ if sums.is_right(place, block, &content) => {}
                    _ => wrong.push(place),
                }
            }
            let suspects = self.suspects(&wrong, &unknown, misfits.contains(&block));
            let is_solved = suspects.iter().any(|suspects| {
                self.solve_block(stripe, strips, sums, block, suspects, &mut judged)
            });
            if !wrong.is_empty() && !is_solved {
                judged.dispute(block);
                self.note_finding(stripe, Trouble::Unexplained);
            }
        }
        judged
    }

    /// Which blocks of one place may be wrong together, likeliest first: those that are not what
    /// they ought to be, those with one more of which nothing is known, or where everything else is
    /// known to be right whatever is left.
    fn suspects(&self, wrong: &Places, unknown: &Places, is_misfit: bool) -> Vec<Places> {
        let most = self.layout.parity_strips();
        if wrong.is_empty() {
            let is_left = is_misfit && (1..=most).contains(&unknown.len());
            return is_left.then(|| unknown.clone()).into_iter().collect();
        }
        let with = |more: &usize| {
            let mut together = wrong.clone();
            together.push(*more);
            together.sort_unstable();
            together
        };
        let alone = std::iter::once(wrong.clone());
        // Parity first: it is what a torn write leaves behind.
        let sets = alone.chain(unknown.iter().rev().map(with));
        sets.filter(|set| set.len() <= most).collect()
    }

    /// Makes some blocks in one place of all strips from the others, and says whether what came out
    /// is what it ought to be. Otherwise nothing is changed.
    fn solve_block(
        &self,
        stripe: Stripe,
        strips: &Strips,
        sums: &Sums,
        block: usize,
        suspects: &Places,
        judged: &mut Judged,
    ) -> bool {
        let solved = self.block_solved(strips, block, suspects);
        let mut pairs = suspects.iter().zip(&solved);
        if !pairs.all(|(place, solved)| sums.may_be(*place, block, solved)) {
            return false;
        }
        for (place, solved) in suspects.iter().zip(&solved) {
            let (read, content) = &strips[*place];
            let cell = self.layout.cell(stripe, read.strip);
            if self.put_right(cell, &block_of(content, block), solved) {
                judged.note_changed(read.strip);
            }
        }
        true
    }

    /// What the wrong blocks in one place would be by the others.
    fn block_solved(&self, strips: &Strips, block: usize, wrong: &Places) -> SmallVec<[Buffer; 2]> {
        let data = self.layout.data_strips();
        let copy = |place: usize| Buffer::from_slice(bytes(&block_of(&strips[place].1, block)));
        let two = self.layout.parity_strips() == 2;
        let known = |place: usize| {
            (!wrong.contains(&place)).then(|| Buffers::from(&block_of(&strips[place].1, block)))
        };
        let mut columns: Columns = (0..data).map(known).collect();
        let lost: Places = wrong.iter().copied().filter(|place| *place < data).collect();
        let lost = match (lost.as_slice(), wrong.contains(&data)) {
            ([], _) => None,
            ([only], false) => Some(Lost::OneFromP(*only as u16)),
            ([only], true) => Some(Lost::OneFromQ(*only as u16)),
            (several, _) => Some(Lost::Two(several[0] as u16, several[1] as u16)),
        };
        if let Some(lost) = lost {
            let old = ParityMemory { p: copy(data), q: two.then(|| copy(data + 1)) };
            old.solve(&mut columns, lost);
        }
        let zeroed = || Buffer::zeroed(BLOCK);
        let mut parity = ParityMemory { p: zeroed(), q: two.then(zeroed) };
        parity.generate(&columns);
        let solved = |place: &usize| match *place {
            place if place < data => {
                let column = columns[place].as_ref().expect("it was solved");
                column.as_single().expect("one block").clone()
            }
            place if place == data => parity.p.clone(),
            _ => parity.q.clone().expect("the level has Q"),
        };
        wrong.iter().map(solved).collect()
    }

    /// Puts right in memory the copies whose blocks are not what they ought to be, from one that
    /// is.
    pub(super) fn compare_with_sums(
        &self,
        stripe: Stripe,
        copies: &Copies,
        sums: &Sums,
    ) -> JudgedCopies {
        let mut judged = JudgedCopies::nothing();
        if sums.0.is_empty() {
            return judged;
        }
        for block in 0..self.blocks_of_strip() {
            let part = |place: usize| copies[place].1.slice(block * BLOCK..(block + 1) * BLOCK);
            let mut places = 0..copies.len();
            let Some(right) = places.find(|it| sums.is_right(*it, block, &part(*it))) else {
                if (0..copies.len()).any(|it| !sums.may_be(it, block, &part(it))) {
                    judged.dispute(block);
                    self.note_finding(stripe, Trouble::Unexplained);
                }
                continue;
            };
            let right = part(right);
            for (place, (cell, _)) in copies.iter().enumerate() {
                let content = part(place);
                if bytes(&content) == bytes(&right) {
                    continue;
                }
                if sums.is_right(place, block, &content) {
                    // Two contents with one checksum: the majority is asked.
                    continue;
                }
                self.put_right(*cell, &content, &right);
                judged.note_changed(*cell);
            }
        }
        judged
    }

    /// Whether something had to be changed.
    fn put_right(&self, cell: StripCell, wrong: &Buffer, right: &Buffer) -> bool {
        let sectors = (0..BLOCK).step_by(SECTOR_BYTES).map(|start| start..start + SECTOR_BYTES);
        let differs = |part: &std::ops::Range<usize>| {
            bytes(wrong)[part.clone()] != bytes(right)[part.clone()]
        };
        let count = sectors.filter(differs).count() as u64;
        wrong.copy_from_buffer(right);
        if count > 0 {
            self.note_repaired(cell, count, true);
        }
        count > 0
    }

    /// The strips of a stripe are ready to be signed, except for suspect blocks.
    pub(super) fn note_whole_blocks(
        &self,
        stripe: Stripe,
        strips: &Strips,
        suspect: &BTreeSet<usize>,
    ) {
        if self.integrity.is_some() {
            for (read, content) in strips {
                let content = content.as_single().expect("scratch memory is contiguous");
                let cell = self.layout.cell(stripe, read.strip);
                self.note_sums(stripe, cell, sums(content, suspect));
            }
        }
    }

    /// The same for copies.
    pub(super) fn note_whole_copies(
        &self,
        stripe: Stripe,
        copies: &Copies,
        suspect: &BTreeSet<usize>,
    ) {
        if self.integrity.is_some() {
            for (cell, content) in copies {
                self.note_sums(stripe, *cell, sums(content, suspect));
            }
        }
    }

    fn blocks_of_strip(&self) -> usize {
        self.layout.strip_bytes() as usize / BLOCK
    }
}

fn block_of(content: &Buffers, block: usize) -> Buffer {
    let content = content.as_single().expect("scratch memory is contiguous");
    content.slice(block * BLOCK..(block + 1) * BLOCK)
}

/// The checksums of the blocks of a strip; `None` for suspect ones.
fn sums<'a>(
    content: &'a Buffer,
    suspect: &'a BTreeSet<usize>,
) -> impl Iterator<Item = Option<u32>> + 'a {
    let blocks = bytes(content).chunks_exact(BLOCK).enumerate();
    blocks.map(|(block, content)| (!suspect.contains(&block)).then(|| sum_of(content)))
}
