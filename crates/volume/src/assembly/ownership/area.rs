//! Reading and writing the owner records of one device.

use super::record::{AREA_BYTES, OFFSET, OwnerRecord, OwnerRecords};
use headpond_block::{BlockDevice, Buffer, DeviceError, Outcome, Request, RequestFlags};
use uuid::Uuid;

/// What the device says of who has the volume.
///
/// # Errors
/// That of the device.
pub(super) async fn look(
    device: &dyn BlockDevice,
    volume: Uuid,
) -> Result<OwnerRecords, DeviceError> {
    let area = Buffer::zeroed(AREA_BYTES);
    device.read(OFFSET, &area).await?;
    Ok(OwnerRecords::decode(&area.to_vec(), volume))
}

/// Writes a record that is to count instead of what was found.
pub(super) async fn write(
    device: &dyn BlockDevice,
    me: &OwnerRecord,
    found: &OwnerRecords,
    flags: RequestFlags,
) -> Outcome {
    let record = OwnerRecord { sequence: found.next_sequence(), ..me.clone() };
    let bytes = Buffer::from_slice(&record.encode());
    device.submit(Request::write(record.offset(), bytes).with_flags(flags)).await
}
