//! How much the advice depends on how long the same work was recorded: once, twice, five times.
//!
//! ```text
//! cargo bench -p headpond-advise --bench length
//! ```

use headpond_advise::{Advice, Effort, Freedom, Goal, Sampler, Signature, Situation};
use headpond_trace::{Op, TraceFormat, TraceRecord};
use headpond_whatif::{Experiment, Gauge, Stack, simulate_all};

fn machine() -> Stack {
    let text = "name = \"length\"\n[core]\nraid = 6\ndrive = \"hdd-7k2-4t\"\ndrives = 12\n\
         [cache]\nsize = \"64G\"\nmodel = \"nvme-dc-2t\"\n";
    Stack::parse(text).expect("a machine")
}

fn scattered(n: u64) -> u64 {
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (n << 17);
    mixed.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 20
}

struct Work {
    name: &'static str,
    per_s: u64,
    request: fn(u64) -> (Op, u64, u64),
}

const FAR: u64 = 5_000_000_000;

fn works() -> Vec<Work> {
    fn random(n: u64) -> (Op, u64, u64) {
        (Op::Write, scattered(n) % FAR * 4096, 4096)
    }
    fn half(n: u64) -> (Op, u64, u64) {
        let op = if scattered(n + 7).is_multiple_of(2) { Op::Read } else { Op::Write };
        (op, scattered(n) % FAR * 4096, 4096)
    }
    // Seven of ten are reads of a small part, writes anywhere.
    fn hot(n: u64) -> (Op, u64, u64) {
        match scattered(n + 7) % 10 < 7 {
            true => (Op::Read, scattered(n) % 300 * 4096 * 1000, 4096),
            false => (Op::Write, scattered(n) % FAR * 4096, 4096),
        }
    }
    fn with_stream(n: u64) -> (Op, u64, u64) {
        match n % 8 {
            0 => (Op::Write, (1 << 42) + n / 8 * (1 << 20), 1 << 20),
            1..4 => (Op::Read, scattered(n) % FAR * 4096, 4096),
            _ => (Op::Write, scattered(n) % FAR * 4096, 4096),
        }
    }
    vec![
        Work { name: "random writes", per_s: 100, request: random },
        Work { name: "random writes", per_s: 400, request: random },
        Work { name: "random writes", per_s: 600, request: random },
        Work { name: "random writes", per_s: 1000, request: random },
        Work { name: "half reads", per_s: 200, request: half },
        Work { name: "half reads", per_s: 800, request: half },
        Work { name: "hot reads", per_s: 300, request: hot },
        Work { name: "hot reads", per_s: 1500, request: hot },
        Work { name: "small beside a stream", per_s: 300, request: with_stream },
    ]
}

fn advice(work: &Work, count: u64, goal: Goal) -> Advice {
    let records: Vec<TraceRecord> = (0..count)
        .map(|n| {
            // Of a Poisson stream, with the same draws each time.
            let jitter = scattered(n + 99) % 1_000_000;
            let issued_ns = (n * 1_000_000 + jitter) * 1000 / work.per_s;
            let (op, offset, bytes) = (work.request)(n);
            let mut record = TraceRecord::new(issued_ns, op, offset, bytes);
            record.completed_ns = Some(issued_ns + 2_000_000);
            record
        })
        .collect();
    let mut sampler = Sampler::new(Effort::Usual.requests_max());
    records.iter().for_each(|record| sampler.add(record));
    let situation = Situation {
        stack: machine(),
        assumptions: Vec::new(),
        cache_is_lost_on_power: false,
        cache_is_mirrored: false,
        may_lose_dirty: true,
        keeps_promises: false,
        goal,
        freedom: Freedom { cache: false, array: false },
        stands: false,
        effort: Effort::Quick,
        depth_unless_told: 16,
    };
    let signature = Signature::of_records(&records);
    let mut simulate =
        |experiments: &[Experiment]| simulate_all(experiments, &Gauge::for_each(experiments.len()));
    let sample = (sampler.finish(), TraceFormat::Recording);
    Advice::from(&signature, sample, &situation, &mut simulate).expect("a machine")
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    for work in works() {
        if !wanted.is_empty() && !wanted.iter().any(|it| work.name.contains(it.as_str())) {
            continue;
        }
        for goal in [Goal::Mean, Goal::P99] {
            println!("{} {}/s, {goal}", work.name, work.per_s);
            for times in [1, 2, 5] {
                let advice = advice(&work, 1200 * times, goal);
                let pick = |it: &headpond_advise::search::Expected| match goal {
                    Goal::Mean => it.mean_us,
                    _ => it.p99_us,
                };
                println!(
                    "    {times}: {:8.2} ({:.2} to {:.2}) {:>9.0} of {:>9.0} us, dirty {:.2}: {}",
                    advice.gain.factor,
                    advice.gain.low,
                    advice.gain.high,
                    pick(&advice.with_advice),
                    pick(&advice.without_cache),
                    advice.with_advice.dirty_ratio,
                    advice.settings_line()
                );
            }
        }
    }
}
