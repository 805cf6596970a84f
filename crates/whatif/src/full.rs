//! A cache that is full of dirty data to begin with, as one that was written to for long.
//!
//! To fill it through the front takes minutes of virtual time, in which nothing is measured. Here
//! the same requests go to the volume itself, which costs no processor, while nothing is cleaned.
//!
//! **Invariants**: what it holds is what such a job leaves there: blocks all over its region, or
//! what a stream wrote just before the place where the job begins.

use crate::job::Job;
use crate::machine::Machine;
use crate::stack::{CacheStack, Stack};
use headpond_block::sync::join_all;
use headpond_block::{BlockDevice, Buffer, Request};
use headpond_cache::{BypassPolicy, CleaningPolicy};
use headpond_sim::Random;
use headpond_volume::{SeqCutoff, SetError, SettingChange};

/// Requests of the filling that are under way at once.
const TOGETHER: u64 = 256;
/// Of a stream that is written before the job: its own requests may be small.
const STREAM_BYTES: u64 = 1 << 20;

/// The same stack with a cache that takes everything and cleans nothing.
pub(crate) fn while_filling(stack: &Stack) -> Stack {
    let mut stack = stack.clone();
    if let Some(cache) = &mut stack.cache {
        cache.settings.cleaning.policy = CleaningPolicy::Nop;
        cache.settings.seq_cutoff = SeqCutoff::NEVER;
        cache.settings.bypass = BypassPolicy::Off;
    }
    stack
}

/// Fills the cache of a machine that was started for it, and gives it the settings of `cache`.
///
/// # Errors
/// Where the settings are refused.
pub(crate) async fn fill(
    machine: &Machine,
    cache: &CacheStack,
    like: &Job,
    random: &mut Random,
) -> Result<(), SetError> {
    let block_bytes = if like.rw.is_random { like.block_bytes } else { STREAM_BYTES };
    let mut next = like.offset.saturating_sub(room(machine)).next_multiple_of(block_bytes);
    let blocks = machine.volume.geometry().size_bytes / block_bytes;
    let buffer = Buffer::payload_free(block_bytes as usize);
    let mut left = u64::MAX;
    // What does not become dirty any more has no room.
    while room(machine) < std::mem::replace(&mut left, room(machine)) {
        let writes = (left / block_bytes).min(TOGETHER);
        let mut offsets = || match like.rw.is_random {
            true => random.below(blocks) * block_bytes,
            false => {
                next += block_bytes;
                next - block_bytes
            }
        };
        let write = |offset| machine.volume.submit(Request::write(offset, buffer.clone()));
        let writes: Vec<_> = (0..writes).map(|_| offsets()).collect();
        join_all(writes.into_iter().map(write).collect()).await;
    }
    let settings = &cache.settings;
    let changes = [
        SettingChange::new("cleaning.policy", settings.cleaning.policy),
        SettingChange::new("seq-cutoff", settings.seq_cutoff.setting()),
        SettingChange::new("bypass", settings.bypass),
    ];
    machine.volume.set(&changes).await
}

/// Bytes that may become dirty.
fn room(machine: &Machine) -> u64 {
    let slices = machine.volume.stats().slices;
    slices.iter().map(|slice| slice.dirty_bytes_max.saturating_sub(slice.dirty_bytes)).sum()
}
