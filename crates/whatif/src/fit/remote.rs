//! Storage behind a network from outside: how long requests take alone, and how many a second with
//! so many in flight.

use super::FitError;
use super::probe::{BLOCK, MIB, Probe, ProbeLoad, median};
use headpond_sim::Kind;
use headpond_sim::remote::{FlushParameters, RemoteParameters, ServiceParameters};
use serde::Serialize;
use std::fmt::Write;

const DEPTHS: [u32; 8] = [2, 4, 8, 16, 32, 64, 128, 256];
/// Requests one at a time, and for how long at most.
const ALONE: usize = 1000;
const ALONE_S: f64 = 20.0;
/// How long a depth is measured, by the rate of the one before.
const DEPTH_S: f64 = 4.0;
/// Requests of 1 MiB one at a time, and in flight where the most is asked for.
const LARGE: usize = 24;
const LARGE_DEPTH: usize = 16;
/// What is written before it is measured: storage that provisions thinly answers for what was never
/// written without asking a disk.
const WRITTEN_MAX: u64 = 4 << 30;

/// Percent of the requests up to which latencies are parted.
const PARTS: [f64; 9] = [10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 100.0];

/// Writes of one kind of cluster beside its reads, for what is not measured: on one node of Ceph
/// 16.2 (bluestore, one copy) 3,300 reads of 4 KiB and 940 writes a second one at a time, 14,700
/// and 5,500 with 16 in flight.
const WRITE_TIME_ASSUMED: f64 = 3.5;
const WRITE_RATE_ASSUMED: f64 = 0.37;

/// What was measured. Times in seconds.
#[derive(Clone, Debug, Serialize)]
pub struct MeasuredRemote {
    pub size_bytes: u64,
    pub reads: MeasuredService,
    /// Share of the blocks read that held nothing but zeros.
    pub zero_share: f64,
    pub writes: Option<MeasuredService>,
    /// A flush behind a write.
    pub flush_s: Option<f64>,
    pub is_stable: bool,
}

/// Reads or writes.
#[derive(Clone, Debug, Serialize)]
pub struct MeasuredService {
    /// Percent of the requests of 4 KiB one at a time, from the fastest to the slowest, and the
    /// mean of this part of them.
    pub latency_s: Vec<(f64, f64)>,
    /// Requests in flight, and requests of 4 KiB a second.
    pub iops: Vec<(u32, f64)>,
    /// One request of 1 MiB.
    pub mib_s: f64,
    pub mb_per_s: f64,
}

pub(super) async fn measure(
    probe: &Probe<'_>,
    destructive: bool,
) -> Result<MeasuredRemote, FitError> {
    if destructive {
        probe.tell("writing what is then measured");
        probe.stay_below(WRITTEN_MAX);
        probe.write_no_zeros();
        let count = probe.size_bytes() / MIB * 10 / 11;
        let load =
            ProbeLoad { is_write: true, bytes: MIB, depth: LARGE_DEPTH, count, from: Some(0) };
        probe.carry_out(load).await?;
    }
    let mut zeros = 0usize;
    let (mut alone, begun) = (Vec::new(), probe.runtime.now());
    probe.tell("reads, one at a time");
    while alone.len() < ALONE && probe.runtime.now().since(begun).as_secs_f64() < ALONE_S {
        alone.push(probe.read(probe.anywhere(), BLOCK).await?);
        zeros += usize::from(probe.is_zero(BLOCK));
    }
    let zero_share = zeros as f64 / alone.len() as f64;
    let reads = service(probe, alone, false).await?;
    let mut found = MeasuredRemote {
        size_bytes: probe.device_bytes(),
        reads,
        zero_share,
        writes: None,
        flush_s: None,
        is_stable: probe.is_stable(),
    };
    if !destructive {
        return Ok(found);
    }
    let (mut alone, mut flushes, begun) = (Vec::new(), Vec::new(), probe.runtime.now());
    probe.tell("writes and flushes, one at a time");
    while alone.len() < ALONE && probe.runtime.now().since(begun).as_secs_f64() < ALONE_S {
        alone.push(probe.write(probe.anywhere(), BLOCK).await?);
        flushes.push(probe.flush().await?);
    }
    found.writes = Some(service(probe, alone, true).await?);
    found.flush_s = Some(median(flushes));
    Ok(found)
}

/// The rest of a kind of request, of which the times one at a time are known.
async fn service(
    probe: &Probe<'_>,
    alone: Vec<f64>,
    is_write: bool,
) -> Result<MeasuredService, FitError> {
    let what = if is_write { "writes" } else { "reads" };
    let mut rate = alone.len() as f64 / alone.iter().sum::<f64>();
    let latency_s = in_parts(alone);
    let mut iops = Vec::new();
    for depth in DEPTHS {
        probe.tell(&format!("{what}, {depth} in flight"));
        let fewest = u64::from(depth) * 20;
        let count = ((rate * DEPTH_S) as u64).clamp(fewest, fewest.max(40_000));
        let load = ProbeLoad { is_write, bytes: BLOCK, depth: depth as usize, count, from: None };
        rate = count as f64 / probe.carry_out(load).await?;
        iops.push((depth, rate));
    }
    probe.tell(&format!("{what} of 1 MiB"));
    let mut large = Vec::new();
    for _ in 0..LARGE {
        let place = probe.below(probe.size_bytes() / MIB) * MIB;
        large.push(match is_write {
            true => probe.write(place, MIB).await?,
            false => probe.read(place, MIB).await?,
        });
    }
    let mib_s = large.iter().sum::<f64>() / LARGE as f64;
    let count = (probe.size_bytes() / MIB / 2).min((DEPTH_S * 4.0 / mib_s) as u64).max(40);
    let load = ProbeLoad { is_write, bytes: MIB, depth: LARGE_DEPTH, count, from: Some(0) };
    let mb_per_s = (count * MIB) as f64 / 1e6 / probe.carry_out(load).await?;
    Ok(MeasuredService { latency_s, iops, mib_s, mb_per_s })
}

/// The means of parts of them, so that the mean of all is kept.
fn in_parts(mut times: Vec<f64>) -> Vec<(f64, f64)> {
    times.sort_by(f64::total_cmp);
    let mut parts: Vec<(f64, f64)> = Vec::new();
    let mut from = 0;
    for percent in PARTS {
        let to = (times.len() as f64 * percent / 100.0).round() as usize;
        if to > from {
            let percent = to as f64 * 100.0 / times.len() as f64;
            parts.push((percent, times[from..to].iter().sum::<f64>() / (to - from) as f64));
            from = to;
        }
    }
    parts
}

impl MeasuredService {
    fn parameters(&self) -> ServiceParameters {
        let micros = |seconds: f64| (seconds * 1e7).round() / 10.0;
        ServiceParameters {
            latency_us: self.latency_s.iter().map(|(percent, s)| (*percent, micros(*s))).collect(),
            iops: self.iops.iter().map(|(depth, rate)| (*depth, rate.round())).collect(),
            mib_us: micros(self.mib_s),
            mb_per_s: (self.mb_per_s * 10.0).round() / 10.0,
        }
    }

    /// Writes beside reads like these.
    fn assumed_writes(&self) -> Self {
        let slower = |(percent, seconds): &(f64, f64)| (*percent, seconds * WRITE_TIME_ASSUMED);
        let fewer = |(depth, rate): &(u32, f64)| (*depth, rate * WRITE_RATE_ASSUMED);
        Self {
            latency_s: self.latency_s.iter().map(slower).collect(),
            iops: self.iops.iter().map(fewer).collect(),
            mib_s: self.mib_s * WRITE_TIME_ASSUMED,
            mb_per_s: self.mb_per_s * WRITE_RATE_ASSUMED,
        }
    }
}

impl MeasuredRemote {
    pub fn parameters(&self, name: &str, origin: &str) -> RemoteParameters {
        let writes = self.writes.clone().unwrap_or_else(|| self.reads.assumed_writes());
        let us = self.flush_s.map_or(50.0, |seconds| (seconds * 1e7).round() / 10.0);
        RemoteParameters {
            kind: Kind::Remote,
            name: name.to_owned(),
            description: format!("fitted to {origin}"),
            capacity_bytes: self.size_bytes,
            read: self.reads.parameters(),
            write: writes.parameters(),
            flush: (!self.is_stable).then_some(FlushParameters { us }),
        }
    }

    pub(super) fn model_text(&self, name: &str, origin: &str) -> String {
        let mut text = format!("# Fitted to {origin}.\n");
        text += match self.writes {
            Some(_) => "# Measured: all figures.\n",
            None => {
                "# Measured: the reads. Assumed: the writes, by those of one cluster beside its \
                 reads, and the\n# flush: --destructive measures them, on an image of their own.\n"
            }
        };
        if self.zero_share > 0.1 {
            let percent = self.zero_share * 100.0;
            let _ = writeln!(
                text,
                "# {percent:.0} % of the blocks that were read are zeros: where nothing was written \
                 yet, reads are\n# faster than of data."
            );
        }
        let parameters = self.parameters(name, origin);
        text + "\n" + &toml::to_string(&parameters).expect("parameters are plain")
    }
}
