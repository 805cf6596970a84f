//! From the bytes of a slice to its log, after any stop.
//!
//! 1. The newer valid header, or what it lets believe where the other copy is not valid; 2. its
//!    checkpoint; 3. unless the stop was clean, every record of the epoch; 4. what that leaves
//!    becomes a checkpoint and a header of a new epoch, both stable, before the first request is
//!    served: what was decided about holes and torn blocks is not decided again.

use crate::checksum::crc32c;
use crate::create::write_checkpoint;
use crate::error::OpenError;
use crate::format::FormatError;
use crate::format::checkpoint::{Checkpoint, CheckpointEntry, CheckpointKind};
use crate::format::record::{self, Record};
use crate::format::slice_header::{CheckpointRef, HEADER_BYTES, SliceHeader};
use crate::layout::SliceLayout;
use crate::line_map::{Marks, State, Version, scattered_extents};
use crate::log::{Identity, Log};
use crate::replay::{Replay, Replayed};
use crate::ring::Ring;
use crate::types::{BlockRun, CoreBlock, Epoch, Position, SegmentIndex, Sequence};
use headpond_block::defect;
use headpond_block::{BLOCK_BYTES, BlockDevice, Buffer, DeviceError, Request};
use serde::Serialize;
use std::collections::BTreeSet;
use uuid::Uuid;

/// What an open found.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize)]
pub struct Recovery {
    pub was_clean: bool,
    pub records_replayed: u64,
    pub dirty_blocks: u64,
    pub clean_blocks: u64,
    /// Records and blocks that were not whole, and that nothing had promised.
    pub never_happened: u64,
    /// Promised and damaged: reads fail until they are overwritten.
    pub lost_blocks: u64,
    /// Written through when the power failed: their parity is to be recomputed.
    pub parity_suspects: Vec<BlockRun>,
}

/// Which slice of which cache.
pub(crate) struct Source<'a> {
    pub device: &'a dyn BlockDevice,
    pub layout: SliceLayout,
    pub cache: Uuid,
    pub slice: u16,
    pub core_blocks: u64,
}

/// Everything that goes into the log of the new epoch.
struct Found {
    entries: Vec<CheckpointEntry>,
    segments: Vec<Sequence>,
    tail: Sequence,
    tail_segment: SegmentIndex,
    head: Position,
    head_segment: SegmentIndex,
    next: Sequence,
}

impl Source<'_> {
    /// Reads the slice and begins a new epoch.
    ///
    /// # Errors
    /// Where the slice cannot be read or trusted; nothing was changed.
    pub async fn open(&self) -> Result<(Log, SliceHeader, Recovery), OpenError> {
        let old = self.read_header().await?;
        let checkpoint = self.read_checkpoint(&old).await?;
        let mut recovery = Recovery { was_clean: old.is_clean, ..Recovery::default() };
        let found = match old.is_clean {
            true => from_clean(&old, checkpoint),
            false => self.replay(&old, checkpoint, &mut recovery).await?,
        };
        let checkpoint = match old.is_clean {
            true => old.checkpoint,
            false => self.save_entries(&old, &found).await?,
        };
        let header = self.next_header(&old, &found, checkpoint);
        if !defect!(ServeBeforeEpochIsDurable) {
            self.write_header(&header).await?;
        }
        let log = self.build(&found, header.epoch);
        recovery.dirty_blocks = log.map.counts().dirty;
        recovery.clean_blocks = log.map.counts().clean;
        recovery.lost_blocks = log.lost.len() as u64;
        Ok((log, header, recovery))
    }

    /// The newer valid copy of the slice's header; of one alone, what is safe to believe.
    async fn read_header(&self) -> Result<SliceHeader, OpenError> {
        let mut best: Option<SliceHeader> = None;
        let mut is_alone = false;
        let mut failure = FormatError::Malformed { what: "slice header", detail: "no copy" };
        for copy in 0..2 {
            let buffer = Buffer::zeroed(HEADER_BYTES);
            self.device.read(self.layout.header_offset(copy), &buffer).await?;
            match SliceHeader::decode(&buffer.to_vec(), self.cache, self.slice) {
                // The sequence says which copy it is: the older one may lie over the newer.
                Ok(found) if found.sequence % 2 != copy as u64 => {
                    let detail = "the other copy lies in its place";
                    failure = FormatError::Malformed { what: "slice header", detail };
                    is_alone = true;
                }
                Ok(found) if best.is_none_or(|best| best.sequence < found.sequence) => {
                    best = Some(found);
                }
                Ok(_) => {}
                Err(error) => (is_alone, failure) = (true, error),
            }
        }
        let no_slice =
            |source| OpenError::NoSlice { device: self.name(), slice: self.slice, source };
        let best = best.ok_or_else(|| no_slice(failure))?;
        let segments = self.layout.segments();
        let start = self.layout.segment_start(best.head_segment).0;
        let head = start..=start + self.layout.units_per_segment();
        let is_inside = best.head_segment.0.max(best.tail_segment.0) < segments;
        if !is_inside || !head.contains(&best.head.0) {
            let detail = "head or tail outside the log";
            return Err(no_slice(FormatError::Malformed { what: "slice header", detail }));
        }
        Ok(if is_alone { best.without_successor() } else { best })
    }

    async fn read_checkpoint(&self, header: &SliceHeader) -> Result<Checkpoint, OpenError> {
        let damaged = |detail: String| OpenError::Checkpoint {
            device: self.name(),
            slice: self.slice,
            detail,
        };
        let CheckpointRef { area, bytes: len, checksum, .. } = header.checkpoint;
        let place = self.layout.checkpoint(area);
        if len > place.len() {
            return Err(damaged(format!("{len} bytes in an area of {}", place.len())));
        }
        let buffer = Buffer::zeroed(len.next_multiple_of(BLOCK_BYTES) as usize);
        self.read_long(place.start(), &buffer).await?;
        let bytes = buffer.slice(0..len as usize).to_vec();
        let found = crc32c(&bytes);
        if found != checksum {
            return Err(damaged(format!("checksum {found:#010x}, expected {checksum:#010x}")));
        }
        let segments = self.layout.segments() as usize;
        let checkpoint =
            Checkpoint::decode(&bytes, segments).map_err(|error| damaged(error.to_string()))?;
        self.check_places(&checkpoint).map_err(|detail| damaged(detail.into()))?;
        Ok(checkpoint)
    }

    /// Whether every entry has a block of the core, and a place of its own in the log.
    fn check_places(&self, checkpoint: &Checkpoint) -> Result<(), &'static str> {
        let mut is_taken = vec![false; self.layout.slots() as usize];
        for entry in &checkpoint.entries {
            let has_place = entry.kind != CheckpointKind::Lost;
            if entry.block.0 >= self.core_blocks
                || has_place && !self.layout.contains(entry.position)
            {
                return Err("an entry points outside core or log");
            }
            let slot = self.layout.slot_at(entry.position).0;
            if has_place && std::mem::replace(&mut is_taken[slot.0 as usize], true) {
                return Err("two entries share a place in the log");
            }
        }
        Ok(())
    }

    async fn read_long(&self, offset: u64, buffer: &Buffer) -> Result<(), DeviceError> {
        const PIECE_BYTES: usize = 1 << 20;
        for start in (0..buffer.len()).step_by(PIECE_BYTES) {
            let part = buffer.slice(start..buffer.len().min(start + PIECE_BYTES));
            self.device.submit(Request::read(offset + start as u64, part)).await?;
        }
        Ok(())
    }

    async fn replay(
        &self,
        old: &SliceHeader,
        checkpoint: Checkpoint,
        recovery: &mut Recovery,
    ) -> Result<Found, OpenError> {
        let mut replay = Replay::new(old.epoch, old.next_record, old.tail);
        for entry in &checkpoint.entries {
            let first = match entry.kind {
                CheckpointKind::Lost => Sequence(0),
                _ => checkpoint.segments[self.layout.segment_of(entry.position).0 as usize],
            };
            replay.add_checkpointed(entry, first);
        }
        let mut firsts = Vec::new();
        let segments = self.layout.segments();
        for index in 0..segments {
            let segment = SegmentIndex((old.tail_segment.0 + index) % segments);
            self.scan(segment, &mut replay, &mut firsts).await?;
        }
        if let Some(later) = replay.later_epoch() {
            let (expected, found) = (later.0, old.epoch.0);
            let (device, slice) = (self.name(), self.slice);
            return Err(OpenError::StaleHeader { device, slice, expected, found });
        }
        let replayed = replay.finish();
        recovery.records_replayed = replayed.records;
        recovery.never_happened = replayed.never_happened;
        recovery.parity_suspects = joined(&replayed.parity_suspects);
        if !replayed.unnamed.is_empty() {
            let records = replayed.unnamed.len() as u64;
            return Err(OpenError::LostRecords { device: self.name(), records });
        }
        Ok(self.found(old, checkpoint.segments, &replayed, &firsts))
    }

    /// Hands every record of one segment to replay.
    async fn scan(
        &self,
        segment: SegmentIndex,
        replay: &mut Replay,
        firsts: &mut Vec<(SegmentIndex, Sequence)>,
    ) -> Result<(), OpenError> {
        let range = self.layout.segment_range(segment);
        let buffer = Buffer::zeroed(range.len() as usize);
        self.read_long(range.start(), &buffer).await?;
        let bytes = buffer.to_vec();
        let start = self.layout.segment_start(segment);
        let mut units = 0;
        while units < self.layout.units_per_segment() {
            let offset = (units * self.layout.unit_bytes()) as usize;
            let position = Position(start.0 + units);
            units += self.take_record(&bytes[offset..], position, replay, |record| {
                firsts.push((segment, record.header.sequence));
            });
        }
        Ok(())
    }

    /// Replays the record at the start of `bytes`, if there is one; answers how far to go on. What
    /// is not whole may hide a newer record, so it is looked through.
    fn take_record(
        &self,
        bytes: &[u8],
        position: Position,
        replay: &mut Replay,
        mut note: impl FnMut(&Record),
    ) -> u64 {
        let Ok(record) = record::decode(bytes, self.cache, self.slice, position) else { return 1 };
        let descriptor = (record.descriptor_bytes as u64).div_ceil(self.layout.unit_bytes());
        let data = bytes.get((descriptor * self.layout.unit_bytes()) as usize..).unwrap_or(&[]);
        let is_whole: Vec<bool> = record
            .checksums
            .iter()
            .enumerate()
            .map(|(index, &checksum)| {
                let start = index * BLOCK_BYTES as usize;
                let block = data.get(start..start + BLOCK_BYTES as usize);
                block.is_some_and(|block| crc32c(block) == checksum)
            })
            .collect();
        let in_core =
            |entry: &record::Entry| entry.first.0 + u64::from(entry.count) <= self.core_blocks;
        replay.note_epoch(&record);
        if !replay.concerns(&record) || !record.entries.iter().all(in_core) {
            return 1;
        }
        note(&record);
        let units_per_block = self.layout.units_per_block();
        replay.add_record(&record, &is_whole, Position(position.0 + descriptor), units_per_block);
        match is_whole.iter().all(|whole| *whole) {
            true => descriptor + is_whole.len() as u64 * units_per_block,
            false => 1,
        }
    }

    /// Puts what replay decided into the order of the ring.
    fn found(
        &self,
        old: &SliceHeader,
        mut segments: Vec<Sequence>,
        replayed: &Replayed,
        firsts: &[(SegmentIndex, Sequence)],
    ) -> Found {
        let mut opened = vec![None::<Sequence>; segments.len()];
        for &(segment, sequence) in firsts.iter().filter(|(_, at)| *at >= replayed.tail) {
            let first = &mut opened[segment.0 as usize];
            *first = Some(first.map_or(sequence, |known| known.min(sequence)));
        }
        for (index, first) in opened.iter().enumerate() {
            // The epoch began in the middle of this one, unless it has been filled anew since.
            let began_here = old.head_segment.0 as usize == index && old.tail == replayed.tail;
            if let (Some(first), false) = (first, began_here) {
                segments[index] = *first;
            }
        }
        let (head, head_segment, next) = match replayed.highest {
            Some((sequence, position, units)) => {
                let segment = self.layout.segment_of(position);
                let end = self.layout.segment_start(segment).0 + self.layout.units_per_segment();
                (Position((position.0 + units).min(end)), segment, sequence.next())
            }
            None => (old.head, old.head_segment, old.next_record),
        };
        let tail_segment = self.tail_segment(old, &segments, replayed.tail, head_segment);
        level(&mut segments, tail_segment, head_segment, replayed.tail);
        let live = replayed.live.iter().map(|live| CheckpointEntry {
            block: live.block,
            kind: CheckpointKind::DirtyReplayed,
            position: live.position,
            checksum: live.checksum,
        });
        let lost = replayed.lost.iter().map(|&block| CheckpointEntry {
            block,
            kind: CheckpointKind::Lost,
            position: Position(0),
            checksum: 0,
        });
        let entries = live.chain(lost).collect();
        let tail = replayed.tail;
        Found { entries, segments, tail, tail_segment, head, head_segment, next }
    }

    /// The segment that begins with the tail, or the next one that is left of the log.
    fn tail_segment(
        &self,
        old: &SliceHeader,
        segments: &[Sequence],
        tail: Sequence,
        head: SegmentIndex,
    ) -> SegmentIndex {
        if tail == old.tail {
            return old.tail_segment;
        }
        let candidates = segments.iter().enumerate().filter(|(_, first)| **first >= tail);
        let oldest = candidates.min_by_key(|(_, first)| **first);
        oldest.map_or(head, |(index, _)| SegmentIndex(index as u32))
    }

    async fn save_entries(
        &self,
        old: &SliceHeader,
        found: &Found,
    ) -> Result<CheckpointRef, OpenError> {
        let segments = found.segments.clone();
        let checkpoint = Checkpoint { segments, entries: found.entries.clone() };
        let area = 1 - old.checkpoint.area;
        Ok(write_checkpoint(self.device, &self.layout, area, &checkpoint).await?)
    }

    fn next_header(
        &self,
        old: &SliceHeader,
        found: &Found,
        checkpoint: CheckpointRef,
    ) -> SliceHeader {
        SliceHeader {
            sequence: old.sequence + 1,
            epoch: Epoch(old.epoch.0 + 1),
            next_record: found.next,
            tail: found.tail,
            tail_segment: found.tail_segment,
            head: found.head,
            head_segment: found.head_segment,
            is_clean: false,
            checkpoint,
            ..*old
        }
    }

    /// Writes a header to the copy whose turn it is; everything written before is stable first.
    pub async fn write_header(&self, header: &SliceHeader) -> Result<(), DeviceError> {
        self.device.flush().await?;
        let offset = self.layout.header_offset((header.sequence % 2) as usize);
        self.device.write(offset, Buffer::from_slice(&header.encode())).await?;
        self.device.flush().await
    }

    fn build(&self, found: &Found, epoch: Epoch) -> Log {
        let ring = Ring::new(
            &self.layout,
            &found.segments,
            found.tail_segment,
            found.head_segment,
            found.head,
        );
        let identity = Identity { cache: self.cache, slice: self.slice, epoch };
        let layout = self.layout.clone();
        // In the order of the log, so that what lay in one extent does so again.
        let mut entries: Vec<&CheckpointEntry> = found.entries.iter().collect();
        entries.sort_unstable_by_key(|entry| entry.position);
        let mapped = entries.iter().filter(|entry| entry.kind != CheckpointKind::Lost);
        let places = mapped.map(|entry| {
            let (slot, unit) = layout.slot_at(entry.position);
            (slot, unit, entry.block)
        });
        let scattered = scattered_extents(layout.line_blocks(), places);
        let (next, tail, core_blocks) = (found.next, found.tail, self.core_blocks);
        let mut log = Log::new(identity, layout, ring, next, tail, core_blocks, scattered);
        for entry in entries {
            restore(&mut log, entry);
        }
        log.lost_at_start = log.lost.clone();
        log
    }

    fn name(&self) -> headpond_block::DeviceName {
        self.device.name().clone()
    }
}

fn from_clean(old: &SliceHeader, checkpoint: Checkpoint) -> Found {
    Found {
        entries: checkpoint.entries,
        segments: checkpoint.segments,
        tail: old.tail,
        tail_segment: old.tail_segment,
        head: old.head,
        head_segment: old.head_segment,
        next: old.next_record,
    }
}

/// Maps one block of a checkpoint.
fn restore(log: &mut Log, entry: &CheckpointEntry) {
    let block = entry.block;
    let (state, marks) = match entry.kind {
        CheckpointKind::Lost => {
            log.lost.insert(block);
            return;
        }
        CheckpointKind::Clean => (State::Clean, Marks::NONE),
        CheckpointKind::Dirty => (State::Dirty, Marks::INDEXED),
        CheckpointKind::DirtyReplayed => (State::Dirty, Marks::INDEXED | Marks::REPLAYED),
    };
    let (slot, unit) = log.layout.slot_at(entry.position);
    let (target, checksum) = (state, entry.checksum);
    log.map.insert(Version { slot, block, state, target, unit, checksum, marks });
    if state == State::Dirty {
        log.index(block, marks);
    }
}

/// Makes the first sequences rise from tail to head, where segments that were wholly lost left old
/// ones. Each of those held a record of its own at least, so the numbers in between suffice; a tail
/// behind one of two segments that began alike would not tell which of them it frees.
fn level(segments: &mut [Sequence], tail: SegmentIndex, head: SegmentIndex, lowest: Sequence) {
    let mut known = lowest;
    let mut index = tail.0 as usize;
    loop {
        segments[index] = segments[index].max(known);
        known = segments[index].next();
        if index == head.0 as usize {
            break;
        }
        index = (index + 1) % segments.len();
    }
}

fn joined(runs: &[BlockRun]) -> Vec<BlockRun> {
    let blocks: BTreeSet<CoreBlock> = runs.iter().flat_map(|run| run.blocks()).collect();
    let mut joined: Vec<BlockRun> = Vec::new();
    for block in blocks {
        match joined.last_mut() {
            Some(run) if run.end() == block => run.count += 1,
            _ => joined.push(BlockRun { first: block, count: 1 }),
        }
    }
    joined
}
