//! Measured and modelled service times side by side.

use super::trace::Operation;

/// All requests, the reads and the writes.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    pub all: Row,
    pub reads: Row,
    pub writes: Row,
}

/// Zeros where there are no requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    pub requests: usize,
    pub measured_mean_ms: f64,
    pub modelled_mean_ms: f64,
    pub demerit_ms: f64,
}

impl Comparison {
    /// Compares requests given as operation, measured and modelled milliseconds.
    pub fn of(requests: &[(Operation, f64, f64)]) -> Self {
        let row = |wanted: Option<Operation>| {
            let wanted = requests.iter().filter(|(op, ..)| wanted.is_none_or(|only| only == *op));
            Row::of(wanted.map(|(_, measured, modelled)| (*measured, *modelled)).unzip())
        };
        Self {
            all: row(None),
            reads: row(Some(Operation::Read)),
            writes: row(Some(Operation::Write)),
        }
    }
}

impl Row {
    fn of((measured, modelled): (Vec<f64>, Vec<f64>)) -> Self {
        let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len().max(1) as f64;
        Self {
            requests: measured.len(),
            measured_mean_ms: mean(&measured),
            modelled_mean_ms: mean(&modelled),
            demerit_ms: demerit_ms(measured, modelled),
        }
    }
}

/// Root mean square of the horizontal distance between the distributions of two samples of one
/// size.
///
/// # Panics
/// Where they are not of one size.
pub fn demerit_ms(mut measured: Vec<f64>, mut modelled: Vec<f64>) -> f64 {
    assert_eq!(measured.len(), modelled.len(), "the model served what was measured");
    measured.sort_by(f64::total_cmp);
    modelled.sort_by(f64::total_cmp);
    let squares = measured.iter().zip(&modelled).map(|(a, b)| (a - b).powi(2));
    (squares.sum::<f64>() / measured.len().max(1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_requests_does_not_count_and_their_times_do() {
        assert_eq!(demerit_ms(vec![1.0, 2.0, 3.0], vec![3.0, 1.0, 2.0]), 0.0);
        assert_eq!(demerit_ms(vec![1.0, 2.0], vec![2.0, 3.0]), 1.0);
        assert_eq!(demerit_ms(vec![0.0, 0.0], vec![0.0, 2.0]), 2f64.sqrt());
        assert_eq!(demerit_ms(Vec::new(), Vec::new()), 0.0);
    }

    #[test]
    fn reads_and_writes_are_told_apart() {
        let requests = [
            (Operation::Read, 5.0, 4.0),
            (Operation::Read, 7.0, 8.0),
            (Operation::Write, 1.0, 1.0),
        ];
        let comparison = Comparison::of(&requests);
        assert_eq!((comparison.reads.requests, comparison.reads.demerit_ms), (2, 1.0));
        assert_eq!((comparison.writes.requests, comparison.writes.demerit_ms), (1, 0.0));
        assert!((comparison.all.measured_mean_ms - 13.0 / 3.0).abs() < 1e-12);
    }
}
