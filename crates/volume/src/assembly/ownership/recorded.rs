//! The owner that one device records, for tools that handle a device without its volume.

use super::claim::{Attempt, ClaimError, Claimant};
use super::flushed_positions::FlushedPositions;
use super::record::{AREA_BYTES, OFFSET, OwnerRecord, OwnerRecords, volumes_named};
use headpond_block::{BlockDevice, Buffer, DeviceError, Outcome, Request, RequestFlags, Runtime};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::rc::Rc;
use uuid::Uuid;

/// The owner of a volume, as a device of it records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RecordedOwner {
    pub volume: Uuid,
    pub host: String,
    pub heartbeat_ms: u32,
    /// It has not recorded that it stopped; it may have crashed.
    pub is_held: bool,
}

/// The owners that a device records: usually one, two after it changed the volume.
///
/// # Errors
/// That of the device.
pub async fn recorded_owners(device: &dyn BlockDevice) -> Result<Vec<RecordedOwner>, DeviceError> {
    let area = Buffer::zeroed(AREA_BYTES);
    device.read(OFFSET, &area).await?;
    let area = area.to_vec();
    let owner = |volume| match OwnerRecords::decode(&area, volume) {
        OwnerRecords::Record(record) => Some(RecordedOwner {
            volume,
            host: record.host.name,
            heartbeat_ms: record.interval_ms,
            is_held: record.is_held,
        }),
        OwnerRecords::Nothing | OwnerRecords::Unreadable(_) => None,
    };
    Ok(volumes_named(&area).into_iter().filter_map(owner).collect())
}

/// Checks that no owner is alive which the device records, for some seconds where one has not
/// recorded its stop. Nothing is written. `volume`: its name in errors.
///
/// # Errors
/// Where there is one.
pub async fn expect_no_owner(
    runtime: &Runtime,
    claimant: &Claimant,
    volume: &str,
    device: &Rc<dyn BlockDevice>,
) -> Result<(), ClaimError> {
    let area = Buffer::zeroed(AREA_BYTES);
    // A device that cannot be read cannot be written either, as a rule.
    if device.read(OFFSET, &area).await.is_err() {
        return Ok(());
    }
    for uuid in volumes_named(&area.to_vec()) {
        let me = OwnerRecord {
            volume: uuid,
            token: claimant.token,
            host: claimant.host.clone(),
            sequence: 0,
            interval_ms: 0,
            is_held: false,
            flushed_positions: FlushedPositions::default(),
        };
        let devices = [Rc::clone(device)];
        let attempt = Attempt { runtime, volume, claimant, me: &me, devices: &devices };
        attempt.expect_no_owner().await?;
    }
    Ok(())
}

/// Erases the records of a device that is no volume's any more.
///
/// # Errors
/// That of the device.
pub async fn erase_owners(device: &dyn BlockDevice) -> Outcome {
    let zeros = Request::write(OFFSET, Buffer::zeroed(AREA_BYTES));
    device.submit(zeros.with_flags(RequestFlags::FUA)).await
}
