//! Injected bugs, which test that the simulation's checker finds them.
//!
//! [`defect!`](crate::defect) marks places where a bug can be injected. Builds with debug
//! assertions, such as tests, contain them: one bug at a time can be active on a thread. In a
//! release the macro is `false`, and compiles to nothing.
//!
//! **Not here**: activation (the swarm's own test).

use std::cell::Cell;

/// Whether this bug is active here: never, outside the test of the checker.
#[macro_export]
macro_rules! defect {
    ($name:ident) => {
        cfg!(debug_assertions) && $crate::defect::is_active($crate::defect::Defect::$name)
    };
}

/// One injected bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Law 1: dirty blocks that reclaim copies are recorded as if they had been read.
    ReinsertDirtyAsRead,
    /// Law 2: a block is clean as soon as its core write completes, before the core's flush.
    CleanBeforeCoreFlush,
    /// Law 2: a segment is reused before the copies of its blocks are stable.
    ReuseBeforeCopiesAreStable,
    /// Law 3: a segment is reused while it is still valid in the log.
    ReuseBeforeTailMoves,
    /// Law 4: a write past the cache leaves the mapping of the blocks below it.
    ForgetTombstone,
    /// Law 4: over a dirty block the tombstone comes before the core's flush.
    TombstoneBeforeCoreFlush,
    /// Law 5: a damaged flushed record is discarded as unflushed.
    IgnorePromises,
    /// Law 5: recovery serves before its epoch is durable.
    ServeBeforeEpochIsDurable,
    /// Law 6: written through over a dirty block counts for the parity only.
    WriteThroughOverDirtyIsNotDirty,
    /// Law 4: a discard of dirty blocks is left to the core, which may keep what is older.
    DiscardDirtyAtCore,
    /// Law 7: a failed cache is not invalidated.
    KeepFailedCache,
    /// Law 8: FLUSH leaves dirty data in memory.
    FlushIntoMemory,
    /// Law 9: part of a block is merged with the block's contents before another write.
    MergeWithOldBlock,
    /// Law 9: a partial block is completed with zeros.
    CompleteWithZeros,
    /// Law 9: a checkpoint has a partial block as a whole one.
    SavePartAsWhole,
    /// FLUSH does not flush the cache device.
    SkipLogFlush,
    /// FLUSH does not flush the core after writes past the cache.
    SkipCoreFlush,
    /// Blocks from the cache are not compared with their checksums.
    SkipChecksum,
    /// A write is acknowledged when its record is formed.
    AcknowledgeEarly,
    /// Data read from the core is inserted though it was overwritten during the read.
    InsertStaleRead,
    /// A clean shutdown loses some dirty blocks.
    ForgetDirtyAtStop,
    /// A header names a checkpoint that is not stable.
    CheckpointBeforeItsBlocks,
    /// Replay starts at the end of a checkpoint, not at its begin.
    ReplayAfterTheCut,
    /// Replayed blocks are written with their parity patched, not recomputed.
    PatchTornParity,
    /// Stripes are changed without their lock.
    SkipStripeLock,
    /// A degraded write is acknowledged before the failure of its member is recorded on the others.
    EvictSilently,
    /// An event is not sealed, so that an older image of a member is not detected.
    SkipSeal,
    /// A cache with an open count below that of its members is accepted.
    TakeOlderCache,
    /// Regions are written without a mark in the intent bitmap.
    SkipIntentMark,
    /// Members are written before the stripe journal's record of it is stable.
    SkipJournalFlush,
    /// A group counts as guarded while writes that bypassed the journal may be unstable.
    GuardBeforeFlush,
    /// The array's flush leaves one member out.
    FlushAllButOne,
    /// FUA does not reach the members.
    DropFua,
    /// The second parity is updated with another strip's coefficient.
    WrongCoefficient,
    /// An unreadable block is not rewritten.
    SkipRepair,
    /// A receiver on another thread does not look again after it said that it waits.
    LoseWakeUp,
    /// A sender looks whether the receiver waits before its message is there.
    RingTooEarly,
    /// A mailbox whose sender is gone drops what it has.
    DropSentAtClose,
    /// A request to another thread is answered before its device has completed it.
    AnswerBeforeDevice,
    /// Memory is used again as soon as its request is answered, while the device still has it.
    ReuseWhileLent,
}

impl Defect {
    /// Between two threads, in the order of single steps: for a model checker.
    pub const OF_MAILBOXES: [Self; 3] =
        [Self::LoseWakeUp, Self::RingTooEarly, Self::DropSentAtClose];
    /// Between two threads, in the order of messages: for simulations of a channel.
    pub const OF_CHANNELS: [Self; 3] =
        [Self::DropSentAtClose, Self::AnswerBeforeDevice, Self::ReuseWhileLent];
    /// Those that simulations of whole volumes find.
    pub const ALL: [Self; 36] = [
        Self::ReinsertDirtyAsRead,
        Self::CleanBeforeCoreFlush,
        Self::ReuseBeforeCopiesAreStable,
        Self::ReuseBeforeTailMoves,
        Self::ForgetTombstone,
        Self::TombstoneBeforeCoreFlush,
        Self::IgnorePromises,
        Self::ServeBeforeEpochIsDurable,
        Self::WriteThroughOverDirtyIsNotDirty,
        Self::DiscardDirtyAtCore,
        Self::KeepFailedCache,
        Self::FlushIntoMemory,
        Self::MergeWithOldBlock,
        Self::CompleteWithZeros,
        Self::SavePartAsWhole,
        Self::SkipLogFlush,
        Self::SkipCoreFlush,
        Self::SkipChecksum,
        Self::AcknowledgeEarly,
        Self::InsertStaleRead,
        Self::ForgetDirtyAtStop,
        Self::CheckpointBeforeItsBlocks,
        Self::ReplayAfterTheCut,
        Self::PatchTornParity,
        Self::SkipStripeLock,
        Self::EvictSilently,
        Self::SkipSeal,
        Self::TakeOlderCache,
        Self::SkipIntentMark,
        Self::SkipJournalFlush,
        Self::GuardBeforeFlush,
        Self::FlushAllButOne,
        Self::DropFua,
        Self::WrongCoefficient,
        Self::SkipRepair,
        Self::AnswerBeforeDevice,
    ];
}

thread_local! {
    static ACTIVE: Cell<Option<Defect>> = const { Cell::new(None) };
}

/// Activates this bug, or none, on this thread.
///
/// # Panics
/// For a bug in a build without injection points.
pub fn activate(defect: Option<Defect>) {
    assert!(cfg!(debug_assertions) || defect.is_none(), "a release makes no mistakes on purpose");
    ACTIVE.set(defect);
}

pub fn is_active(defect: Defect) -> bool {
    ACTIVE.get() == Some(defect)
}
