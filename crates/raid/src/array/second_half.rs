//! A member as the array sees it that another one is being reshaped to.
//!
//! The data area is the same, except for staged rows, and so is the volume record. The other
//! metadata is the second half of the member's metadata, until the reshape is complete: then it is
//! moved over the first half, and the member is as any other.
//!
//! **Invariants**: the first half is written only when its contents are not needed any more.

use std::cell::Cell;
use std::rc::Rc;

use headpond_block::sync::join_all;
use headpond_block::{
    BlockDevice, Buffer, ByteRange, Cause, DeviceError, DeviceName, Geometry, Outcome, Request,
    RequestFlags, RequestKind, Submission,
};
use uuid::Uuid;

use super::label::{Inspection, inspect};
use crate::superblock::{
    ABSENCE_OFFSET, COPY_OFFSETS, DATA_OFFSET_MIN, INTENT_BYTES, INTENT_OFFSET,
    SECOND_ABSENCE_OFFSET, SECOND_COPY_OFFSETS, SECOND_HALF_SHIFT, STAGE_BYTES, STAGE_OFFSET,
    SUPERBLOCK_BYTES,
};
use crate::volume_record;

/// Bitmap of intents and both lists of lost blocks: one behind the other.
const MARKS: ByteRange = ByteRange::at(INTENT_OFFSET, 3 * INTENT_BYTES);
const ABSENCE: ByteRange = ByteRange::at(ABSENCE_OFFSET, INTENT_BYTES);

const _: () = assert!(MARKS.end() <= MARKS.start() + SECOND_HALF_SHIFT);
const _: () = assert!(MARKS.end() + SECOND_HALF_SHIFT <= SECOND_ABSENCE_OFFSET);

/// A device, with the second half of what describes it in the place of the first.
pub(crate) struct SecondHalf {
    inner: Rc<dyn BlockDevice>,
    /// Of the member that it is.
    uuid: Uuid,
    /// What counts is in the place of the first half already.
    is_moved: Cell<bool>,
    /// Of the superblock that was found in the first half.
    first_sequence: Cell<u64>,
    /// The part of the device that is staged.
    staged: Cell<ByteRange>,
}

impl SecondHalf {
    pub(crate) fn of(inner: Rc<dyn BlockDevice>, uuid: Uuid) -> SecondHalf {
        SecondHalf {
            inner,
            uuid,
            is_moved: Cell::new(false),
            first_sequence: Cell::new(0),
            staged: Cell::new(ByteRange::EMPTY),
        }
    }

    /// A member whose second half has moved over the first.
    pub(crate) fn moved(inner: Rc<dyn BlockDevice>, uuid: Uuid) -> SecondHalf {
        let half = SecondHalf::of(inner, uuid);
        half.is_moved.set(true);
        half
    }

    /// The device as it is without.
    pub(super) fn device(&self) -> Rc<dyn BlockDevice> {
        Rc::clone(&self.inner)
    }

    pub(super) fn uuid(&self) -> Uuid {
        self.uuid
    }

    pub(super) fn is_moved(&self) -> bool {
        self.is_moved.get()
    }

    /// The sequence that the superblocks in the first half continue from.
    pub(super) fn first_sequence(&self) -> u64 {
        self.first_sequence.get()
    }

    /// Maps a part of the device to the staged rows, or none of it.
    pub(super) fn set_staged(&self, part: ByteRange) {
        assert!(part.len() <= STAGE_BYTES && (part.is_empty() || part.start() >= DATA_OFFSET_MIN));
        self.staged.set(part);
    }

    /// Moves bitmaps and lists over those of the first half. The next superblock goes there as
    /// well, and with it the second half is no more.
    ///
    /// # Errors
    /// Those of the device, of which the first half then describes what it did.
    pub(super) async fn move_over_first(&self) -> Outcome {
        for part in [MARKS, ABSENCE] {
            let buffer = Buffer::zeroed(part.len() as usize);
            self.submit(Request::read(part.start(), &buffer)).await?;
            let write = Request::write(part.start(), &buffer).with_flags(RequestFlags::FUA);
            self.inner.submit(write).await?;
        }
        let Inspection::Member(first) = inspect(&*self.inner).await? else {
            return Err(DeviceError::new(self.name(), Cause::Gone));
        };
        self.first_sequence.set(first.sequence);
        self.is_moved.set(true);
        Ok(())
    }

    /// The location of metadata before the data area.
    fn place_of(&self, range: ByteRange) -> u64 {
        let copy = |number: usize| ByteRange::at(COPY_OFFSETS[number], SUPERBLOCK_BYTES as u64);
        let places = [
            (MARKS, INTENT_OFFSET + SECOND_HALF_SHIFT),
            (ABSENCE, SECOND_ABSENCE_OFFSET),
            (copy(0), SECOND_COPY_OFFSETS[0]),
            (copy(1), SECOND_COPY_OFFSETS[1]),
        ];
        let is_there = |(first, _): &&(ByteRange, u64)| first.contains(range);
        let (first, second) = places.iter().find(is_there).expect("metadata has its places");
        second + (range.start() - first.start())
    }

    fn submit_around_stage(&self, request: &Request) -> Submission<'_> {
        let (range, staged) = (request.range, self.staged.get());
        let before = ByteRange::between(range.start(), staged.start().max(range.start()));
        let after = ByteRange::between(staged.end().min(range.end()), range.end());
        let mut parts = Vec::with_capacity(3);
        for part in [before, after].into_iter().filter(|part| !part.is_empty()) {
            parts.push(self.inner.submit(request.part(part, part.start())));
        }
        let part = range.intersect(staged);
        let place = STAGE_OFFSET + (part.start() - staged.start());
        parts.push(self.inner.submit(request.part(part, place)));
        Submission::pending(async move { join_all(parts).await.into_iter().collect() })
    }
}

impl BlockDevice for SecondHalf {
    fn name(&self) -> &DeviceName {
        self.inner.name()
    }

    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        let range = request.range;
        if request.kind == RequestKind::Flush {
            return self.inner.submit(request);
        }
        let is_halved = range.end() <= DATA_OFFSET_MIN && !volume_record::AREA.contains(range);
        if is_halved && !self.is_moved.get() {
            let place = self.place_of(range);
            return self.inner.submit(request.part(range, place));
        }
        let staged = self.staged.get();
        if staged.contains(range) && !range.is_empty() {
            let place = STAGE_OFFSET + (range.start() - staged.start());
            return self.inner.submit(request.part(range, place));
        }
        match range.overlaps(staged) {
            true => self.submit_around_stage(&request),
            false => self.inner.submit(request),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_block::devices::RamDevice;

    fn submit(device: &SecondHalf, request: Request) {
        let Submission::Ready(Some(Ok(()))) = device.submit(request) else {
            panic!("memory answers at once")
        };
    }

    #[test]
    fn both_halves_and_the_stage_of_a_member_keep_apart() {
        let device = Rc::new(RamDevice::with_geometry("m", Geometry::of_size(2 << 20)));
        let half = SecondHalf::of(device.clone(), Uuid::from_u128(1));
        let places = [
            ByteRange::at(COPY_OFFSETS[0], SUPERBLOCK_BYTES as u64),
            ByteRange::at(COPY_OFFSETS[1], SUPERBLOCK_BYTES as u64),
            MARKS,
            ABSENCE,
        ];
        for place in places {
            submit(&half, Request::write(place.start(), filled(place.len(), 7)));
        }
        half.set_staged(ByteRange::at(1 << 20, STAGE_BYTES));
        submit(&half, Request::write(1 << 20, filled(STAGE_BYTES, 7)));
        for place in places.into_iter().chain([ByteRange::at(1 << 20, 1 << 20)]) {
            let first = device.memory().slice(place.start() as usize..place.end() as usize);
            assert!(first.to_vec().iter().all(|byte| *byte == 0), "{place:?}");
        }
        for place in places {
            let found = Buffer::zeroed(place.len() as usize);
            submit(&half, Request::read(place.start(), &found));
            assert!(found.to_vec().iter().all(|byte| *byte == 7), "{place:?}");
        }
        let written = device.memory().to_vec().iter().filter(|byte| **byte == 7).count() as u64;
        assert_eq!(written, places.iter().map(|it| it.len()).sum::<u64>() + STAGE_BYTES);
    }

    #[test]
    fn a_range_over_the_ends_of_the_stage_is_divided() {
        let device = Rc::new(RamDevice::with_geometry("m", Geometry::of_size(2 << 20)));
        let half = SecondHalf::of(device.clone(), Uuid::from_u128(1));
        let start = (1 << 20) + 8192;
        half.set_staged(ByteRange::at(start, 4096));
        let bytes: Vec<u8> = (0..12288_u32).map(|at| (at / 512) as u8).collect();
        let write = half.submit(Request::write(start - 4096, Buffer::from_slice(&bytes)));
        drop(write);
        let memory = device.memory().to_vec();
        let (stage, start) = (STAGE_OFFSET as usize, start as usize);
        assert_eq!(memory[start - 4096..start], bytes[..4096]);
        assert_eq!(memory[stage..stage + 4096], bytes[4096..8192]);
        assert_eq!(memory[start..start + 4096], [0; 4096]);
        assert_eq!(memory[start + 4096..start + 8192], bytes[8192..]);
    }

    fn filled(len: u64, value: u8) -> Buffer {
        Buffer::from_slice(&vec![value; len as usize])
    }
}
