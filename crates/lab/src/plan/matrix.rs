//! The lists whose combinations are measured.

use super::cell::{CellLoad, Sync};
use super::error::PlanError;
use headpond_volume::Size;
use headpond_whatif::{Job, Rw, job};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Each combination of one value of each list is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Matrix {
    /// fio's words: read, randwrite, randrw ...; words joined by `+` follow each other in a round.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rw: Vec<String>,
    /// Percent that read, where both are made.
    #[serde(default = "half")]
    pub mix: Vec<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bs: Vec<Size>,
    /// Both in pairs ("randread 4K"), in the place of every combination of them; a third word
    /// ("4x32") says how many jobs of which depth, in the place of those below, and "4x32/drive"
    /// for each drive of a target that says how many it has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<String>,
    #[serde(default = "ones")]
    pub jobs: Vec<u32>,
    #[serde(default = "ones")]
    pub depth: Vec<u32>,
    /// Jobs and depth in pairs ("4x32"), in the place of every combination of both.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs_x_depth: Vec<String>,
    #[serde(default = "no_sync")]
    pub sync: Vec<Sync>,
    /// What a flush keeps from going on.
    #[serde(default, skip_serializing_if = "Flushes::go_side_by_side")]
    pub flushes: Flushes,
    /// Requests a second of an open loop; with none, the loop is closed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rate: Vec<f64>,
    /// What is used of the target; all of it where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// Settings of the target, each with the values that it takes: paths of a machine's file
    /// (`cache.mode`, `core.strip`), settings of a served volume, or what the target's `set` hook
    /// knows.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, Vec<toml::Value>>,
}

/// What a flush after a write keeps from going on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flushes {
    /// Nothing: each request in flight has its own, as where so many clients commit.
    #[default]
    SideBySide,
    /// The rest of its job, until the write and its flush are answered: as where one thread
    /// submits and carries out fdatasync(2) itself, which fio's libaio does.
    InTurn,
}

impl Flushes {
    fn go_side_by_side(&self) -> bool {
        *self == Self::SideBySide
    }
}

/// A job that runs beside those of every cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Beside {
    pub name: String,
    pub rw: String,
    #[serde(default = "fifty")]
    pub mix: u32,
    pub bs: Size,
    /// Of the beginning of the target; all of it where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    #[serde(default = "one")]
    pub jobs: u32,
    #[serde(default = "one")]
    pub depth: u32,
}

fn half() -> Vec<u32> {
    vec![50]
}

fn ones() -> Vec<u32> {
    vec![1]
}

fn no_sync() -> Vec<Sync> {
    vec![Sync::None]
}

const fn fifty() -> u32 {
    50
}

const fn one() -> u32 {
    1
}

/// Requests of more bytes than this are no question that anybody has.
const BLOCK_BYTES_MAX: u64 = 16 << 20;
const IN_FLIGHT_MAX: u32 = 65_536;
const CELLS_MAX: usize = 100_000;

impl Matrix {
    pub(super) fn check(&self) -> Result<(), PlanError> {
        let has_pairs = !self.requests.is_empty();
        if has_pairs && !(self.rw.is_empty() && self.bs.is_empty()) {
            let way_out = "give one or the other";
            return Err(PlanError::field("matrix.requests", "rw or bs is there too", way_out));
        }
        let lists = [
            ("rw", self.rw.is_empty() && !has_pairs),
            ("bs", self.bs.is_empty() && !has_pairs),
            ("mix", self.mix.is_empty()),
            ("jobs", self.jobs.is_empty()),
            ("depth", self.depth.is_empty()),
            ("sync", self.sync.is_empty()),
        ];
        if let Some((name, _)) = lists.into_iter().find(|(_, is_empty)| *is_empty) {
            let field = format!("matrix.{name}");
            return Err(PlanError::field(
                field,
                "the list is empty",
                "give a value or leave it out",
            ));
        }
        for Asked { word, bs, parallel } in self.asked()? {
            phases(&word)?;
            check_bytes("matrix.bs", bs)?;
            if let Some(Parallel { jobs, depth, .. }) = parallel {
                check_parallel("matrix.requests", jobs, depth)?;
            }
        }
        if let Some(mix) = self.mix.iter().find(|&&mix| mix > 100) {
            let cause = format!("{mix} is over 100");
            return Err(PlanError::field("matrix.mix", cause, "it is the percentage that reads"));
        }
        for (jobs, depth) in self.parallel()? {
            check_parallel("matrix", jobs, depth)?;
        }
        if let Some(rate) = self.rate.iter().find(|rate| !(0.001..=1e9).contains(*rate)) {
            let cause = format!("{rate} is no rate");
            return Err(PlanError::field("matrix.rate", cause, "give requests a second"));
        }
        if !self.rate.is_empty() && self.parallel()?.len() > 1 {
            let cause = "a rate does not depend on how many jobs there are, or how deep they are";
            let way_out = "give one value for jobs and depth";
            return Err(PlanError::field("matrix.rate", cause, way_out));
        }
        if let Some((name, _)) = self.settings.iter().find(|(_, values)| values.is_empty()) {
            let field = format!("matrix.settings.{name}");
            return Err(PlanError::field(field, "it has no value", "give one or leave it out"));
        }
        let cells = self.settings().len() * self.loads(1).len();
        if cells > CELLS_MAX {
            let cause = format!("these are {cells} cells for each target");
            return Err(PlanError::field("matrix", cause, "measure at most 100,000"));
        }
        Ok(())
    }

    /// Jobs and depths, as pairs.
    fn parallel(&self) -> Result<Vec<(u32, u32)>, PlanError> {
        if self.jobs_x_depth.is_empty() {
            let of = |&jobs: &u32| self.depth.iter().map(move |&depth| (jobs, depth));
            return Ok(self.jobs.iter().flat_map(of).collect());
        }
        let pairs = self.jobs_x_depth.iter().map(|text| {
            let cause = format!("{text:?} is no pair");
            jobs_x_depth(text)
                .ok_or_else(|| PlanError::field("matrix.jobs_x_depth", cause, "write 4x32"))
        });
        pairs.collect()
    }

    /// What is asked for and in which size.
    fn asked(&self) -> Result<Vec<Asked>, PlanError> {
        if self.requests.is_empty() {
            let of = |word: &String| {
                let word = word.clone();
                let each = self.bs.iter();
                let each = each.map(|&bs| Asked { word: word.clone(), bs, parallel: None });
                each.collect::<Vec<_>>()
            };
            return Ok(self.rw.iter().flat_map(of).collect());
        }
        let asked = self.requests.iter().map(|text| {
            let cause = format!("{text:?} is no request");
            let way_out =
                "write \"randread 4K\", \"randread 4K 4x32\" or \"randread 4K 1x32/drive\"";
            Asked::parse(text).ok_or_else(|| PlanError::field("matrix.requests", cause, way_out))
        });
        asked.collect()
    }

    /// Every combination of settings, in order.
    pub(super) fn settings(&self) -> Vec<BTreeMap<String, toml::Value>> {
        let mut all = vec![BTreeMap::new()];
        for (name, values) in &self.settings {
            let with = |one: &BTreeMap<String, toml::Value>| {
                let each = values.iter().map(|value| {
                    let mut one = one.clone();
                    one.insert(name.clone(), value.clone());
                    one
                });
                each.collect::<Vec<_>>()
            };
            all = all.iter().flat_map(with).collect();
        }
        all
    }

    /// Whether some depth is that of one drive.
    pub(super) fn is_per_drive(&self) -> bool {
        let is_it = |asked: &Asked| asked.parallel.is_some_and(|it| it.per == Per::Drive);
        self.asked().is_ok_and(|asked| asked.iter().any(is_it))
    }

    /// Whether some write has a flush that holds up its job.
    pub(crate) fn flushes_in_turn(&self) -> bool {
        self.flushes == Flushes::InTurn && self.sync.iter().any(Sync::is_flushed)
    }

    /// Whether writes have a flush of their own, and reads are made between them.
    pub(super) fn flushes_among_reads(&self) -> bool {
        let is_it = |asked: &Asked| phases(&asked.word).is_ok_and(|all| all.iter().any(is_mixed));
        let asked = self.asked().unwrap_or_default();
        self.sync.iter().any(Sync::is_flushed) && asked.iter().any(is_it)
    }

    /// Every load of a target of so many drives, in order; the mix only where it means something.
    pub(super) fn loads(&self, drives: u16) -> Vec<CellLoad> {
        let rates: Vec<_> = match self.rate.is_empty() {
            true => vec![None],
            false => self.rate.iter().copied().map(Some).collect(),
        };
        let mut loads = Vec::new();
        for Asked { word, bs, parallel } in self.asked().unwrap_or_default() {
            let parallel = parallel.map(|it| vec![it.on(drives)]);
            let parallel = parallel.unwrap_or_else(|| self.parallel().unwrap_or_default());
            let is_mixed = phases(&word).is_ok_and(|phases| phases.iter().any(is_mixed));
            let writes = phases(&word).is_ok_and(|phases| phases.iter().any(|rw| rw.writes));
            let mixes = if is_mixed { &self.mix[..] } else { &self.mix[..1] };
            // What only reads has nothing to make stable.
            let syncs = if writes { &self.sync[..] } else { &[Sync::None][..] };
            for &mix in mixes {
                for &sync in syncs {
                    for &(jobs, depth) in &parallel {
                        for &rate in &rates {
                            let (rw, mix) = (word.clone(), is_mixed.then_some(mix));
                            loads.push(CellLoad { rw, mix, bs, jobs, depth, sync, rate });
                        }
                    }
                }
            }
        }
        loads
    }
}

/// What is asked for, in which size, and how much at once where that is said with it.
struct Asked {
    word: String,
    bs: Size,
    parallel: Option<Parallel>,
}

/// How many jobs of which depth.
#[derive(Clone, Copy, Debug)]
struct Parallel {
    jobs: u32,
    depth: u32,
    per: Per,
}

/// What a depth is that of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Per {
    Target,
    Drive,
}

impl Parallel {
    fn parse(text: &str) -> Option<Self> {
        let (pair, per) = match text.strip_suffix("/drive") {
            Some(pair) => (pair, Per::Drive),
            None => (text, Per::Target),
        };
        let (jobs, depth) = jobs_x_depth(pair)?;
        Some(Self { jobs, depth, per })
    }

    /// Jobs and their depth on a target of so many drives.
    fn on(self, drives: u16) -> (u32, u32) {
        match self.per {
            Per::Target => (self.jobs, self.depth),
            Per::Drive => (self.jobs, self.depth.saturating_mul(u32::from(drives))),
        }
    }
}

impl Asked {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let (word, bs) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
        let parallel = match words.next() {
            Some(parallel) => Some(Parallel::parse(parallel)?),
            None => None,
        };
        words.next().is_none().then_some(Self { word, bs, parallel })
    }
}

/// "4x32".
fn jobs_x_depth(text: &str) -> Option<(u32, u32)> {
    let (jobs, depth) = text.split_once('x')?;
    Some((jobs.trim().parse().ok()?, depth.trim().parse().ok()?))
}

impl Beside {
    pub(super) fn check(&self) -> Result<(), PlanError> {
        phases(&self.rw)?;
        check_bytes("beside.bs", self.bs)?;
        check_parallel("beside", self.jobs, self.depth)
    }

    pub(crate) fn job(&self) -> Job {
        Job {
            name: self.name.clone(),
            rw: job::rw(&self.rw).expect("it was checked"),
            read_percent: self.mix,
            block_bytes: self.bs.bytes(),
            size: self.size.map(|size| size.bytes()),
            jobs: self.jobs,
            depth: self.depth,
            ..Job::default()
        }
    }
}

/// The phases that a word of fio's, or several joined by `+`, stand for.
pub(super) fn phases(word: &str) -> Result<Vec<Rw>, PlanError> {
    let phase = |part: &str| {
        let cause = format!("{part:?} is none of read, write, rw, randread, randwrite, randrw");
        job::rw(part).ok_or_else(|| PlanError::field("rw", cause, "use one of them"))
    };
    word.split('+').map(phase).collect()
}

fn is_mixed(rw: &Rw) -> bool {
    rw.reads && rw.writes
}

fn check_bytes(field: &str, size: Size) -> Result<(), PlanError> {
    let bytes = size.bytes();
    match bytes > 0 && bytes.is_multiple_of(512) && bytes <= BLOCK_BYTES_MAX {
        true => Ok(()),
        false => {
            let cause = format!("{size} is no size of a request");
            Err(PlanError::field(field, cause, "take a multiple of 512 bytes up to 16M"))
        }
    }
}

pub(super) fn check_parallel(field: &str, jobs: u32, depth: u32) -> Result<(), PlanError> {
    match jobs > 0 && depth > 0 && jobs.saturating_mul(depth) <= IN_FLIGHT_MAX {
        true => Ok(()),
        false => {
            let cause = format!("{jobs} jobs of depth {depth}");
            Err(PlanError::field(field, cause, "from 1 to 65,536 requests are in flight"))
        }
    }
}
