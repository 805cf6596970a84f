//! Workloads for tests: closed-loop jobs in virtual time; and advice by hand.

use crate::advice::{Advice, Evidence, KindAdvice};
use crate::search::{Expected, Freedom, Gain, Goal, Setting};
use crate::signature::Signature;
use crate::situation::{Effort, Situation};
use headpond_trace::{Op, TraceRecord};
use headpond_whatif::{Kind, Stack};

/// A closed-loop job in virtual time: `depth` requests in flight, each served in `service_ns`.
pub(crate) struct Job {
    pub depth: u64,
    pub count: u64,
    pub bytes: u64,
    pub start_ns: u64,
    pub service_ns: u64,
    pub process: u32,
}

impl Job {
    pub(crate) fn new(depth: u64, count: u64, bytes: u64) -> Self {
        Self { depth, count, bytes, start_ns: 0, service_ns: 1_000_000, process: 0 }
    }

    /// Request n starts when a slot of the queue is free and takes the service time.
    pub(crate) fn run(&self, request: impl Fn(u64) -> (Op, u64)) -> Vec<TraceRecord> {
        let step_ns = self.service_ns / self.depth;
        (0..self.count)
            .map(|n| {
                let issued_ns = self.start_ns + n * step_ns;
                let (op, offset) = request(n);
                let mut record = TraceRecord::new(issued_ns, op, offset, self.bytes);
                record.completed_ns = Some(issued_ns + self.service_ns);
                record.process = self.process;
                record
            })
            .collect()
    }
}

pub(crate) fn scattered(n: u64, bytes: u64) -> u64 {
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (n << 17);
    (mixed.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 24) % 100_000_000 * bytes
}

pub(crate) fn sorted(jobs: Vec<Vec<TraceRecord>>) -> Vec<TraceRecord> {
    let mut records: Vec<TraceRecord> = jobs.into_iter().flatten().collect();
    records.sort_by_key(|record| record.issued_ns);
    records
}

pub(crate) fn together(jobs: Vec<Vec<TraceRecord>>) -> Signature {
    Signature::of_records(&sorted(jobs))
}

pub(crate) fn half_reads(n: u64) -> Op {
    if scattered(n + 7, 1).is_multiple_of(2) { Op::Read } else { Op::Write }
}

const EXPECTED: Expected = Expected {
    requests_per_second: 1000.0,
    mean_us: 900.0,
    p99_us: 5000.0,
    read_hit_ratio: 0.8,
    dirty_ratio: 0.4,
    cache_bytes_per_request: 4096.0,
};

/// A machine of 24 disks with a cache like this.
pub(crate) fn situation(cache: &str) -> Situation {
    let core = "raid = 60\ngroups = 2\nstrip = \"128K\"\ndrive = \"hdd-7k2-4t\"\ndrives = 24\n";
    let text = format!("name = \"test\"\n[core]\n{core}[cache]\n{cache}");
    Situation {
        stack: Stack::parse(&text).unwrap(),
        assumptions: Vec::new(),
        cache_is_lost_on_power: !cache.contains("model"),
        cache_is_mirrored: false,
        may_lose_dirty: true,
        goal: Goal::Throughput,
        freedom: Freedom { cache: true, array: true },
        stands: false,
        keeps_promises: false,
        effort: Effort::Quick,
        depth_unless_told: 16,
    }
}

/// Advice that nobody searched for; settings as `key=value`, with spaces between them.
pub(crate) fn advice(settings: &str) -> Advice {
    let setting = |text: &str| {
        let (key, value) = text.split_once('=').unwrap();
        Setting { key: key.to_owned().leak(), value: value.to_owned() }
    };
    let kind = |kind, requests| KindAdvice {
        kind,
        bytes: 4096,
        requests,
        without_cache_us: 2000.0,
        with_advice_us: 900.0,
    };
    Advice {
        cache: !settings.contains("pass-through"),
        goal: Goal::Throughput,
        gain: Gain { factor: 2.5, low: 2.25, high: 2.75 },
        settings: settings.split_whitespace().map(setting).collect(),
        reasons: Vec::new(),
        decisions: Vec::new(),
        courses: Vec::new(),
        without_cache: EXPECTED,
        standing: None,
        with_advice: EXPECTED,
        kinds: vec![kind(Kind::Read, 500), kind(Kind::Write, 500)],
        alternatives: Vec::new(),
        turning: Vec::new(),
        warnings: Vec::new(),
        wear: None,
        assumptions: vec!["a cache of 64 GiB on nvme-dc-2t".to_owned()],
        evidence: Evidence { replays: 1, requests: 1000, of_requests: 1000, looks_longer: true },
    }
}
