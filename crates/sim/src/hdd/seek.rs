//! How long the arm takes over a number of cylinders.
//!
//! **Source**: E. K. Lee and R. H. Katz, "An analytic performance model of disk arrays", SIGMETRICS
//! 1993, section 3: `t(d) = a * sqrt(d - 1) + b * (d - 1) + c`, whose three constants follow from
//! the three figures that data sheets print. The root is the accelerating arm, the linear part the
//! coast.

use super::ModelError;

/// Seek time as a function of distance; monotonic.
#[derive(Clone, Debug)]
pub(super) struct SeekCurve {
    /// Nanoseconds for one cylinder, settling included.
    single_ns: f64,
    root_ns: f64,
    linear_ns: f64,
}

impl SeekCurve {
    /// Fits the curve to the time of one cylinder, of the mean over all pairs, and of the full
    /// stroke.
    ///
    /// # Errors
    /// Where no monotonic curve of this form passes through the three.
    pub(super) fn fit(ms: [f64; 3], cylinders: u32) -> Result<Self, ModelError> {
        let [single, average, full] = ms;
        let distance = f64::from(cylinders);
        // The mean over random pairs of sqrt(d) is 8/15 of sqrt(D), and of d one third of D.
        let root = 5.0 * (average - single) - 5.0 / 3.0 * (full - single);
        let linear = (full - single) - root;
        if !(single > 0.0 && root >= 0.0 && linear >= 0.0) {
            let reason = "single, average and full stroke do not lie on one rising curve";
            return Err(ModelError::Invalid { field: "seek", reason });
        }
        Ok(Self {
            single_ns: single * 1e6,
            root_ns: root * 1e6 / distance.sqrt(),
            linear_ns: linear * 1e6 / distance,
        })
    }

    /// Nanoseconds to move by `cylinders`, settled for reading; zero for none.
    pub(super) fn time_ns(&self, cylinders: u32) -> u64 {
        if cylinders == 0 {
            return 0;
        }
        let beyond = f64::from(cylinders - 1);
        (self.single_ns + self.root_ns * beyond.sqrt() + self.linear_ns * beyond) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curve_passes_through_the_three_figures() {
        let cylinders = 100_000;
        let curve = SeekCurve::fit([0.9, 8.5, 17.0], cylinders).unwrap();
        assert_eq!(curve.time_ns(1), 900_000);
        assert!((curve.time_ns(cylinders) as f64 / 17e6 - 1.0).abs() < 1e-3);
        // Random pairs: the density of distance d is 2 (D - d) / D^2.
        let mean: f64 = (1..cylinders)
            .map(|d| {
                let weight = 2.0 * f64::from(cylinders - d) / f64::from(cylinders).powi(2);
                weight * curve.time_ns(d) as f64
            })
            .sum();
        assert!((mean / 8.5e6 - 1.0).abs() < 1e-3, "mean seek {mean} ns");
    }

    #[test]
    fn curve_never_falls() {
        let curve = SeekCurve::fit([0.9, 8.5, 17.0], 320_800).unwrap();
        let times: Vec<u64> = (0..320_800).step_by(97).map(|d| curve.time_ns(d)).collect();
        assert!(times.is_sorted());
    }

    #[test]
    fn impossible_figures_are_refused() {
        assert!(SeekCurve::fit([0.9, 30.0, 17.0], 1000).is_err());
        assert!(SeekCurve::fit([0.9, 2.0, 17.0], 1000).is_err());
    }
}
