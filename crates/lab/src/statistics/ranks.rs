//! Whether two rows of figures differ by more than chance.

use super::median::median;
use serde::{Deserialize, Serialize};

/// What two rows of figures are to each other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankComparison {
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

impl RankComparison {
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
pub fn differ(first: &[f64], second: &[f64]) -> Option<RankComparison> {
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
    let (chance, least_chance) = match first.len() + second.len() {
        0..=EXACT_MAX => exactly(first.len(), second.len(), extreme.div_ceil(2)),
        _ => (about(first, second, extreme as f64 / 2.0), 0.0),
    };
    Some(RankComparison { ratio: median(second) / median(first), chance, least_chance })
}

/// Of more figures together than this the chance is that of the bell curve.
const EXACT_MAX: usize = 60;

/// The chance of so many pairs or more, either way, and the smallest that there is.
fn exactly(first: usize, second: usize, from: usize) -> (f64, f64) {
    let ways = ways(first, second);
    let all: f64 = ways.iter().sum();
    let tail: f64 = ways[from..].iter().sum();
    ((2.0 * tail / all).min(1.0), (2.0 / all).min(1.0))
}

/// The same by the bell curve, ties allowed for.
fn about(first: &[f64], second: &[f64], pairs: f64) -> f64 {
    let (n, m) = (first.len() as f64, second.len() as f64);
    let mut all: Vec<_> = first.iter().chain(second).copied().collect();
    all.sort_by(f64::total_cmp);
    let ties = all.chunk_by(|a, b| a == b).map(|run| (run.len() as f64).powi(3) - run.len() as f64);
    let total = n + m;
    let variance = n * m / 12.0 * (total + 1.0 - ties.sum::<f64>() / (total * (total - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let distance = ((pairs - n * m / 2.0).abs() - 0.5).max(0.0) / variance.sqrt();
    two_tails(distance)
}

/// Of a bell curve, what lies farther from its middle than so many deviations.
///
/// Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26; within 1.5e-7.
fn two_tails(deviations: f64) -> f64 {
    let x = deviations / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let terms = [0.254_829_592, -0.284_496_736, 1.421_413_741, -1.453_152_027, 1.061_405_429];
    let sum = terms.iter().rev().fold(0.0, |sum, term| (sum + term) * t);
    (sum * (-x * x).exp()).clamp(0.0, 1.0)
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
pub fn adjust(verdicts: &mut [&mut RankComparison]) {
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
    fn of_many_rounds_the_chance_is_that_of_the_bell_curve() {
        let row = |from: usize| (from..from + 25).map(|n| n as f64).collect::<Vec<_>>();
        // 25 against 25, shifted by some: exact and approximate agree.
        for shift in [0, 4, 8, 12] {
            let (a, b) = (row(0), row(shift).iter().map(|n| n + 0.5).collect::<Vec<_>>());
            let larger = |a: &f64| b.iter().filter(|b| *b > a).count();
            let pairs: usize = a.iter().map(larger).sum();
            let (exact, _) = exactly(25, 25, pairs);
            assert!((exact - about(&a, &b, pairs as f64)).abs() < 0.01, "{shift}: {exact}");
        }
        assert!((two_tails(1.959_964) - 0.05).abs() < 1e-6, "{}", two_tails(1.959_964));
        let (low, high): (Vec<_>, Vec<_>) =
            (0..2000).map(|n| (f64::from(n), f64::from(n + 500))).unzip();
        let many = differ(&low, &high).unwrap();
        assert!(many.chance < 1e-6 && many.winner_is_second() == Some(true), "{many:?}");
    }

    #[test]
    fn a_sure_but_tiny_difference_is_none() {
        let (a, b) = ([100.0, 100.1, 100.2, 100.3, 100.4], [101.0, 101.1, 101.2, 101.3, 101.4]);
        assert_eq!(differ(&a, &b).unwrap().winner_is_second(), None);
    }

    #[test]
    fn one_cell_in_many_must_be_surer_than_one_alone() {
        let verdict = |chance| RankComparison { ratio: 2.0, chance, least_chance: 0.0 };
        let mut all = [verdict(0.04), verdict(0.01), verdict(0.03), verdict(0.9)];
        adjust(&mut all.iter_mut().collect::<Vec<_>>());
        let chances = all.map(|verdict| (verdict.chance * 100.0).round() / 100.0);
        // 0.04 x 4/3, 0.01 x 4, the smaller of 0.03 x 4/2 and the next, 0.9.
        assert_eq!(chances, [0.05, 0.04, 0.05, 0.9]);
    }
}
