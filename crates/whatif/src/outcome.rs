//! What a simulation found out, and where the time went.

use crate::engine::EngineDevice;
use crate::machine::Machine;
use crate::measured::{Bins, Measured};
use crate::replay::{KindShare, Lap, Replay};
use crate::windows::Window;
use headpond_block::Instant;
use headpond_block::decorators::{ProbeCounts, ProbeSnapshot};
use headpond_cache::SliceStats;
use headpond_raid::PlanCounts;
use headpond_volume::{JobKind, JobStatus, Volume};
use serde::{Deserialize, Serialize};

/// One experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub name: String,
    /// Size of the volume.
    pub size_bytes: u64,
    pub jobs: Vec<JobOutcome>,
    /// Where the load was a trace.
    pub replay: Option<Replay>,
    /// Where it was an excerpt.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub laps: Vec<Lap>,
    /// Likewise.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<KindShare>,
    /// Likewise: how long reads and writes took.
    #[serde(skip)]
    pub took: Bins,
    /// Of an excerpt, what was left to do in the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub afterwards: Option<Afterwards>,
    pub drives: DeviceShare,
    /// The drives one by one, in the order of the description.
    pub each_drive: Vec<DeviceShare>,
    pub cache: Option<CacheShare>,
    /// Where the stack says what serving costs.
    pub engine: Option<EngineShare>,
    /// Write plans of the array, in the measured time.
    pub plans: Plans,
    /// Where a lost drive was rebuilt all the time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rebuilt: Option<Rebuilt>,
    /// From the start on, the ramp included.
    pub windows: Vec<Window>,
    /// Where the time went, in sentences.
    pub why: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct JobOutcome {
    pub name: String,
    pub measured: Measured,
}

/// The load on devices of one kind, in the measured time.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct DeviceShare {
    pub devices: usize,
    /// Share of the time with something in flight: the mean of all, and of the busiest.
    pub busy_mean: f64,
    pub busy_max: f64,
    /// Of all together.
    pub reads_per_s: f64,
    pub writes_per_s: f64,
    /// 10^6 bytes a second, of all together.
    pub read_mb_per_s: f64,
    pub written_mb_per_s: f64,
    /// With their time in the device's queue.
    pub read_mean_us: f64,
    pub write_mean_us: f64,
}

/// The load on the core that serves requests, in the measured time.
#[derive(Clone, Debug, Serialize)]
pub struct EngineShare {
    pub name: String,
    pub busy: f64,
}

/// What the cache did in the measured time.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct CacheShare {
    pub device: DeviceShare,
    /// Reads answered from the cache alone.
    pub read_hit_ratio: f64,
    /// At the end, of what may be dirty.
    pub dirty_ratio: f64,
    /// Blocks of 4 KiB written to the array.
    pub cleaned_per_s: f64,
    /// Writes to the array for them.
    pub cleaning_writes_per_s: f64,
    /// Writes that waited for the cleaner.
    pub waited: u64,
    /// Requests that went past the cache.
    pub bypassed: u64,
}

/// How the array wrote.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Plans {
    pub full_stripe: u64,
    pub reconstruct: u64,
    pub read_modify: u64,
}

/// A rebuild beside the load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rebuilt {
    /// 10^6 bytes a second of the lost drive; of spare space, of each of the others.
    pub mb_per_s: f64,
    /// What the whole of it would take like that.
    pub hours: f64,
}

/// How long what was left to do took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Afterwards {
    /// Until the drives had written what they held.
    pub drives_s: f64,
    /// For what had become dirty: its share of the time until nothing was.
    pub cleaning_s: f64,
    /// By so much the measured time is longer.
    pub counts_s: f64,
    /// Where requests came at their own times: by so much the machine fell behind them, with what
    /// the last answer was late.
    pub behind_s: f64,
}

/// Counters at the start of the measured time.
pub(crate) struct Baseline {
    pub from: Instant,
    pub slices: Vec<SliceStats>,
    pub plans: PlanCounts,
    pub rebuild: Option<JobStatus>,
    /// Of which something was dirty, where that is asked for.
    pub dirty_stripes: u64,
    /// What the drives held took so long to write, likewise.
    pub drives_s: f64,
}

impl Baseline {
    /// From now on things count; what the devices did so far is forgotten.
    pub(crate) fn take(machine: &Machine, from: Instant) -> Self {
        machine.reset_probes();
        let stats = machine.volume.stats();
        let rebuild = Rebuilt::job(&machine.volume);
        Self {
            from,
            slices: stats.slices,
            plans: stats.array,
            rebuild,
            dirty_stripes: 0,
            drives_s: 0.0,
        }
    }
}

impl Rebuilt {
    /// Between two looks at it that lie so far apart.
    pub(crate) fn between(before: &JobStatus, after: &JobStatus, seconds: f64) -> Self {
        let rate = (after.done_bytes - before.done_bytes) as f64 / seconds;
        let hours = after.total_bytes as f64 / rate.max(1.0) / 3600.0;
        Self { mb_per_s: rate / 1e6, hours }
    }

    /// The rebuild of a volume, while it is under way.
    pub(crate) fn job(volume: &Volume) -> Option<JobStatus> {
        let mut jobs = volume.status().jobs.into_iter();
        jobs.find(|job| matches!(job.job, JobKind::Rebuild | JobKind::StandIn))
    }
}

impl DeviceShare {
    pub(crate) fn of(probes: &[ProbeSnapshot], seconds: f64) -> Self {
        if probes.is_empty() || seconds <= 0.0 {
            return Self::default();
        }
        let busy = probes.iter().map(|probe| (probe.busy_nanos as f64 / 1e9 / seconds).min(1.0));
        let sum = |pick: fn(&ProbeSnapshot) -> ProbeCounts| {
            probes.iter().map(pick).fold((0, 0, 0), |(requests, bytes, nanos), counts| {
                (requests + counts.requests, bytes + counts.bytes, nanos + counts.nanos_total)
            })
        };
        let (reads, read_bytes, read_nanos) = sum(|probe| probe.reads);
        let (writes, written_bytes, write_nanos) = sum(|probe| probe.writes);
        let mean = |nanos: u64, requests: u64| nanos as f64 / 1e3 / requests.max(1) as f64;
        Self {
            devices: probes.len(),
            busy_mean: busy.clone().sum::<f64>() / probes.len() as f64,
            busy_max: busy.fold(0.0, f64::max),
            reads_per_s: reads as f64 / seconds,
            writes_per_s: writes as f64 / seconds,
            read_mb_per_s: read_bytes as f64 / 1e6 / seconds,
            written_mb_per_s: written_bytes as f64 / 1e6 / seconds,
            read_mean_us: mean(read_nanos, reads),
            write_mean_us: mean(write_nanos, writes),
        }
    }
}

impl EngineShare {
    pub(crate) fn of(engine: &EngineDevice, seconds: f64) -> Self {
        let busy = engine.busy().as_secs_f64() / seconds.max(f64::MIN_POSITIVE);
        Self { name: engine.name_of_model().to_owned(), busy: busy.min(1.0) }
    }
}

impl CacheShare {
    pub(crate) fn of(
        before: &[SliceStats],
        after: &[SliceStats],
        device: DeviceShare,
        seconds: f64,
    ) -> Self {
        let since = |pick: fn(&SliceStats) -> u64| {
            after.iter().map(pick).sum::<u64>() - before.iter().map(pick).sum::<u64>()
        };
        let (reads, hits) =
            (since(|slice| slice.counters.read.requests), since(|slice| slice.counters.read.hits));
        Self {
            device,
            read_hit_ratio: hits as f64 / reads.max(1) as f64,
            dirty_ratio: dirty_ratio(after),
            cleaned_per_s: since(|slice| slice.counters.cleaned_blocks) as f64 / seconds,
            cleaning_writes_per_s: since(|slice| slice.counters.cleaning_writes) as f64 / seconds,
            waited: since(|slice| slice.counters.throttled),
            bypassed: since(|slice| {
                slice.counters.read.pass_through + slice.counters.write.pass_through
            }),
        }
    }
}

/// What is dirty, of what may be.
pub(crate) fn dirty_ratio(slices: &[SliceStats]) -> f64 {
    let sum = |pick: fn(&SliceStats) -> u64| slices.iter().map(pick).sum::<u64>();
    sum(|slice| slice.dirty_bytes) as f64 / sum(|slice| slice.dirty_bytes_max).max(1) as f64
}

impl Plans {
    pub(crate) fn since(before: &PlanCounts, after: &PlanCounts) -> Self {
        Self {
            full_stripe: after.full_stripe_writes - before.full_stripe_writes,
            reconstruct: after.reconstruct_writes - before.reconstruct_writes,
            read_modify: after.read_modify_writes - before.read_modify_writes,
        }
    }

    fn total(&self) -> u64 {
        self.full_stripe + self.reconstruct + self.read_modify
    }
}

/// Says where the time went, from what was counted.
pub(crate) fn explain(outcome: &Outcome) -> Vec<String> {
    let mut why = Vec::new();
    let drives = &outcome.drives;
    if let Some(replay) = &outcome.replay {
        why.extend(replay.remarks());
    }
    let asked: f64 =
        outcome.jobs.iter().map(|job| job.measured.read.iops + job.measured.write.iops).sum();
    if asked <= 0.0 {
        return vec!["nothing was answered in the measured time".into()];
    }
    let per_request = (drives.reads_per_s + drives.writes_per_s) / asked;
    why.push(format!(
        "each request cost {per_request:.2} operations on drives ({:.2} reads, {:.2} writes)",
        drives.reads_per_s / asked,
        drives.writes_per_s / asked
    ));
    let plans = &outcome.plans;
    if plans.total() > 0 {
        let percent = |count: u64| 100.0 * count as f64 / plans.total() as f64;
        why.push(format!(
            "the array wrote {:.0} % by read-modify-write, {:.0} % by reconstruct, {:.0} % in full stripes",
            percent(plans.read_modify),
            percent(plans.reconstruct),
            percent(plans.full_stripe)
        ));
    }
    why.push(format!(
        "a drive was busy {:.0} % of the time (the busiest {:.0} %); a read took it {:.1} ms with its queue, a write {:.1} ms",
        100.0 * drives.busy_mean,
        100.0 * drives.busy_max,
        drives.read_mean_us / 1e3,
        drives.write_mean_us / 1e3
    ));
    if let Some(Rebuilt { mb_per_s, hours }) = outcome.rebuilt {
        why.push(format!("a drive was rebuilt beside it at {mb_per_s:.1} MB/s: {hours:.0} h"));
    }
    if let Some(cache) = &outcome.cache {
        why.push(explain_cache(cache));
    }
    if let Some(EngineShare { name, busy }) = &outcome.engine {
        why.push(format!(
            "the core that serves as {name} was busy {:.0} % of the time",
            100.0 * busy
        ));
    }
    why
}

fn explain_cache(cache: &CacheShare) -> String {
    let mut text = format!(
        "the cache answered {:.0} % of the reads, ended {:.0} % dirty and sent {:.0} blocks/s to the array in {:.0} writes/s",
        100.0 * cache.read_hit_ratio,
        100.0 * cache.dirty_ratio,
        cache.cleaned_per_s,
        cache.cleaning_writes_per_s
    );
    if cache.waited > 0 {
        text += &format!("; {} writes waited for the cleaner", cache.waited);
    }
    if cache.bypassed > 0 {
        text += &format!("; {} requests went past it", cache.bypassed);
    }
    text
}
