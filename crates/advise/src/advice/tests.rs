//! Decisions for workloads whose best settings are published or plain.

use headpond_trace::{Op, ReadOptions, TraceReader};

use super::*;
use crate::facts::{CacheClass, CoreLevel, MemberFacts};
use crate::signature::Signature;
use crate::testing::{Job, half_reads, scattered, together};

fn raid60() -> CoreFacts {
    CoreFacts::array(CoreLevel::Raid60, 40, 4, 64 << 10, MemberFacts::DISK_7200)
}

fn advice_for(signature: &Signature) -> Advice {
    let situation = Situation {
        core: Some(raid60()),
        cache: Some(CacheFacts::nvme(64 << 30)),
        may_lose_dirty: false,
    };
    Advice::from(signature, &situation)
}

fn random(op: impl Fn(u64) -> Op, depth: u64) -> Signature {
    let job = Job { service_ns: 16_000_000, ..Job::new(depth, 6000, 4096) };
    // 100 million blocks apart, spread over 100 TB.
    together(vec![job.run(|n| (op(n), scattered(n, 4096) * 256))])
}

fn sequential(bytes: u64, depth: u64, count: u64) -> Signature {
    let job = Job::new(depth, count, bytes);
    together(vec![job.run(|n| (Op::Write, n * bytes))])
}

#[test]
fn random_small_writes_are_written_back() {
    for depth in [1, 4, 32] {
        let advice = advice_for(&random(|_| Op::Write, depth));
        assert_eq!(advice.mode.value, CacheMode::WriteBack, "depth {depth}");
        assert_eq!(advice.cleaning.value, Cleaning::Stripe);
        assert_eq!(advice.settings_line(), "mode=write-back cleaning=stripe seq-cutoff=never");
    }
}

#[test]
fn random_writes_one_at_a_time_gain_most() {
    let gain = |depth| advice_for(&random(|_| Op::Write, depth)).streams[0].rates.sustained_gain();
    assert!(gain(1) > 15.0, "{}", gain(1));
    assert!(gain(1) > gain(8) && gain(8) > gain(32) && gain(32) > 1.3);
}

#[test]
fn mixed_random_at_depth_is_written_back() {
    let advice = advice_for(&random(half_reads, 32));
    assert_eq!(advice.mode.value, CacheMode::WriteBack, "{advice:#?}");
    assert!(advice.streams[0].rates.sustained_gain() > 1.2);
}

#[test]
fn small_sequential_writes_one_at_a_time_are_written_back_and_not_cut_off() {
    let advice = advice_for(&sequential(64 << 10, 1, 4000));
    assert_eq!(advice.settings_line(), "mode=write-back cleaning=stripe seq-cutoff=never");
    assert!(advice.streams[0].rates.sustained_gain() > 3.0);
}

#[test]
fn large_sequential_writes_at_depth_go_past_the_cache() {
    let advice = advice_for(&sequential(2 << 20, 8, 2000));
    let past = advice.streams[0].past_the_cache || !advice.cache;
    assert!(past, "{advice:#?}");
    assert!(advice.streams[0].rates.sustained_gain() > 0.99);
}

#[test]
fn reads_without_reuse_are_not_cached() {
    let mostly_reads = |n: u64| if n.is_multiple_of(40) { Op::Write } else { Op::Read };
    for depth in [1, 32] {
        let advice = advice_for(&random(mostly_reads, depth));
        assert!(!advice.cache, "{advice:#?}");
        assert!(advice.mode.reason.starts_with("do not cache"), "{}", advice.mode.reason);
    }
}

#[test]
fn reads_that_come_back_are_cached_without_dirty_data() {
    let job = Job { service_ns: 12_000_000, ..Job::new(4, 20_000, 4096) };
    let reads = job.run(|n| (Op::Read, scattered(n % 1000, 4096)));
    let advice = advice_for(&together(vec![reads]));
    assert_eq!(advice.mode.value, CacheMode::WriteThrough, "{advice:#?}");
}

#[test]
fn small_random_and_large_sequential_writes_together_are_parted() {
    let small = Job { process: 1, service_ns: 20_000_000, ..Job::new(16, 8000, 4096) };
    let large = Job { process: 2, service_ns: 50_000_000, ..Job::new(8, 400, 2 << 20) };
    let advice = advice_for(&together(vec![
        small.run(|n| (Op::Write, scattered(n, 4096) * 256)),
        large.run(|n| (Op::Write, n * (2 << 20))),
    ]));
    assert_eq!(advice.settings_line(), "mode=write-back cleaning=stripe seq-cutoff=1M");
    let past: Vec<bool> = advice.streams.iter().map(|stream| stream.past_the_cache).collect();
    assert_eq!(past.iter().filter(|&&past| past).count(), 1);
}

#[test]
fn volatile_cache_is_not_advised_to_hold_dirty_data_unless_allowed() {
    let signature = random(|_| Op::Write, 1);
    let mut situation = Situation {
        core: Some(raid60()),
        cache: Some(CacheFacts::ram(16 << 30)),
        may_lose_dirty: false,
    };
    let careful = Advice::from(&signature, &situation);
    assert_ne!(careful.mode.value, CacheMode::WriteBack);
    assert!(careful.warnings.iter().any(|warning| warning.contains("loses its contents")));
    situation.may_lose_dirty = true;
    let forced = Advice::from(&signature, &situation);
    assert_eq!(forced.mode.value, CacheMode::WriteBack);
    assert!(forced.warnings.iter().any(|warning| warning.contains("forced")));
}

#[test]
fn unmirrored_dirty_cache_and_small_cache_are_warned_of() {
    let warnings = advice_for(&random(|_| Op::Write, 1)).warnings.join("\n");
    assert!(warnings.contains("not mirrored"), "{warnings}");
    assert!(warnings.contains("the cache holds 64 GiB"), "{warnings}");
}

#[test]
fn what_nobody_told_is_assumed_aloud() {
    let advice = Advice::from(&random(|_| Op::Write, 4), &Situation::default());
    assert!(advice.assumptions.iter().filter(|line| line.contains("assumed")).count() == 2);
    assert_eq!(advice.cache_device.class, CacheClass::Nvme);
}

#[test]
fn flash_core_needs_no_cache() {
    let core = CoreFacts::array(CoreLevel::Raid10, 4, 1, 64 << 10, MemberFacts::NVME);
    let situation = Situation { core: Some(core), ..Situation::default() };
    let advice = Advice::from(&random(half_reads, 32), &situation);
    assert!(!advice.cache, "{advice:#?}");
}

#[test]
fn empty_trace_gets_no_cache_and_says_why() {
    let advice = advice_for(&Signature::of_records(&[]));
    assert!(!advice.cache);
    assert!(advice.mode.reason.contains("no requests"), "{}", advice.mode.reason);
}

#[test]
fn advice_is_json_and_text() {
    let advice = advice_for(&random(half_reads, 32));
    let json = serde_json::to_value(&advice).unwrap();
    assert_eq!(json["mode"]["value"], "write-back");
    assert_eq!(json["settings"][0]["key"], "mode");
    let text = crate::render::render_advice(&advice);
    assert!(text.starts_with("Use the cache: mode=write-back"), "{text}");
}

#[test]
fn capture_of_both_jobs_is_parted_by_the_cutoff() {
    let Some(path) = headpond_testkit::shared("traces/headpond-vm/vda.bin") else {
        headpond_testkit::skip!("both jobs are parted by the cutoff", "the capture is absent");
    };
    let mut reader = TraceReader::open(&path, ReadOptions::default()).unwrap();
    let signature = Signature::of(&mut reader).unwrap();
    let assumed = Advice::from(&signature, &Situation::default());
    for advice in [advice_for(&signature), assumed] {
        assert_eq!(advice.settings_line(), "mode=write-back cleaning=stripe seq-cutoff=1M");
    }
}
