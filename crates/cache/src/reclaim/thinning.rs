//! Thinning: invalidates clean blocks in place, where the map has hardly any extents left for
//! fragmented lines.
//!
//! The cleaner works in the order of the core, so that all segments become clean together, and
//! late: reclaim, which copies the dirty data of a segment, would free nothing until half of
//! everything is clean. So freshly cleaned blocks are invalidated by tombstones: 1. the core flush
//! that makes blocks clean lists them; 2. records of tombstones invalidate them; 3. the log is
//! flushed; 4. they are dropped, and their extents return to the pool.
//!
//! **Invariants**
//! - A block is dropped when its tombstone is stable: until then it is mapped, so that a write past
//!   the cache invalidates it with a tombstone of its own.

use crate::engine::Engine;
use crate::format::record::ENTRY_BYTES_MAX;
use crate::log::{Log, Refusal, Scattered};
use crate::types::{CoreBlock, Sequence, SlotIndex};
use headpond_block::Outcome;
use headpond_block::sync::Notify;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// Each may need an entry.
const BLOCKS_PER_RECORD: usize = ENTRY_BYTES_MAX / 8;
/// What became clean and is more than that waits for reclaim.
const BLOCKS_MAX: usize = 1 << 14;
/// So many are dropped from the map before others have their turn at the thread.
const BLOCKS_PER_GO: usize = 1 << 11;

/// After a device error.
const BACK_OFF: Duration = Duration::from_millis(200);

/// What has become clean, and lies scattered.
#[derive(Default)]
pub(crate) struct Thinning {
    blocks: RefCell<Vec<Scattered>>,
    is_ending: Cell<bool>,
    wanted: Notify,
}

impl Thinning {
    /// A block has become clean, in a segment that began with record `first`.
    pub fn note_clean(&self, log: &Log, block: CoreBlock, slot: SlotIndex, first: Sequence) {
        let mut blocks = self.blocks.borrow_mut();
        if blocks.len() < BLOCKS_MAX && log.is_thinnable(block, slot) {
            blocks.push(Scattered { block, slot, first });
        }
    }

    /// Has what was noted ended.
    pub fn wake(&self) {
        self.wanted.notify_all();
    }

    /// Whether there will soon be more extents.
    pub fn is_at_work(&self) -> bool {
        self.is_ending.get() || !self.blocks.borrow().is_empty()
    }
}

impl Engine {
    /// The task of thinning.
    pub(crate) async fn run_thinning(self: Rc<Self>) {
        while !self.is_stopping.get() {
            let wake = self.thinning.wanted.wait();
            let blocks = self.thinning.blocks.take();
            if blocks.is_empty() || self.is_mistrusted() {
                wake.await;
                continue;
            }
            self.thinning.is_ending.set(true);
            let outcome = self.thin_out(blocks).await;
            self.thinning.is_ending.set(false);
            if outcome.is_err() {
                self.runtime.sleep(BACK_OFF).await;
            }
            self.pump();
        }
    }

    /// Ends what has become clean, where there are still too few extents.
    async fn thin_out(self: &Rc<Self>, mut blocks: Vec<Scattered>) -> Outcome {
        if !self.log.borrow().is_scattered() {
            return Ok(());
        }
        // The oldest go first, and whoever shares an extent together, as far as that is enough.
        blocks.sort_unstable_by_key(|it| (it.first, it.slot));
        self.log.borrow().truncate_to_wanted(&mut blocks);
        blocks.sort_unstable_by_key(|it| it.block);
        let (mut ended, mut outcome) = (Vec::new(), Ok(()));
        for group in blocks.chunks(BLOCKS_PER_RECORD) {
            let mut group = group.to_vec();
            let formed = self.log.borrow_mut().form_thinning(&mut group);
            let formed = match formed {
                Ok(Some(formed)) => formed,
                Ok(None) => continue,
                Err(refusal) => {
                    // Reclaim makes room, and has these as well.
                    assert_eq!(refusal, Refusal::NoSpace);
                    break;
                }
            };
            outcome = self.cache.submit(formed.request.clone()).await;
            self.settle_record(&formed, &outcome);
            if outcome.is_err() {
                break;
            }
            ended.append(&mut group);
            // Writes may wait for their turn at the device.
            self.pump();
        }
        if ended.is_empty() {
            return outcome;
        }
        self.flush_log().await?;
        for group in ended.chunks(BLOCKS_PER_GO) {
            self.log.borrow_mut().thin(group);
            self.runtime.yield_now().await;
        }
        // What is stable is to be known as promised too: nobody asks for a flush after it.
        self.seal_when_idle();
        outcome
    }

    /// Memory of what waits to be ended.
    pub(crate) fn thinning_bytes(&self) -> u64 {
        (self.thinning.blocks.borrow().capacity() * size_of::<Scattered>()) as u64
    }
}
