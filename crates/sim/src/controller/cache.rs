//! What a controller holds for one drive: extents that do not overlap.

use headpond_block::{Buffer, ByteRange};
use std::collections::BTreeMap;

/// Extents by their start.
#[derive(Debug, Default)]
pub(super) struct Extents {
    by_start: BTreeMap<u64, Buffer>,
    bytes: u64,
}

/// A piece of data and where it belongs.
pub(super) type Piece = (u64, Buffer);

impl Extents {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    /// Puts data in, in the place of what was there.
    pub(super) fn insert(&mut self, start: u64, data: Buffer) {
        self.remove(ByteRange::at(start, data.len() as u64));
        self.bytes += data.len() as u64;
        self.by_start.insert(start, data);
    }

    /// Drops what lies in a range.
    pub(super) fn remove(&mut self, range: ByteRange) {
        for (start, data) in self.touching(range) {
            self.by_start.remove(&start);
            self.bytes -= data.len() as u64;
            let end = start + data.len() as u64;
            let (before, after) = (range.start().saturating_sub(start), end.min(range.end()));
            for (from, to) in [(0, before), (after - start, end - start)] {
                if from < to {
                    self.bytes += to - from;
                    self.by_start.insert(start + from, data.slice(from as usize..to as usize));
                }
            }
        }
    }

    /// The parts of extents that lie in a range.
    pub(super) fn within(&self, range: ByteRange) -> Vec<Piece> {
        let cut = |(start, data): Piece| {
            let from = range.start().max(start);
            let to = range.end().min(start + data.len() as u64);
            (from, data.slice((from - start) as usize..(to - start) as usize))
        };
        self.touching(range).into_iter().map(cut).collect()
    }

    pub(super) fn overlaps(&self, range: ByteRange) -> bool {
        !self.touching(range).is_empty()
    }

    /// Takes out neighbours, up to `bytes_max`, from the first extent at or behind `from` on, and
    /// from the beginning where there is none; nothing that `is_busy`.
    pub(super) fn take_run(
        &mut self,
        from: u64,
        bytes_max: u64,
        is_busy: impl Fn(ByteRange) -> bool,
    ) -> Vec<Piece> {
        let free =
            |(start, data): &(&u64, &Buffer)| !is_busy(ByteRange::at(**start, data.len() as u64));
        let ahead = self.by_start.range(from..).find(free);
        let Some((first, _)) = ahead.or_else(|| self.by_start.range(..from).find(free)) else {
            return Vec::new();
        };
        let (mut next, mut run, mut bytes) = (*first, Vec::new(), 0);
        while let Some(data) = self.by_start.get(&next) {
            let len = data.len() as u64;
            if !run.is_empty() && (bytes + len > bytes_max || is_busy(ByteRange::at(next, len))) {
                break;
            }
            let data = self.by_start.remove(&next).expect("just seen");
            self.bytes -= len;
            run.push((next, data));
            (next, bytes) = (next + len, bytes + len);
        }
        run
    }

    fn touching(&self, range: ByteRange) -> Vec<Piece> {
        let end = |(start, data): &(&u64, &Buffer)| **start + data.len() as u64;
        let before = self.by_start.range(..range.start()).next_back();
        let before = before.filter(|extent| end(extent) > range.start());
        let inside = self.by_start.range(range.start()..range.end());
        before.into_iter().chain(inside).map(|(start, data)| (*start, data.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn extents_hold_what_was_written_last(
            steps in prop::collection::vec((0u64..64, 1u64..16, any::<u8>(), 0u8..5), 1..60),
        ) {
            let mut extents = Extents::default();
            let mut naive: BTreeMap<u64, u8> = BTreeMap::new();
            for (start, len, byte, kind) in steps {
                let range = ByteRange::at(start, len);
                match kind {
                    0 => {
                        extents.remove(range);
                        naive.retain(|at, _| !(range.start()..range.end()).contains(at));
                    }
                    1 => {
                        for (start, data) in extents.take_run(start, len, |_| false) {
                            (start..start + data.len() as u64).for_each(|at| {
                                naive.remove(&at);
                            });
                        }
                    }
                    _ => {
                        extents.insert(start, Buffer::from_slice(&vec![byte; len as usize]));
                        naive.extend((start..start + len).map(|at| (at, byte)));
                    }
                }
                prop_assert_eq!(extents.bytes(), naive.len() as u64);
                let found: BTreeMap<u64, u8> = extents
                    .within(ByteRange::at(0, 100))
                    .into_iter()
                    .flat_map(|(start, data)| (start..).zip(data.to_vec()))
                    .collect();
                prop_assert_eq!(&found, &naive);
            }
        }
    }
}
