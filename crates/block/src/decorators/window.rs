//! Part of a device as a device of its own.

use crate::{BlockDevice, DeviceName, Geometry, Request, RequestKind, Submission};
use std::rc::Rc;

/// A range of `inner`, from its own address zero on. Its flush is that of the whole device.
pub struct WindowDevice {
    inner: Rc<dyn BlockDevice>,
    geometry: Geometry,
    start: u64,
}

impl WindowDevice {
    /// `size_bytes` from `start` on.
    ///
    /// # Panics
    /// Where `inner` ends before.
    pub fn new(inner: Rc<dyn BlockDevice>, start: u64, size_bytes: u64) -> Self {
        assert!(start + size_bytes <= inner.size_bytes(), "a window lies inside its device");
        let geometry = Geometry { size_bytes, ..inner.geometry().clone() };
        Self { inner, geometry, start }
    }
}

impl BlockDevice for WindowDevice {
    fn name(&self) -> &DeviceName {
        self.inner.name()
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        if request.kind == RequestKind::Flush {
            return self.inner.submit(request);
        }
        if let Err(error) = request.check(self.name(), &self.geometry) {
            return Submission::ready(Err(error));
        }
        let start = request.range.start() + self.start;
        self.inner.submit(request.part(request.range, start))
    }
}
