//! Distributed spare space in place of lost members.
//!
//! A slot of spare space is lent to a role. The strip of the role in a row is then in the cell that
//! the slot has in that row. Where the member of that cell is lost as well and has a slot of its
//! own, it is in the cell of that slot, and so on: the chain ends at a member that is in use, or at
//! one whose slot does not have the row yet. No chain is a cycle: each cell replaces one other at
//! most, and no strip of a stripe has its own cell in spare space.
//!
//! **Invariants**
//! - The strips of a stripe are at the ends of chains of their own, in columns of their own; so a
//!   stripe lacks no more strips than there are lost members that spare space does not replace
//!   completely.
//! - A slot has a row once the role's strip there was written to the end of its chain, or when
//!   there is no such end. Filling a member's slot later includes what that one had been lent in
//!   its turn.
//! - A slot that was freed is lent again only when every operation in flight at that time is
//!   complete: an old read must not find, nor an old write hit, the new contents of its cells.

use std::rc::Rc;

use super::super::health::Earlier;
use super::{FilledRows, Holders, Lent, Member, Members};
use crate::layout::{Role, StripCell};
use crate::superblock::FillRecord;

/// A freed slot, and the operations in flight on the members.
pub(super) struct Settling {
    slot: u16,
    earlier: Vec<(Rc<Member>, Earlier)>,
}

impl Members {
    /// All holders of a cell, which get every write to it. The first is to be read.
    pub(in crate::array) fn holders(&self, cell: StripCell) -> Holders {
        self.along(cell, |progress| progress.holds(cell.row))
    }

    /// All holders of a cell, or targets of it.
    pub(in crate::array) fn takers(&self, cell: StripCell) -> Holders {
        self.along(cell, |_| true)
    }

    /// Whose cell it is of which a member has the strip in a cell, or had while it was in use: its
    /// own, or one that it was lent; `None` for spare space that holds nothing.
    pub(in crate::array) fn home(&self, cell: StripCell) -> Option<StripCell> {
        let mut cell = cell;
        for _ in 0..=self.lent.len() {
            let Some(slot) = self.layout.slot_in(cell) else { return Some(cell) };
            let lent = self.lent[usize::from(slot)].borrow();
            let lent = lent.as_ref().filter(|lent| lent.progress.holds(cell.row))?;
            cell.role = lent.role;
        }
        None
    }

    /// The slot that stands in for a role.
    pub(in crate::array) fn lent_to(&self, role: Role) -> Option<Rc<Lent>> {
        if !self.any_lent.get() {
            return None;
        }
        let mut slots = self.lent.iter();
        slots.find_map(|lent| lent.borrow().as_ref().filter(|lent| lent.role == role).cloned())
    }

    /// Whether slots stand in for others than this role.
    pub(in crate::array) fn is_lent_beside(&self, role: Role) -> bool {
        self.lent.iter().any(|lent| lent.borrow().as_ref().is_some_and(|it| it.role != role))
    }

    /// A free slot without operations in flight.
    pub(in crate::array) fn free_slot(&self) -> Option<u16> {
        let slots = (0..self.lent.len()).map(|slot| slot as u16);
        let mut free = slots.filter(|slot| self.lent[usize::from(*slot)].borrow().is_none());
        free.find(|slot| !self.is_settling(*slot))
    }

    /// Whether operations are in flight on freed slots.
    pub(in crate::array) fn is_any_settling(&self) -> bool {
        (0..self.lent.len()).any(|slot| self.is_settling(slot as u16))
    }

    fn is_settling(&self, slot: u16) -> bool {
        let mut settling = self.settling.borrow_mut();
        // An excluded member gets no new writes, and its errors are ignored.
        let is_over = |(member, earlier): &(Rc<Member>, Earlier)| {
            earlier.is_over() || !self.is_present(member)
        };
        settling.retain(|it| !it.earlier.iter().all(is_over));
        settling.iter().any(|it| it.slot == slot)
    }

    /// Has a slot stand in for a role that is lost.
    pub(in crate::array) fn lend(&self, slot: u16, filled: FillRecord) {
        let FillRecord { role, rows } = filled;
        assert!(self.active(role).is_none() && self.lent_to(role).is_none(), "it lacks one");
        let lent = Lent { role, slot, progress: FilledRows::up_to(rows, &self.layout) };
        let before = self.lent[usize::from(slot)].replace(Some(Rc::new(lent)));
        assert!(before.is_none(), "a slot stands in for one role");
        self.any_lent.set(true);
    }

    /// Whether a slot is still lent so.
    pub(in crate::array) fn is_lent(&self, lent: &Rc<Lent>) -> bool {
        let now = self.lent[usize::from(lent.slot)].borrow();
        now.as_ref().is_some_and(|now| Rc::ptr_eq(now, lent))
    }

    /// Spare space holds all of a role, durably: it counts as lost no more.
    pub(in crate::array) fn note_whole(&self, role: Role) {
        self.note_found(role);
    }

    /// The role has a member again, and needs no spare space.
    pub(super) fn take_back(&self, role: Role) {
        if let Some(lent) = self.lent_to(role) {
            self.lent[usize::from(lent.slot)].replace(None);
            self.any_lent.set(self.lent.iter().any(|lent| lent.borrow().is_some()));
            let part = |member: Rc<Member>| {
                let earlier = member.health.part();
                (member, earlier)
            };
            let earlier = self.present().into_iter().map(part).collect();
            self.settling.borrow_mut().push(Settling { slot: lent.slot, earlier });
        }
    }

    /// What is lent, as it is to be recorded: one entry a slot.
    pub(in crate::array) fn lent_records(&self) -> Vec<Option<FillRecord>> {
        let record =
            |lent: &Rc<Lent>| FillRecord { role: lent.role, rows: lent.progress.recorded_rows() };
        self.lent.iter().map(|lent| lent.borrow().as_ref().map(record)).collect()
    }

    pub(super) fn check_lent(&self) {
        let mut lent = Vec::new();
        for (slot, it) in (0..).zip(&self.lent) {
            let it = it.borrow();
            let Some(it) = it.as_deref() else { continue };
            assert_eq!(it.slot, slot, "a slot knows its number");
            assert!(self.active(it.role).is_none(), "{:?} needs nobody to stand in", it.role);
            assert!(!lent.contains(&it.role), "two slots stand in for {:?}", it.role);
            it.progress.self_check();
            lent.push(it.role);
        }
        assert_eq!(self.any_lent.get(), !lent.is_empty(), "whether a slot is lent");
    }

    /// The members along the chain of a cell that have it, for targets by `has`.
    fn along(&self, cell: StripCell, has: impl Fn(&FilledRows) -> bool) -> Holders {
        let mut holders = Holders::new();
        let mut cell = cell;
        for _ in 0..=self.lent.len() {
            let slot = self.slot(cell.role);
            let member: Option<Rc<Member>> = slot.member.borrow().clone();
            let is_lost = member.is_none();
            holders.extend(member);
            if self.any_filling.get()
                && let Some(filling) = &*slot.filling.borrow()
                && has(&filling.progress)
            {
                holders.push(Rc::clone(&filling.member));
            }
            let lent = if is_lost { self.lent_to(cell.role) } else { None };
            let Some(lent) = lent.filter(|lent| has(&lent.progress)) else { break };
            cell = self.layout.spare_cell(lent.slot, cell.row);
        }
        holders
    }
}
