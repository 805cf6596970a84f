//! The disks of a cache that lies on several.

use super::{Absent, Controls, FAST, Machine};
use crate::topology::{MEMBER_HEAD_BYTES, Topology, copy_name, on_disks};
use headpond_block::decorators::FaultControl;
use headpond_block::{BlockDevice, DeviceName, Geometry, Runtime};
use headpond_raid::superblock::{COPY_OFFSETS, SUPERBLOCK_BYTES, decode};
use headpond_sim::{Medium, Sim};
use headpond_volume::CacheDescription;
use std::rc::Rc;
use uuid::Uuid;

/// Disks beside those that the cache is made on.
const FURTHER: usize = 2;

pub(super) fn blank(topology: &Topology) -> Vec<Rc<Medium>> {
    let (Some(count), Some(shape)) = (topology.copies(), &topology.cache) else {
        return Vec::new();
    };
    let disk = |index| {
        let geometry = Geometry::of_size(MEMBER_HEAD_BYTES + shape.bytes);
        let geometry = Geometry { stability: shape.stability, ..geometry };
        Rc::new(Medium::new(DeviceName::new(copy_name(index)), geometry))
    };
    (0..count + FURTHER).map(disk).collect()
}

impl Machine {
    /// Those that a new volume's cache is made on.
    pub(super) fn blank_copies(&self, runtime: &Runtime, sim: &Sim) -> Vec<Rc<dyn BlockDevice>> {
        let copies = self.copies.iter().take(self.topology.copies().unwrap_or(0));
        let healthy = FaultControl::default();
        copies.map(|medium| self.device(medium, &healthy, FAST, runtime, sim)).collect()
    }

    pub(super) fn present_copies(
        &self,
        absent: &Absent,
        runtime: &Runtime,
        sim: &Sim,
        controls: &Controls,
    ) -> Vec<Rc<dyn BlockDevice>> {
        let named = if self.names_cache.get() { self.belonging_copies() } else { Vec::new() };
        let present = named.into_iter().filter(|index| !absent.copies.contains(index));
        present.map(|index| self.copy(index, runtime, sim, controls)).collect()
    }

    /// One of the disks as a device.
    pub fn copy(
        &self,
        index: usize,
        runtime: &Runtime,
        sim: &Sim,
        controls: &Controls,
    ) -> Rc<dyn BlockDevice> {
        self.device(&self.copies[index], &controls.copies[index], FAST, runtime, sim)
    }

    /// The disks that say of themselves that they are copies of the cache, or spares.
    pub fn belonging_copies(&self) -> Vec<usize> {
        let is_ours = |index: &usize| {
            let medium = &self.copies[*index];
            let copies = COPY_OFFSETS.map(|offset| decode(&medium.peek(offset, SUPERBLOCK_BYTES)));
            copies.iter().flatten().any(|found| found.array.uuid == self.mirror.get())
        };
        (0..self.copies.len()).filter(is_ours).collect()
    }

    /// The cache on the copies there are, as an operator keeps it.
    pub(super) fn on_copies(&self, cache: CacheDescription) -> CacheDescription {
        let named = self.belonging_copies();
        match named.is_empty() {
            true => cache,
            false => on_disks(cache, &named, self.mirror.get()),
        }
    }

    /// What is kept from here on names these copies.
    pub fn keep_copies(&self, mirror: Uuid) {
        self.mirror.set(mirror);
        self.names_cache.set(true);
    }
}
