//! The list of lost blocks on the members, and the paths that check it.
//!
//! 1. blocks are added under the lock of their stripe, and only when the list is durable on every
//!    member may something else be written in their place (`damage`); 2. reads of them fail; 3. a
//!    write of new data removes them, under the same lock: its data is stable before the list is,
//!    and the list before the write is acknowledged.
//!
//! Only whole logical blocks are written, so none is ever lost in part. The array's own reads, to
//! compute parity, ignore the list. Discarding does not change the list: it may leave the contents
//! as they are.
//!
//! **Invariants**
//! - Every member in use has the newest list that was ever complete.
//! - The superblocks record that there is a list while one that is not empty is in force.
//! - A read that ran while blocks were added to the list is executed again: it may have read what
//!   was written in their place.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use headpond_block::sync::{Notify, join_all};
use headpond_block::{
    BlockDevice, Buffer, ByteRange, Cause, DeviceError, Outcome, Request, RequestKind, Submission,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::label::write_stable;
use super::{Array, Member};
use crate::layout::Stripe;
use crate::lost::{COPY_BYTES, COPY_OFFSETS, Full, LostBlocks, decode, encode};
use crate::plan::{Extent, Span};
use crate::superblock::ArrayRecord;

/// Ranges that a status lists.
const RANGES_SHOWN_MAX: usize = 64;

/// The lost blocks of an array, for a status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LostStatus {
    pub bytes: u64,
    /// Ranges that are not adjacent.
    pub ranges: u64,
    /// The first of them.
    pub first: Vec<LostRange>,
}

/// Bytes of the array that read as errors until they are written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LostRange {
    pub start: u64,
    pub bytes: u64,
}

/// The list of an array.
pub(crate) struct Lost {
    blocks: RefCell<LostBlocks>,
    /// Of the newest list that was written to any member; `None` if it was not read yet, because no
    /// list is valid.
    sequence: Cell<Option<u64>>,
    changes: Cell<u64>,
    /// Those that are stable on the members.
    stable_changes: Cell<u64>,
    /// Whether the stable list has anything on it.
    is_listed: Cell<bool>,
    /// How often blocks were added to the list.
    recordings: Cell<u64>,
    writing: Cell<bool>,
    progress: Notify,
}

/// How often blocks had been put on the list when a read began.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Recordings(u64);

impl Lost {
    /// The list of an array as it was found on its members, which may not all have it.
    fn new(found: LostBlocks, sequence: Option<u64>) -> Lost {
        Lost {
            is_listed: Cell::new(!found.is_empty()),
            blocks: RefCell::new(found),
            sequence: Cell::new(sequence),
            changes: Cell::new(0),
            stable_changes: Cell::new(0),
            recordings: Cell::new(0),
            writing: Cell::new(false),
            progress: Notify::new(),
        }
    }

    /// Whether the superblocks are to say that there is a list.
    pub(super) fn is_listed(&self) -> bool {
        self.is_listed.get()
    }

    pub(super) fn recordings(&self) -> Recordings {
        Recordings(self.recordings.get())
    }

    /// Whether nothing was put on the list since.
    pub(super) fn is_as_of(&self, recordings: Recordings) -> bool {
        self.recordings() == recordings
    }

    /// Checks the list in memory against what is stable; for tests and simulation.
    ///
    /// # Panics
    /// Where an invariant does not hold.
    pub(super) fn self_check(&self) {
        let blocks = self.blocks.borrow();
        blocks.self_check();
        let (changes, stable) = (self.changes.get(), self.stable_changes.get());
        assert!(stable <= changes, "stable is what was changed");
        assert!(self.recordings.get() <= changes, "what is put on the list changes it");
        let agrees = stable < changes || self.is_listed.get() != blocks.is_empty();
        assert!(agrees, "a stable list is the one in memory");
    }

    fn first_in(&self, range: ByteRange) -> Option<ByteRange> {
        self.blocks.borrow().first_in(range)
    }

    fn note_change(&self) {
        self.changes.set(self.changes.get() + 1);
    }
}

/// Why there is no list although the superblocks say that there is one.
pub(crate) struct Unreadable;

/// The list of an array as its members have it that hold everything.
///
/// # Errors
/// Where none has a valid one, although the array has lost blocks.
pub(crate) async fn find_lost(
    members: impl Iterator<Item = &dyn BlockDevice>,
    record: &ArrayRecord,
) -> Result<Lost, Unreadable> {
    if !record.has_lost_blocks {
        return Ok(Lost::new(LostBlocks::new(record.logical_block_bytes), None));
    }
    let (sequence, blocks) = newest_list(members, record).await.ok_or(Unreadable)?;
    // Written once more under the sequence that it has: members that lack it get it.
    Ok(Lost::new(blocks, Some(sequence.saturating_sub(1))))
}

/// The list with the highest sequence on any of the members, whether it counts or not.
async fn newest_list(
    members: impl Iterator<Item = &dyn BlockDevice>,
    record: &ArrayRecord,
) -> Option<(u64, LostBlocks)> {
    let array_bytes = record.layout().ok()?.array_bytes();
    let mut newest: Option<(u64, LostBlocks)> = None;
    for device in members {
        for offset in COPY_OFFSETS {
            let Ok(bytes) = read_copy(device, offset).await else { continue };
            let Ok(found) = decode(&bytes, record.uuid, array_bytes) else { continue };
            let is_newer = newest.as_ref().is_none_or(|(known, _)| *known < found.0);
            if is_newer && found.1.block_bytes() == record.logical_block_bytes {
                newest = Some(found);
            }
        }
    }
    newest
}

/// Wipes the place of both copies, for a device that joins.
pub(super) async fn erase_lost(device: &dyn BlockDevice) -> Outcome {
    for offset in COPY_OFFSETS {
        write_stable(device, offset, &[0; 4096]).await?;
    }
    Ok(())
}

async fn read_copy(device: &dyn BlockDevice, offset: u64) -> Result<Vec<u8>, DeviceError> {
    let buffer = Buffer::zeroed(COPY_BYTES);
    device.submit(Request::read(offset, &buffer)).await?;
    Ok(buffer.to_vec())
}

impl Array {
    /// Whether a range has no lost block.
    ///
    /// # Errors
    /// A medium error of the array, at the first lost bytes.
    pub(super) fn check_known(&self, range: ByteRange) -> Outcome {
        match self.lost.first_in(range) {
            None => Ok(()),
            Some(range) => Err(DeviceError::new(self.name(), Cause::Media { range })),
        }
    }

    /// Whether all of a range is lost.
    pub(super) fn is_lost(&self, range: ByteRange) -> bool {
        self.lost.first_in(range).is_some_and(|lost| lost == range)
    }

    /// What a read got, unless blocks were lost while it ran; then it is carried out again.
    pub(super) async fn unless_lost_since(
        &self,
        began: Recordings,
        request: Request,
        outcome: Outcome,
    ) -> Outcome {
        if self.lost.is_as_of(began) || outcome.is_err() {
            return outcome;
        }
        Submission::pending(self.read_pieces(request)).await
    }

    /// Puts blocks on the list, stably on every member. Their stripe is locked by the caller.
    ///
    /// # Errors
    /// Where the list is full, or the array has lost too many members.
    pub(super) async fn record_lost(&self, ranges: &[ByteRange]) -> Outcome {
        let inserted = self.lost.blocks.borrow_mut().insert(ranges);
        inserted.map_err(|Full| self.cannot_list_more())?;
        self.lost.recordings.set(self.lost.recordings.get() + 1);
        self.lost.note_change();
        self.write_lost().await?;
        if !self.recorder.record().has_lost_blocks {
            return self.change_record(|_| {}).await;
        }
        self.settle().await;
        self.check_intact()
    }

    /// Takes what was written to a stripe off the list. The stripe is locked by the caller.
    pub(super) async fn note_known(&self, stripe: Stripe, extents: &[Extent]) -> Outcome {
        if self.lost.blocks.borrow().is_empty() {
            return Ok(());
        }
        for Extent { strip, span } in extents {
            self.note_range_known(self.range_of(stripe, *strip, span)).await?;
        }
        Ok(())
    }

    /// The bytes of the array in a part of a data strip.
    pub(super) fn range_of(&self, stripe: Stripe, strip: u16, span: &Span) -> ByteRange {
        let strip_start = u64::from(strip) * u64::from(self.layout.strip_bytes());
        let start = self.layout.stripe_start(stripe) + strip_start + u64::from(span.start);
        ByteRange::at(start, span.len() as u64)
    }

    /// The same for a range of several stripes.
    pub(super) async fn note_range_known(&self, range: ByteRange) -> Outcome {
        if self.lost.first_in(range).is_none() {
            return Ok(());
        }
        self.flush_members().await?;
        self.lost.blocks.borrow_mut().remove(range);
        self.lost.note_change();
        self.write_lost().await
    }

    /// Writes the list as it was found, for the sake of members that lack it.
    pub(crate) async fn write_found_lost(&self) -> Outcome {
        if !self.lost.is_listed() {
            return Ok(());
        }
        self.lost.note_change();
        self.write_lost().await
    }

    /// Bytes that can be listed before the array is taken for more than damaged: one in a hundred
    /// of what a member holds, or 16 strips where that is more.
    pub(super) fn lost_bytes_max(&self) -> u64 {
        (self.layout.member_data_bytes() / 100).max(16 * u64::from(self.layout.strip_bytes()))
    }

    pub(super) fn lost_bytes(&self) -> u64 {
        self.lost.blocks.borrow().bytes()
    }

    pub(super) fn cannot_list_more(&self) -> DeviceError {
        let operation = "go on past more blocks that nobody can read: the list of lost blocks is \
                         as long as it may be";
        DeviceError::new(self.name(), Cause::Unsupported { operation })
    }

    pub(super) fn lost_status(&self) -> LostStatus {
        let blocks = self.lost.blocks.borrow();
        let range = |it: ByteRange| LostRange { start: it.start(), bytes: it.len() };
        LostStatus {
            bytes: blocks.bytes(),
            ranges: blocks.ranges().count() as u64,
            first: blocks.ranges().take(RANGES_SHOWN_MAX).map(range).collect(),
        }
    }

    /// Brings the list on all members up to date; many callers share one write.
    async fn write_lost(&self) -> Outcome {
        let wanted = self.lost.changes.get();
        while self.lost.stable_changes.get() < wanted {
            if self.lost.writing.get() {
                self.lost.progress.wait().await;
                continue;
            }
            let _turn = LostListTurn::take(&self.lost);
            let (changes, sequence) = (self.lost.changes.get(), self.next_sequence().await);
            self.lost.sequence.set(Some(sequence));
            let (bytes, is_listed) = {
                let blocks = self.lost.blocks.borrow();
                (encode(self.uuid(), sequence, &blocks), !blocks.is_empty())
            };
            self.write_list(sequence, bytes.into()).await?;
            self.lost.stable_changes.set(changes);
            self.lost.is_listed.set(is_listed);
        }
        Ok(())
    }

    /// One higher than any list that is left on a member, also of lists that do not count.
    async fn next_sequence(&self) -> u64 {
        if let Some(sequence) = self.lost.sequence.get() {
            return sequence + 1;
        }
        let (members, record) = (self.members.present(), self.recorder.record().clone());
        let devices = members.iter().map(|member| &*member.device);
        newest_list(devices, &record).await.map_or(1, |(sequence, _)| sequence + 1)
    }

    async fn write_list(&self, sequence: u64, bytes: Rc<[u8]>) -> Outcome {
        let offset = COPY_OFFSETS[(sequence % 2) as usize];
        let members = self.members.present();
        let write = |member: &Rc<Member>| {
            let (device, bytes) = (Rc::clone(&member.device), Rc::clone(&bytes));
            let write = async move { write_stable(&*device, offset, &bytes).await };
            self.watched(member, Submission::pending(write), RequestKind::Write)
        };
        let outcomes = join_all(members.iter().map(write).collect()).await;
        for (member, outcome) in members.iter().zip(outcomes) {
            if outcome.is_err() {
                self.fail_member(member).await;
            }
        }
        self.check_intact()
    }
}

/// The turn of one caller to write the list.
struct LostListTurn<'a>(&'a Lost);

impl<'a> LostListTurn<'a> {
    fn take(lost: &'a Lost) -> Self {
        assert!(!lost.writing.replace(true), "one caller at a time writes the list");
        LostListTurn(lost)
    }
}

impl Drop for LostListTurn<'_> {
    fn drop(&mut self) {
        self.0.writing.set(false);
        self.0.progress.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use headpond_testkit::{Break, assert_trips};

    use super::*;
    use crate::array::self_check::tests::*;

    #[test]
    fn check_notices_a_list_that_is_not_the_one_on_the_members() {
        let breaks: [Break<Array>; 3] = [
            ("stable is what was changed", |it| it.lost.stable_changes.set(1)),
            ("what is put on the list changes it", |it| it.lost.recordings.set(1)),
            ("a stable list is the one in memory", |it| {
                let ranges = [ByteRange::at(0, 4096)];
                it.lost.blocks.borrow_mut().insert(&ranges).expect("there is room");
            }),
        ];
        assert_trips(lived, |it| it.lost.self_check(), &breaks);
    }
}
