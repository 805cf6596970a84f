//! Reads: cached blocks from the cache, the rest from the core, in one span.

use crate::checksum::crc32c_of_block;
use crate::classes::ClassId;
use crate::config::Mode;
use crate::engine::{CacheError, Engine, Pin};
use crate::fill::FillGuard;
use crate::layout::SliceLayout;
use crate::line_map::{State, Version};
use crate::log::{Part, id_of};
use crate::stats::{BypassReason, CacheRead, CoreRead, Way};
use crate::types::{BlockRun, CoreBlock};
use headpond_block::sync::join_all;
use headpond_block::{
    BLOCK_BYTES, Buffer, Buffers, ByteRange, Cause, DeviceError, Outcome, Request, RequestFlags,
    Submission,
};
use smallvec::SmallVec;
use std::rc::Rc;

/// Neighbouring blocks that are contiguous on the cache device too.
pub(super) struct Piece {
    /// Blocks from the start of what is read.
    pub first: u64,
    pub versions: Vec<Version>,
    pub range: ByteRange,
    pub _pin: Pin,
}

/// Where blocks come from that cache and core both have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Nearest {
    Cache,
    Core,
}

/// Blocks of which the cache has none, ascending: mostly all of a request's, or none.
#[derive(Default)]
pub(crate) struct Missing(SmallVec<[BlockRun; 1]>);

impl Missing {
    fn push(&mut self, block: CoreBlock) {
        match self.0.last_mut() {
            Some(run) if run.end() == block => run.count += 1,
            _ => self.0.push(BlockRun { first: block, count: 1 }),
        }
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn without(&self, is_left_out: impl Fn(CoreBlock) -> bool) -> Self {
        let mut rest = Self::default();
        let blocks = self.0.iter().flat_map(|run| run.blocks());
        blocks.filter(|block| !is_left_out(*block)).for_each(|block| rest.push(block));
        rest
    }

    fn count(&self) -> u64 {
        self.0.iter().map(|run| run.count).sum()
    }

    /// From the first to the last one, with what the cache has in between.
    fn span(&self) -> Option<BlockRun> {
        let (first, last) = (self.0.first()?, self.0.last()?);
        Some(BlockRun { first: first.first, count: last.end().0 - first.first.0 })
    }

    /// In runs of at most so many blocks.
    pub(super) fn runs(&self, most: u64) -> impl Iterator<Item = BlockRun> {
        self.0.iter().flat_map(move |run| run.pieces(most))
    }
}

impl From<BlockRun> for Missing {
    fn from(run: BlockRun) -> Self {
        Self(SmallVec::from_buf([run]))
    }
}

/// A block is not what was written: its checksum as it was, and as it is.
pub(crate) struct WrongChecksum {
    expected: u32,
    found: u32,
}

/// Where the blocks of a read come from.
struct Plan {
    pieces: Vec<Piece>,
    missing: Missing,
    /// What the log has of those that are missing, as it was before the core was asked.
    parts: Vec<(CoreBlock, Part)>,
}

impl Engine {
    pub(crate) fn read(self: &Rc<Self>, request: Request) -> Submission<'static> {
        let sampled = self.latencies.sample(&self.latencies.reads);
        if let Some(submission) = self.read_around(&request, sampled) {
            return submission;
        }
        if let Some(submission) = self.read_hit(&request, sampled) {
            return submission;
        }
        if let Some(submission) = self.read_miss(&request, sampled) {
            return submission;
        }
        let (engine, reading) = (Rc::clone(self), self.reading.begin());
        let begun = self.latencies.begin(sampled);
        Submission::pending(async move {
            let _reading = reading;
            let way = engine.read_slowly(&request).await?;
            engine.latencies.note(way, request.range, begun);
            Ok(())
        })
    }

    pub(super) async fn read_slowly(
        self: &Rc<Self>,
        request: &Request,
    ) -> Result<Way, DeviceError> {
        if self.read_from_part(request) {
            return Ok(Way::ReadHit);
        }
        let run = BlockRun::touching(request.range);
        let is_whole = request.range.is_aligned(BLOCK_BYTES);
        let room = (!is_whole).then(|| Buffers::from(room_for(run, request)));
        let target = room.as_ref().unwrap_or(&request.buffers);
        self.ahead.until_arrived(run).await;
        let is_too_large = self.mode().inserts_reads() && self.is_too_large(run);
        let too_large = is_too_large.then_some(BypassReason::TooLarge);
        let refusal = self.refuses(request).or(too_large);
        let fill = (refusal.is_none() && self.may_insert(run)).then(|| FillGuard::begin(self, run));
        let (hits, missing) = match self.read_blocks(request, run, target).await {
            Ok(found) => found,
            Err(error) => {
                self.count_failed_read(request, run, refusal);
                return Err(error);
            }
        };
        let (entering, refusal) = match &fill {
            Some(_) => self.promoted(missing),
            None => (Missing::default(), refusal),
        };
        let way = self.count_slow_read(request, hits, refusal.filter(|_| entering.is_empty()));
        if !is_whole {
            let start = (request.range.start() - run.range().start()) as usize;
            let part = target.slice(start..start + request.range.len() as usize);
            request.buffers.copy_from_buffers(&part);
        }
        if let Some(fill) = fill
            && !entering.is_empty()
            && !self.is_closed.get()
        {
            self.insert((run, target), &entering, fill, id_of(request)).await;
        }
        Ok(way)
    }

    /// Counts a read by what the cache has of it, which could not be had or was not enough.
    pub(super) fn count_failed_read(
        &self,
        request: &Request,
        run: BlockRun,
        refusal: Option<BypassReason>,
    ) {
        let mapped = self.log.borrow().survey(run).mapped;
        self.count_slow_read(request, mapped, refusal);
        self.log.borrow_mut().class_of(request).read.failed += 1;
    }

    pub(super) fn count_slow_read(
        &self,
        request: &Request,
        hits: u64,
        refusal: Option<BypassReason>,
    ) -> Way {
        let blocks = BlockRun::touching(request.range).count;
        let mut log = self.log.borrow_mut();
        let reason = match self.mode() {
            Mode::PassThrough => Some(self.reason_of_mode()),
            _ => refusal,
        };
        match reason.filter(|_| hits == 0) {
            Some(reason) => {
                log.count_pass_through_read(request, reason);
                Way::ReadPastCache
            }
            None => {
                log.count_read(request, hits, blocks);
                if hits < blocks { Way::ReadMiss } else { Way::ReadHit }
            }
        }
    }

    /// Those of the missing blocks that enter the cache, and why the others do not.
    fn promoted(&self, missing: Missing) -> (Missing, Option<BypassReason>) {
        let filling = self.log.borrow().filling();
        let mut admission = self.admission.borrow_mut();
        let mut entering = Missing::default();
        for block in missing.0.iter().flat_map(|run| run.blocks()) {
            if admission.promotes(block, filling) {
                entering.push(block);
            }
        }
        let is_some_refused = entering.count() < missing.count();
        (entering, is_some_refused.then_some(BypassReason::Promotion))
    }

    pub(super) fn may_insert(&self, run: BlockRun) -> bool {
        self.mode().inserts_reads() && !self.core_writes.is_changing(run) && !self.is_too_large(run)
    }

    /// Whether it would take the place of too much else.
    fn is_too_large(&self, run: BlockRun) -> bool {
        run.count > self.log.borrow().dirty_max() / 8
    }

    /// Reads whole blocks into `target` on behalf of a request; answers how many were hits, and
    /// which were not.
    pub(crate) fn read_blocks(
        self: &Rc<Self>,
        request: &Request,
        run: BlockRun,
        target: &Buffers,
    ) -> impl Future<Output = Result<(u64, Missing), DeviceError>> {
        let nearest = match self.mode() {
            Mode::PassThrough => Nearest::Core,
            _ => Nearest::Cache,
        };
        self.read_blocks_by(request, run, target, nearest)
    }

    /// The same, with clean blocks from wherever it is said.
    pub(super) async fn read_blocks_by(
        self: &Rc<Self>,
        request: &Request,
        run: BlockRun,
        target: &Buffers,
        nearest: Nearest,
    ) -> Result<(u64, Missing), DeviceError> {
        let mut plan = self.plan_read(run, id_of(request), nearest)?;
        if plan.parts.iter().any(|(_, part)| part.data.is_none()) {
            Box::pin(self.read_parts()).await;
            plan = self.plan_read(run, id_of(request), nearest)?;
        }
        let Plan { pieces, missing, parts } = plan;
        if let Some(span) = missing.span() {
            // What is known of the request, the core may be a cache that wants to know.
            let read = Request::read(span.range().start(), part_of(target, run, span))
                .with_flags(request.flags & RequestFlags::STREAMING)
                .with_hints(request.hints);
            self.read_core(CoreRead::Request, id_of(request), read).await?;
            for (block, part) in &parts {
                let only = BlockRun { first: *block, count: 1 };
                self.lay_over(part, only, &part_of(target, run, only))?;
            }
        }
        if !pieces.is_empty() {
            let bytes = pieces.iter().map(|piece| piece.range.len()).sum();
            self.log
                .borrow_mut()
                .count_part(id_of(request), run.first, bytes, |it| &mut it.cache_read);
            let reads = pieces.iter().map(|piece| {
                let start = (piece.first * BLOCK_BYTES) as usize;
                let part = target.slice(start..start + piece.range.len() as usize);
                Submission::pending(self.read_piece(piece, part))
            });
            join_all(reads.collect()).await.into_iter().collect::<Outcome>()?;
        }
        let hits = run.count - missing.count();
        // What is there in part is not inserted: it becomes whole by itself.
        let is_part = |block| parts.iter().any(|(part, _)| *part == block);
        Ok((hits, if parts.is_empty() { missing } else { missing.without(is_part) }))
    }

    pub(crate) fn read_core(
        &self,
        purpose: CoreRead,
        class: ClassId,
        request: Request,
    ) -> impl Future<Output = Outcome> {
        self.count_core_read(purpose, class, &request);
        let first = BlockRun::touching(request.range).first;
        let read = self.core.submit(request).now_or();
        let is_foreground = purpose == CoreRead::Request;
        async move {
            let outcome = match read {
                Ok(outcome) => outcome,
                Err(read) if is_foreground => self.watch_core_read(read).await,
                Err(read) => read.await,
            };
            if outcome.is_err() {
                self.log.borrow_mut().count_error(class, first, |errors| &mut errors.core_read);
            }
            outcome
        }
    }

    pub(super) fn count_core_read(&self, purpose: CoreRead, class: ClassId, request: &Request) {
        let (first, bytes) = (BlockRun::touching(request.range).first, request.range.len());
        let mut log = self.log.borrow_mut();
        log.counters.count_core_read(purpose, bytes);
        log.count_part(class, first, bytes, |part| &mut part.core_read);
    }

    fn plan_read(
        self: &Rc<Self>,
        run: BlockRun,
        class: ClassId,
        nearest: Nearest,
    ) -> Result<Plan, DeviceError> {
        let serves_clean = nearest == Nearest::Cache;
        let mut log = self.log.borrow_mut();
        log.loss_in(run, &*self.cache)?;
        let (mut rows, mut missing) = (Vec::<Vec<Version>>::new(), Missing::default());
        let (layout, mut parts) = (&log.layout, Vec::new());
        log.map.each_published(run, |block, version| {
            let part = version.and_then(|version| log.part_of(&version));
            parts.extend(part.map(|part| (block, part.clone())));
            let is_whole = part.is_none();
            let serves = |it: &Version| is_whole && (serves_clean || it.state != State::Clean);
            match version.filter(serves) {
                None => missing.push(block),
                Some(version) => match rows.last_mut() {
                    Some(row) if continues(layout, row, &version) => row.push(version),
                    _ => rows.push(vec![version]),
                },
            }
        });
        log.refer_to_each(rows.iter().flatten(), class);
        drop(log);
        let pieces = rows.into_iter().map(|versions| self.piece_of(run, versions)).collect();
        Ok(Plan { pieces, missing, parts })
    }

    fn piece_of(self: &Rc<Self>, run: BlockRun, versions: Vec<Version>) -> Piece {
        let (start, len) = (versions[0], versions.len() as u64 * BLOCK_BYTES);
        let range = ByteRange::at(self.log.borrow().place_of(start).start(), len);
        Piece { first: start.block.0 - run.first.0, versions, range, _pin: self.pin(start.slot) }
    }

    /// Reads from the cache and checks; what cannot be read there comes from the core, where it has
    /// it.
    async fn read_piece(self: &Rc<Self>, piece: &Piece, to: Buffers) -> Outcome {
        let request = Request::read(piece.range.start(), to.clone());
        let outcome = self.read_cache(CacheRead::Request, request).await;
        self.judge_piece(piece, outcome, to).await
    }

    /// Checks what a read of the cache has brought.
    pub(super) async fn judge_piece(
        self: &Rc<Self>,
        piece: &Piece,
        outcome: Outcome,
        to: Buffers,
    ) -> Outcome {
        let error = outcome.err();
        if let Some(error) = &error {
            self.note_cache_error(CacheError::Read(error), piece.versions.first());
        } else if self.trusts_cache() && !piece.versions.iter().any(Version::is_payload_free) {
            return Ok(());
        }
        for (index, version) in piece.versions.iter().enumerate() {
            let start = index * BLOCK_BYTES as usize;
            let block = to.slice(start..start + BLOCK_BYTES as usize);
            let error = match &error {
                // One bad block must not take its neighbours with it.
                Some(_) => self.read_block_alone(piece, index as u64, version, &block).await.err(),
                None => self.check(piece.range.start() + start as u64, version, &block).err(),
            };
            let offset = piece.range.start() + start as u64;
            let is_right = error.is_none()
                || self.read_right(CacheRead::Request, offset, version, &block).await;
            let Some(error) = error.filter(|_| !is_right) else {
                self.log.borrow_mut().note_readable(version);
                continue;
            };
            if version.state != State::Clean {
                let mut log = self.log.borrow_mut();
                log.count_error_of(version, |errors| &mut errors.dirty_unreadable);
                log.note_unreadable(version);
                return Err(error);
            }
            let only = BlockRun { first: version.block, count: 1 };
            let again = Request::read(only.range().start(), block);
            let class = self.log.borrow().class_of_slot(version.slot);
            self.read_core(CoreRead::Request, class, again).await?;
            self.drop_mapping_beside(version.block);
        }
        Ok(())
    }

    async fn read_block_alone(
        &self,
        piece: &Piece,
        index: u64,
        version: &Version,
        to: &Buffers,
    ) -> Outcome {
        let offset = piece.range.start() + index * BLOCK_BYTES;
        self.read_cache(CacheRead::Request, Request::read(offset, to.clone())).await?;
        self.check(offset, version, to)
    }

    /// Compares a block with its checksum. What was written without payload reads as zeros, like
    /// any copy of such memory, as long as the core lacks it; then the core tells.
    pub(crate) fn check(&self, offset: u64, version: &Version, block: &Buffers) -> Outcome {
        if block.is_payload_free() {
            return Ok(());
        }
        if version.is_payload_free() {
            if version.state == State::Clean {
                let range = ByteRange::at(offset, BLOCK_BYTES);
                return Err(DeviceError::new(self.cache.name(), Cause::Media { range }));
            }
            block.fill(0);
            return Ok(());
        }
        let Err(damage) = self.compare(version, block) else { return Ok(()) };
        self.note_cache_error(CacheError::Checksum, Some(version));
        let (expected, found) = (u64::from(damage.expected), u64::from(damage.found));
        Err(DeviceError::new(self.cache.name(), Cause::Corrupt { offset, expected, found }))
    }

    /// Compares what a read has brought with the checksum of what was written, if there is one.
    ///
    /// # Errors
    /// Both checksums, where they differ.
    pub(crate) fn compare(&self, version: &Version, block: &Buffers) -> Result<(), WrongChecksum> {
        if block.is_payload_free() {
            return Ok(());
        }
        let Some(expected) = self.log.borrow().checksum(version.slot) else { return Ok(()) };
        let found = crc32c_of_block(block);
        let is_sound = found == expected || headpond_block::defect!(SkipChecksum);
        if is_sound { Ok(()) } else { Err(WrongChecksum { expected, found }) }
    }

    /// Ends the mapping of a clean block that cannot be read, without making the reader wait.
    fn drop_mapping_beside(self: &Rc<Self>, block: CoreBlock) {
        let (engine, busy) = (Rc::clone(self), self.busy.begin());
        drop(self.runtime.spawn(async move {
            let _busy = busy;
            engine.write_tombstones(&[block], false).await
        }));
    }
}

/// The memory for some of the blocks of a run.
pub(super) fn part_of(target: &Buffers, whole: BlockRun, part: BlockRun) -> Buffers {
    let start = (part.first.0 - whole.first.0) * BLOCK_BYTES;
    target.slice(start as usize..(start + part.count * BLOCK_BYTES) as usize)
}

/// Whether a version lies behind a row of others, as its block follows theirs.
fn continues(layout: &SliceLayout, row: &[Version], version: &Version) -> bool {
    let last = &row[row.len() - 1];
    version.block.0 == last.block.0 + 1
        && version.slot.0 == last.slot.0 + 1
        && version.unit == last.unit
        && layout.segment_of_slot(version.slot) == layout.segment_of_slot(last.slot)
}

/// Memory for the whole blocks around a read of parts of them.
fn room_for(run: BlockRun, request: &Request) -> Buffer {
    let len = (run.count * BLOCK_BYTES) as usize;
    match request.buffers.is_payload_free() {
        true => Buffer::payload_free(len),
        false => Buffer::zeroed(len),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_blocks_are_runs_and_neighbours_are_one() {
        let mut missing = Missing::default();
        assert_eq!(missing.span(), None);
        [5, 6, 7, 9].into_iter().for_each(|block| missing.push(CoreBlock(block)));
        let run = |first, count| BlockRun { first: CoreBlock(first), count };
        assert_eq!((missing.count(), missing.span()), (4, Some(run(5, 5))));
        assert_eq!(missing.runs(2).collect::<Vec<_>>(), [run(5, 2), run(7, 1), run(9, 1)]);
    }
}
