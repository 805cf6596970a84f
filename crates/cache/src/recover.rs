//! Recovery: reads the log of a slice after a clean or unclean shutdown.
//!
//! 1. The newer valid header, or the safe part of it where the other copy is invalid; 2. after an
//!    unclean shutdown every record after its checkpoint, from the segments it names; 3. the
//!    checkpoint, piece by piece; 4. the result is written as a checkpoint and a header of a new
//!    epoch, both stable before the first request is served: decisions about holes and torn blocks
//!    are final.

mod ahead;
mod mirrored;
mod progress;
mod restore;
mod sample;

use crate::checkpoint::{Saved, write_checkpoint, write_header};
use crate::checksum::crc32c;
use crate::copies::read_best;
use crate::error::OpenError;
use crate::format::FormatError;
use crate::format::order_mark::{MARK_BYTES, OrderMark};
use crate::format::record::{self, Record};
use crate::format::slice_header::{HEADER_BYTES, SliceHeader};
use crate::layout::SliceLayout;
use crate::log::{Content, FoundOrder, Log, plan};
use crate::replay::{Replay, Replayed};
use crate::stats::Sampled;
use crate::types::{BlockRun, CoreBlock, Epoch, Position, SegmentIndex, Sequence};
use ahead::LogReader;
use headpond_block::defect;
use headpond_block::{
    BLOCK_BYTES, BlockDevice, Buffer, ByteRange, DeviceError, DeviceName, Request, Runtime,
};
use mirrored::{Judged, Patch, SeenCopies, Views};
pub use progress::LoadProgress;
pub(crate) use progress::Watch;
use restore::{Clean, Contents};
pub(crate) use sample::samples_of;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use uuid::Uuid;

/// What an open found.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Recovery {
    pub was_clean: bool,
    pub records_replayed: u64,
    pub dirty_blocks: u64,
    pub clean_blocks: u64,
    /// Incomplete records and blocks that were never flushed.
    pub never_happened: u64,
    /// Flushed but damaged: reads fail until they are overwritten.
    pub lost_blocks: u64,
    /// Those that an earlier open had not found.
    pub newly_lost_blocks: u64,
    /// The last record of the log that was found.
    pub log_end: Sequence,
    /// Write-throughs in flight at the power failure: their parity is to be recomputed.
    pub parity_suspects: Vec<BlockRun>,
    /// After a clean shutdown: the comparison with the core.
    pub sampled: Sampled,
    /// The core differs, so clean data was left out.
    pub dropped_clean: bool,
}

/// Which slice of which cache.
pub(crate) struct Source<'a> {
    pub runtime: Runtime,
    pub device: Rc<dyn BlockDevice>,
    pub core: Rc<dyn BlockDevice>,
    /// Blocks that are compared with the core.
    pub samples: u32,
    pub layout: SliceLayout,
    pub cache: Uuid,
    pub slice: u16,
    pub core_blocks: u64,
    pub keeps_classes: bool,
    pub keeps_parts: bool,
    pub keeps_order: bool,
    pub keeps_given: bool,
    /// The order of the flushes is to go on where it was.
    pub resumes_order: bool,
    pub checkpoint_every_bytes: u64,
    pub watch: Watch<'a>,
}

/// What was taken of the log beside what replay knows.
#[derive(Default)]
struct Taken {
    /// The records of each segment.
    firsts: Vec<(SegmentIndex, Sequence)>,
    /// What copies lack of them.
    patches: Vec<Patch>,
}

/// How far the core had come in the order of the flushes cannot be told.
struct MarkLost;

/// Where the log of the new epoch goes on.
struct LogEnd {
    segments: Vec<Sequence>,
    tail: Sequence,
    tail_segment: SegmentIndex,
    head: Position,
    head_segment: SegmentIndex,
    next: Sequence,
}

/// A slice in memory, unchanged on the device.
pub(crate) struct Loaded {
    old: SliceHeader,
    log: Log,
    found: LogEnd,
    pub recovery: Recovery,
}

impl Loaded {
    fn new(old: SliceHeader, (log, found): (Log, LogEnd), recovery: Recovery) -> Self {
        let recovery = Recovery {
            dirty_blocks: log.map.counts().dirty,
            clean_blocks: log.map.counts().clean,
            lost_blocks: log.lost.len() as u64,
            log_end: Sequence(found.next.0.saturating_sub(1)),
            ..recovery
        };
        Self { old, log, found, recovery }
    }
}

impl Source<'_> {
    /// Reads the slice, and compares some of it with the core.
    ///
    /// # Errors
    /// Where the slice cannot be read or trusted.
    pub async fn load(&self) -> Result<Loaded, OpenError> {
        let old = self.read_header().await?;
        self.mend_checkpoint(old.checkpoint).await;
        let mut recovery = Recovery { was_clean: old.is_clean, ..Recovery::default() };
        let read = match old.is_clean {
            true => {
                let read = self.load_clean(&old, Clean::Kept).await?;
                recovery.sampled = self.sample(&read.0).await;
                read
            }
            false => self.replay(&old, &mut recovery).await?,
        };
        Ok(Loaded::new(old, read, recovery))
    }

    /// Reads it again, without what is clean in it.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub async fn load_without_clean(&self, loaded: Loaded) -> Result<Loaded, OpenError> {
        let Loaded { old, log, recovery, .. } = loaded;
        drop(log);
        let read = self.load_clean(&old, Clean::LeftOut).await?;
        Ok(Loaded::new(old, read, Recovery { dropped_clean: true, ..recovery }))
    }

    /// Begins a new epoch.
    ///
    /// # Errors
    /// Where the device cannot be written.
    pub async fn begin(&self, loaded: Loaded) -> Result<(Log, SliceHeader, Recovery), OpenError> {
        let Loaded { old, log, found, recovery } = loaded;
        let log = RefCell::new(log);
        let written = match old.is_clean {
            true => Saved { checkpoint: old.checkpoint, order: log.borrow().order_mark() },
            false => self.save(&old, &log).await?,
        };
        let plan = plan(&self.layout, self.checkpoint_every_bytes, written.checkpoint.bytes);
        let header = next_header(&old, &found, written, plan.map_or(0, |(_, reach)| reach));
        if !defect!(ServeBeforeEpochIsDurable) {
            write_header(&*self.device, &self.layout, &header).await?;
        }
        let mut log = log.into_inner();
        log.set_reach(0, plan);
        Ok((log, header, recovery))
    }

    /// The newer valid copy of the slice's header; of one alone, what is safe to believe.
    async fn read_header(&self) -> Result<SliceHeader, OpenError> {
        let mut best: Option<SliceHeader> = None;
        let mut is_alone = false;
        let mut failure = FormatError::Malformed { what: "slice header", detail: "no copy" };
        for copy in 0..2 {
            let range = ByteRange::at(self.layout.header_offset(copy), HEADER_BYTES as u64);
            let is_newer = |one: &SliceHeader, other: &SliceHeader| one.sequence > other.sequence;
            let decode = |it: &[u8]| SliceHeader::decode_at(it, self.cache, self.slice, copy);
            match read_best(&*self.device, range, decode, is_newer).await? {
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

    async fn read_long(&self, offset: u64, buffer: &Buffer) -> Result<(), DeviceError> {
        const PIECE_BYTES: usize = 1 << 20;
        for start in (0..buffer.len()).step_by(PIECE_BYTES) {
            let part = buffer.slice(start..buffer.len().min(start + PIECE_BYTES));
            self.device.submit(Request::read(offset + start as u64, part)).await?;
        }
        Ok(())
    }

    /// After a clean stop: the checkpoint is everything.
    async fn load_clean(
        &self,
        old: &SliceHeader,
        clean: Clean,
    ) -> Result<(Log, LogEnd), OpenError> {
        self.begin_reading(0, old);
        let mut contents = Contents::after_clean_stop(self.order_of(old), clean);
        let segments = self.count(old, &mut contents).await?;
        let found = LogEnd {
            segments,
            tail: old.tail,
            tail_segment: old.tail_segment,
            head: old.head,
            head_segment: old.head_segment,
            next: old.next_record,
        };
        let log = self.empty_log(&found, Epoch(old.epoch.0 + 1), &contents);
        let log = self.restore(old, contents, log).await?;
        Ok((log, found))
    }

    /// After an unclean stop: the checkpoint, and every record that follows it.
    async fn replay(
        &self,
        old: &SliceHeader,
        recovery: &mut Recovery,
    ) -> Result<(Log, LogEnd), OpenError> {
        let noted = match self.resumes_order {
            true => self.read_mark(old.epoch).await,
            false => Err(MarkLost),
        };
        let new = || {
            let replay = Replay::new(old.epoch, old.next_record, old.tail);
            match noted {
                Ok(noted) => replay.in_order(old.order, noted, old.head),
                Err(MarkLost) => replay,
            }
        };
        let mut read = self.take_records(old, new()).await?;
        let contradicted = read.0.contradicted();
        if !contradicted.is_empty() {
            // The first one's memory is not to stand beside the second one's.
            drop(read);
            read = self.take_records(old, new().without(contradicted)).await?;
        }
        let (replay, taken) = read;
        if let Some(later) = replay.later_epoch() {
            let (expected, found) = (later.0, old.epoch.0);
            let (device, slice) = (self.name(), self.slice);
            return Err(OpenError::StaleHeader { device, slice, expected, found });
        }
        let mut replayed = replay.finish();
        recovery.records_replayed = replayed.records;
        recovery.never_happened = replayed.never_happened;
        recovery.parity_suspects = joined(&replayed.parity_suspects);
        if !replayed.unnamed.is_empty() {
            let records = replayed.unnamed.len() as u64;
            return Err(OpenError::LostRecords { device: self.name(), records });
        }
        let lives = std::mem::take(&mut replayed.live);
        let damaged = replayed.lost.clone();
        let mut contents = Contents::after(lives, replayed);
        let table = self.count(old, &mut contents).await?;
        let replayed = contents.replayed.as_ref().expect("after an unclean stop");
        let found = self.found(old, table, replayed, &taken.firsts);
        let log = self.empty_log(&found, Epoch(old.epoch.0 + 1), &contents);
        let log = self.restore(old, contents, log).await?;
        recovery.newly_lost_blocks = damaged.intersection(&log.lost).count() as u64;
        self.apply(taken.patches, found.tail).await;
        Ok((log, found))
    }

    /// Hands every record behind the checkpoint to replay; and the first of each segment.
    async fn take_records(
        &self,
        old: &SliceHeader,
        mut replay: Replay,
    ) -> Result<(Replay, Taken), OpenError> {
        let mut taken = Taken::default();
        let segments = self.layout.segments();
        let reach = self.reach(old).await?;
        self.begin_reading(reach, old);
        let parts = (0..reach).map(|index| {
            let segment = SegmentIndex((old.head_segment.0 + index) % segments);
            // What lies in front of the head, the checkpoint speaks of; unless the log has gone
            // round.
            let from = if index == 0 && reach < segments { old.head } else { Position(0) };
            (segment, from)
        });
        let ranges = parts.clone().map(|(segment, from)| self.part(segment, from).1);
        let mut reader = LogReader::new(self, ranges);
        for (segment, from) in parts {
            let views = reader.next().await?;
            self.scan((segment, from), &views, &mut replay, &mut taken);
            self.has_read_segment();
        }
        Ok((replay, taken))
    }

    /// How many segments from the head on are looked through: as many as the header names, or all
    /// of them where the log has gone on beyond. Then a later header let it, and was lost.
    async fn reach(&self, old: &SliceHeader) -> Result<u32, OpenError> {
        let segments = self.layout.segments();
        if !(1..segments).contains(&old.reach) {
            return Ok(segments);
        }
        let mut beyond = Replay::new(old.epoch, old.next_record, old.tail);
        let segment = SegmentIndex((old.head_segment.0 + old.reach) % segments);
        let (mut taken, from) = (Taken::default(), Position(0));
        let memory = Buffer::zeroed(self.layout.segment_bytes() as usize);
        let views = self.read_views(self.part(segment, from).1, &memory).await?;
        self.scan((segment, from), &views, &mut beyond, &mut taken);
        Ok(if taken.firsts.is_empty() { old.reach } else { segments })
    }

    /// What is read of a segment from a position on: in front of it, in units, and the rest.
    fn part(&self, segment: SegmentIndex, from: Position) -> (u64, ByteRange) {
        let units = from.0.saturating_sub(self.layout.segment_start(segment).0);
        let range = self.layout.segment_range(segment);
        let start = range.start() + units * self.layout.unit_bytes();
        (units, ByteRange::between(start, range.end()))
    }

    /// Hands every record of a part of the log to replay.
    fn scan(
        &self,
        (segment, from): (SegmentIndex, Position),
        views: &Views,
        replay: &mut Replay,
        taken: &mut Taken,
    ) {
        let start = self.layout.segment_start(segment);
        let (skipped, _) = self.part(segment, from);
        let (mut units, seen) = (skipped, views.bytes());
        while units < self.layout.units_per_segment() {
            let at = ((units - skipped) * self.layout.unit_bytes()) as usize;
            let position = Position(start.0 + units);
            units +=
                self.take_record((&seen, at), position, replay, &mut taken.patches, |record| {
                    taken.firsts.push((segment, record.header.sequence));
                });
        }
    }

    /// Replays the record that one of the views has `at` there, if there is one; answers how far to
    /// go on. What is not whole may hide a newer record, so it is looked through.
    fn take_record(
        &self,
        (seen, at): (&SeenCopies<'_>, usize),
        position: Position,
        replay: &mut Replay,
        patches: &mut Vec<Patch>,
        mut note: impl FnMut(&Record),
    ) -> u64 {
        let Some((view, record)) = self.newest((seen, at), position, replay) else { return 1 };
        let units = self.layout.units_for(record.descriptor_bytes as u64);
        let data = at + (units * self.layout.unit_bytes()) as usize;
        let blocks = record.checksums.iter().enumerate();
        let blocks = blocks.map(|(index, &checksum)| {
            let start = data + index * BLOCK_BYTES as usize;
            let place = start..start + BLOCK_BYTES as usize;
            let is_right =
                |bytes: &[u8]| bytes.get(place.clone()).is_some_and(|it| crc32c(it) == checksum);
            let right = seen.views().position(is_right);
            (place, right)
        });
        let blocks: Vec<Judged> = blocks.collect();
        let is_whole: Vec<bool> = blocks.iter().map(|(_, right)| right.is_some()).collect();
        let units_per_block = self.layout.units_per_block();
        let end = units + is_whole.len() as u64 * units_per_block;
        let is_newer_in =
            |view: &[u8]| self.has_newer_in(view, (at, position), end, &record, replay);
        if seen.without(&blocks).any(is_newer_in) {
            return 1;
        }
        let sequence = record.header.sequence;
        seen.note_lacking(sequence, view, at..data, patches);
        for (place, right) in &blocks {
            right.inspect(|right| seen.note_lacking(sequence, *right, place.clone(), patches));
        }
        note(&record);
        replay.add_record(&record, &is_whole, Position(position.0 + units), units_per_block);
        if is_whole.iter().all(|whole| *whole) { end } else { 1 }
    }

    /// The newest record that a view has `at` there. A void one is newer than what it stands for.
    fn newest(
        &self,
        (seen, at): (&SeenCopies<'_>, usize),
        position: Position,
        replay: &mut Replay,
    ) -> Option<(usize, Record)> {
        let age = |record: &Record| (record.header.sequence, record.entries.is_empty());
        let mut newest: Option<(usize, Record)> = None;
        for (view, bytes) in seen.views().enumerate() {
            let decoded = record::decode(&bytes[at..], self.cache, self.slice, position);
            let Ok(record) = decoded else { continue };
            replay.note_epoch(&record);
            let is_newer = newest.as_ref().is_none_or(|(_, newest)| age(newest) < age(&record));
            if self.is_ours(&record, replay) && is_newer {
                newest = Some((view, record));
            }
        }
        newest
    }

    /// Whether a newer record begins where a view ought to have the data of this one: then that is
    /// what an earlier lap of the log has left on the others.
    fn has_newer_in(
        &self,
        view: &[u8],
        (at, position): (usize, Position),
        end: u64,
        record: &Record,
        replay: &Replay,
    ) -> bool {
        (1..end).any(|units| {
            let at = at + (units * self.layout.unit_bytes()) as usize;
            let position = Position(position.0 + units);
            let bytes = view.get(at..).unwrap_or_default();
            let found = record::decode(bytes, self.cache, self.slice, position);
            found.is_ok_and(|found| {
                found.header.sequence > record.header.sequence && self.is_ours(&found, replay)
            })
        })
    }

    fn is_ours(&self, record: &Record, replay: &Replay) -> bool {
        let in_core =
            |entry: &record::Entry| entry.first.0 + u64::from(entry.count) <= self.core_blocks;
        replay.concerns(record) && record.entries.iter().all(in_core)
    }

    /// Puts what replay decided into the order of the ring.
    fn found(
        &self,
        old: &SliceHeader,
        mut segments: Vec<Sequence>,
        replayed: &Replayed,
        firsts: &[(SegmentIndex, Sequence)],
    ) -> LogEnd {
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
        LogEnd { segments, tail: replayed.tail, tail_segment, head, head_segment, next }
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

    /// Writes what was decided as a checkpoint to the other area.
    async fn save(&self, old: &SliceHeader, log: &RefCell<Log>) -> Result<Saved, OpenError> {
        let cut = log.borrow().cut();
        let place = (1 - old.checkpoint.area, Content::Unsafe);
        let written = write_checkpoint(&*self.device, log, &cut, place, None).await?;
        Ok(written.expect("nobody ends it"))
    }

    /// How far the core had come in an epoch, as its own place tells; `Err` where that is damaged.
    async fn read_mark(&self, epoch: Epoch) -> Result<Option<OrderMark>, MarkLost> {
        let (mut newest, mut damaged) = (None::<OrderMark>, 0);
        for copy in 0..2 {
            let range = ByteRange::at(self.layout.order_mark_offset(copy), MARK_BYTES as u64);
            let is_newer = |one: &OrderMark, other: &OrderMark| {
                (one.epoch, one.sequence) > (other.epoch, other.sequence)
            };
            let decode = |bytes: &[u8]| OrderMark::decode(bytes, self.cache, self.slice);
            match read_best(&*self.device, range, decode, is_newer).await {
                Ok(Ok(mark)) if mark.epoch == epoch => {
                    newest = newest.filter(|newest| newest.sequence > mark.sequence).or(Some(mark));
                }
                Ok(Ok(_) | Err(FormatError::Magic { .. } | FormatError::Elsewhere { .. })) => {}
                Ok(Err(_)) | Err(_) => damaged += 1,
            }
        }
        // One alone was being written, or is the older of two.
        if damaged < 2 { Ok(newest) } else { Err(MarkLost) }
    }

    /// The order of the flushes that a clean stop has left.
    fn order_of(&self, old: &SliceHeader) -> Option<FoundOrder> {
        let mark = old.order.filter(|_| self.resumes_order)?;
        Some(FoundOrder { mark, ..FoundOrder::default() })
    }

    fn name(&self) -> DeviceName {
        self.device.name().clone()
    }
}

fn next_header(
    old: &SliceHeader,
    found: &LogEnd,
    Saved { checkpoint, order }: Saved,
    reach: u32,
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
        reach,
        order,
        ..*old
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
