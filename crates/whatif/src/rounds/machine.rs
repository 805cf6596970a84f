//! Rounds on a machine that is only described, in virtual time.

use super::{MachineRound, Next, RoundTarget, Rounds, Watch};
use crate::full;
use crate::generator;
use crate::job::Job;
use crate::machine::Machine;
use crate::outcome::{Baseline, CacheShare, DeviceShare, dirty_ratio};
use crate::simulate::SimulateError;
use crate::stack::{CacheStack, Stack};
use headpond_block::Runtime;
use headpond_sim::run;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// Runs rounds of all loads in turn on one new machine until `next` has enough.
///
/// # Errors
/// Where the machine cannot be put together, or stands still.
pub fn simulate_rounds(
    stack: &Stack,
    loads: &[Rounds],
    seed: u64,
    next: Next<'_>,
) -> Result<(), SimulateError> {
    simulate((stack, None), loads, seed, next)
}

/// The same on a machine whose cache, where it has one, is full of dirty data to begin with: of
/// what the first job of the first load leaves there.
///
/// # Errors
/// As [`simulate_rounds`].
pub fn simulate_rounds_when_full(
    stack: &Stack,
    loads: &[Rounds],
    seed: u64,
    next: Next<'_>,
) -> Result<(), SimulateError> {
    let filled = stack.cache.as_ref().map(|cache| (cache, &loads[0].phases[0][0]));
    simulate((&full::while_filling(stack), filled), loads, seed, next)
}

fn simulate(
    (stack, filled): (&Stack, Option<(&CacheStack, &Job)>),
    loads: &[Rounds],
    seed: u64,
    next: Next<'_>,
) -> Result<(), SimulateError> {
    let parts = stack.parts()?;
    run(seed, |runtime, sim| async move {
        let machines = Machine::start_all(stack, &parts, &runtime, &sim).await?;
        for machine in &machines {
            if let Some((cache, job)) = filled {
                full::fill(machine, cache, job, &mut sim.random()).await?;
            }
        }
        let devices = machines.iter().map(|machine| Rc::clone(&machine.front)).collect();
        let takes_flushes = machines[0].takes_flushes;
        let watch = MachineWatch::new(machines, &runtime);
        let (memory, watch) = (generator::no_memory(), &watch);
        let place = RoundTarget { devices, takes_flushes, runtime: &runtime, memory, watch };
        super::run(loads, place, &mut sim.random(), next).await;
        Ok(())
    })?
}

struct MachineWatch {
    machines: Vec<Machine>,
    runtime: Runtime,
    /// Of the first of them, which is like the others.
    baseline: RefCell<Baseline>,
}

impl MachineWatch {
    fn new(machines: Vec<Machine>, runtime: &Runtime) -> Self {
        let baseline = RefCell::new(Baseline::take(&machines[0], runtime.now()));
        Self { machines, runtime: runtime.clone(), baseline }
    }
}

impl Watch for MachineWatch {
    fn dirty_ratio(&self) -> f64 {
        dirty_ratio(&self.machines[0].volume.stats().slices)
    }

    fn begin_round(&self) {
        self.machines.iter().for_each(Machine::reset_probes);
        self.baseline.replace(Baseline::take(&self.machines[0], self.runtime.now()));
    }

    fn end_round(&self) -> Option<MachineRound> {
        let baseline = self.baseline.borrow();
        let seconds = self.runtime.now().since(baseline.from).as_secs_f64();
        let drives = self.machines.iter().flat_map(|machine| &machine.drives);
        let snapshots: Vec<_> = drives.map(|drive| drive.snapshot()).collect();
        let first = &self.machines[0];
        let cache = first.cache.as_ref().map(|device| {
            let device = DeviceShare::of(&[device.snapshot()], seconds);
            let after = first.volume.stats().slices;
            CacheShare::of(&baseline.slices, &after, device, seconds)
        });
        Some(MachineRound { drives: DeviceShare::of(&snapshots, seconds), cache })
    }

    fn is_over(&self) -> bool {
        false
    }

    fn asks_every(&self) -> Option<Duration> {
        None
    }
}
