//! Which of the devices that a cache lies on have what it holds: what was done to them says it.
//!
//! **Invariants**
//! - A copy counts as whole only where nothing has befallen it since it was made, or since the
//!   volume said that every copy has everything: from then on it is held to that.
//! - Where a block of any copy has changed, whoever is filled after that may have been given it,
//!   and is whole no more until the cache is made anew.

use crate::faults::CacheIll;
use std::collections::BTreeSet;

/// The judge's book of the copies, by the indexes of their disks.
#[derive(Clone, Debug, Default)]
pub(crate) struct CopyBook {
    /// So many the cache has; none where it lies on one device.
    count: usize,
    whole: BTreeSet<usize>,
    /// What a fault may still befall in this life.
    armed: BTreeSet<usize>,
    lost: BTreeSet<usize>,
    /// Their place may be given to others.
    leaving: BTreeSet<usize>,
    has_rotted: bool,
    /// Some disk may be on its way to being a copy.
    may_fill: bool,
}

impl CopyBook {
    /// A cache was made on these disks.
    pub fn made_on(&mut self, disks: impl IntoIterator<Item = usize>) {
        let whole: BTreeSet<usize> = disks.into_iter().collect();
        *self = Self { count: whole.len(), whole, armed: self.armed.clone(), ..Self::default() };
    }

    /// Whether there are any.
    pub fn are_kept(&self) -> bool {
        self.count > 0
    }

    /// Whether some copy has everything, and answers.
    pub fn hold(&self) -> bool {
        self.whole.iter().any(|copy| !self.armed.contains(copy))
    }

    /// Something is about to befall a copy.
    pub fn note(&mut self, copy: usize, ill: CacheIll) {
        match ill {
            CacheIll::Slow { .. } => return,
            CacheIll::Damage(_) => {
                self.whole.remove(&copy);
                self.has_rotted = true;
                return;
            }
            CacheIll::Reads { .. } | CacheIll::ReadsWrong { .. } => {}
            CacheIll::Writes { .. } | CacheIll::Flush | CacheIll::Gone | CacheIll::Hang => {
                self.lose(copy);
            }
        }
        self.armed.insert(copy);
    }

    /// A copy may be out of use from now on.
    pub fn lose(&mut self, copy: usize) {
        self.whole.remove(&copy);
        self.lost.insert(copy);
        // A spare may stand by.
        self.may_fill = true;
    }

    /// Nothing befalls a disk any more that was about to.
    pub fn disarm(&mut self, copy: usize) {
        self.armed.remove(&copy);
    }

    /// Faults end with the life that they befall.
    pub fn begin_life(&mut self) {
        self.armed.clear();
    }

    /// The volume says that these disks are the copies, and that each has everything.
    pub fn note_whole(&mut self, copies: &BTreeSet<usize>) {
        let (before, armed) = (&self.whole, &self.armed);
        let is_clean = |copy: &&usize| !self.has_rotted || before.contains(copy);
        let is_sure = |copy: &&usize| !armed.contains(copy) || before.contains(copy);
        self.whole = copies.iter().filter(is_clean).filter(is_sure).copied().collect();
        self.lost.append(&mut self.leaving);
        self.lost.retain(|copy| !copies.contains(copy));
    }

    /// Another disk is to be filled, perhaps in the place of this one.
    pub fn fill(&mut self, leaving: Option<usize>) {
        self.may_fill = true;
        self.leaving.extend(leaving);
        if let Some(leaving) = leaving.filter(|_| self.has_rotted) {
            self.whole.remove(&leaving);
        }
    }

    /// Whether a scrub may be refused because a copy is being filled.
    pub fn may_be_filling(&self) -> bool {
        self.may_fill
    }

    /// Whether there may be fewer copies than the cache was made with, so that whoever joins is
    /// given what a lost one had.
    pub fn may_lack_one(&self) -> bool {
        self.may_be_filling() || !self.lost().is_empty()
    }

    /// Copies that have everything.
    pub fn whole(&self) -> Vec<usize> {
        self.whole.iter().copied().collect()
    }

    /// Copies that were lost.
    pub fn lost(&self) -> Vec<usize> {
        self.lost.iter().copied().collect()
    }

    /// Disks with which alone the volume must start, or must not show anything wrong: whether it
    /// must start.
    pub fn alone(&self) -> Vec<(usize, bool)> {
        let must = self.whole.difference(&self.leaving).map(|copy| (*copy, true));
        let may = self.lost.union(&self.leaving).filter(|_| !self.has_rotted);
        must.chain(may.map(|copy| (*copy, false))).collect()
    }

    /// Whether it may be befallen by this without all being lost.
    pub fn would_hold(&self, copy: usize, ill: CacheIll) -> bool {
        let mut after = self.clone();
        after.note(copy, ill);
        after.hold()
    }

    /// What a start with this copy alone may expect.
    pub fn with_only(&self, copy: usize) -> Self {
        let mut alone = self.clone();
        alone.begin_life();
        alone.whole.retain(|other| *other == copy);
        alone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Damage;

    fn book() -> CopyBook {
        let mut book = CopyBook::default();
        book.made_on([0, 1]);
        book
    }

    #[test]
    fn one_copy_of_two_may_be_lost_and_the_other_may_not() {
        let mut book = book();
        book.note(0, CacheIll::Gone);
        assert!(book.hold() && !book.would_hold(1, CacheIll::Flush));
        book.note(1, CacheIll::Reads { times: 1 });
        assert!(!book.hold());
        book.begin_life();
        assert!(book.hold(), "reads that failed go on with the next life");
    }

    #[test]
    fn who_came_back_counts_again_unless_a_block_of_the_other_had_changed() {
        let all = BTreeSet::from([0, 1]);
        let mut sound = book();
        sound.lose(0);
        sound.note_whole(&all);
        assert!(sound.would_hold(1, CacheIll::Gone));
        let mut rotten = book();
        rotten.note(1, CacheIll::Damage(Damage::Flip));
        rotten.lose(0);
        rotten.note_whole(&all);
        assert!(!rotten.hold(), "it may have been filled with what had changed");
        rotten.made_on([0, 1]);
        assert!(rotten.hold());
    }

    #[test]
    fn a_fault_that_has_not_struck_yet_still_counts() {
        let mut book = book();
        book.note(0, CacheIll::Flush);
        book.note_whole(&BTreeSet::from([0, 1]));
        assert!(!book.would_hold(1, CacheIll::Gone));
        book.begin_life();
        book.note_whole(&BTreeSet::from([0, 1]));
        assert!(book.would_hold(1, CacheIll::Gone));
    }
}
