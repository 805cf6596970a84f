//! Rounds of a cell on a real device, with requests of our own.

use super::Next;
use super::virtual_time::rounds;
use crate::plan::{Cell, Plan, Target};
use headpond_block::{BlockDevice, Buffer, BufferPool};
use headpond_sim::Random;
use headpond_uring::{FileDevice, FileOptions, OpenError, RunConfig, RunError, run};
use headpond_whatif::Memory;
use headpond_whatif::rounds::{self, Opaque, Place};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

/// A device that cannot be measured from within.
#[derive(Debug, thiserror::Error)]
pub enum InProcessError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Measures a cell of a target that is a device or a file.
///
/// # Errors
/// Where it cannot be opened, or there is no ring to be had.
pub(super) fn measure(plan: &Plan, cell: &Cell, next: Next<'_>) -> Result<(), InProcessError> {
    let target = &plan.targets[cell.target];
    let rounds = rounds(plan, cell, plan.rounds_of(target));
    let config = RunConfig::default();
    let seed = plan.seed.wrapping_add(cell.number as u64);
    run(&config, |ring, runtime| async move {
        let device: Rc<dyn BlockDevice> = Rc::new(FileDevice::open(&ring, &options(target))?);
        let (memory, watch) = (filled(seed), &Opaque);
        let place = Place { devices: vec![device], runtime: &runtime, memory, watch };
        rounds::run(&rounds, place, &mut Random::new(seed), next).await;
        Ok(())
    })?
}

fn options(target: &Target) -> FileOptions {
    let path: &Path = target.device.as_ref().or(target.file.as_ref()).expect("device or file");
    FileOptions::new(path)
}

/// Memory whose contents no device can compress.
fn filled(seed: u64) -> Memory {
    let pool = BufferPool::new(&headpond_block::PoolConfig::default());
    let random = RefCell::new(Random::new(seed));
    Rc::new(move |bytes| {
        let buffer: Buffer = pool.take(bytes);
        let mut random = random.borrow_mut();
        let words = bytes.div_ceil(8);
        let contents: Vec<u8> = (0..words).flat_map(|_| random.number().to_le_bytes()).collect();
        buffer.copy_from(&contents[..bytes]);
        buffer
    })
}
