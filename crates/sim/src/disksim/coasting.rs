//! A seek curve from its two ends.
//!
//! On a short seek the arm accelerates for half of the way and brakes for the other half, so the
//! time grows with the root of the distance. On a long one it reaches a speed and coasts, so the
//! time grows evenly; the line goes on from the root without a bend. Where the coast begins is not
//! in the files, and is taken as a third of the stroke, which is the mean distance between random
//! cylinders: an arm is built for the seeks that it makes.
//!
//! **Source** of the form: C. Ruemmler and J. Wilkes, "An introduction to disk drive modeling",
//! IEEE Computer 27(3), 1994. The drives there begin to coast at 0.20 and 0.43 of the stroke.

/// Part of the stroke after which the arm coasts.
const COAST_FROM: f64 = 1.0 / 3.0;

/// Cylinders and milliseconds from the shortest seeks measured, of one cylinder, two, ..., and the
/// full stroke over `cylinders`. None where the stroke is not longer than they are.
pub(super) fn curve(shortest: &[f64], full_ms: f64, cylinders: u32) -> Option<Vec<(u32, f64)>> {
    let count = shortest.len();
    let longest = shortest.iter().copied().fold(0.0, f64::max);
    if count == 0 || full_ms <= longest || f64::from(cylinders) * COAST_FROM <= count as f64 {
        return None;
    }
    let mean = |terms: &mut dyn Iterator<Item = f64>| terms.sum::<f64>() / count as f64;
    let mean_ms = mean(&mut shortest.iter().copied());
    let mean_root = mean(&mut (1..=count).map(|distance| (distance as f64).sqrt()));
    let stroke = f64::from(cylinders);
    let coast_from = stroke * COAST_FROM;
    let coast_root = coast_from.sqrt();
    // start + slope * sqrt(d) up to the coast, and its tangent there beyond.
    let slope = (full_ms - mean_ms) / (coast_root / 2.0 + stroke / (2.0 * coast_root) - mean_root);
    let start = mean_ms - slope * mean_root;
    let ms = |distance: u32| match f64::from(distance) {
        d if d <= coast_from => start + slope * d.sqrt(),
        d => start + slope * coast_root / 2.0 + slope * d / (2.0 * coast_root),
    };
    let measured = shortest.iter().zip(1..).map(|(&ms, distance)| (distance, ms));
    let longer = distances(cylinders).filter(|&distance| distance as usize > count);
    Some(measured.chain(longer.map(|distance| (distance, ms(distance)))).collect())
}

/// Distances close enough that a line between two of them is the curve.
pub(super) fn distances(cylinders: u32) -> impl Iterator<Item = u32> {
    let next = move |&distance: &u32| {
        let next = distance + 1 + distance / 20;
        (distance < cylinders).then(|| next.min(cylinders))
    };
    std::iter::successors(Some(1), next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_rises_from_the_shortest_seeks_to_the_full_stroke_without_a_bend() {
        let curve = curve(&[1.0, 1.3, 1.4, 1.5], 15.0, 6000).unwrap();
        assert_eq!(curve[..4], [(1, 1.0), (2, 1.3), (3, 1.4), (4, 1.5)]);
        let (last, ms) = *curve.last().unwrap();
        assert_eq!(last, 6000);
        assert!((ms - 15.0).abs() < 1e-9);
        let behind: Vec<_> = curve.iter().filter(|(distance, _)| *distance > 4).collect();
        assert!(behind.is_sorted_by(|a, b| a.1 < b.1));
        let slopes: Vec<f64> = behind
            .windows(2)
            .map(|pair| (pair[1].1 - pair[0].1) / f64::from(pair[1].0 - pair[0].0))
            .collect();
        assert!(slopes.is_sorted_by(|a, b| a >= &(b - 1e-9)), "{slopes:?}");
    }

    #[test]
    fn figures_that_make_no_curve_make_none() {
        assert!(curve(&[2.6, 3.4], 2.3, 6000).is_none());
        assert!(curve(&[], 15.0, 6000).is_none());
        assert!(curve(&[1.0, 2.0], 15.0, 5).is_none());
    }
}
