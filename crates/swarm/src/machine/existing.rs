//! A core that is an existing device: a disk as its users have it, and its head on another one.

use super::{Absent, Controls, Machine};
use crate::topology::IdleCore;
use headpond_block::{BlockDevice, Runtime};
use headpond_sim::Sim;
use headpond_volume::Devices;
use headpond_volume::existing::ExistingDevice;
use std::rc::{Rc, Weak};
use std::time::Duration;

const CHECKED_EVERY: Duration = Duration::from_millis(3);

impl Machine {
    /// Adds the device where there is one, with what is on it.
    pub async fn take_existing(&self, devices: &mut Devices, runtime: &Runtime, sim: &Sim) {
        let Some((body, head)) = self.body_and_head(runtime, sim) else { return };
        let taken = ExistingDevice::take(head, body, "swarm").await;
        self.add(devices, taken.expect("it is empty"));
    }

    /// As [`Machine::devices`], with the existing device where there is one.
    ///
    /// # Panics
    /// Where that says that somebody else has written to it, whatever was cut.
    pub async fn all_devices(
        &self,
        runtime: &Runtime,
        sim: &Sim,
        absent: &Absent,
        controls: &Controls,
    ) -> Devices {
        let mut devices = self.devices(runtime, sim, absent, controls);
        let Some((body, head)) = self.body_and_head(runtime, sim) else { return devices };
        let (opened, change) = ExistingDevice::open(head, body).await.expect("its head is there");
        assert_eq!(change, None, "our own writes are those of others");
        drop(runtime.spawn(check_often(Rc::downgrade(&opened), runtime.clone())));
        self.add(&mut devices, opened);
        devices
    }

    fn add(&self, devices: &mut Devices, existing: Rc<ExistingDevice>) {
        let at = match self.topology.idle_core {
            Some(IdleCore::First) => 0,
            _ => devices.members.len(),
        };
        devices.members.insert(at, existing);
    }

    fn body_and_head(
        &self,
        runtime: &Runtime,
        sim: &Sim,
    ) -> Option<(Rc<dyn BlockDevice>, Rc<dyn BlockDevice>)> {
        let mut disks = self.idle_devices(runtime, sim);
        let is_there = self.topology.existing_beside;
        is_there.then(|| (disks.next().expect("a disk"), disks.next().expect("and its head")))
    }
}

/// As long as the device is open, between the operations of the disks.
async fn check_often(device: Weak<ExistingDevice>, runtime: Runtime) {
    while let Some(device) = device.upgrade() {
        device.self_check();
        drop(device);
        runtime.sleep(CHECKED_EVERY).await;
    }
}
