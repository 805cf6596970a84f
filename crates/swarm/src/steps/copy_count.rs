//! The commands that give a RAID 1 more copies or fewer.

use super::reshape::{POLL, REFUSALS_MAX};
use super::returns::is_whole;
use super::{Stage, Step};
use crate::machine::careful;
use crate::offence::Offence;
use headpond_raid::superblock::RoleState;
use headpond_raid::{ArrayStatus, GrowError, Level, MemberError, MemberStatus, WhichCopy};
use headpond_volume::{ChangeMembersError, LeavingCopy};

/// An array has no more of them.
const COPIES_MAX: usize = 5;
/// And at least so many that are in use.
const COPIES_MIN: usize = 2;

impl Stage<'_> {
    /// Gives the array so many copies more.
    ///
    /// # Errors
    /// Where it is refused and nothing excuses that, or has another number afterwards.
    pub(crate) async fn add_copies(&self, more: usize) -> Result<(), Offence> {
        let before = self.array().members.len();
        if !self.is_mirror() || before + more > COPIES_MAX || !self.leaves_caches().await? {
            return Ok(());
        }
        self.note(Step::AddCopies(more));
        self.tally.borrow_mut().commands += 1;
        let book = &self.machine.copy_count;
        for _ in 0..REFUSALS_MAX {
            let Some(by) = self.additions(more) else { return Ok(()) };
            let was = book.clone();
            book.begin(before + more);
            let grown = self.volume.grow_array(self.core(), by, careful().pool).await;
            match grown {
                Ok(()) => {
                    book.has(before + more);
                    self.tally.borrow_mut().copies_added += more as u64;
                    return book.check(self.array().members.len());
                }
                Err(error) if is_refusal(&error) => {
                    book.put_back(was);
                    if !is_passing(&error) || self.is_over.get() {
                        return self.judge_refusal("add copies", &error);
                    }
                    self.runtime.sleep(POLL).await;
                }
                Err(error) => return self.judge_refusal("add copies", &error),
            }
        }
        match self.is_lenient() {
            true => Ok(()),
            false => {
                let told = "add copies: what stands in the way stays there";
                Err(Offence::Command(format!("{told}: {:?}", self.array())))
            }
        }
    }

    /// Gives up a copy: now and then one that is lost.
    ///
    /// # Errors
    /// Where it is refused and nothing excuses that, not refused where it has to be, or the array
    /// has another number afterwards.
    pub(crate) async fn drop_copy(&self) -> Result<(), Offence> {
        if !self.is_mirror() || !self.leaves_caches().await? {
            return Ok(());
        }
        self.refuse_unknown_copy().await?;
        let leaves = self.draw_copy_to_drop(&self.array());
        let (copy, device) = self.draw_name(&leaves);
        self.note(format!("{}: {copy}", Step::DropCopy));
        self.tally.borrow_mut().commands += 1;
        self.give_up(&leaves, LeavingCopy { copy, device }).await
    }

    async fn give_up(&self, leaves: &MemberStatus, copy: LeavingCopy) -> Result<(), Offence> {
        let array = self.array();
        let (book, before) = (&self.machine.copy_count, array.members.len());
        let was = book.clone();
        let was_lacking = book.may_lack();
        book.begin(before - 1);
        book.leaves(is_whole(&array).then_some(before));
        self.machine.has_exchanged.set(true);
        self.machine.displaced.borrow_mut().extend(0..self.machine.members.len());
        let left = active(&array).filter(|it| it.role != leaves.role).count();
        match self.volume.drop_copy(self.core(), copy, careful().pool).await {
            Ok(()) if left < COPIES_MIN => {
                Err(Offence::Command("one of the last two copies was given up".into()))
            }
            Ok(()) => {
                book.has(before - 1);
                book.may_lack.set(was_lacking);
                self.tally.borrow_mut().copies_dropped += 1;
                book.check(self.array().members.len())
            }
            Err(error) => {
                if is_refusal(&error) {
                    book.put_back(was);
                }
                let is_last =
                    matches!(error, ChangeMembersError::Member(MemberError::LastCopies { .. }));
                match is_last && left < COPIES_MIN || is_passing(&error) {
                    true => {
                        self.note(format!("not given up: {error}"));
                        Ok(())
                    }
                    false => self.judge_refusal("drop a copy", &error),
                }
            }
        }
    }

    /// A cut has left copies out of use: they go for good, or other disks take their place.
    ///
    /// # Errors
    /// Where that is refused and nothing excuses it.
    pub(crate) async fn mend_copies(&self) -> Result<(), Offence> {
        let is_out =
            |member: &&MemberStatus| member.state != RoleState::Active && member.filling.is_none();
        for _ in 0..COPIES_MAX {
            let array = self.array();
            let Some(out) = array.members.iter().find(is_out) else { return Ok(()) };
            let may_go = active(&array).count() >= COPIES_MIN;
            let goes = may_go && self.random.borrow_mut().one_in(2);
            let free = self.free_disks(&array).into_iter().next();
            match free.filter(|_| !goes) {
                Some(free) => {
                    self.note(format!("{}: role {} by m{free}", Step::MendCopies, out.role));
                    return self.add_as_spare(free).await;
                }
                None if may_go => {
                    self.note(format!("{}: role {}", Step::MendCopies, out.role));
                    let copy = match out.device.clone() {
                        Some(name) => WhichCopy::On(name),
                        None => WhichCopy::Missing,
                    };
                    self.give_up(out, LeavingCopy { copy, device: None }).await?;
                }
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// No copy goes for a name that none has.
    async fn refuse_unknown_copy(&self) -> Result<(), Offence> {
        if !self.random.borrow().clone().fork().one_in(4) {
            return Ok(());
        }
        let copy = LeavingCopy { copy: WhichCopy::On("m99".into()), device: None };
        match self.volume.drop_copy(self.core(), copy, careful().pool).await {
            Ok(()) => Err(Offence::Command("a copy that nobody has was given up".into())),
            Err(_) => self.machine.copy_count.check(self.array().members.len()),
        }
    }

    /// One that nobody has where there is one, half of the time.
    fn draw_copy_to_drop(&self, array: &ArrayStatus) -> MemberStatus {
        let mut random = self.random.borrow_mut();
        let out = array.members.iter().find(|member| member.state != RoleState::Active);
        match out.filter(|_| random.one_in(2)) {
            Some(out) => out.clone(),
            None => random.pick(&array.members).clone(),
        }
    }

    /// By which name it is given up, and what is on its device where the array does not have that.
    fn draw_name(
        &self,
        leaves: &MemberStatus,
    ) -> (WhichCopy, Option<std::rc::Rc<dyn headpond_block::BlockDevice>>) {
        let mut random = self.random.borrow_mut();
        let by_uuid = !leaves.uuid.is_nil() && random.one_in(4);
        let Some(name) = leaves.device.as_ref().filter(|_| !by_uuid) else {
            let uuid = WhichCopy::Member(leaves.uuid);
            return (if by_uuid { uuid } else { WhichCopy::Missing }, None);
        };
        let index: usize = name[1..].parse().expect("members are numbered");
        let is_away = !self.volume.has_device(self.core(), name);
        let device = (is_away && random.one_in(2))
            .then(|| self.machine.free_member(index, self.runtime, self.sim, self.controls));
        (WhichCopy::On(name.clone()), device)
    }

    /// Several cores behind a cache are not put together again one by one: it is detached.
    async fn leaves_caches(&self) -> Result<bool, Offence> {
        if self.machine.topology.idle_core.is_none() {
            return Ok(true);
        }
        match self.detach_caches().await {
            Ok(()) => Ok(true),
            Err(_) if self.excuses.borrow().errors => Ok(false),
            Err(error) => Err(Offence::Command(format!("change the copies: {error}"))),
        }
    }

    fn judge_refusal(&self, command: &str, error: &ChangeMembersError) -> Result<(), Offence> {
        match self.is_lenient() || is_passing(error) {
            true => {
                self.note(format!("{command}: {error}"));
                Ok(())
            }
            false => Err(Offence::Command(format!("{command}: {error}"))),
        }
    }

    fn is_lenient(&self) -> bool {
        let excuses = self.excuses.borrow();
        let may_lack = self.machine.copy_count.may_lack();
        excuses.errors || !excuses.lost.is_empty() || may_lack || self.is_over.get()
    }

    fn is_mirror(&self) -> bool {
        self.machine.topology.level == Level::Raid1
    }
}

fn active(array: &ArrayStatus) -> impl Iterator<Item = &MemberStatus> {
    array.members.iter().filter(|member| member.state == RoleState::Active)
}

/// Whether nothing of it was written.
fn is_refusal(error: &ChangeMembersError) -> bool {
    !matches!(
        error,
        ChangeMembersError::Reopen { .. }
            | ChangeMembersError::Clean(_)
            | ChangeMembersError::Grow(
                GrowError::Device(_) | GrowError::Member(MemberError::Device(_))
            )
            | ChangeMembersError::Member(MemberError::Device(_))
    )
}

/// Whether it is refused for what goes by: a role is given to a spare, copies are made
/// alike, another command is at it.
fn is_passing(error: &ChangeMembersError) -> bool {
    matches!(
        error,
        ChangeMembersError::Busy { .. }
            | ChangeMembersError::Replayed { .. }
            | ChangeMembersError::Grow(GrowError::Filling { .. } | GrowError::Degraded { .. })
            | ChangeMembersError::Member(MemberError::Filling { .. } | MemberError::Unalike { .. })
    )
}
