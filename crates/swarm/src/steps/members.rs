//! Commands that exchange members of the array, and the scrub of it.

use super::{Stage, Step};
use crate::machine::careful;
use crate::offence::Offence;
use crate::topology::FURTHER;
use headpond_raid::superblock::RoleState;
use headpond_raid::{ArrayStatus, JournalError, MemberError, Occupied, ScrubReport};
use headpond_volume::{ChangeMembersError, NewJournal, NewMember};
use std::time::Duration;

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
        let old = self.random.borrow_mut().pick(&active).clone();
        let uuid = self.identity();
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

    /// Gives the array another stripe journal.
    ///
    /// # Errors
    /// Where it is refused and nothing excuses that.
    pub(crate) async fn exchange_journal(&self) -> Result<(), Offence> {
        let array = self.volume.status().cores[self.machine.topology.worked_on()].array.clone();
        let used = array.journal.as_ref().and_then(|journal| journal.device.as_deref());
        let Some(device) = self.machine.other_journal(used, self.runtime, self.sim) else {
            return Ok(());
        };
        let word = device.name().to_string();
        self.note(format!("{}: {used:?} by {word}", Step::ExchangeJournal));
        self.tally.borrow_mut().commands += 1;
        let uuid = self.identity();
        // The first one since one was taken away is used as that was.
        let when = array.journal.is_none().then_some(self.machine.topology.journal).flatten();
        let new = NewJournal { word, device, uuid, when, occupied: Occupied::Overwrite };
        self.machine.has_journal.set(array.journal.is_some().then_some(true));
        match self.volume.set_journal(self.core(), new, careful().pool).await {
            Ok(()) => {
                self.machine.has_journal.set(Some(true));
                self.excuses.borrow_mut().journal_dropped = false;
                self.tally.borrow_mut().journals_set += 1;
                Ok(())
            }
            Err(error) => self.judge_kept_journal("exchange the journal", &error),
        }
    }

    /// Takes the stripe journal of the array away.
    ///
    /// # Errors
    /// Where it is refused and nothing excuses that.
    pub(crate) async fn drop_journal(&self) -> Result<(), Offence> {
        let array = self.volume.status().cores[self.machine.topology.worked_on()].array.clone();
        if array.journal.is_none() {
            return Ok(());
        }
        self.note(Step::DropJournal);
        self.tally.borrow_mut().commands += 1;
        let was_dropped = self.excuses.borrow().journal_dropped;
        self.machine.has_journal.set(None);
        self.excuses.borrow_mut().journal_dropped = true;
        match self.volume.drop_journal(self.core(), careful().pool).await {
            Ok(()) => {
                self.machine.has_journal.set(Some(false));
                self.tally.borrow_mut().journals_dropped += 1;
                Ok(())
            }
            Err(error) => {
                if matches!(error, ChangeMembersError::Journal(JournalError::Exposed { .. })) {
                    self.machine.has_journal.set(Some(true));
                    self.excuses.borrow_mut().journal_dropped = was_dropped;
                }
                self.judge_kept_journal("take the journal away", &error)
            }
        }
    }

    fn judge_kept_journal(&self, what: &str, error: &ChangeMembersError) -> Result<(), Offence> {
        let is_passing = matches!(
            error,
            ChangeMembersError::Busy { .. }
                | ChangeMembersError::CachedCores { .. }
                | ChangeMembersError::Replayed { .. }
                | ChangeMembersError::Journal(JournalError::Torn { .. })
        );
        let excuses = self.excuses.borrow();
        if is_passing || excuses.errors || !excuses.lost.is_empty() {
            self.note(format!("{what}: not done: {error}"));
            return Ok(());
        }
        Err(Offence::Command(format!("{what}: {error}")))
    }

    /// # Errors
    /// Never; the scrub goes on beside the requests.
    pub(crate) fn scrub_array(&self) -> Result<(), Offence> {
        self.note(Step::ScrubArray);
        self.tally.borrow_mut().commands += 1;
        let begun = self.volume.scrub_array(self.core());
        if !self.machine.topology.has_copies_or_parity() {
            self.note("nothing to compare");
            return begun.err().map(drop).ok_or_else(|| {
                Offence::Command("a scrub began where there is nothing to compare".to_owned())
            });
        }
        begun.map_err(|error| Offence::Command(format!("scrub the array: {error}")))
    }

    /// Waits until every stripe has been looked at, while nobody writes: then no checksum speaks
    /// against what is there.
    ///
    /// # Errors
    /// Where that has no end, and where one does.
    pub(crate) async fn await_scrub(&self) -> Result<(), Offence> {
        match self.scrubbed().await? {
            Some(report) if report.located_by_checksum > self.located_before => {
                let told = format!("a scrub put sectors right that nobody has changed: {report:?}");
                Err(Offence::Command(told))
            }
            _ => Ok(()),
        }
    }

    /// What the scrub under way has found, when it has ended; `None` where it may not end.
    async fn scrubbed(&self) -> Result<Option<ScrubReport>, Offence> {
        for _ in 0..POLLS_MAX {
            let core = &self.volume.status().cores[self.machine.topology.worked_on()];
            let is_stuck = core.background.failure.is_some() || self.excuses.borrow().errors;
            if is_stuck || self.is_over.get() {
                return Ok(None);
            }
            if !core.background.scrub_wanted {
                self.note(format!("scrubbed: {:?}", core.array.integrity));
                return Ok(Some(core.array.scrub_report()));
            }
            self.runtime.sleep(POLL).await;
        }
        let core = &self.volume.status().cores[self.machine.topology.worked_on()];
        Err(Offence::Command(format!("a scrub never ends: {core:?}")))
    }

    /// A scrub has ended while nobody wrote.
    ///
    /// # Errors
    /// Where some of the array is not signed after it.
    pub(crate) fn expect_signed(&self) -> Result<(), Offence> {
        let core = &self.volume.status().cores[self.machine.topology.worked_on()];
        let is_signed = core.array.integrity.is_some_and(|it| it.regions_signed == it.regions);
        let is_excused = self.excuses.borrow().errors || core.background.failure.is_some();
        match is_signed || is_excused || self.is_over.get() {
            true => Ok(()),
            false => Err(Offence::Command(format!("not all of it is signed: {core:?}"))),
        }
    }

    /// So many sectors of members have changed while nothing ran: a scrub finds every one of them.
    ///
    /// # Errors
    /// Where it does not.
    pub(crate) async fn heal(&self, rotted: u64) -> Result<(), Offence> {
        if rotted == 0 {
            return Ok(());
        }
        self.scrub_array()?;
        let Some(report) = self.scrubbed().await? else { return Ok(()) };
        let found = report.located_by_checksum;
        // What lies in spare space, or on a spare, nobody looks at.
        let has_spare = self.machine.topology.spread.is_some() || self.machine.has_exchanged.get();
        let may_be_less = has_spare && found < rotted;
        // The scrub may be one that went on, which counts what it had found before.
        let is_found = [rotted, rotted + self.located_before].contains(&found);
        if !(is_found || may_be_less) || report.unexplained_sectors > 0 {
            let told = format!("{rotted} sectors have changed: {report:?}");
            return Err(Offence::Command(told));
        }
        self.tally.borrow_mut().rot_healed += found.min(rotted);
        Ok(())
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
        is_passing(error) || is_growing && self.machine.reshape.may_be_under_way()
    }
}

/// Whether it is refused for what the array is just now.
pub(crate) fn is_passing(error: &ChangeMembersError) -> bool {
    let ChangeMembersError::Member(error) = error else {
        return matches!(error, ChangeMembersError::Busy { .. });
    };
    let is_theirs = matches!(error, MemberError::Filling { .. } | MemberError::Known { .. });
    is_theirs || matches!(error, MemberError::Uninitialised { .. })
}
