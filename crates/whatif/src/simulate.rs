//! Runs experiments, each in a virtual time of its own, side by side on all processors.

use crate::generator::{self, Ground};
use crate::job::Job;
use crate::load::{Excerpt, Load, Remainder};
use crate::machine::{Machine, MachineError};
use crate::measured::Answered;
use crate::outcome::{
    Baseline, CacheShare, DeviceShare, EngineShare, JobOutcome, Outcome, Plans, Rebuilt,
    dirty_ratio, explain,
};
use crate::parallel::side_by_side;
use crate::progress::Gauge;
use crate::remainder::{self, Before};
use crate::replay::{self, Played, ReplayError};
use crate::stack::Stack;
use crate::windows::{Watcher, Windows};
use headpond_block::sync::join_all;
use headpond_block::{BlockDevice, Instant, Runtime, Stalled, Submission};
use headpond_sim::{CatalogueError, Sim, run};
use headpond_volume::SetError;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A workload on a machine.
#[derive(Clone, Debug)]
pub struct Experiment {
    pub stack: Stack,
    pub load: Load,
    pub seed: u64,
}

/// Why there is no outcome.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    #[error(transparent)]
    Model(#[from] CatalogueError),
    #[error("the machine cannot be put together: {0}")]
    Machine(#[from] MachineError),
    #[error("the cache cannot be filled: {0}")]
    Fill(#[from] SetError),
    #[error("the simulation stands still: {0}")]
    Stalled(#[from] Stalled),
    #[error("the trace cannot be played: {0}")]
    Replay(#[from] ReplayError),
    #[error(
        "nothing was measured: no request is made in the volume of {size_bytes} bytes after the ramp"
    )]
    NothingMeasured { size_bytes: u64 },
}

/// Runs one experiment.
///
/// # Errors
/// Where the machine cannot be put together, the trace cannot be played, or nothing happens.
pub fn simulate(experiment: &Experiment) -> Result<Outcome, SimulateError> {
    simulate_watched(experiment, &Arc::default())
}

/// The same, while others look at `gauge`.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_watched(
    experiment: &Experiment,
    gauge: &Arc<Gauge>,
) -> Result<Outcome, SimulateError> {
    let outcome = experiment.stack.parts().map_err(SimulateError::from).and_then(|parts| {
        run(experiment.seed, |runtime, sim| async move {
            let machine = Machine::start(&experiment.stack, &parts, &runtime, &sim).await?;
            Course::new(experiment, machine, runtime, gauge).run(&sim).await
        })?
    });
    gauge.end();
    outcome
}

/// Runs experiments side by side, each with its own gauge.
///
/// # Panics
/// Where there are not as many gauges as experiments.
pub fn simulate_all(
    experiments: &[Experiment],
    gauges: &[Arc<Gauge>],
) -> Vec<Result<Outcome, SimulateError>> {
    assert_eq!(experiments.len(), gauges.len(), "a gauge for each experiment");
    side_by_side(experiments.len(), |index| simulate_watched(&experiments[index], &gauges[index]))
}

impl Load {
    fn ramp(&self) -> Duration {
        match self {
            Load::Jobs(jobs) => jobs.iter().map(|job| job.ramp).max().unwrap_or_default(),
            Load::Trace(_) | Load::Excerpt(_) => Duration::ZERO,
        }
    }

    /// With its ramp; nothing where it is over when it is over.
    fn duration(&self) -> Option<Duration> {
        match self {
            Load::Jobs(jobs) => {
                let known = jobs.iter().map(|job| job.runtime.map(|time| job.ramp + time));
                known.collect::<Option<Vec<_>>>().and_then(|times| times.into_iter().max())
            }
            Load::Trace(trace) => trace.duration(),
            Load::Excerpt(_) => None,
        }
    }
}

/// An experiment under way.
struct Course<'a> {
    experiment: &'a Experiment,
    machine: Rc<Machine>,
    runtime: Runtime,
    begun: Instant,
    answered: Rc<Cell<Answered>>,
    windows: Rc<RefCell<Windows>>,
    is_over: Rc<Cell<bool>>,
    gauge: &'a Arc<Gauge>,
}

impl<'a> Course<'a> {
    fn new(
        experiment: &'a Experiment,
        machine: Machine,
        runtime: Runtime,
        gauge: &'a Arc<Gauge>,
    ) -> Self {
        let windows = match experiment.load {
            Load::Excerpt(_) => Windows::of_little(),
            _ => Windows::over(experiment.load.duration()),
        };
        Self {
            experiment,
            machine: Rc::new(machine),
            begun: runtime.now(),
            runtime,
            answered: Rc::default(),
            windows: Rc::new(RefCell::new(windows)),
            is_over: Rc::default(),
            gauge,
        }
    }

    async fn run(&self, sim: &Sim) -> Result<Outcome, SimulateError> {
        let baseline = Rc::new(RefCell::new(None));
        drop(self.runtime.spawn(self.watcher().watch()));
        self.take_baseline(&baseline);
        let device = Rc::clone(&self.machine.front);
        let (jobs, played) = match &self.experiment.load {
            Load::Jobs(jobs) => (self.run_jobs(jobs, &device, sim).await, None),
            Load::Trace(trace) => {
                let (runtime, answered) = (&self.runtime, &self.answered);
                let played = replay::run(trace, &device, runtime, answered, self.gauge).await?;
                let measured = played.measured.clone();
                (vec![JobOutcome { name: trace.name(), measured }], Some(played))
            }
            Load::Excerpt(excerpt) => {
                let played = self.run_excerpt(excerpt, &device, &baseline).await?;
                let measured = played.measured.clone();
                (vec![JobOutcome { name: excerpt.name.clone(), measured }], Some(played))
            }
        };
        self.is_over.set(true);
        let size_bytes = device.size_bytes();
        let is_idle = |job: &JobOutcome| job.measured.is_empty();
        let baseline = match baseline.take() {
            Some(baseline) if !jobs.iter().all(is_idle) => baseline,
            _ => return Err(SimulateError::NothingMeasured { size_bytes }),
        };
        let mut outcome = self.conclude(jobs, played, &baseline);
        if let Load::Excerpt(excerpt) = &self.experiment.load {
            let before = Before::of(&baseline, &outcome, excerpt);
            let worked_off = excerpt.remainder.work_off(&self.machine, &self.runtime, before);
            outcome.afterwards = Some(worked_off.await);
        }
        Ok(outcome)
    }

    async fn run_jobs(
        &self,
        jobs: &[Job],
        device: &Rc<dyn BlockDevice>,
        sim: &Sim,
    ) -> Vec<JobOutcome> {
        let mut randoms: Vec<_> = jobs.iter().map(|_| sim.random()).collect();
        let ground = Ground {
            device: Rc::clone(device),
            runtime: self.runtime.clone(),
            answered: Rc::clone(&self.answered),
            takes_flushes: self.machine.takes_flushes,
            memory: generator::no_memory(),
        };
        let measured: Vec<_> = jobs.iter().map(|_| RefCell::new(None)).collect();
        let running = jobs.iter().zip(&mut randoms).zip(&measured).map(|((job, random), slot)| {
            let ground = &ground;
            Submission::pending(async move {
                let measured = generator::run(job, ground, random).await;
                *slot.borrow_mut() = Some(measured);
                Ok(())
            })
        });
        join_all(running.collect()).await;
        let outcomes = jobs.iter().zip(measured).map(|(job, slot)| JobOutcome {
            name: job.name.clone(),
            measured: slot.into_inner().expect("it ran to its end"),
        });
        outcomes.collect()
    }

    async fn run_excerpt(
        &self,
        excerpt: &Excerpt,
        device: &Rc<dyn BlockDevice>,
        baseline: &Rc<RefCell<Option<Baseline>>>,
    ) -> Result<Played, ReplayError> {
        let (runtime, answered) = (&self.runtime, &self.answered);
        let when_warm = async {
            let drives_s = match excerpt.remainder {
                Remainder::Nothing => 0.0,
                _ => remainder::empty_drives(&self.machine, runtime).await,
            };
            let dirty_stripes = excerpt.remainder.dirty_stripes(&self.machine);
            let taken = Baseline::take(&self.machine, runtime.now());
            *baseline.borrow_mut() = Some(Baseline { dirty_stripes, drives_s, ..taken });
        };
        replay::run_excerpt(excerpt, device, runtime, answered, self.gauge, when_warm).await
    }

    /// Takes the counters at the end of the ramp, which may be now.
    fn take_baseline(&self, slot: &Rc<RefCell<Option<Baseline>>>) {
        let from = self.begun + self.experiment.load.ramp();
        let (machine, slot) = (Rc::clone(&self.machine), Rc::clone(slot));
        let take = move || *slot.borrow_mut() = Some(Baseline::take(&machine, from));
        if from == self.begun {
            return take();
        }
        let over = self.runtime.sleep_until(from);
        drop(self.runtime.spawn(async move {
            over.await;
            take();
        }));
    }

    fn watcher(&self) -> Watcher {
        let machine = Rc::clone(&self.machine);
        Watcher {
            dirty_ratio: Box::new(move || dirty_ratio(&machine.volume.stats().slices)),
            runtime: self.runtime.clone(),
            begun: self.begun,
            total: match &self.experiment.load {
                Load::Jobs(_) => self.experiment.load.duration(),
                Load::Trace(_) | Load::Excerpt(_) => None,
            },
            answered: Rc::clone(&self.answered),
            windows: Rc::clone(&self.windows),
            is_over: Rc::clone(&self.is_over),
            gauge: Arc::clone(self.gauge),
        }
    }

    fn conclude(
        &self,
        jobs: Vec<JobOutcome>,
        played: Option<Played>,
        baseline: &Baseline,
    ) -> Outcome {
        let now = self.runtime.now().max(baseline.from);
        let seconds = now.since(baseline.from).as_secs_f64();
        let machine = &self.machine;
        let snapshots: Vec<_> = machine.drives.iter().map(|drive| drive.snapshot()).collect();
        let stats = machine.volume.stats();
        let cache = machine.cache.as_ref().map(|device| {
            let device = DeviceShare::of(&[device.snapshot()], seconds);
            CacheShare::of(&baseline.slices, &stats.slices, device, seconds)
        });
        let rebuild = baseline.rebuild.as_ref().zip(Rebuilt::job(&machine.volume));
        let mut outcome = Outcome {
            name: self.experiment.stack.name.clone(),
            size_bytes: machine.volume.geometry().size_bytes,
            jobs,
            replay: played.as_ref().map(|played| played.replay),
            laps: played.as_ref().map(|played| played.laps.clone()).unwrap_or_default(),
            kinds: played.as_ref().map(|played| played.kinds.clone()).unwrap_or_default(),
            took: played.map(|played| played.took).unwrap_or_default(),
            afterwards: None,
            drives: DeviceShare::of(&snapshots, seconds),
            each_drive: snapshots
                .iter()
                .map(|drive| DeviceShare::of(std::slice::from_ref(drive), seconds))
                .collect(),
            cache,
            engine: machine.engine.as_ref().map(|engine| EngineShare::of(engine, seconds)),
            plans: Plans::since(&baseline.plans, &stats.array),
            rebuilt: rebuild.map(|(before, after)| Rebuilt::between(before, &after, seconds)),
            windows: self.windows.take().into_list(),
            why: Vec::new(),
        };
        outcome.why = explain(&outcome);
        outcome
    }
}
