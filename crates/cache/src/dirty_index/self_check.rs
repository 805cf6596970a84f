//! Consistency checks of bits, summary and queued blocks of a dirty index.

use super::{DirtyIndex, WORD_BITS};

impl DirtyIndex {
    /// Checks what the sweep goes by; for tests and simulation.
    ///
    /// # Panics
    /// Where it does not agree.
    pub fn self_check(&self) {
        let marked: u32 = self.marked.iter().map(|word| word.count_ones()).sum();
        assert_eq!(u64::from(marked), self.marked_len, "marked regions are counted");
        for (at, word) in self.marked.iter().enumerate() {
            let (summary, bit) = (self.summary[at / WORD_BITS as usize], at as u64 % WORD_BITS);
            assert_eq!(summary >> bit & 1 == 1, *word != 0, "the summary tells of marked regions");
        }
        assert!(self.named.is_sorted_by(|one, next| one > next), "names descend");
        let last = self.named.first().map_or(0, |block| block.0 + 1).max(self.entered.end().0);
        assert!(last <= self.core_blocks, "nothing behind the core is dirty");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{BlockRun, CoreBlock};
    use headpond_testkit::{Break, assert_trips};

    #[test]
    fn check_notices_what_is_wrong_with_an_index() {
        let make = || {
            let mut index = DirtyIndex::new(1 << 20, 1 << 14, 1);
            index.push_run(BlockRun { first: CoreBlock(0), count: 1 << 18 });
            index.enter(|runs, names| names.extend(runs.iter().flat_map(|run| run.blocks())));
            index
        };
        let breaks: [Break<DirtyIndex>; 5] = [
            ("marked regions are counted", |index| index.marked_len -= 1),
            ("marked regions are counted", |index| index.marked[1] &= !1),
            ("the summary tells", |index| index.summary[0] = 0),
            ("names descend", |index| index.named.reverse()),
            ("nothing behind the core", |index| index.core_blocks = 1),
        ];
        assert_trips(make, DirtyIndex::self_check, &breaks);
    }
}
