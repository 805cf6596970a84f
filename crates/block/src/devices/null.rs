//! A null device.

use crate::{BlockDevice, DeviceName, Geometry, Outcome, Request, RequestKind, Submission};

/// Accepts every write, reads as zeros, completes immediately: to measure the overhead of a layer.
pub struct NullDevice {
    name: DeviceName,
    geometry: Geometry,
}

impl NullDevice {
    pub fn new(name: impl Into<DeviceName>, size_bytes: u64) -> Self {
        Self::with_geometry(name, Geometry::of_size(size_bytes))
    }

    pub fn with_geometry(name: impl Into<DeviceName>, geometry: Geometry) -> Self {
        Self { name: name.into(), geometry }
    }

    fn carry_out(&self, request: &Request) -> Outcome {
        request.check(&self.name, &self.geometry)?;
        if request.kind == RequestKind::Read {
            request.buffers.fill(0);
        }
        Ok(())
    }
}

impl BlockDevice for NullDevice {
    fn name(&self) -> &DeviceName {
        &self.name
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        Submission::ready(self.carry_out(&request))
    }
}
