//! Drives and arrays measured in virtual time.

use super::drive::DriveFigures;
use super::speed::STREAM_BYTES;
use super::{AtDepth, Shape, Speeds};
use crate::job::{Job, Rw};
use crate::load::Load;
use crate::models;
use crate::outcome::Outcome;
use crate::progress::Gauge;
use crate::simulate::{Experiment, SimulateError, simulate_all};
use crate::stack::{CoreStack, Stack};
use headpond_raid::Level;
use headpond_sim::Model;
use headpond_sim::ssd::State;
use headpond_volume::{ArraySettings, Size};
use std::sync::Arc;
use std::time::Duration;

/// In flight where a drive is to be as busy as it can be.
const FULL_DEPTH: u32 = 32;

/// What is assumed of drives whose model does not say how they fail: data sheets of nearline disks,
/// and of solid state drives for servers.
const DISK: (f64, f64) = (1e15, 0.0063);
const SOLID_STATE: (f64, f64) = (1e17, 0.0044);

/// How one experiment loads the array.
#[derive(Clone, Copy)]
struct Kind {
    is_random: bool,
    reads: bool,
}

const KINDS: [Kind; 4] = [
    Kind { is_random: true, reads: true },
    Kind { is_random: true, reads: false },
    Kind { is_random: false, reads: true },
    Kind { is_random: false, reads: false },
];

/// The figures of a modelled drive, from runs of one such drive alone.
pub(super) fn figures(word: &str, model: &Model) -> Result<DriveFigures, SimulateError> {
    let shape =
        Shape { level: Level::Raid0, members: 1, groups: 1, spread: None, strip_bytes: 64 << 10 };
    let alone = Kind { is_random: true, reads: true };
    let capacity_bytes = model.capacity_bytes().unwrap_or_default();
    let inner = Kind { is_random: false, reads: true };
    let mut experiments = experiments(shape, word, FULL_DEPTH);
    experiments.push(experiment(shape, word, alone, 1, 0));
    let end = capacity_bytes - capacity_bytes / 50;
    experiments.push(experiment(shape, word, inner, FULL_DEPTH, end));
    let outcomes = outcomes(&experiments, &Gauge::for_each(experiments.len()))?;
    let speeds = speeds(&outcomes[..4]);
    let (unreadable_bits, failures_per_year) =
        if matches!(model, Model::Hdd(_)) { DISK } else { SOLID_STATE };
    let inner_share = outcomes[5].jobs[0].measured.read.mb_per_s / speeds.sequential_read_mb_per_s;
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
        lone_read_ms: outcomes[4].jobs[0].measured.read.latency.mean_us / 1000.0,
        sequential_read_mb_per_s: speeds.sequential_read_mb_per_s,
        sequential_write_mb_per_s: speeds.sequential_write_mb_per_s,
        inner_share: inner_share.min(1.0),
        unreadable_bits,
        failures_per_year,
    })
}

/// What the simulator says of an array, at each of some depths: four experiments each.
pub fn array_experiments(shape: Shape, model: &str, depths: &[u32]) -> Vec<Experiment> {
    depths.iter().flat_map(|&depth| experiments(shape, model, depth)).collect()
}

/// The outcomes of [`array_experiments`].
///
/// # Panics
/// Where they are not four for each depth.
pub fn array_speeds(depths: &[u32], outcomes: &[Outcome]) -> Vec<AtDepth> {
    assert_eq!(outcomes.len(), depths.len() * KINDS.len(), "four for each depth");
    let each = depths.iter().zip(outcomes.chunks(KINDS.len()));
    each.map(|(&depth, outcomes)| AtDepth { depth, speeds: speeds(outcomes) }).collect()
}

fn experiments(shape: Shape, model: &str, depth: u32) -> Vec<Experiment> {
    KINDS.iter().map(|&kind| experiment(shape, model, kind, depth, 0)).collect()
}

fn experiment(shape: Shape, model: &str, kind: Kind, depth: u32, offset: u64) -> Experiment {
    let (ramp, runtime) = times(model);
    let job = Job {
        rw: Rw { is_random: kind.is_random, reads: kind.reads, writes: !kind.reads },
        read_percent: if kind.reads { 100 } else { 0 },
        block_bytes: if kind.is_random { 4096 } else { STREAM_BYTES },
        depth,
        offset,
        ramp,
        runtime: Some(runtime),
        is_time_based: true,
        ..Job::default()
    };
    let core = CoreStack {
        raid: shape.level,
        groups: shape.groups,
        declustered: shape.spread,
        strip: Size(u64::from(shape.strip_bytes)),
        drive: model.to_owned(),
        drives: shape.members,
        drive_write_cache: None,
        drive_state: State::default(),
        controller: None,
        network: None,
        intent: false,
    };
    let stack = Stack {
        name: shape.to_string(),
        engine: None,
        core,
        array: ArraySettings::default(),
        cache: None,
    };
    Experiment { stack, load: Load::Jobs(vec![job]), seed: 1 }
}

/// Ramp and measured time. Disks are slow to fill their caches; solid state does much in a second.
fn times(model: &str) -> (Duration, Duration) {
    let seconds = if matches!(models::load(model), Ok(Model::Ssd(_))) { (1, 1) } else { (60, 60) };
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
