//! Where ext2, ext3 and ext4 have their metadata: superblocks and their backups, group descriptors
//! and the blocks reserved for more of them, bitmaps, inode tables, and the journal.
//!
//! **Not here**: directories and extent blocks, which lie among the data.
//!
//! **Source**: the kernel's documentation of ext4's layout on disk (`filesystems/ext4`).

use super::fields::{le16, le32, le64};
use headpond_block::ByteRange;

const SUPERBLOCK: usize = 1024;
const MAGIC: u64 = 0xef53;
const COMPAT_SPARSE_SUPER2: u64 = 0x200;
const INCOMPAT_JOURNAL_DEV: u64 = 0x8;
const INCOMPAT_META_BG: u64 = 0x10;
const INCOMPAT_64BIT: u64 = 0x80;
const RO_COMPAT_SPARSE_SUPER: u64 = 0x1;
const EXTENT_MAGIC: u64 = 0xf30a;
/// 4 EiB of groups of 128 MiB; what claims more is no file system.
const GROUPS_MAX: u64 = 1 << 22;

/// What a superblock says, as far as it tells where metadata lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ext4 {
    start: u64,
    block_bytes: u64,
    blocks: u64,
    first_block: u64,
    blocks_per_group: u64,
    inode_table_blocks: u64,
    descriptor_bytes: u64,
    reserved_blocks: u64,
    first_meta_group: Option<u64>,
    backups: Backups,
    uuid: [u8; 16],
    /// In blocks.
    journal: Vec<(u64, u64)>,
}

/// Which groups have a copy of the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backups {
    Everywhere,
    Sparse,
    These([u64; 2]),
}

impl Ext4 {
    /// The file system of a partition by its first bytes.
    pub fn parse(head: &[u8], partition: ByteRange) -> Option<Self> {
        let superblock = head.get(SUPERBLOCK..SUPERBLOCK + 1024)?;
        let (le16, le32) = (|at| le16(superblock, at), |at| le32(superblock, at));
        let (compat, incompat, ro_compat) = (le32(0x5c)?, le32(0x60)?, le32(0x64)?);
        let log_block = le32(0x18)?;
        if le16(0x38)? != MAGIC || incompat & INCOMPAT_JOURNAL_DEV != 0 || log_block > 6 {
            return None;
        }
        let is_64bit = incompat & INCOMPAT_64BIT != 0;
        let high = |at| if is_64bit { le32(at) } else { Some(0) };
        let block_bytes = 1024 << log_block;
        let inode_bytes = if le32(0x4c)? == 0 { 128 } else { le16(0x58)? };
        let found = Self {
            start: partition.start(),
            block_bytes,
            blocks: le32(0x4)? | high(0x150)? << 32,
            first_block: le32(0x14)?,
            blocks_per_group: le32(0x20)?,
            inode_table_blocks: (le32(0x28)? * inode_bytes).div_ceil(block_bytes),
            descriptor_bytes: if is_64bit { le16(0xfe)? } else { 32 },
            reserved_blocks: le16(0xce)?,
            first_meta_group: (incompat & INCOMPAT_META_BG != 0).then_some(le32(0x104)?),
            backups: match (compat & COMPAT_SPARSE_SUPER2, ro_compat & RO_COMPAT_SPARSE_SUPER) {
                (0, 0) => Backups::Everywhere,
                (0, _) => Backups::Sparse,
                _ => Backups::These([le32(0x24c)?, le32(0x250)?]),
            },
            uuid: superblock[0x68..0x78].try_into().ok()?,
            journal: journal(superblock),
        };
        found.is_sound(partition).then_some(found)
    }

    fn is_sound(&self, partition: ByteRange) -> bool {
        let size = self.blocks.checked_mul(self.block_bytes);
        size.is_some_and(|size| size > 0 && size <= partition.len())
            && self.blocks > self.first_block
            && self.first_block <= 1
            && (8..=8 * self.block_bytes).contains(&self.blocks_per_group)
            && self.descriptor_bytes.is_power_of_two()
            && (32..=1024.min(self.block_bytes)).contains(&self.descriptor_bytes)
            && self.inode_table_blocks < self.blocks
            && self.groups() <= GROUPS_MAX
    }

    pub fn place(&self) -> ByteRange {
        ByteRange::at(self.start, self.blocks * self.block_bytes)
    }

    pub fn groups(&self) -> u64 {
        (self.blocks - self.first_block).div_ceil(self.blocks_per_group)
    }

    fn descriptors_per_block(&self) -> u64 {
        self.block_bytes / self.descriptor_bytes
    }

    fn descriptor_blocks(&self) -> u64 {
        self.groups().div_ceil(self.descriptors_per_block())
    }

    /// Descriptor blocks that stand together behind the superblock.
    fn descriptor_blocks_at_start(&self) -> u64 {
        self.first_meta_group.unwrap_or(u64::MAX).min(self.descriptor_blocks())
    }

    /// The blocks to read for the descriptors, in the order of the groups.
    pub fn descriptor_places(&self) -> Vec<ByteRange> {
        let at_start = self.descriptor_blocks_at_start();
        let together = self.block(self.first_block + 1, at_start);
        let scattered = (at_start..self.descriptor_blocks()).map(|index| {
            let group = index * self.descriptors_per_block();
            self.block(self.first_of(group) + u64::from(self.has_superblock(group)), 1)
        });
        std::iter::once(together).chain(scattered).collect()
    }

    /// All metadata whose place is fixed; `descriptors` is what was read from
    /// [`Self::descriptor_places`], and may be too short.
    pub fn metadata(&self, descriptors: &[u8]) -> Vec<ByteRange> {
        let each = self.descriptor_bytes as usize;
        // The boot block of the partition goes with the superblock.
        let mut all = vec![ByteRange::at(self.start, SUPERBLOCK as u64 + 1024)];
        for group in 0..self.groups() {
            let start = self.first_of(group);
            let has_superblock = self.has_superblock(group);
            if has_superblock {
                all.push(self.block(start, 1));
            }
            all.push(self.descriptors_in(group, start + u64::from(has_superblock)));
            let at = group as usize * each;
            let descriptor = at.checked_add(each).and_then(|end| descriptors.get(at..end));
            let Some(descriptor) = descriptor else { continue };
            let number = |low, high| {
                let high = if each >= 64 { le32(descriptor, high)? } else { 0 };
                Some(le32(descriptor, low)? | high << 32)
            };
            let blocks = [
                (number(0x0, 0x20), 1),
                (number(0x4, 0x24), 1),
                (number(0x8, 0x28), self.inode_table_blocks),
            ];
            let known = blocks.into_iter().filter_map(|(at, count)| Some((at?, count)));
            all.extend(known.map(|(at, count)| self.block(at, count)));
        }
        all.extend(self.journal.iter().map(|(at, count)| self.block(*at, *count)));
        all
    }

    /// The copies of descriptors in a group, and the blocks kept for more.
    fn descriptors_in(&self, group: u64, at: u64) -> ByteRange {
        let meta_group = group / self.descriptors_per_block();
        if meta_group >= self.descriptor_blocks_at_start() && self.first_meta_group.is_some() {
            let within = group % self.descriptors_per_block();
            let has_one = within <= 1 || within == self.descriptors_per_block() - 1;
            return self.block(at, u64::from(has_one));
        }
        match self.has_superblock(group) {
            true => self.block(at, self.descriptor_blocks_at_start() + self.reserved_blocks),
            false => ByteRange::EMPTY,
        }
    }

    fn has_superblock(&self, group: u64) -> bool {
        let is_power_of = |base: u64| {
            let mut power = base;
            while power < group {
                power *= base;
            }
            power == group
        };
        match self.backups {
            _ if group == 0 => true,
            Backups::Everywhere => true,
            Backups::Sparse => group == 1 || [3, 5, 7].into_iter().any(is_power_of),
            Backups::These(groups) => groups.contains(&group),
        }
    }

    fn first_of(&self, group: u64) -> u64 {
        self.first_block + group * self.blocks_per_group
    }

    /// So many blocks, as far as the file system has them.
    fn block(&self, first: u64, count: u64) -> ByteRange {
        let first = first.min(self.blocks);
        let count = count.min(self.blocks - first);
        ByteRange::at(self.start + first * self.block_bytes, count * self.block_bytes)
    }
}

/// The extents of the journal, of which the superblock keeps a copy; none where it has no room for
/// them or the journal is elsewhere.
fn journal(superblock: &[u8]) -> Vec<(u64, u64)> {
    const COPY: usize = 0x10c;
    let is_kept = superblock.get(0xfd) == Some(&1);
    let header = (le16(superblock, COPY), le16(superblock, COPY + 6));
    if !is_kept || header != (Some(EXTENT_MAGIC), Some(0)) {
        return Vec::new();
    }
    let count = le16(superblock, COPY + 2).unwrap_or(0).min(4) as usize;
    let extent = |index: usize| {
        let at = COPY + 12 + index * 12;
        let low = le64(superblock, at + 4)?;
        // Behind the logical block: length, then the high and the low part of the place.
        let (len, high, low) = (low & 0xffff, low >> 16 & 0xffff, low >> 32);
        Some((high << 32 | low, if len > 0x8000 { len - 0x8000 } else { len }))
    };
    (0..count).filter_map(extent).collect()
}
