//! Taking members out of use, and the superblocks that say so.
//!
//! A failure counts in memory at once. It is *settled* when the survivors durably carry it; until
//! then no request that did without the member is acknowledged. Where a group has lost too much,
//! nothing is recorded: the last members to go hold what the others hold, and may yet come back.

use std::cell::{Cell, RefCell};

use headpond_block::sync::{Notify, join_all};
use headpond_block::{Outcome, Submission};

use super::{Array, write_superblock};
use crate::layout::Role;
use crate::superblock::{ArrayRecord, RoleState, Superblock};

/// What the members' superblocks say, and whether that is still true.
pub(super) struct Recorder {
    record: RefCell<ArrayRecord>,
    changes: Cell<u64>,
    recorded: Cell<u64>,
    busy: Cell<bool>,
    progress: Notify,
}

impl Recorder {
    pub(super) fn new(record: ArrayRecord) -> Recorder {
        Recorder {
            record: RefCell::new(record),
            changes: Cell::new(0),
            recorded: Cell::new(0),
            busy: Cell::new(false),
            progress: Notify::new(),
        }
    }

    pub(super) fn record(&self) -> std::cell::Ref<'_, ArrayRecord> {
        self.record.borrow()
    }

    fn is_settled(&self) -> bool {
        self.changes.get() == self.recorded.get()
    }

    fn note_change(&self) {
        self.changes.set(self.changes.get() + 1);
    }
}

impl Array {
    /// Takes a member out of use, where it still is in use, and waits until that is settled.
    pub(super) async fn fail_member(&self, role: Role) {
        if self.members.active(role).is_some() {
            self.members.fail(role);
            self.recorder.note_change();
        }
        self.settle().await;
    }

    /// Waits until the survivors durably know every failure. Returns at once where there is none.
    pub(super) async fn settle(&self) {
        while !self.recorder.is_settled() && !self.members.is_broken() {
            if self.recorder.busy.get() {
                self.recorder.progress.wait().await;
                continue;
            }
            let _turn = Turn::take(&self.recorder);
            let changes = self.recorder.changes.get();
            self.write_superblocks().await;
            self.recorder.recorded.set(changes);
        }
    }

    /// Changes the record of the array on all active members, with a higher event count. Members
    /// that cannot take it fail, which has to be settled in turn.
    ///
    /// # Errors
    /// Where the array has lost too many members.
    pub(crate) async fn change_record(&self, change: impl FnOnce(&mut ArrayRecord)) -> Outcome {
        change(&mut self.recorder.record.borrow_mut());
        self.recorder.note_change();
        self.settle().await;
        self.check_intact()
    }

    /// What the owner of the array last raised by [`Array::bump_owner_generation`].
    pub fn owner_generation(&self) -> u64 {
        self.recorder.record().owner_generation
    }

    /// Raises the owner's generation, durably on every active member.
    ///
    /// # Errors
    /// Where the array has lost too many members.
    pub async fn bump_owner_generation(&self) -> Outcome {
        self.change_record(|record| record.owner_generation += 1).await
    }

    async fn write_superblocks(&self) {
        let (roles, writes): (Vec<Role>, Vec<Submission<'_>>) = self
            .next_superblocks()
            .into_iter()
            .filter_map(|superblock| {
                let role = superblock.role;
                let device = self.members.active(role)?;
                let write = Submission::pending(write_superblock(device, superblock));
                Some((role, write))
            })
            .unzip();
        for (role, outcome) in roles.into_iter().zip(join_all(writes).await) {
            if outcome.is_err() && self.members.active(role).is_some() {
                self.members.fail(role);
                self.recorder.note_change();
            }
        }
    }

    /// The superblock of every active member, one event on.
    fn next_superblocks(&self) -> Vec<Superblock> {
        let mut record = self.recorder.record.borrow_mut();
        record.event_count += 1;
        for (role, member) in self.members.iter() {
            record.roles[role.index()].state = member.state.get();
        }
        let active = self.members.iter().filter(|(_, m)| m.state.get() == RoleState::Active);
        let superblock = |(role, member): (Role, &super::Member)| {
            member.sequence.set(member.sequence.get() + 1);
            let (member_uuid, sequence) = (member.uuid, member.sequence.get());
            Superblock { array: record.clone(), member_uuid, role, sequence }
        };
        active.map(superblock).collect()
    }
}

/// The turn of one caller to write superblocks; over also when that caller is dropped.
struct Turn<'a>(&'a Recorder);

impl<'a> Turn<'a> {
    fn take(recorder: &'a Recorder) -> Self {
        assert!(!recorder.busy.replace(true), "one caller at a time writes superblocks");
        Turn(recorder)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.busy.set(false);
        self.0.progress.notify_all();
    }
}
