//! Counts what a scrub finds.

use std::cell::Cell;
use std::time::Duration;

use headpond_block::{Instant, Runtime};
use uuid::Uuid;

use super::Array;
use crate::history::{Finding, History, LastScrub, ScrubLog, ScrubState, Trouble};
use crate::layout::{StripCell, Stripe};

/// What is kept of an array.
pub(super) struct ArrayHistory {
    pub(super) all: History,
    scrub: ScrubLog,
    /// When the scrub under way began or went on.
    since: Cell<Option<Instant>>,
}

impl ArrayHistory {
    pub(super) fn new(all: History, array: Uuid) -> ArrayHistory {
        let scrub = all.scrub_log(array);
        ArrayHistory { all, scrub, since: Cell::new(None) }
    }

    /// A scrub begins, or one from before goes on.
    pub(super) fn begin_scrub(&self, runtime: &Runtime, goes_on: bool) {
        // One that a crash left may not have been kept: the complete one before it is another.
        let is_it = |scrub: &LastScrub| goes_on && scrub.state != ScrubState::Complete;
        let before = self.scrub.take().filter(is_it);
        let scrub = before.unwrap_or_else(|| LastScrub::beginning(runtime.utc()));
        self.scrub.replace(Some(LastScrub { state: ScrubState::Running, ..scrub }));
        self.since.set(Some(runtime.now()));
        self.all.note_change();
    }

    /// The scrub under way is complete, or goes on later.
    pub(super) fn end_scrub(&self, runtime: &Runtime, is_whole: bool) {
        self.note_time(runtime);
        self.since.set(None);
        self.note(|scrub| {
            scrub.ended_at = is_whole.then(|| runtime.utc());
            scrub.state = if is_whole { ScrubState::Complete } else { ScrubState::Interrupted };
        });
    }

    /// Adds the time that it took until now.
    pub(super) fn note_time(&self, runtime: &Runtime) {
        let now = runtime.now();
        let Some(since) = self.since.replace(Some(now)) else { return };
        let seconds = now.since(since).as_secs();
        // What is less than a second counts later.
        self.since.set(Some(since + Duration::from_secs(seconds)));
        self.note(|scrub| scrub.took_s += seconds);
    }

    /// A finding, which is to be kept.
    fn note(&self, note: impl FnOnce(&mut LastScrub)) {
        self.scrub.borrow_mut().as_mut().map(note);
        self.all.note_change();
    }

    /// A stripe was looked at.
    pub(super) fn note_stripe(&self) {
        if let Some(scrub) = &mut *self.scrub.borrow_mut() {
            scrub.report.stripes += 1;
        }
    }

    /// The newest scrub, as of now.
    pub(super) fn last_scrub(&self, runtime: &Runtime) -> Option<LastScrub> {
        let mut scrub = self.scrub.borrow().clone()?;
        match self.since.get() {
            Some(since) => scrub.took_s += runtime.now().since(since).as_secs(),
            // Of a process that has ended.
            None if scrub.state == ScrubState::Running => scrub.state = ScrubState::Interrupted,
            None => {}
        }
        Some(scrub)
    }
}

impl Array {
    /// Sectors of a member are put right.
    pub(super) fn note_repaired(&self, cell: StripCell, sectors: u64, is_by_checksum: bool) {
        let holder = self.members.holder(cell);
        self.history.note(|scrub| {
            scrub.report.corrected_sectors += sectors;
            scrub.report.located_by_checksum += if is_by_checksum { sectors } else { 0 };
            holder
                .iter()
                .for_each(|it| scrub.member(it.uuid, it.name()).repaired_sectors += sectors);
        });
    }

    /// A strip of a member could not be read, and was rewritten.
    pub(super) fn note_rewritten(&self, cell: StripCell) {
        let holder = self.members.holder(cell);
        self.history.note(|scrub| {
            scrub.report.rewritten += 1;
            holder.iter().for_each(|it| scrub.member(it.uuid, it.name()).rewritten_strips += 1);
        });
    }

    pub(super) fn note_finding(&self, stripe: Stripe, what: Trouble) {
        let (start, bytes) = (self.layout.stripe_start(stripe), self.layout.stripe_bytes());
        let finding = Finding { stripe_start: start, stripe_bytes: bytes, what };
        let holders = match what {
            Trouble::Unexplained => self.cells_of(stripe),
            Trouble::Unreadable => Vec::new(),
        };
        self.history.note(|scrub| {
            let holders = holders.into_iter().filter_map(|cell| self.members.holder(cell));
            holders.for_each(|it| scrub.member(it.uuid, it.name()).unexplained_sectors += 1);
            scrub.note(finding);
        });
    }
}
