//! All statistics of a volume: first the four groups that users of Open CAS know from
//! `casadm --stats`, with its rows, units and percentages; then those that it lacks.
//!
//! The groups that casadm has of a cache cover all cores together; each core has those of its
//! clients' requests.

mod groups;

use crate::assembly::cached::Cached;
use crate::assembly::cores::Core;
use crate::serving::endpoint::CoreCounts;
use crate::serving::readahead::ReadaheadStats;
use crate::volume::Volume;
use groups::Sums;
pub use groups::{Groups, Row};
use headpond_block::ByteRange;
use headpond_cache::{
    BypassReason, ClassStats, CoreStats, LatencyStats, SliceStats, Traffic, Way, WayLatency,
};
use headpond_raid::PlanCounts;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// All statistics of a volume.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StatsReport {
    pub cache: Option<CacheReport>,
    /// Of the cache in memory in front of that.
    pub tier: Option<CacheReport>,
    /// Every core, the first as well.
    pub cores: Vec<CoreReport>,
    pub readahead: ReadaheadStats,
}

/// Requests of clients to one core, and operations of its array.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CoreReport {
    pub id: u16,
    pub name: String,
    #[serde(flatten)]
    pub counts: CoreCounts,
    /// As the cache counts them, where there is one; a single core has only its clients' requests.
    pub usage: Vec<Row>,
    pub requests: Vec<Row>,
    pub blocks: Vec<Row>,
    pub errors: Vec<Row>,
    pub bypasses: Vec<Row>,
    /// By the way that requests took; flushes are for all cores.
    pub latency: Vec<WayLatency>,
    pub array: PlanCounts,
}

/// Counters of the cache since they were last reset.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CacheReport {
    /// Time since then.
    pub counted_s: f64,
    pub groups: Groups,
    /// Class 0, and every class with a rule or with requests.
    pub classes: Vec<ClassReport>,
    /// Requests that bypassed the cache by reason, with their share of all that did.
    pub bypasses: Vec<Row>,
    /// By the way that requests took.
    pub latency: Vec<WayLatency>,
    pub cleaning: CleaningReport,
    /// Bytes written to the cache device per byte inserted.
    pub write_amplification: Option<f64>,
    /// Bytes to and from each device, by purpose.
    pub traffic: Traffic,
    /// Counters and contents of each slice.
    pub slices: Vec<SliceStats>,
}

/// Requests and contents of one class.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ClassReport {
    pub id: u8,
    /// Where it has a rule.
    pub name: Option<String>,
    pub usage: Vec<Row>,
    pub requests: Vec<Row>,
    pub blocks: Vec<Row>,
    pub errors: Vec<Row>,
    pub bypasses: Vec<Row>,
}

/// Writes of the cleaner to the core.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CleaningReport {
    pub blocks: u64,
    /// Over the last ten seconds.
    pub blocks_per_s_now: f64,
    pub blocks_per_s: f64,
    pub writes: u64,
    /// Full-stripe writes.
    pub full_stripe_writes: u64,
    pub full_stripe_share: f64,
    /// Dirty blocks, and clean ones written along with them.
    pub blocks_per_write: f64,
    pub flushes: u64,
    /// Writes of clients that waited for the cleaner.
    pub throttled: u64,
}

impl Volume {
    pub fn report(&self) -> StatsReport {
        let report = |cached: Option<Rc<Cached>>| cached.map(|cached| self.cache_report(&cached));
        let (cache, tier) = (report(self.cached()), report(self.tier()));
        let readahead = self.dispatcher.readahead_stats();
        StatsReport { cache, tier, cores: self.core_reports(), readahead }
    }

    fn core_reports(&self) -> Vec<CoreReport> {
        let cached = self.cached().or_else(|| self.tier());
        let slices: Vec<SliceStats> = cached.as_ref().map(|it| it.stats()).unwrap_or_default();
        let (sums, cores) = (Sums::of(&slices), self.cores());
        let failed_flushes = cores.failed_flushes();
        let report = |(index, (core, _)): (usize, (&Rc<Core>, ByteRange))| {
            let mut of = stats_of(core.id, &slices);
            of.iter_mut().for_each(|of| of.errors.core_flush = failed_flushes[index]);
            let rows = |make: &dyn Fn(&CoreStats) -> Vec<Row>| of.iter().flat_map(make).collect();
            let counts = self
                .dispatcher
                .endpoint(core.id)
                .map(|endpoint| endpoint.counts())
                .unwrap_or_default();
            CoreReport {
                id: core.id,
                name: core.name.clone(),
                counts,
                usage: rows(&|of| groups::core_usage(&sums, of.usage)),
                requests: rows(&|of| groups::requests(of.read, of.write)),
                blocks: match &of {
                    Some(of) => {
                        groups::blocks(of.traffic, [counts.read_bytes, counts.written_bytes])
                    }
                    None => groups::exported(counts.read_bytes, counts.written_bytes),
                },
                errors: rows(&|of| groups::errors(&of.errors)),
                bypasses: rows(&|of| bypasses(|reason| of.bypass.of(reason))),
                latency: cached.as_ref().map(|it| latency_of(core.id, it)).unwrap_or_default(),
                array: core.array.status().counts,
            }
        };
        cores.iter().enumerate().map(report).collect()
    }

    /// Requests of clients that took at least so long, as the cache or the tier in front of it has
    /// timed them; none without.
    pub fn slow_requests(&self, time: Duration) -> Vec<(Way, u64)> {
        let Some(cached) = self.tier().or_else(|| self.cached()) else { return Vec::new() };
        cached.latency().as_long_as(time)
    }

    /// Resets all counters of the cache, the array and readahead, but for errors
    /// ([`Volume::clear_errors`]). The cache keeps its contents.
    pub fn reset_stats(&self) {
        for cached in self.caches() {
            cached.worn_before.set(cached.wear().all_runs);
            cached.slices.iter().for_each(|slice| slice.reset_stats());
            if let Some(mirror) = &cached.mirror {
                mirror.array().reset_counts();
            }
        }
        self.dispatcher.reset_readahead_stats();
        self.dispatcher.reset_counts();
        self.cores().iter().for_each(|(core, _)| core.array.reset_counts());
    }

    fn cache_report(&self, cached: &Cached) -> CacheReport {
        let slices = cached.stats();
        let sums = Sums::of(&slices);
        CacheReport {
            counted_s: counted_s(&slices),
            groups: Groups::of(&sums),
            classes: self.classes(&slices, &sums),
            bypasses: bypasses(|reason| sums.bypass.of(reason)),
            latency: cached.latency().ways(),
            cleaning: cleaning(&slices),
            write_amplification: sums.traffic.cache.amplification(),
            traffic: sums.traffic,
            slices,
        }
    }

    fn classes(&self, slices: &[SliceStats], sums: &Sums) -> Vec<ClassReport> {
        let description = self.description();
        let rules = description.cache_settings().classes.classes();
        let mut by_class: BTreeMap<_, ClassStats> = BTreeMap::new();
        for class in slices.iter().flat_map(|slice| &slice.classes) {
            let sum = by_class.entry(class.id).or_default();
            sum.usage += class.usage;
            sum.read += class.read;
            sum.write += class.write;
            sum.bypass += class.bypass;
            sum.traffic += class.traffic;
            sum.errors += class.errors;
        }
        let name = |id| Some(rules.get(id)?.name.clone());
        let report = |(id, class): (_, ClassStats)| ClassReport {
            id: u8::from(id),
            name: name(id),
            usage: groups::class_usage(sums, class.usage),
            requests: groups::requests(class.read, class.write),
            blocks: groups::blocks(class.traffic, [class.read.bytes, class.write.bytes]),
            errors: groups::errors(&class.errors),
            bypasses: bypasses(|reason| class.bypass.of(reason)),
        };
        by_class.into_iter().map(report).collect()
    }
}

/// Those of one of several cores.
pub(crate) fn stats_of(core: u16, slices: &[SliceStats]) -> Option<CoreStats> {
    let all = slices.iter().flat_map(|slice| &slice.cores).filter(|stats| stats.core == core);
    all.copied().reduce(|mut sum, stats| {
        sum.usage += stats.usage;
        sum.read += stats.read;
        sum.write += stats.write;
        sum.bypass += stats.bypass;
        sum.traffic += stats.traffic;
        sum.errors += stats.errors;
        sum
    })
}

/// How long its requests took, where there are others.
fn latency_of(core: u16, cached: &Cached) -> Vec<WayLatency> {
    let mut sum = LatencyStats::default();
    let each = cached.slices.iter().filter_map(|slice| slice.latencies_of(core));
    each.for_each(|latencies| sum += &latencies);
    sum.ways()
}

/// The slices of a cache are opened, and reset, together.
fn counted_s(slices: &[SliceStats]) -> f64 {
    slices.iter().map(|slice| slice.counted_ms).max().unwrap_or(0) as f64 / 1000.0
}

fn bypasses(times: impl Fn(BypassReason) -> u64) -> Vec<Row> {
    let all = BypassReason::ALL.iter().map(|reason| times(*reason)).sum();
    let row = |reason: &BypassReason| Row::part(reason.word(), times(*reason), all, "Requests");
    BypassReason::ALL.iter().map(row).collect()
}

fn cleaning(slices: &[SliceStats]) -> CleaningReport {
    let sum = |pick: fn(&SliceStats) -> u64| slices.iter().map(pick).sum::<u64>();
    let blocks = sum(|slice| slice.counters.cleaned_blocks);
    let with_filled = blocks + sum(|slice| slice.counters.filled_blocks);
    let writes = sum(|slice| slice.counters.cleaning_writes);
    let full_stripe_writes = sum(|slice| slice.counters.full_stripe_writes);
    CleaningReport {
        blocks,
        blocks_per_s_now: slices.iter().map(|slice| slice.cleaned_per_s).sum(),
        blocks_per_s: blocks as f64 / counted_s(slices).max(0.001),
        writes,
        full_stripe_writes,
        full_stripe_share: ratio(full_stripe_writes, writes),
        blocks_per_write: ratio(with_filled, writes),
        flushes: sum(|slice| slice.counters.cleaning_flushes),
        throttled: sum(|slice| slice.counters.throttled),
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}
