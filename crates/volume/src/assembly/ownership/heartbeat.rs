//! The heartbeat: renewing the owner's record on each device.
//!
//! Every device has a task of its own, so that one that hangs delays no other. It reads the record
//! before each write: an owner that was stalled finds its successor there, and writes nothing.

use super::area;
use super::fence::{Beat, Fence, Guarded};
use super::record::{OwnerRecord, OwnerRecords};
use headpond_block::{DeviceError, RequestFlags};
use std::rc::{Rc, Weak};
use std::time::Duration;

const STOP_POLL: Duration = Duration::from_millis(1);

/// Renews the record of a device as long as the device is in use.
pub(super) fn begin(fence: &Fence, device: Weak<Guarded>) {
    let (runtime, interval) = (fence.runtime.clone(), fence.me.interval());
    let mut due = runtime.now() + interval;
    drop(fence.runtime.spawn(async move {
        loop {
            runtime.sleep_until(due).await;
            let begun = runtime.now();
            due = begun + interval;
            let Some(device) = device.upgrade().filter(|it| it.fence.goes_on()) else { return };
            if device.is_ours() {
                device.is_beating.set(true);
                let beaten = beat(&device).await;
                device.is_beating.set(false);
                device.has_beaten(begun, beaten);
            }
        }
    }));
}

/// Records on every device that there is no owner: another host may start without a wait.
pub(super) async fn release(fence: &Fence) {
    fence.is_stopping.set(true);
    let until = fence.runtime.now() + fence.me.interval();
    for device in fence.devices().into_iter().filter(|device| device.is_ours()) {
        while device.is_beating.get() && fence.runtime.now() < until {
            fence.runtime.sleep(STOP_POLL).await;
        }
        if device.is_beating.get() {
            // It hangs, and must not delay a stop; its heartbeat ends.
            continue;
        }
        if let Ok(found) = area::look(&*device.inner, fence.me.volume).await
            && !is_anothers(fence, &found)
        {
            let released = OwnerRecord { is_held: false, ..fence.record_after(&found) };
            // Where that fails, the next owner waits for the heartbeat.
            let _ = area::write(&*device.inner, &released, &found, RequestFlags::FUA).await;
        }
    }
}

async fn beat(device: &Rc<Guarded>) -> Result<Beat, DeviceError> {
    let fence = &device.fence;
    let found = area::look(&*device.inner, fence.me.volume).await?;
    // What a device that has just joined says is of an earlier time, in which it was the volume's.
    let is_known = device.has_our_record();
    match &found {
        OwnerRecords::Record(record) if is_known && is_anothers(fence, &found) => {
            fence.lose(record.clone());
        }
        // It may be being written.
        OwnerRecords::Unreadable(_) if is_known => return Ok(Beat::Unsure),
        _ => {}
    }
    if !fence.goes_on() {
        return Ok(Beat::Unsure);
    }
    let record = fence.record_after(&found);
    // Only news has to outlive the power: of a log, that is what it promised since.
    let is_news = *device.told.borrow() != record.flushed_positions;
    let flags = if is_news { RequestFlags::FUA } else { RequestFlags::empty() };
    area::write(&*device.inner, &record, &found, flags).await?;
    device.told.replace(record.flushed_positions);
    Ok(Beat::Renewed)
}

/// Says on every device at once what is to be said now, stably.
pub(super) async fn say_now(fence: &Fence) {
    for device in fence.devices().into_iter().filter(|device| device.is_ours()) {
        // What does not take it now is told at the next beat.
        let _ = beat(&device).await;
    }
}

fn is_anothers(fence: &Fence, found: &OwnerRecords) -> bool {
    matches!(found, OwnerRecords::Record(record) if record.token != fence.me.token)
}
