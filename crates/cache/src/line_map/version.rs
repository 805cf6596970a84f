//! One version: its state, its marks, and the byte that holds both.

use crate::types::{CoreBlock, SlotIndex};

/// State of a mapped version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Free,
    /// Its record is on its way to the device.
    Pending,
    /// Newer than the core.
    Dirty,
    /// The core has it, but has not flushed since.
    Written,
    /// The core has it for good.
    Clean,
}

/// Small facts about a version, combined by `|`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Marks(u8);

impl Marks {
    pub const NONE: Marks = Marks(0);
    /// The dirty index knows the block.
    pub const INDEXED: Marks = Marks(1);
    /// A client gave all of it: once the core has it, it says what was written there. What was read
    /// from the core, or completed from there, says only what was read.
    pub const GIVEN: Marks = Marks(2);
    /// Came back from an unclean stop, as did its successors until one version of the block has
    /// been cleaned: parity is recomputed then.
    pub const REPLAYED: Marks = Marks(4);
    /// On its way to the core.
    pub const CLEANING: Marks = Marks(8);
    /// Written without payload: there is nothing to move, and nothing that could be checked.
    pub const PAYLOAD_FREE: Marks = Marks(16);

    pub fn contains(self, other: Marks) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for Marks {
    type Output = Marks;
    fn bitor(self, other: Marks) -> Marks {
        Marks(self.0 | other.0)
    }
}

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    pub slot: SlotIndex,
    pub block: CoreBlock,
    pub state: State,
    /// What a pending version becomes; the state itself otherwise.
    pub target: State,
    pub unit: u8,
    pub marks: Marks,
}

// Two words: they are handed from hand to hand.
const _: () = assert!(size_of::<Version>() == 16);

impl Version {
    /// Whether the core lacks it, or may lack it after a power cut.
    pub fn is_unsafe_at_core(&self) -> bool {
        matches!(self.target, State::Dirty | State::Written)
    }

    pub fn is_payload_free(&self) -> bool {
        self.marks.contains(Marks::PAYLOAD_FREE)
    }

    /// Nobody has chosen it, and it is dirty, or may be when it is in the log.
    pub fn waits_or_will(&self) -> bool {
        self.state == State::Pending || self.waits_for_cleaner()
    }

    /// Dirty, and nobody has chosen it yet; what is written through goes to the core by itself.
    pub fn waits_for_cleaner(&self) -> bool {
        self.state == State::Dirty
            && self.marks.contains(Marks::INDEXED)
            && !self.marks.contains(Marks::CLEANING)
    }
}

/// State and marks of one place: three bits and five.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Tag(pub u8);

const CODE: u8 = 7;
const MARKS_SHIFT: u32 = 3;
const PENDING_DIRTY: u8 = 1;
const PENDING_WRITTEN: u8 = 2;
const PENDING_CLEAN: u8 = 3;
const DIRTY: u8 = 4;
const WRITTEN: u8 = 5;
const CLEAN: u8 = 6;
/// From a pending code to what becomes of it.
const PUBLISHED: u8 = 3;

impl Tag {
    pub const FREE: Tag = Tag(0);

    pub fn new(state: State, target: State, marks: Marks) -> Self {
        let code = match (state, target) {
            (State::Pending, State::Dirty) => PENDING_DIRTY,
            (State::Pending, State::Written) => PENDING_WRITTEN,
            (State::Pending, State::Clean) => PENDING_CLEAN,
            (State::Dirty, _) => DIRTY,
            (State::Written, _) => WRITTEN,
            (State::Clean, _) => CLEAN,
            (State::Free, _) | (_, State::Free | State::Pending) => panic!("not to be mapped"),
        };
        Self(code | marks.0 << MARKS_SHIFT)
    }

    #[inline]
    pub fn state(self) -> State {
        match self.0 & CODE {
            0 => State::Free,
            PENDING_DIRTY..=PENDING_CLEAN => State::Pending,
            _ => self.target(),
        }
    }

    #[inline]
    pub fn target(self) -> State {
        match self.0 & CODE {
            0 => State::Free,
            PENDING_DIRTY | DIRTY => State::Dirty,
            PENDING_WRITTEN | WRITTEN => State::Written,
            PENDING_CLEAN | CLEAN => State::Clean,
            _ => unreachable!("no such state"),
        }
    }

    #[inline]
    pub fn marks(self) -> Marks {
        Marks(self.0 >> MARKS_SHIFT)
    }

    #[inline]
    pub fn is_mapped(self) -> bool {
        self.0 & CODE != 0
    }

    #[inline]
    pub fn is_pending(self) -> bool {
        matches!(self.0 & CODE, PENDING_DIRTY..=PENDING_CLEAN)
    }

    #[inline]
    pub fn is_clean(self) -> bool {
        self.0 & CODE == CLEAN
    }

    #[inline]
    pub fn is_published(self) -> bool {
        self.0 & CODE >= DIRTY
    }

    /// A pending one whose record has been written.
    #[inline]
    pub fn published(self) -> Tag {
        debug_assert!(self.is_pending());
        Tag(self.0 + PUBLISHED)
    }

    pub fn with(self, marks: Marks) -> Tag {
        Tag(self.0 | marks.0 << MARKS_SHIFT)
    }

    pub fn without(self, marks: Marks) -> Tag {
        Tag(self.0 & !(marks.0 << MARKS_SHIFT))
    }

    #[inline]
    pub fn waits_for_cleaning(self) -> bool {
        matches!(self.0 & CODE, PENDING_DIRTY | DIRTY) && self.marks().contains(Marks::INDEXED)
    }

    /// As [`Version::waits_or_will`].
    #[inline]
    pub fn waits_or_will(self) -> bool {
        let chosen = (Marks::INDEXED | Marks::CLEANING).0 & self.marks().0;
        self.is_pending() | (self.0 & CODE == DIRTY) & (chosen == Marks::INDEXED.0)
    }

    /// One version of a block at most: those on their way to the log do not count yet.
    #[inline]
    fn needs_parity(self) -> bool {
        self.0 & CODE == DIRTY && self.marks().contains(Marks::REPLAYED)
    }
}

/// Number of versions by state, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counts {
    pub pending_dirty: u64,
    pub pending_other: u64,
    pub dirty: u64,
    pub written: u64,
    pub clean: u64,
    /// Those of the dirty ones whose parity is not to be trusted.
    pub replayed: u64,
}

impl Counts {
    pub fn mapped(&self) -> u64 {
        self.dirty + self.written + self.clean
    }

    #[inline]
    pub(super) fn add(&mut self, tag: Tag) {
        *self.of(tag) += 1;
        self.replayed += u64::from(tag.needs_parity());
    }

    pub(super) fn subtract_all(&mut self, other: &Counts) {
        self.pending_dirty -= other.pending_dirty;
        self.pending_other -= other.pending_other;
        self.dirty -= other.dirty;
        self.written -= other.written;
        self.clean -= other.clean;
        self.replayed -= other.replayed;
    }

    #[inline]
    pub(super) fn add_many(&mut self, tag: Tag, count: u64) {
        *self.of(tag) += count;
        self.replayed += if tag.needs_parity() { count } else { 0 };
    }

    #[inline]
    pub(super) fn subtract(&mut self, tag: Tag) {
        self.subtract_many(tag, 1);
    }

    #[inline]
    pub(super) fn subtract_many(&mut self, tag: Tag, count: u64) {
        *self.of(tag) -= count;
        self.replayed -= if tag.needs_parity() { count } else { 0 };
    }

    #[inline]
    fn of(&mut self, tag: Tag) -> &mut u64 {
        match tag.0 & CODE {
            PENDING_DIRTY => &mut self.pending_dirty,
            PENDING_WRITTEN | PENDING_CLEAN => &mut self.pending_other,
            DIRTY => &mut self.dirty,
            WRITTEN => &mut self.written,
            CLEAN => &mut self.clean,
            _ => unreachable!("free places are not counted"),
        }
    }
}
