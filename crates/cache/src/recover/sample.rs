//! Samples the core, to detect changes behind the cache.
//!
//! A program that writes to a member while the volume is stopped, or a restored older image,
//! changes neither generation nor labels. So a start after a clean shutdown reads a few clean
//! blocks that clients wrote from the core, spread over the log, and compares them with their
//! checksums in the cache. A change of 1 % of the core is found by every second start; one of 5 %
//! by all but one in twenty-six.
//!
//! A single differing block may be bit rot, which a scrub of the array finds; two of so few are
//! not. After an unclean shutdown clean blocks are unknown, and nothing is compared.

use super::Source;
use crate::checksum::crc32c_of_block;
use crate::line_map::{Marks, State, Version};
use crate::log::Log;
use crate::stats::Sampled;
use crate::types::SlotIndex;
use headpond_block::sync::join_all;
use headpond_block::{BLOCK_BYTES, BlockDevice, Buffer, Buffers, LocalFuture, Request, Stability};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// Blocks of a cache that are compared, over all of its slices.
const SAMPLES: u32 = 64;
/// Places that are looked at for a clean block near one that is drawn: a cache that is full of
/// dirty data costs no walk through its map.
const LOOKED_AT_MAX: u32 = 4096;
/// Reads of the core at a time.
const READS: usize = 16;
/// A drive that hangs does not hold up the open for what would only be good to know.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many blocks are compared of each slice.
pub(crate) fn samples_of(slices: usize) -> u32 {
    (SAMPLES / slices.max(1) as u32).max(1)
}

impl Source<'_> {
    /// Compares some of what is clean, and came from clients, with the core. What the core cannot
    /// read, or not soon, says nothing.
    pub(super) async fn sample(&self, log: &Log) -> Sampled {
        if self.device.geometry().stability == Stability::LostOnPower {
            // Another life of it had no checksums, perhaps.
            return Sampled::default();
        }
        let drawn = self.draw(log);
        let sampled = Rc::new(RefCell::new(Sampled::default()));
        let comparing = compare(Rc::clone(&self.core), drawn, Rc::clone(&sampled));
        let end = self.runtime.now() + PATIENCE;
        // What was found by then counts.
        let _ = self.runtime.deadline(end, comparing).await;
        sampled.take()
    }

    /// Comparable blocks out of all parts of the log in turn, and others in each life; with the
    /// checksums that they should have.
    fn draw(&self, log: &Log) -> Vec<(Version, u32)> {
        let slots = u64::from(self.layout.slots());
        let start = |index: u32| (u64::from(index) * slots / u64::from(self.samples)) as u32;
        // Neighbouring epochs begin far apart.
        let turn = (log.epoch().0 as u32).wrapping_mul(0x9E37_79B9);
        let of_part = |index: u32| {
            let (start, len) = (start(index), start(index + 1) - start(index));
            let places = (0..len.min(LOOKED_AT_MAX)).map(move |at| (turn % len + at) % len);
            let slots = places.map(move |at| SlotIndex(start + at));
            slots.filter(|slot| is_comparable(log, *slot))
        };
        let mut parts: Vec<_> = (0..self.samples).map(of_part).collect();
        let (mut drawn, wanted) = (Vec::new(), self.samples as usize);
        while drawn.len() < wanted && !parts.is_empty() {
            parts.retain_mut(|part| part.next().inspect(|slot| drawn.push(*slot)).is_some());
        }
        drawn.truncate(wanted);
        let known = |slot: SlotIndex| Some((log.map.version(slot), log.checksum(slot)?));
        drawn.into_iter().filter_map(known).collect()
    }
}

/// What was read from the core may read otherwise the next time: blocks that nobody wrote differ
/// from copy to copy, and discarded ones need not be read as zeros.
fn is_comparable(log: &Log, slot: SlotIndex) -> bool {
    let version = log.map.version(slot);
    let is_given = version.marks.contains(Marks::GIVEN) && !version.is_payload_free();
    version.state == State::Clean && is_given
}

async fn compare(
    core: Rc<dyn BlockDevice>,
    drawn: Vec<(Version, u32)>,
    sampled: Rc<RefCell<Sampled>>,
) {
    for drawn in drawn.chunks(READS) {
        let compared = drawn.iter().map(|(version, checksum)| -> LocalFuture<'_, ()> {
            Box::pin(async {
                let data = Buffers::from(Buffer::zeroed(BLOCK_BYTES as usize));
                let read = Request::read(version.block.range(1).start(), data.clone());
                if core.submit(read).await.is_err() || data.is_payload_free() {
                    return;
                }
                let mut sampled = sampled.borrow_mut();
                sampled.compared += 1;
                if crc32c_of_block(&data) != *checksum {
                    sampled.differing.push(version.block);
                    sampled.differing.sort_unstable();
                }
            })
        });
        join_all(compared.collect()).await;
    }
}
