//! `headpond witness simple`.

use super::args::{SimpleCheckArgs, SimpleCommand, SimpleWriteArgs};
use super::key;
use super::target::Target;
use crate::device::Consent;
use crate::telling::print_json;
use anyhow::{Result, bail};
use headpond_api::answers::Versioned;
use headpond_api::outcome::{Exit, Failure};
use headpond_block::{BufferPool, PoolConfig};
use headpond_uring::{RingConfig, run_with_pool};
use headpond_volume::Size;
use headpond_witness::BLOCK_BYTES;
use headpond_witness::field::simple::{Pattern, SimpleCheck, look, recall, write};
use indicatif::ProgressBar;
use serde_json::json;

/// # Errors
/// Refusals, and what the device answers.
pub fn run(command: &SimpleCommand) -> Result<Exit> {
    match command {
        SimpleCommand::Write(args) => fill(args),
        SimpleCommand::Check(args) => check(args),
    }
}

fn fill(args: &SimpleWriteArgs) -> Result<Exit> {
    let target: Target = args.device.parse()?;
    let consent = if args.force { Consent::Forced } else { Consent::Careful };
    let drawn = u32::from_le_bytes(key::random()?[..4].try_into().expect("four bytes"));
    let seed = args.seed.unwrap_or(drawn.into());
    let pool = BufferPool::new(&PoolConfig::default());
    let pattern = run_with_pool(&RingConfig::default(), &pool, |ring, runtime| async move {
        let device = target.open_to_write(&ring, &runtime, consent).await?;
        let blocks = args.size.bytes().min(device.size_bytes()) / BLOCK_BYTES;
        if blocks == 0 {
            return Err(Failure::usage("the size must be at least a block of 4K"));
        }
        let pattern = Pattern { seed, blocks };
        let bar = ProgressBar::new(blocks);
        write(&*device, pattern, &|block| bar.set_position(block)).await?;
        bar.finish_and_clear();
        Ok(pattern)
    })??;
    let size = Size(pattern.blocks * BLOCK_BYTES);
    println!("{size} are written and flushed: cut the power now, then run");
    println!("  headpond witness simple check --device {}", args.device);
    println!("If the start of the device does not survive, give this to `simple check`:");
    println!("  --seed {seed} --size {size}");
    Ok(Exit::Ok)
}

fn check(args: &SimpleCheckArgs) -> Result<Exit> {
    let target: Target = args.device.parse()?;
    let pool = BufferPool::new(&PoolConfig::default());
    let (pattern, seen) =
        run_with_pool(&RingConfig::default(), &pool, |ring, runtime| async move {
            let device = target.open_to_read(&ring, &runtime).await?;
            let told = args.seed.zip(args.size);
            let told =
                told.map(|(seed, size)| Pattern { seed, blocks: size.bytes() / BLOCK_BYTES });
            let recalled = recall(&*device).await.ok().flatten();
            let Some(pattern) = told.or(recalled) else {
                bail!("{}: {NOT_RECALLED}", args.device);
            };
            let bar = ProgressBar::new(pattern.blocks);
            let seen = look(&*device, pattern, &|block| bar.set_position(block)).await;
            bar.finish_and_clear();
            Ok((pattern, seen))
        })??;
    if args.json {
        let report = json!({
            "seed": pattern.seed, "blocks": pattern.blocks, "seen": seen,
            "kept": seen.is_whole(pattern),
        });
        print_json(&Versioned::new(report))?;
    } else {
        println!("{}", told(pattern, &seen));
    }
    Ok(if seen.is_whole(pattern) { Exit::Ok } else { Exit::Error })
}

const NOT_RECALLED: &str = "it does not begin with the header of `simple write`: either that was \
    not written, or something \
     else was since, or its very start is lost. Give --seed and --size as `simple write` has told them";

fn told(pattern: Pattern, seen: &SimpleCheck) -> String {
    let SimpleCheck { whole, lost, misdirected, torn, unreadable, first } = *seen;
    let Some(first) = first else {
        return format!(
            "all {} flushed blocks are intact. If the power was cut since, the device kept \
             flushed data once; it may have written everything before the cut. `headpond witness \
             write` is a stricter test",
            pattern.blocks
        );
    };
    format!(
        "THE DEVICE LOST FLUSHED DATA: of {} flushed blocks, {whole} are intact; {lost} lost, \
         {torn} torn or damaged, {misdirected} from elsewhere, {unreadable} unreadable; the \
         first is block {first}, byte {}",
        pattern.blocks,
        first * BLOCK_BYTES
    )
}
