//! The simple model of a fast device: a latency per operation and one bandwidth that all share.

use headpond_block::{
    BlockDevice, DeviceName, Geometry, Instant, Request, RequestKind, Runtime, Stability,
    Submission,
};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// The figures of such a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FixedLatency {
    pub read: Duration,
    pub write: Duration,
    /// Of a FLUSH, and what FUA adds to a write.
    pub flush: Duration,
    pub bytes_per_s: u64,
    pub stability: Stability,
}

/// A device whose operations take a fixed time; payload goes to the store below.
pub struct FixedLatencyDevice {
    store: Rc<dyn BlockDevice>,
    geometry: Geometry,
    figures: FixedLatency,
    runtime: Runtime,
    /// When the last transfer so far will be over.
    transferred: Cell<Instant>,
}

impl FixedLatencyDevice {
    /// # Panics
    /// Where the bandwidth is zero.
    pub fn new(store: Rc<dyn BlockDevice>, figures: FixedLatency, runtime: Runtime) -> Self {
        assert!(figures.bytes_per_s > 0, "some bandwidth");
        let stability = figures.stability.worst(store.geometry().stability);
        let geometry = Geometry { stability, ..store.geometry().clone() };
        Self { store, geometry, figures, runtime, transferred: Cell::default() }
    }

    /// When an operation that starts now is over: transfers go one after the other, latencies
    /// overlap.
    fn over_at(&self, request: &Request) -> Instant {
        let latency = match request.kind {
            RequestKind::Read => self.figures.read,
            RequestKind::Flush => self.figures.flush,
            _ if request.is_fua() => self.figures.write + self.figures.flush,
            _ => self.figures.write,
        };
        let bytes = request.buffers.len_bytes() as u128;
        let nanos = (bytes * 1_000_000_000 / u128::from(self.figures.bytes_per_s)) as u64;
        let begin = self.transferred.get().max(self.runtime.now());
        self.transferred.set(begin + Duration::from_nanos(nanos));
        self.transferred.get() + latency
    }
}

impl BlockDevice for FixedLatencyDevice {
    fn name(&self) -> &DeviceName {
        self.store.name()
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        if let Err(error) = request.check(self.name(), &self.geometry) {
            return Submission::ready(Err(error));
        }
        let over = self.runtime.sleep_until(self.over_at(&request));
        let stored = self.store.submit(request);
        Submission::pending(async move {
            let outcome = stored.await;
            over.await;
            outcome
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SparseDevice, run};
    use headpond_block::{Buffer, sync::join_all};

    #[test]
    fn latencies_overlap_and_transfers_queue() {
        let figures = FixedLatency {
            read: Duration::from_micros(100),
            write: Duration::from_micros(20),
            flush: Duration::from_micros(500),
            bytes_per_s: 1_000_000_000,
            stability: Stability::Flushable,
        };
        let took = run(0, |runtime, _| async move {
            let store = Rc::new(SparseDevice::new("fast", Geometry::of_size(1 << 30)));
            let device: Rc<dyn BlockDevice> =
                Rc::new(FixedLatencyDevice::new(store, figures, runtime.clone()));
            assert_eq!(device.geometry().stability, Stability::Flushable);
            let read = |index: u64| device.read(index * 102_400, Buffer::payload_free(102_400));
            let outcomes = join_all((0..10).map(read).collect()).await;
            assert!(outcomes.iter().all(Result::is_ok));
            device.flush().await.unwrap();
            runtime.now().since(Instant::START)
        });
        assert_eq!(took.unwrap(), Duration::from_micros(1024 + 100 + 500));
    }
}
