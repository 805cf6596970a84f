//! Rounds of cells on a real device, with requests of our own.

use super::stop::Stop;
use super::virtual_time::{rounds, seed};
use crate::plan::{Cell, Plan, Target};
use headpond_block::{BlockDevice, Buffer, BufferPool};
use headpond_sim::Random;
use headpond_uring::{FileDevice, FileOptions, OpenError, RunConfig, RunError, run};
use headpond_whatif::Memory;
use headpond_whatif::rounds::{self, Next, Opaque, Place};
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

/// Measures cells of a target that is a device or a file, a round of each in turn.
///
/// # Errors
/// Where it cannot be opened, or there is no ring to be had.
pub(super) fn measure(
    plan: &Plan,
    cells: &[Cell],
    stop: &Stop,
    next: Next<'_>,
) -> Result<(), InProcessError> {
    let target = &plan.targets[cells[0].target];
    let (loads, seed) = (rounds(plan, cells), seed(plan, &cells[0]));
    let config = RunConfig::default();
    run(&config, |ring, runtime| async move {
        let device: Rc<dyn BlockDevice> = Rc::new(FileDevice::open(&ring, &options(target))?);
        let (memory, watch) = (filled(seed), &Opaque { is_over: &|| stop.is_asked() });
        let place = Place { devices: vec![device], runtime: &runtime, memory, watch };
        rounds::run(&loads, place, &mut Random::new(seed), next).await;
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
