//! Rebuilds measured in virtual time, on drives that are cut short: the first bytes of each model.
//!
//! 1. an array is made, and its first member fails; 2. distributed spare space, or else a drive
//!    that was added, is given what it held, with nothing else to do; 3. after the former a drive
//!    that is added is given the role.
//!
//! The array is the real one. What a drive does over its whole surface, a short one does at its
//! outer edge: the proportions are what it is for.

use super::Shape;
use super::drive::DriveFigures;
use crate::machine::modelled;
use crate::models;
use headpond_block::{BlockDevice, DeviceError, Geometry, Runtime, Stalled};
use headpond_raid::layout::Role;
use headpond_raid::superblock::DATA_OFFSET_MIN;
use headpond_raid::{
    Array, AssembleError, AssembleOptions, Contents, CreateError, CreateOptions, Deadlines,
    Integrity, Intent, MemberError, Occupied, Striping, Tuning, assemble, create,
};
use headpond_sim::ssd::State;
use headpond_sim::{CatalogueError, Model, Sim, SparseDevice, run};
use serde::Serialize;
use std::rc::Rc;
use uuid::Uuid;

/// How long it took, in seconds of virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RebuildTimes {
    /// Of each drive.
    pub drive_bytes: u64,
    /// Onto a drive that was added.
    pub dedicated_s: f64,
    /// Onto distributed spares, where there are any.
    pub distributed_s: Option<f64>,
    /// From there onto a drive that was added.
    pub rebalance_s: Option<f64>,
}

impl RebuildTimes {
    /// Of a whole drive, what took so long of a short one: that lies at the outer edge, where
    /// tracks are longest.
    pub(super) fn whole_hours(&self, drive: &DriveFigures, seconds: f64) -> f64 {
        let mean = (1.0 + drive.inner_share) / 2.0;
        let parts = drive.capacity_bytes as f64 / self.drive_bytes as f64;
        seconds / 3600.0 * parts / mean
    }
}

/// Why there are no times.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    #[error(transparent)]
    Model(#[from] CatalogueError),
    #[error("drives of {model} do not store anything: name a disk or a solid state drive")]
    NoDrive { model: String },
    #[error(transparent)]
    Create(#[from] CreateError),
    #[error(transparent)]
    Assemble(#[from] AssembleError),
    #[error(transparent)]
    Member(#[from] MemberError),
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("the simulation stands still: {0}")]
    Stalled(#[from] Stalled),
}

/// Measures the rebuilds of an array of such drives, of each of which only so much is used.
///
/// # Errors
/// Where there is no such model, or the array cannot be.
pub fn rebuild_times(
    shape: Shape,
    model: &str,
    drive_bytes: u64,
) -> Result<RebuildTimes, RebuildError> {
    let loaded = models::load(model)?;
    let Some(capacity_bytes) = loaded.capacity_bytes() else {
        return Err(RebuildError::NoDrive { model: model.to_owned() });
    };
    let drive_bytes = drive_bytes.min(capacity_bytes - DATA_OFFSET_MIN);
    let (dedicated_s, _) = simulate(shape, &loaded, drive_bytes, Onto::Drive)?;
    let spread = shape.spread.filter(|spread| spread.spares > 0);
    let spread = spread.map(|_| simulate(shape, &loaded, drive_bytes, Onto::SpareSpace));
    let spread = spread.transpose()?;
    Ok(RebuildTimes {
        drive_bytes,
        dedicated_s,
        distributed_s: spread.map(|(seconds, _)| seconds),
        rebalance_s: spread.and_then(|(_, seconds)| seconds),
    })
}

/// What is given first what the lost member held.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Onto {
    Drive,
    SpareSpace,
}

/// Seconds of the rebuild, and of what then goes from spare space to a drive.
fn simulate(
    shape: Shape,
    model: &Model,
    drive_bytes: u64,
    onto: Onto,
) -> Result<(f64, Option<f64>), RebuildError> {
    run(1, |runtime, sim| async move {
        let bytes = DATA_OFFSET_MIN + drive_bytes;
        let drives = drives(usize::from(shape.members) + 1, bytes, model, &runtime, &sim);
        let (spare, members) = drives.split_last().expect("there is one more");
        let array = start(shape, members, &runtime).await?;
        array.fail(Role(0)).await?;
        if onto == Onto::Drive {
            return Ok((onto_drive(&array, spare, &runtime).await?, None));
        }
        let begun = runtime.now();
        array.lend_slot().await?;
        array.fill_slot(Role(0), async || true).await?;
        let seconds = runtime.now().since(begun).as_secs_f64();
        Ok((seconds, Some(onto_drive(&array, spare, &runtime).await?)))
    })?
}

async fn onto_drive(
    array: &Array,
    spare: &Rc<dyn BlockDevice>,
    runtime: &Runtime,
) -> Result<f64, RebuildError> {
    let begun = runtime.now();
    array.add_spare(Rc::clone(spare), Uuid::from_u128(77)).await?;
    array.assign_spare(Role(0), None).await?;
    array.fill(Role(0), async || true).await?;
    Ok(runtime.now().since(begun).as_secs_f64())
}

/// New drives that keep their superblocks, and zeros.
fn drives(
    count: usize,
    bytes: u64,
    model: &Model,
    runtime: &Runtime,
    sim: &Sim,
) -> Vec<Rc<dyn BlockDevice>> {
    let mut chance = sim.random();
    let drive = |number| {
        let name = format!("drive{number:02}");
        let store = Rc::new(SparseDevice::new(name.as_str(), Geometry::of_size(bytes)));
        modelled(store, model, State::default(), &mut chance, runtime)
    };
    (0..count).map(drive).collect()
}

async fn start(
    shape: Shape,
    members: &[Rc<dyn BlockDevice>],
    runtime: &Runtime,
) -> Result<Array, RebuildError> {
    let options = CreateOptions {
        name: "simulated".into(),
        uuid: Uuid::from_u128(0x5eed),
        level: shape.level,
        groups: usize::from(shape.groups),
        journal: None,
        declustered: shape.spread,
        striping: Striping::Plain,
        strip_bytes: shape.strip_bytes,
        contents: Contents::Zeros,
        intent: Intent::None,
        integrity: Integrity::None,
        occupied: Occupied::Overwrite,
        owner: None,
    };
    create(members, &options).await?;
    // Queues that are full on purpose are no reason to give a drive up.
    let deadlines: Option<Deadlines> = None;
    let tuning = Tuning { deadlines, ..Tuning::default() };
    let how = AssembleOptions { tuning, ..AssembleOptions::default() };
    Ok(assemble(runtime, members.to_vec(), how).await?.array)
}

#[cfg(test)]
mod tests {
    use super::super::PRESET_40;
    use super::*;
    use headpond_raid::{Level, Spread};

    #[test]
    fn rebuilds_onto_drives_and_spare_space_take_the_same_time_whenever_they_are_asked() {
        let shape = Shape {
            level: Level::Raid5,
            members: 12,
            groups: 1,
            spread: Some(Spread { width: 4, spares: 1 }),
            ..PRESET_40[1]
        };
        let times = rebuild_times(shape, "hdd-7k2-4t", 32 << 20).unwrap();
        assert_eq!(times, rebuild_times(shape, "hdd-7k2-4t", 32 << 20).unwrap());
        let [distributed, rebalance] = [times.distributed_s, times.rebalance_s].map(Option::unwrap);
        // No drive writes 32 MiB faster than at 250 MB/s, and no rebuild reads less than that.
        let least = (32 << 20) as f64 / 250e6;
        assert!(times.dedicated_s > least && rebalance > least && distributed > 0.0, "{times:?}");
        let grouped = Shape { spread: None, ..shape };
        let grouped = rebuild_times(grouped, "hdd-7k2-4t", 32 << 20).unwrap();
        assert_eq!((grouped.distributed_s, grouped.rebalance_s), (None, None));
    }
}
