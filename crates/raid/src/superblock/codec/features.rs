//! The incompat flags: what a program must know to use an array.

use crate::superblock::ArrayRecord;

/// A device of the array may be a spare, and hold its role in part.
const FEATURE_SPARES: u64 = 1;
/// What a stripe journal holds is to be written to the members before they are used.
pub(super) const FEATURE_JOURNAL: u64 = 1 << 1;
/// Stripes are spread over more members than they have strips.
pub(super) const FEATURE_DECLUSTERED: u64 = 1 << 2;
/// The contents of lost blocks are not their data.
pub(super) const FEATURE_LOST_BLOCKS: u64 = 1 << 3;
/// A reshape is in progress, and part of the data is located by another shape.
pub(super) const FEATURE_RESHAPE: u64 = 1 << 4;
/// Members without redundancy have weights.
pub(super) const FEATURE_WEIGHTS: u64 = 1 << 5;
/// There are checksums that a write has to disown first.
pub(super) const FEATURE_INTEGRITY: u64 = 1 << 6;
/// Those that are known here.
pub(super) const FEATURES: u64 = FEATURE_SPARES
    | FEATURE_JOURNAL
    | FEATURE_DECLUSTERED
    | FEATURE_LOST_BLOCKS
    | FEATURE_RESHAPE
    | FEATURE_WEIGHTS
    | FEATURE_INTEGRITY;

/// The flags of an array.
pub(super) fn features(array: &ArrayRecord) -> u64 {
    let spares = if array.spares.is_empty() { 0 } else { FEATURE_SPARES };
    let declustered = if array.declustering.is_some() { FEATURE_DECLUSTERED } else { 0 };
    let lost = if array.has_lost_blocks { FEATURE_LOST_BLOCKS } else { 0 };
    let journal = array.journal.map_or(0, |_| FEATURE_JOURNAL);
    let reshape = array.reshape.map_or(0, |_| FEATURE_RESHAPE);
    let weights = array.weights.as_ref().map_or(0, |_| FEATURE_WEIGHTS);
    let integrity = array.integrity_region_stripes.map_or(0, |_| FEATURE_INTEGRITY);
    spares | journal | declustered | lost | reshape | weights | integrity
}
