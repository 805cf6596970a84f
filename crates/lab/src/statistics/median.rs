//! The middle of a few figures, and how sure it is.

use serde::{Deserialize, Serialize};

/// The middle of some rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub median: f64,
    pub smallest: f64,
    pub largest: f64,
    /// Where the median of all rounds that could have been measured lies; nothing with fewer than
    /// three rounds.
    pub interval: Option<Interval>,
}

/// From the smallest to the largest of some figures in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    pub from: f64,
    pub to: f64,
    /// The probability that it holds what it is about; with few rounds no 95 % can be had.
    pub confidence: f64,
}

const WANTED: f64 = 0.95;

/// The middle figure, or the mean of the two in the middle; 0 where there is none.
pub fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        count if count.is_multiple_of(2) => sorted[count / 2 - 1].midpoint(sorted[count / 2]),
        count => sorted[count / 2],
    }
}

/// The middle and the spread of some figures.
pub fn spread(figures: &[f64]) -> Spread {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (Some(&smallest), Some(&largest)) = (sorted.first(), sorted.last()) else {
        return Spread::default();
    };
    Spread { median: median(figures), smallest, largest, interval: interval(&sorted) }
}

/// The narrowest pair of figures between which the median lies with the confidence that is wanted,
/// and where no pair has that, the outermost.
///
/// Source: the sign test turned around (Conover, Practical Nonparametric Statistics, 3.2): how many
/// figures lie below the median is a toss of a coin for each. Nothing is assumed of the shape.
fn interval(sorted: &[f64]) -> Option<Interval> {
    let count = sorted.len();
    if count < 3 {
        return None;
    }
    let confidence = |cut: usize| 1.0 - 2.0 * tosses(count, cut);
    let cut = (0..count / 2).rev().find(|&cut| confidence(cut) >= WANTED).unwrap_or(0);
    Some(Interval { from: sorted[cut], to: sorted[count - 1 - cut], confidence: confidence(cut) })
}

/// The probability of at most so many heads.
fn tosses(count: usize, heads: usize) -> f64 {
    let mut ways = 1.0;
    let mut sum = 0.0;
    for number in 0..=heads {
        sum += ways;
        ways *= (count - number) as f64 / (number + 1) as f64;
    }
    sum * 0.5_f64.powi(count as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_median_is_that_of_the_tables() {
        // Tables of the sign test: 5 figures 93.75 % (all), 6 figures 96.9 % (all), 10 figures
        // 97.9 % (the second to the ninth).
        let of = |count: usize| {
            let figures: Vec<_> = (1..=count).map(|figure| figure as f64).collect();
            let interval = spread(&figures).interval.unwrap();
            (interval.from, interval.to, (interval.confidence * 1e4).round() / 1e4)
        };
        assert_eq!(of(5), (1.0, 5.0, 0.9375));
        assert_eq!(of(6), (1.0, 6.0, 0.9688));
        assert_eq!(of(10), (2.0, 9.0, 0.9785));
        assert_eq!(spread(&[1.0, 2.0]).interval, None);
    }

    #[test]
    fn a_median_needs_no_order() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
    }
}
