//! Which writes go through the stripe journal, and the state of the others.
//!
//! A group is *guarded* while the members' superblocks record that every stripe of it that may be
//! torn is in the journal. Then it may start degraded after an unclean shutdown. A loss makes a
//! group guarded in this order: the member is excluded in memory, and every write that begins from
//! then on goes through the journal; writes in flight without it are waited for; the remaining
//! members are flushed; the superblocks record the member as excluded and the group as guarded.
//! Until that last step the member still counts as one, and after it no write that bypassed the
//! journal is unstable.
//!
//! **Invariants**
//! - While a group lacks a member, by memory or by the newest superblock, every write under parity
//!   goes through the journal; if that is lost, it is refused.
//! - No write that bypasses the journal goes to a stripe with a live record.
//! - A task inside the gate waits neither for space in the journal nor for superblocks.
//!
//! **Not here**: the device (`journal`), the work after an unclean shutdown (`replay`, `assemble`).

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::rc::Rc;

use headpond_block::{BlockDevice, Buffers, ByteRange, Cause, DeviceError, Outcome};

use super::failure::Recorder;
use super::gate::{Closed, Entry, IoGate};
use super::journal::{Changes, Journal, Lease, Room};
use super::{Array, Member};
use crate::journal::label::Label;
use crate::journal::{JournalWhen, record};
use crate::layout::{Layout, Role, Stripe};
use crate::superblock::{ArrayRecord, FillRecord, JournalRecord, RoleState};

/// The journal of an array, and the writes that go through it.
pub(super) struct Guard {
    /// `None` where it is lost.
    journal: RefCell<Option<Rc<Journal>>>,
    when: JournalWhen,
    /// The members know that it is lost.
    is_loss_recorded: Cell<bool>,
    gate: IoGate,
    /// Groups that lack a member by the newest superblock.
    lacking: RefCell<Vec<bool>>,
    /// No stripe is torn that the journal does not know.
    is_sound: Cell<bool>,
    /// Groups whose parity was right when the array started: it had been stopped, or the journal
    /// has whatever that tore.
    verified: u128,
}

/// What is known of the stripes when an array starts that has a journal.
pub(crate) struct Guarded {
    /// `None` where it is lost.
    pub(crate) journal: Option<Rc<Journal>>,
    pub(crate) is_sound: bool,
    pub(crate) verified: u128,
}

/// The right to write to members, until dropped.
pub(super) struct Pass<'a> {
    _entry: Option<Entry<'a>>,
    lease: Option<Lease>,
}

/// What a write has to do.
enum Duty {
    Nothing,
    Journal(Rc<Journal>),
    Refuse,
}

/// What a write changes, for its record.
pub(super) struct Told {
    pub(super) changes: Changes,
    pub(super) data: Buffers,
}

impl Told {
    fn record_bytes(&self) -> u64 {
        let data_bytes = self.data.len_bytes() as u64;
        record::header_bytes(self.changes.len()) + data_bytes.next_multiple_of(record::UNIT_BYTES)
    }
}

impl Guard {
    pub(super) fn new(record: &JournalRecord, roles: &[bool], start: Guarded) -> Guard {
        Guard {
            is_loss_recorded: Cell::new(record.is_lost),
            journal: RefCell::new(start.journal),
            when: record.when,
            gate: IoGate::default(),
            lacking: RefCell::new(roles.to_vec()),
            is_sound: Cell::new(start.is_sound),
            verified: start.verified,
        }
    }

    pub(super) fn journal(&self) -> Option<Rc<Journal>> {
        self.journal.borrow().clone()
    }

    fn is_lacking(&self, group: usize) -> bool {
        self.lacking.borrow()[group]
    }

    /// Checks which writes go through the journal against the members' records, where settled; for
    /// tests and simulation.
    ///
    /// # Panics
    /// Where an invariant does not hold.
    pub(super) fn self_check(&self, layout: &Layout, recorder: &Recorder) {
        let journal = self.journal.borrow();
        journal.iter().for_each(|journal| journal.self_check());
        let is_told = |record: &ArrayRecord| record.journal.is_some_and(|it| it.is_lost);
        let is_lost = journal.is_none() && self.is_loss_recorded.get();
        assert!(!is_lost || is_told(&recorder.record()), "a journal is lost and not called so");
        assert_eq!(self.lacking.borrow().len(), layout.groups(), "each group lacks one or not");
        let groups = layout.groups() as u32;
        let verified = self.verified.checked_shr(groups).unwrap_or(0);
        assert_eq!(verified, 0, "a group is vouched for that there is not");
        let Some(issued) = recorder.recorded() else { return };
        let is_known = self.is_loss_recorded.get() == is_told(&issued);
        assert!(is_known, "the loss of a journal is recorded or not");
        let lacking = lacking(&issued, layout);
        let goes_through = |(group, lacks): (usize, bool)| !lacks || self.is_lacking(group);
        let all = lacking.into_iter().enumerate().all(goes_through);
        assert!(all, "a group lacks a member and passes its journal by");
    }
}

impl Pass<'_> {
    /// The members have answered: the record counts until they have been flushed, and longer where
    /// the write has stopped half-way. Then it is returned, and counts until it is dropped.
    pub(super) fn leave(self, members: &[Rc<Member>], outcomes: &[Outcome]) -> Option<Lease> {
        let lease = self.lease?;
        for (member, _) in members.iter().zip(outcomes).filter(|(_, outcome)| outcome.is_ok()) {
            member.note_write();
        }
        let is_full = |outcome: &Outcome| outcome.as_ref().is_err_and(DeviceError::is_full);
        outcomes.iter().any(is_full).then(|| lease.pin())
    }
}

/// Which groups lack a member by a record, for which spare space does not stand in completely.
fn lacking(record: &ArrayRecord, layout: &Layout) -> Vec<bool> {
    let is_empty = |role: &Role| record.roles[role.index()].state != RoleState::Active;
    lacking_without(record, layout, is_empty)
}

/// The same by a record and where some roles have no member.
pub(super) fn lacking_without(
    record: &ArrayRecord,
    layout: &Layout,
    is_empty: impl Fn(&Role) -> bool,
) -> Vec<bool> {
    let roles = (0..layout.members()).map(|index| Role(index as u16));
    let empty: Vec<Role> = roles.filter(is_empty).collect();
    let mut lacking = vec![false; layout.groups()];
    for role in record.unreplaced(&empty) {
        lacking[layout.group_of_role(role)] = true;
    }
    lacking
}

impl Array {
    /// Lets a write to stripes begin, once what it will leave there is stable, where it has to be.
    ///
    /// # Errors
    /// Where it has to be and cannot: the journal is lost, or full of what cannot be finished.
    pub(super) async fn announce(
        &self,
        stripes: RangeInclusive<Stripe>,
        told: impl Fn() -> Told,
    ) -> Result<Pass<'_>, DeviceError> {
        let Some(guard) = &self.guard else { return Ok(Pass { _entry: None, lease: None }) };
        let mut room: Option<(Rc<Journal>, Room)> = None;
        // A record may do without parity only on members that are known to be out.
        self.settle().await;
        loop {
            self.check_intact()?;
            if guard.journal.borrow().is_none() && !guard.is_loss_recorded.get() {
                self.settle().await;
                if !guard.is_loss_recorded.get() {
                    return Err(self.gone());
                }
            }
            let entry = guard.gate.enter().await;
            let journal = match self.duty(guard, stripes.clone()) {
                Duty::Nothing => return Ok(Pass { _entry: Some(entry), lease: None }),
                Duty::Refuse => {
                    return Err(DeviceError::new(&self.name, Cause::ReadOnly));
                }
                Duty::Journal(journal) => journal,
            };
            let told = told();
            match room.take().filter(|(of, _)| Rc::ptr_eq(of, &journal)) {
                None => {
                    drop(entry);
                    room = self.room(&journal, told.record_bytes()).await?;
                }
                Some((_, room)) => match journal.append(room, told.changes, told.data).await {
                    Ok(lease) => return Ok(Pass { _entry: Some(entry), lease: Some(lease) }),
                    Err(_) => self.lose_journal(&journal),
                },
            }
        }
    }

    /// The stripe journal, where there is one that can be used.
    pub(crate) fn journal(&self) -> Option<Rc<Journal>> {
        self.guard.as_ref().and_then(Guard::journal)
    }

    /// The device of the stripe journal that is used.
    pub fn journal_device(&self) -> Option<Rc<dyn BlockDevice>> {
        self.journal().map(|journal| Rc::clone(journal.device()))
    }

    /// Groups whose writes go through the journal.
    pub(super) fn journalled_groups(&self) -> Vec<usize> {
        let Some(guard) = &self.guard else { return Vec::new() };
        let is_journalled =
            |group: &usize| guard.when == JournalWhen::Always || self.lacks(guard, *group);
        (0..self.layout.groups()).filter(is_journalled).collect()
    }

    fn lacks(&self, guard: &Guard, group: usize) -> bool {
        self.members.lost_in(group) > 0 || guard.is_lacking(group)
    }

    fn duty(&self, guard: &Guard, stripes: RangeInclusive<Stripe>) -> Duty {
        let lacks = |group| self.lacks(guard, group);
        let lacks = match stripes.start() == stripes.end() {
            true => lacks(self.layout.group_of(*stripes.start())),
            false => (0..self.layout.groups()).any(lacks),
        };
        match (guard.journal(), lacks) {
            (Some(journal), lacks) if lacks || guard.when == JournalWhen::Always => {
                Duty::Journal(journal)
            }
            (None, true) => Duty::Refuse,
            _ => Duty::Nothing,
        }
    }

    /// Whether some stripe of a range is in a group that takes no writes. A request that would be
    /// refused in part is refused whole: what was not taken shows nowhere.
    pub(super) fn check_journal(&self, range: ByteRange) -> Outcome {
        let Some(guard) = self.guard.as_ref().filter(|guard| guard.journal.borrow().is_none())
        else {
            return Ok(());
        };
        let stripe = |byte: u64| byte / self.layout.stripe_bytes();
        let (first, last) = (stripe(range.start()), stripe(range.end() - 1));
        let mut stripes = (first..=last).take(self.layout.groups()).map(Stripe);
        match stripes.any(|stripe| self.lacks(guard, self.layout.group_of(stripe))) {
            true => Err(DeviceError::new(&self.name, Cause::ReadOnly)),
            false => Ok(()),
        }
    }

    /// Room for a record; `None` where the journal was lost meanwhile.
    ///
    /// # Errors
    /// Where there is none and will be none, and those of the array.
    async fn room(
        &self,
        journal: &Rc<Journal>,
        bytes: u64,
    ) -> Result<Option<(Rc<Journal>, Room)>, DeviceError> {
        loop {
            if journal.is_failed() {
                self.lose_journal(journal);
                return Ok(None);
            }
            if let Some(room) = journal.reserve(bytes) {
                return Ok(Some((Rc::clone(journal), room)));
            }
            self.make_room(journal).await?;
        }
    }

    /// Has records count no longer, or waits until something has changed.
    ///
    /// # Errors
    /// Where a write that stopped half-way keeps them all, and those of the array.
    async fn make_room(&self, journal: &Rc<Journal>) -> Outcome {
        let before = journal.live_bytes();
        self.flush_for_room(journal).await?;
        match journal.live_bytes() == before && journal.is_blocked() {
            true => Err(DeviceError::new(journal.name(), Cause::NoSpace)),
            false => Ok(()),
        }
    }

    /// Flushes the members, so that records need no longer count.
    async fn flush_for_room(&self, journal: &Rc<Journal>) -> Outcome {
        // Checked before the turn is taken: returning one wakes the others.
        let is_vain = !journal.is_oldest_done() && !journal.is_blocked();
        let turn = if is_vain { None } else { journal.flushing() };
        let Some(_turn) = turn else {
            journal.progress().await;
            return Ok(());
        };
        self.flush_members().await?;
        if journal.move_tail().await.is_err() {
            self.lose_journal(journal);
        }
        Ok(())
    }

    /// Has the journal forget the records that it holds now. Writes without a member have no record
    /// of its contents, so that an older one would be the newest: a replay must not write that to a
    /// member that was rebuilt.
    ///
    /// # Errors
    /// Where it cannot forget them for the sake of a write that stopped half-way.
    pub(super) async fn forget_records(&self) -> Outcome {
        let Some(journal) = self.journal() else { return Ok(()) };
        let end = journal.next_sequence();
        while journal.holds_before(end) {
            if journal.is_failed() {
                self.lose_journal(&journal);
                break;
            }
            self.make_room(&journal).await?;
        }
        Ok(())
    }

    /// Flushes the members when the journal is half full, before a writer has to wait for it.
    pub(super) async fn keep_room(&self) {
        let Some(journal) = self.journal() else { return };
        if journal.is_half_full()
            && journal.is_oldest_done()
            && let Some(_turn) = journal.flushing()
            && self.flush_members().await.is_ok()
            && journal.move_tail().await.is_err()
        {
            self.lose_journal(&journal);
        }
    }

    /// The journal has failed: it is used no more, once the members know that.
    pub(super) fn lose_journal(&self, journal: &Rc<Journal>) {
        let guard = self.guard.as_ref().expect("the array has a journal");
        let is_in_use = guard.journal().is_some_and(|other| Rc::ptr_eq(&other, journal));
        if is_in_use {
            guard.journal.replace(None);
            self.recorder.change(|record| {
                record.journal.as_mut().expect("the array has a journal").is_lost = true;
            });
        }
    }

    /// The records of which a flush of the members that begins now is the end.
    pub(super) fn records_done(&self) -> Option<(Rc<Journal>, u64)> {
        let journal = self.journal()?;
        let done = journal.done_up_to();
        Some((journal, done))
    }

    /// Before an event with a loss or a gain: waits for writes in progress, and makes them stable
    /// on the remaining members.
    pub(super) async fn pause_writes(&self) -> Option<Closed<'_>> {
        let guard = self.guard.as_ref()?;
        if !self.has_unrecorded_turn() || headpond_block::defect!(GuardBeforeFlush) {
            return None;
        }
        let closed = guard.gate.close().await;
        let done = self.records_done();
        let mut is_flushed = false;
        while !is_flushed && !self.members.is_broken() {
            is_flushed = self.flush_those_left().await;
        }
        if let (Some((journal, done)), true) = (done, is_flushed) {
            journal.note_flushed(done);
        }
        Some(closed)
    }

    /// Flushes the members; `false` where one of them failed, and is out.
    async fn flush_those_left(&self) -> bool {
        let present = self.members.present();
        let flushes = present.iter().map(|member| {
            let writes = member.unflushed_writes().unwrap_or(0);
            let flush = self.flush_member(member);
            headpond_block::Submission::pending(async move {
                flush.await.inspect(|()| member.note_flushed(writes))
            })
        });
        let outcomes = headpond_block::sync::join_all(flushes.collect()).await;
        let mut all = true;
        for (member, outcome) in present.iter().zip(outcomes) {
            if outcome.is_err() {
                self.drop_member(member);
                all = false;
            }
        }
        all
    }

    /// Whether the newest superblock has members in use that are out, or the other way round, or a
    /// journal that is lost.
    fn has_unrecorded_turn(&self) -> bool {
        let issued = self.recorder.issued();
        let record = self.recorder.record();
        let is_lost = |record: &ArrayRecord| record.journal.is_some_and(|journal| journal.is_lost);
        let mut slots = self.members.slots();
        let differs = slots.any(|(role, slot)| {
            let is_active = slot.state.get() == RoleState::Active;
            is_active != (issued.roles[role.index()].state == RoleState::Active)
        });
        let becomes_whole = self.whole_in_spare_space(&self.members.lent_records())
            != self.whole_in_spare_space(&issued.lent);
        differs || becomes_whole || is_lost(&issued) != is_lost(&record)
    }

    /// The lost roles that spare space stands in for completely.
    fn whole_in_spare_space(&self, lent: &[Option<FillRecord>]) -> BTreeSet<Role> {
        let rows = self.layout.rows();
        lent.iter().flatten().filter(|lent| lent.rows == rows).map(|lent| lent.role).collect()
    }

    /// Which groups the next event calls guarded.
    pub(super) fn note_guarded(&self, record: &mut ArrayRecord) {
        let (Some(guard), Some(journal)) = (&self.guard, record.journal) else { return };
        let lacking = lacking(record, &self.layout);
        let is_always = journal.when == JournalWhen::Always && !journal.is_lost;
        let is_guarded = |group: &usize| {
            (lacking[*group] || is_always) && (journal.guards(*group) || guard.is_sound.get())
        };
        let bits = (0..self.layout.groups()).filter(is_guarded);
        let guarded = bits.fold(0, |bits, group| bits | 1 << group);
        record.journal = Some(JournalRecord { guarded, ..journal });
    }

    /// An event is on the members, all writes but those through the journal having been waited for
    /// where it tells of a turn.
    pub(super) async fn note_recorded(&self, event: &ArrayRecord, closed: Option<Closed<'_>>) {
        // From now on a member that is lost is one too many only where spare space is not whole.
        let lent = self.whole_in_spare_space(&self.members.lent_records());
        let whole = self.whole_in_spare_space(&event.lent);
        whole.intersection(&lent).for_each(|role| self.members.note_whole(*role));
        let Some(guard) = &self.guard else { return };
        let now = lacking(event, &self.layout);
        let was = guard.lacking.borrow().clone();
        let turns_whole = was.iter().zip(&now).any(|(was, now)| *was && !now);
        let mut is_empty = closed.is_some();
        if let (true, true, Some(journal)) = (turns_whole, is_empty, guard.journal()) {
            // What passes the journal by from now on is not to be written over by its records.
            match journal.move_tail().await {
                Ok(()) => is_empty = journal.is_empty(),
                Err(_) => {
                    self.lose_journal(&journal);
                    is_empty = false;
                }
            }
        }
        let lacks = |(was, now): (&bool, &bool)| *now || (*was && !is_empty);
        guard.lacking.replace(was.iter().zip(&now).map(lacks).collect());
        guard.is_loss_recorded.set(event.journal.is_some_and(|journal| journal.is_lost));
    }

    /// Whether the parity of a stripe was right when the array started, and whatever a log above
    /// has still to write again did not tear it.
    pub(super) fn is_verified(&self, stripe: Stripe) -> bool {
        let group = self.layout.group_of(stripe);
        self.guard.as_ref().is_some_and(|guard| guard.verified >> group & 1 == 1)
    }

    /// What the journal holds is on the members and stable: a new epoch begins, in which it is
    /// used. `is_sound`: nothing else is torn.
    ///
    /// # Errors
    /// Where the array has lost too many members.
    pub(crate) async fn begin_journal(&self, is_sound: bool) -> Outcome {
        let Some(guard) = &self.guard else { return Ok(()) };
        guard.is_sound.set(is_sound);
        let journal = guard.journal();
        let mut epoch = None;
        if let Some(journal) = &journal {
            let next = self.next_epoch(&journal.label());
            match journal.begin_epoch(next).await {
                Ok(()) => epoch = Some(next),
                Err(_) => self.lose_journal(journal),
            }
        }
        self.change_record(|record| {
            let record = record.journal.as_mut().expect("the array has a journal");
            record.is_lost = epoch.is_none();
            record.epoch = epoch.unwrap_or(record.epoch);
        })
        .await
    }

    /// One more than the members have. A start that was cut may have written that to the label, and
    /// no records; one that was lost may have gone on by itself.
    fn next_epoch(&self, label: &Label) -> u64 {
        let journal = self.recorder.record().journal.expect("the array has a journal");
        let floor = if journal.is_lost { label.epoch } else { 0 };
        journal.epoch.max(floor) + 1
    }
}

#[cfg(test)]
mod tests {
    use headpond_testkit::{Break, assert_trips};

    use super::*;
    use crate::array::self_check::tests::*;

    #[test]
    fn check_notices_groups_that_pass_their_journal_by() {
        fn of(array: &Array) -> &Guard {
            array.guard.as_ref().expect("it has a journal")
        }
        let breaks: [Break<Array>; 5] = [
            ("passes its journal by", |it| of(it).lacking.borrow_mut().fill(false)),
            ("each group lacks one or not", |it| of(it).lacking.borrow_mut().push(false)),
            ("is recorded or not", |it| of(it).is_loss_recorded.set(true)),
            ("a journal is lost and not called so", |it| {
                of(it).journal.replace(None);
                of(it).is_loss_recorded.set(true);
            }),
            ("vouched for that there is not", |it| it.guard.as_mut().unwrap().verified = 2),
        ];
        assert_trips(lived, |it| of(it).self_check(&it.layout, &it.recorder), &breaks);
    }
}
