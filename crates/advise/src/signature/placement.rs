//! How requests lie: on which boundaries, and how far from the one before.
//!
//! **Invariants**: merging two traces adds their counts up.

use serde::{Deserialize, Serialize};

use super::histogram::{Bucket, LogHistogram};

/// Boundaries that are told apart: 512 bytes to 1 MiB.
const BOUNDARIES: std::ops::RangeInclusive<usize> = 9..=20;

/// Requests by the largest power of two that divides offset and length.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Alignment([u64; *BOUNDARIES.end() + 1]);

/// Requests by the bytes between the end of one and the start of the next, on the same device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SeekCounts {
    none: u64,
    forward: LogHistogram<1>,
    backward: LogHistogram<1>,
}

/// Share of the requests that begin and end on a boundary.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Aligned {
    pub boundary_bytes: u64,
    pub share: f64,
}

/// How far from each other requests are that follow each other.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Seeks {
    /// Share that begins where the one before ended.
    pub none_share: f64,
    /// Median of the others, either way.
    pub median_bytes: Option<u64>,
    /// Bytes skipped, by doubling; shares of all seeks forward.
    pub forward: Vec<Bucket>,
    pub forward_share: f64,
    pub backward: Vec<Bucket>,
    pub backward_share: f64,
}

impl Alignment {
    #[inline]
    pub(crate) fn add(&mut self, offset_bytes: u64, length_bytes: u64) {
        let zeros = (offset_bytes | length_bytes).trailing_zeros() as usize;
        self.0[zeros.min(*BOUNDARIES.end())] += 1;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(sum, count)| *sum += count);
    }

    /// From the finest boundary on, up to the last that any request keeps.
    pub(crate) fn summary(&self) -> Vec<Aligned> {
        let total: u64 = self.0.iter().sum();
        let aligned = BOUNDARIES.map(|exponent| Aligned {
            boundary_bytes: 1 << exponent,
            share: self.0[exponent..].iter().sum::<u64>() as f64 / total.max(1) as f64,
        });
        aligned.take_while(|aligned| aligned.share > 0.0).collect()
    }
}

impl SeekCounts {
    #[inline]
    pub(crate) fn add(&mut self, ended_bytes: u64, begins_bytes: u64) {
        let distance = begins_bytes.abs_diff(ended_bytes);
        self.none += u64::from(distance == 0);
        // Which way is a toss-up: choosing where to count costs less than guessing.
        let ways = [&mut self.backward, &mut self.forward];
        let weight = u64::from(distance != 0);
        ways[usize::from(begins_bytes > ended_bytes)].add(distance, weight);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.none += other.none;
        self.forward.merge(&other.forward);
        self.backward.merge(&other.backward);
    }

    pub(crate) fn summary(&self) -> Seeks {
        let (forward, backward) = (self.forward.total(), self.backward.total());
        let all = (self.none + forward + backward).max(1) as f64;
        let mut either = self.forward.clone();
        either.merge(&self.backward);
        Seeks {
            none_share: self.none as f64 / all,
            median_bytes: either.quantile(0.5),
            forward: self.forward.doublings(),
            forward_share: forward as f64 / all,
            backward: self.backward.doublings(),
            backward_share: backward as f64 / all,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_as_aligned_as_its_worse_end() {
        let mut alignment = Alignment::default();
        alignment.add(0, 4096);
        alignment.add(512, 4096);
        alignment.add(1 << 30, 1 << 25);
        let shares: Vec<_> =
            alignment.summary().iter().map(|it| (it.boundary_bytes, it.share)).collect();
        assert_eq!(shares[0], (512, 1.0));
        assert_eq!(shares[3], (4096, 2.0 / 3.0));
        assert_eq!(*shares.last().unwrap(), (1 << 20, 1.0 / 3.0));
        assert!(Alignment::default().summary().is_empty());
    }

    #[test]
    fn seeks_have_a_direction_and_none_is_no_seek() {
        let mut seeks = SeekCounts::default();
        for (ended, begins) in [(4096, 4096), (4096, 8192), (8192, 0), (0, u64::MAX)] {
            seeks.add(ended, begins);
        }
        let seeks = seeks.summary();
        assert_eq!(
            (seeks.none_share, seeks.forward_share, seeks.backward_share),
            (0.25, 0.5, 0.25)
        );
        assert_eq!(seeks.backward[0].from, 8192);
        assert_eq!(seeks.forward[1].from, 1 << 63);
    }
}
