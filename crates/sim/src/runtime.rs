//! The virtual-time runtime: block's executor above a clock that jumps.

use crate::Random;
use headpond_block::{Driver, Executor, Instant, Order, Runtime, Stalled, VirtualClock, Wait};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

/// Rounds at one instant after which nothing is expected any more: the busiest of real runs have a
/// few thousand, and so many take some ten seconds.
const ROUNDS_MAX: u64 = 100_000_000;

/// What a simulated run knows of itself. Clones are the same.
#[derive(Clone)]
pub struct Sim {
    seed: u64,
    random: Rc<RefCell<Random>>,
}

impl Sim {
    fn new(seed: u64) -> Self {
        Self { seed, random: Rc::new(RefCell::new(Random::new(seed))) }
    }

    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// A new generator; which one depends on the seed and on how many were taken before.
    pub fn random(&self) -> Random {
        self.random.borrow_mut().fork()
    }
}

/// Runs `main` to its end in virtual time. Tasks that it leaves behind are dropped.
///
/// # Errors
/// `Stalled` where every task waits and no timer is set, a deadlock, or where tasks wake each other
/// for ever while time stands still.
pub fn run<F: Future>(
    seed: u64,
    main: impl FnOnce(Runtime, Sim) -> F,
) -> Result<F::Output, Stalled> {
    let sim = Sim::new(seed);
    let executor = executor(&sim);
    executor.block_on(main(executor.runtime(), sim))
}

/// An executor in virtual time whose order of tasks is drawn from the simulation's seed.
fn executor(sim: &Sim) -> Executor {
    let order = Order::Seeded(sim.random().number());
    Executor::new(Box::new(VirtualClock::with_rounds_max(ROUNDS_MAX)), order)
}

/// Runs `main` to its end on the first of several executors, each of which stands for a thread:
/// they share a clock, and which of them runs next is drawn from the seed, so that messages between
/// them arrive early or late.
///
/// # Errors
/// As [`run`].
///
/// # Panics
/// Without an executor.
pub fn run_threads<F: Future>(
    seed: u64,
    threads: usize,
    main: impl FnOnce(Vec<Runtime>, Sim) -> F,
) -> Result<F::Output, Stalled> {
    let sim = Sim::new(seed);
    let (clock, mut draw) = (SharedClock::default(), sim.random());
    let executor = |_| {
        let order = Order::Seeded(sim.random().number());
        Executor::new(Box::new(clock.clone()), order)
    };
    let executors: Vec<Executor> = (0..threads).map(executor).collect();
    let first = &executors[0];
    let runtimes = executors.iter().map(Executor::runtime).collect();
    let mut main = pin!(main(runtimes, sim.clone()));
    first.wake_main();
    let mut rounds = 0;
    loop {
        let mut ready: Vec<usize> = Vec::with_capacity(threads);
        ready.extend((0..threads).filter(|at| executors[*at].is_ready()));
        if ready.is_empty() {
            let next = executors.iter().filter_map(Executor::next_timer).min();
            let deadlock = || io::Error::new(io::ErrorKind::Deadlock, "every task waits");
            clock.0.set(next.ok_or_else(|| first.stalled(deadlock()))?.max(clock.0.get()));
            executors.iter().for_each(Executor::fire_timers);
            rounds = 0;
            continue;
        }
        rounds += 1;
        if rounds > ROUNDS_MAX {
            let livelock = "tasks wake each other, and time stands still";
            return Err(first.stalled(io::Error::new(io::ErrorKind::Deadlock, livelock)));
        }
        match ready[draw.below(ready.len() as u64) as usize] {
            0 => {
                if let Some(output) = first.run_ready(main.as_mut()) {
                    return Ok(output);
                }
            }
            other => {
                let _: Option<()> = executors[other].run_ready(pin!(std::future::pending()));
            }
        }
    }
}

/// One clock for several executors, which whoever drives them moves.
#[derive(Clone, Default)]
struct SharedClock(Rc<Cell<Instant>>);

impl Driver for SharedClock {
    fn now(&self) -> Instant {
        self.0.get()
    }

    fn park(&self, _: Wait) -> io::Result<()> {
        unreachable!("executors that share a clock are driven from outside")
    }

    fn unparker(&self) -> Arc<dyn Fn() + Send + Sync> {
        Arc::new(|| {})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_block::sync::Notify;
    use std::time::Duration;

    /// Some tasks that sleep and meet; the order in which they ran, and when.
    fn trace(seed: u64) -> Vec<(u32, Instant)> {
        run(seed, |runtime, sim| async move {
            let trace = Rc::new(RefCell::new(Vec::new()));
            let tasks: Vec<_> = (0..20)
                .map(|task| {
                    let (runtime, trace, mut random) =
                        (runtime.clone(), trace.clone(), sim.random());
                    runtime.clone().spawn(async move {
                        for _ in 0..10 {
                            trace.borrow_mut().push((task, runtime.now()));
                            runtime.sleep(Duration::from_millis(random.below(3))).await;
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await;
            }
            trace.take()
        })
        .unwrap()
    }

    #[test]
    fn one_seed_gives_one_order_and_another_seed_another() {
        let first = trace(1);
        assert_eq!(first.len(), 200);
        assert_eq!(first, trace(1));
        let tasks = |trace: &[(u32, Instant)]| trace.iter().map(|step| step.0).collect::<Vec<_>>();
        assert_ne!(tasks(&first), tasks(&trace(2)));
    }

    #[test]
    fn an_hour_passes_at_once() {
        let slept = run(0, |runtime, _| async move {
            runtime.sleep(Duration::from_secs(3600)).await;
            runtime.now()
        });
        assert_eq!(slept.unwrap(), Instant::from_nanos(3_600_000_000_000));
    }

    #[test]
    fn a_deadlock_is_reported() {
        let stalled = run(0, |_, _| async { Notify::new().wait().await });
        assert!(stalled.unwrap_err().to_string().contains("no timer is set"));
    }

    #[test]
    fn tasks_that_wake_each_other_for_ever_are_reported() {
        let stalled = run(0, |runtime, _| async move {
            loop {
                runtime.yield_now().await;
            }
        });
        let stalled: Result<(), _> = stalled;
        assert!(stalled.unwrap_err().to_string().contains("time stands still"));
    }
}
