//! What serving a request costs the processor: of nothing but devices a machine would be as fast as
//! they are.
//!
//! 1. Requests come to one virtual core, which serves them one at a time, in the order in which
//!    they came; 2. what it has served is handed over, which takes time but not the core's; 3. then
//!    it goes to the volume. What the cache writes to the array passes a ceiling of its own, and
//!    where that is work of the same core, requests and cleaner are each half as fast while the
//!    other is at work.
//!
//! **Invariants**: the core is never ahead of the clock, and idle only when nobody waits for it.
//!
//! **Not here**: the figures, which stand in files with the measurements that they follow from.

use headpond_block::{
    BlockDevice, Buffer, ByteRange, DeviceName, Geometry, Instant, Request, RequestFlags,
    RequestKind, Runtime, Submission,
};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

/// The costs of one engine, and of those who load it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineModel {
    pub name: String,
    /// Of whoever makes the load, and of the memory that it goes to, on the same core.
    pub load: Cost,
    pub engine: EngineCost,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cleaner: Option<CleanerCost>,
}

/// Time of the core, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    pub per_request_us: f64,
    pub per_kib_us: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineCost {
    pub per_request_us: f64,
    pub per_kib_us: f64,
    /// Between the core and the devices: others are served meanwhile.
    pub handover_us: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CleanerCost {
    /// What the cache writes to the array at most, in 10^6 bytes a second.
    pub mb_per_s: f64,
    /// Whether that is work of the core that serves the requests.
    #[serde(default)]
    pub shares_core: bool,
}

/// Costs that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("no engine named {name}; there are: {}. Or name a file that ends in .toml", names())]
    Unknown { name: String },
    #[error("{}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("the engine {name} cannot be read: {source}")]
    Syntax { name: String, source: toml::de::Error },
    #[error("the engine {name}: {field} must be {what}, not {found}")]
    Field { name: String, field: &'static str, what: &'static str, found: f64 },
}

const BUILTIN: [(&str, &str); 3] = [
    ("opencas-22.06", include_str!("../engines/opencas-22.06.toml")),
    ("headpond", include_str!("../engines/headpond.toml")),
    ("fio", include_str!("../engines/fio.toml")),
];

fn names() -> String {
    BUILTIN.map(|(name, _)| name).join(", ")
}

impl EngineModel {
    /// A built-in model, or one in a file.
    ///
    /// # Errors
    /// Where there is none of that name, or the file is none.
    pub fn find(name: &str) -> Result<Self, EngineError> {
        if let Some((_, text)) = BUILTIN.iter().find(|(builtin, _)| *builtin == name) {
            return Self::parse(name, text);
        }
        if !name.ends_with(".toml") {
            return Err(EngineError::Unknown { name: name.to_owned() });
        }
        let path = PathBuf::from(name);
        let text = std::fs::read_to_string(&path);
        let text = text.map_err(|source| EngineError::Read { path, source })?;
        Self::parse(name, &text)
    }

    /// Reads and checks a model; `name` stands in messages.
    ///
    /// # Errors
    /// Where it is no TOML, lacks or has unknown fields, or a figure is none.
    pub fn parse(name: &str, text: &str) -> Result<Self, EngineError> {
        let name = name.to_owned();
        let model: Self = toml::from_str(text)
            .map_err(|source| EngineError::Syntax { name: name.clone(), source })?;
        let times = [
            ("load.per_request_us", model.load.per_request_us),
            ("load.per_kib_us", model.load.per_kib_us),
            ("engine.per_request_us", model.engine.per_request_us),
            ("engine.per_kib_us", model.engine.per_kib_us),
            ("engine.handover_us", model.engine.handover_us),
        ];
        let what = "a time of 0 to 1,000,000 us";
        if let Some(&(field, found)) = times.iter().find(|(_, us)| !(0.0..=1e6).contains(us)) {
            return Err(EngineError::Field { name, field, what, found });
        }
        if let Some(found) = model.cleaner.map(|cleaner| cleaner.mb_per_s)
            && !(1.0..=1e6).contains(&found)
        {
            let (field, what) = ("cleaner.mb_per_s", "a rate of 1 to 1,000,000 MB/s");
            return Err(EngineError::Field { name, field, what, found });
        }
        Ok(model)
    }

    /// Time of the core for a request.
    fn cost(&self, request: &Request) -> Duration {
        let kib = request.buffers.len_bytes() as f64 / 1024.0;
        let us = self.load.per_request_us
            + self.engine.per_request_us
            + (self.load.per_kib_us + self.engine.per_kib_us) * kib;
        nanos(us)
    }

    fn handover(&self) -> Duration {
        nanos(self.engine.handover_us)
    }
}

fn nanos(us: f64) -> Duration {
    Duration::from_nanos((us * 1e3).round() as u64)
}

/// A volume whose requests are served by one core.
pub(crate) struct EngineDevice {
    volume: Rc<dyn BlockDevice>,
    model: EngineModel,
    runtime: Runtime,
    core: Rc<Core>,
    busy_since_reset: Cell<Duration>,
}

impl EngineDevice {
    pub fn new(
        volume: Rc<dyn BlockDevice>,
        model: EngineModel,
        core: Rc<Core>,
        runtime: &Runtime,
    ) -> Self {
        let busy_since_reset = Cell::default();
        Self { volume, model, runtime: runtime.clone(), core, busy_since_reset }
    }

    pub fn name_of_model(&self) -> &str {
        &self.model.name
    }

    /// Time that the core was given work for.
    pub fn busy(&self) -> Duration {
        self.busy_since_reset.get()
    }

    pub fn reset(&self) {
        self.busy_since_reset.set(Duration::ZERO);
    }
}

impl BlockDevice for EngineDevice {
    fn name(&self) -> &DeviceName {
        self.volume.name()
    }

    fn geometry(&self) -> &Geometry {
        self.volume.geometry()
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        let cost = self.model.cost(&request);
        self.busy_since_reset.set(self.busy_since_reset.get() + cost);
        let served = self.core.serve(self.runtime.now(), cost);
        let handed_over = self.runtime.sleep_until(served + self.model.handover());
        Submission::pending(async move {
            handed_over.await;
            self.volume.submit(request).await
        })
    }
}

/// The array, behind what the cleaner of an engine can do. What clients write past the cache is not
/// the cleaner's.
pub(crate) struct CleanerCeiling {
    array: Rc<dyn BlockDevice>,
    bytes_per_s: f64,
    runtime: Runtime,
    core: Rc<Core>,
}

impl CleanerCeiling {
    pub fn new(
        array: Rc<dyn BlockDevice>,
        cost: CleanerCost,
        core: Rc<Core>,
        runtime: &Runtime,
    ) -> Self {
        let (bytes_per_s, runtime) = (cost.mb_per_s * 1e6, runtime.clone());
        Self { array, bytes_per_s, runtime, core }
    }
}

impl BlockDevice for CleanerCeiling {
    fn name(&self) -> &DeviceName {
        self.array.name()
    }

    fn geometry(&self) -> &Geometry {
        self.array.geometry()
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        if request.kind != RequestKind::Write || !request.flags.contains(RequestFlags::CLEANING) {
            return self.array.submit(request);
        }
        let time = Duration::from_secs_f64(request.range.len() as f64 / self.bytes_per_s);
        let moved = self.runtime.sleep_until(self.core.clean(self.runtime.now(), time));
        Submission::pending(async move {
            moved.await;
            self.array.submit(request).await
        })
    }

    fn lend(&self, range: ByteRange) -> Option<Buffer> {
        self.array.lend(range)
    }
}

/// What requests and the cleaner have given a core to do.
#[derive(Default)]
pub(crate) struct Core {
    requests: Turns,
    cleaner: Turns,
    is_shared: bool,
}

impl Core {
    pub fn of(model: &EngineModel) -> Self {
        let is_shared = model.cleaner.is_some_and(|cleaner| cleaner.shares_core);
        Self { is_shared, ..Self::default() }
    }

    /// When a request that comes now is served.
    fn serve(&self, now: Instant, cost: Duration) -> Instant {
        self.requests.next(now, self.stretched(cost, self.requests.starts(now), &self.cleaner))
    }

    /// When what is to be cleaned from now on has been moved.
    fn clean(&self, now: Instant, cost: Duration) -> Instant {
        self.cleaner.next(now, self.stretched(cost, self.cleaner.starts(now), &self.requests))
    }

    /// Beside others that the core is at work for, everything takes twice as long.
    fn stretched(&self, cost: Duration, from: Instant, others: &Turns) -> Duration {
        if self.is_shared && others.free_at.get() > from { cost * 2 } else { cost }
    }
}

/// One after the other, in the order of arrival.
#[derive(Default)]
struct Turns {
    free_at: Cell<Instant>,
}

impl Turns {
    /// When a piece of work that comes now begins.
    fn starts(&self, now: Instant) -> Instant {
        self.free_at.get().max(now)
    }

    /// When a piece of work that comes now, and takes so long, is done.
    fn next(&self, now: Instant, takes: Duration) -> Instant {
        let done = self.starts(now) + takes;
        self.free_at.set(done);
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_engines_are_sound_and_strangers_are_named() {
        for (name, _) in BUILTIN {
            assert_eq!(EngineModel::find(name).unwrap().name, name);
        }
        let error = EngineModel::find("warp").unwrap_err().to_string();
        assert!(error.contains("warp") && error.contains("opencas-22.06"), "{error}");
    }

    #[test]
    fn mistakes_name_field_and_line() {
        let text = BUILTIN[0].1;
        for (from, to, says) in [
            ("handover_us = ", "handover_us = -", "engine.handover_us must be a time"),
            ("mb_per_s = ", "mb_per_s = 0.0 #", "cleaner.mb_per_s must be a rate"),
            ("per_kib_us", "per_mile_us", "unknown field `per_mile_us`"),
            ("[cleaner]", "[cleaner", "line 27"),
        ] {
            let error = EngineModel::parse("mine", &text.replace(from, to)).unwrap_err();
            let error = error.to_string();
            assert!(error.contains("mine") && error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_shared_core_does_each_of_two_works_half_as_fast() {
        let ms = Duration::from_millis;
        let at = |millis| Instant::START + ms(millis);
        let shared = Core { is_shared: true, ..Core::default() };
        assert_eq!(shared.clean(at(0), ms(10)), at(10));
        assert_eq!(shared.serve(at(0), ms(2)), at(4));
        assert_eq!(shared.serve(at(12), ms(2)), at(14), "the cleaner has nothing to do");
        let apart = Core::default();
        assert_eq!((apart.clean(at(0), ms(10)), apart.serve(at(0), ms(2))), (at(10), at(2)));
    }

    #[test]
    fn work_waits_for_the_work_before_it() {
        let (turns, ms) = (Turns::default(), Duration::from_millis);
        let at = |millis| Instant::START + ms(millis);
        assert_eq!(turns.next(at(10), ms(5)), at(15));
        assert_eq!(turns.next(at(12), ms(5)), at(20));
        assert_eq!(turns.next(at(100), ms(1)), at(101));
    }
}
