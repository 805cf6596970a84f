//! The processors on which this thread makes load.

use crate::plan::processors;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;

/// A thread that is bound to some processors; dropped, it may run where it ran before.
pub(super) struct Bound {
    before: CpuSet,
}

impl Bound {
    /// Binds this thread to the processors of a list.
    ///
    /// # Errors
    /// Where the list is none, or this thread may run on none of them; it stays where it is.
    pub fn to(list: &str) -> io::Result<Self> {
        let set = processors(list).ok_or(io::ErrorKind::InvalidInput)?;
        let before = sched_getaffinity(None)?;
        sched_setaffinity(None, &set)?;
        Ok(Self { before })
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // It was allowed there until now, unless somebody else has changed that.
        let _ = sched_setaffinity(None, &self.before);
    }
}
