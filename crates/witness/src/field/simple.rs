//! The test without a witness: write so much, flush, cut, look.
//!
//! Everything that is needed to look lies in the seed and the number of blocks, which every sector
//! carries and which are short enough to be written down.

use super::content::{BlockContent, Sector, fill};
use super::looker::find;
use super::wire::FINDINGS_MAX;
use crate::{BLOCK_BYTES, Content, Payload, SECTOR_BYTES};
use headpond_block::{BlockDevice, Buffer, DeviceError};

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    pub seed: u64,
    pub blocks: u64,
}

/// What a look found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SimpleCheck {
    pub whole: u64,
    /// Blocks with nothing of the pattern.
    pub lost: u64,
    /// Blocks that hold what belongs elsewhere.
    pub misdirected: u64,
    /// Blocks that hold the pattern in part, or damaged.
    pub torn: u64,
    pub unreadable: u64,
    /// The first block that is not whole.
    pub first: Option<u64>,
}

/// Marks the number that each block carries: no writer that tells a witness counts as far, so that
/// what one has left is not taken for this.
const MARK: u64 = 1 << 63;

impl Pattern {
    fn sequence(self) -> u64 {
        MARK | self.blocks
    }
}

const PIECE_BLOCKS: u64 = FINDINGS_MAX as u64;

/// Writes the pattern from the start of a device and flushes it.
///
/// # Errors
/// Those of the device; nothing is promised then.
pub async fn write(
    device: &dyn BlockDevice,
    pattern: Pattern,
    progress: &dyn Fn(u64),
) -> Result<(), DeviceError> {
    let payload = Payload::new(pattern.seed);
    let mut block = 0;
    while block < pattern.blocks {
        let blocks = PIECE_BLOCKS.min(pattern.blocks - block);
        let mut bytes = vec![0; (blocks * BLOCK_BYTES) as usize];
        fill(&payload, pattern.sequence(), block * BLOCK_BYTES, &mut bytes);
        device.write(block * BLOCK_BYTES, Buffer::from_slice(&bytes)).await?;
        block += blocks;
        progress(block);
    }
    device.flush().await
}

/// The pattern of which a device's first sector speaks.
///
/// # Errors
/// Where the device cannot be read.
pub async fn recall(device: &dyn BlockDevice) -> Result<Option<Pattern>, DeviceError> {
    let memory = Buffer::zeroed(BLOCK_BYTES as usize);
    device.read(0, &memory).await?;
    let bytes = memory.to_vec();
    Ok(Payload::of_sector(&bytes[..SECTOR_BYTES as usize]).and_then(|(payload, content)| {
        let Content::Written { write, address: 0 } = content else { return None };
        let blocks = write.0 & !MARK;
        (write.0 & MARK != 0).then_some(Pattern { seed: payload.seed(), blocks })
    }))
}

/// Reads a pattern back. Reads that fail are counted.
pub async fn look(
    device: &dyn BlockDevice,
    pattern: Pattern,
    progress: &dyn Fn(u64),
) -> SimpleCheck {
    let (payload, mut seen) = (Payload::new(pattern.seed), SimpleCheck::default());
    let mut block = 0;
    while block < pattern.blocks {
        let blocks = PIECE_BLOCKS.min(pattern.blocks - block);
        for found in find(device, &payload, block * BLOCK_BYTES, blocks).await {
            seen.count(pattern, block, &found);
            block += 1;
        }
        progress(block);
    }
    seen
}

impl SimpleCheck {
    pub fn is_whole(&self, pattern: Pattern) -> bool {
        pattern.blocks > 0 && self.whole == pattern.blocks
    }

    fn count(&mut self, pattern: Pattern, block: u64, found: &BlockContent) {
        let is_ours = |sector: &Sector| !matches!(sector, Sector::Zeroes | Sector::Foreign);
        let count = match found {
            BlockContent::Written { sequence, address } if *sequence == pattern.sequence() => {
                if *address == block * BLOCK_BYTES {
                    self.whole += 1;
                    return;
                }
                &mut self.misdirected
            }
            BlockContent::Unreadable => &mut self.unreadable,
            BlockContent::Mixed(sectors) if sectors.iter().any(is_ours) => &mut self.torn,
            _ => &mut self.lost,
        };
        *count += 1;
        self.first.get_or_insert(block);
    }
}
