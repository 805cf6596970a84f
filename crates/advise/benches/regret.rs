//! What the search leaves on the table: on each given trace the advice of a usual search beside
//! that of one that tries everything on all requests of the sample, both on the same models.
//!
//! ```text
//! cargo bench -p headpond-advise --bench regret            # samples of 6,000 requests
//! cargo bench -p headpond-advise --bench regret -- 24000   # as large as those of advise; hours
//! ```

use headpond_advise::{
    Advice, Effort, Freedom, Goal, Sample, Sampler, Signature, SignatureBuilder, Situation,
};
use headpond_trace::{ReadOptions, TraceFormat, TraceReader};
use headpond_whatif::{Experiment, Gauge, Load, Outcome, SimulateError, Stack, simulate_all};
use std::collections::HashMap;

const TRACES: [&str; 9] = [
    "blkreplay/linux-webserver-2.load.gz",
    "blkreplay/windows-shared-server.load.gz",
    "blktrace/takeoverjp-sample.blktrace.0",
    "cloudphysics/cloudPhysicsIO.vscsi.zst",
    "fio-iolog/own-oltp-v3.iolog.zst",
    "headpond-vm/vda.blktrace.0",
    "mqsim/tpcc-small.trace.zst",
    "msr/msr.cut.per_10k.rw_20_80.105.trace.zst",
    "octf/sample_trace.tar.xz",
];

const MACHINE: &str = "name = \"regret\"\n[core]\nraid = 6\ndrive = \"hdd-7k2-4t\"\ndrives = 12\n\
    [cache]\nsize = \"64G\"\nmodel = \"nvme-dc-2t\"\n";

const REQUESTS: usize = 6_000;

/// Replays that were made, by all that makes them what they are.
#[derive(Default)]
struct Replays(HashMap<String, Outcome>);

fn main() {
    let mut wanted: Vec<String> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    let requests = wanted.first().and_then(|it| it.parse().ok());
    if requests.is_some() {
        wanted.remove(0);
    }
    let mut regrets = Vec::new();
    for name in TRACES.into_iter().filter(|it| is_wanted(it, &wanted)) {
        let Some(path) = headpond_testkit::shared(format!("traces/{name}")) else {
            println!("{name:50} skipped: it is not there");
            continue;
        };
        let mut reader = TraceReader::open(&path, ReadOptions::default()).expect("a trace");
        let read = read(&mut reader, requests.unwrap_or(REQUESTS));
        regrets.push(row(name, &read, reader.format()));
    }
    regrets.sort_by(f64::total_cmp);
    if let (Some(median), Some(worst)) = (regrets.get(regrets.len() / 2), regrets.last()) {
        println!("regret: median {:.1} %, worst {:.1} %", median * 100.0, worst * 100.0);
    }
}

fn is_wanted(name: &str, wanted: &[String]) -> bool {
    wanted.is_empty() || wanted.iter().any(|it| name.contains(it.as_str()))
}

/// Both searches on one trace; the share of the throughput that the usual one gives up.
fn row(name: &str, (signature, sample): &(Signature, Sample), format: TraceFormat) -> f64 {
    let mut replays = Replays::default();
    let mut told = |effort| {
        let situation = situation(effort);
        let mut simulate = |experiments: &[Experiment]| replays.run(experiments);
        let advice = Advice::from(signature, (sample.clone(), format), &situation, &mut simulate);
        advice.expect("the machine is one")
    };
    let exhaustive = told(Effort::Exhaustive);
    // What it asks again is known by now.
    let usual = told(Effort::Quick);
    let rate = |advice: &Advice| advice.with_advice.requests_per_second;
    let best = rate(&exhaustive).max(rate(&usual));
    let regret = 1.0 - rate(&usual) / best;
    println!(
        "{name:50} {:>9.0}/s of {:>9.0}/s, regret {:>5.1} %; {} replays of {}\n    usual:      {}\n    exhaustive: {}",
        rate(&usual),
        rate(&exhaustive),
        regret * 100.0,
        usual.evidence.replays,
        exhaustive.evidence.replays,
        usual.settings_line(),
        exhaustive.settings_line()
    );
    regret
}

fn read(reader: &mut TraceReader, requests: usize) -> (Signature, Sample) {
    let (mut builder, mut sampler) = (SignatureBuilder::new(), Sampler::new(requests));
    while let Some(record) = reader.next_record().expect("an undamaged trace") {
        builder.add(&record);
        sampler.add(&record);
    }
    (builder.finish(reader.names()), sampler.finish())
}

fn situation(effort: Effort) -> Situation {
    Situation {
        stack: Stack::parse(MACHINE).expect("a machine"),
        assumptions: Vec::new(),
        cache_is_lost_on_power: false,
        cache_is_mirrored: false,
        may_lose_dirty: false,
        keeps_promises: false,
        goal: Goal::Throughput,
        freedom: Freedom { cache: true, array: true },
        stands: false,
        effort,
        depth_unless_told: 16,
    }
}

impl Replays {
    /// Those that are not known yet.
    fn run(&mut self, experiments: &[Experiment]) -> Vec<Result<Outcome, SimulateError>> {
        let keys: Vec<String> = experiments.iter().map(key).collect();
        let is_new = |number: &usize| !self.0.contains_key(&keys[*number]);
        let new: Vec<usize> = (0..keys.len()).filter(is_new).collect();
        let asked: Vec<Experiment> =
            new.iter().map(|&number| experiments[number].clone()).collect();
        for (number, outcome) in
            new.into_iter().zip(simulate_all(&asked, &Gauge::for_each(asked.len())))
        {
            self.0.insert(keys[number].clone(), outcome.expect("it can be replayed"));
        }
        keys.iter().map(|key| Ok(self.0[key].clone())).collect()
    }
}

/// Of one trace the requests follow from their number.
fn key(experiment: &Experiment) -> String {
    let Load::Excerpt(excerpt) = &experiment.load else { unreachable!("advice plays excerpts") };
    let (requests, warm_up, pace) = (excerpt.records.len(), excerpt.warm_up, excerpt.pace);
    format!("{:?} {requests} {warm_up} {pace:?} {:?}", experiment.stack, excerpt.remainder)
}
