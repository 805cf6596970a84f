//! Writes to one stripe, merged.
//!
//! **Invariants**: extents ascend by strip and offset, do not overlap, and do not touch: adjacent
//! ranges of a strip are one extent.

use headpond_block::Buffers;
use smallvec::SmallVec;

use crate::plan::Extent;

/// Extents of one stripe, and the memory of each.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    parts: SmallVec<[(Extent, Buffers); 8]>,
}

impl Batch {
    /// Whether something of `extent` is in the batch.
    pub fn overlaps(&self, extent: &Extent) -> bool {
        let next = self.place_of(extent);
        let is_hit = |at: usize| {
            self.parts.get(at).is_some_and(|(other, _)| {
                other.strip == extent.strip
                    && other.span.start < extent.span.end
                    && extent.span.start < other.span.end
            })
        };
        is_hit(next) || next.checked_sub(1).is_some_and(is_hit)
    }

    /// Adds a write.
    ///
    /// # Panics
    /// Where the memory is not as long as the extent, or it overlaps what is there.
    pub fn add(&mut self, extent: Extent, data: Buffers) {
        assert_eq!(extent.span.len(), data.len_bytes(), "memory for the extent");
        assert!(!self.overlaps(&extent), "parts of a batch do not overlap");
        let mut at = self.place_of(&extent);
        if at > 0 && is_followed(&self.parts[at - 1].0, &extent) {
            at -= 1;
            let (before, memory) = &mut self.parts[at];
            before.span.end = extent.span.end;
            memory.extend(&data);
        } else {
            self.parts.insert(at, (extent, data));
        }
        if at + 1 < self.parts.len() && is_followed(&self.parts[at].0, &self.parts[at + 1].0) {
            let (after, data) = self.parts.remove(at + 1);
            let (before, memory) = &mut self.parts[at];
            before.span.end = after.span.end;
            memory.extend(&data);
        }
    }

    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|(extent, _)| extent.span.len() as u64).sum()
    }

    /// Bytes that are not there between the first byte of the batch and the end of a stripe of so
    /// many strips.
    pub fn missing_bytes(&self, strips: usize, strip_bytes: u32) -> u64 {
        let Some((first, _)) = self.parts.first() else { return 0 };
        let start = u64::from(first.strip) * u64::from(strip_bytes) + u64::from(first.span.start);
        strips as u64 * u64::from(strip_bytes) - start - self.bytes()
    }

    /// The extents, and the memory of each.
    pub fn into_parts(self) -> (SmallVec<[Extent; 8]>, SmallVec<[Buffers; 8]>) {
        self.parts.into_iter().unzip()
    }

    /// Where the first part stands that begins no sooner than `extent`.
    fn place_of(&self, extent: &Extent) -> usize {
        let key = |extent: &Extent| (extent.strip, extent.span.start);
        self.parts.partition_point(|(other, _)| key(other) < key(extent))
    }
}

/// Whether `next` begins where `extent` ends, on the same strip.
fn is_followed(extent: &Extent, next: &Extent) -> bool {
    extent.strip == next.strip && extent.span.end == next.span.start
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_block::Buffer;
    use proptest::prelude::*;

    const STRIPS: usize = 3;
    const STRIP: u32 = 16;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn a_batch_is_its_bytes(
            writes in prop::collection::vec((0..STRIPS as u16, 0..STRIP, 1..6_u32), 1..40),
        ) {
            let (mut batch, mut twin) = (Batch::default(), [[0_u8; STRIP as usize]; STRIPS]);
            for (value, (strip, start, len)) in (1_u8..).zip(writes) {
                let extent = Extent { strip, span: start..STRIP.min(start + len) };
                let place = start as usize..extent.span.end as usize;
                let bytes = &mut twin[usize::from(strip)][place];
                let is_free = bytes.iter().all(|byte| *byte == 0);
                prop_assert_eq!(batch.overlaps(&extent), !is_free);
                if is_free {
                    bytes.fill(value);
                    let data = Buffer::from_slice(&vec![value; bytes.len()]);
                    batch.add(extent, data.into());
                }
            }
            let flat = twin.concat();
            let written = flat.iter().filter(|byte| **byte != 0).count();
            prop_assert_eq!(batch.bytes(), written as u64);
            let first = flat.iter().position(|byte| *byte != 0).unwrap();
            let missing = flat[first..].iter().filter(|byte| **byte == 0).count();
            prop_assert_eq!(batch.missing_bytes(STRIPS, STRIP), missing as u64);
            check_parts(batch, twin)?;
        }
    }

    fn check_parts(
        batch: Batch,
        mut twin: [[u8; STRIP as usize]; STRIPS],
    ) -> Result<(), TestCaseError> {
        let (extents, memory) = batch.into_parts();
        for pair in extents.windows(2) {
            let touches = pair[0].strip == pair[1].strip && pair[0].span.end >= pair[1].span.start;
            prop_assert!(pair[0].strip <= pair[1].strip && !touches, "{:?}", pair);
        }
        for (extent, data) in extents.iter().zip(memory) {
            let place = extent.span.start as usize..extent.span.end as usize;
            let bytes = &mut twin[usize::from(extent.strip)][place];
            prop_assert_eq!(data.to_vec(), bytes.to_vec());
            bytes.fill(0);
        }
        prop_assert!(twin.concat().iter().all(|byte| *byte == 0), "nothing is left out");
        Ok(())
    }
}
