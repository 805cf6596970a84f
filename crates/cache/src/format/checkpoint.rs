//! The persisted line map of a slice.
//!
//! A table with the first sequence of every segment, then one 16-byte entry for each mapped or lost
//! block. The checksum of the whole is in the slice header.

use super::FormatError;
use super::bytes::{get_u32, get_u64, put_u32, put_u64};
use crate::types::{CoreBlock, Position, Sequence};

pub const ENTRY_BYTES: u64 = 16;
/// Longest checkpoint of a slice with so many segments and blocks, in bytes.
pub const fn bytes_max(segments: u64, blocks: u64) -> u64 {
    // Lost blocks have no place of their own; they may come on top of a full map.
    (segments * 8 + (blocks + LOST_BLOCKS_MAX) * ENTRY_BYTES).next_multiple_of(4096)
}
/// Most damaged blocks that a slice remembers.
pub const LOST_BLOCKS_MAX: u64 = 4096;

const WHAT: &str = "checkpoint";
const BLOCK_BITS: u32 = 40;

/// What a checkpointed block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointKind {
    Clean,
    Dirty,
    /// Dirty, and its parity is not to be trusted since an unclean stop.
    DirtyReplayed,
    /// Promised data that is damaged.
    Lost,
}

/// One block of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointEntry {
    pub block: CoreBlock,
    pub kind: CheckpointKind,
    /// Where the block starts in the log; meaningless where it is lost.
    pub position: Position,
    pub checksum: u32,
}

impl CheckpointEntry {
    fn encode(&self, bytes: &mut [u8]) {
        let kind: u64 = match self.kind {
            CheckpointKind::Clean => 1,
            CheckpointKind::Dirty => 2,
            CheckpointKind::DirtyReplayed => 3,
            CheckpointKind::Lost => 4,
        };
        put_u64(bytes, 0, self.block.0 | kind << BLOCK_BITS);
        put_u32(bytes, 8, u32::try_from(self.position.0).expect("a slice has 32-bit positions"));
        put_u32(bytes, 12, self.checksum);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let word = get_u64(bytes, 0);
        let kind = match word >> BLOCK_BITS {
            1 => CheckpointKind::Clean,
            2 => CheckpointKind::Dirty,
            3 => CheckpointKind::DirtyReplayed,
            4 => CheckpointKind::Lost,
            _ => return None,
        };
        let block = CoreBlock(word & ((1 << BLOCK_BITS) - 1));
        let position = Position(u64::from(get_u32(bytes, 8)));
        Some(Self { block, kind, position, checksum: get_u32(bytes, 12) })
    }
}

/// A whole checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Checkpoint {
    /// First record of the present contents of each segment.
    pub segments: Vec<Sequence>,
    pub entries: Vec<CheckpointEntry>,
}

impl Checkpoint {
    pub fn encode(&self) -> Vec<u8> {
        let len = self.segments.len() * 8 + self.entries.len() * ENTRY_BYTES as usize;
        let mut bytes = vec![0; len];
        for (index, first) in self.segments.iter().enumerate() {
            put_u64(&mut bytes, 8 * index, first.0);
        }
        let entries = bytes[8 * self.segments.len()..].chunks_exact_mut(ENTRY_BYTES as usize);
        for (place, entry) in entries.zip(&self.entries) {
            entry.encode(place);
        }
        bytes
    }

    /// # Errors
    /// Where the length does not fit or an entry makes no sense.
    pub fn decode(bytes: &[u8], segments: usize) -> Result<Self, FormatError> {
        let malformed = |detail| FormatError::Malformed { what: WHAT, detail };
        if bytes.len() < segments * 8
            || !(bytes.len() - segments * 8).is_multiple_of(ENTRY_BYTES as usize)
        {
            return Err(malformed("impossible length"));
        }
        let (table, rest) = bytes.split_at(segments * 8);
        let segments = table.chunks_exact(8).map(|first| Sequence(get_u64(first, 0))).collect();
        let entries = rest.chunks_exact(ENTRY_BYTES as usize).map(CheckpointEntry::decode);
        let entries: Option<Vec<_>> = entries.collect();
        Ok(Self { segments, entries: entries.ok_or_else(|| malformed("unknown entry kind"))? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        let entry = |kind, block| CheckpointEntry {
            block: CoreBlock(block),
            kind,
            position: Position(77),
            checksum: 5,
        };
        let checkpoint = Checkpoint {
            segments: vec![Sequence(3), Sequence(9)],
            entries: vec![
                entry(CheckpointKind::Clean, 1),
                entry(CheckpointKind::DirtyReplayed, (1 << 40) - 1),
                entry(CheckpointKind::Lost, 8),
            ],
        };
        assert_eq!(Checkpoint::decode(&checkpoint.encode(), 2).unwrap(), checkpoint);
        assert!(Checkpoint::decode(&checkpoint.encode(), 3).is_err());
    }
}
