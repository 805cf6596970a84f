//! The kinds of alerts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which conditions there are, worst first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum AlertKind {
    /// The volume was not opened.
    StartRefused,
    /// The start waits for devices that are missing.
    DevicesMissing,
    /// Its daemon ended without a stop.
    DaemonEnded,
    /// Its daemon does not answer.
    DaemonSilent,
    /// Another host has taken over: nothing is read or written here any more.
    OwnershipLost,
    /// The cache lost flushed data: the volume takes no writes until that is accepted.
    FlushedDataLost,
    /// The cache device takes no more writes; only its dirty data is still read.
    CacheFailed,
    /// The cache device has so many errors that nothing new is written to it.
    CacheFallback,
    /// The stripe journal failed or is missing.
    JournalLost,
    /// Acknowledged data is damaged: reads of it fail.
    DamagedBlocks,
    /// Blocks were unreadable on more members than the redundancy covers: reads of them fail.
    LostBlocks,
    /// Dirty data in the cache could not be read.
    DirtyUnreadable,
    /// Blocks of the cache did not match their checksums.
    CacheCorruption,
    /// Reads from the cache device failed.
    CacheReadErrors,
    /// Writes or flushes of the cache device failed.
    CacheWriteErrors,
    /// Writes or flushes of the array failed: dirty data stays dirty.
    ArrayWriteErrors,
    /// A scrub found what it could not repair.
    ScrubFindings,
    /// Operations of a member or of a spare failed.
    MemberErrors,
    /// Operations of the stripe journal failed.
    JournalErrors,
    /// A member exceeds its timeouts.
    SlowMember,
    /// The system denies this process memory.
    MemoryShort,
    /// The dirty limit is reached.
    CacheFull,
}

impl AlertKind {
    pub const ALL: [Self; 22] = [
        Self::StartRefused,
        Self::DevicesMissing,
        Self::DaemonEnded,
        Self::DaemonSilent,
        Self::OwnershipLost,
        Self::FlushedDataLost,
        Self::CacheFailed,
        Self::CacheFallback,
        Self::JournalLost,
        Self::DamagedBlocks,
        Self::LostBlocks,
        Self::DirtyUnreadable,
        Self::CacheCorruption,
        Self::CacheReadErrors,
        Self::CacheWriteErrors,
        Self::ArrayWriteErrors,
        Self::ScrubFindings,
        Self::MemberErrors,
        Self::JournalErrors,
        Self::SlowMember,
        Self::MemoryShort,
        Self::CacheFull,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_list_has_each_kind_once_in_order() {
        let schema = schemars::schema_for!(AlertKind).to_value().to_string();
        assert_eq!(schema.matches("\"const\"").count(), AlertKind::ALL.len(), "{schema}");
        let sorted: BTreeSet<AlertKind> = AlertKind::ALL.into();
        assert!(sorted.into_iter().eq(AlertKind::ALL));
    }
}
