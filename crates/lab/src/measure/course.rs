//! A plan under way.

use super::fio::{Fio, FioError, Ground};
use super::folder::{Ending, Folder, FolderError, Line};
use super::in_process;
use super::place::{self, PlaceError};
use super::precondition::{PreconditionError, precondition};
use super::steady::drift;
use super::virtual_time::{self, VirtualError};
use super::{Next, Surroundings, is_in_process};
use crate::environment::Environment;
use crate::plan::{Cell, Kind, Order, Plan, RoundPlan, Target, plain};
use crate::results::{own_jobs, per_second};
use headpond_sim::Random;
use headpond_whatif::rounds::Round;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// What keeps a plan from being carried out.
#[derive(Debug, thiserror::Error)]
pub enum CourseError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(transparent)]
    Fio(#[from] FioError),
    #[error("{title}: {why}; so did the cells before it, and the plan ends here")]
    Failing { title: String, why: String },
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error(transparent)]
    Precondition(#[from] PreconditionError),
    #[error("{target}: {name} cannot be set to {value}: {error}")]
    Set { target: String, name: String, value: String, error: String },
    #[error("{target}: {error}")]
    Volume { target: String, error: String },
}

/// So many cells in a row that cannot be measured end a plan.
const FAILURES_MAX: u32 = 3;

/// Sees how far it is.
pub trait Watcher {
    fn begins(&mut self, cell: &Cell);
    fn round(&mut self, cell: &Cell, number: u32, round: &Round);
    fn ends(&mut self, cell: &Cell, ending: &Ending);
    /// Something that takes a while and is no cell.
    fn prepares(&mut self, what: &str);
}

/// A plan and the folder of its results.
pub struct Course<'a> {
    plan: &'a Plan,
    folder: Folder,
    /// In the order in which they are measured.
    left: Vec<Cell>,
    /// From how much at once on a request to a target waited too long.
    slow: BTreeMap<String, f64>,
    written: BTreeMap<usize, u64>,
    prepared: BTreeSet<usize>,
    surroundings: &'a dyn Surroundings,
    fio: Option<Fio>,
    /// Cells in a row that could not be measured.
    failures: u32,
    /// What settings of targets are now, and what served volumes had before.
    now: BTreeMap<(usize, String), toml::Value>,
    before: BTreeMap<(usize, String), String>,
}

impl<'a> Course<'a> {
    /// Begins a plan in a new folder.
    ///
    /// # Errors
    /// Where the folder cannot be made.
    pub fn create(
        plan: &'a Plan,
        path: &Path,
        surroundings: &'a dyn Surroundings,
    ) -> Result<Self, CourseError> {
        place::check(plan)?;
        Self::with(plan, Folder::create(path, plan)?, &BTreeSet::new(), surroundings)
    }

    /// Goes on with a plan where it was interrupted.
    ///
    /// # Errors
    /// Where the folder cannot be read.
    pub fn resume(
        plan: &'a Plan,
        path: &Path,
        surroundings: &'a dyn Surroundings,
    ) -> Result<Self, CourseError> {
        place::check(plan)?;
        let lines = Folder::lines(path)?;
        let done = lines.iter().filter_map(|line| match line {
            Line::Done { ending: Ending::Failed { .. }, .. } => None,
            Line::Done { cell, .. } => Some(*cell),
            _ => None,
        });
        Self::with(plan, Folder::open(path)?, &done.collect(), surroundings)
    }

    fn with(
        plan: &'a Plan,
        folder: Folder,
        done: &BTreeSet<usize>,
        surroundings: &'a dyn Surroundings,
    ) -> Result<Self, CourseError> {
        let mut left: Vec<_> =
            plan.cells().into_iter().filter(|cell| !done.contains(&cell.number)).collect();
        if plan.order == Order::Random {
            Random::new(plan.seed).shuffle(&mut left);
        }
        let needs_fio = plan.targets.iter().any(|target| {
            let prepares = plan.precondition.fills > 0 && target.kind() != Kind::Machine;
            !is_in_process(target) || prepares
        });
        let fio = if needs_fio { Some(Fio::find()?) } else { None };
        let environment = Environment::of(plan, fio.as_ref().map(|fio| fio.version.as_str()));
        folder.store_environment(&environment)?;
        Ok(Self {
            plan,
            folder,
            left,
            slow: BTreeMap::new(),
            written: BTreeMap::new(),
            prepared: BTreeSet::new(),
            surroundings,
            fio,
            failures: 0,
            now: BTreeMap::new(),
            before: BTreeMap::new(),
        })
    }

    /// Cells that are not measured yet.
    pub fn left(&self) -> usize {
        self.left.len()
    }

    /// Measures what is left.
    ///
    /// # Errors
    /// The first cell that cannot be measured; what was measured before is stored.
    pub fn run(&mut self, watcher: &mut dyn Watcher) -> Result<(), CourseError> {
        let left = std::mem::take(&mut self.left);
        let is_machine = |cell: &Cell| self.plan.targets[cell.target].kind() == Kind::Machine;
        let (machines, real): (Vec<_>, Vec<_>) = left.into_iter().partition(is_machine);
        self.run_machines(&machines, watcher)?;
        let outcome = real.iter().try_for_each(|cell| self.run_real(cell, watcher));
        // Also where it failed: a volume is not left in the mode of whichever cell was last.
        outcome.and(self.set_back(watcher))
    }

    /// Machines do not disturb each other: each runs in a time of its own, all processors at work.
    fn run_machines(
        &mut self,
        cells: &[Cell],
        watcher: &mut dyn Watcher,
    ) -> Result<(), CourseError> {
        let (sender, receiver) = mpsc::channel();
        let (next, plan) = (AtomicUsize::new(0), self.plan);
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..threads.min(cells.len()) {
                let (sender, next) = (sender.clone(), &next);
                scope.spawn(move || {
                    while let Some(cell) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let mut gauge = Progress::new(plan.rounds_of(&plan.targets[cell.target]));
                        // Nobody listens any more where another cell has failed.
                        let tell = |event| sender.send((cell, event)).is_ok();
                        if !tell(Event::Begins) {
                            break;
                        }
                        let outcome = virtual_time::measure(plan, cell, &mut |round| {
                            let (number, counts, goes_on) = gauge.take(&round);
                            tell(Event::Round { number, counts, round: Box::new(round) }) && goes_on
                        });
                        tell(Event::Ends(outcome.map(|()| gauge.ending())));
                    }
                });
            }
            drop(sender);
            for (cell, event) in receiver {
                self.store(cell, event, watcher)?;
            }
            Ok(())
        })
    }

    fn store(
        &mut self,
        cell: &Cell,
        event: Event,
        watcher: &mut dyn Watcher,
    ) -> Result<(), CourseError> {
        let number_of_cell = cell.number;
        match event {
            Event::Begins => {
                watcher.begins(cell);
                let title = cell.title(self.plan);
                self.folder.push(&Line::Begun { cell: number_of_cell, title })?;
            }
            Event::Round { number, counts, round } => {
                watcher.round(cell, number, &round);
                self.folder.push(&Line::Round { cell: number_of_cell, number, counts, round })?;
            }
            Event::Ends(Ok(ending)) => {
                watcher.ends(cell, &ending);
                self.folder.push(&Line::Done { cell: number_of_cell, ending })?;
            }
            Event::Ends(Err(error)) => self.fail(cell, &error, watcher)?,
        }
        Ok(())
    }

    fn run_real(&mut self, cell: &Cell, watcher: &mut dyn Watcher) -> Result<(), CourseError> {
        let target = &self.plan.targets[cell.target];
        let raw = self.folder.raw();
        let ground = Ground::new(target, self.export_of(target)?, &raw);
        if let Some(why) = self.why_left_out(cell) {
            return self.end(cell, Ending::LeftOut { why }, watcher);
        }
        self.prepare(cell, &ground, watcher)?;
        let rounds = self.plan.rounds_of(target);
        let title = cell.title(self.plan);
        self.folder.push(&Line::Begun { cell: cell.number, title })?;
        watcher.begins(cell);
        let mut progress = Progress::new(rounds);
        let (mut stored, mut written, mut slowest) = (Ok(()), 0, 0.0_f64);
        let mut take = |round: Round| {
            let (number, counts, goes_on) = progress.take(&round);
            watcher.round(cell, number, &round);
            written += written_bytes(&round);
            slowest = slowest.max(if counts { mean_ms(&round) } else { 0.0 });
            let round = Box::new(round);
            stored = self.folder.push(&Line::Round { cell: cell.number, number, counts, round });
            goes_on && stored.is_ok()
        };
        let outcome: Result<(), Box<dyn std::error::Error>> = match is_in_process(target) {
            true => in_process::measure(self.plan, cell, &mut take).map_err(Into::into),
            false => {
                let fio = self.fio.as_ref().expect("it was looked for");
                fio.measure(self.plan, cell, &ground, &mut take as Next<'_>).map_err(Into::into)
            }
        };
        stored?;
        *self.written.entry(cell.target).or_default() += written;
        if self.plan.limits.mean_ms.is_some_and(|limit| slowest > limit) {
            let least = self.slow.entry(row(cell)).or_insert(f64::MAX);
            *least = least.min(cell.load.how_much());
        }
        match outcome {
            Ok(()) => {
                self.failures = 0;
                self.end(cell, progress.ending(), watcher)?;
            }
            Err(error) => self.fail(cell, error.as_ref(), watcher)?,
        }
        std::thread::sleep(Duration::from_secs_f64(rounds.cool_down_seconds));
        Ok(())
    }

    fn end(
        &mut self,
        cell: &Cell,
        ending: Ending,
        watcher: &mut dyn Watcher,
    ) -> Result<(), CourseError> {
        watcher.ends(cell, &ending);
        self.folder.push(&Line::Done { cell: cell.number, ending })?;
        Ok(())
    }

    /// A cell that cannot be measured does not keep the others from it, but many in a row do.
    fn fail(
        &mut self,
        cell: &Cell,
        error: &dyn std::error::Error,
        watcher: &mut dyn Watcher,
    ) -> Result<(), CourseError> {
        let why = error.to_string();
        self.end(cell, Ending::Failed { why: why.clone() }, watcher)?;
        self.failures += 1;
        match self.failures < FAILURES_MAX {
            true => Ok(()),
            false => Err(CourseError::Failing { title: cell.title(self.plan), why }),
        }
    }

    /// A limit of the plan that keeps a cell from being measured.
    fn why_left_out(&self, cell: &Cell) -> Option<String> {
        let limits = &self.plan.limits;
        let written = self.written.get(&cell.target).copied().unwrap_or(0);
        if let Some(most) = limits.written.filter(|most| written >= most.bytes()) {
            return cell.load.writes().then(|| format!("{most} have been written to the target"));
        }
        let from = *self.slow.get(&row(cell))?;
        let limit = limits.mean_ms?;
        let is_more = cell.load.how_much() >= from;
        is_more.then(|| format!("less of the same waited longer than {limit} ms already"))
    }

    /// The target's state and settings, as the cell wants them.
    fn prepare(
        &mut self,
        cell: &Cell,
        ground: &Ground<'_>,
        watcher: &mut dyn Watcher,
    ) -> Result<(), CourseError> {
        let target = &self.plan.targets[cell.target];
        for (name, value) in &cell.settings {
            let key = (cell.target, name.clone());
            if self.now.get(&key) == Some(value) {
                continue;
            }
            watcher.prepares(&format!("{}: {name} {}", target.name, plain(value)));
            self.remember(&key, target)?;
            self.set(target, name, value)?;
            self.now.insert(key, value.clone());
        }
        if self.prepared.insert(cell.target) {
            place::make(target)?;
            if self.plan.precondition.is_anything() {
                watcher.prepares(&format!("{}: preconditioning", target.name));
                precondition(self.plan, target, ground, self.fio.as_ref())?;
            }
            let fills = u64::from(self.plan.precondition.fills);
            let size = self.plan.matrix.size.or(target.size).map(|size| size.bytes());
            let filled = fills * size.or_else(|| place::bytes(target)).unwrap_or(0);
            *self.written.entry(cell.target).or_default() += filled;
        }
        Ok(())
    }

    /// What a served volume has before it is changed for the first time.
    fn remember(&mut self, key: &(usize, String), target: &Target) -> Result<(), CourseError> {
        let (None, Some(volume)) = (self.before.get(key), &target.volume) else { return Ok(()) };
        if target.set.is_none() {
            let value = self.surroundings.setting_of(volume, &key.1);
            let name = target.name.clone();
            let value = value.map_err(|error| CourseError::Volume { target: name, error })?;
            self.before.insert(key.clone(), value);
        }
        Ok(())
    }

    fn set_back(&mut self, watcher: &mut dyn Watcher) -> Result<(), CourseError> {
        for ((target, name), value) in std::mem::take(&mut self.before) {
            let target = &self.plan.targets[target];
            watcher.prepares(&format!("{}: {name} {value} again", target.name));
            self.set(target, &name, &value.into())?;
        }
        self.now.clear();
        Ok(())
    }

    fn set(&self, target: &Target, name: &str, value: &toml::Value) -> Result<(), CourseError> {
        let outcome = match (target.set_command(name, value), &target.volume) {
            (Some(command), _) => shell(&command),
            (None, Some(volume)) => self.surroundings.set(volume, name, &plain(value)),
            (None, None) => Ok(()),
        };
        outcome.map_err(|error| {
            let (target, name) = (target.name.clone(), name.to_owned());
            CourseError::Set { target, name, value: plain(value), error }
        })
    }

    fn export_of(&self, target: &Target) -> Result<Option<String>, CourseError> {
        let Some(volume) = &target.volume else { return Ok(None) };
        let export = self.surroundings.export_of(volume);
        let target = target.name.clone();
        export.map(Some).map_err(|error| CourseError::Volume { target, error })
    }
}

/// What a thread with machines tells.
enum Event {
    Begins,
    Round { number: u32, counts: bool, round: Box<Round> },
    Ends(Result<Ending, VirtualError>),
}

/// Counts rounds, and knows when it is enough.
struct Progress<'a> {
    plan: &'a RoundPlan,
    seen: u32,
    /// Of the rounds after the warm-up.
    iops: Vec<f64>,
}

impl<'a> Progress<'a> {
    fn new(plan: &'a RoundPlan) -> Self {
        Self { plan, seen: 0, iops: Vec::new() }
    }

    /// Its number, whether it is no warm-up, and whether there is to be another one.
    fn take(&mut self, round: &Round) -> (u32, bool, bool) {
        let number = self.seen;
        self.seen += 1;
        let counts = number >= self.plan.warm_up;
        if counts {
            self.iops.push(iops(round));
        }
        let goes_on = match self.plan.steady {
            None => self.seen < self.plan.warm_up + self.plan.count,
            Some(_) => self.seen < self.plan.most() && !self.is_steady(),
        };
        (number, counts, goes_on)
    }

    fn is_steady(&self) -> bool {
        let Some(rule) = self.plan.steady else { return false };
        let enough = self.iops.len() >= rule.rounds as usize;
        enough && self.last_drift().is_some_and(|drift| drift.is_within(&rule))
    }

    fn last_drift(&self) -> Option<super::Drift> {
        let window = self.plan.steady.map_or(usize::MAX, |rule| rule.rounds as usize);
        drift(&self.iops[self.iops.len().saturating_sub(window)..])
    }

    fn ending(&self) -> Ending {
        match (self.plan.steady, self.last_drift()) {
            (None, _) => Ending::Complete,
            (Some(_), Some(drift)) if self.is_steady() => Ending::Steady { drift },
            (Some(_), drift) => Ending::NotSteady { drift },
        }
    }
}

/// Requests a second of the jobs of the matrix.
fn iops(round: &Round) -> f64 {
    per_second(&own_jobs(round), |side| side.requests as f64)
}

fn mean_ms(round: &Round) -> f64 {
    let sides = round.jobs.iter().flat_map(|job| [job.measured.read, job.measured.write]);
    sides.map(|side| side.latency.mean_us / 1e3).fold(0.0, f64::max)
}

fn written_bytes(round: &Round) -> u64 {
    let written = |write: headpond_whatif::Side, seconds: f64| write.mb_per_s * 1e6 * seconds;
    let jobs = round.jobs.iter().map(|job| written(job.measured.write, job.measured.seconds));
    jobs.sum::<f64>() as u64
}

/// Cells that differ in nothing but how much is in flight.
fn row(cell: &Cell) -> String {
    format!("{} {} {}", cell.target, cell.settings_text(), cell.load.request())
}

fn shell(command: &str) -> Result<(), String> {
    let output = Command::new("sh").arg("-c").arg(command).output().map_err(|e| e.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("`{command}`: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

#[cfg(test)]
mod tests;
