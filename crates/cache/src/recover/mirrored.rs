//! Opens a slice on a mirrored device: each copy is read.
//!
//! After an unclean shutdown the copies may differ where the log was being written, and each may
//! have bit rot. A record is valid if any copy has it, as it would be on that copy alone; of
//! several in one place the newest is, because a copy may lack a whole lap of the log. Valid
//! records are written to the copies that lack them once the slice can be opened: a refusal leaves
//! all copies unchanged. So afterwards all copies are the same.

use super::Source;
use crate::checksum::Running;
use crate::copies::mend;
use crate::format::slice_header::CheckpointRef;
use crate::types::Sequence;
use headpond_block::{BLOCK_BYTES, Buffer, ByteRange, Cause, Copies, DeviceError, Request};
use std::ops::Range;

const PIECE_BYTES: u64 = 1 << 20;

/// A part of the log, as each copy that can be read has it; of a device without copies as that one
/// has it.
pub(super) struct Views {
    start: u64,
    of_copies: Vec<(usize, Buffer)>,
}

/// The bytes of them.
pub(super) struct SeenCopies<'a> {
    start: u64,
    of_copies: Vec<(usize, &'a [u8])>,
}

/// Where one copy lacks what another has of a record.
pub(super) struct Patch {
    record: Sequence,
    from: usize,
    to: usize,
    range: ByteRange,
}

/// A block of a record, and the first view in which it is right.
pub(super) type Judged = (Range<usize>, Option<usize>);

impl Views {
    /// What a device without copies has, in the first bytes of `memory`.
    pub fn of_one(range: ByteRange, memory: &Buffer) -> Self {
        let view = memory.slice(0..range.len() as usize);
        Self { start: range.start(), of_copies: vec![(0, view)] }
    }

    pub fn bytes(&self) -> SeenCopies<'_> {
        let of_copies = self.of_copies.iter().map(|(copy, view)| {
            // SAFETY: every read into them has been answered, and there is no other until they are
            // dropped.
            (*copy, unsafe { view.as_slice() })
        });
        SeenCopies { start: self.start, of_copies: of_copies.collect() }
    }
}

impl<'a> SeenCopies<'a> {
    pub fn views(&self) -> impl Iterator<Item = &'a [u8]> {
        self.of_copies.iter().map(|(_, view)| *view)
    }

    /// The views that lack some of these blocks, where there are several: an older record may be
    /// partly written over there.
    pub fn without(&self, blocks: &[Judged]) -> impl Iterator<Item = &'a [u8]> {
        let has = |view: &[u8], (place, right): &Judged| {
            right.is_some_and(|right| {
                let right = self.of_copies[right].1;
                view.get(place.clone()) == right.get(place.clone())
            })
        };
        let are_several = self.of_copies.len() > 1;
        self.views().filter(move |view| are_several && !blocks.iter().all(|block| has(view, block)))
    }

    /// Notes which copies do not have what one of the views has of a record in a place.
    pub fn note_lacking(
        &self,
        record: Sequence,
        right: usize,
        place: Range<usize>,
        patches: &mut Vec<Patch>,
    ) {
        let (from, bytes) = self.of_copies[right];
        for &(to, view) in &self.of_copies {
            if view[place.clone()] != bytes[place.clone()] {
                let range = ByteRange::at(self.start + place.start as u64, place.len() as u64);
                patches.push(Patch { record, from, to, range });
            }
        }
    }
}

impl Source<'_> {
    /// Reads a part of the log, without copies into `memory`. What a copy cannot give reads as
    /// zeros, which no checksum takes for data; one that is out of use has no view.
    ///
    /// # Errors
    /// Where no copy can be read.
    pub(super) async fn read_views(
        &self,
        range: ByteRange,
        memory: &Buffer,
    ) -> Result<Views, DeviceError> {
        let start = range.start();
        let Some(copies) = self.device.copies() else {
            self.read_long(start, &memory.slice(0..range.len() as usize)).await?;
            return Ok(Views::of_one(range, memory));
        };
        let (mut of_copies, mut failure) = (Vec::new(), None);
        for copy in 0..copies.count() {
            let view = Buffer::zeroed(range.len() as usize);
            match read_what_can_be(copies, copy, range, &view).await {
                Ok(()) => of_copies.push((copy, view)),
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            Some(error) if of_copies.is_empty() => Err(error),
            _ => Ok(Views { start, of_copies }),
        }
    }

    /// Gives the copies what others have of the records that count: those from the tail on.
    pub(super) async fn apply(&self, mut patches: Vec<Patch>, tail: Sequence) {
        let Some(copies) = self.device.copies() else { return };
        patches.retain(|patch| patch.record >= tail);
        patches.sort_by_key(|patch| (patch.to, patch.from, patch.range.start()));
        for Patch { from, to, range, .. } in joined(patches) {
            for piece in range.split_at_multiples(PIECE_BYTES) {
                let data = Buffer::zeroed(piece.len() as usize);
                let read = Request::read(piece.start(), &data);
                if copies.read_copy(from, read).await.is_ok() {
                    mend(copies, to, piece.start(), &data.to_vec()).await;
                }
            }
        }
    }

    /// Makes the checkpoint right on all copies, where one has it.
    pub(super) async fn mend_checkpoint(&self, checkpoint: CheckpointRef) {
        let Some(copies) = self.device.copies() else { return };
        let place = self.layout.checkpoint(checkpoint.area);
        if checkpoint.bytes > place.len() {
            return;
        }
        let mut right = None;
        let mut wrong = Vec::new();
        for copy in 0..copies.count() {
            match self.checksum_on(copies, copy, checkpoint).await {
                Ok(found) if found == checkpoint.checksum => right = right.or(Some(copy)),
                Ok(_) => wrong.push(copy),
                Err(error) if matches!(error.cause(), Cause::Media { .. }) => wrong.push(copy),
                // Out of use: it will be given everything, if it comes back.
                Err(_) => {}
            }
        }
        let Some(right) = right.filter(|_| !wrong.is_empty()) else { return };
        for range in pieces(place, checkpoint.bytes) {
            let data = Buffer::zeroed(range.len() as usize);
            let read = Request::read(range.start(), &data);
            if copies.read_copy(right, read).await.is_err() {
                return;
            }
            let bytes = data.to_vec();
            for copy in &wrong {
                mend(copies, *copy, range.start(), &bytes).await;
            }
        }
    }

    async fn checksum_on(
        &self,
        copies: &dyn Copies,
        copy: usize,
        checkpoint: CheckpointRef,
    ) -> Result<u32, DeviceError> {
        let mut checksum = Running::new();
        let place = self.layout.checkpoint(checkpoint.area);
        let mut left = checkpoint.bytes;
        for range in pieces(place, checkpoint.bytes) {
            let data = Buffer::zeroed(range.len() as usize);
            copies.read_copy(copy, Request::read(range.start(), &data)).await?;
            let wanted = left.min(range.len());
            checksum.add(&data.to_vec()[..wanted as usize]);
            left -= wanted;
        }
        Ok(checksum.value())
    }
}

/// Those that follow each other, between the same copies, as one.
fn joined(patches: Vec<Patch>) -> Vec<Patch> {
    let mut joined: Vec<Patch> = Vec::new();
    for patch in patches {
        match joined.last_mut() {
            Some(last)
                if (last.from, last.to) == (patch.from, patch.to)
                    && last.range.end() == patch.range.start() =>
            {
                last.range = ByteRange::between(last.range.start(), patch.range.end());
            }
            _ => joined.push(patch),
        }
    }
    joined
}

/// Whole blocks that hold so many bytes from the start of a place.
fn pieces(place: ByteRange, bytes: u64) -> impl Iterator<Item = ByteRange> {
    let end = place.start() + bytes.next_multiple_of(BLOCK_BYTES);
    (place.start()..end)
        .step_by(PIECE_BYTES as usize)
        .map(move |start| ByteRange::between(start, end.min(start + PIECE_BYTES)))
}

/// Reads one copy, block by block where it cannot be read as a whole.
///
/// # Errors
/// Where nothing of it can be read.
async fn read_what_can_be(
    copies: &dyn Copies,
    copy: usize,
    range: ByteRange,
    view: &Buffer,
) -> Result<(), DeviceError> {
    for piece in range.split_at_multiples(PIECE_BYTES) {
        let at = (piece.start() - range.start()) as usize;
        let to = view.slice(at..at + piece.len() as usize);
        match copies.read_copy(copy, Request::read(piece.start(), &to)).await {
            Ok(()) => {}
            Err(error) if matches!(error.cause(), Cause::Media { .. }) => {
                read_blocks(copies, copy, (range, piece), view).await;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn read_blocks(
    copies: &dyn Copies,
    copy: usize,
    (range, piece): (ByteRange, ByteRange),
    view: &Buffer,
) {
    for block in piece.split_at_multiples(BLOCK_BYTES) {
        let at = (block.start() - range.start()) as usize;
        let to = view.slice(at..at + block.len() as usize);
        if copies.read_copy(copy, Request::read(block.start(), &to)).await.is_err() {
            to.fill(0);
        }
    }
}
