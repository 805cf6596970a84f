//! Where each core of a volume lies among the addresses that its cache knows.
//!
//! The first core begins at zero. Each further one begins behind the one before it, with room
//! between them that nobody can address, so that nothing contiguous ever lies on two cores.
//!
//! **Invariants**
//! - A core begins at a multiple of every core's stripe, and of the longest cache line.
//! - What lies where follows from the sizes and the stripes of the cores alone, in their order.

use headpond_block::{BLOCK_BYTES, ByteRange, Geometry};
use headpond_raid::Layout;

/// Cores begin at multiples of at least so many bytes.
const STEP_BYTES_MIN: u64 = 1 << 30;
/// Longest cache line: none lies on two cores.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Largest common multiple of the stripes of all cores.
const UNIT_BYTES_MAX: u64 = 1 << 30;

const _: () = assert!(STEP_BYTES_MIN.is_multiple_of(LINE_BYTES_MAX));

/// The ranges of the cores, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    ranges: Vec<ByteRange>,
    unit_bytes: u64,
}

/// What decides where a core can lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub size_bytes: u64,
    stripe_bytes: u64,
}

/// Cores that no cache can lie in front of together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the stripes of the cores, of {first} and {second} bytes, have no common multiple below 1 GiB: \
     choose another strip, or another number of members"
)]
pub struct StripesDiffer {
    pub first: u64,
    pub second: u64,
}

impl Shape {
    pub fn of(core: &Geometry) -> Self {
        let stripe_bytes = core.stripe.map_or(core.preferred_bytes, |stripe| stripe.width_bytes);
        Self { size_bytes: core.size_bytes, stripe_bytes: stripe_bytes.into() }
    }

    /// Of an array that is still to be made.
    pub fn planned(array: &Layout) -> Self {
        Self { size_bytes: array.array_bytes(), stripe_bytes: array.across_bytes() }
    }
}

impl Places {
    /// # Errors
    /// Where the stripes have nothing in common.
    ///
    /// # Panics
    /// Where there are no cores, or one has a stripe of nothing.
    pub fn of(cores: &[Shape]) -> Result<Self, StripesDiffer> {
        let mut unit_bytes = 1;
        for stripe in cores.iter().map(|core| core.stripe_bytes) {
            let common = least_common_multiple(unit_bytes, stripe);
            let differ = StripesDiffer { first: unit_bytes, second: stripe };
            unit_bytes = common.filter(|common| *common <= UNIT_BYTES_MAX).ok_or(differ)?;
        }
        let aligned = least_common_multiple(unit_bytes, LINE_BYTES_MAX).expect("both are small");
        let step_bytes = STEP_BYTES_MIN.next_multiple_of(aligned);
        let mut ranges: Vec<ByteRange> = Vec::new();
        for core in cores {
            let behind = |last: &ByteRange| (last.end() + BLOCK_BYTES).next_multiple_of(step_bytes);
            let start = ranges.last().map_or(0, behind);
            ranges.push(ByteRange::at(start, core.size_bytes));
        }
        assert!(!ranges.is_empty(), "a volume has a core");
        Ok(Self { ranges, unit_bytes })
    }

    /// A multiple of every core's stripe.
    pub fn unit_bytes(&self) -> u64 {
        self.unit_bytes
    }

    /// As far as addresses go.
    pub fn end(&self) -> u64 {
        self.ranges.last().map_or(0, |last| last.end())
    }

    pub fn count(&self) -> usize {
        self.ranges.len()
    }

    pub fn range_of(&self, core: usize) -> ByteRange {
        self.ranges[core]
    }

    /// The core on which all of `range` lies, where there is one, and where on it.
    pub fn find(&self, range: ByteRange) -> Option<(usize, ByteRange)> {
        let core =
            self.ranges.partition_point(|core| core.start() <= range.start()).checked_sub(1)?;
        let place = self.ranges[core];
        place.contains(range).then(|| (core, on_core(range, place)))
    }

    /// The parts of `range` that lie on cores, and where on them; what lies between cores is left
    /// out.
    pub fn split(&self, range: ByteRange) -> impl Iterator<Item = (usize, ByteRange)> {
        let part = move |(core, place): (usize, &ByteRange)| {
            let shared = place.intersect(range);
            (!shared.is_empty()).then(|| (core, on_core(shared, *place)))
        };
        self.ranges.iter().enumerate().filter_map(part)
    }
}

fn on_core(range: ByteRange, place: ByteRange) -> ByteRange {
    ByteRange::at(range.start() - place.start(), range.len())
}

fn least_common_multiple(a: u64, b: u64) -> Option<u64> {
    let (mut divisor, mut rest) = (a, b);
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    assert!(divisor > 0, "a stripe has bytes");
    (a / divisor).checked_mul(b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn array(size_bytes: u64, data_members: u64, strip_bytes: u64) -> Shape {
        Shape { size_bytes, stripe_bytes: data_members * strip_bytes }
    }

    prop_compose! {
        fn an_array()(
            blocks in prop_oneof![1u64..1 << 21, Just(1u64 << 18)],
            data_members in 1u64..8,
            shift in 12u32..18,
        ) -> Shape {
            array(blocks * BLOCK_BYTES, data_members, 1 << shift)
        }
    }

    proptest! {
        #[test]
        fn nothing_contiguous_lies_on_two_cores(
            cores in proptest::collection::vec(an_array(), 1..6),
            at in any::<u64>(), len in 1u64..64 << 20,
        ) {
            let Ok(places) = Places::of(&cores) else { return Ok(()) };
            prop_assert_eq!(places.range_of(0).start(), 0);
            for (index, core) in cores.iter().enumerate() {
                let place = places.range_of(index);
                prop_assert_eq!(place.len(), core.size_bytes);
                for other in &cores {
                    prop_assert!(place.start().is_multiple_of(other.stripe_bytes));
                }
                prop_assert!(place.start().is_multiple_of(LINE_BYTES_MAX));
                if index > 0 {
                    prop_assert!(places.range_of(index - 1).end() < place.start());
                }
            }
            // The naive twin looks at each core in turn.
            let range = ByteRange::at(at % places.end(), len);
            let parts: Vec<_> = places.split(range).collect();
            let shared: u64 = (0..cores.len()).map(|core| places.range_of(core).intersect(range).len()).sum();
            prop_assert_eq!(parts.iter().map(|(_, part)| part.len()).sum::<u64>(), shared);
            let whole = (0..cores.len()).find(|core| places.range_of(*core).contains(range));
            prop_assert_eq!(places.find(range).map(|(core, _)| core), whole);
            if let Some((core, local)) = places.find(range) {
                prop_assert_eq!(parts, vec![(core, local)]);
                prop_assert_eq!(local.shifted(places.range_of(core).start()), range);
            }
        }
    }

    #[test]
    fn one_core_lies_where_it_lies_without_others() {
        let core = array(5 << 30, 3, 64 << 10);
        let places = Places::of(&[core]).unwrap();
        assert_eq!((places.range_of(0), places.end()), (ByteRange::at(0, 5 << 30), 5 << 30));
        assert_eq!(places.unit_bytes(), 192 << 10);
    }

    #[test]
    fn stripes_with_nothing_in_common_are_refused() {
        let [seven, eleven, seventeen] = [7, 11, 17].map(|width| array(1 << 30, width, 1 << 20));
        assert!(Places::of(&[seven, eleven]).is_ok());
        let refused = Places::of(&[seven, eleven, seventeen]).unwrap_err();
        assert_eq!(refused, StripesDiffer { first: 77 << 20, second: 17 << 20 });
    }
}
