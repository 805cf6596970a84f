//! A network between the host and a device: latency, bandwidth, jitter, stalls.
//!
//! Requests and answers each go in order, as over one connection. All devices behind one link share
//! it. A stall holds up both directions: a switch that reconverges, a congested queue, a lost
//! packet that is sent again.
//!
//! **Not here**: connections that break (`net`).

use crate::Random;
use crate::error::{ModelError, require_all};
use crate::kind::Kind;
use headpond_block::{
    BlockDevice, DeviceName, Geometry, Instant, Request, RequestKind, Runtime, Submission,
};
use serde::Deserialize;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// Bytes of a request or answer beside its data.
const HEADER_BYTES: u64 = 128;

/// One model file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkModel {
    pub kind: Kind,
    pub name: String,
    pub description: String,
    pub link: NetworkLinkParameters,
    #[serde(default)]
    pub stalls: StallParameters,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkLinkParameters {
    /// One way, host to host, with what both stacks take.
    pub latency_us: f64,
    /// Mean of what comes on top, one way, exponentially distributed.
    pub jitter_us: f64,
    /// Each way.
    pub mb_per_s: f64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StallParameters {
    /// How often nothing goes through, on average.
    pub per_hour: f64,
    /// For how long.
    pub ms: f64,
}

impl NetworkModel {
    /// # Errors
    /// Names the line or the field that is wrong.
    pub fn parse(text: &str) -> Result<Self, ModelError> {
        let model: Self = toml::from_str(text)?;
        let link = &model.link;
        let times = [("link.latency_us", link.latency_us), ("link.jitter_us", link.jitter_us)];
        require_all(&times, 0.0..=1e7, "is not between 0 and 10,000,000 us")?;
        let rate = [("link.mb_per_s", link.mb_per_s)];
        require_all(&rate, 0.01..=1e6, "is not between 0.01 and 1,000,000 MB/s")?;
        let often = [("stalls.per_hour", model.stalls.per_hour)];
        require_all(&often, 0.0..=1e6, "is not between 0 and 1,000,000 an hour")?;
        let long = [("stalls.ms", model.stalls.ms)];
        require_all(&long, 0.0..=1e7, "is not between 0 and 10,000,000 ms")?;
        Ok(model)
    }
}

/// One link; devices are attached to its far end.
pub struct NetworkLink(Rc<Link>);

struct Link {
    model: Rc<NetworkModel>,
    runtime: Runtime,
    random: RefCell<Random>,
    there: Direction,
    back: Direction,
    stalled_until: Cell<Instant>,
    next_stall: Cell<Option<Instant>>,
}

#[derive(Default)]
struct Direction {
    sent: Cell<Instant>,
    arrived: Cell<Instant>,
}

struct Remote {
    device: Rc<dyn BlockDevice>,
    link: Rc<Link>,
}

impl NetworkLink {
    pub fn new(model: Rc<NetworkModel>, random: Random, runtime: &Runtime) -> Self {
        let link = Link {
            model,
            runtime: runtime.clone(),
            random: RefCell::new(random),
            there: Direction::default(),
            back: Direction::default(),
            stalled_until: Cell::default(),
            next_stall: Cell::new(None),
        };
        link.draw_stall(runtime.now());
        Self(Rc::new(link))
    }

    /// The device as the host sees it over this link.
    pub fn attach(&self, device: Rc<dyn BlockDevice>) -> Rc<dyn BlockDevice> {
        Rc::new(Remote { device, link: Rc::clone(&self.0) })
    }
}

impl BlockDevice for Remote {
    fn name(&self) -> &DeviceName {
        self.device.name()
    }

    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        let bytes =
            |kind, wanted| if kind == wanted { request.buffers.len_bytes() as u64 } else { 0 };
        let back = bytes(request.kind, RequestKind::Read);
        let arrives = self.link.crosses(&self.link.there, bytes(request.kind, RequestKind::Write));
        Submission::pending(async move {
            self.link.runtime.sleep_until(arrives).await;
            let outcome = self.device.submit(request).await;
            let arrives = self.link.crosses(&self.link.back, back);
            self.link.runtime.sleep_until(arrives).await;
            outcome
        })
    }
}

impl Link {
    /// When so many bytes that leave now have arrived.
    fn crosses(&self, direction: &Direction, bytes: u64) -> Instant {
        let now = self.runtime.now();
        self.stall(now);
        let parameters = &self.model.link;
        let takes = (bytes + HEADER_BYTES) as f64 / (parameters.mb_per_s * 1e6);
        let begins = direction.sent.get().max(now).max(self.stalled_until.get());
        direction.sent.set(begins + Duration::from_secs_f64(takes));
        let late = self.exponential(parameters.jitter_us / 1e6);
        let latency = Duration::from_secs_f64(parameters.latency_us / 1e6) + late;
        let arrived = (direction.sent.get() + latency).max(direction.arrived.get());
        direction.arrived.set(arrived);
        arrived
    }

    /// Notices the stalls that have begun.
    fn stall(&self, now: Instant) {
        while let Some(at) = self.next_stall.get().filter(|at| *at <= now) {
            let until = at + Duration::from_secs_f64(self.model.stalls.ms / 1e3);
            self.stalled_until.set(until);
            self.draw_stall(until);
        }
    }

    fn draw_stall(&self, after: Instant) {
        let rate = self.model.stalls.per_hour / 3600.0;
        let next = (rate > 0.0).then(|| after + self.exponential(1.0 / rate));
        self.next_stall.set(next);
    }

    fn exponential(&self, mean_s: f64) -> Duration {
        const STEPS: u64 = 1 << 53;
        let share = (self.random.borrow_mut().below(STEPS) + 1) as f64 / STEPS as f64;
        Duration::from_secs_f64(-mean_s * share.ln())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SparseDevice, run};
    use headpond_block::{Buffer, sync::join_all};

    const TEXT: &str = "kind = \"network\"\nname = \"n\"\ndescription = \"d\"\n[link]\n\
                        latency_us = 100\njitter_us = 0\nmb_per_s = 100\n";

    /// Seconds that `count` reads of 100 kB take, all at once, and the longest of 1000 small ones
    /// that follow one by one.
    fn seconds(text: &str, count: u64) -> (f64, f64) {
        let model = Rc::new(NetworkModel::parse(text).unwrap());
        run(1, |runtime, sim| async move {
            let link = NetworkLink::new(model, sim.random(), &runtime);
            let store = SparseDevice::new("far", Geometry::of_size(1 << 30));
            let device = link.attach(Rc::new(store));
            let read = |index: u64| device.read(index * 102_400, Buffer::payload_free(102_400));
            join_all((0..count).map(read).collect()).await;
            let took = runtime.now().since(Instant::START).as_secs_f64();
            let mut longest = 0.0f64;
            for _ in 0..1000 {
                let begun = runtime.now();
                device.read(0, Buffer::payload_free(512)).await.unwrap();
                longest = longest.max(runtime.now().since(begun).as_secs_f64());
            }
            (took, longest)
        })
        .unwrap()
    }

    #[test]
    fn latency_is_paid_once_and_bandwidth_by_all() {
        let (one, ten) = (seconds(TEXT, 1).0, seconds(TEXT, 10).0);
        assert!((one - (200e-6 + 1.025e-3)).abs() < 20e-6, "{one}");
        assert!((ten - (200e-6 + 10.25e-3)).abs() < 50e-6, "{ten}");
    }

    #[test]
    fn stalls_and_jitter_are_seen_in_the_longest_request() {
        let calm = seconds(TEXT, 1).1;
        let nervous = seconds(&TEXT.replace("jitter_us = 0", "jitter_us = 50"), 1).1;
        let stalls = format!("{TEXT}[stalls]\nper_hour = 36_000\nms = 30\n");
        let stalled = seconds(&stalls, 1).1;
        assert!(calm < 220e-6 && nervous > 1.5 * calm, "{calm} {nervous}");
        assert!((0.005..0.031).contains(&stalled), "{stalled}");
    }
}
