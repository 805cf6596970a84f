//! Devices of a case: part of a volume as a device of its own.

use headpond_block::{BlockDevice, DeviceName, Geometry, Request, RequestKind, Submission};
use headpond_volume::Volume;
use std::rc::Rc;

/// The part of a volume that a case works on.
pub(crate) struct Window {
    volume: Rc<Volume>,
    geometry: Geometry,
    start: u64,
}

impl Window {
    pub fn new(volume: Rc<Volume>, start: u64, size_bytes: u64) -> Self {
        let geometry = Geometry { size_bytes, ..volume.geometry().clone() };
        Self { volume, geometry, start }
    }
}

impl BlockDevice for Window {
    fn name(&self) -> &DeviceName {
        self.volume.name()
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        if request.kind == RequestKind::Flush {
            return self.volume.submit(request);
        }
        let start = request.range.start() + self.start;
        self.volume.submit(request.part(request.range, start))
    }
}
