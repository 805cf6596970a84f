//! The write-intent bitmap: regions of the array whose parity may be inconsistent after a power
//! cut.
//!
//! A region is marked, on stable storage, before the first write to it, and cleared some time after
//! a flush of the members has covered its last write. Clearing is lazy: a region must have been
//! idle for a whole interval between two flushes, and the page goes to the members with the next
//! mark on it.
//!
//! **Invariants**: `stable` never claims a bit that the newest page on some member may lack; a
//! region with a write in flight is never cleared.
//! **Not here**: the writing of pages (`array::intents`).
//! **Source**: `docs/format.md`, "Intent bitmap"; the idea is the write-intent bitmap of Linux md.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use thiserror::Error;
use uuid::Uuid;

use crate::checksum;
use crate::layout::{Layout, Stripe};
use crate::superblock::INTENT_BYTES;

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
/// Pages of the bitmap.
pub const PAGES: usize = INTENT_BYTES as usize / PAGE_BYTES;

const MAGIC: &[u8; 8] = b"HPINTENT";
const HEADER_BYTES: usize = 32;
const PAGE_WORDS: usize = (PAGE_BYTES - HEADER_BYTES) / size_of::<u64>();
const PAGE_BITS: u64 = PAGE_WORDS as u64 * 64;
const CHECKSUM_AT: usize = 8;
/// Array bytes of the smallest region: a smaller one would be marked too often.
const REGION_BYTES_MIN: u64 = 64 << 20;

/// Stripes to a region, so that the bitmap covers the array.
pub fn region_stripes(layout: &Layout) -> u64 {
    let enough = layout.stripes().div_ceil(PAGES as u64 * PAGE_BITS);
    enough.max(REGION_BYTES_MIN / layout.stripe_bytes()).max(1)
}

/// Whether the bitmap covers so many stripes with regions of so many.
pub fn covers(stripes: u64, region_stripes: u64) -> bool {
    region_stripes > 0 && stripes.div_ceil(region_stripes) <= PAGES as u64 * PAGE_BITS
}

/// The bitmap in memory: what shall be marked and what is marked on the members.
#[derive(Debug)]
pub struct IntentBitmap {
    array: Uuid,
    region_stripes: u64,
    pages: Vec<Page>,
    writes_in_flight: BTreeMap<u64, u32>,
    /// Regions written to since the flush that began last, and in the interval before it.
    touched: BTreeSet<u64>,
    touched_before: BTreeSet<u64>,
    /// Those that a flush in progress decides about.
    settling: BTreeSet<u64>,
}

#[derive(Clone, Debug)]
struct Page {
    /// Whether the members have it at all.
    is_written: bool,
    sequence: u64,
    wanted: Vec<u64>,
    stable: Vec<u64>,
}

/// A page on its way to the members.
#[derive(Debug)]
pub struct PageWrite {
    /// Number of the page.
    pub number: usize,
    /// What to write at the place of the page.
    pub bytes: Vec<u8>,
    bits: Vec<u64>,
}

/// The regions that a flush will let go of, once it has succeeded.
#[derive(Debug)]
pub struct Settling(BTreeSet<u64>);

/// Why bytes are no page of this bitmap.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PageError {
    #[error("no intent page")]
    Foreign,
    #[error("its checksum is {found:#010x} where {expected:#010x} was expected")]
    Checksum { expected: u32, found: u32 },
    #[error("it belongs to another array or another location")]
    Misplaced,
}

impl IntentBitmap {
    /// The empty bitmap of an array with `stripes` stripes.
    pub fn new(array: Uuid, stripes: u64, region_stripes: u64) -> Self {
        let regions = stripes.div_ceil(region_stripes);
        let pages = regions.div_ceil(PAGE_BITS) as usize;
        assert!(pages <= PAGES, "a region of {region_stripes} stripes is too small");
        let (wanted, stable) = (vec![0; PAGE_WORDS], vec![0; PAGE_WORDS]);
        let page = Page { is_written: true, sequence: 0, wanted, stable };
        IntentBitmap {
            array,
            region_stripes,
            pages: vec![page; pages],
            writes_in_flight: BTreeMap::new(),
            touched: BTreeSet::new(),
            touched_before: BTreeSet::new(),
            settling: BTreeSet::new(),
        }
    }

    /// Pages in use.
    pub fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Stripes to a region.
    pub fn region_stripes(&self) -> u64 {
        self.region_stripes
    }

    /// Notes a write to the stripes; it may begin once [`Self::is_stable`].
    pub fn begin(&mut self, stripes: RangeInclusive<Stripe>) {
        self.mark(stripes.clone());
        self.begin_unmarked(stripes);
    }

    /// Records a write to the stripes that may begin at once: its sender would repeat it after a
    /// cut.
    pub fn begin_unmarked(&mut self, stripes: RangeInclusive<Stripe>) {
        for region in self.regions(&stripes) {
            *self.writes_in_flight.entry(region).or_default() += 1;
            self.touched.insert(region);
        }
    }

    /// Wants the regions of the stripes marked, until [`Self::clear`] or, where they are written
    /// to, some flush after that.
    pub fn mark(&mut self, stripes: RangeInclusive<Stripe>) {
        for region in self.regions(&stripes) {
            let (page, word, bit) = place(region);
            self.pages[page].wanted[word] |= bit;
        }
    }

    /// Wants the regions of the stripes marked no more. What is on the members stays until the next
    /// write of their pages.
    pub fn unmark(&mut self, stripes: RangeInclusive<Stripe>) {
        for region in self.regions(&stripes) {
            let (page, word, bit) = place(region);
            self.pages[page].wanted[word] &= !bit;
        }
    }

    /// Whether any region of the stripes shall be marked.
    pub fn is_marked(&self, stripes: RangeInclusive<Stripe>) -> bool {
        self.regions(&stripes).any(|region| {
            let (page, word, bit) = place(region);
            self.pages[page].wanted[word] & bit != 0
        })
    }

    /// Regions that shall be marked.
    pub fn marked_regions(&self) -> u64 {
        let words = self.pages.iter().flat_map(|page| &page.wanted);
        words.map(|word| u64::from(word.count_ones())).sum()
    }

    /// The regions, each as its stripes, of writes that no flush has made stable on all members, or
    /// not for sure.
    pub fn unsettled(&self) -> Vec<RangeInclusive<Stripe>> {
        let mut regions: BTreeSet<u64> = self.writes_in_flight.keys().copied().collect();
        regions.extend(&self.touched);
        regions.extend(&self.touched_before);
        regions.extend(&self.settling);
        let stripes = |region| {
            let start = region * self.region_stripes;
            Stripe(start)..=Stripe(start + self.region_stripes - 1)
        };
        regions.into_iter().map(stripes).collect()
    }

    /// Restarts with nothing marked, and with pages that no member has.
    pub fn renew(&mut self) {
        self.clear();
        for page in &mut self.pages {
            page.stable.fill(0);
            page.is_written = false;
        }
    }

    /// Whether every region of the stripes is marked on the members.
    pub fn is_stable(&self, stripes: RangeInclusive<Stripe>) -> bool {
        self.regions(&stripes).all(|region| {
            let (page, word, bit) = place(region);
            self.pages[page].stable[word] & bit != 0
        })
    }

    /// Notes the end of a write that began.
    pub fn finish(&mut self, stripes: RangeInclusive<Stripe>) {
        for region in self.regions(&stripes) {
            let count = self.writes_in_flight.get_mut(&region).expect("the write has begun");
            *count -= 1;
            if *count == 0 {
                self.writes_in_flight.remove(&region);
            }
            self.touched.insert(region);
        }
    }

    /// A flush of the members begins: what it will settle are the regions that have been idle since
    /// the flush before it began.
    pub fn flush_begins(&mut self) -> Settling {
        let recent = std::mem::take(&mut self.touched);
        let before = std::mem::replace(&mut self.touched_before, recent);
        let idle: BTreeSet<u64> =
            before.into_iter().filter(|region| !self.is_busy(*region)).collect();
        self.settling.extend(&idle);
        Settling(idle)
    }

    /// The flush has succeeded: its idle regions are no longer wanted.
    pub fn flush_succeeded(&mut self, settling: Settling) {
        for region in settling.0 {
            self.settling.remove(&region);
            if !self.is_busy(region) {
                let (page, word, bit) = place(region);
                self.pages[page].wanted[word] &= !bit;
            }
        }
    }

    /// The flush has failed, or was abandoned: its regions wait for another.
    pub fn flush_failed(&mut self, settling: Settling) {
        self.settling.retain(|region| !settling.0.contains(region));
        self.touched_before.extend(settling.0);
    }

    /// A page that lacks a mark on the members, taken for writing.
    pub fn next_urgent(&mut self) -> Option<PageWrite> {
        let lacks = |page: &Page| page.wanted.iter().zip(&page.stable).any(|(w, s)| w & !s != 0);
        let number = self.pages.iter().position(|page| !page.is_written || lacks(page))?;
        Some(self.take(number))
    }

    /// A page that differs from what is on the members, or may, taken for writing: for an orderly
    /// stop.
    pub fn next_outdated(&mut self) -> Option<PageWrite> {
        let differs = |page: &Page| !page.is_written || page.wanted != page.stable;
        let number = self.pages.iter().position(differs)?;
        Some(self.take(number))
    }

    /// The page is on every active member.
    pub fn written(&mut self, write: PageWrite) {
        let page = &mut self.pages[write.number];
        (page.stable, page.is_written) = (write.bits, true);
    }

    /// Nothing is wanted any more: every member was flushed and no write is in flight.
    ///
    /// # Panics
    /// Where a write is in flight.
    pub fn clear(&mut self) {
        assert!(self.writes_in_flight.is_empty(), "writes are in flight");
        self.touched.clear();
        self.touched_before.clear();
        self.settling.clear();
        self.pages.iter_mut().for_each(|page| page.wanted.fill(0));
    }

    /// The page `number` as it is at first, for a new array.
    pub fn empty_page(&self, number: usize) -> Vec<u8> {
        encode(self.array, number, 0, &[0; PAGE_WORDS])
    }

    /// Adds the marks of one member's copy of a page.
    ///
    /// # Errors
    /// Where the bytes are no valid copy; nothing was added.
    pub fn merge(&mut self, number: usize, bytes: &[u8]) -> Result<(), PageError> {
        let (sequence, bits) = decode(self.array, number, bytes)?;
        let page = &mut self.pages[number];
        page.sequence = page.sequence.max(sequence);
        page.wanted.iter_mut().zip(&bits).for_each(|(wanted, bits)| *wanted |= bits);
        Ok(())
    }

    /// Marks a whole page: no valid copy of it was found.
    pub fn mark_page(&mut self, number: usize) {
        self.pages[number].wanted.fill(!0);
    }

    /// The stripes of every marked region, up to `stripes`.
    pub fn marked(&self, stripes: u64) -> Vec<std::ops::Range<u64>> {
        let regions = 0..stripes.div_ceil(self.region_stripes);
        let marked = regions.filter(|region| {
            let (page, word, bit) = place(*region);
            self.pages[page].wanted[word] & bit != 0
        });
        let range = |region: u64| {
            let start = region * self.region_stripes;
            start..(start + self.region_stripes).min(stripes)
        };
        marked.map(range).collect()
    }

    /// A page as it shall be, taken for writing.
    pub fn take(&mut self, number: usize) -> PageWrite {
        let page = &mut self.pages[number];
        page.sequence += 1;
        let bits = page.wanted.clone();
        // From here on a member may have either content.
        page.stable.iter_mut().zip(&bits).for_each(|(stable, bits)| *stable &= bits);
        let bytes = encode(self.array, number, page.sequence, &bits);
        PageWrite { number, bytes, bits }
    }

    /// Checks the pages, and the regions that are kept beside them; for tests and simulation.
    ///
    /// # Panics
    /// Where an invariant does not hold.
    pub fn self_check(&self) {
        let regions = self.pages.len() as u64 * PAGE_BITS;
        let kept = [&self.touched, &self.touched_before, &self.settling];
        let named = kept.into_iter().flatten().chain(self.writes_in_flight.keys());
        assert!(named.into_iter().all(|region| *region < regions), "a region without a page");
        let is_counted = |count: &u32| *count > 0;
        assert!(self.writes_in_flight.values().all(is_counted), "a write that has ended");
        for page in &self.pages {
            let is_free = page.is_written || page.stable.iter().all(|word| *word == 0);
            assert!(is_free, "stable on members that have no page");
        }
    }

    fn is_busy(&self, region: u64) -> bool {
        self.writes_in_flight.contains_key(&region)
            || self.touched.contains(&region)
            || self.touched_before.contains(&region)
    }

    fn regions(&self, stripes: &RangeInclusive<Stripe>) -> RangeInclusive<u64> {
        stripes.start().0 / self.region_stripes..=stripes.end().0 / self.region_stripes
    }
}

/// Page, word and bit of a region.
fn place(region: u64) -> (usize, usize, u64) {
    let in_page = region % PAGE_BITS;
    ((region / PAGE_BITS) as usize, (in_page / 64) as usize, 1 << (in_page % 64))
}

fn encode(array: Uuid, number: usize, sequence: u64, bits: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(PAGE_BYTES);
    bytes.extend(MAGIC);
    bytes.extend([0; 4]);
    bytes.extend((number as u32).to_le_bytes());
    bytes.extend(sequence.to_le_bytes());
    bytes.extend(&array.as_bytes()[..8]);
    assert_eq!(bytes.len(), HEADER_BYTES);
    bits.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    assert_eq!(bytes.len(), PAGE_BYTES);
    let sum = checksum::with_hole(&bytes, CHECKSUM_AT);
    bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn decode(array: Uuid, number: usize, bytes: &[u8]) -> Result<(u64, Vec<u64>), PageError> {
    assert_eq!(bytes.len(), PAGE_BYTES);
    if !bytes.starts_with(MAGIC) {
        return Err(PageError::Foreign);
    }
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let (found, expected) = (word(CHECKSUM_AT) as u32, checksum::with_hole(bytes, CHECKSUM_AT));
    if found != expected {
        return Err(PageError::Checksum { expected, found });
    }
    let found_number = (word(CHECKSUM_AT) >> 32) as usize;
    if found_number != number || bytes[24..HEADER_BYTES] != array.as_bytes()[..8] {
        return Err(PageError::Misplaced);
    }
    let bits = (HEADER_BYTES..PAGE_BYTES).step_by(8).map(word).collect();
    Ok((word(16), bits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::level::Level;
    use headpond_testkit::{Break, assert_trips};
    use proptest::prelude::*;

    fn bitmap() -> IntentBitmap {
        IntentBitmap::new(Uuid::from_u128(7), 1000, 10)
    }

    #[test]
    fn check_notices_what_is_wrong_with_a_bitmap() {
        let make = || {
            let mut bitmap = bitmap();
            bitmap.begin(Stripe(3)..=Stripe(25));
            let page = bitmap.next_urgent().expect("regions were marked");
            bitmap.written(page);
            bitmap
        };
        let breaks: [Break<IntentBitmap>; 4] = [
            ("a region without a page", |it| _ = it.touched.insert(PAGE_BITS)),
            ("a region without a page", |it| it.pages.clear()),
            ("a write that has ended", |it| *it.writes_in_flight.get_mut(&1).unwrap() -= 1),
            ("members that have no page", |it| it.pages[0].is_written = false),
        ];
        assert_trips(make, IntentBitmap::self_check, &breaks);
    }

    fn at(stripe: u64) -> RangeInclusive<Stripe> {
        Stripe(stripe)..=Stripe(stripe)
    }

    fn write_urgent(bitmap: &mut IntentBitmap) -> usize {
        std::iter::from_fn(|| bitmap.next_urgent().map(|page| bitmap.written(page))).count()
    }

    fn flush(bitmap: &mut IntentBitmap) {
        let settling = bitmap.flush_begins();
        bitmap.flush_succeeded(settling);
    }

    #[test]
    fn a_write_waits_until_its_mark_is_stable_and_the_next_does_not() {
        let mut bitmap = bitmap();
        bitmap.begin(at(25));
        assert!(!bitmap.is_stable(at(25)));
        assert_eq!(write_urgent(&mut bitmap), 1);
        assert!(bitmap.is_stable(at(29)));
        assert!(!bitmap.is_stable(at(30)));
        bitmap.finish(at(25));
        bitmap.begin(at(21));
        assert_eq!(write_urgent(&mut bitmap), 0);
    }

    #[test]
    fn a_region_is_cleared_only_after_an_idle_interval() {
        let mut bitmap = bitmap();
        bitmap.begin(at(25));
        write_urgent(&mut bitmap);
        flush(&mut bitmap);
        flush(&mut bitmap);
        assert_eq!(bitmap.marked(1000), vec![20..30; 1]);
        bitmap.finish(at(25));
        flush(&mut bitmap);
        assert_eq!(bitmap.marked(1000), vec![20..30; 1]);
        flush(&mut bitmap);
        assert!(bitmap.marked(1000).is_empty());
        assert!(bitmap.next_outdated().is_some());
    }

    #[test]
    fn a_failed_flush_clears_nothing() {
        let mut bitmap = bitmap();
        bitmap.begin(at(5));
        bitmap.finish(at(5));
        flush(&mut bitmap);
        let settling = bitmap.flush_begins();
        bitmap.flush_failed(settling);
        assert_eq!(bitmap.marked(1000), vec![0..10; 1]);
        flush(&mut bitmap);
        assert!(bitmap.marked(1000).is_empty());
    }

    #[test]
    fn a_region_marked_anew_while_its_clearing_is_written_is_not_stable() {
        let mut bitmap = bitmap();
        bitmap.begin(at(5));
        write_urgent(&mut bitmap);
        bitmap.finish(at(5));
        flush(&mut bitmap);
        flush(&mut bitmap);
        let clearing = bitmap.next_outdated().unwrap();
        bitmap.begin(at(5));
        assert!(!bitmap.is_stable(at(5)));
        bitmap.written(clearing);
        assert!(!bitmap.is_stable(at(5)));
        assert_eq!(write_urgent(&mut bitmap), 1);
        assert!(bitmap.is_stable(at(5)));
    }

    #[test]
    fn marks_survive_on_the_members_and_damage_is_noticed() {
        let mut before = bitmap();
        before.begin(at(25));
        before.begin(at(990));
        let page = before.next_urgent().unwrap();
        let mut after = bitmap();
        after.merge(0, &page.bytes).unwrap();
        assert_eq!(after.marked(1000), [20..30, 990..1000]);
        let mut torn = page.bytes.clone();
        torn[2048..].fill(0xaa);
        assert!(matches!(after.merge(0, &torn), Err(PageError::Checksum { .. })));
        let mut other = IntentBitmap::new(Uuid::from_u128(8 << 64), 1000, 10);
        assert_eq!(other.merge(0, &page.bytes), Err(PageError::Misplaced));
        other.mark_page(0);
        assert_eq!(other.marked(1000).len(), 100);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn the_bitmap_covers_every_array(rows in 1_u64..1 << 32, data in 1_usize..20) {
            let bytes = rows << 16;
            let layout = Layout::new(Level::Raid6, data + 3, 1, 65536, bytes).unwrap();
            let bitmap =
                IntentBitmap::new(Uuid::nil(), layout.stripes(), region_stripes(&layout));
            prop_assert!(bitmap.pages() <= PAGES);
        }
    }
}
