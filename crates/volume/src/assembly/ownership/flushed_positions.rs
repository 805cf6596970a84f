//! What the log of a cache has promised, as the devices that are not the cache's tell it.
//!
//! A cache device that loses, in spite of a flush, everything from some record on leaves a log that
//! looks whole, and ends too soon. Where it had ended by then the owner record says on every
//! member. Decision 0027.

use super::record::{u64_at, uuid_at};
use headpond_cache::Promise;
use uuid::Uuid;

/// Most slices that a record has room for.
const SLICES_MAX: usize = 64;
const CACHE_AT: usize = 192;
const SLICES_AT: usize = 208;
const BROKEN_AT: usize = 210;
const TABLE_AT: usize = 256;
const ENTRY_BYTES: usize = 16;
const _: () = assert!(TABLE_AT + SLICES_MAX * ENTRY_BYTES <= super::record::RECORD_BYTES);
const _: () = assert!(crate::description::SLICES_MAX as usize <= SLICES_MAX);

/// The promises of a cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlushedPositions {
    /// Which cache; nil where there is none that lasts.
    pub cache: Uuid,
    /// By slice.
    pub slices: Vec<Promise>,
    /// Something of them was found missing, and nobody has accepted that yet.
    pub are_broken: bool,
}

impl FlushedPositions {
    pub(super) fn encode(&self, bytes: &mut [u8]) {
        assert!(self.slices.len() <= SLICES_MAX);
        bytes[CACHE_AT..CACHE_AT + 16].copy_from_slice(self.cache.as_bytes());
        let slices = self.slices.len() as u16;
        bytes[SLICES_AT..SLICES_AT + 2].copy_from_slice(&slices.to_le_bytes());
        bytes[BROKEN_AT] = u8::from(self.are_broken);
        for (entry, promise) in bytes[TABLE_AT..].chunks_exact_mut(ENTRY_BYTES).zip(&self.slices) {
            entry[..8].copy_from_slice(&promise.epoch.0.to_le_bytes());
            entry[8..].copy_from_slice(&promise.record.0.to_le_bytes());
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Self {
        let slices = usize::from(u16::from_le_bytes([bytes[SLICES_AT], bytes[SLICES_AT + 1]]));
        let entries = bytes[TABLE_AT..].chunks_exact(ENTRY_BYTES).take(slices.min(SLICES_MAX));
        let promise = |entry: &[u8]| Promise {
            epoch: headpond_cache::Epoch(u64_at(entry, 0)),
            record: headpond_cache::Sequence(u64_at(entry, 8)),
        };
        Self {
            cache: uuid_at(bytes, CACHE_AT),
            slices: entries.map(promise).collect(),
            are_broken: bytes[BROKEN_AT] != 0,
        }
    }

    /// What several devices say of one cache: the newest of each slice.
    pub fn of(cache: Uuid, told: &[Self]) -> Self {
        let mut all =
            Self { cache, are_broken: told.iter().any(|it| it.are_broken), ..Self::default() };
        for one in told.iter().filter(|one| one.cache == cache) {
            all.slices.resize(all.slices.len().max(one.slices.len()), Promise::default());
            for (newest, promise) in all.slices.iter_mut().zip(&one.slices) {
                *newest = (*newest).max(*promise);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_cache::{Epoch, Sequence};

    fn flushed_positions(slices: &[(u64, u64)]) -> FlushedPositions {
        let promise = |&(epoch, record): &(u64, u64)| Promise {
            epoch: Epoch(epoch),
            record: Sequence(record),
        };
        let slices = slices.iter().map(promise).collect();
        FlushedPositions { cache: Uuid::from_u128(5), slices, are_broken: false }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut bytes = vec![0; super::super::record::RECORD_BYTES];
        let mut written = flushed_positions(&[(1, 7), (2, 9)]);
        written.are_broken = true;
        written.encode(&mut bytes);
        assert_eq!(FlushedPositions::decode(&bytes), written);
    }

    #[test]
    fn of_what_devices_say_of_a_cache_the_later_epoch_counts_and_then_the_later_record() {
        let cache = Uuid::from_u128(5);
        let other = FlushedPositions {
            cache: Uuid::from_u128(6),
            ..flushed_positions(&[(9, 99), (9, 99)])
        };
        let told =
            [flushed_positions(&[(3, 10), (3, 10)]), flushed_positions(&[(2, 99), (3, 11)]), other];
        assert_eq!(FlushedPositions::of(cache, &told), flushed_positions(&[(3, 10), (3, 11)]));
    }
}
