//! Finds waiting requests by the bytes that they touch.
//!
//! Addresses are divided into regions; a request is indexed in each that it touches, so that an
//! event checks only the few requests of its own regions. Nearly all requests and events touch one.
//!
//! **Invariants**: a request is in the index once for each of its regions, or once among the long
//! ones, from `insert` to `remove`; there are no empty regions.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use smallvec::SmallVec;

/// Bytes of a region, as a power of two: a few requests wait in each at a time.
const REGION_SHIFT: u32 = 17;

/// A request that touches more is kept apart.
const REGIONS_MAX: u64 = 32;

/// The regions of 2^64 bytes, and the device, fit into one number.
const DEVICE_SHIFT: u32 = u64::BITS - REGION_SHIFT;

const _: () = assert!(DEVICE_SHIFT + u16::BITS <= u64::BITS);

/// Numbers of requests by the bytes that they touch.
#[derive(Default)]
pub(crate) struct WaitingIndex {
    regions: HashMap<u64, SmallVec<[u64; 4]>, FixedState>,
    long: Vec<u64>,
}

/// The bytes from `start` to `end` of one device; empty ones touch the region of their start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touched {
    pub device: u16,
    pub start: u64,
    pub end: u64,
}

impl WaitingIndex {
    pub(crate) fn insert(&mut self, id: u64, touched: Touched) {
        let (first, count) = touched.regions();
        if count > REGIONS_MAX {
            return self.long.push(id);
        }
        for region in first..first + count {
            self.regions.entry(region).or_default().push(id);
        }
    }

    /// # Panics
    /// Where the request is not in the index.
    pub(crate) fn remove(&mut self, id: u64, touched: Touched) {
        const KNOWN: &str = "a waiting request is in the index";
        let (first, count) = touched.regions();
        if count > REGIONS_MAX {
            let at = self.long.iter().position(|&long| long == id).expect(KNOWN);
            self.long.swap_remove(at);
            return;
        }
        for region in first..first + count {
            let ids = self.regions.get_mut(&region).expect(KNOWN);
            let at = ids.iter().position(|&known| known == id).expect(KNOWN);
            ids.swap_remove(at);
            if ids.is_empty() {
                self.regions.remove(&region);
            }
        }
    }

    /// Adds to `found` the numbers of all requests that may touch these bytes, some perhaps more
    /// than once.
    pub(crate) fn find(&self, touched: Touched, found: &mut Vec<u64>) {
        found.extend_from_slice(&self.long);
        let (first, count) = touched.regions();
        if count > self.regions.len() as u64 {
            return self.regions.values().for_each(|ids| found.extend_from_slice(ids));
        }
        for region in first..first + count {
            if let Some(ids) = self.regions.get(&region) {
                found.extend_from_slice(ids);
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.regions.is_empty() && self.long.is_empty()
    }
}

impl Touched {
    /// The first region, and how many there are.
    fn regions(self) -> (u64, u64) {
        let first = self.start >> REGION_SHIFT;
        let last = self.end.saturating_sub(1).max(self.start) >> REGION_SHIFT;
        (first | u64::from(self.device) << DEVICE_SHIFT, last - first + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_touched() -> impl Strategy<Value = Touched> {
        let place = prop_oneof![0u64..1 << 19, (u64::MAX - (1 << 19))..u64::MAX];
        let length = prop_oneof![0u64..8192, 0u64..1 << 24];
        (0u16..2, place, length).prop_map(|(device, start, length)| {
            let end = start.saturating_add(length);
            Touched { device, start, end }
        })
    }

    fn overlap(one: Touched, other: Touched) -> bool {
        one.device == other.device && one.start < other.end && other.start < one.end
    }

    proptest! {
        #[test]
        fn all_that_overlap_are_found_and_what_was_removed_is_not(
            requests in proptest::collection::vec((any_touched(), any::<bool>()), 0..60),
            asked in any_touched(),
        ) {
            let mut index = WaitingIndex::default();
            for (id, (touched, _)) in (0u64..).zip(&requests) {
                index.insert(id, *touched);
            }
            for (id, (touched, _)) in (0u64..).zip(&requests).filter(|(_, (_, is_done))| *is_done) {
                index.remove(id, *touched);
            }
            let mut found = Vec::new();
            index.find(asked, &mut found);
            for (id, (touched, is_done)) in (0u64..).zip(&requests) {
                prop_assert!(!(*is_done && found.contains(&id)));
                prop_assert!(*is_done || !overlap(*touched, asked) || found.contains(&id));
            }
            for (id, (touched, _)) in (0u64..).zip(&requests).filter(|(_, (_, is_done))| !is_done) {
                index.remove(id, *touched);
            }
            prop_assert!(index.is_empty());
        }
    }
}
