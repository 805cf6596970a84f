//! The intent bitmap on the members.

use std::cell::{Cell, RefCell};
use std::ops::{Range, RangeInclusive};
use std::rc::Rc;

use headpond_block::sync::{Notify, join_all};
use headpond_block::{DeviceError, RequestFlags, RequestKind, Submission};
use uuid::Uuid;

use super::{Array, Member, write_intent_page};
use crate::intent::{IntentBitmap, PageWrite};
use crate::layout::Stripe;
use crate::superblock::RecordedState;

/// The bitmap of an array, and who is writing it.
pub(super) struct Intents {
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
    pub(super) fn new(array: Uuid, stripes: u64, region_stripes: u64) -> Intents {
        Intents {
            bitmap: RefCell::new(IntentBitmap::new(array, stripes, region_stripes)),
            writing: Cell::new(false),
            progress: Notify::new(),
        }
    }

    fn begin(&self, stripes: RangeInclusive<Stripe>) -> Mark<'_> {
        self.bitmap.borrow_mut().begin(stripes.clone());
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
    /// write that a log above would repeat needs no mark, once it is recorded that there are such.
    ///
    /// # Errors
    /// Where the array has lost too many members.
    pub(super) async fn mark(
        &self,
        stripes: RangeInclusive<Stripe>,
        flags: RequestFlags,
    ) -> Result<Option<Mark<'_>>, DeviceError> {
        let Some(intents) = &self.intents else { return Ok(None) };
        if flags.contains(RequestFlags::LOGGED) {
            return self.note_logged().await.map(|()| None);
        }
        let mark = intents.begin(stripes.clone());
        if headpond_block::defect!(SkipIntentMark) {
            return Ok(Some(mark));
        }
        while !intents.bitmap.borrow().is_stable(stripes.clone()) {
            if intents.writing.get() {
                intents.progress.wait().await;
                continue;
            }
            let page = intents.bitmap.borrow_mut().next_urgent();
            if let Some(page) = page {
                self.write_page(intents, page).await?;
            }
        }
        Ok(Some(mark))
    }

    /// Records, before the first such write, that the bitmap does not tell the whole truth.
    async fn note_logged(&self) -> Result<(), DeviceError> {
        let known = self.recorder.record().state == RecordedState::DirtyLogged;
        if !known {
            return self.change_record(|record| record.state = RecordedState::DirtyLogged).await;
        }
        self.settle().await;
        self.check_intact()
    }

    /// Brings every page on the members up to date.
    pub(super) async fn write_outdated_pages(&self) -> Result<(), DeviceError> {
        let Some(intents) = &self.intents else { return Ok(()) };
        loop {
            if intents.writing.get() {
                intents.progress.wait().await;
                continue;
            }
            let page = intents.bitmap.borrow_mut().next_outdated();
            let Some(page) = page else { return Ok(()) };
            self.write_page(intents, page).await?;
        }
    }

    /// Writes every page, for the sake of a member that has none.
    pub(super) async fn write_all_pages(&self) -> Result<(), DeviceError> {
        let Some(intents) = &self.intents else { return Ok(()) };
        let pages = intents.bitmap.borrow().pages();
        for number in 0..pages {
            while intents.writing.get() {
                intents.progress.wait().await;
            }
            let page = intents.bitmap.borrow_mut().take(number);
            self.write_page(intents, page).await?;
        }
        Ok(())
    }

    /// Takes over the marks that an unclean stop left, so that they stay until the array has been
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
        let _turn = Turn::take(intents);
        let bytes: Rc<[u8]> = written.bytes.as_slice().into();
        let members = self.members.present();
        let write = |member: &Rc<Member>| {
            let (device, number) = (Rc::clone(&member.device), written.number);
            let bytes = Rc::clone(&bytes);
            let write = async move { write_intent_page(&*device, number, &bytes).await };
            self.watched(member, Submission::pending(write), RequestKind::Write)
        };
        let outcomes = join_all(members.iter().map(write).collect()).await;
        for (member, outcome) in members.iter().zip(outcomes) {
            if outcome.is_err() {
                self.fail_member(member).await;
            }
        }
        self.check_intact()?;
        intents.bitmap.borrow_mut().written(written);
        self.counters.intent_pages.count();
        Ok(())
    }
}

struct Turn<'a>(&'a Intents);

impl<'a> Turn<'a> {
    fn take(intents: &'a Intents) -> Self {
        assert!(!intents.writing.replace(true), "one caller at a time writes pages");
        Turn(intents)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.writing.set(false);
        self.0.progress.notify_all();
    }
}
