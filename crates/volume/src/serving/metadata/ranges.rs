//! A set of byte ranges that is asked often and changed seldom.

use headpond_block::ByteRange;

/// Ranges in order, none of which touches another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges {
    sorted: Vec<ByteRange>,
}

impl Ranges {
    /// Of ranges in any order, which may overlap.
    pub fn of(mut all: Vec<ByteRange>) -> Self {
        all.retain(|range| !range.is_empty());
        all.sort_unstable_by_key(|range| range.start());
        let mut sorted: Vec<ByteRange> = Vec::new();
        for range in all {
            match sorted.last_mut() {
                Some(last) if range.start() <= last.end() => {
                    *last = ByteRange::between(last.start(), last.end().max(range.end()));
                }
                _ => sorted.push(range),
            }
        }
        sorted.shrink_to_fit();
        Self { sorted }
    }

    /// Whether all of `range` is in the set.
    pub fn contains(&self, range: ByteRange) -> bool {
        let after = self.sorted.partition_point(|other| other.start() <= range.start());
        after.checked_sub(1).is_some_and(|at| self.sorted[at].contains(range))
    }

    /// Whether some of `range` is in the set.
    pub fn touches(&self, range: ByteRange) -> bool {
        let at = self.sorted.partition_point(|other| other.end() <= range.start());
        self.sorted.get(at).is_some_and(|other| other.start() < range.end())
    }

    pub fn bytes_within(&self, place: ByteRange) -> u64 {
        self.sorted.iter().map(|range| range.intersect(place).len()).sum()
    }

    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = ByteRange> {
        self.sorted.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_set_agrees_with_a_list_of_bytes(
            ranges in prop::collection::vec((0u64..100, 0u64..20), 0..20),
            start in 0u64..120, len in 1u64..20,
        ) {
            let all: Vec<ByteRange> =
                ranges.iter().map(|(start, len)| ByteRange::at(*start, *len)).collect();
            let is_in = |byte: u64| all.iter().any(|it| it.start() <= byte && byte < it.end());
            let set = Ranges::of(all.clone());
            let asked = ByteRange::at(start, len);
            prop_assert_eq!(set.contains(asked), (start..start + len).all(is_in));
            prop_assert_eq!(set.touches(asked), (start..start + len).any(is_in));
            let whole = ByteRange::at(0, 200);
            prop_assert_eq!(set.bytes_within(whole), (0..200).filter(|at| is_in(*at)).count() as u64);
        }
    }
}
