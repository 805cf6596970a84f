//! Scrub: reads all data on the cache device, and verifies its checksums.
//!
//! Segment by segment, from the oldest, and neighbouring blocks in one read; after an error each
//! block alone. A damaged clean block is invalidated durably, so that reads go to the core. A
//! damaged dirty one is reported, and reads of it fail until it is overwritten. Of a mirrored
//! device each copy is read, and a damaged one is repaired from another.
//!
//! One read is in flight at a time, so requests are hardly delayed. Data written during the scrub
//! is not read.

use crate::copies::{Copied, read_each};
use crate::engine::{CacheError, Engine, TombstoneOutcome};
use crate::line_map::{State, Version};
use crate::log::Log;
use crate::stats::{CacheRead, ScrubProgress};
use crate::types::{BlockRun, CoreBlock, SegmentIndex};
use headpond_block::{BLOCK_BYTES, Buffer, Buffers, ByteRange, DeviceError, Outcome, Request};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::rc::Rc;

/// Blocks of one read.
const ROW_BLOCKS_MAX: usize = 256;

/// What a scrub found.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "CacheScrubReport")]
pub struct ScrubReport {
    /// Blocks that were read and compared.
    pub blocks: u64,
    /// In memory, and without a checksum to compare with.
    pub unchecked_blocks: u64,
    /// Damaged clean blocks, invalidated.
    pub dropped_blocks: u64,
    /// Damaged dirty blocks: lost.
    pub lost: Vec<BlockRun>,
    /// The slice was closed before everything was read.
    pub is_partial: bool,
}

/// Why a scrub ended early.
#[derive(Debug, thiserror::Error)]
pub enum ScrubError {
    #[error("a scrub of this cache is already running")]
    Busy,
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl ScrubReport {
    /// Adds what was found in another slice.
    pub fn add(&mut self, other: Self) {
        self.blocks += other.blocks;
        self.unchecked_blocks += other.unchecked_blocks;
        self.dropped_blocks += other.dropped_blocks;
        self.lost.extend(other.lost);
        self.is_partial |= other.is_partial;
    }

    fn lose(&mut self, block: CoreBlock) {
        match self.lost.last_mut() {
            Some(run) if run.end() == block => run.count += 1,
            _ => self.lost.push(BlockRun { first: block, count: 1 }),
        }
    }
}

impl Engine {
    /// Reads everything that is mapped now.
    ///
    /// # Errors
    /// Where another scrub is running, or a damaged block could not be invalidated.
    pub(crate) async fn scrub(self: &Rc<Self>) -> Result<ScrubReport, ScrubError> {
        if self.scrubbing.get().is_some() {
            return Err(ScrubError::Busy);
        }
        let segments = self.used_segments();
        let total = segments.len() as u32;
        let mut report = ScrubReport::default();
        let mut outcome = Ok(());
        for (done, segment) in segments.into_iter().enumerate() {
            self.scrubbing.set(Some(ScrubProgress { done: done as u32, total }));
            outcome = self.scrub_segment(segment, &mut report).await;
            if outcome.is_err() || report.is_partial {
                break;
            }
        }
        self.scrubbing.set(None);
        outcome?;
        // Nothing is mapped there: they were found to be damaged when the cache was opened.
        self.log.borrow().lost.iter().for_each(|block| report.lose(*block));
        Ok(report)
    }

    fn used_segments(&self) -> Vec<SegmentIndex> {
        let log = self.log.borrow();
        let first = log.ring.tail();
        let next = |segment: &SegmentIndex| Some(log.ring.after(*segment));
        std::iter::successors(Some(first), next).take(log.ring.used() as usize).collect()
    }

    async fn scrub_segment(
        self: &Rc<Self>,
        segment: SegmentIndex,
        report: &mut ScrubReport,
    ) -> Outcome {
        let (rows, has_checksums, first) = {
            let log = self.log.borrow();
            (rows_of(&log, segment), log.has_checksums(segment), log.ring.first_record(segment))
        };
        if !has_checksums {
            report.unchecked_blocks += rows.iter().map(|row| row.len() as u64).sum::<u64>();
            return Ok(());
        }
        for row in rows {
            if self.is_closed.get() {
                report.is_partial = true;
                break;
            }
            let _pin = self.pin(row[0].slot);
            if self.log.borrow().ring.first_record(segment) != first {
                // It has been given to others, who come later in the log.
                break;
            }
            let row: Vec<Version> =
                row.iter().filter_map(|version| self.as_it_is(version)).collect();
            for part in row.chunk_by(|one, next| one.slot.0 + 1 == next.slot.0) {
                self.scrub_row(part, report).await?;
            }
        }
        Ok(())
    }

    /// What is there now of the block, if that is on the device.
    fn as_it_is(&self, version: &Version) -> Option<Version> {
        let now = self.log.borrow().map.version(version.slot);
        let is_there = !matches!(now.state, State::Free | State::Pending);
        (is_there && now.block == version.block).then_some(now)
    }

    /// Compares blocks that are contiguous, in a segment that is pinned.
    async fn scrub_row(self: &Rc<Self>, row: &[Version], report: &mut ScrubReport) -> Outcome {
        let start = self.log.borrow().place_of(row[0]).start();
        let data = Buffers::from(Buffer::zeroed(row.len() * BLOCK_BYTES as usize));
        let read = self.read_cache(CacheRead::Scrub, Request::read(start, data.clone())).await;
        if let Err(error) = &read {
            self.note_cache_error(CacheError::Read(error), None);
        }
        let others = self.read_others(start, row.len()).await;
        for (index, version) in row.iter().enumerate() {
            let (at, offset) = (index * BLOCK_BYTES as usize, start + index as u64 * BLOCK_BYTES);
            let part = at..at + BLOCK_BYTES as usize;
            let block = data.slice(part.clone());
            let is_sound = read.is_ok() && self.check(offset, version, &block).is_ok();
            let is_sound = is_sound && self.agree(&others, part, version);
            report.blocks += 1;
            if is_sound || self.is_sound_alone(offset, version, &block).await {
                self.log.borrow_mut().note_readable(version);
                continue;
            }
            self.condemn(version, report).await?;
        }
        Ok(())
    }

    /// What each copy has of a row, where there are several.
    async fn read_others(&self, start: u64, blocks: usize) -> Vec<Copied> {
        let Some(copies) = self.cache.copies() else { return Vec::new() };
        let each = read_each(copies, ByteRange::at(start, blocks as u64 * BLOCK_BYTES)).await;
        let bytes = (each.len() * blocks) as u64 * BLOCK_BYTES;
        self.log.borrow_mut().counters.count_cache_read(CacheRead::Scrub, bytes);
        each
    }

    /// Whether all copies have a block as it was written.
    fn agree(&self, copies: &[Copied], part: Range<usize>, version: &Version) -> bool {
        copies.iter().all(|copied| {
            let block = copied.data.as_ref().map(|data| Buffers::from(data.slice(part.clone())));
            block.is_some_and(|block| self.compare(version, &block).is_ok())
        })
    }

    async fn is_sound_alone(&self, offset: u64, version: &Version, block: &Buffers) -> bool {
        let read = self.read_cache(CacheRead::Scrub, Request::read(offset, block.clone())).await;
        let is_sound = read.is_ok() && self.check(offset, version, block).is_ok();
        let is_alone = self.cache.copies().is_none();
        (is_sound && is_alone) || self.read_right(CacheRead::Scrub, offset, version, block).await
    }

    async fn condemn(self: &Rc<Self>, version: &Version, report: &mut ScrubReport) -> Outcome {
        let Some(now) = self.as_it_is(version) else { return Ok(()) };
        if now.state != State::Clean {
            report.lose(version.block);
            self.log.borrow_mut().note_unreadable(version);
            return Ok(());
        }
        match self.write_tombstones(&[version.block], false).await {
            TombstoneOutcome::Failed(error) => return Err(error),
            TombstoneOutcome::Done => report.dropped_blocks += 1,
            // Written again meanwhile.
            TombstoneOutcome::Spoiled => {}
        }
        Ok(())
    }
}

/// What lies in the segment and can be compared, as runs that are contiguous.
fn rows_of(log: &Log, segment: SegmentIndex) -> Vec<Vec<Version>> {
    let versions = log.layout.slots_of(segment).map(|slot| log.map.version(slot));
    let is_there = |version: &Version| {
        !matches!(version.state, State::Free | State::Pending) && !version.is_payload_free()
    };
    let mut rows: Vec<Vec<Version>> = Vec::new();
    for version in versions.filter(is_there) {
        match rows.last_mut() {
            Some(row) if row.len() < ROW_BLOCKS_MAX && follows(row, &version) => {
                row.push(version);
            }
            _ => rows.push(vec![version]),
        }
    }
    rows
}

fn follows(row: &[Version], version: &Version) -> bool {
    let last = &row[row.len() - 1];
    last.slot.0 + 1 == version.slot.0 && last.unit == version.unit
}
