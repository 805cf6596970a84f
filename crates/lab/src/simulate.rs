//! Runs experiments, each in a virtual time of its own, side by side on all processors.

use crate::generator::{self, Answered};
use crate::job::Job;
use crate::machine::{Machine, MachineError};
use crate::outcome::{
    Baseline, CacheShare, DeviceShare, JobOutcome, Outcome, Plans, Window, dirty_ratio, explain,
};
use crate::stack::Stack;
use headpond_block::sync::join_all;
use headpond_block::{BlockDevice, Instant, Runtime, Stalled, Submission};
use headpond_sim::{CatalogueError, Sim, run};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A workload on a machine.
#[derive(Clone, Debug)]
pub struct Experiment {
    pub stack: Stack,
    pub jobs: Vec<Job>,
    pub seed: u64,
}

/// Why there is no outcome.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    #[error(transparent)]
    Model(#[from] CatalogueError),
    #[error("the machine cannot be put together: {0}")]
    Machine(#[from] MachineError),
    #[error("the simulation stands still: {0}")]
    Stalled(#[from] Stalled),
    #[error(
        "nothing was measured: no job makes a request in the volume of {size_bytes} bytes after its ramp"
    )]
    NothingMeasured { size_bytes: u64 },
}

/// Windows of an experiment whose length is known.
const WINDOWS: u32 = 60;
const WINDOW_OF_UNKNOWN: Duration = Duration::from_secs(1);

/// Runs one experiment.
///
/// # Errors
/// Where the machine cannot be put together, or nothing happens in it.
pub fn simulate(experiment: &Experiment) -> Result<Outcome, SimulateError> {
    let parts = experiment.stack.parts()?;
    run(experiment.seed, |runtime, sim| async move {
        let machine = Machine::start(&experiment.stack, &parts, &runtime, &sim).await?;
        Course::new(experiment, machine, runtime).run(&sim).await
    })?
}

/// Runs experiments side by side; `done` hears of each that has ended, by its index.
pub fn simulate_all(
    experiments: &[Experiment],
    done: impl Fn(usize) + Sync,
) -> Vec<Result<Outcome, SimulateError>> {
    let next = AtomicUsize::new(0);
    let outcomes: Mutex<Vec<_>> = Mutex::new(experiments.iter().map(|_| None).collect());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads.min(experiments.len()) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(experiment) = experiments.get(index) else { break };
                    let outcome = simulate(experiment);
                    outcomes.lock().expect("nobody panics with it")[index] = Some(outcome);
                    done(index);
                }
            });
        }
    });
    let outcomes = outcomes.into_inner().expect("nobody panics with it");
    outcomes.into_iter().map(|outcome| outcome.expect("every index was taken")).collect()
}

/// An experiment under way.
struct Course<'a> {
    experiment: &'a Experiment,
    machine: Rc<Machine>,
    runtime: Runtime,
    begun: Instant,
    answered: Rc<Cell<Answered>>,
    windows: Rc<RefCell<Vec<Window>>>,
    is_over: Rc<Cell<bool>>,
}

impl<'a> Course<'a> {
    fn new(experiment: &'a Experiment, machine: Machine, runtime: Runtime) -> Self {
        Self {
            experiment,
            machine: Rc::new(machine),
            begun: runtime.now(),
            runtime,
            answered: Rc::default(),
            windows: Rc::default(),
            is_over: Rc::default(),
        }
    }

    async fn run(&self, sim: &Sim) -> Result<Outcome, SimulateError> {
        let jobs = &self.experiment.jobs;
        let baseline = Rc::new(RefCell::new(None));
        drop(self.runtime.spawn(watch_windows(self.watcher())));
        drop(self.runtime.spawn(self.take_baseline(&baseline)));
        let device: Rc<dyn BlockDevice> = self.machine.volume.clone();
        let mut randoms: Vec<_> = jobs.iter().map(|_| sim.random()).collect();
        let measured: Vec<_> = jobs.iter().map(|_| RefCell::new(None)).collect();
        let running = jobs.iter().zip(&mut randoms).zip(&measured).map(|((job, random), slot)| {
            let (device, runtime, answered) = (&device, &self.runtime, &self.answered);
            Submission::pending(async move {
                let measured = generator::run(job, device, runtime, random, answered).await;
                *slot.borrow_mut() = Some(measured);
                Ok(())
            })
        });
        join_all(running.collect()).await;
        self.is_over.set(true);
        let jobs: Vec<JobOutcome> = jobs
            .iter()
            .zip(measured)
            .map(|(job, slot)| JobOutcome {
                name: job.name.clone(),
                measured: slot.into_inner().expect("it ran to its end"),
            })
            .collect();
        let size_bytes = device.size_bytes();
        let is_idle = |job: &JobOutcome| job.measured.is_empty();
        let baseline = match baseline.take() {
            Some(baseline) if !jobs.iter().all(is_idle) => baseline,
            _ => return Err(SimulateError::NothingMeasured { size_bytes }),
        };
        Ok(self.conclude(jobs, &baseline))
    }

    fn ramp(&self) -> Duration {
        self.experiment.jobs.iter().map(|job| job.ramp).max().unwrap_or_default()
    }

    /// Waits for the end of the ramp, where counting begins.
    fn take_baseline(
        &self,
        baseline: &Rc<RefCell<Option<Baseline>>>,
    ) -> impl Future<Output = ()> + 'static {
        let (runtime, machine, slot) =
            (self.runtime.clone(), Rc::clone(&self.machine), Rc::clone(baseline));
        let at = self.begun + self.ramp();
        async move {
            runtime.sleep_until(at).await;
            machine.reset_probes();
            let stats = machine.volume.stats();
            *slot.borrow_mut() = Some(Baseline { slices: stats.slices, plans: stats.array });
        }
    }

    fn watcher(&self) -> Watcher {
        let known = self.experiment.jobs.iter().map(|job| job.runtime.map(|time| job.ramp + time));
        let total = known.collect::<Option<Vec<_>>>().and_then(|times| times.into_iter().max());
        Watcher {
            machine: Rc::clone(&self.machine),
            runtime: self.runtime.clone(),
            begun: self.begun,
            window: total.map_or(WINDOW_OF_UNKNOWN, |total| total / WINDOWS),
            answered: Rc::clone(&self.answered),
            windows: Rc::clone(&self.windows),
            is_over: Rc::clone(&self.is_over),
        }
    }

    fn conclude(&self, jobs: Vec<JobOutcome>, baseline: &Baseline) -> Outcome {
        let measured_from = self.begun + self.ramp();
        let now = self.runtime.now().max(measured_from);
        let seconds = now.since(measured_from).as_secs_f64();
        let machine = &self.machine;
        let snapshots: Vec<_> = machine.drives.iter().map(|drive| drive.snapshot()).collect();
        let stats = machine.volume.stats();
        let cache = machine.cache.as_ref().map(|device| {
            let device = DeviceShare::of(&[device.snapshot()], seconds);
            CacheShare::of(&baseline.slices, &stats.slices, device, seconds)
        });
        let mut outcome = Outcome {
            name: self.experiment.stack.name.clone(),
            size_bytes: machine.volume.geometry().size_bytes,
            jobs,
            drives: DeviceShare::of(&snapshots, seconds),
            cache,
            plans: Plans::since(&baseline.plans, &stats.array),
            windows: self.windows.take(),
            why: Vec::new(),
        };
        outcome.why = explain(&outcome);
        outcome
    }
}

/// Looks at the machine from time to time.
struct Watcher {
    machine: Rc<Machine>,
    runtime: Runtime,
    begun: Instant,
    window: Duration,
    answered: Rc<Cell<Answered>>,
    windows: Rc<RefCell<Vec<Window>>>,
    is_over: Rc<Cell<bool>>,
}

async fn watch_windows(watcher: Watcher) {
    let mut before = Answered::default();
    let seconds = watcher.window.as_secs_f64();
    while !watcher.is_over.get() && !watcher.window.is_zero() {
        watcher.runtime.sleep(watcher.window).await;
        let answered = watcher.answered.get();
        watcher.windows.borrow_mut().push(Window {
            at_s: watcher.runtime.now().since(watcher.begun).as_secs_f64(),
            read_iops: (answered.reads - before.reads) as f64 / seconds,
            write_iops: (answered.writes - before.writes) as f64 / seconds,
            dirty_ratio: dirty_ratio(&watcher.machine.volume.stats().slices),
        });
        before = answered;
    }
}
