//! The bitmaps on the members: regions being written, writes that members missed, and regions
//! written to since a scrub signed them.

use std::cell::{Cell, RefCell};
use std::ops::{Range, RangeInclusive};
use std::rc::Rc;

use headpond_block::sync::{Notify, join_all};
use headpond_block::{DeviceError, RequestFlags, RequestKind, Submission};
use uuid::Uuid;

use super::absence::Absence;
use super::integrity::Integrity;
use super::label::{Bitmap, write_bitmap_page};
use super::{Array, Member};
use crate::intent::{IntentBitmap, PageWrite};
use crate::layout::Stripe;
use crate::superblock::RecordedState;

/// A bitmap of an array, and the writers of its pages.
pub(super) struct Intents {
    kind: Bitmap,
    pub(super) bitmap: RefCell<IntentBitmap>,
    writing: Cell<bool>,
    progress: Notify,
}

/// The announcement of a write to some stripes, until the write is done.
pub(super) struct Mark<'a> {
    intents: &'a Intents,
    stripes: RangeInclusive<Stripe>,
}

impl Intents {
    pub(super) fn new(kind: Bitmap, array: Uuid, stripes: u64, region_stripes: u64) -> Intents {
        Intents {
            kind,
            bitmap: RefCell::new(IntentBitmap::new(array, stripes, region_stripes)),
            writing: Cell::new(false),
            progress: Notify::new(),
        }
    }

    /// As [`IntentBitmap::self_check`].
    pub(super) fn self_check(&self) {
        self.bitmap.borrow().self_check();
    }

    fn begin(&self, stripes: RangeInclusive<Stripe>, is_logged: bool) -> Mark<'_> {
        let mut bitmap = self.bitmap.borrow_mut();
        match is_logged {
            true => bitmap.begin_unmarked(stripes.clone()),
            false => bitmap.begin(stripes.clone()),
        }
        Mark { intents: self, stripes }
    }
}

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        self.intents.bitmap.borrow_mut().finish(self.stripes.clone());
    }
}

impl Array {
    /// Marks the regions of the stripes on all active members; many callers share one page write. A
    /// write that a log above would repeat needs no mark, once it is recorded that there are such,
    /// as long as no member is failed or missing; nor does one that a reshape would repeat. Signed
    /// regions are unsigned first, by every write.
    ///
    /// # Errors
    /// Where the array has lost too many members.
    pub(super) async fn mark(
        &self,
        stripes: RangeInclusive<Stripe>,
        flags: RequestFlags,
    ) -> Result<Option<Mark<'_>>, DeviceError> {
        self.unsign(stripes.clone()).await?;
        let Some(intents) = &self.intents else { return Ok(None) };
        let is_logged = flags.contains(RequestFlags::LOGGED);
        let is_repeated = self.is_stepping_on(&stripes);
        let mark = intents.begin(stripes.clone(), is_logged || is_repeated);
        if headpond_block::defect!(SkipIntentMark) {
            return Ok(Some(mark));
        }
        match is_logged {
            _ if is_repeated => {}
            true => self.note_logged().await?,
            false => self.stabilise(intents, stripes.clone()).await?,
        }
        self.mark_absent(stripes).await?;
        Ok(Some(mark))
    }

    /// Has the marks of some stripes written that are wanted.
    pub(super) async fn stabilise(
        &self,
        intents: &Intents,
        stripes: RangeInclusive<Stripe>,
    ) -> Result<(), DeviceError> {
        while !self.is_stable_or_written(intents, &stripes).await? {}
        Ok(())
    }

    /// Whether the marks of some stripes are stable already; else writes the next page that lacks
    /// any.
    pub(super) async fn is_stable_or_written(
        &self,
        intents: &Intents,
        stripes: &RangeInclusive<Stripe>,
    ) -> Result<bool, DeviceError> {
        if intents.bitmap.borrow().is_stable(stripes.clone()) {
            return Ok(true);
        }
        if let Some(page) = self.turn_to_write(intents, IntentBitmap::next_urgent).await {
            self.write_page(intents, page).await?;
        }
        Ok(false)
    }

    /// Waits until no pages are being written, and selects one.
    async fn turn_to_write(
        &self,
        intents: &Intents,
        choose: impl Fn(&mut IntentBitmap) -> Option<PageWrite>,
    ) -> Option<PageWrite> {
        while intents.writing.get() {
            intents.progress.wait().await;
        }
        choose(&mut intents.bitmap.borrow_mut())
    }

    /// Records, before the first such write, that the bitmap does not tell the whole truth.
    async fn note_logged(&self) -> Result<(), DeviceError> {
        let known = self.recorder.record().state == RecordedState::DirtyLogged;
        if !known {
            self.recorder.change_unsealed(|record| record.state = RecordedState::DirtyLogged);
        }
        self.settle().await;
        self.check_intact()
    }

    /// Brings every page on the members up to date.
    pub(super) async fn write_outdated_pages(&self) -> Result<(), DeviceError> {
        match &self.intents {
            Some(intents) => self.write_outdated(intents).await,
            None => Ok(()),
        }
    }

    /// The same for one of the bitmaps.
    pub(super) async fn write_outdated(&self, intents: &Intents) -> Result<(), DeviceError> {
        while let Some(page) = self.turn_to_write(intents, IntentBitmap::next_outdated).await {
            self.write_page(intents, page).await?;
        }
        Ok(())
    }

    /// Writes every page, for the sake of a member that has none.
    pub(super) async fn write_all_pages(&self) -> Result<(), DeviceError> {
        let others = self.absence.iter().map(Absence::marks);
        let others = others.chain(self.integrity.iter().map(Integrity::marks));
        for intents in self.intents.iter().chain(others) {
            let pages = intents.bitmap.borrow().pages();
            for number in 0..pages {
                let page = self.turn_to_write(intents, |bitmap| Some(bitmap.take(number))).await;
                self.write_page(intents, page.expect("it was chosen")).await?;
            }
        }
        Ok(())
    }

    /// Writes every page that lacks a mark; members that cannot take one are dropped, which has to
    /// be settled.
    pub(super) async fn write_urgent_pages(&self, intents: &Intents) {
        while let Some(page) = self.turn_to_write(intents, IntentBitmap::next_urgent).await {
            self.put_page(intents, page).await;
            if self.members.is_broken() {
                return;
            }
        }
    }

    /// Adopts the marks that an unclean shutdown left, so that they stay until the array has been
    /// resynchronised and flushed.
    ///
    /// # Errors
    /// Where the array has lost too many members.
    pub(crate) async fn keep_marks(&self, marked: &[Range<u64>]) -> Result<(), DeviceError> {
        for stripes in marked {
            let (first, last) = (Stripe(stripes.start), Stripe(stripes.end - 1));
            self.mark(first..=last, RequestFlags::empty()).await?;
        }
        Ok(())
    }

    async fn write_page(&self, intents: &Intents, written: PageWrite) -> Result<(), DeviceError> {
        self.put_page(intents, written).await;
        self.settle().await;
        self.check_intact()
    }

    async fn put_page(&self, intents: &Intents, written: PageWrite) {
        let _turn = BitmapTurn::take(intents);
        let bytes: Rc<[u8]> = written.bytes.as_slice().into();
        let members = self.members.present();
        let write = |member: &Rc<Member>| {
            let (device, number, kind) = (Rc::clone(&member.device), written.number, intents.kind);
            let bytes = Rc::clone(&bytes);
            let write = async move { write_bitmap_page(&*device, kind, number, &bytes).await };
            self.watched(member, Submission::pending(write), RequestKind::Write)
        };
        let outcomes = join_all(members.iter().map(write).collect()).await;
        for (member, outcome) in members.iter().zip(outcomes) {
            if outcome.is_err() {
                self.drop_member(member);
            }
        }
        if self.members.is_broken() {
            return;
        }
        intents.bitmap.borrow_mut().written(written);
        self.counters.intent_pages.count();
    }
}

struct BitmapTurn<'a>(&'a Intents);

impl<'a> BitmapTurn<'a> {
    fn take(intents: &'a Intents) -> Self {
        assert!(!intents.writing.replace(true), "one caller at a time writes pages");
        BitmapTurn(intents)
    }
}

impl Drop for BitmapTurn<'_> {
    fn drop(&mut self) {
        self.0.writing.set(false);
        self.0.progress.notify_all();
    }
}
