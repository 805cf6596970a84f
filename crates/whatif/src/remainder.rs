//! What is left to do when the last request of an excerpt is answered, and how long it takes.
//!
//! Drives answer writes that lie in their own memory, and a cache answers what only it has. Both
//! fill while the workload goes on, and from then on nothing is answered faster than the disks
//! write. A short replay ends before, and would tell the speed of a burst. So
//!
//! 1. before the first request that is measured the drives write what they hold;
//! 2. after the last answer they do so again, and that time counts;
//! 3. what has become dirty in the cache meanwhile is cleaned, and of that time counts what the
//!    drives had not been idle for: beside requests that leave them idle, cleaning costs nothing.
//!
//! Requests divided by that sum are what goes on for ever, however short the replay: it ends as it
//! began. Where drives are idle in the shadow of others the sum is up to twice too long.
//!
//! What is dirty is counted in blocks: where small blocks become dirty while long runs are cleaned,
//! too little is charged.
//!
//! **Not here**: dirty data for which there is room for ever; who knows that does not ask for it.

use crate::machine::Machine;
use crate::outcome::{Baseline, Outcome};
use headpond_block::sync::join_all;
use headpond_block::{BlockDevice, Request, Runtime};
use headpond_cache::SliceStats;
use serde::Serialize;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// What of it counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Remainder {
    /// Nothing: requests come at their own times, and what they leave is done in between.
    #[default]
    Nothing,
    /// What the drives have in their own memory.
    OfDrives,
    /// That, and what has become dirty in the cache.
    OfDrivesAndCache,
}

/// How long it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Afterwards {
    /// Until the drives had written what they held.
    pub drives_s: f64,
    /// Until no more was dirty than before.
    pub cleaning_s: f64,
    /// By so much the measured time is longer.
    pub counts_s: f64,
}

/// From one look at what is dirty to the next, as a share of the time that it took so far.
const LOOK_SHARE: u32 = 64;
const LOOK_MIN: Duration = Duration::from_micros(100);

/// What the measured time was like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    /// When it began.
    pub dirty_bytes: u64,
    pub seconds: f64,
    /// Share of it in which the drives had something in flight: the mean of all.
    pub busy: f64,
}

impl Before {
    pub fn of(baseline: &Baseline, outcome: &Outcome) -> Self {
        Self {
            dirty_bytes: dirty_bytes_of(&baseline.slices),
            seconds: outcome.laps.iter().map(|lap| lap.seconds).sum(),
            busy: outcome.drives.busy_mean,
        }
    }
}

/// Dirty, or written to the array and not yet known to be there.
fn dirty_bytes_of(slices: &[SliceStats]) -> u64 {
    slices.iter().map(|slice| slice.dirty_bytes + slice.written_bytes).sum()
}

/// Has the drives write what they hold.
pub(crate) async fn empty_drives(machine: &Machine) {
    // Of one that has failed nobody waits for anything.
    let _ =
        join_all(machine.drives.iter().map(|drive| drive.submit(Request::flush())).collect()).await;
}

impl Remainder {
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
        let begun = runtime.now();
        empty_drives(machine).await;
        let drives_s = runtime.now().since(begun).as_secs_f64();
        let cleaning_s = match self {
            Self::OfDrivesAndCache => clean_down(machine, runtime, before.dirty_bytes).await,
            _ => 0.0,
        };
        let idle_s = (1.0 - before.busy.clamp(0.0, 1.0)) * before.seconds;
        let counts_s = drives_s + (cleaning_s - idle_s).max(0.0);
        Afterwards { drives_s, cleaning_s, counts_s }
    }
}

/// Until no more is dirty than that; the seconds that it took.
async fn clean_down(machine: &Rc<Machine>, runtime: &Runtime, dirty_bytes_max: u64) -> f64 {
    let begun = runtime.now();
    let passed = || runtime.now().since(begun);
    let dirty_bytes = |machine: &Machine| dirty_bytes_of(&machine.volume.stats().slices);
    if dirty_bytes(machine) > dirty_bytes_max {
        let (cleaned, is_over) = (Rc::clone(machine), Rc::new(Cell::new(false)));
        let ends = Rc::clone(&is_over);
        drop(runtime.spawn(async move {
            // What cannot be cleaned stays: there is an end all the same.
            let _ = cleaned.volume.clean_all().await;
            ends.set(true);
        }));
        while dirty_bytes(machine) > dirty_bytes_max && !is_over.get() {
            runtime.sleep((passed() / LOOK_SHARE).max(LOOK_MIN)).await;
        }
    }
    passed().as_secs_f64()
}
