//! Failing members, and the superblocks that record it.
//!
//! A failure takes effect in memory at once. It is *settled* when it is durable on the survivors;
//! until then no request that did without the member is acknowledged. Where a group has lost too
//! many members, nothing is recorded: the last ones to fail have the same data as the others, and
//! may be available again later.
//!
//! **Invariants**, on which `assemble` relies to decide about membership:
//! - A request that did without a member is acknowledged only when every member in use durably
//!   excludes that one, by the role table in its superblock.
//! - An excluded role stays excluded: no later superblock of the same member has it in use again.
//! - An event is issued only when the one before is durable on every member in use. Where a cut
//!   left members behind, the superblock that they missed is written to them first, unchanged. So a
//!   member that is in use by a superblock of event N has event N - 1 at least, however many starts
//!   were cut since.
//! - To wait for an event is also to wait for its *seal*: one more event with the same content. So
//!   an image of a member from before the event is two behind when it is put back after it, and no
//!   member that a cut left behind ever is.
//! - An event has the same content on all members, and is written to the copy that the member can
//!   spare until it is acknowledged.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use headpond_block::sync::{Notify, join_all};
use headpond_block::{DeviceError, Outcome, RequestKind, Submission};

use super::{Array, Member, write_superblock};
use crate::layout::StripCell;
use crate::superblock::{
    ArrayRecord, RecordedParity, RecordedState, RecordedWork, RoleRecord, Superblock,
};
use uuid::Uuid;

/// What the members' superblocks say, and whether that is still true.
pub(super) struct Recorder {
    /// What they shall say.
    record: RefCell<ArrayRecord>,
    /// What the newest of them says; some members may lack it.
    issued: RefCell<ArrayRecord>,
    changes: Cell<u64>,
    recorded: Cell<u64>,
    /// Something has changed that an image from before must not pass for.
    wants_seal: Cell<bool>,
    /// The newest event is a seal, or needs none.
    is_sealed: Cell<bool>,
    busy: Cell<bool>,
    progress: Notify,
    watcher: RefCell<Option<Box<dyn Fn()>>>,
}

impl Recorder {
    /// `issued` was found on a member; what it says of the parity holds no more.
    pub(super) fn new(
        issued: ArrayRecord,
        parity: RecordedParity,
        initialised_stripes: u64,
    ) -> Recorder {
        let work = RecordedWork { initialised_stripes, ..issued.work };
        Recorder {
            record: RefCell::new(ArrayRecord { parity, work, ..issued.clone() }),
            issued: RefCell::new(issued),
            changes: Cell::new(0),
            recorded: Cell::new(0),
            wants_seal: Cell::new(false),
            is_sealed: Cell::new(true),
            busy: Cell::new(false),
            progress: Notify::new(),
            watcher: RefCell::default(),
        }
    }

    pub(super) fn record(&self) -> std::cell::Ref<'_, ArrayRecord> {
        self.record.borrow()
    }

    /// What the newest superblock says.
    pub(super) fn issued(&self) -> std::cell::Ref<'_, ArrayRecord> {
        self.issued.borrow()
    }

    /// Changes what the next superblock says, which has to be settled.
    pub(super) fn change(&self, change: impl FnOnce(&mut ArrayRecord)) {
        change(&mut self.record.borrow_mut());
        self.note_change();
    }

    /// The same for records that are not events: the progress of a job, or those that a client's
    /// write waits for.
    pub(super) fn change_unsealed(&self, change: impl FnOnce(&mut ArrayRecord)) {
        let wanted = self.wants_seal.get();
        self.change(change);
        self.wants_seal.set(wanted);
    }

    /// The event count that every member carries, or is about to.
    pub(super) fn issued_count(&self) -> u64 {
        self.issued.borrow().event_count
    }

    pub(super) fn is_settled(&self) -> bool {
        self.is_recorded() && self.is_sealed.get()
    }

    fn is_recorded(&self) -> bool {
        self.changes.get() == self.recorded.get()
    }

    /// The newest record once more, as an event of its own.
    fn seal(&self) -> ArrayRecord {
        self.record.borrow_mut().event_count += 1;
        let mut issued = self.issued.borrow_mut();
        issued.event_count += 1;
        issued.clone()
    }

    /// Checks what was changed against what was recorded; for tests and simulation.
    ///
    /// # Panics
    /// Where an invariant does not hold.
    pub(super) fn self_check(&self) {
        assert!(self.recorded.get() <= self.changes.get(), "recorded is what was changed");
        let (record, issued) = (self.record.borrow(), self.issued.borrow());
        assert_eq!(record.event_count, issued.event_count, "both are of one event");
        let is_same = (record.uuid, record.level) == (issued.uuid, issued.level);
        assert!(is_same, "an event is of another array");
    }

    /// What the members say about the array, where nothing is left to record.
    pub(super) fn recorded(&self) -> Option<std::cell::Ref<'_, ArrayRecord>> {
        (self.is_settled() && !self.busy.get()).then(|| self.issued.borrow())
    }

    fn note_change(&self) {
        self.changes.set(self.changes.get() + 1);
        self.wants_seal.set(true);
        if let Some(tell) = &*self.watcher.borrow() {
            tell();
        }
    }
}

impl Array {
    /// Fails a member, if it is still in use, and waits until that is settled.
    pub(super) async fn fail_member(&self, member: &Rc<Member>) {
        self.drop_member(member);
        self.settle().await;
    }

    /// The same for the holder of a cell, if the error is of its device: meanwhile another may hold
    /// it.
    pub(super) async fn fail_holder(&self, cell: StripCell, error: &DeviceError) {
        match self.members.holder(cell) {
            Some(member) if error.device() == member.name() => {
                self.fail_member(&member).await;
            }
            _ => self.settle().await,
        }
    }

    /// Fails a member, if it is still in use. That has to be settled.
    pub(super) fn drop_member(&self, member: &Rc<Member>) {
        if self.members.is_present(member) {
            self.members.fail(member);
            self.note_absence();
            self.recorder.note_change();
        }
    }

    /// Fails members that are hung, or had too many timeouts, where their group can lose them.
    /// Requests do that for the member that they wait for; where all of them are reads, which the
    /// peers answer, none waits for it.
    pub async fn evict_hung(&self) {
        for array in [Some(self), self.former()].into_iter().flatten() {
            array.evict_condemned();
            array.settle().await;
        }
    }

    /// Waits until the survivors durably know every failure. Returns at once where there is none.
    pub(super) async fn settle(&self) {
        if headpond_block::defect!(EvictSilently) {
            return;
        }
        while !self.recorder.is_settled() && !self.members.is_broken() {
            if self.recorder.busy.get() {
                self.recorder.progress.wait().await;
                continue;
            }
            let _turn = RecorderTurn::take(&self.recorder);
            if self.recorder.is_recorded() {
                let seal = self.recorder.seal();
                self.write_superblocks(&seal).await;
                self.recorder.is_sealed.set(true);
                continue;
            }
            let newest = self.recorder.issued.borrow().clone();
            self.write_superblocks(&newest).await;
            self.write_absence().await;
            if self.members.is_broken() {
                return;
            }
            let closed = self.pause_writes().await;
            // Of those as well that did not outlive the flush.
            self.write_absence().await;
            if self.members.is_broken() {
                return;
            }
            let changes = self.recorder.changes.get();
            let is_final = !self.recorder.wants_seal.take();
            let next = self.next_event();
            self.write_superblocks(&next).await;
            self.note_recorded(&next, closed).await;
            self.recorder.recorded.set(changes);
            self.recorder.is_sealed.set(is_final || headpond_block::defect!(SkipSeal));
        }
    }

    /// Changes the record of the array on all active members, with a higher event count. Members
    /// that cannot take it fail, which has to be settled in turn.
    ///
    /// # Errors
    /// Where the array has lost too many members.
    pub(crate) async fn change_record(&self, change: impl FnOnce(&mut ArrayRecord)) -> Outcome {
        self.recorder.change(change);
        self.settle().await;
        self.check_intact()
    }

    /// The same for how far a job is: it is recorded often, and gets no seal.
    pub(super) async fn record_progress(&self, change: impl FnOnce(&mut ArrayRecord)) -> Outcome {
        self.recorder.change_unsealed(change);
        self.settle().await;
        self.check_intact()
    }

    /// Has `tell` called whenever something changes that the members record, a failure above all,
    /// and when a member is found hung: [`Array::evict_hung`] is due then.
    pub fn watch(&self, tell: Box<dyn Fn()>) {
        let tell: Rc<dyn Fn()> = tell.into();
        for array in [Some(self), self.former()].into_iter().flatten() {
            array.watch.when_hung(Rc::clone(&tell));
            let tell = Rc::clone(&tell);
            array.recorder.watcher.replace(Some(Box::new(move || tell())));
        }
    }

    /// How many members have lost their role since the array was put together. When a write has
    /// been acknowledged that one of them lacks, it is counted.
    pub fn departures(&self) -> u64 {
        self.members.departures()
    }

    /// What its members carry.
    pub fn uuid(&self) -> Uuid {
        self.recorder.record().uuid
    }

    /// What the owner of the array last raised by [`Array::raise_owner_generation`].
    pub fn owner_generation(&self) -> u64 {
        self.recorder.record().owner_generation
    }

    /// The cache that was last recorded by [`Array::set_owner`], or when the array was made.
    pub fn owner(&self) -> Option<Uuid> {
        self.recorder.record().owner
    }

    /// The open count of the owner, as it reported last; zero if it did not.
    pub fn owner_life(&self) -> u64 {
        self.recorder.record().owner_life
    }

    /// Records the open count of the owner, durably on every active member: older images of it are
    /// detected from then on.
    ///
    /// # Errors
    /// Where the array has lost too many members.
    pub async fn set_owner_life(&self, life: u64) -> Outcome {
        self.change_both_records(|record| record.owner_life = life).await
    }

    /// Whether the newest event, or the one that it seals, says that the owner stopped before with
    /// nothing that the array lacks.
    pub(crate) fn is_owner_clean(&self) -> bool {
        let record = self.recorder.issued();
        record.owner_clean_since.is_some_and(|event| record.event_count - event <= 1)
    }

    /// Records the cache in front of the array, durably on every active member. The one before it
    /// is out of date from then on.
    ///
    /// # Errors
    /// Where the array has lost too many members.
    pub async fn set_owner(&self, owner: Option<Uuid>) -> Outcome {
        if self.owner() == owner {
            // Said already, and perhaps not recorded: the array may have failed over it.
            return self.check_intact();
        }
        self.check_halves_agree("get another cache before it is put together again, to grow")?;
        let set = |record: &mut ArrayRecord| {
            record.owner_generation += u64::from(record.owner.is_some());
            record.owner = owner;
            record.owner_life = 0;
            if owner.is_none() && record.state == RecordedState::DirtyLogged {
                // Whatever its log noted has reached the members.
                record.state = RecordedState::Dirty;
            }
        };
        self.change_both_records(set).await
    }

    /// Raises the owner's generation, durably on every active member.
    ///
    /// # Errors
    /// Where the array has lost too many members.
    pub async fn raise_owner_generation(&self, by: u64) -> Outcome {
        self.check_halves_agree("disown a cache before it is put together again, to grow")?;
        self.change_record(|record| record.owner_generation += by).await
    }

    /// Writes a record to every active member that does not carry its event yet. One that is about
    /// to join, which the record does not know, gets none: a member left with this record by a cut
    /// in the next event would exclude it.
    async fn write_superblocks(&self, record: &ArrayRecord) {
        let mut members = self.members.present();
        members.retain(|member| member.event_count.get() < record.event_count);
        let joining = members.extract_if(.., |member| !record.knows(member.uuid));
        joining.for_each(|member| member.note_superblock(record.event_count));
        let write = |member: &Rc<Member>| {
            let sequence = member.sequence.get() + 1;
            let role = member.role().and_then(|role| self.recorded_role(role));
            let (array, member_uuid) = (record.clone(), member.uuid);
            let superblock = Superblock { array, member_uuid, role, sequence };
            let device = Rc::clone(&member.device);
            let write = async move { write_superblock(&*device, superblock).await };
            self.watched(member, Submission::pending(write), RequestKind::Write)
        };
        let outcomes = join_all(members.iter().map(write).collect()).await;
        for (member, mut outcome) in members.iter().zip(outcomes) {
            if outcome.is_err() && self.is_last_copy(member) {
                // No other member has its data: one error does not fail all of it.
                outcome = write(member).await;
            }
            match outcome {
                Ok(()) => member.note_superblock(record.event_count),
                Err(_) => self.drop_member(member),
            }
        }
    }

    /// The record as it is to be now, one event on.
    fn next_event(&self) -> ArrayRecord {
        let mut record = self.recorder.record.borrow_mut();
        for member in self.members.present() {
            let in_step = member.event_count.get() == record.event_count;
            assert!(in_step, "{} has missed an event", member.name());
        }
        for (role, slot) in self.members.slots() {
            let Some(role) = self.recorded_role(role) else { continue };
            let (member_uuid, state) = (slot.uuid.get(), slot.state.get());
            record.roles[role.index()] = RoleRecord { member_uuid, state };
        }
        record.spares = self.members.spare_records();
        record.lent = self.members.lent_records();
        record.has_lost_blocks = self.lost.is_listed();
        self.note_guarded(&mut record);
        record.event_count += 1;
        record.absent_since = self.absent_since(record.absent_since, record.event_count);
        self.recorder.issued.replace(record.clone());
        record.clone()
    }
}

/// The turn of one caller to write superblocks; over also when that caller is dropped.
struct RecorderTurn<'a>(&'a Recorder);

impl<'a> RecorderTurn<'a> {
    fn take(recorder: &'a Recorder) -> Self {
        assert!(!recorder.busy.replace(true), "one caller at a time writes superblocks");
        RecorderTurn(recorder)
    }
}

impl Drop for RecorderTurn<'_> {
    fn drop(&mut self) {
        self.0.busy.set(false);
        self.0.progress.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use headpond_testkit::{Break, assert_trips};

    use super::*;
    use crate::array::self_check::tests::*;

    #[test]
    fn check_notices_what_is_wrong_with_the_record() {
        let breaks: [Break<Array>; 3] = [
            ("recorded is what was changed", |it| it.recorder.recorded.set(1 << 40)),
            ("both are of one event", |it| it.recorder.record.borrow_mut().event_count += 1),
            ("an event is of another array", |it| {
                it.recorder.issued.borrow_mut().uuid = Uuid::nil();
            }),
        ];
        assert_trips(lived, |it| it.recorder.self_check(), &breaks);
    }
}
