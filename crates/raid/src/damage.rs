//! Unreadable blocks of a stripe, and their consequences.
//!
//! A stripe tolerates as many unknown strips as its redundancy, for each of its blocks separately:
//! two strips that are unreadable at different offsets are both reconstructed. Where more are
//! unknown, none of their data can be known, for the redundancy is an optimal code: as many
//! equations as strips that it replaces, and any of them are needed.
//!
//! **Not here**: reading, and the location of the stripe (`array::damage`).

use std::collections::BTreeSet;

use smallvec::SmallVec;

use crate::plan::Span;

/// Strips of a stripe, by their index among all that were inspected.
pub type Places = SmallVec<[usize; 4]>;

/// Neighbouring blocks in which the same strips cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// In bytes from the start of each strip.
    pub span: Span,
    /// The unreadable ones there; never empty.
    pub unreadable: Places,
}

/// Sorts unreadable blocks, as each strip has them by number, into runs, ascending.
pub fn runs(unreadable: &[BTreeSet<u32>], block_bytes: u32) -> Vec<Run> {
    let blocks: BTreeSet<u32> = unreadable.iter().flatten().copied().collect();
    let mut runs: Vec<Run> = Vec::new();
    for block in blocks {
        let of_block = |it: &usize| unreadable[*it].contains(&block);
        let places: Places = (0..unreadable.len()).filter(of_block).collect();
        let start = block * block_bytes;
        match runs.last_mut() {
            Some(run) if run.span.end == start && run.unreadable == places => {
                run.span.end += block_bytes;
            }
            _ => runs.push(Run { span: start..start + block_bytes, unreadable: places }),
        }
    }
    runs
}

impl Run {
    /// By how many the unknown strips here exceed the redundancy, besides `absent` missing ones.
    pub fn excess(&self, absent: usize, redundancy: usize) -> usize {
        (absent + self.unreadable.len()).saturating_sub(redundancy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(span: Span, unreadable: &[usize]) -> Run {
        Run { span, unreadable: unreadable.into() }
    }

    #[test]
    fn blocks_are_taken_together_where_the_same_strips_are_unreadable() {
        let unreadable = [BTreeSet::from([2, 3, 9]), BTreeSet::new(), BTreeSet::from([3, 4, 9])];
        let expected = [
            run(1024..1536, &[0]),
            run(1536..2048, &[0, 2]),
            run(2048..2560, &[2]),
            run(4608..5120, &[0, 2]),
        ];
        assert_eq!(runs(&unreadable, 512), expected);
    }

    #[test]
    fn strips_that_nobody_holds_use_the_redundancy_up() {
        let two = run(0..512, &[1, 4]);
        assert_eq!(two.excess(0, 2), 0);
        assert_eq!(two.excess(1, 2), 1);
        assert_eq!(two.excess(0, 1), 1);
    }
}
