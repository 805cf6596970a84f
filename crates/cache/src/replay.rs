//! Replay: which versions are valid after a shutdown, without I/O.
//!
//! 1. Take every readable record since the checkpoint, in any order; 2. [`Replay::finish`] decides;
//!    3. [`Replayed::keeps`] tests whether a block of the checkpoint is still valid. So memory is
//!    proportional to the writes since the checkpoint, not to the cached data.
//!
//! **Invariants**
//! - The highest first sequence of a block wins, then the highest sequence.
//! - Nothing below the highest tail is valid.
//! - A record that was later replaced by an empty one is invalid, even if readable: its write
//!   failed, and was handled otherwise.
//! - An unreadable flushed version is lost, never replaced by an older one; an unreadable unflushed
//!   one is discarded.
//!
//! **Not here**: reading the device, the line map.

mod order;

pub use order::Order;

use crate::eviction::ClassKey;
use crate::format::checkpoint::CheckpointKind;
use crate::format::order_mark::OrderMark;
use crate::format::record::{Entry, EntryKind, Predecessor, Record};
use crate::types::{BlockRun, CoreBlock, Epoch, Position, Sectors, Sequence};
use foldhash::fast::FixedState;
use headpond_block::defect;
use order::History;
use std::collections::{BTreeSet, HashMap, HashSet};

type Map<K, V> = HashMap<K, V, FixedState>;
type Sequences = HashSet<Sequence, FixedState>;

/// Most missing records in a row that are looked at one by one; more are damage in any case.
const MISSING_MAX: usize = 1 << 20;
/// Blocks of the checkpoint are asked about in regions of so many before one by one.
const REGION_BLOCKS: u64 = 64;

/// Collects what is found.
pub struct Replay {
    epoch: Epoch,
    later_epoch: Option<Epoch>,
    start: Sequence,
    tail: Sequence,
    flush_mark: Sequence,
    promises: Sequences,
    highest: Option<(Sequence, Position, u64)>,
    versions: Map<CoreBlock, Candidate>,
    /// Newest unreadable version of a block that nothing readable supersedes.
    suspects: Vec<Suspect>,
    seen: Vec<Sequence>,
    /// Records without entries, and how many of each were found.
    empty: Map<Sequence, u32>,
    /// Records that do not count, in whose place an empty one does.
    void: Sequences,
    /// What the successor of an unseen record says about it, by the unseen record.
    described: Map<Sequence, Predecessor>,
    /// Where the order of the flushes is to go on.
    history: Option<History>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Candidate {
    birth: Sequence,
    sequence: Sequence,
    kind: EntryKind,
    class: ClassKey,
    position: Position,
    checksum: u32,
}

impl Candidate {
    /// What an entry of a record says of its blocks, wherever their data are.
    fn without_data(entry: &Entry, sequence: Sequence) -> Self {
        let birth = entry.birth.unwrap_or(sequence);
        let (kind, class, position) = (entry.kind, entry.class, Position(0));
        Self { birth, sequence, kind, class, position, checksum: 0 }
    }
}

struct Suspect {
    block: CoreBlock,
    birth: Sequence,
    sequence: Sequence,
    /// A promised record that is missing altogether.
    is_known_loss: bool,
}

/// A block, or a part of one, that comes back dirty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBlock {
    pub block: CoreBlock,
    pub position: Position,
    pub checksum: u32,
    pub class: ClassKey,
    /// What of it came back, where that is not all.
    pub sectors: Option<Sectors>,
}

/// What replay decided.
#[derive(Debug, Default)]
pub struct Replayed {
    /// From the records alone.
    pub live: Vec<LiveBlock>,
    /// Promised and damaged.
    pub lost: BTreeSet<CoreBlock>,
    /// Those of the lost ones for which a version of the checkpoint stands in.
    replaceable: BTreeSet<CoreBlock>,
    /// Blocks of which a record says something that can be read.
    touched: HashSet<CoreBlock, FixedState>,
    touched_regions: HashSet<u64, FixedState>,
    /// Went to the core beside the cache, perhaps not with their parity.
    pub parity_suspects: Vec<BlockRun>,
    pub tail: Sequence,
    /// Where the log goes on: after the highest record.
    pub highest: Option<(Sequence, Position, u64)>,
    pub records: u64,
    /// Records and blocks that no promise covered and that were not whole.
    pub never_happened: u64,
    /// Promised records that are missing and that no successor describes.
    pub unnamed: Vec<Sequence>,
    /// Where the order of the flushes goes on.
    pub order: Option<Order>,
}

impl Replay {
    /// For the records of `epoch`, the first of which was `start`.
    pub fn new(epoch: Epoch, start: Sequence, tail: Sequence) -> Self {
        Self {
            epoch,
            later_epoch: None,
            start,
            tail,
            flush_mark: Sequence(0),
            promises: Sequences::default(),
            highest: None,
            versions: Map::default(),
            suspects: Vec::new(),
            seen: Vec::new(),
            empty: Map::default(),
            void: Sequences::default(),
            described: Map::default(),
            history: None,
        }
    }

    /// The order of the flushes is to go on, from a checkpoint at `head` whose header has that
    /// mark, and perhaps from a later one.
    pub fn in_order(
        self,
        mark: Option<Position>,
        noted: Option<OrderMark>,
        head: Position,
    ) -> Self {
        Self { history: Some(History::new(mark, noted, head)), ..self }
    }

    /// Records that were both found with entries and found empty: where there are some, everything
    /// is to be taken again, [without](Self::without) them.
    pub fn contradicted(&self) -> HashSet<Sequence, FixedState> {
        let mut found: Map<Sequence, u32> = Map::default();
        for seen in self.seen.iter().filter(|seen| self.empty.contains_key(seen)) {
            *found.entry(*seen).or_default() += 1;
        }
        found.retain(|sequence, count| *count > self.empty[sequence]);
        found.into_keys().collect()
    }

    /// These count as empty, whatever else is found of them.
    pub fn without(mut self, void: HashSet<Sequence, FixedState>) -> Self {
        self.void = void;
        self
    }

    /// Looks at the epoch of a record, whether it belongs to this replay or not.
    pub fn note_epoch(&mut self, record: &Record) {
        if record.header.epoch > self.epoch {
            self.later_epoch = self.later_epoch.max(Some(record.header.epoch));
        }
    }

    /// The latest epoch of all records, where it is later than the one that is replayed. Its header
    /// was stable before its first record, so the header that this replay starts from is out of
    /// date, and what replay decides is not to be used.
    pub fn later_epoch(&self) -> Option<Epoch> {
        self.later_epoch
    }

    /// Whether a record belongs to this replay; what an earlier epoch left is in the checkpoint.
    pub fn concerns(&self, record: &Record) -> bool {
        let sequence = record.header.sequence;
        let is_void = !record.entries.is_empty() && self.void.contains(&sequence);
        record.header.epoch == self.epoch && sequence >= self.start && !is_void
    }

    /// One record. `is_whole[i]` says whether its data block i carries the checksum it should, and
    /// `data` is where its first data block lies, `units_per_block` apart from the next.
    pub fn add_record(
        &mut self,
        record: &Record,
        is_whole: &[bool],
        data: Position,
        units_per_block: u64,
    ) {
        assert_eq!(is_whole.len(), record.checksums.len());
        if !self.concerns(record) {
            return;
        }
        self.note_facts(record, data.0 + is_whole.len() as u64 * units_per_block);
        let header = &record.header;
        let mut index = 0;
        for entry in &record.entries {
            let without = Candidate::without_data(entry, header.sequence);
            let run = BlockRun { first: entry.first, count: u64::from(entry.count) };
            for block in run.blocks() {
                if !entry.kind.carries_data() {
                    self.offer(block, without);
                    continue;
                }
                let position = Position(data.0 + index as u64 * units_per_block);
                let checksum = record.checksums[index];
                if is_whole[index] {
                    self.offer(block, Candidate { position, checksum, ..without });
                } else if entry.kind.is_dirty() {
                    let Candidate { birth, sequence, .. } = without;
                    let is_known_loss = false;
                    self.suspects.push(Suspect { block, birth, sequence, is_known_loss });
                } else {
                    // The core has the data as well, so only the older versions end here.
                    self.offer(block, Candidate { kind: EntryKind::Tombstone, ..without });
                }
                index += 1;
            }
        }
    }

    fn note_facts(&mut self, record: &Record, end: u64) {
        let header = &record.header;
        self.tail = self.tail.max(header.tail);
        self.flush_mark = self.flush_mark.max(header.flush_mark);
        self.promises.extend(header.promises.iter());
        if let Some(history) = &mut self.history {
            history.note_record(header);
        }
        if self.highest.is_none_or(|(highest, ..)| highest < header.sequence) {
            self.highest = Some((header.sequence, header.position, end - header.position.0));
        }
        self.seen.push(header.sequence);
        if record.entries.is_empty() {
            *self.empty.entry(header.sequence).or_default() += 1;
        }
        self.described.remove(&header.sequence);
        if let Some(predecessor) = &record.predecessor
            && header.sequence > self.start
        {
            let previous = Sequence(header.sequence.0 - 1);
            // In the order of the log the predecessor has just been seen.
            if self.seen.iter().rev().take(2).all(|seen| *seen != previous) {
                self.described.insert(previous, predecessor.clone());
            }
        }
    }

    fn offer(&mut self, block: CoreBlock, candidate: Candidate) {
        if let Some(history) = &mut self.history {
            history.note_version(block, &candidate);
        }
        let best = self.versions.entry(block).or_insert(candidate);
        if (best.birth, best.sequence) < (candidate.birth, candidate.sequence) {
            *best = candidate;
        }
    }

    /// Decides.
    pub fn finish(mut self) -> Replayed {
        let mut result = Replayed { tail: self.tail, highest: self.highest, ..Default::default() };
        self.find_missing(&mut result);
        result.records = self.seen.len() as u64;
        result.order = self.order();
        result.touched = self.versions.keys().copied().collect();
        let regions = self.versions.keys().map(|block| block.0 / REGION_BLOCKS);
        result.touched_regions = regions.collect();
        for (&block, candidate) in &self.versions {
            if candidate.sequence >= self.tail {
                keep(block, candidate, &mut result);
            }
        }
        let mut beyond = BTreeSet::new();
        for suspect in &self.suspects {
            if self.is_lost(suspect, &mut result) {
                result.lost.insert(suspect.block);
                // A copy is as old as its original, which may still be there.
                let set = if suspect.birth.0 == 0 { &mut result.replaceable } else { &mut beyond };
                set.insert(suspect.block);
            }
        }
        result.replaceable.retain(|block| !beyond.contains(block));
        if !result.lost.is_empty() {
            let lost = &result.lost;
            result.live.retain(|live| !lost.contains(&live.block));
        }
        result
    }

    /// The order, unless something that has its place in it can be had no more.
    fn order(&mut self) -> Option<Order> {
        let history = self.history.take()?;
        let mut counting = self.suspects.iter().filter(|suspect| suspect.sequence >= self.tail);
        match counting.any(|it| it.is_known_loss || self.is_promised(it.sequence)) {
            true => None,
            false => history.finish(&self.seen, self.start, self.tail),
        }
    }

    /// Finds the records that are not there.
    fn find_missing(&mut self, result: &mut Replayed) {
        self.seen.sort_unstable();
        self.seen.dedup();
        let first = self.start.max(self.tail);
        let (mut expected, mut missing) = (first, Vec::new());
        for &seen in self.seen.iter().filter(|seen| **seen >= first) {
            missing.extend((expected.0..seen.0).take(MISSING_MAX).map(Sequence));
            expected = seen.next();
        }
        // A promise may reach beyond the last record that can be read.
        let promised = self.promises.iter().copied().max().max(Some(self.flush_mark));
        let promised = promised.expect("at least the mark").0;
        missing.extend((expected.0..=promised).take(MISSING_MAX).map(Sequence));
        for sequence in missing {
            match self.described.remove(&sequence) {
                Some(description) => self.mourn(sequence, &description, result),
                None if self.is_promised(sequence) => result.unnamed.push(sequence),
                None => result.never_happened += 1,
            }
        }
    }

    /// A record that only its successor knows.
    fn mourn(&mut self, sequence: Sequence, description: &Predecessor, result: &mut Replayed) {
        if !self.is_promised(sequence) {
            result.never_happened += 1;
            return;
        }
        for (entry, &reinserted) in description.entries.iter().zip(&description.reinserted) {
            self.mourn_entry(sequence, entry, reinserted);
        }
    }

    fn mourn_entry(&mut self, sequence: Sequence, entry: &Entry, reinserted: bool) {
        let run = BlockRun { first: entry.first, count: u64::from(entry.count) };
        for block in run.blocks() {
            if entry.kind.is_dirty() {
                // A copy is as old as its original, which may still be there to stand in for it.
                let birth = if reinserted { Sequence(0) } else { sequence };
                self.suspects.push(Suspect { block, birth, sequence, is_known_loss: true });
            } else if !reinserted {
                // The core has the data, so only the older versions end here.
                self.offer(
                    block,
                    Candidate {
                        kind: EntryKind::Tombstone,
                        ..Candidate::without_data(entry, sequence)
                    },
                );
            }
        }
    }

    fn is_promised(&self, sequence: Sequence) -> bool {
        !defect!(IgnorePromises)
            && (sequence <= self.flush_mark || self.promises.contains(&sequence))
    }

    fn is_lost(&self, suspect: &Suspect, result: &mut Replayed) -> bool {
        if suspect.sequence < self.tail {
            return false;
        }
        if !suspect.is_known_loss && !self.is_promised(suspect.sequence) {
            result.never_happened += 1;
            return false;
        }
        let stands_in = self.versions.get(&suspect.block).is_some_and(|best| {
            best.sequence >= self.tail && (best.birth, 0) >= (suspect.birth, 0)
        });
        !stands_in
    }
}

impl Replayed {
    /// Whether all dirty blocks of a run that the checkpoint has, in a segment whose contents began
    /// with `first`, count still.
    pub fn keeps_all(&self, run: BlockRun, first: Sequence) -> bool {
        let mut regions = run.first.0 / REGION_BLOCKS..=(run.end().0 - 1) / REGION_BLOCKS;
        first >= self.tail
            && self.lost.is_empty()
            && !regions.any(|region| self.touched_regions.contains(&region))
    }

    /// Whether a block of the checkpoint, in a segment whose contents began with `first`, counts
    /// still. What was clean then is forgotten: an unpromised write-through may have changed the
    /// core since.
    pub fn keeps(&mut self, block: CoreBlock, kind: CheckpointKind, first: Sequence) -> bool {
        if self.touched.contains(&block) {
            return false;
        }
        match kind {
            CheckpointKind::Clean | CheckpointKind::Ends | CheckpointKind::Kept => false,
            // A lost block has no place, and so no segment whose end could end it.
            CheckpointKind::Lost => {
                self.lost.insert(block);
                false
            }
            CheckpointKind::Dirty | CheckpointKind::DirtyReplayed | CheckpointKind::Part(_) => {
                let stands_in = first >= self.tail;
                if stands_in && self.replaceable.remove(&block) {
                    self.lost.remove(&block);
                }
                stands_in && !self.lost.contains(&block)
            }
        }
    }
}

fn keep(block: CoreBlock, candidate: &Candidate, result: &mut Replayed) {
    let Candidate { position, checksum, class, .. } = *candidate;
    let live = LiveBlock { block, position, checksum, class, sectors: None };
    match candidate.kind {
        EntryKind::Dirty => result.live.push(live),
        EntryKind::Part(sectors) => {
            result.live.push(LiveBlock { sectors: Some(sectors), ..live });
        }
        EntryKind::WrittenThrough => {
            result.parity_suspects.push(BlockRun { first: block, count: 1 });
        }
        EntryKind::ReadInsert | EntryKind::Tombstone => {}
    }
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
