//! A load in rounds on one device, which is what a careful measurement consists of; or several
//! loads, a round of each in turn.
//!
//! 1. [`Rounds`] says what is asked for and how it is cut. 2. [`run`] makes the requests on any
//!    device and hands over each [`Round`] as it ends; whoever takes it says whether it goes on.
//!
//! **Invariants**
//! - Where there is one load of one phase and rounds have a length, requests go on from one round
//!   to the next: nothing is emptied or begun anew between them.
//! - Sequential jobs go on where they were in the round before, also after a pause.
//! - A request counts in the round in which it was answered.

mod machine;

pub use machine::{simulate_rounds, simulate_rounds_when_full};

use crate::generator::{self, Ground, Memory, Positions, Span};
use crate::job::Job;
use crate::latency_windows::LatencyWindow;
use crate::measured::{Answered, Bins, JobTally, Measured};
use crate::outcome::{CacheShare, DeviceShare};
use crate::windows::Window;
use headpond_block::{BlockDevice, Instant, JoinHandle, Runtime};
use headpond_sim::Random;
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// What is asked of a device, round after round.
#[derive(Clone, Debug)]
pub struct Rounds {
    /// Phases follow each other in each round; the jobs of a phase run at the same time. Each job
    /// has a name of its own.
    pub phases: Vec<Vec<Job>>,
    pub length: Length,
    /// Looks at what was answered in each phase of a round that has a length.
    pub windows: u32,
}

/// When a round, or a phase of one, is over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    Time(Duration),
    /// When each job has moved its region once.
    Pass,
}

/// What one round came to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Round {
    /// The jobs of all phases, in the order of the plan.
    pub jobs: Vec<JobRound>,
    /// From the beginning of the round.
    pub windows: Vec<Window>,
    /// How long requests took in each of them, where that is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latencies: Vec<LatencyWindow>,
    /// Where the machine is a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineRound>,
}

/// What a job experienced in a round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobRound {
    pub name: String,
    pub measured: Measured,
    /// Latencies of reads, writes and flushes.
    pub bins: [Bins; 3],
    /// Of writes with the flush that made each stable, from when the write was wanted; where each
    /// has one and both were measured together.
    #[serde(default, skip_serializing_if = "Bins::is_empty")]
    pub stable: Bins,
}

/// What the devices of a machine did in a round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MachineRound {
    pub drives: DeviceShare,
    pub cache: Option<CacheShare>,
}

/// Looks at the machine below while the rounds pass.
pub trait Watch {
    /// Of what may be dirty.
    fn dirty_ratio(&self) -> f64;
    fn begin_round(&self);
    fn end_round(&self) -> Option<MachineRound>;
    /// Whether a round that has a length is to end before.
    fn is_over(&self) -> bool;
    /// How often that is asked within a window; without, only at its end.
    fn asks_every(&self) -> Option<Duration>;
}

/// A device of which nothing is known but its answers, while that is wanted.
pub struct Opaque<'a> {
    pub is_over: &'a dyn Fn() -> bool,
}

impl Watch for Opaque<'_> {
    fn dirty_ratio(&self) -> f64 {
        0.0
    }

    fn begin_round(&self) {}

    fn end_round(&self) -> Option<MachineRound> {
        None
    }

    fn is_over(&self) -> bool {
        (self.is_over)()
    }

    fn asks_every(&self) -> Option<Duration> {
        Some(ASK_EVERY)
    }
}

/// Nobody who ends a measurement waits longer than that for its window.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// Where the rounds take place.
pub struct RoundTarget<'a> {
    /// Each of them takes the whole load.
    pub devices: Vec<Rc<dyn BlockDevice>>,
    /// Whether an operating system would send them flushes.
    pub takes_flushes: bool,
    pub runtime: &'a Runtime,
    pub memory: Memory,
    pub watch: &'a dyn Watch,
}

/// Takes the rounds of loads, by the place of each, as they end; says whether it goes on.
pub type Next<'a> = &'a mut dyn FnMut(usize, Round) -> bool;

/// Runs rounds of all loads in turn until `next` has enough.
pub async fn run(loads: &[Rounds], place: RoundTarget<'_>, random: &mut Random, next: Next<'_>) {
    assert!(!loads.is_empty(), "rounds of nothing have no end");
    let answered = Rc::default();
    let grounds = place.devices.into_iter().map(|device| Ground {
        device,
        runtime: place.runtime.clone(),
        answered: Rc::clone(&answered),
        takes_flushes: place.takes_flushes,
        memory: Rc::clone(&place.memory),
    });
    let grounds: Vec<_> = grounds.collect();
    let (runtime, watch) = (place.runtime, place.watch);
    let course = |rounds| Course {
        rounds,
        positions: grounds.iter().map(|_| Positions::default()).collect(),
        grounds: &grounds,
        runtime,
        answered: &answered,
        watch,
    };
    let courses: Vec<_> = loads.iter().map(course).collect();
    if let [course] = &courses[..]
        && let ([jobs], Length::Time(length)) = (&course.rounds.phases[..], course.rounds.length)
    {
        return course.without_pause(jobs, length, random, next).await;
    }
    for (load, course) in courses.iter().enumerate().cycle() {
        if !next(load, course.round(random).await) {
            break;
        }
    }
}

struct Course<'a> {
    rounds: &'a Rounds,
    grounds: &'a [Ground],
    /// Of the jobs on each ground.
    positions: Vec<Positions>,
    runtime: &'a Runtime,
    answered: &'a Cell<Answered>,
    watch: &'a dyn Watch,
}

/// The jobs of a phase while they run.
struct Running {
    tasks: Vec<JoinHandle<()>>,
    tallies: Vec<Rc<RefCell<JobTally>>>,
    is_over: Rc<Cell<bool>>,
}

impl Course<'_> {
    async fn without_pause(
        &self,
        jobs: &[Job],
        length: Duration,
        random: &mut Random,
        next: Next<'_>,
    ) {
        let running = self.start(jobs, random, true);
        loop {
            self.watch.begin_round();
            let begun = self.runtime.now();
            let (windows, latencies) = self.watch_windows(begun, begun, length, &running).await;
            let jobs = running.take(jobs, self.runtime.now().since(begun));
            let machine = self.watch.end_round();
            if !next(0, Round { jobs, windows, latencies, machine }) {
                break;
            }
        }
        running.end().await;
    }

    async fn round(&self, random: &mut Random) -> Round {
        self.watch.begin_round();
        let begun = self.runtime.now();
        let (mut jobs, mut windows, mut latencies) = (Vec::new(), Vec::new(), Vec::new());
        for phase in &self.rounds.phases {
            let since = self.runtime.now();
            match self.rounds.length {
                Length::Time(length) => {
                    let running = self.start(phase, random, true);
                    let seen = self.watch_windows(begun, since, length, &running).await;
                    windows.extend(seen.0);
                    latencies.extend(seen.1);
                    jobs.extend(running.take(phase, length));
                    running.end().await;
                }
                Length::Pass => {
                    let mut running = self.start(phase, random, false);
                    for task in std::mem::take(&mut running.tasks) {
                        task.await;
                    }
                    jobs.extend(running.take(phase, self.runtime.now().since(since)));
                }
            }
        }
        Round { jobs, windows, latencies, machine: self.watch.end_round() }
    }

    fn start(&self, jobs: &[Job], random: &mut Random, is_time_based: bool) -> Running {
        let is_over: Rc<Cell<bool>> = Rc::default();
        let span =
            Span { measured_from: self.runtime.now(), ends_at: None, is_over: Rc::clone(&is_over) };
        let tallies: Vec<_> = jobs.iter().map(|_| Rc::new(RefCell::new(JobTally::new()))).collect();
        let tasks = jobs.iter().zip(&tallies).flat_map(|(job, tally)| {
            let job = Job { is_time_based, ..job.clone() };
            let each = self.grounds.iter().zip(&self.positions).map(|(ground, positions)| {
                generator::start(&job, ground, random, &span, tally, positions)
            });
            each.flatten().collect::<Vec<_>>()
        });
        let tasks = tasks.collect();
        Running { tasks, tallies, is_over }
    }

    /// Waits for the end of a stretch, and says what was answered in each part of it.
    async fn watch_windows(
        &self,
        begun: Instant,
        since: Instant,
        length: Duration,
        running: &Running,
    ) -> (Vec<Window>, Vec<LatencyWindow>) {
        let (mut windows, mut latencies) = (Vec::new(), Vec::new());
        let count = self.rounds.windows.max(1);
        let mut before: Answered = self.answered.get();
        let mut from = since;
        for number in 1..=count {
            self.wait_until(since + length * number / count).await;
            let (now, answered) = (self.runtime.now(), self.answered.get());
            let seconds = now.since(from).as_secs_f64().max(1e-9);
            let at_s = now.since(begun).as_secs_f64();
            latencies.push(LatencyWindow::of(at_s, running.take_recent()));
            windows.push(Window {
                at_s,
                read_iops: (answered.reads - before.reads) as f64 / seconds,
                write_iops: (answered.writes - before.writes) as f64 / seconds,
                dirty_ratio: self.watch.dirty_ratio(),
            });
            (before, from) = (answered, now);
            if self.watch.is_over() {
                break;
            }
        }
        (windows, latencies)
    }

    /// Waits for the end of a window, or for that of everything.
    async fn wait_until(&self, end: Instant) {
        if let Some(every) = self.watch.asks_every() {
            while self.runtime.now() + every < end && !self.watch.is_over() {
                self.runtime.sleep(every).await;
            }
        }
        if !self.watch.is_over() {
            self.runtime.sleep_until(end).await;
        }
    }
}

impl Running {
    /// What was counted since the last time.
    fn take(&self, jobs: &[Job], time: Duration) -> Vec<JobRound> {
        let taken = jobs.iter().zip(&self.tallies).map(|(job, tally)| {
            let tally = tally.replace(JobTally::new());
            let (name, measured) = (job.name.clone(), tally.measured(time));
            JobRound { name, measured, bins: tally.bins(), stable: tally.stable() }
        });
        taken.collect()
    }

    /// How long took what was answered since the last time.
    fn take_recent(&self) -> Vec<(u64, u64)> {
        self.tallies.iter().flat_map(|tally| tally.borrow_mut().take_recent()).collect()
    }

    async fn end(self) {
        self.is_over.set(true);
        for task in self.tasks {
            task.await;
        }
    }
}

#[cfg(test)]
mod tests;
