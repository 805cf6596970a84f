//! Opening a slice on a device of several copies: each of them is looked at.
//!
//! After an unclean stop the copies may differ where the log was being written, and either may have
//! rotted. A record counts where any copy has it, as it would on a device that has that copy alone;
//! what the others have there is then written anew. So afterwards all copies tell the same, whoever
//! is asked.

use super::Source;
use crate::checksum::Running;
use crate::copies::mend;
use crate::format::slice_header::CheckpointRef;
use headpond_block::{BLOCK_BYTES, Buffer, ByteRange, Copies, DeviceError, Request};
use std::ops::Range;

const PIECE_BYTES: u64 = 1 << 20;

/// A part of the log, as each copy has it; of a device without copies as that one has it.
pub(super) struct Views(Vec<Buffer>);

/// What one copy is to be given, `at` behind where the views begin.
pub(super) struct Patch {
    copy: usize,
    at: usize,
    bytes: Vec<u8>,
}

impl Views {
    pub fn bytes(&self) -> Vec<&[u8]> {
        // SAFETY: every read into them has been answered, and there is no other until they are
        // dropped.
        self.0.iter().map(|view| unsafe { view.as_slice() }).collect()
    }
}

/// Notes which views do not have what `right` has in a place.
pub(super) fn patch(views: &[&[u8]], right: usize, place: Range<usize>, patches: &mut Vec<Patch>) {
    let bytes = &views[right][place.clone()];
    for (copy, view) in views.iter().enumerate() {
        if view[place.clone()] != *bytes {
            patches.push(Patch { copy, at: place.start, bytes: bytes.to_vec() });
        }
    }
}

impl Source<'_> {
    /// Reads a part of the log, without copies into `memory`. What a copy cannot give reads as
    /// zeros, which no checksum takes for data.
    ///
    /// # Errors
    /// Where no copy can be read.
    pub(super) async fn read_views(
        &self,
        range: ByteRange,
        memory: &Buffer,
    ) -> Result<Views, DeviceError> {
        let Some(copies) = self.device.copies() else {
            let view = memory.slice(0..range.len() as usize);
            self.read_long(range.start(), &view).await?;
            return Ok(Views(vec![view]));
        };
        let (mut views, mut failure) = (Vec::new(), None);
        for copy in 0..copies.count() {
            let view = Buffer::zeroed(range.len() as usize);
            if let Err(error) = read_what_can_be(copies, copy, range, &view).await {
                failure = Some((failure.map_or(1, |(count, _)| count + 1), error));
            }
            views.push(view);
        }
        match failure {
            Some((count, error)) if count == views.len() => Err(error),
            _ => Ok(Views(views)),
        }
    }

    /// Gives the copies what others have right.
    pub(super) async fn apply(&self, patches: Vec<Patch>, start: u64) {
        let Some(copies) = self.device.copies() else { return };
        let unit_bytes = self.layout.unit_bytes() as usize;
        for Patch { copy, at, mut bytes } in patches {
            // A descriptor ends where it ends; the rest of its last unit is zeros.
            bytes.resize(bytes.len().next_multiple_of(unit_bytes), 0);
            mend(copies, copy, start + at as u64, &bytes).await;
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
                Ok(_) | Err(DeviceError::Media { .. }) => wrong.push(copy),
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
            Err(DeviceError::Media { .. }) => {
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
