//! What is wrong with a read, and how it came about.

use crate::{BLOCK_BYTES, Content, WriteId, book::Book};
use std::fmt::Write;

/// How a read broke the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offence {
    /// The value was there once, but something that must be there has replaced it.
    Stale,
    /// The value was written elsewhere.
    Misplaced,
    /// The value was never written, or only in part.
    Garbage,
    /// Each sector is allowed, but together they are part of one whole write and part of another
    /// state.
    Torn,
}

/// A read that broke the contract, with the story of its block.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "block {block}, byte {address}: {offence:?}: found {found:?}, allowed {allowed:?}\n{story}"
)]
pub struct Verdict {
    pub offence: Offence,
    /// Byte address of the block.
    pub block: u64,
    /// Byte address of the sector, of the block where that is torn.
    pub address: u64,
    pub found: Content,
    /// The writes whose values were allowed.
    pub allowed: Vec<WriteId>,
    /// Everything that happened to the block, one line each.
    pub story: String,
}

/// Tells what happened to the block at `block`, in order.
pub(crate) fn story(book: &Book, block: u64) -> String {
    let mut lines = Vec::new();
    for (id, write) in book.touching(block..block + BLOCK_BYTES) {
        let end = match write.end {
            u64::MAX => "in flight".to_owned(),
            end => format!("{:?} at {end}", write.fate),
        };
        let (value, promise, range) = (write.value, write.promise, &write.range);
        let what = format!("write {}: {value:?} {range:?} {promise:?}, {end}", id.0);
        lines.push((write.begin, what));
    }
    for flush in &book.flushes {
        lines.push((flush.start, format!("flush, acknowledged at {}", flush.end)));
    }
    lines.extend(book.crashes.iter().map(|&at| (at, "power cut".to_owned())));
    lines.extend(book.notes.iter().cloned());
    lines.sort();
    lines.into_iter().fold(String::new(), |mut story, (at, line)| {
        let _ = writeln!(story, "  {at:>6} {line}");
        story
    })
}
