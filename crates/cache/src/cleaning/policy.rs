//! The interface of a policy: its inputs and decisions.

use crate::types::{BlockRun, CoreBlock, Sequence};
use headpond_block::Instant;

/// The state that a policy decides by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CleaningLoad {
    pub now: Instant,
    /// Dirty blocks, and how many there may be.
    pub dirty: u64,
    pub dirty_max: u64,
    /// Core writes of the cleaner on their way, and blocks that were chosen and wait for one.
    pub in_flight: u32,
    pub chosen: usize,
    /// As many of them as the core can use.
    pub depth: u32,
    /// Requests that arrived since the slice was opened; whoever sees it unchanged sees quiet.
    pub requests: u64,
    /// Some are being served.
    pub is_busy: bool,
    /// Writes wait for room.
    pub has_waiters: bool,
    /// What is written from now on lies behind this.
    pub head: Age,
    /// Address distance costs the core time.
    pub is_rotational: bool,
    /// That a core write has carried of late, in the mean.
    pub blocks_per_write: f64,
}

/// How hard to work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Speed {
    /// Core writes that should be under way.
    pub in_flight_max: u32,
    /// When to ask again though nothing has happened.
    pub ask_again: Option<Instant>,
}

/// What is cleaned next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Nothing,
    /// What the sweep over the addresses meets next.
    Sweep,
    /// These, ascending.
    Round(Vec<CoreBlock>),
    /// What is next in the order of the flushes.
    InOrder,
}

/// A place in the order in which the log was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Age {
    /// First record of the segment.
    pub segment: Sequence,
    /// Slot within it.
    pub slot: u32,
}

/// How far one walk along the log goes at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    pub blocks: usize,
    /// Places that are looked at; nobody else has a turn meanwhile.
    pub slots: u64,
}

impl Walk {
    /// For who comes again later where the blocks are far apart.
    pub fn of(blocks: usize) -> Self {
        Self { blocks, slots: 1 << 20 }
    }
}

/// A region of the core whose dirty blocks are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Chunk(pub u32);

/// The dirty blocks, in the orders in which policies want them.
pub(crate) trait DirtyData {
    /// Up to so many blocks that were last written before `until`, the oldest first, from `from`
    /// on, which moves with them.
    fn oldest(&mut self, from: &mut Age, until: Age, most: Walk) -> Vec<CoreBlock>;

    /// A chunk of those that are the dirtiest; only where chunks are counted.
    fn dirtiest(&self) -> Option<Chunk>;

    fn run_of(&self, chunk: Chunk) -> BlockRun;

    /// Up to `most` dirty blocks of a run, ascending.
    fn dirty_in(&mut self, run: BlockRun, most: usize) -> Vec<CoreBlock>;
}

/// Decides what is cleaned. Time is an input; nothing is awaited.
pub(crate) trait Policy {
    /// How hard to work now.
    fn speed(&mut self, load: &CleaningLoad) -> Speed;

    /// What comes next; asked while fewer writes are under way than [`Policy::speed`] allows.
    fn choose(&mut self, load: &CleaningLoad, dirty_data: &mut dyn DirtyData) -> Choice;

    /// Something that was chosen is dirty still, or again.
    fn failed(&mut self) {}

    /// Whether clean blocks that are cached are written along where that makes a write whole.
    fn completes_stripes(&self) -> bool {
        false
    }

    /// Whether writes that find no room need more than the policy does by itself.
    fn wants_relief(&self) -> bool {
        false
    }

    /// Whether everything goes to the core in the order of the flushes, whoever wants it cleaned.
    fn keeps_order(&self) -> bool {
        false
    }

    /// Whether the dirty blocks of chunks are to be counted.
    fn counts_chunks(&self) -> bool {
        false
    }
}

#[cfg(test)]
impl CleaningLoad {
    /// Half dirty, and nobody there.
    pub fn quiet(now: Instant) -> Self {
        Self {
            now,
            dirty: 500,
            dirty_max: 1000,
            in_flight: 0,
            chosen: 0,
            depth: 1024,
            requests: 0,
            is_busy: false,
            has_waiters: false,
            head: Age::default(),
            is_rotational: true,
            blocks_per_write: 1.0,
        }
    }
}
