//! What a witness knows about each block of a region: which values it may hold after a power cut.
//!
//! Per block a few numbers suffice, however many writes there were, because a writer never has two
//! writes of one block in flight: the writes of a block follow each other in the order of their
//! sequences. So a block may hold every value from the newest promised one to the newest that has
//! begun, and what lay there before where nothing was promised.
//!
//! 1. [`Book::apply`] takes the reports of a writer in their order.
//! 2. [`Book::cut`] ends a session that did not end in order: what was announced may be there.
//! 3. [`super::Judge`] compares what is found with [`Book::block`]; [`Book::settle`] then takes
//!    that for what the block holds.
//!
//! **Invariants**: `promised <= possible` for every block; a flush covers what was acknowledged
//! before it began. Memory is bounded by the region and by [`OUTSTANDING_MAX`].

use super::event::Event;
use std::collections::{BTreeMap, BTreeSet};

/// Blocks of the largest region: 16 GiB.
pub const REGION_BLOCKS_MAX: u64 = 4 << 20;
/// Writes that are announced and not yet answered.
pub const OUTSTANDING_MAX: usize = 4096;
/// Blocks of the longest write: 1 MiB.
pub const WRITE_BLOCKS_MAX: u64 = 256;

/// A report that does not follow from those before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BookError {
    #[error("write {0} is announced a second time, or out of order")]
    NotNew(u64),
    #[error("write {0} leaves the region, or is too long")]
    Outside(u64),
    #[error("more than {OUTSTANDING_MAX} writes are announced and not answered")]
    TooMany,
    #[error("write {0} was not announced, or has been answered")]
    Unknown(u64),
    #[error("write {0} begins while another write of its blocks is in flight, or a later one was")]
    Overlapping(u64),
    #[error("write {0} is answered before it has begun")]
    NotBegun(u64),
    #[error("a flush begins while another is in flight, or ends that did not begin")]
    Flush,
    #[error("the writer says that it ends in order, with writes in flight")]
    NotOver,
}

/// What is known about one block. Sequences count from 1; 0 stands for what lay there before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// The newest value that the device has promised to keep.
    pub promised: u64,
    /// The newest write of the region that had been announced when that was promised: what comes
    /// later came after the promise.
    pub promised_at: u64,
    /// The newest value that was acknowledged.
    pub acknowledged: u64,
    /// The newest value that may be there.
    pub possible: u64,
    /// The newest value that was acknowledged before the last flush began.
    pub(super) before_flush: u64,
    /// How many flushes had begun when `acknowledged` was.
    pub(super) epoch: u64,
    pub(super) is_busy: bool,
    /// A look at the device has shown a value of this run here: what lay there before is gone.
    pub is_known: bool,
    /// What it holds was found wrong, and was told: until something new is promised, nobody asks.
    pub is_spoilt: bool,
}

/// What a look has shown of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It holds one value, or sectors of several; 0 stands for what lay there before.
    Values {
        oldest: u64,
        newest: u64,
    },
    Spoilt,
}

/// A write that was announced and not yet answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outstanding {
    pub block: u64,
    pub blocks: u64,
    pub has_begun: bool,
}

/// The book of one region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Book {
    pub(super) blocks: Vec<Block>,
    pub(super) outstanding: BTreeMap<u64, Outstanding>,
    /// Blocks that were acknowledged and not promised since.
    pub(super) unpromised: BTreeSet<u64>,
    /// Flushes that have begun.
    pub(super) epoch: u64,
    pub(super) is_flushing: bool,
    /// The newest sequence that was announced.
    pub(super) newest: u64,
    /// Writes and flushes that were acknowledged, for people.
    pub(super) writes: u64,
    pub(super) flushes: u64,
}

impl Book {
    /// A region of which nothing is known.
    ///
    /// # Panics
    /// Where it is larger than [`REGION_BLOCKS_MAX`]: whoever was asked for it by a peer checks
    /// that.
    pub fn new(blocks: u64) -> Self {
        assert!(blocks <= REGION_BLOCKS_MAX, "a region of {blocks} blocks");
        Self {
            blocks: vec![Block::default(); blocks as usize],
            outstanding: BTreeMap::new(),
            unpromised: BTreeSet::new(),
            epoch: 0,
            is_flushing: false,
            newest: 0,
            writes: 0,
            flushes: 0,
        }
    }

    pub fn block_count(&self) -> u64 {
        self.blocks.len() as u64
    }

    pub fn block(&self, block: u64) -> &Block {
        &self.blocks[block as usize]
    }

    /// The first sequence that is free.
    pub fn next_sequence(&self) -> u64 {
        self.newest + 1
    }

    pub fn acknowledged_writes(&self) -> u64 {
        self.writes
    }

    pub fn acknowledged_flushes(&self) -> u64 {
        self.flushes
    }

    /// Writes that are announced and not answered.
    pub fn outstanding_count(&self) -> usize {
        self.outstanding.len()
    }

    /// Blocks with something that the device has promised to keep.
    pub fn promised_blocks(&self) -> u64 {
        self.blocks.iter().filter(|block| block.promised > 0).count() as u64
    }

    /// Whether nothing was acknowledged that is not promised, so that a writer may go on without a
    /// look: its flushes would cover what may be gone.
    pub fn is_settled(&self) -> bool {
        self.outstanding.is_empty() && self.unpromised.is_empty()
    }

    /// Takes the next report of a writer.
    ///
    /// # Errors
    /// Where it cannot be true; the book is as before.
    pub fn apply(&mut self, event: Event) -> Result<(), BookError> {
        match event {
            Event::Announced { sequence, block, blocks } => self.announce(sequence, block, blocks),
            Event::Begun { sequence } => self.begin(sequence),
            Event::Acknowledged { sequence } => self.acknowledge(sequence),
            Event::Stable { sequence } => {
                let blocks = self.range(sequence)?;
                self.acknowledge(sequence)?;
                blocks.for_each(|block| self.promise(block, sequence));
                Ok(())
            }
            Event::Failed { sequence } => self.take(sequence).map(drop),
            Event::FlushBegun if !self.is_flushing => {
                self.epoch += 1;
                self.is_flushing = true;
                Ok(())
            }
            Event::FlushAcknowledged if self.is_flushing => {
                self.is_flushing = false;
                self.flushes += 1;
                self.promise_what_was_flushed();
                Ok(())
            }
            Event::FlushFailed if self.is_flushing => {
                self.is_flushing = false;
                Ok(())
            }
            Event::FlushBegun | Event::FlushAcknowledged | Event::FlushFailed => {
                Err(BookError::Flush)
            }
            Event::Ended if self.is_flushing || self.outstanding.values().any(|w| w.has_begun) => {
                Err(BookError::NotOver)
            }
            Event::Ended => {
                self.outstanding.clear();
                Ok(())
            }
        }
    }

    /// The writer is gone without a word: everything that it was allowed to write may be there.
    pub fn cut(&mut self) {
        for (sequence, write) in std::mem::take(&mut self.outstanding) {
            for block in write.block..write.block + write.blocks {
                let block = &mut self.blocks[block as usize];
                block.possible = block.possible.max(sequence);
                block.is_busy = false;
            }
        }
        self.is_flushing = false;
    }

    /// The region was looked at and flushed: the block holds what was found, and nothing else may
    /// be there from now on.
    pub fn settle(&mut self, block: u64, settled: Settled) {
        let newest = self.newest;
        let at = &mut self.blocks[block as usize];
        let (oldest, latest) = match settled {
            Settled::Values { oldest, newest } => (oldest, newest),
            Settled::Spoilt => (0, 0),
        };
        *at = Block {
            promised: oldest,
            promised_at: newest,
            acknowledged: oldest,
            possible: latest,
            before_flush: oldest,
            is_known: oldest > 0,
            is_spoilt: settled == Settled::Spoilt,
            ..Block::default()
        };
        self.unpromised.remove(&block);
    }

    fn announce(&mut self, sequence: u64, block: u64, blocks: u64) -> Result<(), BookError> {
        if sequence <= self.newest {
            return Err(BookError::NotNew(sequence));
        }
        let end = block.checked_add(blocks).filter(|end| *end <= self.block_count());
        if blocks == 0 || blocks > WRITE_BLOCKS_MAX || end.is_none() {
            return Err(BookError::Outside(sequence));
        }
        if self.outstanding.len() >= OUTSTANDING_MAX {
            return Err(BookError::TooMany);
        }
        self.newest = sequence;
        self.outstanding.insert(sequence, Outstanding { block, blocks, has_begun: false });
        Ok(())
    }

    fn begin(&mut self, sequence: u64) -> Result<(), BookError> {
        let range = self.range(sequence)?;
        let is_free = |block: &Block| !block.is_busy && block.possible < sequence;
        if !range.clone().all(|block| is_free(&self.blocks[block as usize])) {
            return Err(BookError::Overlapping(sequence));
        }
        self.outstanding.get_mut(&sequence).expect("it has a range").has_begun = true;
        for block in range {
            let block = &mut self.blocks[block as usize];
            (block.possible, block.is_busy) = (sequence, true);
        }
        Ok(())
    }

    fn acknowledge(&mut self, sequence: u64) -> Result<(), BookError> {
        let write = self.take(sequence)?;
        self.writes += 1;
        for at in write.block..write.block + write.blocks {
            let block = &mut self.blocks[at as usize];
            if block.epoch != self.epoch {
                (block.before_flush, block.epoch) = (block.acknowledged, self.epoch);
            }
            block.acknowledged = sequence;
            self.unpromised.insert(at);
        }
        Ok(())
    }

    /// A write in flight is answered.
    fn take(&mut self, sequence: u64) -> Result<Outstanding, BookError> {
        let write = self.outstanding.get(&sequence).ok_or(BookError::Unknown(sequence))?;
        if !write.has_begun {
            return Err(BookError::NotBegun(sequence));
        }
        let write = self.outstanding.remove(&sequence).expect("it was there");
        for block in write.block..write.block + write.blocks {
            self.blocks[block as usize].is_busy = false;
        }
        Ok(write)
    }

    fn range(&self, sequence: u64) -> Result<std::ops::Range<u64>, BookError> {
        let write = self.outstanding.get(&sequence).ok_or(BookError::Unknown(sequence))?;
        Ok(write.block..write.block + write.blocks)
    }

    fn promise(&mut self, block: u64, value: u64) {
        let newest = self.newest;
        let at = &mut self.blocks[block as usize];
        if value > at.promised {
            (at.promised, at.promised_at) = (value, newest);
            at.is_spoilt = false;
        }
        assert!(at.promised <= at.possible, "what is promised has begun");
        if at.promised == at.acknowledged {
            self.unpromised.remove(&block);
        }
    }

    fn promise_what_was_flushed(&mut self) {
        let flush = self.epoch;
        let unpromised: Vec<u64> = self.unpromised.iter().copied().collect();
        for block in unpromised {
            let at = &self.blocks[block as usize];
            let value = if at.epoch < flush { at.acknowledged } else { at.before_flush };
            self.promise(block, value);
        }
    }
}

#[cfg(test)]
#[path = "book_tests.rs"]
mod tests;
