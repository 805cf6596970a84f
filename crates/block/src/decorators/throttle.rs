//! A rate-limited device.

use crate::{
    BlockDevice, DeviceName, Geometry, Instant, Outcome, Request, RequestKind, Runtime, Submission,
};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// The limits of a [`ThrottleDevice`]; `None` is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Limits {
    /// Operations a second, flushes not counted.
    pub operations_per_second: Option<u32>,
    pub bytes_per_second: Option<u64>,
    /// Added to every operation.
    pub latency: Duration,
}

/// Passes requests on at a bounded rate, in order, without bursts.
///
/// Each operation claims the next free slot of a schedule, so that lateness of the timer does not
/// add up: over time the rate is exactly the limit.
pub struct ThrottleDevice {
    inner: Rc<dyn BlockDevice>,
    runtime: Runtime,
    limits: Limits,
    next_slot: Cell<Instant>,
}

impl ThrottleDevice {
    pub fn new(inner: Rc<dyn BlockDevice>, runtime: Runtime, limits: Limits) -> Self {
        Self { inner, runtime, limits, next_slot: Cell::new(Instant::START) }
    }

    /// Takes the next slot of the schedule.
    fn claim(&self, request: &Request) -> Instant {
        let start = self.next_slot.get().max(self.runtime.now());
        if request.kind != RequestKind::Flush {
            self.next_slot.set(start + self.cost(request.range.len()));
        }
        start + self.limits.latency
    }

    fn cost(&self, bytes: u64) -> Duration {
        let nanos = |amount: u64, rate: u64| {
            let nanos = u128::from(amount) * 1_000_000_000 / u128::from(rate.max(1));
            Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
        };
        let by_count = self.limits.operations_per_second.map(|rate| nanos(1, u64::from(rate)));
        let by_bytes = self.limits.bytes_per_second.map(|rate| nanos(bytes, rate));
        by_count.unwrap_or_default().max(by_bytes.unwrap_or_default())
    }

    async fn pass_at(&self, at: Instant, request: Request) -> Outcome {
        self.runtime.sleep_until(at).await;
        self.inner.submit(request).await
    }
}

impl BlockDevice for ThrottleDevice {
    fn name(&self) -> &DeviceName {
        self.inner.name()
    }

    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        let at = self.claim(&request);
        Submission::pending(self.pass_at(at, request))
    }
}
