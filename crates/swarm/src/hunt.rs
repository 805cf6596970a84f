//! Many cases, side by side on all processors.

use crate::case::{Failure, Offence, run_case};
use crate::scenarios::Scenario;
use crate::tally::Tally;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant};

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
    #[cfg(feature = "defects")]
    pub defect: Option<headpond_block::defect::Defect>,
}

impl Hunt {
    /// From this seed on, until something is found.
    pub fn from_seed(seed: u64) -> Self {
        Self {
            seed,
            cases_max: u64::MAX,
            time_max: None,
            stops_at_failure: true,
            #[cfg(feature = "defects")]
            defect: None,
        }
    }
}

thread_local! {
    /// Whether a panic of this thread is to be reported instead of printed.
    static CATCHES: Cell<bool> = const { Cell::new(false) };
    static LAST_PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
    static STORY: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Runs the cases; `done` hears of each that has ended. Tells what was done in all, and what went
/// wrong.
pub fn hunt(hunt: &Hunt, done: impl Fn(&Tally) + Sync) -> (Tally, Vec<Failure>) {
    catch_panics_quietly();
    let next = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let results = Mutex::new((Tally::default(), Vec::new()));
    let begun = Instant::now();
    let work = || {
        #[cfg(feature = "defects")]
        headpond_block::defect::activate(hunt.defect);
        while !is_over.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let is_late = hunt.time_max.is_some_and(|most| begun.elapsed() >= most);
            if index >= hunt.cases_max || is_late {
                break;
            }
            let outcome = guarded(hunt.seed.wrapping_add(index));
            let mut results = results.lock().expect("nobody panics with it");
            match outcome {
                Ok(tally) => results.0.add(&tally),
                Err(failure) => {
                    results.0.add(&failure.tally);
                    results.1.push(*failure);
                    is_over.fetch_or(hunt.stops_at_failure, Ordering::Relaxed);
                }
            }
            done(&results.0);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    results.into_inner().expect("nobody panics with it")
}

/// Runs a case; a panic of the engine is an offence like any other.
fn guarded(seed: u64) -> Result<Tally, Box<Failure>> {
    STORY.take();
    let mut tell = |line: &str| STORY.with_borrow_mut(|story| story.push(line.to_owned()));
    caught(|| run_case(seed, &mut tell)).unwrap_or_else(|text| {
        let (offence, story) = (Offence::Panic(text), STORY.take());
        let tally = Tally { cases: 1, ..Tally::default() };
        Err(Box::new(Failure { seed, offence, story, tally }))
    })
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
