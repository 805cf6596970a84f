//! The members of an array and which of them are in use.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use headpond_block::{BlockDevice, DeviceName, Request, Submission};
use smallvec::SmallVec;
use uuid::Uuid;

use crate::layout::{Layout, Role, Strip, Stripe};
use crate::superblock::{RoleState, Superblock};

/// A member: a role of the array, and the device in it where there is one.
pub(crate) struct Member {
    pub(crate) device: Option<Rc<dyn BlockDevice>>,
    pub(crate) uuid: Uuid,
    pub(crate) state: Cell<RoleState>,
    /// Of its newest superblock that is stable.
    pub(super) sequence: Cell<u64>,
    /// Of the same.
    pub(super) event_count: Cell<u64>,
    writes_done: Cell<u64>,
    writes_flushed: Cell<u64>,
}

/// Strips of one stripe that cannot be reached; seldom more than two.
pub(super) type LostStrips = SmallVec<[Strip; 4]>;

/// All members of an array.
pub(crate) struct Members {
    list: Vec<Member>,
    /// The lost members of each group.
    lost: RefCell<Vec<SmallVec<[Role; 2]>>>,
    any_lost: Cell<bool>,
    broken: Cell<bool>,
    redundancy: usize,
    width: usize,
    data_offset: u64,
}

impl Member {
    /// A member in use, as its superblock describes it.
    pub(crate) fn active_on(device: Rc<dyn BlockDevice>, superblock: &Superblock) -> Member {
        Member {
            device: Some(device),
            uuid: superblock.member_uuid,
            state: Cell::new(RoleState::Active),
            sequence: Cell::new(superblock.sequence),
            event_count: Cell::new(superblock.array.event_count),
            // What an earlier process wrote may still be unflushed.
            writes_done: Cell::new(1),
            writes_flushed: Cell::new(0),
        }
    }

    /// A role without a device.
    pub(crate) fn vacant(uuid: Uuid, state: RoleState) -> Member {
        assert!(state != RoleState::Active, "an active member has a device");
        Member {
            device: None,
            uuid,
            state: Cell::new(state),
            sequence: Cell::new(0),
            event_count: Cell::new(0),
            writes_done: Cell::new(0),
            writes_flushed: Cell::new(0),
        }
    }

    pub(super) fn name(&self) -> Option<&DeviceName> {
        self.device.as_ref().map(|device| device.name())
    }

    /// The device, where it is in use.
    pub(super) fn active(&self) -> Option<&dyn BlockDevice> {
        let device = self.device.as_deref();
        device.filter(|_| self.state.get() == RoleState::Active)
    }
}

impl Members {
    pub(super) fn new(list: Vec<Member>, layout: &Layout, data_offset: u64) -> Members {
        assert_eq!(list.len(), layout.members());
        let members = Members {
            list,
            lost: RefCell::new(vec![SmallVec::new(); layout.groups()]),
            any_lost: Cell::new(false),
            broken: Cell::new(false),
            redundancy: layout.redundancy(),
            width: layout.width(),
            data_offset,
        };
        for (role, member) in members.iter() {
            if member.state.get() != RoleState::Active {
                members.note_lost(role);
            }
        }
        members
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Role, &Member)> {
        self.list.iter().enumerate().map(|(index, member)| (Role(index as u16), member))
    }

    pub(super) fn get(&self, role: Role) -> &Member {
        &self.list[role.index()]
    }

    /// The device in a role, where it is in use.
    pub(super) fn active(&self, role: Role) -> Option<&dyn BlockDevice> {
        self.list[role.index()].active()
    }

    /// Starts a request for a part of the data area of an active member.
    pub(super) fn submit<'a>(
        &self,
        device: &'a dyn BlockDevice,
        request: Request,
    ) -> Submission<'a> {
        let range = request.range.shifted(self.data_offset);
        device.submit(Request { range, ..request })
    }

    /// Whether a group has lost more members than it can replace.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.get()
    }

    /// Whether any member is not in use.
    pub(super) fn is_degraded(&self) -> bool {
        self.any_lost.get()
    }

    /// The strips of a stripe that are on members not in use.
    pub(super) fn lost_strips(&self, layout: &Layout, stripe: Stripe) -> LostStrips {
        if !self.any_lost.get() {
            return LostStrips::new();
        }
        let lost = self.lost.borrow();
        let roles = &lost[layout.group_of(stripe)];
        roles.iter().map(|role| layout.strip_on(stripe, *role)).collect()
    }

    /// Takes an active member out of use. The caller sees to its being recorded.
    pub(super) fn fail(&self, role: Role) {
        let before = self.list[role.index()].state.replace(RoleState::Failed);
        assert_eq!(before, RoleState::Active, "a member fails once");
        self.note_lost(role);
    }

    /// Notes that a write to a member is done, so that a flush has something to do there.
    pub(super) fn note_write(&self, role: Role) {
        let member = self.get(role);
        member.writes_done.set(member.writes_done.get() + 1);
    }

    fn note_lost(&self, role: Role) {
        let mut lost = self.lost.borrow_mut();
        let group = &mut lost[role.index() / self.width];
        group.push(role);
        self.any_lost.set(true);
        if group.len() > self.redundancy {
            self.broken.set(true);
        }
    }
}

impl Member {
    /// Its next superblock is stable.
    pub(super) fn note_superblock(&self, event_count: u64) {
        assert!(self.event_count.replace(event_count) < event_count, "events go up");
        self.sequence.set(self.sequence.get() + 1);
    }

    /// The writes that a flush which begins now will cover; `None` where it would cover nothing
    /// new.
    pub(super) fn unflushed_writes(&self) -> Option<u64> {
        let done = self.writes_done.get();
        (self.writes_flushed.get() < done).then_some(done)
    }

    /// A flush has succeeded that began when `writes` were done.
    pub(super) fn note_flushed(&self, writes: u64) {
        self.writes_flushed.set(self.writes_flushed.get().max(writes));
    }
}
