//! A thread's whole runtime in one call.

use crate::{Ring, RingConfig, RingDriver, RunError};
use headpond_block::{BufferPool, Executor, Order, PoolConfig, Runtime};
use std::future::Future;

/// Sizes of a thread's runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunConfig {
    pub ring: RingConfig,
    pub pool: PoolConfig,
}

/// Runs a future, and what it spawns, on a ring of this thread's own.
///
/// When `main` is done, all other tasks are dropped, and operations in flight are cancelled before
/// this returns.
///
/// # Errors
/// Where no ring can be set up, or the kernel reports a permanent error.
pub fn run<F: Future>(
    config: &RunConfig,
    main: impl FnOnce(Ring, Runtime) -> F,
) -> Result<F::Output, RunError> {
    run_with_pool(&config.ring, &BufferPool::new(&config.pool), main)
}

/// The same with a pool that other threads may share.
///
/// # Errors
/// As [`run`].
pub fn run_with_pool<F: Future>(
    config: &RingConfig,
    pool: &BufferPool,
    main: impl FnOnce(Ring, Runtime) -> F,
) -> Result<F::Output, RunError> {
    let ring = Ring::new(config, pool)?;
    let executor = Executor::new(Box::new(RingDriver::new(ring.clone())), Order::Fifo);
    let main = main(ring, executor.runtime());
    Ok(executor.block_on(main)?)
}
