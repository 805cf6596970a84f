//! `headpond witness agent`: runs at each boot on the machine that loses its power.

use super::args::AgentArgs;
use super::connect::Client;
use super::verify::verify;
use super::words;
use super::write::{end_on_interrupt, write};
use anyhow::Result;
use headpond_api::outcome::{Exit, Failure};
use headpond_block::{BufferPool, PoolConfig};
use headpond_uring::{RingConfig, run_with_pool};
use headpond_witness::field::wire::{Purpose, Task};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const PAUSE: Duration = Duration::from_secs(2);
/// Consecutive refusals that end it: the kernel may still hold locks of a previous session.
const REFUSALS_MAX: u32 = 5;

/// # Errors
/// Refusals; other errors are retried.
pub fn run(args: &AgentArgs) -> Result<Exit> {
    let is_interrupted = end_on_interrupt();
    let pool = BufferPool::new(&PoolConfig::default());
    run_with_pool(&RingConfig::default(), &pool, |ring, runtime| async move {
        let client = Client::new(&args.device, ring, runtime)?;
        let mut refusals = 0;
        loop {
            match step(&client, args, &is_interrupted).await {
                Ok(true) => return Ok(Exit::Ok),
                Ok(false) => refusals = 0,
                Err(error) if error.is::<Failure>() && refusals == REFUSALS_MAX => {
                    return Err(error);
                }
                Err(error) => {
                    refusals = if error.is::<Failure>() { refusals + 1 } else { 0 };
                    // The network may not be up yet, or the witness is being restarted.
                    eprintln!("headpond: {}; retrying", headpond_api::outcome::told(&error));
                    client.runtime.sleep(PAUSE).await;
                }
            }
            if is_interrupted.load(Ordering::Relaxed) {
                return Ok(Exit::Ok);
            }
        }
    })?
}

/// Executes an instruction of the witness; whether it was the last one.
async fn step(client: &Client, args: &AgentArgs, is_interrupted: &Arc<AtomicBool>) -> Result<bool> {
    match client.ask().await? {
        Task::End => {
            println!("the campaign is over");
            return Ok(true);
        }
        Task::Wait => client.runtime.sleep(PAUSE).await,
        Task::Verify => {
            let ruling = verify(client).await?;
            words::of(client.name(), &ruling).iter().for_each(|line| println!("{line}"));
        }
        Task::Write => {
            let load = args.load.load(None);
            let is_interrupted = Arc::clone(is_interrupted);
            write(client, Purpose::Write, &args.load, load, is_interrupted).await?;
        }
    }
    Ok(false)
}
