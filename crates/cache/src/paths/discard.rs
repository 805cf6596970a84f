//! Discards and writes of zeros.
//!
//! Zeros are written as data, or to the core, which is flushed before a dirty version is
//! invalidated.
//!
//! A discard may have no effect on the core, and the core's data under a dirty block is older than
//! what the client has read. So dirty blocks are overwritten with zeros as data, which are as
//! stable as any write, keep the order, and stay dirty; clean ones are invalidated by tombstones
//! before the core discards. Later reads return zeros, or the newest data before, never anything
//! older.

use crate::engine::Engine;
use crate::paths::Cut;
use crate::stats::{BypassReason, Way};
use crate::types::BlockRun;
use headpond_block::sync::join_all;
use headpond_block::{
    BLOCK_BYTES, Buffer, Buffers, ByteRange, Outcome, Request, RequestKind, Submission, defect,
};
use std::rc::Rc;

/// Up to this many bytes of zeros are written as data in write-back mode.
const ZEROES_AS_DATA_BYTES_MAX: u64 = 1 << 20;
/// A discard of everything is carried out in so many pieces, each with its share of the line map,
/// or in pieces of so many blocks where those are more.
const DISCARD_PIECES: u64 = 16;
const DISCARD_PIECE_BLOCKS_MIN: u64 = 1 << 20;
/// Dirty runs that are overwritten at a time, and blocks of each.
const ZEROED_AT_A_TIME: usize = 64;
const ZEROED_RUN_BLOCKS: u64 = 64;

impl Engine {
    /// Whole blocks are discarded, at the core as well; parts of blocks keep what they hold.
    pub(crate) async fn discard(self: &Rc<Self>, request: Request) -> Outcome {
        self.log.borrow_mut().counters.discards += 1;
        let (range, begun) = (request.range, self.latencies.begin(None));
        let outcome = self.discard_blocks(request).await;
        if outcome.is_ok() {
            self.latencies.note(Way::Discard, range, begun);
        }
        outcome
    }

    async fn discard_blocks(self: &Rc<Self>, request: Request) -> Outcome {
        let middle = Cut::new(request.range).middle;
        if middle.is_empty() {
            return Ok(());
        }
        let run = BlockRun::touching(middle);
        let most = run.count.div_ceil(DISCARD_PIECES).max(DISCARD_PIECE_BLOCKS_MIN);
        for piece in run.pieces(most) {
            self.overwrite_dirty(&request, piece).await?;
            // In its order a discard would have to be kept like a version, and it may do nothing.
            if !self.keeps_order() {
                self.change_core(Request { range: piece.range(), ..request.clone() }).await?;
            }
        }
        Ok(())
    }

    /// Writes zeros over what the core lacks.
    async fn overwrite_dirty(self: &Rc<Self>, request: &Request, run: BlockRun) -> Outcome {
        if defect!(DiscardDirtyAtCore) {
            return Ok(());
        }
        let runs = self.log.borrow().lacking_in(run, ZEROED_RUN_BLOCKS);
        for some in runs.chunks(ZEROED_AT_A_TIME) {
            let writes = some.iter().map(|run| {
                let (engine, zeroes) = (Rc::clone(self), zeroes_as_data(request, run.range()));
                Submission::pending(async move { engine.write_uncounted(&zeroes, None).await.0 })
            });
            join_all(writes.collect()).await.into_iter().collect::<Outcome>()?;
        }
        Ok(())
    }

    /// Zeros count as one write, whatever they are cut into.
    pub(crate) async fn write_zeroes(self: &Rc<Self>, request: Request) -> Outcome {
        let is_small = request.range.len() <= ZEROES_AS_DATA_BYTES_MAX;
        if self.mode().is_write_back() && (is_small || self.keeps_order()) {
            let data = zeroes_as_data(&request, request.range);
            let begun = self.latencies.begin(None);
            return self.write_slowly(&data, begun, None).await;
        }
        let reason = match self.mode().is_write_back() {
            true => BypassReason::TooLarge,
            false => self.reason_of_mode(),
        };
        let begun = self.latencies.begin(None);
        let outcome = self.write_zeroes_past(&request).await;
        self.count_write_past(&request, reason, &outcome);
        if outcome.is_ok() {
            self.latencies.note(Way::WritePastCache, request.range, begun);
        }
        outcome
    }

    /// Whole blocks past the cache, parts of blocks as data.
    async fn write_zeroes_past(self: &Rc<Self>, request: &Request) -> Outcome {
        let cut = Cut::new(request.range);
        for end in cut.ends() {
            self.write_uncounted(&zeroes_as_data(request, end), None).await.0?;
        }
        match cut.middle.is_empty() {
            true => Ok(()),
            false => self.change_core(Request { range: cut.middle, ..request.clone() }).await,
        }
    }
}

/// One block of zeros stands for as many as are needed.
fn zeroes_as_data(request: &Request, range: ByteRange) -> Request {
    let zeroes = Buffer::zeroed(range.len().min(BLOCK_BYTES) as usize);
    let mut buffers = Buffers::new();
    let mut left = range.len() as usize;
    while left > 0 {
        let count = left.min(zeroes.len());
        buffers.push(zeroes.slice(0..count));
        left -= count;
    }
    Request { kind: RequestKind::Write, range, buffers, ..request.clone() }
}
