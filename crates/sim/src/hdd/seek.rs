//! How long the arm takes over a number of cylinders.
//!
//! Either measured, with straight lines between the points, or from three figures.
//!
//! **Source** of the latter: E. K. Lee and R. H. Katz, "An analytic performance model of disk
//! arrays", SIGMETRICS 1993, section 3: `t(d) = a * sqrt(d - 1) + b * (d - 1) + c`, whose three
//! constants follow from the three figures that data sheets print. The root is the accelerating
//! arm, the linear part the coast.

use super::ModelError;
use super::parameters::SeekParameters;
use crate::error::require;

/// Seek time as a function of distance.
#[derive(Clone, Debug)]
pub(super) enum SeekCurve {
    Formula(Formula),
    /// Cylinders and nanoseconds, rising in cylinders; beyond the last the last line goes on.
    Points(Vec<(u32, f64)>),
}

/// Rises monotonically.
#[derive(Clone, Debug)]
pub(super) struct Formula {
    /// Nanoseconds for one cylinder, settling included.
    single_ns: f64,
    root_ns: f64,
    linear_ns: f64,
}

impl SeekCurve {
    /// The curve of a drive with so many cylinders.
    ///
    /// # Errors
    /// Names the field from which no curve can be made.
    pub(super) fn new(parameters: &SeekParameters, cylinders: u32) -> Result<Self, ModelError> {
        if parameters.curve.is_empty() {
            let SeekParameters { single_cylinder_ms, average_ms, full_stroke_ms, .. } = parameters;
            return Self::fit([*single_cylinder_ms, *average_ms, *full_stroke_ms], cylinders);
        }
        let points = &parameters.curve;
        let rising = points[0].0 > 0 && points.is_sorted_by(|a, b| a.0 < b.0);
        require(rising, "seek.curve", "does not rise in cylinders, or starts at none")?;
        let sane = points.iter().all(|(_, ms)| (0.0..=10_000.0).contains(ms));
        require(sane, "seek.curve", "has a time that is not between 0 and 10,000 ms")?;
        Ok(Self::Points(points.iter().map(|(cylinders, ms)| (*cylinders, ms * 1e6)).collect()))
    }

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
        Ok(Self::Formula(Formula {
            single_ns: single * 1e6,
            root_ns: root * 1e6 / distance.sqrt(),
            linear_ns: linear * 1e6 / distance,
        }))
    }

    /// Nanoseconds to move by `cylinders`, settled for reading; zero for none.
    pub(super) fn time_ns(&self, cylinders: u32) -> u64 {
        if cylinders == 0 {
            return 0;
        }
        match self {
            Self::Formula(formula) => formula.time_ns(cylinders),
            Self::Points(points) => interpolate(points, cylinders),
        }
    }
}

impl Formula {
    fn time_ns(&self, cylinders: u32) -> u64 {
        let beyond = f64::from(cylinders - 1);
        (self.single_ns + self.root_ns * beyond.sqrt() + self.linear_ns * beyond) as u64
    }
}

fn interpolate(points: &[(u32, f64)], cylinders: u32) -> u64 {
    let at = points.partition_point(|point| point.0 < cylinders);
    if at == 0 || points.len() == 1 {
        return points[0].1 as u64;
    }
    let at = at.min(points.len() - 1);
    let ((from, from_ns), (to, to_ns)) = (points[at - 1], points[at]);
    let part = f64::from(cylinders - from) / f64::from(to - from);
    (from_ns + part * (to_ns - from_ns)).max(0.0) as u64
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

    fn measured(curve: &[(u32, f64)]) -> Result<SeekCurve, ModelError> {
        let mut parameters =
            crate::hdd::HddModel::builtin("hdd-7k2-4t").unwrap().parameters().seek.clone();
        parameters.curve = curve.to_vec();
        SeekCurve::new(&parameters, 1000)
    }

    #[test]
    fn measured_points_are_met_and_joined_by_lines() {
        let curve = measured(&[(1, 1.0), (10, 2.0), (110, 4.0)]).unwrap();
        let ms = |cylinders| curve.time_ns(cylinders) as f64 / 1e6;
        assert_eq!([0, 1, 10, 60, 110, 160].map(ms), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        let one = measured(&[(5, 1.0)]).unwrap();
        assert_eq!([1, 5, 900].map(|d| one.time_ns(d)), [1_000_000; 3]);
    }

    #[test]
    fn points_that_do_not_rise_are_refused() {
        assert!(measured(&[(0, 1.0), (2, 2.0)]).is_err());
        assert!(measured(&[(2, 1.0), (2, 2.0)]).is_err());
        assert!(measured(&[(2, 1.0), (3, f64::NAN)]).is_err());
    }
}
