//! Curves against Mattson's stack: a naive one, and an exact one for whole traces.

use headpond_trace::{Demand, Lacks, Op, ReadOptions, TraceReader, TraceRecord};
use proptest::prelude::*;
use std::collections::HashMap;

use super::*;
use crate::signature::ReuseTracker;
use crate::signature::spatial_sample::Sampling;

/// Every access of a request, block by block.
fn blocks(record: &TraceRecord) -> impl Iterator<Item = (u16, u64)> + use<> {
    let is_data = matches!(record.op, Op::Read | Op::Write) && record.length_bytes > 0;
    let first = record.offset_bytes / BLOCK_BYTES;
    let end = if is_data { record.end_bytes().div_ceil(BLOCK_BYTES) } else { first };
    let device = record.device;
    (first..end).map(move |block| (device, block))
}

fn sampled(records: &[TraceRecord], sampling: Sampling) -> Vec<CurvePoint> {
    let mut tracker = ReuseTracker::new(sampling);
    records.iter().for_each(|record| tracker.add(record));
    tracker.curve()
}

/// Misses of reads and of writes at one size, of a stack that is searched from its top.
fn naive_misses(records: &[TraceRecord], cache_blocks: usize) -> [u64; 2] {
    let mut stack = Vec::new();
    let mut misses = [0; 2];
    for record in records {
        for block in blocks(record) {
            let depth = stack.iter().position(|&other| other == block);
            misses[record.op.index()] += u64::from(depth.is_none_or(|depth| depth >= cache_blocks));
            depth.map(|depth| stack.remove(depth));
            stack.insert(0, block);
        }
    }
    misses
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn a_curve_without_sampling_is_mattsons(
        requests in prop::collection::vec((0u64..60, 1u64..9, any::<bool>()), 1..150),
    ) {
        let record = |&(block, count, is_write): &(u64, u64, bool)| {
            let op = if is_write { Op::Write } else { Op::Read };
            // Not aligned: the first and the last block are touched in part.
            TraceRecord::new(0, op, block * BLOCK_BYTES + 512, count * BLOCK_BYTES - 1024)
        };
        let records: Vec<_> = requests.iter().map(record).collect();
        let mut accesses = [0u64; 2];
        records.iter().for_each(|r| accesses[r.op.index()] += blocks(r).count() as u64);
        for point in sampled(&records, Sampling::default()) {
            let misses = naive_misses(&records, (point.cache_bytes / BLOCK_BYTES) as usize);
            let ratio = |misses: u64, of: u64| misses as f64 / of.max(1) as f64;
            let all = ratio(misses[0] + misses[1], accesses[0] + accesses[1]);
            prop_assert!((point.reads - ratio(misses[0], accesses[0])).abs() < 1e-9);
            prop_assert!((point.writes - ratio(misses[1], accesses[1])).abs() < 1e-9);
            prop_assert!((point.all - all).abs() < 1e-9);
        }
    }
}

/// Exact distances: a Fenwick tree with a place for each access of the trace.
fn exact_distances(records: &[TraceRecord]) -> Vec<(Op, Option<u64>)> {
    let total: usize = records.iter().map(|record| blocks(record).count()).sum();
    let mut tree = vec![0i32; total + 1];
    let add = |tree: &mut Vec<i32>, mut at: usize, change: i32| {
        at += 1;
        while at < tree.len() {
            tree[at] += change;
            at += at & at.wrapping_neg();
        }
    };
    let until = |tree: &[i32], mut at: usize| {
        let mut sum = 0;
        while at > 0 {
            sum += tree[at];
            at &= at - 1;
        }
        sum
    };
    let mut last = HashMap::new();
    let accesses = records.iter().flat_map(|record| blocks(record).map(|block| (record.op, block)));
    let distance = |(now, (op, block))| {
        let distance = last.insert(block, now).map(|before: usize| {
            add(&mut tree, before, -1);
            (until(&tree, now) - until(&tree, before)) as u64
        });
        add(&mut tree, now, 1);
        (op, distance)
    };
    accesses.enumerate().map(distance).collect()
}

/// Mean absolute error over the sizes of the curve: for all, reads and writes.
fn errors(curve: &[CurvePoint], exact: &[(Op, Option<u64>)]) -> [f64; 3] {
    let pick = |only: Option<Op>| -> Vec<u64> {
        let chosen = exact.iter().filter(|(op, _)| only.is_none_or(|only| only == *op));
        let mut distances: Vec<_> = chosen.map(|(_, it)| it.unwrap_or(u64::MAX)).collect();
        distances.sort_unstable();
        distances
    };
    let error = |distances: Vec<u64>, ratio: fn(&CurvePoint) -> f64| {
        let differs = |point: &CurvePoint| {
            let cache_blocks = point.cache_bytes / BLOCK_BYTES;
            let hits = distances.partition_point(|&distance| distance < cache_blocks);
            let misses = (distances.len() - hits) as f64 / distances.len().max(1) as f64;
            (misses - ratio(point)).abs()
        };
        curve.iter().map(differs).sum::<f64>() / curve.len() as f64
    };
    [
        error(pick(None), |point| point.all),
        error(pick(Some(Op::Read)), |point| point.reads),
        error(pick(Some(Op::Write)), |point| point.writes),
    ]
}

const TRACES: [&str; 9] = [
    "cloudphysics/cloudPhysicsIO.vscsi.zst",
    "blkreplay/linux-webserver-2.load.gz",
    "blkreplay/windows-shared-server.load.gz",
    "disksim-valid/atlas_III.trace.zst",
    "msr/msr.cut.per_10k.rw_20_80.105.trace.zst",
    "mqsim/tpcc-small.trace.zst",
    "octf/sample_trace.tar.xz",
    "arc/arc-P3.lis.zst",
    "fio-iolog/own-oltp-v3.iolog.zst",
];

#[test]
fn sampled_curves_of_real_traces_are_within_a_hundredth_of_exact_ones() {
    const CLAIM: &str = "sampled curves of real traces are within a hundredth";
    for name in TRACES {
        let Some(path) = headpond_testkit::shared(format!("traces/{name}")) else {
            headpond_testkit::skip!(CLAIM, "{name} is absent");
        };
        let options = ReadOptions { demand: Demand::References, ..ReadOptions::default() };
        let mut reader = TraceReader::open(&path, options).unwrap();
        let lacks = reader.lacks();
        let mut records = Vec::new();
        while let Some(record) = reader.next_record().unwrap() {
            records.push(record);
        }
        let exact = exact_distances(&records);
        let parts = if lacks.contains(Lacks::OPERATIONS) { 1 } else { 3 };
        let usual = Sampling::default();
        let small = Sampling { blocks_max: 16 * 1024, ..usual };
        for (sampling, limit) in [(usual, 0.01), (small, 0.02)] {
            let errors = errors(&sampled(&records, sampling), &exact);
            println!("{name}, {sampling:?}: {errors:.4?}");
            assert!(errors[0] < limit, "{name}, {sampling:?}: {errors:?}");
            let is_usual = sampling == usual;
            assert!(!is_usual || errors[..parts].iter().all(|&it| it < limit), "{errors:?}");
        }
    }
}
