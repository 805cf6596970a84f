//! The fence: passes requests to the devices while the ownership is certain.
//!
//! A renewal counts from when it began to read the record. The owner is certain for
//! [`LEASE_INTERVALS`] from then on; a host that takes over waits for longer. Once that time is
//! over, by a stalled device or process, no request passes before every responding device has been
//! read again.
//!
//! Storage with a lock of its own ([`RemoteStorage`]) tells by itself that it has another owner.
//!
//! **Invariants**
//! - No request reaches a device after another owner's record was found on any of them, or the lock
//!   of one of them is lost.
//! - A device is owned from the first write on that passes, or where a start has found its label;
//!   not merely because it was given to the volume.

use super::flushed_positions::FlushedPositions;
use super::record::{OwnerRecord, OwnerRecords};
use super::{LEASE_INTERVALS, OwnerState};
use headpond_block::sync::Notify;
use headpond_block::{
    BlockDevice, Cause, DeviceError, DeviceName, Geometry, Instant, Outcome, RemoteStorage,
    Request, Runtime, Submission,
};
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

/// Answers with what the cache has promised by now.
pub(super) type FlushedPositionSource = Box<dyn Fn() -> FlushedPositions>;

/// Shared by all devices of a volume.
pub(super) struct Fence {
    pub runtime: Runtime,
    /// What is written, but for its sequence and the promises.
    pub me: OwnerRecord,
    /// What the devices said that the last owner's cache had promised.
    pub told: Vec<FlushedPositions>,
    /// Where this owner's promises are asked for, once it has a cache.
    pub flushed_positions: RefCell<Option<FlushedPositionSource>>,
    pub is_stopping: Cell<bool>,
    guarded: RefCell<Vec<Weak<Guarded>>>,
    certain_until: Cell<Instant>,
    loss: RefCell<Option<Loss>>,
    changed: Notify,
}

/// How the volume was lost.
enum Loss {
    /// To the owner whose record was found.
    To(OwnerRecord),
    Lock {
        device: DeviceName,
        reason: String,
    },
}

/// A device of a volume, which nothing reaches but by way of the fence.
pub(super) struct Guarded {
    pub inner: Rc<dyn BlockDevice>,
    pub fence: Rc<Fence>,
    is_ours: Cell<bool>,
    /// When the last renewal here began.
    renewed: Cell<Option<Instant>>,
    is_failing: Cell<bool>,
    pub is_beating: Cell<bool>,
    /// The promises that are stable here.
    pub told: RefCell<FlushedPositions>,
}

impl Fence {
    pub fn new(
        runtime: &Runtime,
        me: OwnerRecord,
        told: Vec<FlushedPositions>,
        certain_since: Instant,
    ) -> Rc<Self> {
        Rc::new(Self {
            runtime: runtime.clone(),
            certain_until: Cell::new(match me.has_heartbeat() {
                true => certain_since + me.interval() * LEASE_INTERVALS,
                // Only locks tell.
                false => Instant::from_nanos(u64::MAX),
            }),
            me,
            told,
            flushed_positions: RefCell::default(),
            is_stopping: Cell::new(false),
            guarded: RefCell::default(),
            loss: RefCell::default(),
            changed: Notify::new(),
        })
    }

    /// The device behind the fence; the same again where it is behind it already. `claimed`: since
    /// when it says whose it is.
    pub fn guard(
        self: &Rc<Self>,
        device: Rc<dyn BlockDevice>,
        claimed: Option<Instant>,
    ) -> (Rc<dyn BlockDevice>, IsNew) {
        self.guarded.borrow_mut().retain(|guarded| guarded.strong_count() > 0);
        let is_it =
            |guarded: &Rc<Guarded>| std::ptr::addr_eq(Rc::as_ptr(guarded), Rc::as_ptr(&device));
        if self.devices().iter().any(is_it) {
            return (device, None);
        }
        let guarded = Rc::new(Guarded {
            inner: device,
            fence: Rc::clone(self),
            is_ours: Cell::new(claimed.is_some()),
            renewed: Cell::new(claimed),
            is_failing: Cell::new(false),
            is_beating: Cell::new(false),
            told: RefCell::default(),
        });
        let weak = Rc::downgrade(&guarded);
        self.guarded.borrow_mut().push(Weak::clone(&weak));
        if let Some(remote) = guarded.remote() {
            let (fence, device) = (Rc::downgrade(self), guarded.name().clone());
            remote.when_lost(Rc::new(move |reason| {
                let (device, reason) = (device.clone(), reason.to_owned());
                fence.upgrade().inspect(|it| it.lose_by(Loss::Lock { device, reason }));
            }));
        }
        (guarded, Some(weak))
    }

    /// Those that somebody still has.
    pub fn devices(&self) -> Vec<Rc<Guarded>> {
        self.guarded.borrow().iter().filter_map(Weak::upgrade).collect()
    }

    /// Checks who is the owner of what; for tests and simulation.
    ///
    /// # Panics
    /// Where an invariant does not hold.
    pub fn self_check(&self) {
        let devices = self.devices();
        for (at, device) in devices.iter().enumerate() {
            let is_another = |other: &Rc<Guarded>| {
                !std::ptr::addr_eq(Rc::as_ptr(&other.inner), Rc::as_ptr(&device.inner))
            };
            assert!(devices[..at].iter().all(is_another), "a device is behind the fence twice");
            let is_ours = device.is_ours() || !device.has_our_record();
            assert!(is_ours, "a record is kept alive on a device that is not the volume's");
        }
        let is_ours =
            matches!(&*self.loss.borrow(), Some(Loss::To(it)) if it.token == self.me.token);
        assert!(!is_ours, "a volume is not lost to its owner");
    }

    /// What a device is to say that says this now.
    pub fn record_after(&self, found: &OwnerRecords) -> OwnerRecord {
        let flushed_positions = match &*self.flushed_positions.borrow() {
            Some(source) => source(),
            None => found.flushed_positions(),
        };
        OwnerRecord { flushed_positions, ..self.me.clone() }
    }

    /// Whether records are to be kept alive.
    pub fn goes_on(&self) -> bool {
        !self.is_stopping.get() && !self.is_lost()
    }

    pub fn is_lost(&self) -> bool {
        self.loss.borrow().is_some()
    }

    pub fn state(&self) -> OwnerState {
        match &*self.loss.borrow() {
            Some(Loss::To(record)) => OwnerState::Lost { to: record.host.name.clone() },
            Some(Loss::Lock { device, reason }) => {
                OwnerState::LockLost { device: device.to_string(), reason: reason.clone() }
            }
            None if self.is_certain() || !self.owns_any() => OwnerState::Held,
            None => OwnerState::Late,
        }
    }

    /// Another owner's record was found.
    pub fn lose(&self, to: OwnerRecord) {
        self.lose_by(Loss::To(to));
    }

    fn lose_by(&self, loss: Loss) {
        if !self.is_lost() {
            self.loss.replace(Some(loss));
        }
        self.changed.notify_all();
    }

    /// Whether a device says, or is to say, whose it is. One in memory never does.
    pub fn owns_any(&self) -> bool {
        self.devices().iter().any(|device| device.is_ours())
    }

    /// The first device becomes the volume's: there was no record before that another host could
    /// have taken over, however long ago the start was.
    fn begin_lease(&self) {
        if !self.is_lost() && !self.owns_any() {
            self.certain_until.set(self.runtime.now() + self.me.interval() * LEASE_INTERVALS);
        }
    }

    #[inline]
    fn is_certain(&self) -> bool {
        self.runtime.now() < self.certain_until.get() && !self.is_lost()
    }

    /// Something was found out on a device: for how long the owner is certain.
    fn renew(&self) {
        let mut renewals: Vec<Option<Instant>> =
            self.answering().map(|guarded| guarded.renewed.get()).collect();
        // The latest first; what never was, last.
        renewals.sort_unstable_by(|one, other| other.cmp(one));
        let is_certain = self.is_certain();
        let enough = match is_certain {
            // Whoever takes over looks at more than the other half.
            true => renewals.len().div_ceil(2),
            false => renewals.len(),
        };
        let renewed = enough.checked_sub(1).and_then(|last| renewals[last]);
        if let Some(renewed) = renewed
            && (is_certain || renewed >= self.certain_until.get())
        {
            let until = renewed + self.me.interval() * LEASE_INTERVALS;
            self.certain_until.set(self.certain_until.get().max(until));
        }
        self.changed.notify_all();
    }

    /// The volume's own, but for those that fail: nobody can be kept waiting by them.
    fn answering(&self) -> impl Iterator<Item = Rc<Guarded>> {
        self.devices().into_iter().filter(|it| it.is_ours.get() && !it.is_failing.get())
    }

    /// Waits until the owner is certain.
    ///
    /// # Errors
    /// Where there is another one, or no device answers that could say so.
    async fn until_certain(&self, device: &DeviceName) -> Outcome {
        loop {
            let changed = self.changed.wait();
            if self.is_certain() {
                return Ok(());
            }
            if self.is_lost() || self.answering().next().is_none() {
                return Err(DeviceError::new(device, Cause::Gone));
            }
            changed.await;
        }
    }
}

/// What came of a renewal.
pub(super) enum Beat {
    Renewed,
    /// The record could not be told from that of another owner.
    Unsure,
}

/// A device that was not behind the fence before.
pub(super) type IsNew = Option<Weak<Guarded>>;

impl Guarded {
    pub fn is_ours(&self) -> bool {
        self.is_ours.get()
    }

    /// Whether its record was ever this owner's.
    pub fn has_our_record(&self) -> bool {
        self.renewed.get().is_some()
    }

    /// How the renewal that began at `begun` ended.
    pub fn has_beaten(&self, begun: Instant, beaten: Result<Beat, DeviceError>) {
        self.is_failing.set(beaten.is_err());
        if matches!(beaten, Ok(Beat::Renewed)) {
            self.renewed.set(Some(begun));
        }
        self.fence.renew();
    }

    async fn submit_when_certain(&self, request: Request) -> Outcome {
        self.fence.until_certain(self.name()).await?;
        self.inner.submit(request).await
    }
}

impl BlockDevice for Guarded {
    fn name(&self) -> &DeviceName {
        self.inner.name()
    }

    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        if !self.fence.is_certain() {
            self.fence.begin_lease();
            if !self.fence.is_certain() {
                return Submission::pending(self.submit_when_certain(request));
            }
        }
        if request.is_mutation() {
            self.is_ours.set(true);
        }
        self.inner.submit(request)
    }

    fn remote(&self) -> Option<&dyn RemoteStorage> {
        self.inner.remote()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assembly::ownership::{Host, Process};
    use headpond_block::devices::RamDevice;
    use headpond_testkit::{Break, assert_trips};
    use uuid::Uuid;

    type Fenced = (Rc<Fence>, Vec<Rc<dyn BlockDevice>>);

    /// Two devices, one of which is the volume's.
    fn fenced() -> Fenced {
        let made = headpond_sim::run(1, async |runtime, _| {
            let process = Process { number: 12, started: 99 };
            let [machine, boot] = [1, 2].map(Uuid::from_u128);
            let me = OwnerRecord {
                volume: Uuid::from_u128(7),
                token: Uuid::from_u128(3),
                host: Host { name: "here".into(), machine, boot, process },
                sequence: 0,
                interval_ms: 1000,
                is_held: true,
                flushed_positions: FlushedPositions::default(),
            };
            let now = runtime.now();
            let fence = Fence::new(&runtime, me, Vec::new(), now);
            let device = |name: &str| Rc::new(RamDevice::new(name, 1 << 20)) as Rc<dyn BlockDevice>;
            let ours = fence.guard(device("ours"), Some(now)).0;
            let other = fence.guard(device("other"), None).0;
            (fence, vec![ours, other])
        });
        made.expect("no deadlock")
    }

    #[test]
    fn check_notices_devices_that_are_not_behind_the_fence_once() {
        let breaks: [Break<Fenced>; 4] = [
            ("behind the fence twice", |(fence, devices)| {
                let inner = Rc::clone(&fence.devices()[0].inner);
                devices.push(fence.guard(inner, None).0);
            }),
            ("not the volume's", |(fence, _)| fence.devices()[0].is_ours.set(false)),
            ("not the volume's", |(fence, _)| {
                fence.devices()[1].renewed.set(Some(Instant::START));
            }),
            ("not lost to its owner", |(fence, _)| fence.lose(fence.me.clone())),
        ];
        assert_trips(fenced, |(fence, _)| fence.self_check(), &breaks);
    }
}
