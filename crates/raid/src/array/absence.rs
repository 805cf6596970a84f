//! Writes that failed or missing members missed, so that a re-added one is resynced with these
//! only.
//!
//! From the first loss on, until every role has a member again, all writes are marked in a second
//! bitmap on the members, and no mark is cleared. It begins with the writes that were not flushed
//! on all members at the first loss: the lost member may not have them.
//!
//! **Invariants**: the event that records a loss is issued when the marks of its missed writes are
//! stable; where the marks may be incomplete, the record does not refer to them.
//! **Source**: the idea is the write-intent bitmap of Linux md, whose marks stay while an array is
//! degraded; with a second bitmap the first still shows which stripes an unclean shutdown may have
//! torn.

use std::cell::Cell;
use std::ops::{Range, RangeInclusive};

use headpond_block::DeviceError;

use super::Array;
use super::intents::Intents;
use super::label::Bitmap;
use crate::layout::Stripe;
use crate::superblock::ArrayRecord;

/// What is known, when an array is put together, of the writes that members lack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AbsenceFound {
    /// No member is failed or missing, or nothing was written since.
    Nothing,
    /// Some stripes may have been written without a member.
    Marked(Vec<Range<u64>>),
    /// Anything may have been.
    Unknown,
}

/// The bitmap, and whether it tells everything.
pub(super) struct Absence {
    marks: Intents,
    is_known: Cell<bool>,
}

impl Absence {
    pub(super) fn new(record: &ArrayRecord, stripes: u64, found: &AbsenceFound) -> Option<Absence> {
        let region_stripes = record.intent_region_stripes?;
        let marks = Intents::new(Bitmap::Absence, record.uuid, stripes, region_stripes);
        marks.bitmap.borrow_mut().renew();
        if let AbsenceFound::Marked(ranges) = found {
            for range in ranges {
                let all = Stripe(range.start)..=Stripe(range.end - 1);
                marks.bitmap.borrow_mut().mark(all);
            }
        }
        Some(Absence { marks, is_known: Cell::new(*found != AbsenceFound::Unknown) })
    }

    pub(super) fn marks(&self) -> &Intents {
        &self.marks
    }

    /// What a member lacks that left in any event since the one that is recorded; in stripes.
    pub(super) fn lacks(&self, stripes: u64) -> Vec<Range<u64>> {
        self.marks.bitmap.borrow().marked(stripes)
    }
}

impl Array {
    /// A member was dropped: what it may have forgotten is marked, and goes to the others before
    /// the event that says so.
    pub(super) fn note_absence(&self) {
        let (Some(absence), Some(intents)) = (&self.absence, &self.intents) else { return };
        if self.members.is_degraded() {
            let mut marks = absence.marks.bitmap.borrow_mut();
            intents.bitmap.borrow().unsettled().into_iter().for_each(|it| marks.mark(it));
        }
    }

    /// Writes the marks that the members lack, while a member is failed or missing.
    pub(super) async fn write_absence(&self) {
        if let Some(absence) = &self.absence
            && self.members.is_degraded()
        {
            self.write_urgent_pages(&absence.marks).await;
        }
    }

    /// Marks stripes as written, while a member is failed or missing.
    ///
    /// # Errors
    /// Where the array has lost too many members.
    pub(super) async fn mark_absent(
        &self,
        stripes: RangeInclusive<Stripe>,
    ) -> Result<(), DeviceError> {
        let Some(absence) = &self.absence else { return Ok(()) };
        // Meanwhile all members may be re-added, which ends the marks, and one be lost again.
        while self.members.is_degraded() {
            absence.marks.bitmap.borrow_mut().mark(stripes.clone());
            if self.is_stable_or_written(&absence.marks, &stripes).await? {
                break;
            }
        }
        Ok(())
    }

    /// Every role has a member, or spare space that holds everything: the marks restart, and the
    /// next event records that.
    pub(super) fn end_absence(&self) {
        let Some(absence) = &self.absence else { return };
        absence.marks.bitmap.borrow_mut().renew();
        absence.is_known.set(true);
        self.recorder.change(|record| record.absent_since = None);
    }

    /// What the record of event `event` says of the marks.
    pub(super) fn absent_since(&self, before: Option<u64>, event: u64) -> Option<u64> {
        let absence = self.absence.as_ref()?;
        match self.members.is_degraded() {
            true if absence.is_known.get() => before.or(Some(event)),
            _ => None,
        }
    }
}
