//! Discards and writes of zeros.
//!
//! Neither leaves a trace in the log but tombstones: the core is changed and flushed before a dirty
//! version ends.

use crate::engine::Engine;
use crate::paths::Cut;
use crate::stats::{BypassReason, Way};
use headpond_block::{BLOCK_BYTES, Buffer, Buffers, ByteRange, Outcome, Request, RequestKind};
use std::rc::Rc;

/// Up to this many bytes of zeros are written as data in write-back mode.
const ZEROES_AS_DATA_BYTES_MAX: u64 = 1 << 20;

impl Engine {
    /// Whole blocks are unmapped and discarded; parts of blocks keep what they hold.
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
        // In its order a discard would have to be kept like a version, and it may do nothing.
        if middle.is_empty() || self.keeps_order() {
            return Ok(());
        }
        self.change_core(Request { range: middle, ..request }).await
    }

    /// Zeros count as one write, whatever they are cut into.
    pub(crate) async fn write_zeroes(self: &Rc<Self>, request: Request) -> Outcome {
        let is_small = request.range.len() <= ZEROES_AS_DATA_BYTES_MAX;
        if self.mode().makes_dirt() && (is_small || self.keeps_order()) {
            let data = zeroes_as_data(&request, request.range);
            let begun = self.latencies.begin(None);
            return self.write_slowly(&data, begun, None).await;
        }
        let reason = match self.mode().makes_dirt() {
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
