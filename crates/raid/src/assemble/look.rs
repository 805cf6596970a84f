//! Inspecting the devices given: which are members of which array.
//!
//! All are inspected concurrently, and none is waited for longer than the timeout of members: one
//! that hangs counts as unreadable, so that the others may start without it.

use std::rc::Rc;

use headpond_block::{BlockDevice, DeviceError, JoinHandle, Runtime};
use uuid::Uuid;

use super::{AssembleError, Candidate};
use crate::array::{Inspection, inspect};
use crate::create::journal_of;
use crate::deadlines::{Deadlines, in_time};

/// The contents of a device, or why they cannot be determined.
pub type Look = (Rc<dyn BlockDevice>, Result<Inspection, DeviceError>);

/// Inspects devices without changing them, and returns the results in their order. One that does
/// not respond within the timeout is such an error; its operation continues in the background.
pub async fn inspect_all(
    runtime: &Runtime,
    devices: Vec<Rc<dyn BlockDevice>>,
    deadlines: Option<Deadlines>,
) -> Vec<Look> {
    let look = |device: Rc<dyn BlockDevice>| async move { inspect(&*device).await };
    look_at_all(runtime, devices, deadlines, look).await
}

/// The arrays whose stripe journals devices are, likewise.
pub async fn journals_of(
    runtime: &Runtime,
    devices: Vec<Rc<dyn BlockDevice>>,
    deadlines: Option<Deadlines>,
) -> Vec<(Rc<dyn BlockDevice>, Result<Option<Uuid>, DeviceError>)> {
    let look = |device: Rc<dyn BlockDevice>| async move { journal_of(&*device).await };
    look_at_all(runtime, devices, deadlines, look).await
}

async fn look_at_all<T: 'static, F: Future<Output = Result<T, DeviceError>> + 'static>(
    runtime: &Runtime,
    devices: Vec<Rc<dyn BlockDevice>>,
    deadlines: Option<Deadlines>,
    look: impl Fn(Rc<dyn BlockDevice>) -> F,
) -> Vec<(Rc<dyn BlockDevice>, Result<T, DeviceError>)> {
    let deadline = deadlines.and_then(|deadlines| deadlines.deadline);
    let look = |device: &Rc<dyn BlockDevice>| -> JoinHandle<Result<T, DeviceError>> {
        let (beside, name, look) =
            (runtime.clone(), device.name().clone(), look(Rc::clone(device)));
        runtime.spawn(async move { in_time(&beside, &name, deadline, look).await })
    };
    let looks: Vec<_> = devices.iter().map(look).collect();
    let mut found = Vec::with_capacity(devices.len());
    for (device, look) in devices.into_iter().zip(looks) {
        found.push((device, look.await));
    }
    found
}

/// The members among the devices, and why others could not be read.
pub(super) async fn look_at(
    runtime: &Runtime,
    devices: Vec<Rc<dyn BlockDevice>>,
    wanted: Option<Uuid>,
    deadlines: Option<Deadlines>,
) -> Result<(Vec<Candidate>, Vec<DeviceError>), AssembleError> {
    let (mut candidates, mut unreadable) = (Vec::new(), Vec::new());
    let mut wanted = wanted;
    for (device, look) in inspect_all(runtime, devices, deadlines).await {
        let name = device.name().clone();
        let superblock = match look {
            Ok(Inspection::Member(superblock)) => *superblock,
            Ok(Inspection::Unusable(cause)) => {
                return Err(AssembleError::Unusable { device: name, cause });
            }
            Ok(Inspection::Empty | Inspection::Foreign) => {
                return Err(AssembleError::Foreign { device: name });
            }
            Err(error) => {
                unreadable.push(error);
                continue;
            }
        };
        let found_uuid = superblock.array.uuid;
        let wanted = *wanted.get_or_insert(found_uuid);
        if found_uuid != wanted {
            let found = superblock.array.name;
            return Err(AssembleError::OtherArray { device: name, found, found_uuid, wanted });
        }
        candidates.push(Candidate { device, superblock });
    }
    match (candidates.is_empty(), unreadable.first()) {
        (true, Some(error)) => Err(error.clone().into()),
        (true, None) => Err(AssembleError::NoDevices),
        (false, _) => Ok((candidates, unreadable)),
    }
}
