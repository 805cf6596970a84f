//! Part of a block: the rest is read, and the whole block is written.

use crate::append::{Verdict, Wanted};
use crate::engine::Engine;
use crate::fill::FillGuard;
use crate::log::{Purpose, id_of};
use crate::paths::write_back::Bypassed;
use crate::types::BlockRun;
use headpond_block::{BLOCK_BYTES, Buffer, Buffers, DeviceError, Outcome, Request};
use std::rc::Rc;
use std::time::Duration;

const ROOM_POLL: Duration = Duration::from_millis(5);

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
            self.wait_for_room_in_order(run).await;
            let lock = self.core_writes.lock(run).await;
            let fill = FillGuard::begin(self, run);
            let whole = self.merged_block(&request).await?;
            let (purpose, is_promise) = (Purpose::WriteBack, request.is_fua());
            let (guard, class) = (Some(fill.fill()), id_of(&request));
            let wanted = Wanted { run, purpose, buffers: whole.into(), is_promise, guard, class };
            match self.append(wanted).await {
                Verdict::Written => {
                    self.note_dirty();
                    return Ok(());
                }
                Verdict::Spoiled => {}
                Verdict::TurnedAway => {
                    drop((fill, lock));
                    self.runtime.sleep(ROOM_POLL).await;
                }
                verdict => {
                    drop((fill, lock));
                    bypassed.set(Some(verdict.reason()));
                    return self.change_core(request).await;
                }
            }
        }
    }

    /// Where room is made in the order of the flushes only, whoever holds a lock must not wait for
    /// it: the cleaner may want the same lock.
    async fn wait_for_room_in_order(self: &Rc<Self>, run: BlockRun) {
        let lacks_room = || {
            let mut log = self.log.borrow_mut();
            // Nobody in the queue may be there to do it.
            log.advance_throttles(self.runtime.now());
            log.is_out_of_space() || log.is_full_for(run)
        };
        while self.keeps_order() && lacks_room() && !self.is_core_failing() {
            self.reclaim_wanted.notify_all();
            self.cleaning_wanted.notify_all();
            self.runtime.sleep(ROOM_POLL).await;
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
        self.read_blocks(request, run, &Buffers::from(&whole)).await?;
        let start = (request.range.start() - run.range().start()) as usize;
        let part = whole.slice(start..start + request.range.len() as usize);
        Buffers::from(part).copy_from_buffers(&request.buffers);
        Ok(whole)
    }
}
