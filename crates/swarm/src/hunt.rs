//! Many cases, side by side on all processors.

use crate::case::{Failure, run_case};
use crate::offence::Offence;
use crate::scenarios::Scenario;
use crate::tally::Tally;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, mpsc};
use std::time::{Duration, Instant};

/// A case takes a few seconds at most; one that takes so long by the wall's clock goes round in
/// circles.
const CASE_MAX: Duration = Duration::from_secs(300);
const LOOKED_AFTER_EVERY: Duration = Duration::from_millis(500);

/// Which cases to run, and when to stop.
#[derive(Clone, Copy, Debug)]
pub struct Hunt {
    /// The first seed; the others follow it.
    pub seed: u64,
    pub cases_max: u64,
    pub time_max: Option<Duration>,
    /// Ends at the first failure.
    pub stops_at_failure: bool,
    /// The mistake that the engines make.
    pub defect: Option<headpond_block::defect::Defect>,
}

impl Hunt {
    /// From this seed on, until something is found.
    pub fn from_seed(seed: u64) -> Self {
        Self { seed, cases_max: u64::MAX, time_max: None, stops_at_failure: true, defect: None }
    }
}

thread_local! {
    /// Whether a panic of this thread is to be reported instead of printed.
    static CATCHES: Cell<bool> = const { Cell::new(false) };
    static LAST_PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// How a case is lived: [`run_case`], but for the tests of this module.
type Run = fn(u64, &mut dyn FnMut(&str)) -> Result<Tally, Box<Failure>>;

/// What a thread is at, for the one that watches.
struct AtWork {
    seed: u64,
    since: Instant,
    story: Vec<String>,
}

/// A thread that lives one case after the other.
#[derive(Default)]
struct Worker {
    at_work: Mutex<Option<AtWork>>,
    /// Its case does not end, and nobody waits for it any more.
    is_timed_out: AtomicBool,
}

/// What the workers share.
struct Plan {
    hunt: Hunt,
    run: Run,
    begun: Instant,
    next: AtomicU64,
    is_over: AtomicBool,
}

/// Runs the cases; `done` hears of each that has ended. Tells what was done in all, and what went
/// wrong. The thread of a case that does not end is left behind.
pub fn hunt(hunt: &Hunt, done: impl FnMut(&Tally)) -> (Tally, Vec<Failure>) {
    hunt_by(hunt, run_case, CASE_MAX, done)
}

fn hunt_by(
    hunt: &Hunt,
    run: Run,
    case_max: Duration,
    mut done: impl FnMut(&Tally),
) -> (Tally, Vec<Failure>) {
    catch_panics_quietly();
    let (next, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let plan = Arc::new(Plan { hunt: *hunt, run, begun: Instant::now(), next, is_over });
    let (tell, told) = mpsc::channel();
    let begin = || {
        let worker = Arc::new(Worker::default());
        let (own, plan, tell) = (Arc::clone(&worker), Arc::clone(&plan), tell.clone());
        std::thread::spawn(move || own.work(&plan, &tell));
        worker
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut workers: Vec<Arc<Worker>> = (0..threads).map(|_| begin()).collect();
    let (mut tally, mut failures) = (Tally::default(), Vec::new());
    while !workers.is_empty() {
        let outcome = match told.recv_timeout(LOOKED_AFTER_EVERY) {
            Ok(News::Case(outcome)) => outcome,
            Ok(News::Ended(one)) => {
                workers.retain(|other| !Arc::ptr_eq(&one, other));
                continue;
            }
            Err(_) => match workers.iter().position(|worker| worker.is_late(case_max)) {
                Some(late) => Err(std::mem::replace(&mut workers[late], begin()).give_up()),
                None => continue,
            },
        };
        match outcome {
            Ok(case) => tally.add(&case),
            Err(failure) => {
                tally.add(&failure.tally);
                failures.push(*failure);
                plan.is_over.fetch_or(hunt.stops_at_failure, Ordering::Relaxed);
            }
        }
        done(&tally);
    }
    (tally, failures)
}

/// What a worker tells.
enum News {
    Case(Result<Box<Tally>, Box<Failure>>),
    Ended(Arc<Worker>),
}

impl Worker {
    fn work(self: Arc<Self>, plan: &Plan, tell: &mpsc::Sender<News>) {
        headpond_block::defect::activate(plan.hunt.defect);
        while let Some(seed) = plan.next_seed() {
            let outcome = self.guarded(seed, plan.run);
            if self.is_timed_out.load(Ordering::Relaxed)
                || tell.send(News::Case(outcome.map(Box::new))).is_err()
            {
                return;
            }
        }
        let _ = tell.send(News::Ended(Arc::clone(&self)));
    }

    /// Runs a case; a panic of the engine is an offence like any other.
    fn guarded(&self, seed: u64, run: Run) -> Result<Tally, Box<Failure>> {
        *self.at_work() = Some(AtWork { seed, since: Instant::now(), story: Vec::new() });
        let mut tell = |line: &str| {
            let mut at_work = self.at_work();
            at_work.as_mut().expect("it was begun").story.push(line.to_owned());
        };
        let outcome = caught(|| run(seed, &mut tell));
        let at_work = self.at_work().take().expect("it was begun");
        outcome.unwrap_or_else(|text| Err(at_work.ended_by(Offence::Panic(text))))
    }

    fn is_late(&self, case_max: Duration) -> bool {
        self.at_work().as_ref().is_some_and(|it| it.since.elapsed() >= case_max)
    }

    /// What its case is to be called, which it may end after all.
    fn give_up(&self) -> Box<Failure> {
        self.is_timed_out.store(true, Ordering::Relaxed);
        let at_work = self.at_work();
        let AtWork { seed, since, ref story } = *at_work.as_ref().expect("it was late with it");
        let offence = Offence::Endless { seconds: since.elapsed().as_secs() };
        AtWork { seed, since, story: story.clone() }.ended_by(offence)
    }

    fn at_work(&self) -> MutexGuard<'_, Option<AtWork>> {
        self.at_work.lock().expect("nobody panics with it")
    }
}

impl AtWork {
    fn ended_by(self, offence: Offence) -> Box<Failure> {
        let tally = Tally { cases: 1, ..Tally::default() };
        Box::new(Failure { seed: self.seed, offence, story: self.story, tally })
    }
}

impl Plan {
    fn next_seed(&self) -> Option<u64> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        let is_late = self.hunt.time_max.is_some_and(|most| self.begun.elapsed() >= most);
        let is_over = self.is_over.load(Ordering::Relaxed);
        let goes_on = index < self.hunt.cases_max && !is_late && !is_over;
        goes_on.then(|| self.hunt.seed.wrapping_add(index))
    }
}

/// Runs every scenario; the names of those whose rule is broken, and what they said.
pub fn play(scenarios: &[Scenario]) -> Vec<(&'static str, String)> {
    catch_panics_quietly();
    let broken = |scenario: &Scenario| caught(scenario.run).err().map(|text| (scenario.name, text));
    scenarios.iter().filter_map(broken).collect()
}

/// Runs something; what its panic says is returned, not printed.
fn caught<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    CATCHES.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(run));
    CATCHES.set(false);
    outcome.map_err(|_| LAST_PANIC.take().unwrap_or_default())
}

/// What a panic says is kept for the report where it is caught, and printed elsewhere.
fn catch_panics_quietly() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = take_hook();
        set_hook(Box::new(move |info| match CATCHES.get() {
            true => drop(LAST_PANIC.replace(Some(info.to_string()))),
            false => print(info),
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second case never ends, the fourth panics.
    fn run(seed: u64, tell: &mut dyn FnMut(&str)) -> Result<Tally, Box<Failure>> {
        tell("begun");
        match seed {
            11 => loop {
                std::thread::park();
            },
            13 => panic!("the fourth"),
            _ => Ok(Tally { cases: 1, requests: seed, ..Tally::default() }),
        }
    }

    #[test]
    fn a_case_that_never_ends_is_named_and_the_others_are_lived() {
        let order = Hunt { cases_max: 6, stops_at_failure: false, ..Hunt::from_seed(10) };
        let mut heard = 0;
        let (tally, mut failures) =
            hunt_by(&order, run, Duration::from_millis(200), |_| heard += 1);
        assert_eq!((tally.cases, tally.requests, heard), (6, 10 + 12 + 14 + 15, 6));
        failures.sort_by_key(|failure| failure.seed);
        let [endless, panicked] = &failures[..] else { panic!("{failures:?}") };
        assert_eq!((endless.seed, panicked.seed), (11, 13));
        assert!(matches!(endless.offence, Offence::Endless { .. }), "{}", endless.offence);
        assert!(matches!(panicked.offence, Offence::Panic(_)), "{}", panicked.offence);
        assert!(failures.iter().all(|failure| failure.story == ["begun"]));
    }

    #[test]
    fn a_case_that_never_ends_ends_a_hunt_for_the_first_failure() {
        let (_, failures) = hunt_by(&Hunt::from_seed(11), run, Duration::from_millis(200), |_| {});
        assert!(failures.iter().any(|failure| failure.seed == 11 || failure.seed == 13));
    }
}
