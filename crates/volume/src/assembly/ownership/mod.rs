//! Ownership of a volume: one process of one host has it open.
//!
//! Locks of the operating system separate processes of one host, but not of several hosts that
//! share disks. So the owner of a volume writes a record on every device ([`record`]), and renews
//! it ([`heartbeat`]). A start reads these first ([`claim`]), and an owner that was stalled for too
//! long is fenced until it has checked that no other host has taken over ([`fence`]). Decision
//! 0026.
//!
//! **Invariants**
//! - A volume without a claimant, or whose description disables this, has none of it: no device
//!   gets further requests. Locks that storage keeps are heeded all the same (decision 0053).
//! - Nothing is written to a device that was not found to be the volume's.
//!
//! **Not here**: which host this is; the caller knows.
//!
//! **Source**: the activity test of ZFS (`multihost`, `mmp.c`). Ours waits for a lease instead of a
//! random delay, and holds requests while a renewal is late instead of suspending afterwards.

mod area;
mod claim;
mod fence;
mod flushed_positions;
mod heartbeat;
mod record;
mod recorded;

use crate::assembly::open::{Devices, is_memory};
use crate::description::Description;
use crate::notes::Note;
pub use claim::{ClaimError, ClaimWatch, Claimant, Watching};
use fence::Fence;
pub(crate) use flushed_positions::FlushedPositions;
use headpond_block::{BlockDevice, DeviceError, Instant, Runtime};
use headpond_raid::{Inspection, inspect_all, journals_of};
use record::OwnerRecord;
pub use record::{Host, Process};
pub use recorded::{RecordedOwner, erase_owners, expect_no_owner, recorded_owners};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::rc::Rc;
use uuid::Uuid;

/// An owner is certain for so many intervals since its last renewal.
const LEASE_INTERVALS: u32 = 3;
/// A host that takes over watches for so many. Requests that an owner sent by the end of its lease
/// have arrived by then.
const WATCH_INTERVALS: u32 = 4;
const _: () = assert!(WATCH_INTERVALS > LEASE_INTERVALS);

/// A volume's hold on its devices.
#[derive(Clone, Default)]
pub(crate) struct Ownership(Option<Rc<Fence>>);

/// State of the ownership.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum OwnerState {
    Held,
    /// Requests wait until the devices have been read again.
    Late,
    /// Another host has taken over: nothing is written any more.
    Lost {
        to: String,
    },
    /// The lock of a device is lost, which its storage keeps: nothing is read or written any more.
    LockLost {
        device: String,
        reason: String,
    },
}

/// The owner, as the devices name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OwnerStatus {
    pub host: String,
    pub heartbeat_ms: u32,
    #[serde(flatten)]
    pub state: OwnerState,
}

impl Ownership {
    /// Becomes the owner of those devices that are the volume's, and puts all of them behind the
    /// fence.
    ///
    /// # Errors
    /// Where there is another owner; nothing was changed, unless that one began at the same moment.
    pub async fn claim(
        runtime: &Runtime,
        description: &Description,
        claimant: &Claimant,
        devices: &mut Devices,
    ) -> Result<Self, ClaimError> {
        let me = OwnerRecord {
            volume: description.uuid,
            token: claimant.token,
            host: claimant.host.clone(),
            sequence: 0,
            interval_ms: description.heartbeat_ms,
            is_held: true,
            flushed_positions: FlushedPositions::default(),
        };
        if !me.has_heartbeat() {
            return Ok(Self::of_locks(runtime, me, devices));
        }
        let ours = belonging(runtime, description, devices).await;
        let volume = &description.name;
        let attempt = claim::Attempt { runtime, volume, claimant, me: &me, devices: &ours };
        let claimed = attempt.carry_out().await?;
        let ownership =
            Self(Some(Fence::new(runtime, me, claimed.flushed_positions, claimed.since)));
        for place in devices.lasting_mut() {
            let is_claimed = claimed.devices.iter().any(|device| Rc::ptr_eq(device, place));
            let since = is_claimed.then_some(claimed.since);
            *place = ownership.guard_since(Rc::clone(place), since);
        }
        Ok(ownership)
    }

    /// Without records: nothing is written, and only storage with a lock of its own tells of
    /// another owner.
    fn of_locks(runtime: &Runtime, me: OwnerRecord, devices: &mut Devices) -> Self {
        if devices.lasting_mut().all(|device| device.remote().is_none()) {
            return Self::default();
        }
        let ownership = Self(Some(Fence::new(runtime, me, Vec::new(), runtime.now())));
        devices.lasting_mut().for_each(|place| *place = ownership.guard(Rc::clone(place)));
        ownership
    }

    /// The device behind the fence, as long as anybody has it. Its record is kept alive from the
    /// first write on.
    pub fn guard(&self, device: Rc<dyn BlockDevice>) -> Rc<dyn BlockDevice> {
        self.guard_since(device, None)
    }

    fn guard_since(
        &self,
        device: Rc<dyn BlockDevice>,
        claimed: Option<Instant>,
    ) -> Rc<dyn BlockDevice> {
        let Some(fence) = self.0.as_ref().filter(|_| !is_memory(&*device)) else { return device };
        let (device, new) = fence.guard(device, claimed);
        if let Some(new) = new.filter(|_| fence.me.has_heartbeat()) {
            heartbeat::begin(fence, new);
        }
        device
    }

    /// As [`Fence::self_check`].
    pub fn self_check(&self) {
        self.0.iter().for_each(|fence| fence.self_check());
    }

    /// Whether another owner has taken over.
    pub fn is_lost(&self) -> bool {
        self.0.as_ref().is_some_and(|fence| fence.is_lost())
    }

    /// Releases the volume. Requests must have ended.
    pub async fn release(&self) {
        if let Some(fence) = self.recording().filter(|fence| !fence.is_lost()) {
            heartbeat::release(fence).await;
        }
    }

    /// Flushed positions of this cache on the devices; `None` without ownership.
    pub fn flushed_positions_recorded(&self, cache: Uuid) -> Option<FlushedPositions> {
        self.recording().map(|fence| FlushedPositions::of(cache, &fence.told))
    }

    /// Records the flushed positions of the cache on the devices from now on, and now, stably.
    pub async fn tell_promises(&self, source: impl Fn() -> FlushedPositions + 'static) {
        if let Some(fence) = self.recording() {
            fence.flushed_positions.replace(Some(Box::new(source)));
            heartbeat::say_now(fence).await;
        }
    }

    /// Where there are records of the owner.
    fn recording(&self) -> Option<&Rc<Fence>> {
        self.0.as_ref().filter(|fence| fence.me.has_heartbeat())
    }

    /// `None` where no device says whose the volume is.
    pub fn status(&self) -> Option<OwnerStatus> {
        let says = |it: &&Rc<Fence>| it.is_lost() || it.me.has_heartbeat() && it.owns_any();
        let fence = self.0.as_ref().filter(says)?;
        let (host, heartbeat_ms) = (fence.me.host.name.clone(), fence.me.interval_ms);
        Some(OwnerStatus { host, heartbeat_ms, state: fence.state() })
    }
}

/// The devices labelled as this volume's. One that cannot be read, or not within the timeout of
/// members, counts as missing from now on: it may complete late, and name another owner.
async fn belonging(
    runtime: &Runtime,
    description: &Description,
    devices: &mut Devices,
) -> Vec<Rc<dyn BlockDevice>> {
    let deadlines = description.array.deadlines();
    let cores: Vec<Uuid> = description.cores().map(|(uuid, _)| uuid).collect();
    let mirror = description.cache.as_ref().and_then(|cache| cache.mirror.as_ref());
    let mirror: Vec<Uuid> = mirror.iter().map(|mirror| mirror.uuid).collect();
    let (mut ours, mut absent) = (Vec::new(), Vec::new());
    for (given, arrays) in [(&mut devices.members, &cores), (&mut devices.copies, &mirror)] {
        let looks = inspect_all(runtime, std::mem::take(given), deadlines).await;
        let looks = looks.into_iter().map(|(device, look)| {
            let is_it =
                |look| matches!(look, Inspection::Member(it) if arrays.contains(&it.array.uuid));
            (device, look.map(is_it))
        });
        sort_out(looks, given, &mut ours, &mut absent);
    }
    if let Some(device) = &devices.cache
        && let Ok(superblock) = headpond_cache::load(&**device).await
        && superblock.volume == description.uuid
    {
        ours.push(Rc::clone(device));
    }
    let looks = journals_of(runtime, std::mem::take(&mut devices.journals), deadlines).await;
    let is_it = |array: Option<Uuid>| array.is_some_and(|array| cores.contains(&array));
    let looks = looks.into_iter().map(|(device, look)| (device, look.map(is_it)));
    sort_out(looks, &mut devices.journals, &mut ours, &mut absent);
    devices.absent.extend(absent);
    ours.retain(|device| !is_memory(&**device));
    ours
}

/// Devices by whether something of the volume was found on them, or nothing could be.
fn sort_out(
    looks: impl Iterator<Item = (Rc<dyn BlockDevice>, Result<bool, DeviceError>)>,
    given: &mut Vec<Rc<dyn BlockDevice>>,
    ours: &mut Vec<Rc<dyn BlockDevice>>,
    absent: &mut Vec<Note>,
) {
    for (device, look) in looks {
        match look {
            Ok(true) => {
                ours.push(Rc::clone(&device));
                given.push(device);
            }
            Ok(false) => given.push(device),
            Err(error) => absent.push(Note::of_member(device.name().as_str(), error.to_string())),
        }
    }
}
