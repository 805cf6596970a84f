//! Partial blocks: written alone, with the rest left to completion; or the rest is read, and the
//! whole block is written.

use crate::append::{AppendOutcome, Wanted};
use crate::engine::Engine;
use crate::fill::FillGuard;
use crate::log::{Purpose, id_of};
use crate::paths::write_back::Bypassed;
use crate::types::{BlockRun, Sectors};
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
            let (purpose, block) = match self.as_part(&request) {
                Some(part) => part,
                None => (Purpose::WriteBack, self.merged_block(&request).await?),
            };
            let (guard, is_promise) = (Some(fill.fill()), request.is_fua());
            let (buffers, class) = (block.into(), id_of(&request));
            let wanted = Wanted { run, purpose, buffers, is_promise, guard, class };
            match self.append(wanted).await {
                AppendOutcome::Written => {
                    self.count_rest_of(&request);
                    self.note_written_part(purpose);
                    return Ok(());
                }
                AppendOutcome::Spoiled => {}
                AppendOutcome::TurnedAway => {
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

    /// What goes into the log where nobody needs the rest of the block: the sectors of a request,
    /// and those of the same block that the log has already. `None` where it has the whole block,
    /// or may not have part of it.
    fn as_part(&self, request: &Request) -> Option<(Purpose, Buffer)> {
        let run = BlockRun::touching(request.range);
        let given = Sectors::bits_of(request.range);
        if given == 0 || self.keeps_order() {
            return None;
        }
        let is_bare = request.buffers.is_payload_free();
        let is_alike = |data: &Buffers| data.is_payload_free() == is_bare;
        let mut log = self.log.borrow_mut();
        let older = match log.map.newest(run.first) {
            Some(version) => {
                let part = log.part_of(&version);
                Some(part.filter(|part| part.data.as_ref().is_some_and(is_alike))?)
            }
            None if log.is_lost_in(run) || !log.has_room_for_part() => return None,
            None => None,
        };
        let block = match is_bare {
            true => Buffer::payload_free(BLOCK_BYTES as usize),
            false => Buffer::zeroed(BLOCK_BYTES as usize),
        };
        let bits = older.map_or(0, |part| {
            part.lay_over(&Buffers::from(&block));
            part.sectors.bits()
        });
        put_in_place(request, &block);
        let purpose = Sectors::new(bits | given).map_or(Purpose::WriteBack, Purpose::Part);
        Some((purpose, block))
    }

    /// A block was written to the log for this part of it.
    pub(super) fn count_rest_of(&self, request: &Request) {
        let counters = &mut self.log.borrow_mut().counters;
        counters.traffic.cache.written_completions += BLOCK_BYTES - request.range.len();
    }

    fn note_written_part(self: &Rc<Self>, purpose: Purpose) {
        if matches!(purpose, Purpose::Part(_)) {
            self.log.borrow_mut().counters.parts_written += 1;
            self.complete_soon();
        } else {
            self.note_dirty();
        }
    }

    /// A read of sectors that the log has of a block in part; `false`, and nothing has happened,
    /// for every other one.
    pub(super) fn read_from_part(&self, request: &Request) -> bool {
        let run = BlockRun::touching(request.range);
        let mut log = self.log.borrow_mut();
        if !log.may_have_parts() || run.count != 1 {
            return false;
        }
        let Some((_, part)) = log.part_at(run.first) else { return false };
        let Some(data) = part.data.as_ref().filter(|_| part.covers(request.range)) else {
            return false;
        };
        let start = (request.range.start() % BLOCK_BYTES) as usize;
        request.buffers.copy_from_buffers(&data.slice(start..start + request.range.len() as usize));
        log.count_read(request, 1, 1);
        true
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
        put_in_place(request, &whole);
        Ok(whole)
    }
}

/// Puts what a request writes where it belongs in its block.
fn put_in_place(request: &Request, block: &Buffer) {
    let start = (request.range.start() % BLOCK_BYTES) as usize;
    let part = block.slice(start..start + request.range.len() as usize);
    Buffers::from(part).copy_from_buffers(&request.buffers);
}
