//! Whether a device has come to its steady state.

use crate::plan::Steady;
use serde::{Deserialize, Serialize};

/// How figures moved over some rounds, relative to their mean.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Drift {
    /// Largest less smallest.
    pub range: f64,
    /// Rise of the fitted line from the first to the last, without its sign.
    pub slope: f64,
}

impl Drift {
    pub fn is_within(&self, rule: &Steady) -> bool {
        self.range <= rule.range && self.slope <= rule.slope
    }
}

/// The drift of a row of figures; nothing where they are fewer than two or their mean is none.
pub fn drift(figures: &[f64]) -> Option<Drift> {
    let count = figures.len() as f64;
    let mean = figures.iter().sum::<f64>() / count;
    if figures.len() < 2 || mean <= 0.0 {
        return None;
    }
    let largest = figures.iter().copied().fold(f64::MIN, f64::max);
    let smallest = figures.iter().copied().fold(f64::MAX, f64::min);
    let middle = (count - 1.0) / 2.0;
    let offset = |index: usize| index as f64 - middle;
    let (mut products, mut squares) = (0.0, 0.0);
    for (index, figure) in figures.iter().enumerate() {
        products += offset(index) * (figure - mean);
        squares += offset(index) * offset(index);
    }
    let rise = products / squares * (count - 1.0);
    Some(Drift { range: (largest - smallest) / mean, slope: (rise / mean).abs() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_in_the_band_is_steady_and_what_drifts_or_jumps_is_not() {
        let rule = Steady::default();
        let is_steady = |figures: &[f64]| drift(figures).unwrap().is_within(&rule);
        assert!(is_steady(&[100.0, 103.0, 98.0, 101.0, 99.0]));
        // Within the band, but falling by 16 % over five rounds.
        assert!(!is_steady(&[108.0, 104.0, 100.0, 96.0, 92.0]));
        assert!(!is_steady(&[100.0, 100.0, 125.0, 100.0, 100.0]));
        assert_eq!(drift(&[1.0]), None);
        assert_eq!(drift(&[0.0, 0.0]), None);
    }

    #[test]
    fn the_slope_is_that_of_the_least_squares_line() {
        let drift = drift(&[1.0, 2.0, 3.0]).unwrap();
        assert_eq!((drift.range, drift.slope), (1.0, 1.0));
    }
}
