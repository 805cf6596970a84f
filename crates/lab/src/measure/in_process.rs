//! Rounds of cells on a real device, with requests of our own.

use super::bound::Bound;
use super::fio::Ground;
use super::stop::Stop;
use super::virtual_time::{rounds, seed};
use crate::environment::Surroundings;
use crate::plan::{Cell, Plan};
use headpond_block::{BlockDevice, Buffer, BufferPool, Runtime, Stability};
use headpond_sim::Random;
use headpond_uring::{
    FileDevice, FileOptions, MemoryNode, OpenError, OpenFile, Ring, RunConfig, RunError, run,
};
use headpond_whatif::Memory;
use headpond_whatif::rounds::{self, Next, Opaque, RoundTarget};
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
    #[error(
        "the load's memory cannot come from node {node}: {error}; name another with memory = \"...\", \
         or \"none\""
    )]
    Memory { node: u32, error: io::Error },
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
    (grounds, surroundings): (&[Ground<'_>], &dyn Surroundings),
    stop: &Stop,
    next: Next<'_>,
) -> Result<(), InProcessError> {
    let (loads, seed) = (rounds(plan, cells), seed(plan, &cells[0]));
    let bind_memory =
        |node| MemoryNode::bind(node).map_err(|error| InProcessError::Memory { node, error });
    let bind = |cpus: &String| {
        Bound::to(cpus).map_err(|error| InProcessError::Bind { cpus: cpus.clone(), error })
    };
    let _bound = cpus_of(grounds).as_ref().map(bind).transpose()?;
    let _memory = memory_node_of(grounds).map(bind_memory).transpose()?;
    run(&RunConfig::default(), |ring, runtime| async move {
        let mut devices = Vec::new();
        for ground in grounds {
            devices.push(open(ground, surroundings, &ring, &runtime).await?);
        }
        let (memory, watch) = (filled(seed), &Opaque { is_over: &|| stop.is_asked() });
        let takes = |it: &Rc<dyn BlockDevice>| it.geometry().stability == Stability::Flushable;
        let takes_flushes = devices.iter().any(takes);
        let place = RoundTarget { devices, takes_flushes, runtime: &runtime, memory, watch };
        rounds::run(&loads, place, &mut Random::new(seed), next).await;
        Ok(())
    })?
}

/// One thread makes the load of all: where they are at several nodes, it may run at each of them.
fn cpus_of(grounds: &[Ground<'_>]) -> Option<String> {
    let mut lists: Vec<_> =
        grounds.iter().map(|ground| ground.cpus.clone()).collect::<Option<_>>()?;
    lists.sort_unstable();
    lists.dedup();
    Some(lists.join(","))
}

/// Where they are at several nodes, memory comes from wherever the thread runs.
fn memory_node_of(grounds: &[Ground<'_>]) -> Option<u32> {
    let first = grounds[0].memory_node;
    first.filter(|_| grounds.iter().all(|ground| ground.memory_node == first))
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
    let file = OpenFile::open_when_left(&FileOptions::new(&ground.place))?;
    Ok(Rc::new(FileDevice::new(ring, file)?))
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
