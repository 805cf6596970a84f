//! Expected contents of the core for verification: checksums of blocks that this cache wrote to it.
//!
//! **Invariants**
//! - Data read from the core, a whole block or the rest of one, is not used: it may have been wrong
//!   then. Nor are blocks from records after a crash, which do not distinguish them.
//! - It waits only for the cache device, because the caller may block the core.

use crate::checksum::crc32c_of_block;
use crate::engine::Engine;
use crate::line_map::{Marks, State, Version};
use crate::stats::CacheRead;
use crate::types::{BlockRun, CoreBlock};
use headpond_block::{BLOCK_BYTES, Buffer, Buffers, Request};
use std::rc::Rc;

impl Engine {
    /// The CRC-32C of each block of a run, as it was written to the core last; `None` where that
    /// was not from here, is not known, or is just being changed.
    pub(crate) async fn core_checksums(self: &Rc<Self>, run: BlockRun) -> Vec<Option<u32>> {
        let mut checksums = Vec::with_capacity(run.count as usize);
        for block in run.blocks() {
            let written = self.written_version(block);
            let known = written.and_then(|it| self.log.borrow().checksum(it.slot));
            checksums.push(match written {
                Some(version) if known.is_none() => self.checksum_of_content(&version).await,
                _ => known,
            });
        }
        checksums
    }

    /// What was written from here to the core, if nothing newer is on its way.
    fn written_version(&self, block: CoreBlock) -> Option<Version> {
        let only = BlockRun { first: block, count: 1 };
        if self.is_mistrusted() || self.core_writes.is_changing(only) {
            return None;
        }
        let newest = self.log.borrow().map.newest(block)?;
        let is_at_core = matches!(newest.state, State::Written | State::Clean);
        let is_known = newest.marks.contains(Marks::GIVEN) && !newest.is_payload_free();
        (is_at_core && is_known).then_some(newest)
    }

    /// Of a version in memory that has none.
    async fn checksum_of_content(self: &Rc<Self>, version: &Version) -> Option<u32> {
        let _pin = self.pin(version.slot);
        let start = self.log.borrow().place_of(*version).start();
        let data = Buffers::from(Buffer::zeroed(BLOCK_BYTES as usize));
        self.read_cache(CacheRead::Scrub, Request::read(start, data.clone())).await.ok()?;
        let is_same = self.written_version(version.block).is_some_and(|now| now == *version);
        (is_same && !data.is_payload_free()).then(|| crc32c_of_block(&data))
    }
}
