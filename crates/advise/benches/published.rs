//! The advice on workloads like those that were published, on the modelled machine that they were
//! measured on (`docs/advise.md`), beside what the settings do that were best there. Who makes the
//! load costs its core there what fio costs, with a cache and without.
//!
//! ```text
//! cargo bench -p headpond-advise --bench published                # 6,000 requests of each
//! cargo bench -p headpond-advise --bench published -- 3000 mixed  # of those of that name
//! cargo bench -p headpond-advise --bench published -- --engine opencas-22.06
//! ```
//!
//! With an engine, whatever has a cache costs the core what that engine was measured to cost.

use headpond_advise::long_run::{LongRun, Volume};
use headpond_advise::search::{Candidate, Judge, Question, Replays, Twist};
use headpond_advise::{Advice, Effort, Freedom, Goal, Sampler, Signature, Situation};
use headpond_trace::{Op, TraceFormat, TraceRecord};
use headpond_whatif::{Experiment, Gauge, Outcome, Pace, SimulateError, Stack, simulate_all};

const REQUESTS: u64 = 6_000;
const TOOK_NS: u64 = 10_000_000;
/// Strips of a stripe that has all groups.
const DATA_STRIPS: u64 = 32;

/// What was best there.
const ALRU: [(&str, &str); 3] =
    [("mode", "write-back"), ("cleaning", "alru-very-aggressive"), ("seq-cutoff", "never")];
const ACP: [(&str, &str); 3] =
    [("mode", "write-back"), ("cleaning", "acp-very-aggressive"), ("seq-cutoff", "never")];
const WRITE_ONLY: [(&str, &str); 3] =
    [("mode", "write-only"), ("cleaning", "alru-very-aggressive"), ("seq-cutoff", "never")];

#[derive(Clone, Copy)]
enum What {
    RandomWrites,
    /// So many of a hundred are reads.
    Mixed(u64),
    /// Sequential writes of so many KiB.
    Stream(u64),
}

struct Workload {
    what: What,
    depth: u64,
    strip_kib: u64,
    best: [(&'static str, &'static str); 3],
    /// What it gained there; nothing where the strip is to be found.
    gained: Option<f64>,
}

fn workloads() -> Vec<Workload> {
    let random = [(1, 26.6), (4, 7.91), (8, 4.44), (16, 2.86), (32, 1.76)];
    let random = random.map(|(depth, gained)| (What::RandomWrites, depth, 64, ALRU, Some(gained)));
    let mixed = [(30, 1.90), (50, 1.96), (70, 1.57)];
    let mixed = mixed.map(|(reads, gained)| (What::Mixed(reads), 32, 64, WRITE_ONLY, Some(gained)));
    let streams = [
        (4, 1, 64, 106.8),
        (4, 32, 64, 19.5),
        (16, 1, 64, 46.4),
        (16, 8, 64, 21.6),
        (64, 1, 64, 17.2),
        (64, 4, 64, 6.87),
        (64, 8, 64, 0.68),
        (64, 32, 64, 0.25),
        (128, 1, 64, 16.1),
        (128, 4, 64, 0.88),
        (128, 8, 64, 0.44),
        (512, 1, 64, 1.34),
        (512, 4, 64, 0.45),
        (1024, 1, 128, 1.70),
        (1024, 4, 128, 0.56),
    ];
    let streams = streams.map(|(kib, depth, strip_kib, gained)| {
        (What::Stream(kib), depth, strip_kib, ACP, Some(gained))
    });
    let strips = [(64, 1), (64, 32), (512, 1), (1024, 1), (1024, 4)];
    let strips = strips.map(|(kib, depth)| (What::Stream(kib), depth, 64, ACP, None));
    let strips = [(What::RandomWrites, 16, 64, ALRU, None)].into_iter().chain(strips);
    let all = random.into_iter().chain(mixed).chain(streams).chain(strips);
    all.map(|(what, depth, strip_kib, best, gained)| Workload {
        what,
        depth,
        strip_kib,
        best,
        gained,
    })
    .collect()
}

impl Workload {
    fn name(&self) -> String {
        let depth = self.depth;
        let what = match self.what {
            What::RandomWrites => "random 4K writes".to_owned(),
            What::Mixed(reads) => format!("mixed random 4K, {reads} % reads"),
            What::Stream(kib) => format!("sequential {kib}K writes"),
        };
        let strip = if self.gained.is_none() { ", any strip" } else { "" };
        format!("{what}, depth {depth}{strip}")
    }

    fn records(&self, requests: u64) -> Vec<TraceRecord> {
        let record = |n: u64| {
            let (op, offset, bytes) = match self.what {
                What::RandomWrites => (Op::Write, scattered(n) * 4096, 4096),
                What::Mixed(reads) if scattered(n + 7) % 100 < reads => {
                    (Op::Read, scattered(n) * 4096, 4096)
                }
                What::Mixed(_) => (Op::Write, scattered(n) * 4096, 4096),
                What::Stream(kib) => (Op::Write, n * (kib << 10), kib << 10),
            };
            let issued_ns = n * TOOK_NS / self.depth;
            let completed_ns = Some(issued_ns + TOOK_NS);
            TraceRecord { completed_ns, ..TraceRecord::new(issued_ns, op, offset, bytes) }
        };
        (0..requests).map(record).collect()
    }
}

/// A block of 120 TB.
fn scattered(n: u64) -> u64 {
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (n << 17);
    (mixed.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 20) % 30_000_000_000
}

fn situation(workload: &Workload) -> Situation {
    let text = format!(
        "name = \"published\"\nengine = \"fio\"\n\
         [core]\nraid = 60\ngroups = 4\ndrive = \"hdd-7k2-4t\"\ndrives = 40\n\
         strip = \"{}K\"\n[cache]\nsize = \"29G\"\n",
        workload.strip_kib
    );
    Situation {
        stack: Stack::parse(&text).expect("a machine"),
        assumptions: Vec::new(),
        cache_is_lost_on_power: true,
        cache_is_mirrored: false,
        may_lose_dirty: true,
        keeps_promises: false,
        goal: Goal::Throughput,
        freedom: Freedom { cache: false, array: workload.gained.is_none() },
        stands: false,
        effort: Effort::Quick,
        depth_unless_told: 16,
    }
}

/// Runs experiments; those with a cache behind an engine, where one is named.
fn run(experiments: &[Experiment], engine: Option<&str>) -> Vec<Result<Outcome, SimulateError>> {
    let mut experiments = experiments.to_vec();
    for Experiment { stack, .. } in &mut experiments {
        if let (Some(engine), true) = (engine, stack.cache.is_some()) {
            stack.engine = Some(engine.to_owned());
        }
    }
    simulate_all(&experiments, &Gauge::for_each(experiments.len()))
}

/// What the settings gain here that were best there.
fn gain_of_best(
    workload: &Workload,
    stack: &Stack,
    records: &[TraceRecord],
    engine: Option<&str>,
) -> f64 {
    let mut sampler = Sampler::new(Effort::Quick.requests_max());
    records.iter().for_each(|record| sampler.add(record));
    let bytes = stack.capacity_bytes().expect("a model");
    let row_bytes = stack.core.strip.bytes() * DATA_STRIPS;
    let long_run = LongRun::of(sampler.finish(), Volume { bytes, row_bytes });
    let mut simulate = |experiments: &[Experiment]| run(experiments, engine);
    let mut judge = Replays {
        stack,
        run: &long_run,
        format: TraceFormat::Recording,
        of_bytes: Signature::of_records(records).volume.footprint_bytes,
        pace: Pace::AsDeepAsRecorded { unknown: 16 },
        simulate: &mut simulate,
    };
    let best = Candidate::new(workload.best.map(|(key, value)| (key, value.to_owned())));
    let asked = [Candidate::without_cache(), best].map(|candidate| Question {
        candidate,
        requests: long_run.requests(),
        twist: Twist::None,
    });
    let trials = judge.judge(&asked).expect("it can be replayed");
    trials[1].gain_over(&trials[0], Goal::Throughput).factor
}

fn row(workload: &Workload, requests: u64, engine: Option<&str>) {
    let (situation, records) = (situation(workload), workload.records(requests));
    let mut sampler = Sampler::new(Effort::Quick.requests_max());
    records.iter().for_each(|record| sampler.add(record));
    let signature = Signature::of_records(&records);
    let mut simulate = |experiments: &[Experiment]| run(experiments, engine);
    let sample = (sampler.finish(), TraceFormat::Recording);
    let advice = Advice::from(&signature, sample, &situation, &mut simulate).expect("a machine");
    let published = workload.gained.map_or(String::new(), |gained| {
        let here = gain_of_best(workload, &situation.stack, &records, engine);
        format!("published best {gained:.2}x, here {here:.2}x; ")
    });
    println!(
        "{:45} alone {:>6.0}/s; {published}advised {:.2}x ({:.2} to {:.2}): {}",
        workload.name(),
        advice.without_cache.requests_per_second,
        advice.gain.factor,
        advice.gain.low,
        advice.gain.high,
        advice.settings_line()
    );
}

fn main() {
    let mut wanted: Vec<String> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    let engine = wanted.iter().position(|it| it == "--engine").map(|at| {
        wanted.remove(at);
        wanted.remove(at)
    });
    let requests = wanted.first().and_then(|it| it.parse().ok());
    if requests.is_some() {
        wanted.remove(0);
    }
    for workload in workloads() {
        let name = workload.name();
        if wanted.is_empty() || wanted.iter().any(|it| name.contains(it.as_str())) {
            row(&workload, requests.unwrap_or(REQUESTS), engine.as_deref());
        }
    }
}
