//! Drives and arrays measured in virtual time.

use super::drive::DriveFigures;
use super::speed::STREAM_BYTES;
use super::{AtDepth, Shape, Speeds};
use crate::condition::Condition;
use crate::job::{Job, Rw};
use crate::load::Load;
use crate::models;
use crate::outcome::Outcome;
use crate::progress::Gauge;
use crate::simulate::{Experiment, SimulateError, simulate_all};
use crate::stack::{CoreStack, Stack};
use headpond_raid::Level;
use headpond_sim::Model;
use headpond_volume::{ArraySettings, Size};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// In flight where a drive is to be as busy as it can be.
const FULL_DEPTH: u32 = 32;
/// Writes so far apart that each has left the drive's cache before the next comes.
const SPACED_IOPS: u64 = 20;

/// What is assumed of drives whose model does not say how they fail: data sheets of nearline disks,
/// and of solid state drives for servers.
const DISK: (f64, f64) = (1e15, 0.0063);
const SOLID_STATE: (f64, f64) = (1e17, 0.0044);

/// What the simulator says of an array in one condition.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Simulated {
    pub condition: Condition,
    pub by_depth: Vec<AtDepth>,
    /// At each depth, what a rebuild at the usual pace would take beside random writes like these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rebuild_hours: Vec<f64>,
}

/// How one experiment loads the array.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    is_random: bool,
    reads: bool,
}

pub(super) const KINDS: [Kind; 4] = [
    Kind { is_random: true, reads: true },
    Kind { is_random: true, reads: false },
    Kind { is_random: false, reads: true },
    Kind { is_random: false, reads: false },
];

/// The figures of a modelled drive, from runs of one such drive alone.
pub(super) fn figures(word: &str, model: &Model) -> Result<DriveFigures, SimulateError> {
    let capacity_bytes = model.capacity_bytes().unwrap_or_default();
    let (unreadable_bits, failures_per_year) =
        if matches!(model, Model::Hdd(_)) { DISK } else { SOLID_STATE };
    let experiments = drive_experiments(word, capacity_bytes);
    let outcomes = outcomes(&experiments, &Gauge::for_each(experiments.len()))?;
    let [read, write, inner] = [4, 5, 6].map(|at: usize| &outcomes[at].jobs[0].measured);
    let speeds = speeds(&outcomes[..4]);
    Ok(DriveFigures {
        name: model.name().to_owned(),
        description: model.description().to_owned(),
        model: word.to_owned(),
        source: "the model, measured in virtual time; how it fails is assumed".to_owned(),
        capacity_bytes,
        random_read_iops: speeds.random_read_iops,
        random_write_iops: speeds.random_write_iops,
        read_ms: None,
        write_ms: None,
        lone_read_ms: read.read.latency.mean_us / 1000.0,
        lone_read_deviation_ms: read.read.latency.deviation_us / 1000.0,
        lone_write_ms: Some(write.write.latency.mean_us / 1000.0),
        revolution_ms: match model {
            Model::Hdd(model) => model.revolution_ns() as f64 / 1e6,
            _ => 0.0,
        },
        sequential_read_mb_per_s: speeds.sequential_read_mb_per_s,
        sequential_write_mb_per_s: speeds.sequential_write_mb_per_s,
        inner_share: (inner.read.mb_per_s / speeds.sequential_read_mb_per_s).min(1.0),
        unreadable_bits,
        failures_per_year,
    })
}

/// The four kinds with as much in flight as gains something, a lone read, a lone write that finds
/// nothing in the drive's cache, and the inner edge.
fn drive_experiments(model: &str, capacity_bytes: u64) -> Vec<Experiment> {
    let shape =
        Shape { level: Level::Raid0, members: 1, groups: 1, spread: None, strip_bytes: 64 << 10 };
    let [random_read, random_write, stream, _] = KINDS;
    let spaced = Job { rate_iops: Some(SPACED_IOPS), ..job(model, random_write, 1) };
    let end = capacity_bytes - capacity_bytes / 50;
    let inner = Job { offset: end, ..job(model, stream, FULL_DEPTH) };
    let others = [job(model, random_read, 1), spaced, inner];
    let jobs = KINDS.iter().map(|&kind| job(model, kind, FULL_DEPTH)).chain(others);
    let core = core(shape, model, Condition::Healthy);
    jobs.map(|job| experiment(&shape.to_string(), &core, job)).collect()
}

/// What the simulator says of an array in these conditions, at each of some depths: four
/// experiments each.
pub fn array_experiments(
    shape: Shape,
    model: &str,
    conditions: &[Condition],
    depths: &[u32],
) -> Vec<Experiment> {
    let of_condition = |&condition: &Condition| {
        let (name, core) = (shape.to_string(), core(shape, model, condition));
        let of =
            move |&depth: &u32| KINDS.map(|kind| experiment(&name, &core, job(model, kind, depth)));
        depths.iter().flat_map(of).collect::<Vec<_>>()
    };
    conditions.iter().flat_map(of_condition).collect()
}

/// The outcomes of [`array_experiments`].
///
/// # Panics
/// Where they are not four for each depth and condition.
pub fn array_speeds(
    conditions: &[Condition],
    depths: &[u32],
    outcomes: &[Outcome],
) -> Vec<Simulated> {
    let of_each = depths.len() * KINDS.len();
    assert_eq!(outcomes.len(), conditions.len() * of_each, "four for each depth and condition");
    let of_condition = |(at, &condition): (usize, &Condition)| {
        let outcomes = &outcomes[at * of_each..(at + 1) * of_each];
        let each = || depths.iter().zip(outcomes.chunks(KINDS.len()));
        let speeds = |(&depth, of): (&u32, &[Outcome])| AtDepth { depth, speeds: speeds(of) };
        // The second kind writes at random.
        let hours = |(_, of): (&u32, &[Outcome])| Some(of[1].rebuilt?.hours);
        let (by_depth, rebuild_hours) =
            (each().map(speeds).collect(), each().filter_map(hours).collect());
        Simulated { condition, by_depth, rebuild_hours }
    };
    conditions.iter().enumerate().map(of_condition).collect()
}

pub(super) fn job(model: &str, kind: Kind, depth: u32) -> Job {
    let (ramp, runtime) = times(model, kind);
    Job {
        rw: Rw { is_random: kind.is_random, reads: kind.reads, writes: !kind.reads },
        read_percent: if kind.reads { 100 } else { 0 },
        block_bytes: if kind.is_random { 4096 } else { STREAM_BYTES },
        depth,
        ramp,
        runtime: Some(runtime),
        is_time_based: true,
        ..Job::default()
    }
}

pub(super) fn core(shape: Shape, model: &str, condition: Condition) -> CoreStack {
    CoreStack {
        raid: shape.level,
        groups: shape.groups,
        declustered: shape.spread,
        strip: Size(u64::from(shape.strip_bytes)),
        drives: shape.members,
        condition,
        ..CoreStack::single(model)
    }
}

fn experiment(name: &str, core: &CoreStack, job: Job) -> Experiment {
    let stack = Stack {
        name: name.to_owned(),
        engine: None,
        arrays: 1,
        core: core.clone(),
        array: ArraySettings::default(),
        cache: None,
    };
    Experiment { stack, load: Load::Jobs(vec![job]), seed: 1 }
}

/// Ramp and measured time. Disks are slow to fill their caches with random writes; what streams
/// reaches its rate soon, and solid state does much in a second.
fn times(model: &str, kind: Kind) -> (Duration, Duration) {
    let is_solid = matches!(models::load(model), Ok(Model::Ssd(_)));
    let seconds = match (is_solid, kind.is_random) {
        (true, _) => (1, 1),
        (false, true) => (60, 60),
        (false, false) => (10, 20),
    };
    (Duration::from_secs(seconds.0), Duration::from_secs(seconds.1))
}

fn outcomes(
    experiments: &[Experiment],
    gauges: &[Arc<Gauge>],
) -> Result<Vec<Outcome>, SimulateError> {
    simulate_all(experiments, gauges).into_iter().collect()
}

/// Of the four kinds, in their order.
fn speeds(outcomes: &[Outcome]) -> Speeds {
    let of = |at: usize| &outcomes[at].jobs[0].measured;
    Speeds {
        random_read_iops: of(0).read.iops,
        random_write_iops: of(1).write.iops,
        sequential_read_mb_per_s: of(2).read.mb_per_s,
        sequential_write_mb_per_s: of(3).write.mb_per_s,
    }
}
