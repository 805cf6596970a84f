//! A plan under way.

mod allowance;
mod batch;
mod progress;
mod settings;

pub(super) use batch::batches;

use allowance::{Allowance, left_out};
use batch::{Batch, lanes};
use progress::{Progress, Taken};
pub use settings::check_settings;

use settings::Settings;

use super::fio::{Fio, FioError, Ground};
use super::in_process;
use super::place::{self, PlaceError};
use super::precondition::{PreconditionError, precondition};
use super::stop::Stop;
use super::virtual_time::{self, VirtualError};
use crate::environment::{Environment, Surroundings};
use crate::plan::{Cell, Kind, Plan, Target};
use crate::results::folder::{self, Ending, Folder, FolderError, Line};
use headpond_whatif::rounds::Round;
use std::collections::BTreeSet;
use std::path::Path;
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
    #[error("{target} is not as it was: {error}; set it back by hand")]
    Restore { target: String, error: String },
    #[error("it was ended, because that was asked for")]
    Stopped,
    #[error("{target}: {error}")]
    Volume { target: String, error: String },
}

/// So many cells, or sweeps, in a row that cannot be measured end a plan.
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
    left: Vec<Batch>,
    allowance: Allowance<'a>,
    prepared: BTreeSet<usize>,
    surroundings: &'a dyn Surroundings,
    fio: Option<Fio>,
    stop: Stop,
    /// Cells, or sweeps, in a row that could not be measured.
    failures: u32,
    settings: Settings<'a>,
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
        check_settings(plan, surroundings)?;
        let (stop, fio) = needed_fio(plan)?;
        Self::with(plan, Folder::create(path, plan)?, &[], surroundings, (stop, fio))
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
        let (stop, fio) = needed_fio(plan)?;
        Self::with(plan, Folder::open(path)?, &lines, surroundings, (stop, fio))
    }

    fn with(
        plan: &'a Plan,
        folder: Folder,
        lines: &[Line],
        surroundings: &'a dyn Surroundings,
        (stop, fio): (Stop, Option<Fio>),
    ) -> Result<Self, CourseError> {
        let done = folder::done(lines);
        let version = fio.as_ref().map(|fio| fio.version.as_str());
        let environment = Environment::of(plan, version, surroundings);
        folder.store_environment(&environment)?;
        Ok(Self {
            plan,
            folder,
            left: batches(plan, &done),
            allowance: Allowance::after(plan, lines, &done),
            prepared: BTreeSet::new(),
            surroundings,
            fio,
            stop,
            failures: 0,
            settings: Settings::new(plan, surroundings),
        })
    }

    /// Cells that are not measured yet.
    pub fn left(&self) -> impl Iterator<Item = &Cell> {
        self.left.iter().flatten()
    }

    /// Ends it from without.
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Measures what is left.
    ///
    /// # Errors
    /// Where too many cells cannot be measured, or the end was asked for; what was measured before
    /// is stored.
    pub fn run(&mut self, watcher: &mut dyn Watcher) -> Result<(), CourseError> {
        let left = std::mem::take(&mut self.left);
        let is_machine = |batch: &Batch| self.plan.targets[batch[0].target].kind() == Kind::Machine;
        let (machines, real): (Vec<_>, Vec<_>) = left.into_iter().partition(is_machine);
        self.run_machines(&lanes(self.plan, machines), watcher)?;
        let outcome = real.iter().try_for_each(|batch| self.run_real(batch, watcher));
        // Also where it failed: nothing is left in the mode of whichever cell was last.
        outcome.and(self.settings.set_back(watcher))
    }

    /// Machines do not disturb each other: each runs in a time of its own, all processors at work.
    fn run_machines(
        &mut self,
        lanes: &[Vec<Batch>],
        watcher: &mut dyn Watcher,
    ) -> Result<(), CourseError> {
        let (sender, receiver) = mpsc::channel();
        let (next, plan, allowance) = (AtomicUsize::new(0), self.plan, self.allowance.clone());
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..threads.min(lanes.len()) {
                let (sender, next, allowance) = (sender.clone(), &next, &allowance);
                scope.spawn(move || {
                    while let Some(lane) = lanes.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let mut allowance = allowance.clone();
                        // Nobody listens any more where another cell has failed.
                        let is_heard = lane.iter().all(|batch| {
                            let tell = |event| sender.send((batch, event)).is_ok();
                            run_machine(plan, batch, &mut allowance, &tell)
                        });
                        if !is_heard {
                            break;
                        }
                    }
                });
            }
            drop(sender);
            for (batch, event) in receiver {
                self.check_stop()?;
                self.store(batch, event, watcher)?;
            }
            Ok(())
        })
    }

    fn store(
        &mut self,
        batch: &[Cell],
        event: Event,
        watcher: &mut dyn Watcher,
    ) -> Result<(), CourseError> {
        match event {
            Event::Begins => self.begin(batch, watcher)?,
            Event::Round { index, taken: Taken { number, counts, .. }, round } => {
                let cell = &batch[index];
                watcher.round(cell, number, &round);
                self.folder.push(&Line::Round { cell: cell.number, number, counts, round })?;
            }
            Event::Ends(Ok(endings)) => self.end(batch, endings, watcher)?,
            Event::Ends(Err(error)) => self.fail(batch, &error, watcher)?,
        }
        Ok(())
    }

    fn check_stop(&self) -> Result<(), CourseError> {
        if self.stop.is_asked() { Err(CourseError::Stopped) } else { Ok(()) }
    }

    fn begin(&mut self, batch: &[Cell], watcher: &mut dyn Watcher) -> Result<(), CourseError> {
        for cell in batch {
            watcher.begins(cell);
            let title = cell.title(self.plan);
            self.folder.push(&Line::Begun { cell: cell.number, title })?;
        }
        Ok(())
    }

    fn run_real(&mut self, batch: &[Cell], watcher: &mut dyn Watcher) -> Result<(), CourseError> {
        self.check_stop()?;
        let target = &self.plan.targets[batch[0].target];
        let raw = self.folder.raw();
        let grounds = self.grounds(&target.each(), &raw)?;
        if let Some(why) = batch.iter().find_map(|cell| self.allowance.why_left_out(cell)) {
            return self.end(batch, left_out(batch, &why), watcher);
        }
        self.prepare(&batch[0], &grounds, watcher)?;
        let grounds = &grounds[..usize::from(target.arrays(&batch[0].settings))];
        self.begin(batch, watcher)?;
        let mut progress = Progress::new(self.plan, batch);
        let mut stored = Ok(());
        let mut take = |index: usize, round: Round| {
            if self.stop.is_asked() {
                return false;
            }
            let taken = progress.take(index, &round, &mut self.allowance);
            let Taken { number, counts, goes_on } = taken;
            let cell = &batch[index];
            watcher.round(cell, number, &round);
            let round = Box::new(round);
            stored = self.folder.push(&Line::Round { cell: cell.number, number, counts, round });
            goes_on && stored.is_ok()
        };
        let outcome: Result<(), Box<dyn std::error::Error>> = match target
            .is_in_process(&self.plan.matrix)
        {
            true => {
                let place = (grounds, self.surroundings);
                let measured = in_process::measure(self.plan, batch, place, &self.stop, &mut take);
                measured.map_err(Into::into)
            }
            false => {
                let fio = self.fio.as_ref().expect("it was looked for");
                fio.measure(self.plan, batch, grounds, &mut take).map_err(Into::into)
            }
        };
        stored?;
        self.check_stop()?;
        match outcome {
            Ok(()) => self.end(batch, progress.endings(), watcher)?,
            Err(error) => self.fail(batch, error.as_ref(), watcher)?,
        }
        let rounds = self.plan.rounds_of(target);
        self.stop.sleep(Duration::from_secs_f64(rounds.cool_down_seconds));
        Ok(())
    }

    fn end(
        &mut self,
        batch: &[Cell],
        endings: Vec<Ending>,
        watcher: &mut dyn Watcher,
    ) -> Result<(), CourseError> {
        assert_eq!(batch.len(), endings.len(), "each cell ends once");
        if endings.iter().any(Ending::has_figures) {
            self.failures = 0;
        }
        for (cell, ending) in batch.iter().zip(endings) {
            watcher.ends(cell, &ending);
            self.folder.push(&Line::Done { cell: cell.number, ending })?;
        }
        Ok(())
    }

    /// What cannot be measured does not keep the rest from it, but many in a row do.
    fn fail(
        &mut self,
        batch: &[Cell],
        error: &dyn std::error::Error,
        watcher: &mut dyn Watcher,
    ) -> Result<(), CourseError> {
        let why = error.to_string();
        let failed = batch.iter().map(|_| Ending::Failed { why: why.clone() });
        self.end(batch, failed.collect(), watcher)?;
        self.failures += 1;
        match self.failures < FAILURES_MAX {
            true => Ok(()),
            false => Err(CourseError::Failing { title: batch[0].title(self.plan), why }),
        }
    }

    /// The target's state and settings, as the cell wants them.
    fn prepare(
        &mut self,
        cell: &Cell,
        grounds: &[Ground<'_>],
        watcher: &mut dyn Watcher,
    ) -> Result<(), CourseError> {
        let target = &self.plan.targets[cell.target];
        self.settings.bring_about(cell, watcher)?;
        if self.prepared.insert(cell.target) {
            for (target, ground) in target.each().iter().zip(grounds) {
                place::make(target)?;
                if self.plan.precondition.is_anything() {
                    watcher.prepares(&format!("{}: preconditioning", ground.place));
                    let place = (ground, self.surroundings);
                    precondition(self.plan, target, place, self.fio.as_ref())?;
                }
                let fills = u64::from(self.plan.precondition.fills);
                let size = self.plan.matrix.size.or(target.size).map(|size| size.bytes());
                let filled = fills * size.or_else(|| place::bytes(target)).unwrap_or(0);
                self.allowance.note_written(cell.target, filled);
            }
        }
        Ok(())
    }

    /// Where each of some targets is found.
    fn grounds<'r>(&self, each: &[Target], raw: &'r Path) -> Result<Vec<Ground<'r>>, CourseError> {
        let ground = |target: &Target| {
            let mut ground = Ground::new(target, self.export_of(target)?, raw);
            if ground.is_nbd {
                let facts = self.surroundings.facts_of_export(&ground.place);
                ground.bytes = facts.map(|facts| facts.size_bytes);
            }
            // Without that the kernel takes memory from where fio runs, which is bound as well.
            let is_by_fio = !target.is_in_process(&self.plan.matrix);
            if is_by_fio && self.fio.as_ref().is_some_and(|fio| !fio.knows_nodes) {
                ground.memory_node = None;
            }
            Ok(ground)
        };
        each.iter().map(ground).collect()
    }

    fn export_of(&self, target: &Target) -> Result<Option<String>, CourseError> {
        let Some(volume) = &target.volume else { return Ok(None) };
        let export = self.surroundings.export_of(volume);
        let target = target.name.clone();
        export.map(Some).map_err(|error| CourseError::Volume { target, error })
    }
}

/// Checks that the fio that a plan needs is there and can do what the plan wants of it.
///
/// # Errors
/// Where it is missing or too old.
pub fn check_fio(plan: &Plan) -> Result<(), FioError> {
    needed_fio(plan).map(|_| ())
}

/// The fio that a plan needs, if it needs one, and what ends it.
fn needed_fio(plan: &Plan) -> Result<(Stop, Option<Fio>), FioError> {
    let needs_fio = plan.targets.iter().any(|target| {
        let prepares = plan.precondition.fills > 0 && target.kind() != Kind::Machine;
        !target.is_in_process(&plan.matrix) || prepares
    });
    let stop = Stop::default();
    let fio = if needs_fio { Some(Fio::find(stop.clone())?) } else { None };
    fio.as_ref().map_or(Ok(()), |fio| fio.check(plan))?;
    Ok((stop, fio))
}

/// What a thread with machines tells.
enum Event {
    Begins,
    Round { index: usize, taken: Taken, round: Box<Round> },
    Ends(Result<Vec<Ending>, VirtualError>),
}

/// Measures on a machine, where no limit keeps it from that, and tells of it; whether anybody
/// listened.
fn run_machine(
    plan: &Plan,
    batch: &[Cell],
    allowance: &mut Allowance<'_>,
    tell: &dyn Fn(Event) -> bool,
) -> bool {
    if let Some(why) = batch.iter().find_map(|cell| allowance.why_left_out(cell)) {
        return tell(Event::Ends(Ok(left_out(batch, &why))));
    }
    let mut progress = Progress::new(plan, batch);
    if !tell(Event::Begins) {
        return false;
    }
    let outcome = virtual_time::measure(plan, batch, &mut |index, round| {
        let taken = progress.take(index, &round, allowance);
        let goes_on = taken.goes_on;
        tell(Event::Round { index, taken, round: Box::new(round) }) && goes_on
    });
    tell(Event::Ends(outcome.map(|()| progress.endings())))
}

#[cfg(test)]
mod tests;
