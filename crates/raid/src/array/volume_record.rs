//! The volume record on the members.
//!
//! **Invariants**
//! - A record that was written before is replaced only where the new one is stable: a write goes to
//!   the copy that the newest one is not in.
//! - It is written on every member in use, and on hot spares; what of it may be lost
//!   ([`Array::refresh_volume_record`]) on one of them at least.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use headpond_block::sync::{Busy, BusyGuard, join_all};
use headpond_block::{BlockDevice, Buffer, DeviceError, Outcome, Request, RequestKind, Submission};
use uuid::Uuid;

use super::label::write_stable;
use super::{Array, Member};
use crate::volume_record::{AREA, COPY_BYTES, COPY_OFFSETS, VolumeRecord};

/// What the members have of the volume.
#[derive(Default)]
pub(crate) struct VolumeRecords {
    /// The newest one, as far as it is stable.
    text: RefCell<Option<Rc<[u8]>>>,
    /// Of the newest write, whether it is complete or not.
    sequence: Cell<u64>,
    writing: Busy,
}

impl VolumeRecords {
    pub(super) fn new(found: Option<VolumeRecord>) -> VolumeRecords {
        let sequence = Cell::new(found.as_ref().map_or(0, |record| record.sequence));
        let text = RefCell::new(found.map(|record| record.text.into()));
        VolumeRecords { text, sequence, writing: Busy::default() }
    }

    async fn turn(&self) -> BusyGuard {
        while !self.writing.is_idle() {
            self.writing.until_idle().await;
        }
        self.writing.begin()
    }
}

/// The newest volume record of an array on any of these devices. One that cannot be read has none.
pub async fn newest_volume_record<'a>(
    devices: impl Iterator<Item = &'a dyn BlockDevice>,
    array: Uuid,
) -> Option<VolumeRecord> {
    let looks = devices.map(|device| Box::pin(volume_record_of(device, array))).collect();
    let found = join_all(looks).await;
    found.into_iter().flatten().max_by_key(|record| record.sequence)
}

/// The newest volume record of an array on one device, as far as it can be read.
pub async fn volume_record_of(device: &dyn BlockDevice, array: Uuid) -> Option<VolumeRecord> {
    let area = Buffer::zeroed(AREA.len() as usize);
    device.submit(Request::read(AREA.start(), &area)).await.ok()?;
    let area = area.to_vec();
    let copies = area.chunks_exact(COPY_BYTES).filter_map(|it| VolumeRecord::decode(it, array));
    copies.max_by_key(|record| record.sequence)
}

/// Writes the first volume record of an array that is created.
///
/// # Errors
/// Those of the device.
pub async fn write_first_volume_record(
    device: &dyn BlockDevice,
    array: Uuid,
    text: &[u8],
) -> Outcome {
    let record = VolumeRecord { sequence: 1, text: text.to_vec() };
    write_stable(device, COPY_OFFSETS[1], &record.encode(array)).await
}

/// Replaces the volume record on the members of an array that is not assembled; the caller knows
/// that the array relies on them, and that no other program has them.
///
/// # Errors
/// Those of the first device that cannot be written: the others may have the new record.
pub async fn replace_volume_record(
    members: &[Rc<dyn BlockDevice>],
    array: Uuid,
    text: &[u8],
) -> Outcome {
    let found = newest_volume_record(members.iter().map(|member| &**member), array).await;
    let sequence = found.map_or(0, |record| record.sequence) + 1;
    let bytes = VolumeRecord { sequence, text: text.to_vec() }.encode(array);
    let offset = COPY_OFFSETS[(sequence % 2) as usize];
    let writes = members.iter().map(|member| Box::pin(write_stable(&**member, offset, &bytes)));
    join_all(writes.collect()).await.into_iter().collect()
}

impl Array {
    /// The volume record that the members have.
    pub fn volume_record(&self) -> Option<Rc<[u8]>> {
        self.members.volume_records.text.borrow().clone()
    }

    /// Replaces the volume record on all members, stably; one after the other.
    ///
    /// # Errors
    /// Where the array has lost too many members. A member that fails it is failed.
    ///
    /// # Panics
    /// Where the text is longer than a record may be.
    pub async fn write_volume_record(&self, text: &[u8]) -> Outcome {
        let _turn = self.members.volume_records.turn().await;
        self.check_writable()?;
        for (member, outcome) in self.put_volume_record(text).await {
            if outcome.is_err() {
                self.fail_member(&member).await;
            }
        }
        self.check_intact()?;
        self.members.volume_records.text.replace(Some(text.into()));
        Ok(())
    }

    /// The same for a text that says no more than the one before but for what may be lost. A member
    /// that does not take it stays in use, with the text before; returns how many such there are.
    ///
    /// # Errors
    /// Where the array has lost too many members, or none takes it.
    ///
    /// # Panics
    /// Where the text is longer than a record may be.
    pub async fn refresh_volume_record(&self, text: &[u8]) -> Result<u64, DeviceError> {
        let records = &self.members.volume_records;
        let _turn = records.turn().await;
        self.check_writable()?;
        let outcomes = self.put_volume_record(text).await;
        let count = outcomes.len();
        let failures: Vec<_> = outcomes.into_iter().filter_map(|(_, it)| it.err()).collect();
        let missed = failures.len();
        if missed > 0 {
            // The next one goes to the copy that this one went to: the other copy is all that those
            // have which missed it.
            records.sequence.set(records.sequence.get() + 1);
        }
        match failures.into_iter().next() {
            Some(error) if missed == count => Err(error),
            _ => {
                records.text.replace(Some(text.into()));
                Ok(missed as u64)
            }
        }
    }

    /// Writes it to each member.
    async fn put_volume_record(&self, text: &[u8]) -> Vec<(Rc<Member>, Outcome)> {
        let records = &self.members.volume_records;
        let sequence = records.sequence.get() + 1;
        records.sequence.set(sequence);
        let record = VolumeRecord { sequence, text: text.to_vec() };
        let bytes: Rc<[u8]> = record.encode(self.uuid()).into();
        let offset = COPY_OFFSETS[(sequence % 2) as usize];
        let members = self.members.present();
        let write = |member: &Rc<Member>| {
            let (device, bytes) = (Rc::clone(&member.device), Rc::clone(&bytes));
            let write = async move { write_stable(&*device, offset, &bytes).await };
            self.watched(member, Submission::pending(write), RequestKind::Write)
        };
        let outcomes = join_all(members.iter().map(write).collect()).await;
        members.into_iter().zip(outcomes).collect()
    }
}
