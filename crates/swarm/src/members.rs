//! Commands that exchange members of the array, and the scrub of it.

use crate::case::Offence;
use crate::steps::{Stage, Step};
use crate::topology::FURTHER;
use headpond_raid::superblock::RoleState;
use headpond_raid::{ArrayStatus, MemberError, Occupied};
use headpond_volume::{ChangeMembersError, NewMember};
use std::time::Duration;
use uuid::Uuid;

const POLL: Duration = Duration::from_millis(20);
const POLLS_MAX: u32 = 3000;

impl Stage<'_> {
    /// Gives the place of some member to a disk that belongs to nobody; the work goes on beside the
    /// requests.
    ///
    /// # Errors
    /// Where it is refused and nothing excuses that.
    pub(crate) async fn replace_member(&self) -> Result<(), Offence> {
        let topology = &self.machine.topology;
        let array = self.volume.status().cores[topology.worked_on()].array.clone();
        let free = self.free_disks(&array).into_iter().next();
        let Some(free) = free.filter(|index| *index <= topology.members) else { return Ok(()) };
        let active = array.members.iter().filter(|member| member.state == RoleState::Active);
        let active: Vec<String> = active.filter_map(|member| member.device.clone()).collect();
        if topology.redundancy() == 0 || active.is_empty() {
            return Ok(());
        }
        let (old, uuid) = {
            let mut random = self.random.borrow_mut();
            (random.pick(&active).clone(), Uuid::from_u128(random.number().into()))
        };
        self.note(format!("{}: {old} by m{free}", Step::ReplaceMember));
        self.tally.borrow_mut().commands += 1;
        let device = self.machine.free_member(free, self.runtime, self.sim, self.controls);
        // Whose place the new disk takes, should that member be lost meanwhile, nobody knows.
        self.machine.displaced.borrow_mut().extend(0..self.machine.members.len());
        let (word, occupied) = (format!("m{free}"), Occupied::Overwrite);
        let new = NewMember { word, device, uuid, occupied };
        match self.volume.replace_member(self.core(), &old, Some(new)).await {
            Ok(()) => Ok(()),
            Err(_) if self.excuses.borrow().errors => Ok(()),
            Err(error) if self.is_refused(&error) || !self.excuses.borrow().lost.is_empty() => {
                self.note(format!("not replaced: {error}"));
                Ok(())
            }
            Err(error) => Err(Offence::Command(format!("replace {old}: {error}"))),
        }
    }

    /// # Errors
    /// Never; the scrub goes on beside the requests.
    pub(crate) fn scrub_array(&self) -> Result<(), Offence> {
        self.note(Step::ScrubArray);
        self.tally.borrow_mut().commands += 1;
        let begun = self.volume.scrub_array(self.core());
        begun.map_err(|error| Offence::Command(format!("scrub the array: {error}")))
    }

    /// Waits until every stripe has been looked at, while nobody writes: then no checksum speaks
    /// against what is there.
    ///
    /// # Errors
    /// Where that has no end, and where one does.
    pub(crate) async fn await_scrub(&self) -> Result<(), Offence> {
        for _ in 0..POLLS_MAX {
            let core = &self.volume.status().cores[self.machine.topology.worked_on()];
            let is_stuck = core.upkeep.failure.is_some() || self.excuses.borrow().errors;
            if is_stuck || self.is_over.get() {
                return Ok(());
            }
            let located = core.array.scrub.located_by_checksum;
            if located > 0 {
                let told = format!("a scrub put {located} sectors right that nobody has changed");
                return Err(Offence::Command(told));
            }
            if !core.upkeep.scrub_wanted {
                self.note(format!("scrubbed: {:?}", core.array.integrity));
                return Ok(());
            }
            self.runtime.sleep(POLL).await;
        }
        let core = &self.volume.status().cores[self.machine.topology.worked_on()];
        Err(Offence::Command(format!("a scrub never ends: {core:?}")))
    }

    pub(crate) fn core(&self) -> Option<&'static str> {
        (self.machine.topology.worked_on() > 0).then_some(FURTHER)
    }

    /// Disks that have no place in the array, that nothing has happened to and that are there: who
    /// was lost may have been replaced, and be away all the same.
    pub(crate) fn free_disks(&self, array: &ArrayStatus) -> Vec<usize> {
        let filling = array.members.iter().filter_map(|member| member.filling.as_ref());
        let used = array.members.iter().filter_map(|member| member.device.as_deref());
        let used: Vec<&str> = used
            .chain(filling.map(|filling| filling.device.as_str()))
            .chain(array.spares.iter().map(|spare| spare.device.as_str()))
            .collect();
        let lost = &self.excuses.borrow().lost;
        let is_free = |index: &usize| {
            let is_there = !lost.contains(index) && !self.absent.contains(index);
            is_there && !used.contains(&format!("m{index}").as_str())
        };
        (0..self.machine.members.len()).filter(is_free).collect()
    }

    fn is_refused(&self, error: &ChangeMembersError) -> bool {
        let is_growing = matches!(error, ChangeMembersError::Member(MemberError::Growing { .. }));
        is_passing(error) || is_growing && self.machine.growth.may_be_under_way()
    }
}

/// Whether it is refused for what the array is just now.
pub(crate) fn is_passing(error: &ChangeMembersError) -> bool {
    let ChangeMembersError::Member(error) = error else {
        return matches!(error, ChangeMembersError::Busy { .. });
    };
    let is_theirs = matches!(error, MemberError::Filling { .. } | MemberError::Known { .. });
    is_theirs || matches!(error, MemberError::Uninitialised)
}
