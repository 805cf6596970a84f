//! Rounds that are not like the others.

use super::median::median;

/// Beyond this many deviations a round is an outlier.
///
/// Source: Iglewicz and Hoaglin, How to Detect and Handle Outliers, 1993: the modified z-score.
const DEVIATIONS: f64 = 3.5;
/// What a median of absolute deviations is of a standard deviation.
const OF_DEVIATION: f64 = 0.6745;
/// Nearer to the median than this is no outlier, however alike the others are.
const NEGLIGIBLE: f64 = 0.05;

/// The places of figures that are not like the others; none where there are fewer than five.
pub fn outliers(figures: &[f64]) -> Vec<usize> {
    if figures.len() < 5 {
        return Vec::new();
    }
    let middle = median(figures);
    let deviations: Vec<_> = figures.iter().map(|figure| (figure - middle).abs()).collect();
    let unit = median(&deviations) / OF_DEVIATION;
    let is_far =
        |deviation: f64| deviation > DEVIATIONS * unit && deviation > NEGLIGIBLE * middle.abs();
    (0..figures.len()).filter(|&index| is_far(deviations[index])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_round_that_was_disturbed_is_found_and_ordinary_spread_is_not() {
        assert_eq!(outliers(&[100.0, 101.0, 99.0, 100.5, 62.0, 99.5]), [4]);
        assert_eq!(outliers(&[100.0, 104.0, 97.0, 101.0, 99.0, 103.0]), [] as [usize; 0]);
        // All alike but for a hair.
        assert_eq!(outliers(&[100.0, 100.0, 100.0, 100.0, 100.1]), [] as [usize; 0]);
        assert_eq!(outliers(&[1.0, 9.0]), [] as [usize; 0]);
    }
}
