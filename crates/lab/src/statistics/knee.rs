//! Curves of latency against throughput.

use serde::{Deserialize, Serialize};

/// Where a curve bends: beyond it more load buys latency instead of throughput.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Knee {
    pub iops: f64,
    pub latency_ms: f64,
    /// Its place among the points.
    pub at: usize,
}

/// A bend less sharp than this share of the whole curve is none.
const SHARPEST: f64 = 0.2;

/// The knee of points of (requests a second, latency in ms) in the order of the load.
///
/// Source: Satopaa, Albrecht, Irwin and Raghavan, Finding a "Kneedle" in a Haystack, 2011: both
/// axes are brought to 0 ... 1; the knee is the point that lies farthest below the line from the
/// first to the last. Ours takes the points as they are, without smoothing, since there are few;
/// throughput that falls again under more load ends the curve at its peak.
pub fn knee(points: &[(f64, f64)]) -> Option<Knee> {
    let peak = (0..points.len()).max_by(|&a, &b| points[a].0.total_cmp(&points[b].0))?;
    let points = &points[..=peak];
    let (first, last) = (points.first()?, points.last()?);
    let (width, height) = (last.0 - first.0, last.1 - first.1);
    if points.len() < 3 || width <= 0.0 || height <= 0.0 {
        return None;
    }
    let below = |&(iops, ms): &(f64, f64)| (iops - first.0) / width - (ms - first.1) / height;
    let at = (0..points.len()).max_by(|&a, &b| below(&points[a]).total_cmp(&below(&points[b])))?;
    let is_sharp = below(&points[at]) >= SHARPEST;
    is_sharp.then(|| Knee { iops: points[at].0, latency_ms: points[at].1, at })
}

/// The most requests a second at a latency of at most `budget_ms`, between the points by straight
/// lines; nothing where even the least load takes longer.
pub fn at_budget(points: &[(f64, f64)], budget_ms: f64) -> Option<f64> {
    let mut best: Option<f64> = None;
    for (index, &(iops, ms)) in points.iter().enumerate() {
        let reached = match points.get(index + 1) {
            _ if ms > budget_ms => continue,
            Some(&(next, next_ms)) if next_ms > budget_ms => {
                iops + (next - iops) * (budget_ms - ms) / (next_ms - ms)
            }
            _ => iops,
        };
        best = Some(best.unwrap_or(0.0).max(reached).max(iops));
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One server of 100,000 requests a second, as queueing theory has it.
    fn queue() -> Vec<(f64, f64)> {
        let loads = [0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99];
        loads.iter().map(|load| (load * 100_000.0, 0.01 / (1.0 - load))).collect()
    }

    #[test]
    fn the_knee_of_a_queue_is_where_it_begins_to_fill() {
        let knee = knee(&queue()).unwrap();
        assert!((70_000.0..=95_000.0).contains(&knee.iops), "{knee:?}");
        assert_eq!(super::knee(&[(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)]), None);
        assert_eq!(super::knee(&[(1.0, 1.0), (2.0, 2.0)]), None);
        assert_eq!(super::knee(&[]), None);
    }

    #[test]
    fn throughput_that_collapses_under_load_has_its_knee_before_the_peak() {
        let points = [(10.0, 1.0), (20.0, 1.1), (30.0, 1.2), (32.0, 4.0), (25.0, 9.0)];
        assert_eq!(knee(&points).unwrap().iops, 30.0);
    }

    #[test]
    fn a_budget_is_reached_between_the_points() {
        let points = [(100.0, 0.5), (200.0, 1.5), (210.0, 9.0)];
        assert_eq!(at_budget(&points, 1.0), Some(150.0));
        assert_eq!(at_budget(&points, 100.0), Some(210.0));
        assert_eq!(at_budget(&points, 0.1), None);
        // Less under more load counts for nothing.
        assert_eq!(at_budget(&[(100.0, 0.5), (80.0, 0.6)], 1.0), Some(100.0));
    }
}
