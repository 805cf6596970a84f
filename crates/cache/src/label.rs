//! The label on the core, as the cache sees it.

use headpond_block::{LocalFuture, Outcome};

/// Where the core's generation is kept: in the superblocks of its members, or beside the volume.
///
/// A cache that cannot write any more cannot record that what it holds is out of date; the core's
/// label can. Supplied by whoever assembles the volume.
pub trait CoreLabel {
    /// Raises the generation, durably, so that this cache is refused at its next open. Called at
    /// most once in the life of a slice, before a write that the cache should have recorded is
    /// acknowledged.
    fn disown_cache(&self) -> LocalFuture<'_, Outcome>;
}
