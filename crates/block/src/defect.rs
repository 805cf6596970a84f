//! Mistakes made on purpose, so that the judge of the simulation can be judged itself.
//!
//! [`defect!`](crate::defect) stands where the engine could go wrong. Builds with debug assertions,
//! which is what tests are, have these places: there one mistake at a time can be made on a thread.
//! In a release the macro is `false`, and nothing of it is left.
//!
//! **Not here**: who makes them happen (the swarm's own test).

use std::cell::Cell;

/// Whether the engine shall make this mistake here: never, outside the test of the judge.
#[macro_export]
macro_rules! defect {
    ($name:ident) => {
        cfg!(debug_assertions) && $crate::defect::is_active($crate::defect::Defect::$name)
    };
}

/// One mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Law 1: dirty blocks that reclaim carries on are recorded as if they had been read.
    ReinsertDirtyAsRead,
    /// Law 2: a block is clean as soon as the core has answered, before the core's flush.
    CleanBeforeCoreFlush,
    /// Law 2: a segment is reused before the copies of its blocks are stable.
    ReuseBeforeCopiesAreStable,
    /// Law 3: a segment is reused while the log still says that it counts.
    ReuseBeforeTailMoves,
    /// Law 4: a write past the cache leaves the mapping of the blocks below it.
    ForgetTombstone,
    /// Law 4: over a dirty block the tombstone comes before the core's flush.
    TombstoneBeforeCoreFlush,
    /// Law 5: a damaged record that a flush promised counts as one that never happened.
    IgnorePromises,
    /// Law 5: recovery serves before its epoch is durable.
    ServeBeforeEpochIsDurable,
    /// Law 6: written through over a dirty block counts for the parity only.
    WriteThroughOverDirtyIsNotDirty,
    /// Law 4: a discard of dirty blocks is left to the core, which may keep what is older.
    DiscardDirtyAtCore,
    /// Law 7: a cache that failed is not disowned.
    KeepFailedCache,
    /// Law 8: FLUSH leaves in memory what is dirty there.
    FlushIntoMemory,
    /// Law 9: part of a block is merged with what the block held before another write.
    MergeWithOldBlock,
    /// Law 9: what was written of a block in part is completed with zeros.
    CompleteWithZeros,
    /// Law 9: a checkpoint has what was written of a block in part as the whole.
    SavePartAsWhole,
    /// FLUSH does not flush the cache device.
    SkipLogFlush,
    /// FLUSH does not flush the core after writes past the cache.
    SkipCoreFlush,
    /// Blocks from the cache are not compared with their checksums.
    SkipChecksum,
    /// A write is acknowledged when its record is formed.
    AcknowledgeEarly,
    /// What was read from the core is inserted though it was written over meanwhile.
    InsertStaleRead,
    /// A clean stop forgets some of the dirty blocks.
    ForgetDirtyAtStop,
    /// A header names a checkpoint that is not stable.
    CheckpointBeforeItsBlocks,
    /// Replay starts where a checkpoint was done, not where it was begun.
    ReplayAfterTheCut,
    /// Replayed blocks are written with their parity patched, not recomputed.
    PatchTornParity,
    /// Stripes are changed without their lock.
    SkipStripeLock,
    /// A write without a member is acknowledged before the others know that it is out.
    EvictSilently,
    /// An event is not sealed, so that an image of a member from before it is not told.
    SkipSeal,
    /// A cache that has lived less long than its members say is taken for the cache.
    TakeOlderCache,
    /// Regions are written that no intent map marks.
    SkipIntentMark,
    /// Members are written before the stripe journal's record of it is stable.
    SkipJournalFlush,
    /// A group counts as guarded while writes that passed the journal by may be unstable.
    GuardBeforeFlush,
    /// The array's flush leaves one member out.
    FlushAllButOne,
    /// FUA does not reach the members.
    DropFua,
    /// The second parity is patched with another strip's coefficient.
    WrongCoefficient,
    /// A block that could not be read is not written again.
    SkipRepair,
}

impl Defect {
    pub const ALL: [Self; 35] = [
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
    ];
}

thread_local! {
    static ACTIVE: Cell<Option<Defect>> = const { Cell::new(None) };
}

/// From here on this thread's engines make this mistake, or none.
///
/// # Panics
/// For a mistake in a build that has no places for them.
pub fn activate(defect: Option<Defect>) {
    assert!(cfg!(debug_assertions) || defect.is_none(), "a release makes no mistakes on purpose");
    ACTIVE.set(defect);
}

pub fn is_active(defect: Defect) -> bool {
    ACTIVE.get() == Some(defect)
}
