//! Part of a block: the rest is read, and the whole block is written.

use crate::append::{Verdict, Wanted};
use crate::engine::Engine;
use crate::fill::FillGuard;
use crate::log::Purpose;
use crate::paths::write_back::Bypassed;
use crate::types::BlockRun;
use headpond_block::{BLOCK_BYTES, Buffer, DeviceError, Outcome, Request};
use std::rc::Rc;

impl Engine {
    /// Writes part of one block in write-back mode.
    pub(crate) async fn write_part_of_block(
        self: &Rc<Self>,
        request: Request,
        bypassed: &Bypassed,
    ) -> Outcome {
        let run = BlockRun::touching(request.range);
        assert_eq!(run.count, 1);
        loop {
            let lock = self.core_writes.lock(run).await;
            let fill = FillGuard::begin(self, run);
            let whole = self.merged_block(&request).await?;
            let (purpose, is_promise) = (Purpose::WriteBack, request.is_fua());
            let guard = Some(fill.fill());
            let wanted = Wanted { run, purpose, buffers: whole.into(), is_promise, guard };
            match self.append(wanted).await {
                Verdict::Written => {
                    self.note_dirty();
                    return Ok(());
                }
                Verdict::Spoiled => {}
                verdict => {
                    drop((fill, lock));
                    bypassed.set(Some(verdict.reason()));
                    return self.change_core(request).await;
                }
            }
        }
    }

    /// The block as it will be once `request`, which lies within it, has been carried out. Valid as
    /// long as the fill that was begun before is not spoiled.
    ///
    /// # Errors
    /// Where the rest of the block cannot be read.
    pub(crate) async fn merged_block(
        self: &Rc<Self>,
        request: &Request,
    ) -> Result<Buffer, DeviceError> {
        let run = BlockRun::touching(request.range);
        // Part of a block without payload leaves none in the whole.
        let whole = match request.buffers.is_payload_free() {
            true => Buffer::payload_free(BLOCK_BYTES as usize),
            false => Buffer::zeroed(BLOCK_BYTES as usize),
        };
        if self.log.borrow().survey(run).pending > 0 {
            self.settle().await;
        }
        self.read_blocks(request, run, (&whole).into()).await?;
        let start = (request.range.start() - run.range().start()) as usize;
        let part = whole.slice(start..start + request.range.len() as usize);
        headpond_block::Buffers::from(part).copy_from_buffers(&request.buffers);
        Ok(whole)
    }
}
