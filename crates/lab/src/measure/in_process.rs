//! Rounds of cells on a real device, with requests of our own.

use super::Surroundings;
use super::bound::Bound;
use super::fio::Ground;
use super::stop::Stop;
use super::virtual_time::{rounds, seed};
use crate::plan::{Cell, Plan};
use headpond_block::{BlockDevice, Buffer, BufferPool, Runtime};
use headpond_sim::Random;
use headpond_uring::{FileDevice, FileOptions, OpenError, Ring, RunConfig, RunError, run};
use headpond_whatif::Memory;
use headpond_whatif::rounds::{self, Next, Opaque, Place};
use std::cell::RefCell;
use std::io;
use std::rc::Rc;

/// A device that cannot be measured from within.
#[derive(Debug, thiserror::Error)]
pub enum InProcessError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("{0}")]
    Connect(String),
    #[error(
        "the load cannot be bound to the processors {cpus}: {error}; name others with cpus = \"...\", \
         or \"none\""
    )]
    Bind { cpus: String, error: io::Error },
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Measures cells of a target that is no model, a round of each in turn.
///
/// # Errors
/// Where it cannot be opened, or there is no ring to be had.
pub(super) fn measure(
    plan: &Plan,
    cells: &[Cell],
    (ground, surroundings): (&Ground<'_>, &dyn Surroundings),
    stop: &Stop,
    next: Next<'_>,
) -> Result<(), InProcessError> {
    let (loads, seed) = (rounds(plan, cells), seed(plan, &cells[0]));
    let bind = |cpus: &String| {
        Bound::to(cpus).map_err(|error| InProcessError::Bind { cpus: cpus.clone(), error })
    };
    let _bound = ground.cpus.as_ref().map(bind).transpose()?;
    run(&RunConfig::default(), |ring, runtime| async move {
        let device = open(ground, surroundings, &ring, &runtime).await?;
        let (memory, watch) = (filled(seed), &Opaque { is_over: &|| stop.is_asked() });
        let place = Place { devices: vec![device], runtime: &runtime, memory, watch };
        rounds::run(&loads, place, &mut Random::new(seed), next).await;
        Ok(())
    })?
}

/// Also soon after a run that had it was killed.
async fn open(
    ground: &Ground<'_>,
    surroundings: &dyn Surroundings,
    ring: &Ring,
    runtime: &Runtime,
) -> Result<Rc<dyn BlockDevice>, InProcessError> {
    if ground.is_nbd {
        let connected = surroundings.connect(&ground.place, ring, runtime).await;
        return Ok(connected.map_err(InProcessError::Connect)?.device);
    }
    Ok(Rc::new(FileDevice::open_when_left(ring, &FileOptions::new(&ground.place))?))
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
