//! Which parts of a core are metadata of the file systems on it.
//!
//! 1. The partition tables are looked through.
//! 2. At the start of each partition, and of the core, ext4 and XFS are recognised by their own
//!    superblocks.
//! 3. Where their fixed metadata lies follows from what they say; blocks that XFS places freely are
//!    recognised when they are written, by their magic numbers.
//! 4. When a superblock or a partition table changes, it is looked again.
//!
//! **Invariants**: bytes of a file system are never believed: what lies outside its partition or
//! contradicts itself is no metadata. A wrong answer costs speed, never data.
//!
//! **Not here**: reading (`recogniser`), what follows for a request (the I/O classes).

mod ext4;
mod fields;
mod partitions;
mod ranges;
mod recogniser;
#[cfg(test)]
mod tests;
mod xfs;

pub(crate) use recogniser::Recogniser;

use headpond_block::ByteRange;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A file system that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileSystem {
    Ext4(ext4::Ext4),
    Xfs(xfs::Xfs),
}

/// What the status tells of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FoundFileSystem {
    pub kind: Cow<'static, str>,
    pub offset_bytes: u64,
    pub size_bytes: u64,
    /// Of which the place is known.
    pub metadata_bytes: u64,
}

/// On which of several cores it was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CoreFileSystem {
    /// What a rule of the I/O classes calls it.
    pub core: u16,
    #[serde(flatten)]
    pub found: FoundFileSystem,
}

/// What has to be read to recognise a file system at the start of a partition.
pub(crate) const HEAD_BYTES: u64 = 4096;

impl FileSystem {
    /// The file system in `partition`, by the first bytes of it.
    pub fn recognise(head: &[u8], partition: ByteRange) -> Option<Self> {
        if let Some(found) = ext4::Ext4::parse(head, partition) {
            return Some(Self::Ext4(found));
        }
        xfs::Xfs::parse(head, partition).map(Self::Xfs)
    }

    fn tell(&self, metadata_bytes: u64) -> FoundFileSystem {
        let (kind, place) = match self {
            Self::Ext4(found) => ("ext4", found.place()),
            Self::Xfs(found) => ("xfs", found.place()),
        };
        let (offset_bytes, size_bytes) = (place.start(), place.len());
        FoundFileSystem { kind: kind.into(), offset_bytes, size_bytes, metadata_bytes }
    }
}
