//! How fast a signature is drawn: one thread, records in memory.

use std::hint::black_box;
use std::time::Instant;

use headpond_advise::signature::ReuseTracker;
use headpond_advise::{Sampling, SignatureBuilder};
use headpond_trace::{Names, Op, TraceRecord};

const REQUESTS: u64 = 400_000;
const ROUNDS: usize = 15;

fn main() {
    let hundredth = Sampling { one_in: 100, ..Sampling::default() };
    let random = records(|n| (Op::ALL[(n % 2) as usize], scattered(n) % (1 << 26) * 4096, 4096));
    row("curves, 4 KiB random over 256 GiB, 1 %", curve_rate(&random, hundredth));
    row("curves, 4 KiB random over 256 GiB", curve_rate(&random, Sampling::default()));
    row("signature, 4 KiB random over 256 GiB, 1 %", rate(&random, hundredth));
    row("signature, 4 KiB random over 256 GiB", rate(&random, Sampling::default()));
    let small = records(|n| (Op::ALL[(n % 2) as usize], scattered(n) % (1 << 15) * 4096, 4096));
    row("signature, 4 KiB random over 128 MiB, 1 %", rate(&small, hundredth));
    row("signature, 4 KiB random over 128 MiB", rate(&small, Sampling::default()));
    let streams = records(|n| (Op::Write, ((n % 8) << 36) + n / 8 * 65_536, 65_536));
    row("curves, 8 streams of 64 KiB, 1 %", curve_rate(&streams, hundredth));
    row("signature, 8 streams of 64 KiB, 1 %", rate(&streams, hundredth));
}

/// Requests every microsecond, each of which takes eight.
fn records(request: impl Fn(u64) -> (Op, u64, u64)) -> Vec<TraceRecord> {
    let record = |n| {
        let (op, offset, length) = request(n);
        let mut record = TraceRecord::new(n * 1000, op, offset, length);
        record.completed_ns = Some(n * 1000 + 8000);
        record
    };
    (0..REQUESTS).map(record).collect()
}

fn scattered(n: u64) -> u64 {
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20
}

fn rate(records: &[TraceRecord], sampling: Sampling) -> f64 {
    best(records, |records| {
        let mut builder = SignatureBuilder::sampling(sampling);
        records.iter().for_each(|record| builder.add(record));
        black_box(builder.finish(&Names::default()));
    })
}

/// The miss-ratio curves alone.
fn curve_rate(records: &[TraceRecord], sampling: Sampling) -> f64 {
    best(records, |records| {
        let mut tracker = ReuseTracker::new(sampling);
        records.iter().for_each(|record| tracker.add(record));
        black_box(tracker.curve());
    })
}

/// The best of some rounds, in requests a second.
fn best(records: &[TraceRecord], round: impl Fn(&[TraceRecord])) -> f64 {
    let timed = || {
        let started = Instant::now();
        round(records);
        records.len() as f64 / started.elapsed().as_secs_f64()
    };
    (0..ROUNDS).map(|_| timed()).fold(0.0, f64::max)
}

fn row(name: &str, ours: f64) {
    println!("{{\"name\":\"{name}\",\"unit\":\"requests/s\",\"ours\":{ours:.0}}}");
}
