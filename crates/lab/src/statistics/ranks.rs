//! Whether two rows of figures differ by more than chance.

use super::median::median;
use serde::{Deserialize, Serialize};

/// What two rows of figures are to each other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The second median, of the first.
    pub ratio: f64,
    /// The probability of a difference like this where there is none.
    pub chance: f64,
    /// The smallest that so few figures can show at all.
    pub least_chance: f64,
}

/// Differences smaller than this interest nobody, however sure they are.
pub(crate) const NEGLIGIBLE: f64 = 0.03;
const SURE: f64 = 0.05;

impl Verdict {
    /// Whether the second is better, in figures of which more is better; nothing where that cannot
    /// be told, or does not matter.
    pub fn winner_is_second(&self) -> Option<bool> {
        let matters = (self.ratio - 1.0).abs() > NEGLIGIBLE;
        (matters && self.chance <= SURE).then_some(self.ratio > 1.0)
    }

    /// Whether more rounds could have told.
    pub fn is_short_of_rounds(&self) -> bool {
        self.least_chance > SURE
    }
}

/// Compares two rows by their ranks, exactly: every way to deal the figures out to both rows is as
/// likely as any other where both are alike.
///
/// Source: Mann and Whitney, On a Test of Whether One of Two Random Variables Is Stochastically
/// Larger than the Other, 1947; ties count half.
pub fn differ(first: &[f64], second: &[f64]) -> Option<Verdict> {
    if first.is_empty() || second.is_empty() || median(first) <= 0.0 {
        return None;
    }
    // Twice the count of pairs in which the second is larger, ties once: whole numbers.
    let pairs = first.iter().flat_map(|a| second.iter().map(move |b| (a, b)));
    let seen: usize = pairs
        .map(|(a, b)| match b.total_cmp(a) {
            std::cmp::Ordering::Greater => 2,
            std::cmp::Ordering::Equal => 1,
            std::cmp::Ordering::Less => 0,
        })
        .sum();
    let most = first.len() * second.len();
    let extreme = seen.max(2 * most - seen);
    let ways = ways(first.len(), second.len());
    let all: f64 = ways.iter().sum();
    let from = extreme.div_ceil(2);
    let tail: f64 = ways[from..].iter().sum();
    let chance = (2.0 * tail / all).min(1.0);
    let least_chance = (2.0 / all).min(1.0);
    Some(Verdict { ratio: median(second) / median(first), chance, least_chance })
}

/// In how many ways each count of pairs comes about.
fn ways(first: usize, second: usize) -> Vec<f64> {
    // counts[above][pairs]: ways to deal out the first row's figures seen so far, among `above` of
    // the second's, with so many pairs in which the second is larger.
    let most = first * second;
    let mut counts = vec![vec![0.0; most + 1]; second + 1];
    counts.iter_mut().for_each(|row| row[0] = 1.0);
    for _ in 0..first {
        let mut below = vec![0.0; most + 1];
        for (above, row) in counts.iter_mut().enumerate() {
            let here = |pairs: usize| pairs.checked_sub(above).map_or(0.0, |before| row[before]);
            below = below.iter().enumerate().map(|(pairs, fewer)| fewer + here(pairs)).collect();
            row.clone_from(&below);
        }
    }
    counts.pop().expect("one row at least")
}

/// Among many cells some differ by chance alone: of those that still count as different after this,
/// no more than one in twenty is expected to be none.
///
/// Source: Benjamini and Hochberg, Controlling the False Discovery Rate, 1995.
pub fn adjust(verdicts: &mut [&mut Verdict]) {
    verdicts.sort_by(|a, b| b.chance.total_cmp(&a.chance));
    let count = verdicts.len();
    let mut ceiling: f64 = 1.0;
    for (index, verdict) in verdicts.iter_mut().enumerate() {
        let rank = count - index;
        ceiling = ceiling.min(verdict.chance * count as f64 / rank as f64);
        verdict.chance = ceiling;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_are_those_of_the_tables() {
        // Five against five without overlap: 2 of 252 ways.
        let (low, high) = ([1.0, 2.0, 3.0, 4.0, 5.0], [6.0, 7.0, 8.0, 9.0, 10.0]);
        let verdict = differ(&low, &high).unwrap();
        assert!((verdict.chance - 2.0 / 252.0).abs() < 1e-12, "{verdict:?}");
        assert_eq!(verdict.winner_is_second(), Some(true));
        let reverse = differ(&high, &low).unwrap();
        assert_eq!(reverse.winner_is_second(), Some(false));
        // U = 9 of 25: tables give p = 0.5476.
        let mixed = differ(&[1.0, 3.0, 5.0, 7.0, 8.0], &[2.0, 4.0, 6.0, 9.0, 10.0]).unwrap();
        assert!((mixed.chance - 0.5476).abs() < 0.0001, "{mixed:?}");
        assert_eq!(mixed.winner_is_second(), None);
    }

    #[test]
    fn rows_that_are_alike_do_not_differ_and_too_few_cannot_show_it() {
        assert_eq!(differ(&[5.0; 5], &[5.0; 5]).unwrap().chance, 1.0);
        let few = differ(&[1.0, 2.0, 3.0], &[10.0, 11.0, 12.0]).unwrap();
        assert!(few.is_short_of_rounds() && few.winner_is_second().is_none(), "{few:?}");
        assert_eq!(differ(&[], &[1.0]), None);
    }

    #[test]
    fn a_sure_but_tiny_difference_is_none() {
        let (a, b) = ([100.0, 100.1, 100.2, 100.3, 100.4], [101.0, 101.1, 101.2, 101.3, 101.4]);
        assert_eq!(differ(&a, &b).unwrap().winner_is_second(), None);
    }

    #[test]
    fn one_cell_in_many_must_be_surer_than_one_alone() {
        let verdict = |chance| Verdict { ratio: 2.0, chance, least_chance: 0.0 };
        let mut all = [verdict(0.04), verdict(0.01), verdict(0.03), verdict(0.9)];
        adjust(&mut all.iter_mut().collect::<Vec<_>>());
        let chances = all.map(|verdict| (verdict.chance * 100.0).round() / 100.0);
        // 0.04 x 4/3, 0.01 x 4, the smaller of 0.03 x 4/2 and the next, 0.9.
        assert_eq!(chances, [0.05, 0.04, 0.05, 0.9]);
    }
}
