//! The description of remote storage as its data file gives it, and the rates that follow.

use crate::error::{ModelError, require, require_all};
use crate::kind::Kind;
use crate::random::Random;
use serde::{Deserialize, Serialize};

/// What a request has in its latency; more bytes come on top.
pub const SMALL_BYTES: u64 = 4096;
const MIB: u64 = 1 << 20;

/// One model file.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteParameters {
    pub kind: Kind,
    pub name: String,
    pub description: String,
    pub capacity_bytes: u64,
    pub read: ServiceParameters,
    pub write: ServiceParameters,
    /// Left out where it reports no volatile cache: hosts send no flush then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flush: Option<FlushParameters>,
}

/// Requests of one kind.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceParameters {
    /// Of 4 KiB, one at a time, from the fastest to the slowest: up to so many percent of them, and
    /// the mean of this part in microseconds.
    pub latency_us: Vec<(f64, f64)>,
    /// So many in flight, and requests of 4 KiB a second; one at a time is what the latency says.
    /// More in flight than the last are no faster.
    #[serde(default)]
    pub iops: Vec<(u32, f64)>,
    /// One request of 1 MiB, with nothing else in flight.
    pub mib_us: f64,
    /// The most of large requests, in 10^6 bytes a second.
    pub mb_per_s: f64,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FlushParameters {
    /// With no write in flight.
    pub us: f64,
}

/// Remote storage ready for use.
#[derive(Clone, Debug)]
pub struct RemoteModel {
    parameters: RemoteParameters,
    pub(super) read: Service,
    pub(super) write: Service,
}

/// One kind of request: what follows from its parameters. Times in seconds.
#[derive(Clone, Debug)]
pub(super) struct Service {
    /// Up to this share of requests, and what they ask of the service; one on average.
    works: Vec<(f64, f64)>,
    /// In flight, and how long each takes then; from one at a time on.
    times: Vec<(f64, f64)>,
    /// What a byte beyond the first takes, beside its time on the link.
    transit_s_per_byte: f64,
    link_s_per_byte: f64,
}

impl RemoteModel {
    /// Reads a model file.
    ///
    /// # Errors
    /// Names the line or the field that is wrong.
    pub fn parse(text: &str) -> Result<Self, ModelError> {
        Self::new(toml::from_str(text)?)
    }

    /// # Errors
    /// Names the field that is wrong.
    pub fn new(parameters: RemoteParameters) -> Result<Self, ModelError> {
        let capacity = (MIB..=1 << 60).contains(&parameters.capacity_bytes);
        require(capacity, "capacity_bytes", "is not between 1 MiB and 1 EiB")?;
        let whole = parameters.capacity_bytes.is_multiple_of(SMALL_BYTES);
        require(whole, "capacity_bytes", "is no multiple of 4096")?;
        parameters.read.check(&READ)?;
        parameters.write.check(&WRITE)?;
        let flush = [("flush.us", parameters.flush.map_or(0.0, |flush| flush.us))];
        require_all(&flush, 0.0..=1e7, TIMES)?;
        let (read, write) = (Service::of(&parameters.read), Service::of(&parameters.write));
        Ok(Self { parameters, read, write })
    }

    pub fn parameters(&self) -> &RemoteParameters {
        &self.parameters
    }

    pub fn size_bytes(&self) -> u64 {
        self.parameters.capacity_bytes
    }

    /// Whether it says that it has a volatile cache, so that hosts send it flushes.
    pub fn reports_a_cache(&self) -> bool {
        self.parameters.flush.is_some()
    }
}

/// The names of a kind's fields in errors.
struct Fields {
    latency_us: &'static str,
    iops: &'static str,
    mib_us: &'static str,
    mb_per_s: &'static str,
}

const READ: Fields = Fields {
    latency_us: "read.latency_us",
    iops: "read.iops",
    mib_us: "read.mib_us",
    mb_per_s: "read.mb_per_s",
};
const WRITE: Fields = Fields {
    latency_us: "write.latency_us",
    iops: "write.iops",
    mib_us: "write.mib_us",
    mb_per_s: "write.mb_per_s",
};
const TIMES: &str = "is not between 0 and 10,000,000 us";

impl ServiceParameters {
    /// The mean of requests one at a time.
    pub fn mean_us(&self) -> f64 {
        parts(&self.latency_us).map(|(share, us)| share * us).sum()
    }

    fn check(&self, fields: &Fields) -> Result<(), ModelError> {
        let latencies = &self.latency_us;
        let is_whole = latencies.last().is_some_and(|(percent, _)| *percent == 100.0);
        let first = latencies.first().is_some_and(|(percent, us)| *percent > 0.0 && *us > 0.0);
        let rises = |pair: &[(f64, f64)]| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1;
        let rising = latencies.windows(2).all(rises);
        let reason = "is no list of rising percentages up to 100 and their rising times";
        require(is_whole && first && rising, fields.latency_us, reason)?;
        let in_range = latencies.iter().all(|(_, us)| (0.0..=1e7).contains(us));
        require(in_range, fields.latency_us, "has a time not between 0 and 10,000,000 us")?;
        let depths = std::iter::once(1).chain(self.iops.iter().map(|(depth, _)| *depth));
        let depths: Vec<u32> = depths.collect();
        let rising = depths.windows(2).all(|pair| pair[0] < pair[1]);
        let reason = "is no list of requests in flight, from 2 on and rising, and their rates";
        require(rising, fields.iops, reason)?;
        let in_range = self.iops.iter().all(|(_, rate)| (0.1..=1e8).contains(rate));
        require(in_range, fields.iops, "has a rate not between 0.1 and 100,000,000 a second")?;
        require_all(&[(fields.mib_us, self.mib_us)], 0.0..=1e8, "is not between 0 and 100 s")?;
        let rate = [(fields.mb_per_s, self.mb_per_s)];
        require_all(&rate, 0.01..=1e6, "is not between 0.01 and 1,000,000 MB/s")
    }
}

/// Share and time of each part.
fn parts(latencies: &[(f64, f64)]) -> impl Iterator<Item = (f64, f64)> {
    let before = std::iter::once(0.0).chain(latencies.iter().map(|(percent, _)| *percent));
    let parts = latencies.iter().zip(before);
    parts.map(|((percent, us), before)| ((percent - before) / 100.0, *us))
}

impl Service {
    fn of(parameters: &ServiceParameters) -> Self {
        let mean_us = parameters.mean_us();
        let works = parameters.latency_us.iter();
        let works = works.map(|(percent, us)| (percent / 100.0, us / mean_us)).collect();
        let alone = std::iter::once((1.0, mean_us / 1e6));
        let times = |(depth, rate): &(u32, f64)| (f64::from(*depth), f64::from(*depth) / rate);
        let link_s_per_byte = 1.0 / (parameters.mb_per_s * 1e6);
        let more_bytes = (MIB - SMALL_BYTES) as f64;
        let more_s = (parameters.mib_us - mean_us) / 1e6;
        Self {
            works,
            times: alone.chain(parameters.iops.iter().map(times)).collect(),
            transit_s_per_byte: (more_s / more_bytes - link_s_per_byte).max(0.0),
            link_s_per_byte,
        }
    }

    /// Requests a second of all together, with so many in flight. Between those of the file the
    /// time of each grows evenly: the rate then grows less and less, as queues do.
    pub(super) fn rate(&self, in_flight: usize) -> f64 {
        let depth = in_flight as f64;
        let after = self.times.partition_point(|(known, _)| *known < depth);
        if after == 0 || after == self.times.len() {
            let (known, seconds) = self.times[after.saturating_sub(1)];
            return known / seconds;
        }
        let ((below, short), (above, long)) = (self.times[after - 1], self.times[after]);
        depth / (short + (long - short) * (depth - below) / (above - below))
    }

    /// What a request asks of the service; one on average.
    pub(super) fn draw(&self, random: &mut Random) -> f64 {
        const STEPS: u64 = 1 << 53;
        let share = random.below(STEPS) as f64 / STEPS as f64;
        let at = self.works.partition_point(|(up_to, _)| *up_to <= share);
        self.works[at.min(self.works.len() - 1)].1
    }

    /// Seconds of a request's further bytes: on the link, which all share, and on their way.
    pub(super) fn crossing_s(&self, bytes: u64) -> (f64, f64) {
        let more = bytes.saturating_sub(SMALL_BYTES) as f64;
        (more * self.link_s_per_byte, more * self.transit_s_per_byte)
    }
}
