//! Where the valid units of one region lie: a count for each superblock, to draw from.
//!
//! **Source**: P. Fenwick, "A new data structure for cumulative frequency tables", 1994.

/// Counts with prefix sums in logarithmic time.
#[derive(Clone, Debug)]
pub(super) struct PrefixSums {
    /// `tree[i]` holds the sum of the counts that end at `i`; index 0 is unused.
    tree: Vec<u32>,
    total: u64,
}

impl PrefixSums {
    pub(super) fn of(counts: impl ExactSizeIterator<Item = u32>) -> Self {
        let mut tree = vec![0; counts.len() + 1];
        let mut total = 0;
        for (index, count) in counts.enumerate() {
            tree[index + 1] = count;
            total += u64::from(count);
        }
        for index in 1..tree.len() {
            let parent = index + (index & index.wrapping_neg());
            if parent < tree.len() {
                tree[parent] += tree[index];
            }
        }
        Self { tree, total }
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn add(&mut self, index: usize, count: u32) {
        self.total += u64::from(count);
        self.update(index, |sum| sum + count);
    }

    pub(super) fn remove(&mut self, index: usize, count: u32) {
        self.total -= u64::from(count);
        self.update(index, |sum| sum - count);
    }

    /// The index whose units include the one numbered `rank`.
    ///
    /// # Panics
    /// Where there are not so many.
    pub(super) fn holder(&self, rank: u64) -> usize {
        assert!(rank < self.total, "a unit that is counted");
        let (mut index, mut left) = (0, rank);
        let mut step = (self.tree.len() - 1).next_power_of_two();
        while step > 0 {
            let next = index + step;
            if next < self.tree.len() && u64::from(self.tree[next]) <= left {
                left -= u64::from(self.tree[next]);
                index = next;
            }
            step /= 2;
        }
        index
    }

    fn update(&mut self, index: usize, change: impl Fn(u32) -> u32) {
        let mut at = index + 1;
        while at < self.tree.len() {
            self.tree[at] = change(self.tree[at]);
            at += at & at.wrapping_neg();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_unit_is_found_at_its_holder(
            counts in prop::collection::vec(0u32..5, 1..40),
            added in 0usize..40,
        ) {
            let mut counts = counts;
            let mut tally = PrefixSums::of(counts.iter().copied());
            let added = added % counts.len();
            tally.add(added, 3);
            counts[added] += 3;
            let holders: Vec<usize> = (0..tally.total()).map(|rank| tally.holder(rank)).collect();
            let naive: Vec<usize> = counts
                .iter()
                .enumerate()
                .flat_map(|(index, count)| std::iter::repeat_n(index, *count as usize))
                .collect();
            prop_assert_eq!(holders, naive);
            tally.remove(added, 3);
            prop_assert_eq!(tally.total() + 3, u64::from(counts.iter().sum::<u32>()));
        }
    }
}
