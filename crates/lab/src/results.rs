//! What a folder of results says of each cell.

pub(crate) mod folder;

pub use folder::{Ending, Folder, FolderError, Line};

use crate::environment::Environment;
use crate::plan::{Cell, Plan, beside, is_own};
use crate::statistics::{Pattern, Spread, outliers, pattern, spread};
use headpond_whatif::Bins;
use headpond_whatif::rounds::{JobRound, Round};
use serde::Serialize;
use std::path::Path;

/// Everything that was measured.
#[derive(Clone, Debug)]
pub struct Results {
    pub plan: Plan,
    pub environment: Environment,
    /// In the order of the plan.
    pub cells: Vec<CellResult>,
}

/// A cell and what became of it.
#[derive(Clone, Debug)]
pub struct CellResult {
    pub cell: Cell,
    /// Nothing where it was not measured to its end.
    pub ending: Option<Ending>,
    pub rounds: Vec<StoredRound>,
}

/// A round of a cell.
#[derive(Clone, Debug)]
pub struct StoredRound {
    /// Whether it is no warm-up.
    pub counts: bool,
    pub round: Round,
}

/// A cell in figures; of the jobs of the matrix, without those beside them.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    pub rounds: usize,
    /// Of reads and writes together.
    pub iops: Spread,
    /// 10^6 bytes a second.
    pub mb_per_s: Spread,
    pub mean_ms: Spread,
    pub read: Latencies,
    pub write: Latencies,
    pub flush: Latencies,
    /// Of reads and writes together; each write with the flush that made it stable, where it has
    /// one.
    pub all: Latencies,
    /// Whether the percentiles of these are no more than a bound: writes and their flushes were
    /// measured, and not both together.
    pub all_is_at_most: bool,
    pub errors: u64,
    /// Rounds that are not like the others, by their number among those that count.
    pub outliers: Vec<usize>,
    pub pattern: Option<Pattern>,
    /// Seconds that a window of the pattern stands for.
    pub window_s: f64,
}

/// Latencies over all rounds that count, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latencies {
    pub requests: u64,
    /// A second: the median of the rounds.
    pub iops: f64,
    pub mean: f64,
    pub p50: f64,
    pub p99: f64,
    pub p99_9: f64,
    pub p99_99: f64,
    pub max: f64,
}

/// What one of several jobs that run at the same time came to.
#[derive(Clone, Debug)]
pub struct JobFigures {
    pub job: String,
    pub summary: Summary,
    /// How good each round that counts was, more being better.
    pub merits: Vec<f64>,
}

impl Results {
    /// Reads a folder.
    ///
    /// # Errors
    /// Where there are no results in it, or they cannot be read.
    pub fn read(path: &Path) -> Result<Self, FolderError> {
        let plan = Folder::plan(path)?;
        let environment = Folder::environment(path).and_then(|it| serde_json::from_value(it).ok());
        let results = |cell| CellResult { cell, ending: None, rounds: Vec::new() };
        let mut cells: Vec<_> = plan.cells().into_iter().map(results).collect();
        for line in Folder::lines(path)? {
            match line {
                Line::Begun { cell, title } => {
                    if let Some(result) = cells.get_mut(cell) {
                        if result.cell.title(&plan) != title {
                            return Err(FolderError::Changed { path: path.to_owned(), title });
                        }
                        result.rounds.clear();
                        result.ending = None;
                    }
                }
                Line::Round { cell, counts, round, .. } => {
                    if let Some(result) = cells.get_mut(cell) {
                        result.rounds.push(StoredRound { counts, round: *round });
                    }
                }
                Line::Done { cell, ending } => {
                    if let Some(result) = cells.get_mut(cell) {
                        result.ending = Some(ending);
                    }
                }
            }
        }
        Ok(Self { plan, environment: environment.unwrap_or_default(), cells })
    }

    /// Cells that were measured, with their figures.
    pub fn measured(&self) -> impl Iterator<Item = (&CellResult, Summary)> {
        self.cells.iter().filter_map(|cell| Some((cell, cell.summary(&self.plan)?)))
    }
}

impl CellResult {
    /// The rounds that count: of a steady state, the last ones.
    pub fn counted(&self, plan: &Plan) -> Vec<&Round> {
        let counted: Vec<_> =
            self.rounds.iter().filter(|round| round.counts).map(|round| &round.round).collect();
        let steady = plan.rounds_of(&plan.targets[self.cell.target]).steady;
        let last = steady.map_or(counted.len(), |rule| rule.rounds as usize);
        counted[counted.len().saturating_sub(last)..].to_vec()
    }

    /// The cell in figures, where it was measured to its end.
    pub fn summary(&self, plan: &Plan) -> Option<Summary> {
        let rounds = self.counted(plan);
        if rounds.is_empty() || !self.ending.as_ref().is_some_and(Ending::has_figures) {
            return None;
        }
        // In a sweep the rounds of a cell do not follow each other, and windows are of all jobs.
        let is_own = plan.sweep.is_none() && plan.beside.is_empty();
        let in_a_row = if is_own { &self.rounds[..] } else { &[] };
        Some(Summary::of(&rounds, own_jobs, in_a_row))
    }

    /// The figures of the jobs beside.
    pub fn beside(&self, plan: &Plan) -> Vec<JobFigures> {
        let rounds = self.counted(plan);
        if rounds.is_empty() {
            return Vec::new();
        }
        let phases = self.cell.load.rw.split('+').count();
        let figures = plan.beside.iter().enumerate().map(|(number, job)| {
            let names: Vec<_> = (0..phases).map(|phase| beside(number, phase)).collect();
            let jobs = |round: &Round| {
                let is_it = |job: &&JobRound| names.contains(&job.name);
                round.jobs.iter().filter(is_it).cloned().collect::<Vec<_>>()
            };
            let merits = rounds.iter().map(|round| requests_per_second(&jobs(round))).collect();
            let summary = Summary::of(&rounds, jobs, &[]);
            JobFigures { job: job.name.clone(), summary, merits }
        });
        figures.collect()
    }

    /// How good each round that counts was, more being better: requests a second, and where these
    /// were given, how soon they were answered.
    pub fn merits(&self, plan: &Plan) -> Vec<f64> {
        if self.cell.load.rate.is_none() {
            return self.rates(plan);
        }
        let soon = |jobs: Vec<JobRound>| mean_ms(&jobs).map_or(0.0, |ms| 1.0 / ms);
        self.counted(plan).into_iter().map(own_jobs).map(soon).collect()
    }

    /// Requests a second of each round that counts, also where they were given.
    pub fn rates(&self, plan: &Plan) -> Vec<f64> {
        self.counted(plan).into_iter().map(iops).collect()
    }
}

impl Ending {
    /// Whether there is something to say of the cell.
    pub fn has_figures(&self) -> bool {
        !matches!(self, Self::LeftOut { .. } | Self::Failed { .. })
    }
}

impl Summary {
    fn of(
        rounds: &[&Round],
        jobs: impl Fn(&Round) -> Vec<JobRound>,
        in_a_row: &[StoredRound],
    ) -> Self {
        let own: Vec<_> = rounds.iter().map(|round| jobs(round)).collect();
        let iops: Vec<_> = own.iter().map(|jobs| requests_per_second(jobs)).collect();
        let mb_per_s: Vec<_> = own.iter().map(|jobs| mb_per_second(jobs)).collect();
        // A round in which nothing was answered has no latency.
        let mean_ms: Vec<_> = own.iter().filter_map(|jobs| mean_ms(jobs)).collect();
        let sides: Vec<_> = (0..3).map(|side| Latencies::of(&own, &[side])).collect();
        let (all, all_is_at_most) = Latencies::until_stable(&own);
        let windows: Vec<f64> = in_a_row
            .iter()
            .flat_map(|round| &round.round.windows)
            .map(|window| window.read_iops + window.write_iops)
            .collect();
        let ends = in_a_row.iter().find_map(|round| Some(round.round.windows.first()?.at_s));
        Self {
            rounds: rounds.len(),
            outliers: outliers(&iops),
            iops: spread(&iops),
            mb_per_s: spread(&mb_per_s),
            mean_ms: spread(&mean_ms),
            read: sides[0],
            write: sides[1],
            flush: sides[2],
            all,
            all_is_at_most,
            errors: own.iter().flatten().map(|job| job.measured.errors).sum(),
            pattern: habit(&own, &windows, ends.unwrap_or(0.0)),
            window_s: ends.unwrap_or(0.0),
        }
    }
}

impl Latencies {
    /// Of some sides (0 reads, 1 writes, 2 flushes) of all rounds.
    fn of(rounds: &[Vec<JobRound>], sides: &[usize]) -> Self {
        let jobs = || rounds.iter().flatten();
        let bins = Bins::merge(jobs().flat_map(|job| sides.iter().map(|&side| &job.bins[side])));
        let each = |job: &JobRound| {
            let all = [job.measured.read, job.measured.write, job.measured.flush];
            sides.iter().map(|&side| all[side]).collect::<Vec<_>>()
        };
        let max = jobs().flat_map(each).map(|side| side.latency.max_us / 1e3).fold(0.0, f64::max);
        // Bins are rounded up.
        let ms = |nanos: u64| (nanos as f64 / 1e6).min(max);
        let requests: u64 = jobs().flat_map(each).map(|side| side.requests).sum();
        let total: f64 =
            jobs().flat_map(each).map(|side| side.latency.mean_us * side.requests as f64).sum();
        let iops: Vec<f64> = rounds
            .iter()
            .map(|jobs| jobs.iter().flat_map(each).map(|side| side.iops).sum())
            .collect();
        Self {
            requests,
            iops: crate::statistics::median(&iops),
            mean: total / requests.max(1) as f64 / 1e3,
            p50: ms(bins.quantile(0.5)),
            p99: ms(bins.quantile(0.99)),
            p99_9: ms(bins.quantile(0.999)),
            p99_99: ms(bins.quantile(0.9999)),
            max,
        }
    }
}

impl Latencies {
    /// Of reads, and of writes until they are stable; and whether that is a bound.
    fn until_stable(rounds: &[Vec<JobRound>]) -> (Self, bool) {
        let (all, flush) = (Self::of(rounds, &[0, 1]), Self::of(rounds, &[2]));
        if flush.requests == 0 {
            return (all, false);
        }
        let jobs = || rounds.iter().flatten();
        let waited = all.mean * all.requests as f64 + flush.mean * flush.requests as f64;
        let all = Self { mean: waited / all.requests.max(1) as f64, ..all };
        let pairs = Bins::merge(jobs().map(|job| &job.stable));
        if pairs.is_empty() {
            let [write, flush] = [1, 2].map(|side| Bins::merge(jobs().map(|job| &job.bins[side])));
            let max = all.max + Self::of(rounds, &[2]).max;
            return (all.with(|share| at_most(&write, &flush, share), max), true);
        }
        let reads = jobs().map(|job| &job.bins[0]);
        let bins = Bins::merge(reads.chain([&pairs]));
        (all.with(|share| bins.quantile(share), bins.quantile(1.0) as f64 / 1e6), false)
    }

    /// With other percentiles, of nanoseconds.
    fn with(self, quantile: impl Fn(f64) -> u64, max: f64) -> Self {
        let ms = |share: f64| (quantile(share) as f64 / 1e6).min(max);
        let (p50, p99) = (ms(0.5), ms(0.99));
        Self { p50, p99, p99_9: ms(0.999), p99_99: ms(0.9999), max, ..self }
    }
}

/// What a share of sums does not exceed, whatever belongs to what: of either, half of the rest may
/// be above.
fn at_most(one: &Bins, other: &Bins, share: f64) -> u64 {
    let each = 1.0 - (1.0 - share) / 2.0;
    one.quantile(each) + other.quantile(each)
}

/// The jobs of the matrix in a round, without those beside them.
pub(crate) fn own_jobs(round: &Round) -> Vec<JobRound> {
    round.jobs.iter().filter(|job| is_own(&job.name)).cloned().collect()
}

/// Requests a second of the jobs of the matrix in a round, over all of its phases.
pub fn iops(round: &Round) -> f64 {
    requests_per_second(&own_jobs(round))
}

/// Reads and writes of all phases over the time of all phases.
fn requests_per_second(jobs: &[JobRound]) -> f64 {
    let seconds: f64 = jobs.iter().map(|job| job.measured.seconds).sum();
    let both = |job: &JobRound| (job.measured.read.requests + job.measured.write.requests) as f64;
    jobs.iter().map(both).sum::<f64>() / seconds.max(1e-9)
}

fn mb_per_second(jobs: &[JobRound]) -> f64 {
    let seconds: f64 = jobs.iter().map(|job| job.measured.seconds).sum();
    let moved = |job: &JobRound| {
        (job.measured.read.mb_per_s + job.measured.write.mb_per_s) * job.measured.seconds
    };
    jobs.iter().map(moved).sum::<f64>() / seconds.max(1e-9)
}

/// Of reads and writes, each write with the flush that made it stable; nothing where nothing was
/// answered.
pub(crate) fn mean_ms(jobs: &[JobRound]) -> Option<f64> {
    let sides = |job: &JobRound| [job.measured.read, job.measured.write];
    let requests: u64 = jobs.iter().flat_map(sides).map(|side| side.requests).sum();
    let with_flushes =
        jobs.iter().flat_map(|job| [job.measured.read, job.measured.write, job.measured.flush]);
    let waited: f64 = with_flushes.map(|side| side.latency.mean_us * side.requests as f64).sum();
    (requests > 0).then(|| waited / requests as f64 / 1e3)
}

/// Answers in a window, in the mean, below which chance makes patterns.
const ENOUGH: f64 = 30.0;

/// A pattern of windows in which enough was answered to speak of one, of a load of one phase.
fn habit(rounds: &[Vec<JobRound>], windows: &[f64], window_s: f64) -> Option<Pattern> {
    let is_one = rounds.iter().all(|jobs| jobs.len() == 1);
    let found = pattern(windows).filter(|_| is_one)?;
    // Of all windows: a device that stands still answers nothing in some, which is no chance where
    // it answers much in others.
    let answered = windows.iter().sum::<f64>() / windows.len().max(1) as f64 * window_s;
    (answered >= ENOUGH).then_some(found)
}
