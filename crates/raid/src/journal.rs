//! The stripe journal: the new contents of the members of a stripe, made stable elsewhere before
//! any of them is written.
//!
//! A degraded stripe is torn by a power cut during a write: data and parity no longer match, and
//! the missing strip cannot be reconstructed. With the journal the write is replayed after the cut,
//! from its record, whatever members are left.
//!
//! 1. A write joins the next record, with the new content of every strip that it changes; while one
//!    record is being written, writes gather for the next.
//! 2. The record is stable; then the members are written.
//! 3. When the members have been flushed the record is obsolete; the label records that
//!    ([`label`]), and its space in the [`ring`] may be reused.
//! 4. After an unclean shutdown the records from the label's tail on are written to the members
//!    again, in their order, except for the parts that [`later`] ones overwrite.
//!
//! **Invariants**
//! - At most one record is in flight: none was begun behind an unfinished one. A record that is
//!   missing before another one is damage.
//! - The space of a record is reused only when the label that excludes it is stable.
//!
//! **Not here**: the device (`array::journal`), which writes need it (`array::guard`).
//! **Source**: `docs/format.md`, "Stripe journal"; decision 0018. The redo of data and parity is
//! that of Linux md's `raid5-cache`.

pub mod label;
pub(crate) mod later;
pub mod record;
pub mod ring;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::layout::Layout;

/// Which writes go through the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum JournalWhen {
    /// Writes to degraded groups: no cost while the array is healthy, but a crash together with the
    /// loss of a member is not covered.
    #[default]
    Degraded,
    /// All writes.
    Always,
}

/// Records that the ring has room for at least, each as large as a write can make it.
const RECORDS_MIN: u64 = 4;

/// The fewest bytes of a device that can be the journal of such an array.
pub fn bytes_min(layout: &Layout) -> u64 {
    label::RING_OFFSET + RECORDS_MIN * record_bytes_max(layout).max(ring::BATCH_BYTES_MAX)
}

/// The largest record that one write makes: all of a stripe, from every second sector an extent.
pub fn record_bytes_max(layout: &Layout) -> u64 {
    let extents = layout.stripe_bytes() / 1024 + 3;
    let strips = (layout.data_strips() + layout.parity_strips()) as u64;
    record::header_bytes(extents as usize) + strips * u64::from(layout.strip_bytes())
}
