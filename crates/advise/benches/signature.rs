//! How fast a signature is drawn of records in memory, on one thread and on two, and what each step
//! of it takes.

use std::hint::black_box;
use std::time::{Duration, Instant};

use headpond_advise::signature::{ReuseTracker, Step};
use headpond_advise::{Sampling, SignatureBuilder};
use headpond_trace::{Names, Op, TraceRecord};

const REQUESTS: u64 = 2_000_000;
const ROUNDS: usize = 7;

const HUNDREDTH: Sampling = Sampling { one_in: 100, blocks_max: 128 * 1024 };

fn main() {
    let random = records(|n| (Op::ALL[(n % 2) as usize], scattered(n) % (1 << 26) * 4096, 4096));
    rows("4 KiB random over 256 GiB", &random);
    let small = records(|n| (Op::ALL[(n % 2) as usize], scattered(n) % (1 << 15) * 4096, 4096));
    rows("4 KiB random over 128 MiB", &small);
    let streams = records(|n| (Op::Write, ((n % 8) << 36) + n / 8 * 65_536, 65_536));
    rows("8 streams of 64 KiB", &streams);
    rows("mixed sizes, streams and processes at depth 32", &mixed());
}

/// All figures of one workload.
fn rows(workload: &str, records: &[TraceRecord]) {
    for (how, sampling) in [(", 1 %", HUNDREDTH), ("", Sampling::default())] {
        row(&format!("curves, {workload}{how}"), "requests/s", curve_rate(records, sampling));
        row(&format!("signature, {workload}{how}"), "requests/s", rate(records, sampling));
        let two = rate_on_two_threads(records, sampling);
        row(&format!("signature on two threads, {workload}{how}"), "requests/s", two);
        for (step, rate) in step_rates(records, sampling) {
            row(&format!("{} alone, {workload}{how}", step.words()), "requests/s", rate);
        }
    }
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

/// Four processes, two of which read and write at random in six sizes, and two in sequence;
/// completions come in any order.
fn mixed() -> Vec<TraceRecord> {
    let record = |n: u64| {
        let mixed = scattered(n);
        let process = n % 4;
        let op = if (mixed >> 8).is_multiple_of(3) { Op::Write } else { Op::Read };
        let (op, offset, length) = match process {
            0 => (Op::Write, n / 4 * 32_768, 32_768),
            1 => (Op::Read, (1 << 40) + n / 4 * 32_768, 32_768),
            _ => (op, (mixed >> 6) % (1 << 22) * 8192, 4096 << ((mixed >> 3) % 6)),
        };
        let mut record = TraceRecord::new(n * 1000, op, offset, length);
        record.completed_ns = Some(n * 1000 + 2000 + (mixed >> 12) % 60_000);
        record.process = process as u32;
        record
    };
    (0..REQUESTS).map(record).collect()
}

fn scattered(n: u64) -> u64 {
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20
}

fn rate(records: &[TraceRecord], sampling: Sampling) -> f64 {
    best(records, |records| draw(SignatureBuilder::sampling(sampling), records))
}

fn rate_on_two_threads(records: &[TraceRecord], sampling: Sampling) -> f64 {
    best(records, |records| draw(SignatureBuilder::sampling(sampling).on_two_threads(), records))
}

fn draw(mut builder: SignatureBuilder, records: &[TraceRecord]) {
    records.iter().for_each(|record| builder.add(record));
    black_box(builder.finish(&Names::default()));
}

/// The miss-ratio curves alone.
fn curve_rate(records: &[TraceRecord], sampling: Sampling) -> f64 {
    best(records, |records| {
        let mut tracker = ReuseTracker::new(sampling);
        records.iter().for_each(|record| tracker.add(record));
        black_box(tracker.curve());
    })
}

/// What each step would do alone, in requests a second: the best of some rounds.
fn step_rates(records: &[TraceRecord], sampling: Sampling) -> Vec<(Step, f64)> {
    let round = |_| {
        let mut taken = [Duration::ZERO; Step::ALL.len()];
        let mut since = Instant::now();
        let mut builder = SignatureBuilder::sampling(sampling);
        let mut done = |step: Step| {
            let now = Instant::now();
            taken[step as usize] += now - std::mem::replace(&mut since, now);
        };
        records.iter().for_each(|record| builder.add_watched(record, &mut done));
        black_box(builder.finish(&Names::default()));
        taken
    };
    let rounds: Vec<_> = (0..ROUNDS).map(round).collect();
    let least = |step: Step| rounds.iter().map(|taken| taken[step as usize]).min();
    let rate = |step| records.len() as f64 / least(step).unwrap_or_default().as_secs_f64();
    Step::ALL.into_iter().map(|step| (step, rate(step))).collect()
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

fn row(name: &str, unit: &str, ours: f64) {
    println!("{{\"name\":\"{name}\",\"unit\":\"{unit}\",\"ours\":{ours:.0}}}");
}
