//! Checksums of blocks that a scrub has verified, until they are written to.
//!
//! 1. a scrub starts a region: it reads the members' pages of it; 2. it records the checksum of
//!    every block that matches; 3. at the end of the region the changed pages are written, and all
//!    members flushed; 4. the region's bit in the bitmap is cleared: it is *signed*; 5. the next
//!    write to the region first sets the bit again, stably on every member, once for each signing.
//!
//! So writes do not update checksums. A write to an unsigned region costs the test of one bit.
//!
//! **Invariants**
//! - In a region whose bit is clear, every valid checksum is that of the last contents written to
//!   its block. The bit is set before anything changes that, by every path: requests, zeroing,
//!   discarding, the resync after an unclean shutdown, the replay of the journal, and zeros in the
//!   place of lost blocks. A rebuild, or a repair by a scrub, restores the same contents.
//! - While a page of a signed region is being changed, old and new agree on all blocks that both
//!   have: a cut leaves one of them, or an invalid page.
//! - A region is signed only while every role has its member, before and after, and the same one. A
//!   member that is missing meanwhile has a new UUID when it is re-added: its old pages are
//!   ignored.
//! - All stripes of a signed region were consistent. So an unclean shutdown leaves nothing torn in
//!   it, and it is not resynced.
//! - During a reshape nothing is signed, whatever the bitmap contains: it may be of either shape.
//!   Only the array of more members writes it, every page with the first of its rows that moves, so
//!   that it is of that shape after the reshape.
//! - A write that begins after the scrub has read its stripe leaves the region unsigned.
//!
//! **Not here**: the use of the checksums (`verify`), the pages as bytes (`integrity`).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};
use std::rc::Rc;

use headpond_block::sync::join_all;
use headpond_block::{Buffer, Outcome, Request, RequestKind, Submission};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::intents::Intents;
use super::label::Bitmap;
use super::{Array, Member};
use crate::integrity::{
    NO_SUM, PAGE_BYTES, PAGE_SUMS, PageOf, decode, encode, page_of, page_offset, places,
};
use crate::layout::{Role, StripCell, Stripe};
use crate::superblock::{ArrayRecord, RecordedReshape};

/// How much of an array is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IntegrityStatus {
    pub regions_signed: u64,
    pub regions: u64,
}

/// The bitmap of unsigned regions, and the region being scrubbed.
pub(super) struct Integrity {
    marks: Intents,
    regions: u64,
    stripes: u64,
    signing: RefCell<Option<Signing>>,
}

/// A region being scrubbed.
struct Signing {
    stripes: Range<u64>,
    /// Stripes before this were checked by the scrub that began it.
    looked_at: u64,
    /// The holder of each role when it began.
    holders: Vec<Uuid>,
    /// Nothing has been written to it since.
    is_undisturbed: Cell<bool>,
    /// Every stripe checked could be read, and is consistent.
    is_whole: Cell<bool>,
    pages: BTreeMap<PlaceOfPage, Page>,
}

type PlaceOfPage = (Role, u64);

/// Checksums in memory.
struct Page {
    sums: Vec<u32>,
    is_changed: bool,
}

impl Page {
    /// What bytes say, or nothing.
    fn of(sums: Option<Vec<u32>>) -> Page {
        Page { sums: sums.unwrap_or_else(|| vec![NO_SUM; PAGE_SUMS]), is_changed: false }
    }

    fn set(&mut self, index: usize, sum: u32) {
        self.is_changed |= self.sums[index] != sum;
        self.sums[index] = sum;
    }
}

impl Integrity {
    pub(super) fn new(
        record: &ArrayRecord,
        stripes: u64,
        unsigned: &[Range<u64>],
    ) -> Option<Integrity> {
        let is_former = record.reshape == Some(RecordedReshape::Former);
        let region_stripes = record.integrity_region_stripes.filter(|_| !is_former)?;
        let marks = Intents::new(Bitmap::Unsigned, record.uuid, stripes, region_stripes);
        // What each member has is not known: they may differ, or have nothing.
        marks.bitmap.borrow_mut().renew();
        for range in unsigned {
            marks.bitmap.borrow_mut().mark(Stripe(range.start)..=Stripe(range.end - 1));
        }
        let (regions, signing) = (stripes.div_ceil(region_stripes), RefCell::default());
        Some(Integrity { marks, regions, stripes, signing })
    }

    pub(super) fn marks(&self) -> &Intents {
        &self.marks
    }

    /// Whether the checksums of a stripe count.
    fn is_signed(&self, stripe: Stripe) -> bool {
        !self.marks.bitmap.borrow().is_marked(stripe..=stripe)
    }

    /// Something is about to be written.
    fn disturb(&self, stripes: &RangeInclusive<Stripe>) {
        if let Some(signing) = &*self.signing.borrow() {
            let is_beside =
                stripes.end().0 < signing.stripes.start || stripes.start().0 >= signing.stripes.end;
            signing.is_undisturbed.set(signing.is_undisturbed.get() && is_beside);
        }
    }

    /// What another scrub has begun says nothing of this one.
    fn let_go_unless_at(&self, stripe: u64) {
        let mut signing = self.signing.borrow_mut();
        if signing.as_ref().is_some_and(|signing| signing.looked_at != stripe) {
            *signing = None;
        }
    }

    /// The pages of the region being scrubbed, where it ends here. The rest of it stays, to detect
    /// writes.
    fn take_pages_at(&self, looked_at: u64) -> Option<BTreeMap<PlaceOfPage, Page>> {
        let mut signing = self.signing.borrow_mut();
        let signing = signing.as_mut()?;
        signing.looked_at = looked_at;
        (looked_at == signing.stripes.end).then(|| std::mem::take(&mut signing.pages))
    }

    /// Checks the bitmap, and the region that a scrub is in; for tests and simulation.
    ///
    /// # Panics
    /// Where an invariant does not hold.
    pub(super) fn self_check(&self, members: usize) {
        self.marks.self_check();
        let signing = self.signing.borrow();
        let Some(Signing { stripes, looked_at, holders, pages, .. }) = &*signing else { return };
        assert_eq!(*stripes, self.region_of(stripes.start), "a scrub is in one region");
        assert!((stripes.start..=stripes.end).contains(looked_at), "it has looked at some of it");
        assert!([0, members].contains(&holders.len()), "each role had a holder, or none counts");
        for ((role, _), page) in pages {
            assert!(role.index() < members, "a page of a member that there is not");
            assert_eq!(page.sums.len(), PAGE_SUMS, "a page is full of checksums");
        }
    }

    /// The stripes of the region of one.
    fn region_of(&self, stripe: u64) -> Range<u64> {
        let region_stripes = self.marks.bitmap.borrow().region_stripes();
        let start = stripe - stripe % region_stripes;
        start..start.saturating_add(region_stripes).min(self.stripes)
    }
}

impl Array {
    /// Sees to it that no checksum of some stripes counts any more, stably on all members.
    ///
    /// # Errors
    /// Where the array has lost too many members.
    pub(super) async fn unsign(&self, stripes: RangeInclusive<Stripe>) -> Outcome {
        let Some(integrity) = &self.integrity else { return Ok(()) };
        integrity.disturb(&stripes);
        integrity.marks.bitmap.borrow_mut().mark(stripes.clone());
        self.stabilise(&integrity.marks, stripes).await
    }

    /// Whether the checksums of a stripe count.
    pub(super) fn is_signed(&self, stripe: Stripe) -> bool {
        self.integrity.as_ref().is_some_and(|integrity| integrity.is_signed(stripe))
    }

    pub(super) fn integrity_status(&self) -> Option<IntegrityStatus> {
        let integrity = self.integrity.as_ref()?;
        let unsigned = integrity.marks.bitmap.borrow().marked_regions();
        let regions = integrity.regions;
        Some(IntegrityStatus { regions_signed: regions - unsigned, regions })
    }

    /// Where a scrub continues that has checked so many stripes: the state of an incomplete region
    /// is lost with a stop.
    pub(super) fn scrub_resumes_at(&self, done: u64) -> u64 {
        let Some(integrity) = self.integrity.as_ref().filter(|it| done < it.stripes) else {
            return done;
        };
        match &*integrity.signing.borrow() {
            Some(signing) if signing.looked_at == done => done,
            _ => integrity.region_of(done).start,
        }
    }

    /// The first stripe behind those that a scrub can take in one go.
    pub(super) fn scrub_ends_at(&self, first: u64, end: u64) -> u64 {
        let region = self.integrity.as_ref().map(|integrity| integrity.region_of(first));
        region.map_or(end, |region| region.end.min(end))
    }

    /// A scrub is about to look at some stripes of one region.
    pub(super) async fn prepare_sums(&self, stripes: Range<u64>) {
        let Some(integrity) = &self.integrity else { return };
        let region = integrity.region_of(stripes.start);
        if stripes.start == region.start {
            let signing = Signing {
                stripes: region,
                looked_at: stripes.start,
                holders: self.holders_at_home(),
                is_undisturbed: Cell::new(true),
                is_whole: Cell::new(true),
                pages: BTreeMap::new(),
            };
            integrity.signing.replace(Some(signing));
        } else {
            integrity.let_go_unless_at(stripes.start);
        }
        let wanted: BTreeSet<PlaceOfPage> =
            stripes.flat_map(|stripe| self.pages_of(Stripe(stripe))).collect();
        let is_new = |place: &PlaceOfPage| {
            let signing = integrity.signing.borrow();
            signing.as_ref().is_some_and(|signing| !signing.pages.contains_key(place))
        };
        let wanted: Vec<PlaceOfPage> = wanted.into_iter().filter(is_new).collect();
        let reads = wanted.iter().map(|place| Box::pin(self.read_page(*place)));
        let pages = join_all(reads.collect()).await;
        if let Some(signing) = &mut *integrity.signing.borrow_mut() {
            signing.pages.extend(wanted.into_iter().zip(pages));
        }
    }

    /// A scrub has checked the stripes that it had prepared: a region that ends with them is
    /// signed, if it can be.
    ///
    /// # Errors
    /// Where the array has lost too many members.
    pub(super) async fn conclude_sums(&self, stripes: Range<u64>) -> Outcome {
        let Some(integrity) = &self.integrity else { return Ok(()) };
        integrity.let_go_unless_at(stripes.start);
        let Some(pages) = integrity.take_pages_at(stripes.end) else { return Ok(()) };
        if self.may_sign() && self.write_pages(pages).await.is_ok() {
            self.flush_members().await?;
            if self.may_sign() {
                integrity
                    .marks
                    .bitmap
                    .borrow_mut()
                    .unmark(Stripe(stripes.start)..=Stripe(stripes.start));
            }
        }
        integrity.signing.replace(None);
        self.check_intact()
    }

    /// What was signed since is signed after the next start too.
    ///
    /// # Errors
    /// Where the array has lost too many members.
    pub(super) async fn write_signed(&self) -> Outcome {
        match &self.integrity {
            Some(integrity) => self.write_outdated(&integrity.marks).await,
            None => Ok(()),
        }
    }

    /// What the blocks of a cell ought to be by their checksums; [`NO_SUM`] where nothing is said.
    /// The stripe is locked by the caller.
    pub(super) fn sums_of(&self, stripe: Stripe, cell: StripCell) -> Vec<u32> {
        let places = places(cell.row, self.layout.strip_bytes());
        let signing = self.integrity.as_ref().filter(|it| it.is_signed(stripe));
        let signing = signing.map(|it| it.signing.borrow());
        let Some(signing) = signing.as_ref().and_then(|it| it.as_ref()) else {
            return vec![NO_SUM; (places.end - places.start) as usize];
        };
        let sum = |place| {
            let (number, index) = page_of(place);
            signing.pages.get(&(cell.role, number)).map_or(NO_SUM, |page| page.sums[index])
        };
        places.map(sum).collect()
    }

    /// Notes what the blocks of a cell are, for the region to be signed. `None` for one that is not
    /// whole: what is said of it stays, where that counts. The stripe is locked by the caller.
    pub(super) fn note_sums(
        &self,
        stripe: Stripe,
        cell: StripCell,
        sums: impl Iterator<Item = Option<u32>>,
    ) {
        let Some(integrity) = &self.integrity else { return };
        let is_signed = integrity.is_signed(stripe);
        let mut signing = integrity.signing.borrow_mut();
        let Some(signing) = &mut *signing else { return };
        let places = places(cell.row, self.layout.strip_bytes());
        for (place, sum) in places.zip(sums) {
            let (number, index) = page_of(place);
            let page = signing.pages.get_mut(&(cell.role, number));
            match (page, sum) {
                (Some(page), Some(sum)) => page.set(index, sum),
                (Some(page), None) if !is_signed => page.set(index, NO_SUM),
                _ => {}
            }
        }
    }

    /// A stripe is inconsistent, or unreadable: its region is not signed.
    pub(super) fn note_not_whole(&self) {
        if let Some(integrity) = &self.integrity
            && let Some(signing) = &*integrity.signing.borrow()
        {
            signing.is_whole.set(false);
        }
    }

    /// Nothing is known yet of the blocks of an unsigned stripe, whatever the pages say.
    pub(super) fn forget_sums(&self, stripe: Stripe) {
        if self.integrity.is_some() {
            for cell in self.cells_of(stripe) {
                self.note_sums(stripe, cell, std::iter::repeat(None));
            }
        }
    }

    /// The home cells of the strips of a stripe, or of the copies of its one strip.
    pub(super) fn cells_of(&self, stripe: Stripe) -> Vec<StripCell> {
        match self.layout.level().is_mirrored() {
            true => {
                let copies = 0..self.layout.copies();
                copies.map(|copy| self.layout.cell_of_copy(stripe, copy)).collect()
            }
            false => self.layout.strips().map(|strip| self.layout.cell(stripe, strip)).collect(),
        }
    }

    fn pages_of(&self, stripe: Stripe) -> Vec<PlaceOfPage> {
        let pages = |cell: StripCell| {
            let places = places(cell.row, self.layout.strip_bytes());
            let numbers = page_of(places.start).0..=page_of(places.end - 1).0;
            numbers.map(move |number| (cell.role, number))
        };
        self.cells_of(stripe).into_iter().flat_map(pages).collect()
    }

    /// The holder of each role; none where any role has none.
    fn holders_at_home(&self) -> Vec<Uuid> {
        let is_whole = self.members.is_all_at_home() && self.is_parity_whole();
        let holders = self.members.slots().map(|(_, slot)| slot.uuid.get());
        if is_whole { holders.collect() } else { Vec::new() }
    }

    /// Whether the region being scrubbed can still be signed.
    fn may_sign(&self) -> bool {
        let signing = self.integrity.as_ref().map(|integrity| integrity.signing.borrow());
        signing.as_ref().and_then(|signing| signing.as_ref()).is_some_and(|signing| {
            let is_as_before = self.holders_at_home() == signing.holders;
            let is_sound = signing.is_undisturbed.get() && signing.is_whole.get();
            is_sound && is_as_before && !signing.holders.is_empty()
        })
    }

    fn page_of_member(&self, member: &Member, number: u64) -> PageOf {
        PageOf { array: self.uuid(), member: member.uuid, number }
    }

    async fn read_page(&self, (role, number): PlaceOfPage) -> Page {
        let Some(member) = self.members.active(role) else { return Page::of(None) };
        let of = self.page_of_member(&member, number);
        let buffer = Buffer::zeroed(PAGE_BYTES);
        let read = Request::read(page_offset(number), &buffer);
        let read = Submission::on(Rc::clone(&member.device), read);
        let outcome = self.watched(&member, read, RequestKind::Read).await;
        // An unreadable one is ignored, and written again.
        Page::of(outcome.ok().and_then(|()| decode(of, &buffer.to_vec())))
    }

    /// Writes the pages that changed, each to the member that has its role.
    async fn write_pages(&self, pages: BTreeMap<PlaceOfPage, Page>) -> Outcome {
        let changed = pages.into_iter().filter(|(_, page)| page.is_changed);
        let (mut members, mut writes) = (Vec::new(), Vec::new());
        for ((role, number), page) in changed {
            let Some(member) = self.members.active(role) else { continue };
            let bytes = encode(self.page_of_member(&member, number), &page.sums);
            let write = Request::write(page_offset(number), Buffer::from_slice(&bytes));
            assert!(write.range.end() <= self.recorder.record().data_offset, "before the data");
            let write = Submission::on(Rc::clone(&member.device), write);
            writes.push(self.watched(&member, write, RequestKind::Write));
            members.push(member);
        }
        self.conclude_writes(&members, join_all(writes).await).await
    }
}

#[cfg(test)]
mod tests {
    use headpond_testkit::{Break, assert_trips};

    use super::*;
    use crate::array::self_check::tests::*;

    #[test]
    fn check_notices_what_is_wrong_with_a_region_that_is_being_signed() {
        fn sign(array: &Array, change: impl FnOnce(&mut Signing)) {
            let integrity = array.integrity.as_ref().expect("it has a region");
            let mut signing = Signing {
                stripes: integrity.region_of(0),
                looked_at: 0,
                holders: Vec::new(),
                is_undisturbed: Cell::new(true),
                is_whole: Cell::new(true),
                pages: BTreeMap::new(),
            };
            change(&mut signing);
            integrity.signing.replace(Some(signing));
        }
        let breaks: [Break<Array>; 5] = [
            ("a scrub is in one region", |it| sign(it, |signing| signing.stripes.end -= 1)),
            ("it has looked at some", |it| sign(it, |it| it.looked_at = it.stripes.end + 1)),
            ("each role had a holder", |it| sign(it, |signing| signing.holders.push(Uuid::nil()))),
            ("a member that there is not", |it| {
                sign(it, |signing| _ = signing.pages.insert((Role(9), 0), Page::of(None)));
            }),
            ("full of checksums", |it| {
                sign(it, |signing| _ = signing.pages.insert((Role(0), 0), Page::of(Some(vec![]))));
            }),
        ];
        let check = |it: &Array| it.integrity.as_ref().unwrap().self_check(it.layout.members());
        assert_trips(lived, check, &breaks);
    }
}
