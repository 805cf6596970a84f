//! A load in rounds on one device, which is what a careful measurement consists of; or several
//! loads, a round of each in turn.
//!
//! 1. [`Rounds`] says what is asked for and how it is cut. 2. [`run`] makes the requests on any
//!    device and hands over each [`Round`] as it ends; whoever takes it says whether it goes on.
//!
//! **Invariants**
//! - Where there is one load of one phase and rounds have a length, requests go on from one round
//!   to the next: nothing is emptied or begun anew between them.
//! - A request counts in the round in which it was answered.

mod machine;

pub use machine::simulate_rounds;

use crate::generator::{self, Ground, Memory, Span};
use crate::job::Job;
use crate::latency_windows::LatencyWindow;
use crate::measured::{Answered, Bins, Measured, Tally};
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
    /// Phases follow each other in each round; the jobs of a phase run at the same time.
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
}

/// Where the rounds take place.
pub struct Place<'a> {
    /// Each of them takes the whole load.
    pub devices: Vec<Rc<dyn BlockDevice>>,
    pub runtime: &'a Runtime,
    pub memory: Memory,
    pub watch: &'a dyn Watch,
}

/// Takes the rounds of loads, by the place of each, as they end; says whether it goes on.
pub type Next<'a> = &'a mut dyn FnMut(usize, Round) -> bool;

/// Runs rounds of all loads in turn until `next` has enough.
pub async fn run(loads: &[Rounds], place: Place<'_>, random: &mut Random, next: Next<'_>) {
    assert!(!loads.is_empty(), "rounds of nothing have no end");
    let answered = Rc::default();
    let grounds = place.devices.into_iter().map(|device| Ground {
        device,
        runtime: place.runtime.clone(),
        answered: Rc::clone(&answered),
        memory: Rc::clone(&place.memory),
    });
    let grounds: Vec<_> = grounds.collect();
    let (runtime, watch) = (place.runtime, place.watch);
    let course = |rounds| Course { rounds, grounds: &grounds, runtime, answered: &answered, watch };
    if let [rounds] = loads
        && let ([jobs], Length::Time(length)) = (&rounds.phases[..], rounds.length)
    {
        return course(rounds).without_pause(jobs, length, random, next).await;
    }
    for (load, rounds) in loads.iter().enumerate().cycle() {
        if !next(load, course(rounds).round(random).await) {
            break;
        }
    }
}

struct Course<'a> {
    rounds: &'a Rounds,
    grounds: &'a [Ground],
    runtime: &'a Runtime,
    answered: &'a Cell<Answered>,
    watch: &'a dyn Watch,
}

/// The jobs of a phase while they run.
struct Running {
    tasks: Vec<JoinHandle<()>>,
    tallies: Vec<Rc<RefCell<Tally>>>,
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
        let tallies: Vec<_> = jobs.iter().map(|_| Rc::new(RefCell::new(Tally::new()))).collect();
        let tasks = jobs.iter().zip(&tallies).flat_map(|(job, tally)| {
            let job = Job { is_time_based, ..job.clone() };
            let each = self
                .grounds
                .iter()
                .map(|ground| generator::start(&job, ground, random, &span, tally));
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
            self.runtime.sleep_until(since + length * number / count).await;
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
}

impl Running {
    /// What was counted since the last time.
    fn take(&self, jobs: &[Job], time: Duration) -> Vec<JobRound> {
        let taken = jobs.iter().zip(&self.tallies).map(|(job, tally)| {
            let tally = tally.replace(Tally::new());
            JobRound { name: job.name.clone(), measured: tally.measured(time), bins: tally.bins() }
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
mod tests {
    use super::*;
    use crate::job::{self, ArrivalProcess, Arrivals};
    use crate::stack::Stack;

    const DISK: &str = "name = \"disk\"\n[core]\nraid = 0\ndrive = \"hdd-7k2-4t\"\ndrives = 1\n";
    const FLASH: &str = "name = \"ssd\"\n[core]\nraid = 0\ndrive = \"ssd-dc-960g\"\ndrives = 1\n";

    fn random_read(depth: u32) -> Job {
        let rw = job::rw("randread").unwrap();
        Job { rw, depth, ..Job::default() }
    }

    fn rounds(stack: &str, phases: Vec<Vec<Job>>, length: Length, count: usize) -> Vec<Round> {
        let stack = Stack::parse(stack).unwrap();
        let mut seen = Vec::new();
        let rounds = Rounds { phases, length, windows: 4 };
        simulate_rounds(&stack, &[rounds], 1, &mut |load, round| {
            assert_eq!(load, 0);
            seen.push(round);
            seen.len() < count
        })
        .unwrap();
        seen
    }

    #[test]
    fn several_loads_have_a_round_each_in_turn_on_the_same_machine() {
        let stack = format!("{DISK}controller = \"raid-cache-1g\"\n");
        let stack = Stack::parse(&stack).unwrap();
        let write = Job { rw: job::rw("randwrite").unwrap(), depth: 8, ..Job::default() };
        let load = |job: Job, millis| Rounds {
            phases: vec![vec![job]],
            length: Length::Time(Duration::from_millis(millis)),
            windows: 2,
        };
        let (mut order, mut seen) = (Vec::new(), Vec::new());
        let loads = [load(write, 2000), load(random_read(8), 2000)];
        simulate_rounds(&stack, &loads, 1, &mut |load, round| {
            order.push(load);
            seen.push(round);
            seen.len() < 5
        })
        .unwrap();
        assert_eq!(order, [0, 1, 0, 1, 0]);
        for (load, round) in order.iter().zip(&seen) {
            let measured = &round.jobs[0].measured;
            let (reads, writes) = (measured.read.requests, measured.write.requests);
            assert!(if *load == 0 { writes > 0 && reads == 0 } else { reads > 0 && writes == 0 });
        }
        // The controller's cache is full of what the first round wrote: the machine is no new one.
        let writes = |index: usize| seen[index].jobs[0].measured.write.requests;
        assert!(writes(2) * 2 < writes(0), "{} {}", writes(0), writes(2));
    }

    #[test]
    fn rounds_follow_each_other_without_a_pause_and_count_every_request_once() {
        let length = Length::Time(Duration::from_millis(500));
        let seen = rounds(FLASH, vec![vec![random_read(8)]], length, 3);
        assert_eq!(seen.len(), 3);
        for round in &seen {
            let read = &round.jobs[0].measured.read;
            assert_eq!(round.jobs[0].bins[0].count(), read.requests);
            let windows: f64 = round.windows.iter().map(|window| window.read_iops * 0.125).sum();
            assert!((windows - read.requests as f64).abs() < 1.0, "{windows} {read:?}");
            let bins = round.latencies.iter().flat_map(|window| &window.bins);
            assert_eq!(bins.map(|(_, count)| count).sum::<u64>(), read.requests);
            assert_eq!(round.latencies.len(), round.windows.len());
            // The device is never idle between rounds.
            let busy = round.machine.as_ref().unwrap().drives.busy_mean;
            assert!(busy > 0.999, "{busy}");
        }
    }

    #[test]
    fn a_pass_moves_the_region_of_each_phase_once() {
        let of = |word| Job { size: Some(8 << 20), block_bytes: 1 << 20, ..sequential(word) };
        fn sequential(word: &str) -> Job {
            Job { name: word.into(), rw: job::rw(word).unwrap(), ..Job::default() }
        }
        let phases = vec![vec![of("write")], vec![of("read")]];
        let seen = rounds(FLASH, phases, Length::Pass, 2);
        for round in &seen {
            assert_eq!(round.jobs[0].measured.write.requests, 8);
            assert_eq!(round.jobs[1].measured.read.requests, 8);
        }
    }

    #[test]
    fn in_an_open_loop_the_wait_for_a_device_that_does_not_keep_up_is_part_of_the_latency() {
        let open = |per_s| Job {
            arrivals: Some(Arrivals { per_s, process: ArrivalProcess::Poisson }),
            ..random_read(1)
        };
        let length = Length::Time(Duration::from_secs(4));
        // A disk answers some 200 requests a second with a full queue, and 75 one at a time.
        let of = |per_s| {
            let seen = rounds(DISK, vec![vec![open(per_s)]], length, 2);
            seen.into_iter().map(|round| round.jobs[0].measured.read).collect::<Vec<_>>()
        };
        let (calm, flooded) = (of(20.0), of(1000.0));
        assert!((calm[1].iops - 20.0).abs() < 8.0, "{}", calm[1].iops);
        assert!(calm[1].latency.mean_us < 30_000.0, "{}", calm[1].latency.mean_us);
        assert!(flooded[1].latency.mean_us > 3e6, "{}", flooded[1].latency.mean_us);
        assert!(flooded[1].latency.mean_us > 2.0 * flooded[0].latency.mean_us);
    }

    #[test]
    fn bins_of_two_digits_keep_quantiles_within_a_tenth() {
        let bins = Bins::of((1..=100_000).map(|nanos| (nanos, 1)));
        assert_eq!(
            (bins.count(), bins.quantile(0.5), bins.quantile(0.999)),
            (100_000, 50_000, 100_000)
        );
        assert!((bins.mean() / 50_000.0 - 1.0).abs() < 0.05, "{}", bins.mean());
        assert_eq!(Bins::default().quantile(0.5), 0);
    }
}
