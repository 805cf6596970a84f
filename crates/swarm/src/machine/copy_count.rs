//! What is to be said of the number of copies of a RAID 1, which commands change.
//!
//! **Invariants**
//! - An array has as many copies as it was last seen with, or as a command would have given it that
//!   was begun since.
//! - Of those, as many have everything as had it before the commands; when the volume says that
//!   every role has a member it is held to all of them.

use crate::offence::Offence;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

/// The judge's book of the copies.
#[derive(Clone, Debug, Default)]
pub(crate) struct CopyCount {
    /// Numbers of roles that the array may have; none where nobody has looked yet.
    may_have: RefCell<BTreeSet<usize>>,
    /// Copies that have everything, where nothing was lost.
    whole: Cell<Option<usize>>,
    was_asked_for: Cell<bool>,
    /// A cut may have come between the two steps of giving one up: it is out of use, and nobody
    /// takes its place.
    pub may_lack: Cell<bool>,
}

impl CopyCount {
    /// Whether a copy may be out of use that nothing befell.
    pub fn may_lack(&self) -> bool {
        self.may_lack.get()
    }

    /// Whether the number was ever to be changed.
    pub fn was_asked_for(&self) -> bool {
        self.was_asked_for.get()
    }

    /// Copies that have everything, where nothing was lost; `None` where their number was never to
    /// be changed.
    pub fn whole(&self) -> Option<usize> {
        self.whole.get().filter(|_| self.was_asked_for.get())
    }

    /// A volume was opened in which the array has so many roles, which all have a member or not.
    ///
    /// # Errors
    /// Where it must have another number.
    pub fn judge(&self, found: usize, is_whole: bool) -> Result<(), Offence> {
        self.check(found)?;
        self.may_have.replace(BTreeSet::from([found]));
        if is_whole || self.whole.get().is_none() {
            self.whole.set(Some(found));
        }
        if is_whole {
            self.may_lack.set(false);
        }
        Ok(())
    }

    pub fn check(&self, found: usize) -> Result<(), Offence> {
        let may_have = self.may_have.borrow();
        match may_have.is_empty() || may_have.contains(&found) {
            true => Ok(()),
            false => Err(Offence::Command(format!("{found} copies, where it was {may_have:?}"))),
        }
    }

    /// A command was given after which it would have so many.
    pub fn begin(&self, next: usize) {
        self.was_asked_for.set(true);
        self.may_have.borrow_mut().insert(next);
    }

    /// One is about to go, perhaps of those that have everything; all have, where it is said how
    /// many there are.
    pub fn leaves(&self, all: Option<usize>) {
        let whole = all.or(self.whole.get());
        self.whole.set(whole.map(|whole| (whole - 1).max(1)));
        self.may_lack.set(true);
    }

    pub fn has(&self, number: usize) {
        self.may_have.replace(BTreeSet::from([number]));
    }

    /// Nothing came of a command.
    pub fn put_back(&self, before: Self) {
        self.may_have.replace(before.may_have.into_inner());
        self.whole.set(before.whole.get());
        self.may_lack.set(before.may_lack.get());
    }
}
