//! Where XFS has its metadata: the headers of the allocation groups and the journal, which lie at
//! fixed places, and what it places freely, which its magic numbers tell.
//!
//! **Source**: "XFS Algorithms & Data Structures", 3rd edition.

use super::fields::{be16, be32, be64};
use headpond_block::{ByteRange, SECTOR_BYTES};

const AG_MAX: u64 = 1 << 20;
/// Superblock, free space, inodes, free list: one sector each.
const AG_HEADERS: u64 = 4;
const VERSION_5: u64 = 5;

/// Blocks that begin with a number of four bytes; those of version 5 say where they lie.
const MAGICS: [(&[u8; 4], Option<usize>); 19] = [
    (b"ABTB", None),
    (b"ABTC", None),
    (b"IABT", None),
    (b"FIBT", None),
    (b"BMAP", None),
    (b"XD2B", None),
    (b"XD2D", None),
    (b"XD2F", None),
    (b"AB3B", Some(16)),
    (b"AB3C", Some(16)),
    (b"IAB3", Some(16)),
    (b"FIB3", Some(16)),
    (b"RMB3", Some(16)),
    (b"R3FC", Some(16)),
    (b"BMA3", Some(24)),
    (b"XDB3", Some(8)),
    (b"XDD3", Some(8)),
    (b"XDF3", Some(8)),
    (b"XARM", Some(40)),
];
/// Nodes and leaves of directories and attributes: a number of two bytes behind two links.
const NODE_MAGICS: [(u64, bool); 8] = [
    (0xfebe, false),
    (0xfbee, false),
    (0xd2f1, false),
    (0xd2ff, false),
    (0x3ebe, true),
    (0x3bee, true),
    (0x3df1, true),
    (0x3dff, true),
];

/// What a superblock says, as far as it tells where metadata lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Xfs {
    start: u64,
    block_bytes: u64,
    blocks: u64,
    sector_bytes: u64,
    group_blocks: u64,
    groups: u64,
    version: u64,
    uuid: [u8; 16],
    /// Of the journal, in bytes from the start of the file system.
    journal: ByteRange,
}

impl Xfs {
    /// The file system of a partition by its first bytes.
    pub fn parse(head: &[u8], partition: ByteRange) -> Option<Self> {
        if head.get(..4)? != b"XFSB" {
            return None;
        }
        let (block_bytes, sector_bytes) = (be32(head, 4)?, be16(head, 0x66)?);
        let is_size = |bytes: u64| bytes.is_power_of_two() && (512..=65_536).contains(&bytes);
        if !is_size(block_bytes) || !is_size(sector_bytes) {
            return None;
        }
        let (group_blocks, group_bits) = (be32(head, 0x54)?, u64::from(*head.get(0x7c)?));
        if group_bits > 32 {
            return None;
        }
        let log = be64(head, 0x30)?;
        let log_block = (log >> group_bits).checked_mul(group_blocks)?;
        let log_block = log_block.checked_add(log & ((1 << group_bits) - 1))?;
        let log_blocks = if log == 0 { 0 } else { be32(head, 0x60)? };
        let found = Self {
            start: partition.start(),
            block_bytes,
            blocks: be64(head, 8)?,
            sector_bytes,
            group_blocks,
            groups: be32(head, 0x58)?,
            version: be16(head, 0x64)? & 0xf,
            uuid: head.get(0x20..0x30)?.try_into().ok()?,
            journal: ByteRange::at(
                log_block.checked_mul(block_bytes).filter(|at| *at < partition.len())?,
                log_blocks * block_bytes,
            ),
        };
        found.is_sound(partition).then_some(found)
    }

    fn is_sound(&self, partition: ByteRange) -> bool {
        let size = self.blocks.checked_mul(self.block_bytes);
        let most = self.groups.checked_mul(self.group_blocks);
        size.is_some_and(|size| size > 0 && size <= partition.len())
            && (1..=AG_MAX).contains(&self.groups)
            && self.group_blocks * self.block_bytes > AG_HEADERS * self.sector_bytes
            && most.is_some_and(|most| most >= self.blocks)
            && (self.groups - 1) * self.group_blocks < self.blocks
            && self.journal.end() <= self.blocks * self.block_bytes
    }

    pub fn place(&self) -> ByteRange {
        ByteRange::at(self.start, self.blocks * self.block_bytes)
    }

    /// All metadata whose place is fixed.
    pub fn metadata(&self) -> Vec<ByteRange> {
        let group_bytes = self.group_blocks * self.block_bytes;
        let headers = (0..self.groups).map(|group| {
            ByteRange::at(self.start + group * group_bytes, AG_HEADERS * self.sector_bytes)
        });
        let journal = ByteRange::at(self.start + self.journal.start(), self.journal.len());
        headers.chain([journal]).collect()
    }

    /// Whether what begins with `head`, and is written at `offset`, is metadata.
    pub fn is_metadata(&self, offset: u64, head: &[u8]) -> bool {
        let sector = (offset - self.start) / SECTOR_BYTES;
        let says_place = |at: usize| be64(head, at) == Some(sector);
        let found = MAGICS.iter().find(|(magic, _)| head.get(..4) == Some(&magic[..]));
        if let Some((_, place)) = found {
            return place.is_none_or(says_place);
        }
        if head.get(..2) == Some(b"IN") {
            // Version of the inode, and of its own identity where it has one.
            let version = head.get(4).copied().unwrap_or(0);
            let is_ours = || head.get(160..176) == Some(&self.uuid[..]);
            return (1..=2).contains(&version) || version == 3 && is_ours();
        }
        let node = be16(head, 8).and_then(|magic| NODE_MAGICS.iter().find(|(it, _)| *it == magic));
        match node {
            Some((_, true)) => self.version == VERSION_5 && says_place(16),
            Some((_, false)) => self.version < VERSION_5,
            None => false,
        }
    }
}
