//! The end that reads everything back: a device is read block by block, and the witness is told
//! what is there.
//!
//! 1. The region is read in long pieces; where one cannot be read, block by block.
//! 2. What was found goes to the witness as it is found: it rules, nobody here.
//! 3. The device is flushed, so that what was seen is on the medium, and the ruling comes.

use super::content::{BlockContent, recognise};
use super::link::{Link, LinkError};
use super::ruling::Ruling;
use super::wire::{FINDINGS_MAX, FromWitness, ToWitness, Welcome};
use crate::{BLOCK_BYTES, Payload};
use headpond_block::{BlockDevice, Buffer, DeviceError, Runtime};
use std::rc::Rc;
use std::time::Duration;

const PIECE_BLOCKS: u64 = FINDINGS_MAX as u64;
/// The witness has a whole book to compare with.
const RULING_TIME_MAX: Duration = Duration::from_secs(300);

/// There is no ruling.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    #[error("the witness is lost before it has ruled: {0}")]
    Link(#[from] LinkError),
    #[error("the witness does not rule")]
    Silent,
    #[error("the witness refuses: {0}")]
    Refused(String),
    #[error("the witness answers something else than expected")]
    OutOfPlace,
    #[error("the device has {device_bytes} bytes, and the region ends at byte {region_end}")]
    TooSmall { device_bytes: u64, region_end: u64 },
}

/// Reads a region and has it judged; `progress` hears how many blocks are done.
///
/// # Errors
/// Where the witness does not rule. Reads that fail are findings, no errors.
pub async fn look(
    device: &dyn BlockDevice,
    runtime: &Runtime,
    link: &Rc<Link>,
    welcome: &Welcome,
    progress: &dyn Fn(u64),
) -> Result<Ruling, LookError> {
    let (region, payload) = (welcome.region, Payload::new(welcome.seed));
    let (device_bytes, region_end) =
        (device.size_bytes(), region.start_bytes + region.size_bytes());
    if device_bytes < region_end {
        return Err(LookError::TooSmall { device_bytes, region_end });
    }
    let mut block = 0;
    while block < region.blocks {
        let blocks = PIECE_BLOCKS.min(region.blocks - block);
        let start = region.start_bytes + block * BLOCK_BYTES;
        let findings = find(device, &payload, start, blocks).await;
        link.send(&ToWitness::Findings(findings)).await?;
        block += blocks;
        progress(block);
    }
    let was_flushed = device.flush().await.is_ok();
    link.send(&ToWitness::Looked { was_flushed }).await?;
    let answer = {
        let link = Rc::clone(link);
        async move { link.receive_answer().await }
    };
    match runtime.deadline(runtime.now() + RULING_TIME_MAX, answer).await {
        Err(_) => Err(LookError::Silent),
        Ok(Err(error)) => Err(error.into()),
        Ok(Ok(FromWitness::Ruling(ruling))) => Ok(*ruling),
        Ok(Ok(FromWitness::Refused(reason))) => Err(LookError::Refused(reason)),
        Ok(Ok(_)) => Err(LookError::OutOfPlace),
    }
}

/// What some blocks hold.
pub(super) async fn find(
    device: &dyn BlockDevice,
    payload: &Payload,
    start_bytes: u64,
    blocks: u64,
) -> Vec<BlockContent> {
    if let Ok(bytes) = read(device, start_bytes, blocks).await {
        let each = bytes.chunks_exact(BLOCK_BYTES as usize);
        return each.map(|bytes| recognise(payload, bytes)).collect();
    }
    let mut findings = Vec::new();
    for block in 0..blocks {
        let read = read(device, start_bytes + block * BLOCK_BYTES, 1).await;
        findings.push(read.map_or(BlockContent::Unreadable, |bytes| recognise(payload, &bytes)));
    }
    findings
}

async fn read(
    device: &dyn BlockDevice,
    start_bytes: u64,
    blocks: u64,
) -> Result<Vec<u8>, DeviceError> {
    let memory = Buffer::zeroed((blocks * BLOCK_BYTES) as usize);
    device.read(start_bytes, &memory).await?;
    Ok(memory.to_vec())
}
