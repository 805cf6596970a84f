//! The command that has members come back that were out of use.

use super::{Stage, Step};
use crate::offence::Offence;
use headpond_raid::superblock::RoleState;
use headpond_raid::{ArrayState, ArrayStatus, MemberError, Occupied, ReturnError};
use headpond_volume::{ChangeMembersError, NewMember, ReturningMember};
use std::time::Duration;

const POLL: Duration = Duration::from_millis(20);
/// Longer than the deadline after which a member that hangs is evicted.
const POLLS_MAX: u32 = 3000;
/// Longer than a slow device takes for what it was given: only then it may come back.
const UNTIL_ANSWERED: Duration = Duration::from_secs(15);

impl Stage<'_> {
    /// Has every member come back that was lost, when it is out of use. Where the array cannot tell
    /// what it lacks, it becomes a spare.
    ///
    /// # Errors
    /// Where it is refused and nothing excuses that.
    pub(crate) async fn re_add_lost(&self) -> Result<(), Offence> {
        let lost = self.excuses.borrow().lost.clone();
        for member in lost {
            if self.is_out_of_use(member).await {
                self.re_add(member).await?;
            }
        }
        Ok(())
    }

    /// Waits until every role has a member that holds everything.
    ///
    /// # Errors
    /// Where that has no end.
    pub(crate) async fn await_whole(&self) -> Result<(), Offence> {
        for _ in 0..POLLS_MAX {
            if is_whole(&self.array()) || self.excuses.borrow().errors {
                return Ok(());
            }
            self.runtime.sleep(POLL).await;
        }
        let core = &self.volume.status().cores[self.machine.topology.worked_on()];
        Err(Offence::Command(format!("a member that came back never has everything: {core:?}")))
    }

    /// A member may hang for some time before the array does without it.
    async fn is_out_of_use(&self, member: usize) -> bool {
        let name = format!("m{member}");
        for _ in 0..POLLS_MAX {
            let array = self.array();
            let is_it = |device: Option<&str>| device == Some(name.as_str());
            let filling = array.members.iter().filter_map(|it| it.filling.as_ref());
            let mut names = filling.map(|it| &it.device);
            if names.any(|it| *it == name) || array.spares.iter().any(|it| it.device == name) {
                return false;
            }
            let mut active = array.members.iter().filter(|it| it.state == RoleState::Active);
            if !active.any(|it| is_it(it.device.as_deref())) {
                return true;
            }
            if self.is_over.get() {
                break;
            }
            self.runtime.sleep(POLL).await;
        }
        false
    }

    async fn re_add(&self, member: usize) -> Result<(), Offence> {
        self.controls.members[member].clear();
        self.runtime.sleep(UNTIL_ANSWERED).await;
        let word = format!("m{member}");
        self.note(format!("{}: {word}", Step::ReAdd));
        self.tally.borrow_mut().commands += 1;
        let device = self.machine.free_member(member, self.runtime, self.sim, self.controls);
        let uuid = self.identity();
        // A growth that was cut leaves spares, which take the role of whoever is lost.
        let may_be_displaced = self.machine.displaced.borrow().contains(&member)
            || self.machine.reshape.was_asked_for()
            || self.machine.copy_count.was_asked_for();
        self.machine.displaced.borrow_mut().insert(member);
        let returning = ReturningMember { word, device, uuid };
        match self.volume.re_add_member(self.core(), returning).await {
            Ok(_) => {
                self.tally.borrow_mut().returned += 1;
                Ok(())
            }
            Err(_) if self.excuses.borrow().errors => Ok(()),
            Err(error) if self.is_unknown(&error, may_be_displaced) => {
                self.note(format!("not taken back: {error}"));
                self.add_as_spare(member).await
            }
            Err(error) => Err(Offence::Command(format!("re-add m{member}: {error}"))),
        }
    }

    /// Everything is written to it anew.
    pub(crate) async fn add_as_spare(&self, member: usize) -> Result<(), Offence> {
        let device = self.machine.free_member(member, self.runtime, self.sim, self.controls);
        let uuid = self.identity();
        let (word, occupied) = (format!("m{member}"), Occupied::Overwrite);
        // Whose place it takes is not said.
        self.machine.displaced.borrow_mut().extend(0..self.machine.members.len());
        let new = NewMember { word, device, uuid, occupied };
        match self.volume.add_spare(self.core(), new).await {
            Ok(()) => Ok(()),
            Err(_) if self.excuses.borrow().errors => Ok(()),
            Err(ChangeMembersError::Member(MemberError::Growing { .. }))
                if self.machine.reshape.may_be_under_way() =>
            {
                Ok(())
            }
            Err(error) => Err(Offence::Command(format!("add m{member} as a spare: {error}"))),
        }
    }

    /// Whether the array may not know what a member lacks, or whether it waits for it.
    fn is_unknown(&self, error: &ChangeMembersError, may_be_displaced: bool) -> bool {
        let topology = &self.machine.topology;
        let ChangeMembersError::Return(error) = error else {
            return matches!(error, ChangeMembersError::Busy { .. });
        };
        match error {
            // What a log has still to write again, it does not mark.
            ReturnError::Unmarked { .. } => {
                let was_cut = self.tally.borrow().crashes() > 0;
                let has_log = topology.cache.is_some() && was_cut;
                let is_spread = topology.spread.is_some();
                let is_changed =
                    self.machine.reshape.was_asked_for() || self.machine.copy_count.was_asked_for();
                !topology.has_intent || has_log || is_spread || is_changed
            }
            // An event was on its way when it failed, so that it lacks one more; spare space that
            // stands in for it ends the marks.
            ReturnError::TooOld { found, since, .. } => {
                *found + 2 == *since || topology.spread.is_some()
            }
            ReturnError::Replaced { .. } | ReturnError::Foreign { .. } => may_be_displaced,
            ReturnError::Member(MemberError::Growing { .. }) => {
                self.machine.reshape.may_be_under_way()
            }
            // Another one is on its way to its role.
            ReturnError::Member(MemberError::Filling { .. } | MemberError::Known { .. }) => {
                may_be_displaced
            }
            _ => false,
        }
    }

    pub(crate) fn array(&self) -> ArrayStatus {
        self.volume.status().cores[self.machine.topology.worked_on()].array.clone()
    }
}

/// Whether every role has a member that holds everything.
pub(crate) fn is_whole(array: &ArrayStatus) -> bool {
    let has_all = array.members.iter().all(|member| member.state == RoleState::Active);
    let is_filling = array.members.iter().any(|member| member.filling.is_some());
    array.state == ArrayState::Optimal && has_all && !is_filling
}
