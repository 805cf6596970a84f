//! Decisions for workloads whose best settings are published or plain.

use super::*;
use crate::search::{Freedom, Judge, Question, Risk, Twist};
use crate::testing::{Job, half_reads, scattered, sorted};
use headpond_trace::{Op, TraceRecord};
use headpond_whatif::{Experiment, Gauge, Stack, simulate_all};

/// The array of the published measurements, behind a cache on flash.
const RAID60: &str = "raid = 60\ngroups = 4\ndrive = \"hdd-7k2-4t\"\ndrives = 40\n";
const FLASH: &str = "size = \"29G\"\nmodel = \"nvme-dc-2t\"\n";
const MEMORY: &str = "size = \"29G\"\n";

fn situation(core: &str, cache: &str) -> Situation {
    let text = format!("name = \"test\"\n[core]\n{core}[cache]\n{cache}");
    Situation {
        stack: Stack::parse(&text).unwrap(),
        assumptions: Vec::new(),
        cache_is_lost_on_power: cache == MEMORY,
        cache_is_mirrored: false,
        may_lose_dirty: false,
        goal: Goal::Throughput,
        freedom: Freedom { cache: false, array: false },
        stands: false,
        keeps_promises: false,
        effort: Effort::Quick,
        depth_unless_told: 16,
    }
}

fn advice(records: &[TraceRecord], situation: &Situation) -> Advice {
    let mut sampler = crate::Sampler::new(situation.effort.requests_max());
    records.iter().for_each(|record| sampler.add(record));
    let signature = Signature::of_records(records);
    let mut simulate =
        |experiments: &[Experiment]| simulate_all(experiments, &Gauge::for_each(experiments.len()));
    let sample = (sampler.finish(), TraceFormat::Recording);
    Advice::from(&signature, sample, situation, &mut simulate).unwrap()
}

fn risk(advice: &Advice) -> Risk {
    Candidate::new([("mode", value(advice, "mode"))]).risk()
}

fn value(advice: &Advice, key: &str) -> String {
    let setting = advice.settings.iter().find(|setting| setting.key == key);
    setting.map(|setting| setting.value.clone()).unwrap_or_default()
}

/// 4 KiB each, all over 100 TB.
fn random(op: impl Fn(u64) -> Op, depth: u64) -> Vec<TraceRecord> {
    let job = Job { service_ns: 16_000_000, ..Job::new(depth, 1200, 4096) };
    job.run(|n| (op(n), scattered(n, 4096) * 256))
}

fn sequential(bytes: u64, depth: u64, count: u64) -> Vec<TraceRecord> {
    Job::new(depth, count, bytes).run(|n| (Op::Write, n * bytes))
}

#[test]
fn random_small_writes_are_written_back_and_gain_most_one_at_a_time() {
    let gains = [1, 32].map(|depth| {
        let advice = advice(&random(|_| Op::Write, depth), &situation(RAID60, FLASH));
        assert_eq!(
            value(&advice, "mode"),
            "write-back",
            "depth {depth}: {}",
            advice.reasons[0].reason
        );
        advice.gain.factor
    });
    assert!(gains[0] > 5.0 && gains[0] > gains[1] && gains[1] > 1.1, "{gains:?}");
}

#[test]
fn mixed_random_at_depth_keeps_writes_in_the_cache() {
    let advice = advice(&random(half_reads, 32), &situation(RAID60, FLASH));
    assert_eq!(risk(&advice), Risk::Dirty, "{}", advice.reasons[0].reason);
    assert!(advice.gain.factor > 1.2);
}

#[test]
fn small_sequential_writes_one_at_a_time_are_written_back() {
    let advice = advice(&sequential(64 << 10, 1, 1200), &situation(RAID60, FLASH));
    assert_eq!(risk(&advice), Risk::Dirty, "{}", advice.reasons[0].reason);
    assert!(advice.gain.factor > 3.0);
}

#[test]
fn large_sequential_writes_at_depth_go_past_the_cache() {
    // Drives that hold nothing back are soon in the state that they stay in.
    let core = "raid = 6\ndrive = \"hdd-7k2-4t\"\ndrives = 12\ndrive_write_cache = false\n";
    let advice = advice(&sequential(2 << 20, 8, 300), &situation(core, FLASH));
    assert!(!advice.cache, "{}", crate::render::render_advice(&advice));
}

#[test]
fn reads_without_reuse_are_not_cached() {
    let mostly_reads = |n: u64| if n.is_multiple_of(40) { Op::Write } else { Op::Read };
    for depth in [1, 32] {
        let advice = advice(&random(mostly_reads, depth), &situation(RAID60, FLASH));
        assert!(!advice.cache);
        assert!(advice.reasons[0].reason.starts_with("do not cache"));
    }
}

#[test]
fn reads_that_come_back_are_cached_without_dirty_data() {
    let job = Job { service_ns: 12_000_000, ..Job::new(4, 1500, 4096) };
    let reads = job.run(|n| (Op::Read, scattered(n % 300, 4096)));
    let advice = advice(&reads, &situation(RAID60, FLASH));
    assert!(advice.cache && risk(&advice) == Risk::Clean, "{}", advice.settings_line());
}

/// Metadata of 4 KiB beside data of 2 MiB, so many times as much of both.
fn lustre(times: u64) -> Vec<TraceRecord> {
    let small = Job { process: 1, service_ns: 20_000_000, ..Job::new(16, 1200 * times, 4096) };
    let large = Job { process: 2, service_ns: 50_000_000, ..Job::new(8, 240 * times, 2 << 20) };
    sorted(vec![
        small.run(|n| (Op::Write, (1 << 43) + scattered(n, 4096) * 256)),
        large.run(|n| (Op::Write, n * (2 << 20))),
    ])
}

/// Of one candidate over none, without a search.
fn gain_of(records: &[TraceRecord], candidate: &Candidate) -> f64 {
    let situation = situation(RAID60, FLASH);
    let mut sampler = crate::Sampler::new(24_000);
    records.iter().for_each(|record| sampler.add(record));
    let run = LongRun::of(sampler.finish(), volume(&situation.stack).unwrap());
    let mut simulate =
        |experiments: &[Experiment]| simulate_all(experiments, &Gauge::for_each(experiments.len()));
    let mut judge = Replays {
        stack: &situation.stack,
        run: &run,
        format: TraceFormat::Recording,
        of_bytes: Signature::of_records(records).volume.footprint_bytes,
        pace: pace(&situation),
        simulate: &mut simulate,
    };
    let ask = |candidate: &Candidate| Question {
        candidate: candidate.clone(),
        requests: run.requests(),
        twist: Twist::None,
    };
    let asked = [ask(&Candidate::without_cache()), ask(candidate)];
    let trials = judge.judge(&asked).unwrap();
    trials[1].gain_over(&trials[0], Goal::Throughput).factor
}

#[test]
fn the_gain_of_the_same_work_does_not_depend_on_how_much_of_it_was_recorded() {
    let settings = [
        [("cleaning", "stripe"), ("seq-cutoff", "1M")],
        [("cleaning", "acp-very-aggressive"), ("seq-cutoff", "full")],
    ];
    let candidate = |settings: [(&'static str, &str); 2]| {
        Candidate::new(settings.map(|(key, value)| (key, value.to_owned())))
            .with("mode", "write-back")
    };
    let gains =
        settings.map(|settings| [1, 3].map(|times| gain_of(&lustre(times), &candidate(settings))));
    for [short, long] in gains {
        assert!((1.0 / 1.5..1.5).contains(&(short / long)) && long > 1.1, "{gains:?}");
    }
}

#[test]
fn small_metadata_is_cached_and_large_data_goes_past() {
    let advice = advice(&lustre(1), &situation(RAID60, FLASH));
    assert_eq!(risk(&advice), Risk::Dirty, "{}", advice.reasons[0].reason);
    assert!(advice.gain.factor > 5.0, "{:?}", advice.gain);
    // The data would be 340 KiB a request.
    let to_cache = advice.with_advice.cache_bytes_per_request;
    assert!(to_cache < 20_000.0, "{to_cache}: {}", advice.settings_line());
}

#[test]
fn a_cache_that_is_lost_with_the_power_holds_nothing_dirty_unless_that_is_allowed() {
    let records = random(|_| Op::Write, 1);
    let mut situation = situation(RAID60, MEMORY);
    let careful = advice(&records, &situation);
    assert_ne!(risk(&careful), Risk::Dirty);
    assert!(careful.warnings.iter().any(|warning| warning.contains("loses its contents")));
    situation.may_lose_dirty = true;
    let forced = advice(&records, &situation);
    assert_eq!(risk(&forced), Risk::Dirty);
    assert!(forced.warnings.iter().any(|warning| warning.contains("forced")));
    situation.goal = Goal::Safety;
    assert_ne!(risk(&advice(&records, &situation)), Risk::Dirty);
}

#[test]
fn an_array_of_flash_needs_no_cache() {
    let core = "raid = 10\ndrive = \"nvme-dc-2t\"\ndrives = 4\n";
    let advice = advice(&random(half_reads, 32), &situation(core, FLASH));
    assert!(!advice.cache, "{}", advice.settings_line());
}

#[test]
fn a_trace_without_requests_gets_no_cache_and_says_why() {
    let advice = advice(&[], &situation(RAID60, FLASH));
    assert!(!advice.cache);
    assert!(advice.reasons[0].reason.contains("no requests"));
}

#[test]
fn one_request_is_advice_with_a_warning() {
    let advice = advice(&random(half_reads, 1)[..1], &situation(RAID60, FLASH));
    assert!(advice.warnings.iter().any(|warning| warning.contains("only 1 requests")));
}

#[test]
fn the_same_trace_gives_the_same_advice_as_json_and_as_text() {
    let advise = || advice(&random(half_reads, 32)[..1000], &situation(RAID60, FLASH));
    let first = advise();
    assert_eq!(first, advise());
    let json = serde_json::to_value(&first).unwrap();
    assert_eq!(json["settings"][0]["key"], "mode");
    let text = crate::render::render_advice(&first);
    assert!(text.starts_with("Use the cache: mode=write-"), "{text}");
}
