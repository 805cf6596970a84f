//! `headpond witness write`.

use super::args::{LoadArgs, WriteArgs};
use super::connect::{Client, region};
use crate::device::Consent;
use crate::interrupt;
use anyhow::Result;
use headpond_api::outcome::Exit;
use headpond_block::{BufferPool, PoolConfig, Runtime};
use headpond_uring::{RingConfig, run_with_pool};
use headpond_witness::field::wire::{Purpose, WireLoad};
use headpond_witness::field::writer::{Writer, WriterTotals};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Polls per line of progress.
const TELL_EVERY: u32 = 50;

/// # Errors
/// Refusals before anything is written; later, loss of the witness or the device.
pub fn run(args: &WriteArgs) -> Result<Exit> {
    let is_interrupted = end_on_interrupt();
    let pool = BufferPool::new(&PoolConfig::default());
    let written = run_with_pool(&RingConfig::default(), &pool, |ring, runtime| async {
        let client = Client::new(&args.device, ring, runtime)?;
        let purpose = if args.anew { Purpose::WriteAnew } else { Purpose::Write };
        let load = args.load.load(args.runtime);
        write(&client, purpose, &args.load, load, is_interrupted).await
    })??;
    println!(
        "ended cleanly: {} writes and {} flushes were acknowledged, {} failed",
        written.writes, written.flushes, written.failed
    );
    Ok(Exit::Ok)
}

/// Writes until the end, or a cut.
///
/// # Errors
/// As [`run`].
pub async fn write(
    client: &Client,
    purpose: Purpose,
    args: &LoadArgs,
    load: WireLoad,
    is_interrupted: Arc<AtomicBool>,
) -> Result<WriterTotals> {
    let consent = if args.force { Consent::Forced } else { Consent::Careful };
    let (ring, runtime) = (client.ring(), &client.runtime);
    let device = client.target.open_to_write(ring, runtime, consent).await?;
    let region = region(args, &*device)?;
    let (link, welcome) = client.open(purpose, &*device, Some(region)).await?;
    eprintln!(
        "headpond: writing {} MiB of {}; its name at the witness is {}",
        region.size_bytes() >> 20,
        device.name(),
        client.name()
    );
    let writer = Writer::new(device, runtime, link, load, &welcome);
    let watching = watch(runtime.clone(), Rc::clone(&writer), is_interrupted);
    drop(runtime.spawn(watching));
    Ok(writer.run().await?)
}

/// Prints progress, and ends the writer on a signal.
async fn watch(runtime: Runtime, writer: Rc<Writer>, is_interrupted: Arc<AtomicBool>) {
    for look in 1u32.. {
        runtime.sleep(LOOK_EVERY).await;
        if is_interrupted.load(Ordering::Relaxed) {
            return writer.stop();
        }
        if look.is_multiple_of(TELL_EVERY) {
            let WriterTotals { writes, flushes, failed } = writer.written();
            eprintln!("headpond: {writes} writes, {flushes} flushes acknowledged, {failed} failed");
        }
    }
}

/// Ctrl-C ends cleanly: the witness must not count it as a cut.
pub fn end_on_interrupt() -> Arc<AtomicBool> {
    let is_interrupted = Arc::new(AtomicBool::new(false));
    let heard = Arc::clone(&is_interrupted);
    let note = "ending cleanly; a second signal does not wait for the writes in flight";
    interrupt::ends(note, move || heard.store(true, Ordering::Relaxed));
    is_interrupted
}
