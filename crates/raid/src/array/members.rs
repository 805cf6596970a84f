//! The members of an array: which device has which role, and which role is being rebuilt.
//!
//! A *slot* is the place of a role. A member in it is in use: it has all rows. A member that
//! *fills* the slot has the rows that it was given so far: those below a mark, and some ahead of
//! it. A hot spare has none. Distributed spare space may replace a lost role ([`lending`]).
//!
//! **Invariants**: a slot is active exactly while it has a member; a member that fills a slot gets
//! every write to the rows that it has; rows are added under the lock of their stripe.

mod filling;
mod lending;

use std::cell::{Cell, RefCell};
use std::ops::{Range, RangeInclusive};
use std::rc::Rc;

use headpond_block::{BlockDevice, DeviceName, Request, Submission};
use smallvec::SmallVec;
use uuid::Uuid;

use super::health::Health;
use super::volume_record::VolumeRecords;
use crate::history::History;
use crate::layout::{Layout, Role, Strip, StripCell, Stripe};
use crate::superblock::{ArrayRecord, FillRecord, RoleState, SpareRecord, Superblock};
use crate::volume_record::VolumeRecord;
pub(super) use filling::{FilledRows, Filling, Lent};
use lending::Settling;

/// A device of the array that can be used.
pub(crate) struct Member {
    pub(super) device: Rc<dyn BlockDevice>,
    pub(super) uuid: Uuid,
    /// The role that it has or fills; `None` for a hot spare.
    role: Cell<Option<Role>>,
    /// Of its newest superblock that is stable.
    pub(super) sequence: Cell<u64>,
    /// Of the same.
    pub(super) event_count: Cell<u64>,
    /// Of the device.
    pub(super) health: Rc<Health>,
    writes_done: Cell<u64>,
    writes_flushed: Cell<u64>,
}

/// The place of a role.
pub(super) struct Slot {
    pub(super) state: Cell<RoleState>,
    /// Of the member that has the role, or had it last.
    pub(super) uuid: Cell<Uuid>,
    /// Of the same.
    pub(super) name: RefCell<Option<DeviceName>>,
    member: RefCell<Option<Rc<Member>>>,
    filling: RefCell<Option<Rc<Filling>>>,
}

/// Strips of one stripe that cannot be reached; seldom more than two.
pub(super) type LostStrips = SmallVec<[Strip; 4]>;

/// The members that a write of one strip goes to.
pub(super) type Holders = SmallVec<[Rc<Member>; 2]>;

/// All members of an array.
pub(crate) struct Members {
    slots: Vec<Slot>,
    standing_by: RefCell<Vec<Rc<Member>>>,
    /// Of each group, the roles without a complete holder.
    lost: RefCell<Vec<SmallVec<[Role; 2]>>>,
    any_lost: Cell<bool>,
    any_filling: Cell<bool>,
    /// What each slot of distributed spare space stands in for.
    lent: Vec<RefCell<Option<Rc<Lent>>>>,
    any_lent: Cell<bool>,
    /// Freed slots, and the operations in flight there then.
    settling: RefCell<Vec<Settling>>,
    broken: Cell<bool>,
    departures: Cell<u64>,
    pub(super) volume_records: VolumeRecords,
    layout: Layout,
    data_offset: u64,
}

/// The members found when an array was assembled.
pub(crate) struct FoundMembers {
    /// By role: the member, or why there is none.
    pub(crate) roles: Vec<Result<Member, RoleState>>,
    pub(crate) filling: Vec<(FillRecord, Member)>,
    pub(crate) standing_by: Vec<Member>,
    /// The newest one that they have.
    pub(crate) volume_record: Option<VolumeRecord>,
}

impl FoundMembers {
    /// A role that another member still has, or spare space replaces, is filled from the start
    /// again.
    pub(crate) fn begin_copies_anew(&mut self, record: &ArrayRecord) {
        for (filled, _) in &mut self.filling {
            let is_lent = record.lent.iter().flatten().any(|lent| lent.role == filled.role);
            if is_lent || self.roles[filled.role.index()].is_ok() {
                filled.rows = 0;
            }
        }
    }

    /// All of them.
    fn all(&self) -> impl Iterator<Item = &Member> {
        let filling = self.filling.iter().map(|(_, member)| member);
        self.roles.iter().flatten().chain(filling).chain(&self.standing_by)
    }

    /// Their errors are counted there.
    pub(crate) fn count_errors_in(&self, history: &History) {
        self.all().for_each(|it| it.health.count_errors_in(history.errors_of(it.uuid)));
    }

    /// The devices that hold everything.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = &dyn BlockDevice> {
        self.roles.iter().flatten().map(|member| &*member.device)
    }
}

impl Member {
    /// A member as its superblock describes it, but for the role: one that has missed an event may
    /// have another by now.
    pub(crate) fn found(
        device: Rc<dyn BlockDevice>,
        superblock: &Superblock,
        role: Option<Role>,
    ) -> Member {
        Member {
            health: Health::of(&*device),
            device,
            uuid: superblock.member_uuid,
            role: Cell::new(role),
            sequence: Cell::new(superblock.sequence),
            event_count: Cell::new(superblock.array.event_count),
            // What an earlier process wrote may still be unflushed.
            writes_done: Cell::new(1),
            writes_flushed: Cell::new(0),
        }
    }

    /// A device that the next event will make a spare. Until then it counts as knowing the event
    /// before, of which it needs nothing.
    pub(super) fn joining(
        device: Rc<dyn BlockDevice>,
        uuid: Uuid,
        event_count: u64,
        history: &History,
    ) -> Member {
        let health = Health::of(&*device);
        health.count_errors_in(history.errors_of(uuid));
        Member {
            health,
            device,
            uuid,
            role: Cell::new(None),
            sequence: Cell::new(0),
            event_count: Cell::new(event_count),
            writes_done: Cell::new(0),
            writes_flushed: Cell::new(0),
        }
    }

    pub(super) fn name(&self) -> &DeviceName {
        self.device.name()
    }

    pub(super) fn role(&self) -> Option<Role> {
        self.role.get()
    }

    /// Notes that a write is done, so that a flush has something to do there.
    pub(super) fn note_write(&self) {
        self.writes_done.set(self.writes_done.get() + 1);
    }

    /// Its next superblock is stable.
    pub(super) fn note_superblock(&self, event_count: u64) {
        assert!(self.event_count.replace(event_count) < event_count, "events go up");
        self.sequence.set(self.sequence.get() + 1);
    }

    /// Its superblocks go on from another one that it carries.
    pub(super) fn go_on_from(&self, sequence: u64) {
        self.sequence.set(sequence);
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

impl Slot {
    fn new(uuid: Uuid, found: Result<Member, RoleState>) -> Slot {
        let state = found.as_ref().map_or_else(|state| *state, |_| RoleState::Active);
        assert!(found.is_ok() == (state == RoleState::Active), "an active slot has a member");
        let name = found.as_ref().ok().map(|member| member.name().clone());
        Slot {
            state: Cell::new(state),
            uuid: Cell::new(uuid),
            name: RefCell::new(name),
            member: RefCell::new(found.ok().map(Rc::new)),
            filling: RefCell::new(None),
        }
    }

    pub(super) fn filling(&self) -> Option<Rc<Filling>> {
        self.filling.borrow().clone()
    }
}

impl Members {
    pub(super) fn new(found: FoundMembers, record: &ArrayRecord, layout: &Layout) -> Members {
        assert_eq!(found.roles.len(), layout.members());
        let roles = record.roles.iter().zip(found.roles);
        let members = Members {
            slots: roles.map(|(role, found)| Slot::new(role.member_uuid, found)).collect(),
            standing_by: RefCell::new(found.standing_by.into_iter().map(Rc::new).collect()),
            lost: RefCell::new(vec![SmallVec::new(); layout.groups()]),
            any_lost: Cell::new(false),
            any_filling: Cell::new(false),
            lent: record.lent.iter().map(|_| RefCell::default()).collect(),
            any_lent: Cell::new(false),
            settling: RefCell::default(),
            broken: Cell::new(false),
            departures: Cell::default(),
            volume_records: VolumeRecords::new(found.volume_record),
            layout: layout.clone(),
            data_offset: record.data_offset,
        };
        for (filled, member) in found.filling {
            members.fill(filled.role, Rc::new(member), FilledRows::up_to(filled.rows, layout));
        }
        for (slot, filled) in record.lent.iter().enumerate() {
            if let Some(filled) = filled {
                members.lend(slot as u16, *filled);
            }
        }
        let is_active = |role: &RoleState| *role == RoleState::Active;
        let empty = members.slots().filter(|(_, slot)| !is_active(&slot.state.get()));
        let empty: Vec<Role> = empty.map(|(role, _)| role).collect();
        record.unreplaced(&empty).into_iter().for_each(|role| members.note_lost(role));
        members
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = (Role, &Slot)> {
        self.slots.iter().enumerate().map(|(index, slot)| (Role(index as u16), slot))
    }

    pub(super) fn slot(&self, role: Role) -> &Slot {
        &self.slots[role.index()]
    }

    /// All usable members: in a slot, filling one, or hot spares.
    pub(super) fn present(&self) -> Vec<Rc<Member>> {
        let of_slots = self.slots.iter().flat_map(|slot| {
            let member = slot.member.borrow().clone();
            member.into_iter().chain(slot.filling().map(|filling| Rc::clone(&filling.member)))
        });
        of_slots.chain(self.standing_by.borrow().iter().cloned()).collect()
    }

    pub(super) fn standing_by(&self) -> Vec<Rc<Member>> {
        self.standing_by.borrow().clone()
    }

    /// Whether this one can still be used.
    pub(super) fn is_present(&self, member: &Rc<Member>) -> bool {
        let is_it = |other: &Rc<Member>| Rc::ptr_eq(member, other);
        match member.role.get() {
            None => self.standing_by.borrow().iter().any(is_it),
            Some(role) => {
                let slot = self.slot(role);
                let in_slot = slot.member.borrow().as_ref().is_some_and(is_it);
                in_slot || slot.filling().is_some_and(|filling| is_it(&filling.member))
            }
        }
    }

    /// The member that holds all of a role.
    pub(super) fn active(&self, role: Role) -> Option<Rc<Member>> {
        self.slots[role.index()].member.borrow().clone()
    }

    /// The member that holds a cell.
    pub(super) fn holder(&self, cell: StripCell) -> Option<Rc<Member>> {
        let slot = &self.slots[cell.role.index()];
        if let Some(member) = &*slot.member.borrow() {
            return Some(Rc::clone(member));
        }
        if !self.any_filling.get() && !self.any_lent.get() {
            return None;
        }
        self.holders(cell).into_iter().next()
    }

    /// All holders of some of these rows of a role, where there is no spare space.
    pub(super) fn holders_of_rows(&self, role: Role, rows: RangeInclusive<u64>) -> Holders {
        let slot = &self.slots[role.index()];
        let mut holders: Holders = slot.member.borrow().iter().cloned().collect();
        if self.any_filling.get()
            && let Some(filling) = &*slot.filling.borrow()
            && rows.into_iter().any(|row| filling.progress.holds(row))
        {
            holders.push(Rc::clone(&filling.member));
        }
        holders
    }

    /// Whether this one has a role.
    pub(super) fn is_in_role(&self, member: &Rc<Member>) -> bool {
        let in_slot = |role| self.active(role).is_some_and(|active| Rc::ptr_eq(&active, member));
        member.role.get().is_some_and(in_slot)
    }

    /// Whether the redundancy of its group outlives the loss of a member.
    pub(super) fn can_lose(&self, member: &Rc<Member>) -> bool {
        let is_spared =
            |role: Role| self.lost_in(self.layout.group_of_role(role)) < self.layout.redundancy();
        !self.is_in_role(member) || member.role.get().is_some_and(is_spared)
    }

    /// Roles of a group without a complete holder.
    pub(super) fn lost_in(&self, group: usize) -> usize {
        self.lost.borrow()[group].len()
    }

    /// Starts a request for a part of the data area of a member.
    pub(super) fn submit(&self, member: &Member, request: Request) -> Submission<'static> {
        let range = request.range.shifted(self.data_offset);
        Submission::on(Rc::clone(&member.device), Request { range, ..request })
    }

    /// Whether a group has lost more members than it can replace.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.get()
    }

    /// Whether a role has no complete holder.
    pub(super) fn is_lost(&self, role: Role) -> bool {
        self.lost.borrow()[self.layout.group_of_role(role)].contains(&role)
    }

    /// Whether any role has no complete holder.
    pub(super) fn is_degraded(&self) -> bool {
        self.any_lost.get()
    }

    /// Whether every role has a member, that alone holds it, at home.
    pub(super) fn is_all_at_home(&self) -> bool {
        !self.any_lost.get() && !self.any_filling.get() && !self.any_lent.get()
    }

    /// The missing strips of a stripe.
    pub(super) fn lost_strips(&self, layout: &Layout, stripe: Stripe) -> LostStrips {
        if !self.any_lost.get() {
            return LostStrips::new();
        }
        let is_lost = |strip: &Strip| self.holder(layout.cell(stripe, *strip)).is_none();
        layout.strips().filter(is_lost).collect()
    }

    /// Excludes a member that is present. The caller has it recorded.
    pub(super) fn fail(&self, member: &Rc<Member>) {
        let Some(role) = member.role.get() else {
            return self.standing_by.borrow_mut().retain(|other| !Rc::ptr_eq(other, member));
        };
        let slot = self.slot(role);
        if slot.filling().is_some_and(|filling| Rc::ptr_eq(&filling.member, member)) {
            slot.filling.replace(None);
            return self.note_filling();
        }
        let before = slot.member.replace(None).expect("a member fails once");
        assert!(Rc::ptr_eq(&before, member), "it has the role");
        self.note_departure();
        slot.state.set(RoleState::Failed);
        self.note_lost(role);
    }

    /// How many members have lost their role.
    pub(super) fn departures(&self) -> u64 {
        self.departures.get()
    }

    fn note_departure(&self) {
        self.departures.set(self.departures.get() + 1);
    }

    /// Adds a hot spare.
    pub(super) fn join(&self, member: Rc<Member>) {
        assert!(member.role.get().is_none(), "a spare has no role");
        self.standing_by.borrow_mut().push(member);
    }

    /// Starts filling a role onto a hot spare, from its first row on.
    pub(super) fn begin_filling(&self, role: Role, spare: &Rc<Member>) {
        self.standing_by.borrow_mut().retain(|other| !Rc::ptr_eq(other, spare));
        self.fill(role, Rc::clone(spare), FilledRows::up_to(0, &self.layout));
    }

    /// Starts filling the former role of a re-added member, except for the rows that it still has.
    pub(super) fn begin_catching_up(&self, role: Role, member: Rc<Member>, lacks: Vec<Range<u64>>) {
        self.fill(role, member, FilledRows::but_for(lacks, &self.layout));
    }

    /// Gives a role to the member that has filled it. The former member is excluded, and returned.
    pub(super) fn end_filling(&self, role: Role) -> Option<Rc<Member>> {
        let slot = self.slot(role);
        let filling = slot.filling.replace(None).expect("the role is being filled");
        let member = &filling.member;
        slot.uuid.set(member.uuid);
        slot.name.replace(Some(member.name().clone()));
        slot.state.set(RoleState::Active);
        let before = slot.member.replace(Some(Rc::clone(member)));
        before.iter().for_each(|_| self.note_departure());
        self.take_back(role);
        self.note_found(role);
        self.note_filling();
        before
    }

    /// The spares as they are to be recorded.
    pub(super) fn spare_records(&self) -> Vec<SpareRecord> {
        let filling = self.slots().filter_map(|(role, slot)| {
            let filling = slot.filling()?;
            let filled = FillRecord { role, rows: filling.progress.recorded_rows() };
            Some(SpareRecord { member_uuid: filling.member.uuid, filling: Some(filled) })
        });
        let standing_by = self.standing_by.borrow();
        let standing_by = standing_by.iter();
        filling
            .chain(standing_by.map(|it| SpareRecord { member_uuid: it.uuid, filling: None }))
            .collect()
    }

    /// Checks which member has which role, or none; for tests and simulation.
    ///
    /// # Panics
    /// Where an invariant does not hold.
    pub(super) fn self_check(&self) {
        for (role, slot) in self.slots() {
            let member = slot.member.borrow();
            let is_active = slot.state.get() == RoleState::Active;
            assert_eq!(is_active, member.is_some(), "{role:?} is active with a member");
            let is_its_own = |it: &Member| it.role() == Some(role) && it.uuid == slot.uuid.get();
            assert!(member.as_deref().is_none_or(is_its_own), "{role:?} has another's member");
            if let Some(filling) = slot.filling() {
                let is_its_own = filling.member.role() == Some(role);
                assert!(is_its_own, "{role:?} is filled by another's member");
                filling.progress.self_check();
            }
            let group = &self.lost.borrow()[self.layout.group_of_role(role)];
            let is_lost = group.iter().filter(|lost| **lost == role).count();
            let is_whole = self.lent_to(role).is_some_and(|it| it.progress.is_whole());
            assert!(is_lost <= 1 && (is_lost == 0 || !is_active), "{role:?} is lost once");
            assert!(is_active || is_lost == 1 || is_whole, "{role:?} has nobody and is not lost");
        }
        self.check_present();
        self.check_lent();
        let is_any = self.lost.borrow().iter().any(|group| !group.is_empty());
        assert_eq!(self.any_lost.get(), is_any, "whether a role is lost");
        let is_beyond = |lost: &SmallVec<[Role; 2]>| lost.len() > self.layout.redundancy();
        let is_broken = self.broken.get() || !self.lost.borrow().iter().any(is_beyond);
        assert!(is_broken, "broken is who has lost too many");
    }

    fn check_present(&self) {
        let present = self.present();
        for (at, member) in present.iter().enumerate() {
            let is_another = |other: &Rc<Member>| other.uuid != member.uuid;
            assert!(present[..at].iter().all(is_another), "{} is there twice", member.name());
            member.health.self_check();
        }
        let standing_by = self.standing_by.borrow();
        assert!(standing_by.iter().all(|it| it.role().is_none()), "who stands by has a role");
        let is_any = self.slots.iter().any(|slot| slot.filling.borrow().is_some());
        assert_eq!(self.any_filling.get(), is_any, "whether a role is being filled");
    }

    fn fill(&self, role: Role, member: Rc<Member>, progress: FilledRows) {
        member.role.set(Some(role));
        let filling = Filling { member, progress };
        let before = self.slot(role).filling.replace(Some(Rc::new(filling)));
        assert!(before.is_none(), "one spare at a time fills a role");
        self.note_filling();
    }

    fn note_filling(&self) {
        self.any_filling.set(self.slots.iter().any(|slot| slot.filling.borrow().is_some()));
    }

    fn note_lost(&self, role: Role) {
        let mut lost = self.lost.borrow_mut();
        let group = &mut lost[self.layout.group_of_role(role)];
        group.push(role);
        self.any_lost.set(true);
        if group.len() > self.layout.redundancy() {
            self.broken.set(true);
        }
    }

    fn note_found(&self, role: Role) {
        let mut lost = self.lost.borrow_mut();
        lost[self.layout.group_of_role(role)].retain(|lost| *lost != role);
        self.any_lost.set(lost.iter().any(|group| !group.is_empty()));
    }
}

#[cfg(test)]
mod tests {
    use headpond_testkit::{Break, assert_trips};

    use super::*;
    use crate::array::Array;
    use crate::array::self_check::tests::*;

    #[test]
    fn check_notices_members_in_wrong_roles() {
        let breaks: [Break<Array>; 7] = [
            ("Role(0) is active with a member", |it| {
                it.members.slots[0].state.set(RoleState::Failed);
            }),
            ("Role(0) has another's member", |it| {
                it.members.active(Role(0)).unwrap().role.set(Some(Role(2)));
            }),
            ("Role(1) has nobody and is not lost", |it| it.members.note_found(Role(1))),
            ("Role(0) is lost once", |it| it.members.note_lost(Role(0))),
            ("who stands by has a role", |it| {
                it.members.standing_by()[0].role.set(Some(Role(1)));
            }),
            ("is there twice", |it| {
                let twice = it.members.active(Role(0));
                it.members.standing_by.borrow_mut().extend(twice);
            }),
            ("whether a role is lost", |it| it.members.any_lost.set(false)),
        ];
        assert_trips(lived, |it| it.members.self_check(), &breaks);
    }

    #[test]
    fn check_notices_roles_that_are_filled_or_lent_wrongly() {
        let breaks: [Break<Array>; 6] = [
            ("whether a slot is lent", |it| it.members.any_lent.set(false)),
            ("a slot knows its number", |it| {
                let lent = it.members.lent[0].take().expect("it is lent");
                let lent = Rc::into_inner(lent).expect("nobody uses it");
                it.members.lent[0].replace(Some(Rc::new(Lent { slot: 1, ..lent })));
            }),
            ("needs nobody to stand in", |it| {
                let lent = it.members.lent[0].take().expect("it is lent");
                let lent = Rc::into_inner(lent).expect("nobody uses it");
                it.members.lent[0].replace(Some(Rc::new(Lent { role: Role(0), ..lent })));
            }),
            ("is filled by another's member", |it| {
                let member = it.members.active(Role(0)).unwrap();
                let progress = FilledRows::up_to(0, &it.layout);
                it.members.slots[1].filling.replace(Some(Rc::new(Filling { member, progress })));
            }),
            ("whether a role is being filled", |it| it.members.any_filling.set(true)),
            ("broken is who has lost too many", |it| {
                let member = it.members.active(Role(0)).unwrap();
                it.members.fail(&member);
                it.members.broken.set(false);
            }),
        ];
        assert_trips(lent, |it| it.members.self_check(), &breaks);
    }
}
