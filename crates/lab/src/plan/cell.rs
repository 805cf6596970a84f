//! One combination of the matrix.

use super::Plan;
use super::matrix::{self, Flushes};
use headpond_volume::Size;
use headpond_whatif::{Arrivals, Job};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What is measured in one go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Its place in the plan, which is its name in results.
    pub number: usize,
    /// Index of the target.
    pub target: usize,
    pub settings: BTreeMap<String, toml::Value>,
    pub load: CellLoad,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellLoad {
    pub rw: String,
    /// Percent that read, where both are made.
    pub mix: Option<u32>,
    pub bs: Size,
    pub jobs: u32,
    pub depth: u32,
    pub sync: Sync,
    /// Requests a second; with none, each is sent when an earlier one was answered.
    pub rate: Option<f64>,
}

/// When writes become stable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sync {
    /// When the device likes.
    #[default]
    None,
    /// A flush after each write.
    Fdatasync,
    /// Likewise; on a file, with its times.
    Fsync,
    /// Each write by itself.
    Fua,
}

impl Sync {
    /// Whether each write has a flush of its own.
    pub(crate) fn is_flushed(&self) -> bool {
        matches!(self, Self::Fdatasync | Self::Fsync)
    }
}

impl fmt::Display for Sync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Fdatasync => "fdatasync",
            Self::Fsync => "fsync",
            Self::Fua => "fua",
        })
    }
}

impl CellLoad {
    /// Whether it changes what the target holds.
    pub fn writes(&self) -> bool {
        matrix::phases(&self.rw).is_ok_and(|phases| phases.iter().any(|rw| rw.writes))
    }

    /// Without what says how much at once.
    pub fn request(&self) -> String {
        let mix = self.mix.map(|mix| format!(" {mix}/{}", 100 - mix)).unwrap_or_default();
        let sync = match self.sync {
            Sync::None => String::new(),
            sync => format!(" {sync}"),
        };
        format!("{}{mix} {}{sync}", self.rw, self.bs)
    }

    /// What says how much at once.
    pub fn parallel(&self) -> String {
        match self.rate {
            Some(rate) => format!("{rate}/s {}x{}", self.jobs, self.depth),
            None => format!("{}x{}", self.jobs, self.depth),
        }
    }

    /// The same as a number to sort by.
    pub(crate) fn how_much(&self) -> f64 {
        self.rate.unwrap_or(f64::from(self.in_flight()))
    }

    pub fn in_flight(&self) -> u32 {
        self.jobs * self.depth
    }
}

impl fmt::Display for CellLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.request(), self.parallel())
    }
}

impl Cell {
    /// What a person calls it.
    pub fn title(&self, plan: &Plan) -> String {
        let settings = self.settings_text();
        let target = &plan.targets[self.target].name;
        let between = if settings.is_empty() { "" } else { ", " };
        format!("{target}{between}{settings}: {}", self.load)
    }

    pub fn settings_text(&self) -> String {
        let each = self.settings.iter().map(|(name, value)| format!("{name} {}", plain(value)));
        each.collect::<Vec<_>>().join(", ")
    }

    /// The value of an axis of the plan by its name.
    pub fn axis(&self, plan: &Plan, axis: &str) -> Option<String> {
        Some(match axis {
            "target" => plan.targets[self.target].name.clone(),
            "rw" => self.load.rw.clone(),
            "mix" => self.load.mix?.to_string(),
            "bs" => self.load.bs.to_string(),
            "jobs" => self.load.jobs.to_string(),
            "depth" => self.load.depth.to_string(),
            "sync" => self.load.sync.to_string(),
            "rate" => self.load.rate?.to_string(),
            setting => plain(self.settings.get(setting)?),
        })
    }

    /// The jobs of each phase of a round, on all of the target.
    pub(crate) fn phases(&self, plan: &Plan) -> Vec<Vec<Job>> {
        let load = &self.load;
        let phases = matrix::phases(&load.rw).expect("the plan was checked");
        let arrivals = load.rate.map(|per_s| Arrivals { per_s, process: plan.arrivals });
        let target = &plan.targets[self.target];
        let size = plan.matrix.size.or(target.size).map(|size| size.bytes());
        let jobs = phases.into_iter().enumerate().map(|(phase, rw)| Job {
            name: own(phase),
            rw,
            read_percent: load.mix.unwrap_or(50),
            block_bytes: load.bs.bytes(),
            depth: load.depth,
            jobs: load.jobs,
            size,
            arrivals,
            flush_every: u32::from(load.sync.is_flushed()),
            flushes_in_turn: plan.matrix.flushes == Flushes::InTurn,
            fua: load.sync == Sync::Fua,
            ..Job::default()
        });
        let beside = |phase: usize| {
            let all = plan.beside.iter().enumerate();
            all.map(move |(number, job)| Job { name: beside(number, phase), ..job.job() })
        };
        jobs.enumerate()
            .map(|(phase, job)| [job].into_iter().chain(beside(phase)).collect())
            .collect()
    }
}

/// What a job of the matrix is called in results: its phase.
pub(crate) fn own(phase: usize) -> String {
    format!("own-{phase}")
}

/// What a job beside it is called: its place in the plan, and the phase.
pub(crate) fn beside(number: usize, phase: usize) -> String {
    format!("beside-{number}-{phase}")
}

/// Whether a job of results is of the matrix.
pub(crate) fn is_own(name: &str) -> bool {
    name.starts_with("own-")
}

/// A value as people write it, without quotes.
pub(crate) fn plain(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}
