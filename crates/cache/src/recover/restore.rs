//! Restores the log in memory from a checkpoint and the replayed records.
//!
//! The checkpoint is read twice: first it is compared with its checksum, checked, and counted, to
//! size the map; then its blocks are mapped. It is never in memory as a whole. Replayed blocks are
//! merged in, because both are in the order of the log.
//!
//! **Invariants**
//! - Invalid data from the device is refused, never asserted.

use super::ahead::CheckpointReader;
use super::{LogEnd, Source};
use crate::checksum::Running;
use crate::error::OpenError;
use crate::eviction::{ClassKey, Heat};
use crate::format::FormatError;
use crate::format::checkpoint::{CheckpointKind, CheckpointRun, Decoder};
use crate::format::slice_header::{CheckpointRef, SliceHeader};
use crate::line_map::{Insertion, Marks, Scattering, State};
use crate::log::{FoundOrder, Identity, Log, Superseded};
use crate::replay::{LiveBlock, Replayed};
use crate::ring::Ring;
use crate::types::{BlockRun, CoreBlock, Epoch, Position, Sectors, Sequence, SlotIndex};
use std::collections::BTreeSet;

/// What the checkpoint tells of the order of the flushes.
#[derive(Default)]
struct Told {
    ends: Vec<Position>,
    /// And whether each is known to be kept.
    superseded: Vec<(Superseded, bool)>,
}

/// What goes into the log beside, or in the place of, what the checkpoint says.
#[derive(Default)]
pub(super) struct Contents {
    /// By position.
    lives: Vec<LiveBlock>,
    /// After an unclean stop.
    pub replayed: Option<Replayed>,
    lost: BTreeSet<CoreBlock>,
    /// After a clean one.
    order: Option<FoundOrder>,
    told: Told,
    /// Extents that the pool must have.
    scattered: u32,
    clean: Clean,
}

/// What becomes of blocks that the core has as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum Clean {
    #[default]
    Kept,
    LeftOut,
}

impl Contents {
    pub fn after_clean_stop(order: Option<FoundOrder>, clean: Clean) -> Self {
        Self { order, clean, ..Self::default() }
    }

    pub fn after(mut lives: Vec<LiveBlock>, replayed: Replayed) -> Self {
        lives.sort_unstable_by_key(|live| live.position);
        Self { lives, replayed: Some(replayed), ..Self::default() }
    }

    fn lost(&self) -> &BTreeSet<CoreBlock> {
        self.replayed.as_ref().map_or(&self.lost, |replayed| &replayed.lost)
    }

    /// The order that goes on; not where something that has its place in it is lost.
    fn found_order(self) -> Option<FoundOrder> {
        if !self.lost().is_empty() {
            return None;
        }
        let Told { ends, superseded } = self.told;
        let mut order = match (self.order, self.replayed) {
            (Some(mut order), _) => {
                order.superseded.extend(superseded.into_iter().map(|(one, _)| one));
                order
            }
            (None, replayed) => {
                let mut order = replayed?.order?;
                superseded.into_iter().for_each(|(one, is_known)| order.add_older(one, is_known));
                order.found
            }
        };
        order.ends.extend(ends);
        Some(order)
    }

    /// Whether the order is to go on.
    fn has_order(&self) -> bool {
        let replayed = self.replayed.as_ref().and_then(|replayed| replayed.order.as_ref());
        self.order.is_some() || replayed.is_some()
    }
}

/// Weaves runs of the checkpoint and single blocks into one row in the order of the log.
struct Weave<'a> {
    source: &'a Source<'a>,
    lives: &'a [LiveBlock],
    /// Where the last block ended.
    free: Position,
    clean: Clean,
    scattering: Scattering,
}

/// What is known of blocks beside where they lie.
struct Known {
    class: ClassKey,
    /// That of their line.
    heat: Heat,
    /// What of a block there is, where that is not all.
    sectors: Option<Sectors>,
}

/// Takes blocks of one line that are contiguous.
type PlaceBlocks<'a> = dyn FnMut(&Insertion, &Known) + 'a;

impl Weave<'_> {
    fn add_run(
        &mut self,
        run: &CheckpointRun,
        checksums: &[u32],
        place: &mut PlaceBlocks,
    ) -> Result<(), FormatError> {
        self.add_lives(run.position, place)?;
        self.put(run, checksums, place)
    }

    /// The single blocks in front of a position.
    fn add_lives(&mut self, end: Position, place: &mut PlaceBlocks) -> Result<(), FormatError> {
        while let Some((live, rest)) = self.lives.split_first()
            && live.position < end
        {
            let LiveBlock { block, position, checksum, class, sectors } = *live;
            let kind = sectors.map_or(CheckpointKind::DirtyReplayed, CheckpointKind::Part);
            let heat = Heat::NONE;
            let (first, count, is_given) = (block, 1, false);
            let run = CheckpointRun { first, count, kind, position, class, heat, is_given };
            self.put(&run, &[checksum], place)?;
            self.lives = rest;
        }
        Ok(())
    }

    fn put(
        &mut self,
        run: &CheckpointRun,
        checksums: &[u32],
        place: &mut PlaceBlocks,
    ) -> Result<(), FormatError> {
        let layout = &self.source.layout;
        let each = layout.units_per_block();
        let (last, what) = (self.source.check_bounds(run)?, "checkpoint");
        if run.position < self.free {
            let detail = "blocks overlap in the log, or are out of order";
            return Err(FormatError::Malformed { what, detail });
        }
        self.free = Position(last.0 + each);
        if run.kind == CheckpointKind::Clean && self.clean == Clean::LeftOut {
            return Ok(());
        }
        let (target, marks) = match run.kind {
            CheckpointKind::Clean => (State::Clean, Marks::NONE),
            CheckpointKind::Dirty => (State::Dirty, Marks::INDEXED),
            // No cleaner has had it, and what the core was given of it was not marked as logged.
            CheckpointKind::Part(_) => (State::Dirty, Marks::NONE),
            _ => (State::Dirty, Marks::INDEXED | Marks::REPLAYED),
        };
        let marks = if run.is_given { marks | Marks::GIVEN } else { marks };
        let (class, heat) = match self.source.keeps_classes {
            true => (run.class, run.heat),
            false => (ClassKey::UNKNOWN, Heat::NONE),
        };
        let known = Known { class, heat, sectors: run.kind.sectors() };
        let mut done = 0;
        while done < run.count {
            let first = CoreBlock(run.first.0 + u64::from(done));
            let left = u64::from(run.count - done);
            let count = layout.rest_of_line(first).min(left);
            let position = Position(run.position.0 + u64::from(done) * each);
            let (slot, unit) = layout.slot_at(position);
            let run = BlockRun { first, count };
            self.scattering.add(slot, unit, run);
            let checksums = &checksums[done as usize..][..count as usize];
            place(&Insertion { run, slot, unit, target, marks, checksums }, &known);
            done += count as u32;
        }
        Ok(())
    }
}

impl Source<'_> {
    /// Checks the checkpoint, judges its blocks by what was replayed, and counts what the map must
    /// have room for; answers its table.
    pub(super) async fn count(
        &self,
        old: &SliceHeader,
        contents: &mut Contents,
    ) -> Result<Vec<Sequence>, OpenError> {
        let (table, extents) = self.pass(old, contents, &mut |_, _| {}).await?;
        contents.scattered = extents;
        Ok(table)
    }

    /// Maps everything in an empty log.
    pub(super) async fn restore(
        &self,
        old: &SliceHeader,
        mut contents: Contents,
        mut log: Log,
    ) -> Result<Log, OpenError> {
        let mut room = Scattering::new(self.layout.line_blocks());
        let (most, mut is_astray) = (contents.scattered, false);
        self.pass(old, &mut contents, &mut |insertion, known| {
            room.add(insertion.slot, insertion.unit, insertion.run);
            let last = SlotIndex(insertion.slot.0 + insertion.run.count as u32 - 1);
            is_astray |= !log.is_behind_head(last, insertion.unit);
            // A device that answers otherwise than before is found out by the checksum.
            if room.extents() <= most {
                log.restore(insertion, known);
            }
        })
        .await?;
        assert!(room.extents() <= most, "nothing is left out that was counted");
        if is_astray {
            return Err(self.damaged("a block is in the log's free space".into()));
        }
        log.lost = contents.lost().clone();
        log.lost_at_start = log.lost.clone();
        if let Some(order) = contents.found_order() {
            log.resume_order(&order);
        }
        Ok(log)
    }

    pub(super) fn empty_log(&self, found: &LogEnd, epoch: Epoch, contents: &Contents) -> Log {
        let layout = self.layout.clone();
        let LogEnd { tail_segment, head_segment, head, .. } = *found;
        let ring = Ring::new(&layout, &found.segments, tail_segment, head_segment, head);
        let identity = Identity {
            cache: self.cache,
            slice: self.slice,
            epoch,
            keeps_classes: self.keeps_classes,
            keeps_parts: self.keeps_parts,
            keeps_order: self.keeps_order,
            keeps_given: self.keeps_given,
        };
        let (next, tail, core_blocks) = (found.next, found.tail, self.core_blocks);
        Log::new(identity, layout, ring, next, tail, core_blocks, contents.scattered)
    }

    async fn pass(
        &self,
        old: &SliceHeader,
        contents: &mut Contents,
        place: &mut PlaceBlocks<'_>,
    ) -> Result<(Vec<Sequence>, u32), OpenError> {
        let has_order = contents.has_order();
        let Contents { lives, replayed, lost, told, .. } = contents;
        *told = Told::default();
        let scattering = Scattering::new(self.layout.line_blocks());
        let (free, clean) = (Position(0), contents.clean);
        let mut weave = Weave { source: self, lives, free, clean, scattering };
        let table = self
            .read_checkpoint(old.checkpoint, |table, run, checksums| match replayed {
                _ if matches!(run.kind, CheckpointKind::Ends | CheckpointKind::Kept) => {
                    let tail = replayed.as_ref().map_or(Sequence(0), |replayed| replayed.tail);
                    match has_order {
                        true => self.note_order(told, (table, run, checksums), tail),
                        false => Ok(()),
                    }
                }
                Some(replayed) => {
                    let told = Some(&mut *told).filter(|_| has_order);
                    self.add_surviving(&mut weave, replayed, told, (table, run, checksums), place)
                }
                None if run.kind == CheckpointKind::Lost => {
                    lost.extend((0..run.count).map(|at| CoreBlock(run.first.0 + u64::from(at))));
                    Ok(())
                }
                None => weave.add_run(run, checksums, place),
            })
            .await?;
        let end = weave.add_lives(Position(u64::MAX), place);
        end.map_err(|error| self.damaged(error.to_string()))?;
        Ok((table, weave.scattering.extents()))
    }

    /// What of a run counts still after an unclean stop.
    fn add_surviving(
        &self,
        weave: &mut Weave,
        replayed: &mut Replayed,
        mut told: Option<&mut Told>,
        (table, run, checksums): (&[Sequence], &CheckpointRun, &[u32]),
        place: &mut PlaceBlocks,
    ) -> Result<(), FormatError> {
        let blocks = BlockRun { first: run.first, count: u64::from(run.count) };
        if run.kind == CheckpointKind::Clean {
            return Ok(());
        }
        let has_place = run.kind != CheckpointKind::Lost;
        // The cleaner may have been about to write it, and nothing else notes its parity. Who was
        // resident at the stop before this life says nothing of who was when it was cut.
        let heat = Heat::NONE;
        let kind = run.kind.sectors().map_or(CheckpointKind::DirtyReplayed, CheckpointKind::Part);
        let first = |position| self.first_at(table, position);
        let each = self.layout.units_per_block();
        let end = Position(run.position.0 + u64::from(run.count - 1) * each);
        let is_in_one = self.layout.segment_of(run.position) == self.layout.segment_of(end);
        if has_place && is_in_one && replayed.keeps_all(blocks, first(run.position)) {
            return weave.add_run(&CheckpointRun { kind, heat, ..*run }, checksums, place);
        }
        for (index, block) in blocks.blocks().enumerate() {
            let position = Position(run.position.0 + index as u64 * each);
            if replayed.keeps(block, run.kind, first(position)) {
                let one = CheckpointRun { first: block, count: 1, kind, position, heat, ..*run };
                weave.add_run(&one, &checksums[index..=index], place)?;
            } else if let Some(told) = &mut told
                && matches!(run.kind, CheckpointKind::Dirty | CheckpointKind::DirtyReplayed)
                && first(position) >= replayed.tail
            {
                let checksum = checksums[index];
                let older = Superseded { block, position, checksum, next: None };
                told.superseded.push((older, false));
            }
        }
        Ok(())
    }

    /// First record of the segment of a place.
    fn first_at(&self, table: &[Sequence], position: Position) -> Sequence {
        match self.layout.contains(position) {
            true => table[self.layout.segment_of(position).0 as usize],
            false => Sequence(0),
        }
    }

    /// What a run tells of the order of the flushes, but for what lies before the tail.
    fn note_order(
        &self,
        told: &mut Told,
        (table, run, checksums): (&[Sequence], &CheckpointRun, &[u32]),
        tail: Sequence,
    ) -> Result<(), FormatError> {
        if run.kind == CheckpointKind::Ends {
            told.ends.extend(checksums.iter().map(|place| Position(u64::from(*place))));
            return Ok(());
        }
        self.check_bounds(run)?;
        for (index, &checksum) in (0..).zip(checksums) {
            let position = Position(run.position.0 + index * self.layout.units_per_block());
            if self.first_at(table, position) >= tail {
                let block = CoreBlock(run.first.0 + index);
                told.superseded.push((Superseded { block, position, checksum, next: None }, true));
            }
        }
        Ok(())
    }

    /// Where the last block of a run lies.
    fn check_bounds(&self, run: &CheckpointRun) -> Result<Position, FormatError> {
        let each = self.layout.units_per_block();
        let last = Position(run.position.0 + u64::from(run.count - 1) * each);
        let end = run.first.0 + u64::from(run.count);
        match self.layout.contains(Position(last.0 + each - 1)) && end <= self.core_blocks {
            true => Ok(last),
            false => {
                let detail = "a run is outside the core or the log";
                Err(FormatError::Malformed { what: "checkpoint", detail })
            }
        }
    }

    async fn read_checkpoint(
        &self,
        checkpoint: CheckpointRef,
        mut visit: impl FnMut(&[Sequence], &CheckpointRun, &[u32]) -> Result<(), FormatError>,
    ) -> Result<Vec<Sequence>, OpenError> {
        let CheckpointRef { area, bytes: len, checksum: expected, .. } = checkpoint;
        let place = self.layout.checkpoint(area);
        if len > place.len() {
            return Err(self.damaged(format!("{len} bytes in an area of {}", place.len())));
        }
        let mut reader = CheckpointReader::new(&*self.device, place.start(), len);
        let mut decoder = Decoder::new(self.layout.segments() as usize);
        let mut checksum = Running::new();
        while let Some(piece) = reader.next().await? {
            self.has_read_checkpoint(piece.len() as u64);
            // SAFETY: the read into it has been answered, and the next one begins with the next
            // call of the reader.
            let bytes = unsafe { piece.as_slice() };
            checksum.add(bytes);
            let fed = decoder.feed(bytes, &mut visit);
            fed.map_err(|error| self.damaged(error.to_string()))?;
        }
        let found = checksum.value();
        if found != expected {
            let detail = format!("checksum {found:#010x}, expected {expected:#010x}");
            return Err(self.damaged(detail));
        }
        decoder.finish().map_err(|error| self.damaged(error.to_string()))
    }

    fn damaged(&self, detail: String) -> OpenError {
        OpenError::Checkpoint { device: self.name(), slice: self.slice, detail }
    }
}

impl Log {
    /// Maps blocks of one line that another life left, of the class that they had, and with the
    /// mark that their line had.
    fn restore(&mut self, insertion: &Insertion, known: &Known) {
        self.map.restore(insertion);
        let Insertion { slot, run, .. } = *insertion;
        if known.class != ClassKey::UNKNOWN {
            self.map.remember_class(slot, run.count as u32, known.class);
        }
        if known.heat.is_resident() {
            self.remember_resident(slot, known.heat);
        }
        if let Some(sectors) = known.sectors {
            return self.restore_part(run.first, slot, sectors);
        }
        if insertion.marks.contains(Marks::REPLAYED) {
            self.replayed.push_run(insertion.run);
        } else if insertion.target == State::Dirty {
            self.dirty.push_run(insertion.run);
        }
    }
}
