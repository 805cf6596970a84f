//! Results that nobody has measured.

use headpond_lab::{Ending, Folder, Line, Plan, Results};
use headpond_whatif::rounds::{JobRound, Round};
use headpond_whatif::{Bins, Latency, Measured, Side, Window};
use std::path::Path;

/// A round of a minute that carried so many writes in each of its seconds.
pub fn round(per_s: &[f64]) -> Round {
    let requests = per_s.iter().sum::<f64>() as u64;
    let latency = Latency { mean_us: 500.0, max_us: 900.0, ..Latency::default() };
    let iops = requests as f64 / per_s.len() as f64;
    let write = Side { requests, iops, mb_per_s: iops * 4096.0 / 1e6, latency };
    let seconds = per_s.len() as f64;
    let (read, flush) = (Side::default(), Side::default());
    let measured = Measured { seconds, read, write, flush, errors: 0 };
    let bins = [Bins::default(), Bins(vec![(500_000, requests)]), Bins::default()];
    let window = |(second, &write_iops): (usize, &f64)| Window {
        at_s: second as f64 + 1.0,
        read_iops: 0.0,
        write_iops,
        dirty_ratio: 0.0,
    };
    let windows = per_s.iter().enumerate().map(window).collect();
    let jobs = vec![JobRound { name: "own-0".into(), measured, bins, stable: Bins::default() }];
    Round { jobs, windows, latencies: Vec::new(), machine: None }
}

/// Results of four rounds of each cell of a plan, the first of them to warm up.
pub fn results(folder: &Path, plan: &str, round: impl Fn(usize) -> Round) -> Results {
    let plan = Plan::parse(plan).unwrap();
    let mut stored = Folder::create(folder, &plan).unwrap();
    for it in plan.cells() {
        let (cell, title) = (it.number, it.title(&plan));
        stored.push(&Line::Begun { cell, title }).unwrap();
        for number in 0..4_u32 {
            let (round, counts) = (Box::new(round(number as usize)), number > 0);
            stored.push(&Line::Round { cell, number, counts, round }).unwrap();
        }
        stored.push(&Line::Done { cell, ending: Ending::Complete }).unwrap();
    }
    Results::read(folder).unwrap()
}
