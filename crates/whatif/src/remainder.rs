//! What is left to do when the last request of an excerpt is answered, and how long it takes.
//!
//! Drives answer writes that lie in their own memory, and a cache answers what only it has. Both
//! fill while the workload goes on, and from then on nothing is answered faster than the disks
//! write. A short replay ends before, and would tell the speed of a burst. So
//!
//! 1. before the first request that is measured the drives write what they hold;
//! 2. after the last answer they do so again, and that time counts;
//! 3. what is dirty in the cache is cleaned, and of that time counts the share of what has become
//!    dirty meanwhile, and of this what the drives had not been idle for: beside requests that
//!    leave them idle, cleaning costs nothing.
//!
//! Requests divided by that sum are what goes on for ever, however short the replay: it ends as it
//! began. Where drives are idle in the shadow of others the sum is up to twice too long.
//!
//! Requests that come at their own times leave the drives idle in between, and what is left is done
//! then: by drives as by the cache. What that time does not suffice for stays behind, and as much
//! again with every round: the machine *falls behind*, and from when its caches are full on
//! requests wait for it. Drives that keep up hold some writes all the same, as many after one round
//! as after several; only what has become more from round to round counts.
//!
//! What is dirty is counted in stripes, and not in blocks: one small block costs the drives about
//! as much as a stripe that is full, and where small blocks become dirty while long runs are
//! cleaned their number says little.
//!
//! **Not here**: dirty data for which there is room for ever; who knows that does not ask for it.

use crate::load::{Excerpt, Pace, Remainder};
use crate::machine::Machine;
use crate::outcome::{Afterwards, Baseline, Outcome};
use headpond_block::sync::join_all;
use headpond_block::{BlockDevice, Request, Runtime};
use std::collections::HashSet;
use std::rc::Rc;

/// What is cleaned in one go where no stripe lies below.
const PIECE_BYTES: u64 = 256 << 10;

/// What the measured time was like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    /// When it began.
    pub dirty_stripes: u64,
    pub seconds: f64,
    /// Share of it in which the drives had something in flight: the mean of all.
    pub busy: f64,
    /// Where requests came at their own times.
    pub times: Option<Times>,
}

/// Requests came at their own times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// From the first request to the last.
    pub span_s: f64,
    /// What the drives held when it began took so long to write.
    pub drives_s: f64,
    /// It came of so many times as many requests.
    pub rounds: f64,
}

impl Times {
    /// What the drives hold more after each round: all of it where it is in proportion to the
    /// requests, and nothing where it is the same after few and many.
    fn grown_s(self, drives_s: f64) -> f64 {
        match self.rounds > 1.0 {
            true => ((self.drives_s - drives_s) / (self.rounds - 1.0)).clamp(0.0, drives_s),
            false => drives_s,
        }
    }
}

impl Before {
    pub fn of(baseline: &Baseline, outcome: &Outcome, excerpt: &Excerpt) -> Self {
        let (warm_up, measured) = excerpt.parts();
        let times = |speed: f64| Times {
            span_s: outcome.replay.map_or(0.0, |replay| replay.span_s / speed),
            drives_s: baseline.drives_s,
            rounds: warm_up.len() as f64 / measured.len().max(1) as f64,
        };
        let times = match excerpt.pace {
            Pace::Recorded { speed } => Some(times(speed)),
            _ => None,
        };
        Self {
            dirty_stripes: baseline.dirty_stripes,
            seconds: outcome.laps.iter().map(|lap| lap.seconds).sum(),
            busy: outcome.drives.busy_mean,
            times,
        }
    }

    /// What counts of what is done after the last answer.
    fn afterwards(self, drives_s: f64, cleaning_s: f64) -> Afterwards {
        let idle_s = (1.0 - self.busy.clamp(0.0, 1.0)) * self.seconds;
        let (counts_s, behind_s) = match self.times {
            None => (drives_s + (cleaning_s - idle_s).max(0.0), 0.0),
            Some(times) => {
                let counts_s = (times.grown_s(drives_s) + cleaning_s - idle_s).max(0.0);
                (counts_s, (self.seconds - times.span_s).max(0.0) + counts_s)
            }
        };
        Afterwards { drives_s, cleaning_s, counts_s, behind_s }
    }
}

/// Stripes of the array of which something is dirty.
fn dirty_stripes(machine: &Machine) -> u64 {
    let stripe = machine.volume.geometry().stripe;
    let bytes = stripe.map_or(PIECE_BYTES, |stripe| u64::from(stripe.width_bytes));
    let mut stripes = HashSet::new();
    machine.volume.each_dirty(|range| {
        stripes.insert(range.start() / bytes);
    });
    stripes.len() as u64
}

/// Has the drives write what they hold; how long it took.
pub(crate) async fn empty_drives(machine: &Machine, runtime: &Runtime) -> f64 {
    let begun = runtime.now();
    // Of one that has failed nobody waits for anything.
    let _ =
        join_all(machine.drives.iter().map(|drive| drive.submit(Request::flush())).collect()).await;
    runtime.now().since(begun).as_secs_f64()
}

impl Remainder {
    /// Looks at what is dirty when the measured time begins, where that is to count.
    pub(crate) fn dirty_stripes(self, machine: &Machine) -> u64 {
        match self {
            Self::OfDrivesAndCache => dirty_stripes(machine),
            _ => 0,
        }
    }

    /// Does what is left, and says how long it took.
    pub(crate) async fn work_off(
        self,
        machine: &Rc<Machine>,
        runtime: &Runtime,
        before: Before,
    ) -> Afterwards {
        if self == Self::Nothing {
            return Afterwards::default();
        }
        let drives_s = empty_drives(machine, runtime).await;
        let cleaning_s = match self {
            Self::OfDrivesAndCache => clean(machine, runtime, before.dirty_stripes).await,
            _ => 0.0,
        };
        before.afterwards(drives_s, cleaning_s)
    }
}

/// Cleans everything; of the seconds that it took, the share of what has become dirty since there
/// were so many stripes.
async fn clean(machine: &Rc<Machine>, runtime: &Runtime, before: u64) -> f64 {
    let now = dirty_stripes(machine);
    if now <= before {
        return 0.0;
    }
    let begun = runtime.now();
    // What cannot be cleaned stays.
    let _ = machine.volume.clean_all().await;
    let share = (now - before) as f64 / now as f64;
    runtime.now().since(begun).as_secs_f64() * share
}
