//! Changing the number of copies of a RAID 1. All copies have the same rows, so no data moves, and
//! no address changes.
//!
//! More: 1. the new devices become hot spares; 2. one event adds roles without members; 3. the
//! array is stopped and assembled again, and those roles are rebuilt onto spares as after a loss.
//! Fewer: 1. the copy is excluded, as if it had failed; 2. one event removes its role, and those
//! behind it move up; 3. the array is stopped and assembled again.
//!
//! **Invariants**: a member with the event before knows each member by its UUID, so a cut while an
//! event is written leaves the array before or after it, and no member's role ambiguous.
//! **Not here**: stopping and assembling it (`volume`).

use std::fmt;
use std::rc::Rc;

use headpond_block::BlockDevice;
use uuid::Uuid;

use super::members::Slot;
use super::{Array, GrowError, MemberError};
use crate::layout::Role;
use crate::level::Level;
use crate::superblock::{ArrayRecord, RoleRecord, RoleState};

/// Copies that are left at least.
const COPIES_MIN: usize = 2;

/// Which copy of a RAID 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhichCopy {
    /// On the device of this name, or that was on it since the array was put together.
    On(String),
    /// By the UUID of the member.
    Member(Uuid),
    /// One without a member and a known device.
    Missing,
}

impl fmt::Display for WhichCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::On(device) => f.write_str(device),
            Self::Member(uuid) => uuid.fmt(f),
            Self::Missing => f.write_str("missing"),
        }
    }
}

impl Array {
    /// The record of the array with more copies.
    pub(super) fn with_more_copies(
        &self,
        record: &ArrayRecord,
        copies: usize,
    ) -> Result<ArrayRecord, GrowError> {
        let vacant = RoleRecord { member_uuid: Uuid::nil(), state: RoleState::Missing };
        let new = std::iter::repeat_n(vacant, copies);
        let roles = record.roles.iter().copied().chain(new).collect();
        let next = ArrayRecord { roles, ..record.clone() };
        match next.layout() {
            Ok(_) => Ok(next),
            Err(cause) => Err(GrowError::Layout { array: record.name.clone(), cause }),
        }
    }

    /// Drops a copy for good; when that is recorded the array is to be stopped and assembled again.
    /// Returns its device, if it was in use: its superblocks still name it a member, until they are
    /// erased.
    ///
    /// # Errors
    /// The reason against it, before anything is written; or if the others have failed, when it may
    /// have failed too.
    pub async fn drop_copy(
        &self,
        copy: &WhichCopy,
    ) -> Result<Option<Rc<dyn BlockDevice>>, MemberError> {
        self.check_writable()?;
        let role = self.copy_to_drop(copy)?;
        let member = self.members.active(role);
        if member.is_some() {
            self.fail(role).await?;
        }
        self.dropped.set(Some(role));
        let entry = self.recorder.record().roles[role.index()];
        let without = |record: &mut ArrayRecord| {
            let _ = record.roles.remove(role.index());
        };
        if let Err(error) = self.change_record(without).await {
            // Nothing is recorded any more, and the status has to match the slots.
            self.dropped.take();
            self.recorder.change(|record| record.roles.insert(role.index(), entry));
            return Err(error.into());
        }
        Ok(member.map(|member| Rc::clone(&member.device)))
    }

    /// The role of a copy, where the array can do without it.
    ///
    /// # Errors
    /// What speaks against it.
    pub fn copy_to_drop(&self, copy: &WhichCopy) -> Result<Role, MemberError> {
        let array = || self.recorder.record().name.clone();
        if self.layout.level() != Level::Raid1 {
            return Err(MemberError::NoCopies { array: array() });
        }
        if let Some(role) = self.filling_roles().first() {
            return Err(MemberError::Filling { role: role.0 });
        }
        let role = match copy {
            WhichCopy::On(device) => self.role_on(device),
            WhichCopy::Member(uuid) => self.role_of(*uuid),
            WhichCopy::Missing => self.nameless_role(),
        };
        let role = role.ok_or_else(|| match copy {
            WhichCopy::Missing => MemberError::NoneMissing { array: array() },
            copy => MemberError::UnknownCopy { array: array(), copy: copy.to_string() },
        })?;
        if self.members.active(role).is_some() && !self.is_parity_initialised() {
            // What was read so far came from one of them, and the others may say otherwise.
            return Err(MemberError::Unalike { array: array() });
        }
        let roles = self.members.slots().map(|(role, _)| role);
        let left = roles.filter(|it| *it != role && self.members.active(*it).is_some()).count();
        match left < COPIES_MIN {
            true => Err(MemberError::LastCopies { array: array() }),
            false => Ok(role),
        }
    }

    /// Whether a member has a role or is a spare, be it there or not.
    pub fn knows(&self, member: Uuid) -> bool {
        let is_spare = self.members.spare_records().iter().any(|it| it.member_uuid == member);
        is_spare || self.role_of(member).is_some()
    }

    /// Whether a member has a role, but is not in use.
    pub fn is_out_of_use(&self, member: Uuid) -> bool {
        self.role_of(member).is_some_and(|role| self.members.active(role).is_none())
    }

    fn role_of(&self, member: Uuid) -> Option<Role> {
        // A role that never had a member has no UUID either.
        let is_it = |slot: &Slot| slot.uuid.get() == member && !member.is_nil();
        self.members.slots().find(|(_, slot)| is_it(slot)).map(|(role, _)| role)
    }

    /// A role without a member and a known device.
    fn nameless_role(&self) -> Option<Role> {
        let is_it =
            |slot: &Slot| slot.name.borrow().is_none() && slot.state.get() != RoleState::Active;
        self.members.slots().find(|(_, slot)| is_it(slot)).map(|(role, _)| role)
    }

    /// The role as the next event has it: those behind one that is dropped have moved up.
    pub(super) fn recorded_role(&self, role: Role) -> Option<Role> {
        match self.dropped.get() {
            Some(dropped) if role == dropped => None,
            Some(dropped) if role > dropped => Some(Role(role.0 - 1)),
            _ => Some(role),
        }
    }
}

#[cfg(test)]
mod tests {
    use headpond_block::decorators::{Fault, FaultControl, FaultDevice, FaultRule};
    use headpond_block::defect::{Defect, activate};
    use headpond_block::devices::RamDevice;
    use headpond_block::{Executor, Order, RequestKind, Runtime, VirtualClock};

    use super::*;
    use crate::superblock::DATA_OFFSET_MIN;
    use crate::{
        AssembleOptions, Contents, CreateOptions, Inspection, Integrity, Intent, Occupied,
        Striping, assemble, create, inspect,
    };

    const BYTES: u64 = DATA_OFFSET_MIN + (64 << 10);

    fn disks() -> [Rc<RamDevice>; 3] {
        [0, 1, 2].map(|index| Rc::new(RamDevice::new(&*format!("m{index}"), BYTES)))
    }

    async fn make(members: &[Rc<dyn BlockDevice>], runtime: &Runtime) -> Array {
        let options = CreateOptions {
            name: "test".into(),
            uuid: Uuid::from_u128(0x1234),
            level: Level::Raid1,
            groups: 1,
            declustered: None,
            striping: Striping::Plain,
            strip_bytes: 4096,
            contents: Contents::Zeros,
            intent: Intent::None,
            integrity: Integrity::None,
            occupied: Occupied::Refuse,
            owner: None,
            journal: None,
        };
        create(members, &options).await.expect("created");
        open(members, runtime).await
    }

    async fn open(members: &[Rc<dyn BlockDevice>], runtime: &Runtime) -> Array {
        let assembled = assemble(runtime, members.to_vec(), AssembleOptions::default()).await;
        assembled.expect("assembled").array
    }

    async fn three_copies(control: &FaultControl, runtime: &Runtime) -> Array {
        let [kept, others @ ..] = disks();
        let faulty = |ram: Rc<RamDevice>| -> Rc<dyn BlockDevice> {
            Rc::new(FaultDevice::new(ram, control.clone(), runtime.clone()))
        };
        let members: Vec<_> =
            std::iter::once(kept as Rc<dyn BlockDevice>).chain(others.map(faulty)).collect();
        make(&members, runtime).await
    }

    /// A member that had moved up without that event at the power cut was given a superblock with
    /// its former role, which the array has no more: it was unreadable, and the copy lost.
    #[test]
    fn a_copy_that_a_cut_kept_from_hearing_of_a_drop_has_its_new_role_afterwards() {
        let executor = Executor::new(Box::<VirtualClock>::default(), Order::Seeded(1));
        let runtime = executor.runtime();
        let test = async {
            let disks = disks();
            let members = disks.clone().map(|disk| disk as Rc<dyn BlockDevice>);
            let array = make(&members, &runtime).await;
            let last = disks[2].memory();
            array.fail(Role(0)).await.expect("two are left");
            let before = last.to_vec();
            // The power goes before the event is sealed.
            activate(Some(Defect::SkipSeal));
            array.drop_copy(&WhichCopy::On("m0".into())).await.expect("given up");
            activate(None);
            drop(array);
            last.copy_from(&before);
            let array = open(&members[1..], &runtime).await;
            array.stop().await.expect("stops");
            for (disk, role) in members[1..].iter().zip(0..) {
                let found = inspect(&**disk).await.expect("memory");
                let Inspection::Member(found) = found else { panic!("{}: {found:?}", disk.name()) };
                assert_eq!((found.role, found.array.roles.len()), (Some(Role(role)), 2));
            }
        };
        executor.block_on(test).expect("the test goes on");
    }

    #[test]
    fn a_drop_that_cannot_be_recorded_leaves_every_role_where_it_was() {
        let executor = Executor::new(Box::<VirtualClock>::default(), Order::Seeded(1));
        let runtime = executor.runtime();
        let (mut failed, mut after) = (0, 0);
        let test = async {
            loop {
                let control = FaultControl::default();
                let array = three_copies(&control, &runtime).await;
                let rule = FaultRule::on(RequestKind::Write, Fault::Media);
                control.add(FaultRule { after, times: None, ..rule });
                if array.drop_copy(&WhichCopy::On("m0".into())).await.is_ok() {
                    return;
                }
                (failed, after) = (failed + 1, after + 1);
                assert_eq!(array.recorded_role(Role(2)), Some(Role(2)), "after {after} writes");
                assert_eq!(array.recorder.record().roles.len(), 3);
            }
        };
        executor.block_on(test).expect("the test goes on");
        // The last of them was the event that says that there are fewer roles.
        assert!(failed > 4, "{failed}");
    }
}
