//! Whether the cache still has its flushed data: where it has not, the volume takes no writes until
//! the operator accepts that.
//!
//! The members record the flushed position of each log (`ownership`), and keep recording a loss,
//! whatever the log flushes afterwards, until the volume is opened by force.

use crate::assembly::cached::Cached;
use crate::assembly::open::Tolerance;
use crate::assembly::ownership::FlushedPositions;
use crate::volume::Volume;
use std::cell::RefCell;
use std::fmt;
use std::rc::{Rc, Weak};
use uuid::Uuid;

/// Flushed data that the cache has lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Broken {
    /// Records at the end of the logs of all slices.
    pub missing_records: u64,
    /// Within them.
    pub damaged_blocks: u64,
}

impl Broken {
    /// The loss that this open has found, or an earlier one that was not accepted yet.
    fn find(told: &FlushedPositions, cached: Option<&Cached>) -> Option<Self> {
        let mut broken = Self::default();
        for (index, end) in cached.iter().flat_map(|cached| cached.ends.iter().enumerate()) {
            broken.damaged_blocks += end.newly_lost_blocks;
            let promised = told.slices.get(index).map_or(0, |promise| promise.record.0);
            broken.missing_records += promised.saturating_sub(end.last_record.0);
        }
        (told.are_broken || broken != Self::default()).then_some(broken)
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { missing_records: records, damaged_blocks: blocks } = self;
        match (records, blocks) {
            (0, 0) => f.write_str("an earlier start found that the cache had lost flushed data"),
            (0, _) => write!(f, "{blocks} blocks that the cache had flushed are damaged"),
            (_, 0) => {
                write!(f, "the cache's log ends {records} records before its flushed position")
            }
            _ => write!(
                f,
                "the cache's log ends {records} records before its flushed position, and {blocks} blocks \
                 before that are damaged"
            ),
        }
    }
}

impl Volume {
    /// Compares the logs with their recorded flushed positions, and records these from now on.
    /// After a loss writes are refused, unless force accepts that.
    pub(crate) async fn verify_flushed_positions(&mut self, tolerance: Tolerance) {
        let cached = self.cached();
        let cache = cached.as_ref().map_or(Uuid::nil(), |cached| cached.superblock.cache);
        let Some(told) = self.ownership.flushed_positions_recorded(cache) else { return };
        let broken = Broken::find(&told, cached.as_deref());
        let is_accepted = tolerance.is_forced();
        let are_broken = broken.is_some() && !is_accepted;
        let cached = Rc::downgrade(&self.cached);
        let source = move || FlushedPositions { are_broken, ..flushed_positions_of(&cached) };
        // Before anything is served: a log that grows may reach the old position again.
        self.ownership.tell_promises(source).await;
        let Some(broken) = broken else { return };
        if is_accepted {
            return self.warn(format!("{broken}: accepted by --force"));
        }
        self.dispatcher.refuse_writes();
        self.broken.replace(Some(broken));
    }
}

/// Of the cache that there is now, where it lasts.
fn flushed_positions_of(cached: &Weak<RefCell<Option<Rc<Cached>>>>) -> FlushedPositions {
    let cached = cached.upgrade().and_then(|cached| cached.borrow().clone());
    let Some(cached) = cached.filter(|cached| !cached.is_memory()) else {
        return FlushedPositions::default();
    };
    let slices = cached.slices.iter().map(|slice| slice.promised()).collect();
    FlushedPositions { cache: cached.superblock.cache, slices, are_broken: false }
}
