//! Lives of a machine whose power may be cut, and its disks as devices.

use headpond_block::{BlockDevice, BufferPool, PoolConfig, Runtime};
use headpond_sim::{Ended, Medium, OperationTime, Power, Sim, SimDisk, run_until_cut};
use headpond_volume::{Description, DescriptionKeeper, Volume};
use std::cell::RefCell;
use std::rc::Rc;

/// What happens until the power is cut, or to the end.
pub fn live(seed: u64, power: &Power, main: impl AsyncFnOnce(Runtime, Sim)) -> Ended<()> {
    let run = async |runtime, sim| main(runtime, sim).await;
    run_until_cut(seed, power, run).expect("no deadlock")
}

pub fn live_to_the_end(seed: u64, power: &Power, main: impl AsyncFnOnce(Runtime, Sim)) {
    assert!(!live(seed, power, main).was_cut());
}

pub fn disk(
    medium: &Rc<Medium>,
    power: &Power,
    runtime: &Runtime,
    sim: &Sim,
) -> Rc<dyn BlockDevice> {
    Rc::new(SimDisk::attach(Rc::clone(medium), power, runtime, sim, OperationTime::SOME))
}

pub fn disks(
    media: &[Rc<Medium>],
    power: &Power,
    runtime: &Runtime,
    sim: &Sim,
) -> Vec<Rc<dyn BlockDevice>> {
    media.iter().map(|medium| disk(medium, power, runtime, sim)).collect()
}

pub fn pool() -> BufferPool {
    BufferPool::new(&PoolConfig::small())
}

/// Has the description of a volume kept; where `ends` says so of one, the power goes instead.
pub fn keep(
    volume: &Volume,
    kept: &Rc<RefCell<Description>>,
    power: &Power,
    ends: impl Fn(&Description) -> bool + 'static,
) {
    let (kept, power) = (Rc::clone(kept), power.clone());
    volume.keep_description(DescriptionKeeper {
        keep: Box::new(move |description| {
            match ends(description) {
                true => power.cut(),
                false => drop(kept.replace(description.clone())),
            }
            Box::pin(std::future::ready(()))
        }),
        name_of: Box::new(str::to_owned),
    });
}
