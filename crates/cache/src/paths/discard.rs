//! Discards and writes of zeros.
//!
//! Neither leaves a trace in the log but tombstones: the core is changed and flushed before a dirty
//! version ends.

use crate::engine::Engine;
use crate::paths::Cut;
use headpond_block::{BLOCK_BYTES, Buffer, Buffers, Outcome, Request, RequestKind};
use std::rc::Rc;

/// Up to this many bytes of zeros are written as data in write-back mode.
const ZEROES_AS_DATA_BYTES_MAX: u64 = 1 << 20;

impl Engine {
    /// Whole blocks are unmapped and discarded; parts of blocks keep what they hold.
    pub(crate) async fn discard(self: &Rc<Self>, request: Request) -> Outcome {
        self.log.borrow_mut().counters.discards += 1;
        let middle = Cut::new(request.range).middle;
        if middle.is_empty() {
            return Ok(());
        }
        self.change_core(Request { range: middle, ..request }).await
    }

    pub(crate) async fn write_zeroes(self: &Rc<Self>, request: Request) -> Outcome {
        let cut = Cut::new(request.range);
        for end in cut.ends() {
            self.write_zeroes_as_data(&Request { range: end, ..request.clone() }).await?;
        }
        let is_small = cut.middle.len() <= ZEROES_AS_DATA_BYTES_MAX;
        match cut.middle.is_empty() {
            true => Ok(()),
            false if is_small && self.mode().makes_dirt() => {
                self.write_zeroes_as_data(&Request { range: cut.middle, ..request }).await
            }
            false => self.change_core(Request { range: cut.middle, ..request }).await,
        }
    }

    async fn write_zeroes_as_data(self: &Rc<Self>, request: &Request) -> Outcome {
        // One block of zeros stands for as many as are needed.
        let zeroes = Buffer::zeroed(request.range.len().min(BLOCK_BYTES) as usize);
        let mut buffers = Buffers::new();
        let mut left = request.range.len() as usize;
        while left > 0 {
            let count = left.min(zeroes.len());
            buffers.push(zeroes.slice(0..count));
            left -= count;
        }
        let kind = RequestKind::Write;
        self.write(Request { kind, buffers, ..request.clone() }).await
    }
}
