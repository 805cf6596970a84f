//! What a trace teaches that tells only which blocks were asked for, in their order: how soon they
//! come back, and what a cache would miss. The rest of a signature is left out, which would be of
//! operations that nobody told.

use crate::signature::{
    BLOCK_BYTES, Bucket, PolicyCurve, PolicyPoint, Signature, VolumeSignature, WorkingSet,
};
use headpond_trace::Lacks;
use serde::Serialize;

/// Reuse of the blocks of a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reuse {
    pub requests: u64,
    pub bytes: u64,
    /// Distinct bytes touched, in blocks of 4 KiB.
    pub footprint_bytes: u64,
    /// Lowest and highest byte addressed.
    pub range_bytes: Option<(u64, u64)>,
    /// Share of the blocks asked for that had been asked for before.
    pub reuse_share: f64,
    /// Different blocks asked for between two accesses to one, by doubling.
    pub reuse_distances: Vec<Bucket>,
    pub median_reuse_bytes: Option<u64>,
    /// Over time, where the trace tells times.
    pub working_set: Option<WorkingSet>,
    /// What an LRU cache of each size would miss.
    pub curve: Vec<PolicyPoint>,
    /// The smallest cache that hits nine tenths of what any could, where there is something.
    pub knee_bytes: Option<u64>,
    /// What a cache would miss with each eviction policy.
    pub policies: Vec<PolicyCurve>,
    /// Share of the blocks that were followed.
    pub sampling_rate: f64,
    /// In words, what cannot be said.
    pub not_told: Vec<&'static str>,
}

impl Reuse {
    /// Of a trace that lacks so much.
    pub fn of(signature: &Signature, lacks: Lacks) -> Self {
        let volume = &signature.volume;
        let has_times = !lacks.contains(Lacks::TIMES);
        Self {
            requests: signature.requests,
            bytes: signature.bytes,
            footprint_bytes: volume.footprint_bytes,
            range_bytes: volume.range_bytes,
            reuse_share: volume.read_reuse_share,
            reuse_distances: volume.reuse_distances.clone(),
            median_reuse_bytes: volume
                .median_reuse_distance
                .map(|blocks| blocks.saturating_mul(BLOCK_BYTES)),
            working_set: has_times.then(|| volume.working_set.clone()),
            curve: curve(volume),
            knee_bytes: volume.knee_bytes,
            policies: volume.policies.clone(),
            sampling_rate: volume.sampling_rate,
            not_told: not_told(lacks),
        }
    }
}

fn curve(volume: &VolumeSignature) -> Vec<PolicyPoint> {
    let point = |point: &crate::signature::CurvePoint| PolicyPoint {
        cache_bytes: point.cache_bytes,
        misses: point.all,
    };
    volume.curve.iter().map(point).collect()
}

fn not_told(lacks: Lacks) -> Vec<&'static str> {
    let mut lines = Vec::new();
    if lacks.contains(Lacks::OPERATIONS) {
        lines.push("what is read and what is written: no misses of reads or of writes, overwrites or dirty data");
    }
    if lacks.contains(Lacks::TIMES) {
        lines.push("when: no rates, bursts or depth, and no working set over time");
    }
    lines.push("whether a cache pays: `headpond advise` replays requests, and needs them");
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Job, together};
    use headpond_trace::Op;

    #[test]
    fn what_a_trace_does_not_tell_is_left_out_and_named() {
        let job = Job::new(8, 2000, 4096);
        let signature = together(vec![job.run(|n| (Op::Read, n * 7 % 500 * 8192))]);
        let without_times = Reuse::of(&signature, Lacks::OPERATIONS | Lacks::TIMES);
        assert_eq!((without_times.working_set, without_times.not_told.len()), (None, 3));
        let with_times = Reuse::of(&signature, Lacks::OPERATIONS);
        assert!(with_times.working_set.is_some() && with_times.not_told.len() == 2);
        assert!((with_times.reuse_share - 0.75).abs() < 0.01, "{}", with_times.reuse_share);
        let last = with_times.curve.last().unwrap();
        assert!((last.misses - 0.25).abs() < 0.01, "{last:?}");
    }
}
