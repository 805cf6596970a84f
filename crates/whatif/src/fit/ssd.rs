//! A solid state drive from outside: latency, lanes, ceilings.

use super::FitError;
use super::probe::{BLOCK, MIB, Probe, ProbeLoad};
use headpond_block::{BlockDevice, Geometry};
use headpond_sim::ssd::{
    ControllerParameters, FlashParameters, FlushBehaviour, LinkParameters, Protocol, SlcParameters,
    SsdModel, SsdParameters, State, WriteBufferParameters,
};
use headpond_sim::{Kind, ModelDevice, Random, SparseDevice, run};
use serde::Serialize;
use std::rc::Rc;

const DEPTHS: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// What was measured. Times in seconds.
#[derive(Clone, Debug, Serialize)]
pub struct MeasuredSsd {
    pub size_bytes: u64,
    /// One read of 4 KiB at a time, the middle one.
    pub read_s: f64,
    /// Requests in flight, and random reads of 4 KiB a second.
    pub read_iops: Vec<(usize, f64)>,
    pub read_mb_per_s: f64,
    pub is_stable: bool,
    pub writes: Option<MeasuredSsdWrites>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct MeasuredSsdWrites {
    pub write_s: f64,
    /// Of a flush behind one write.
    pub flush_s: f64,
    /// Random writes of 4 KiB at depth 32.
    pub iops: f64,
    pub burst_mb_per_s: f64,
    pub sustained_mb_per_s: f64,
    /// What was written before the rate fell, where it fell.
    pub burst_bytes: Option<u64>,
}

impl MeasuredSsdWrites {
    /// A write without the time in which its data comes in.
    fn firmware_us(self, link_mb_per_s: f64) -> f64 {
        (self.write_s * 1e6 - BLOCK as f64 / link_mb_per_s).max(0.0)
    }
}

pub(super) async fn measure(probe: &Probe<'_>, destructive: bool) -> Result<MeasuredSsd, FitError> {
    probe.tell("latency");
    let read_s = probe.median_read(500).await?;
    let read_iops = depths(probe).await?;
    probe.tell("sequential reads");
    let count = (probe.size_bytes() / MIB / 2).min(1000);
    let load = ProbeLoad { is_write: false, bytes: MIB, depth: 8, count, from: Some(0) };
    let read_mb_per_s = (count * MIB) as f64 / 1e6 / probe.carry_out(load).await?;
    let writes = match destructive {
        true => Some(super::writes::of_ssd(probe).await?),
        false => None,
    };
    let (size_bytes, is_stable) = (probe.size_bytes(), probe.is_stable());
    Ok(MeasuredSsd { size_bytes, read_s, read_iops, read_mb_per_s, is_stable, writes })
}

async fn depths(probe: &Probe<'_>) -> Result<Vec<(usize, f64)>, FitError> {
    let mut found = Vec::new();
    for depth in DEPTHS {
        probe.tell(&format!("random reads, depth {depth}"));
        let count = (depth as u64 * 300).min(20_000);
        let load = ProbeLoad { is_write: false, bytes: BLOCK, depth, count, from: None };
        found.push((depth, count as f64 / probe.carry_out(load).await?));
    }
    Ok(found)
}

/// What cannot be seen from outside, and is tried out on the model.
#[derive(Clone, Copy)]
struct Guess {
    dies: usize,
    /// Part of a read's latency that is the flash.
    flash_share: f64,
}

impl MeasuredSsd {
    pub(super) fn model_text(&self, name: &str, origin: &str) -> String {
        let parameters = self.parameters(name, origin);
        let body = toml::to_string(&parameters).expect("parameters are plain");
        let written = match self.writes {
            Some(_) => "write latency, flush, rates and the cache that ends a burst",
            None => "nothing of writes: those figures are assumed",
        };
        format!(
            "# Fitted to {origin}.\n\
             # Measured: capacity, read latency, reads a second by depth (from which dies and the part of\n\
             # the flash in a read follow, by trying the model), MB/s; {written}.\n\
             # Assumed: spare space, page and program sizes, erase time, superblocks, queue depth.\n\n{body}"
        )
    }

    /// The model whose reads at all depths are nearest to those measured.
    pub fn parameters(&self, name: &str, origin: &str) -> SsdParameters {
        let candidate = |guess| self.candidate(name, origin, guess);
        let nearest = |guesses: Vec<Guess>| {
            let errors = guesses.into_iter().map(|guess| (self.error(&candidate(guess)), guess));
            let best = errors.min_by(|one, other| one.0.total_cmp(&other.0));
            best.expect("there are guesses").1
        };
        let dies = [1, 2, 4, 8, 16, 32, 64, 128];
        let shares = [0.15, 0.3, 0.5, 0.7, 0.85];
        let all =
            dies.into_iter().flat_map(|dies| shares.map(|flash_share| Guess { dies, flash_share }));
        let rough = nearest(all.collect());
        let around = [rough.dies * 3 / 4, rough.dies, rough.dies * 5 / 4, rough.dies * 3 / 2];
        let around = around.into_iter().filter(|dies| *dies > 0).flat_map(|dies| {
            [-0.1, -0.05, 0.0, 0.05, 0.1].map(|more| Guess {
                dies,
                flash_share: (rough.flash_share + more).clamp(0.02, 0.98),
            })
        });
        candidate(nearest(around.collect()))
    }

    /// How far a candidate's reads are from those measured: squares of logarithms of ratios.
    fn error(&self, parameters: &SsdParameters) -> f64 {
        let square = |(depth, measured): &(usize, f64)| {
            (reads_per_s(parameters, *depth) / measured).ln().powi(2)
        };
        self.read_iops.iter().map(square).sum()
    }

    fn candidate(&self, name: &str, origin: &str, guess: Guess) -> SsdParameters {
        let most = self.read_iops.iter().map(|(_, iops)| *iops).fold(1.0, f64::max);
        let flash_us = self.read_s * 1e6 * guess.flash_share;
        let link_mb_per_s = self.read_mb_per_s.max(most * BLOCK as f64 / 1e6) * 1.02;
        let crossing_us = BLOCK as f64 / link_mb_per_s + BLOCK as f64 / 800.0;
        let channels = (1..=8).rev().find(|channels| guess.dies.is_multiple_of(*channels));
        let channels = channels.expect("one divides all");
        let superblock_mib = (self.size_bytes / MIB / 1000).clamp(1, 4096);
        let superblock = superblock_mib * MIB;
        let spare = (self.size_bytes / 14).max(16 * superblock);
        SsdParameters {
            kind: Kind::Ssd,
            name: name.to_owned(),
            description: format!("fitted to {origin}"),
            interface: LinkParameters {
                protocol: if self.read_mb_per_s < 600.0 { Protocol::Sata } else { Protocol::Nvme },
                mb_per_s: link_mb_per_s.clamp(1.0, 1e6),
                queue_depth: 1024,
            },
            controller: ControllerParameters {
                read_us: (self.read_s * 1e6 - flash_us - crossing_us).max(0.0),
                write_us: self.writes.map_or(20.0, |writes| writes.firmware_us(link_mb_per_s)),
                flush_us: self.writes.map_or(20.0, |writes| writes.flush_s.min(1e-4) * 1e6),
                read_iops_max: most.clamp(1.0, 1e8),
                write_iops_max: self.writes.map_or(most, |writes| writes.iops).clamp(1.0, 1e8),
                read_mb_per_s: None,
                write_mb_per_s: None,
            },
            flash: FlashParameters {
                capacity_bytes: self.size_bytes,
                physical_bytes: (self.size_bytes + spare).div_ceil(superblock) * superblock,
                channels,
                dies_per_channel: guess.dies / channels,
                channel_mb_per_s: 800.0,
                page_kib: 16,
                program_kib: PROGRAM_KIB,
                read_us: flash_us,
                program_us: self.program_us(guess.dies),
                erase_ms: 5.0,
                superblock_mib: superblock_mib as u32,
                in_place: false,
            },
            write_cache: self.write_cache(),
            slc: self.slc(guess.dies),
        }
    }

    /// The dies together program as fast as the drive writes in the long run.
    fn program_us(&self, dies: usize) -> f64 {
        let Some(writes) = self.writes else { return 1500.0 };
        program_us(dies, PROGRAM_KIB, writes.sustained_mb_per_s)
    }

    fn slc(&self, dies: usize) -> Option<SlcParameters> {
        let writes = self.writes?;
        Some(SlcParameters {
            static_mib: writes.burst_bytes? / MIB,
            dynamic_mib: 0,
            program_kib: 32,
            program_us: program_us(dies, 32, writes.burst_mb_per_s),
            idle_ms: 1000.0,
        })
    }

    fn write_cache(&self) -> WriteBufferParameters {
        // A flush that comes back sooner than any flash can be programmed programs nothing.
        let is_instant = self.writes.is_some_and(|writes| writes.flush_s < 150e-6);
        WriteBufferParameters {
            capacity_kib: 16_384,
            protected: self.is_stable,
            enabled: true,
            reported: !self.is_stable,
            flush: match is_instant && !self.is_stable {
                true => FlushBehaviour::Ignored,
                false => FlushBehaviour::Honoured,
            },
        }
    }
}

const PROGRAM_KIB: u32 = 96;

fn program_us(dies: usize, kib: u32, mb_per_s: f64) -> f64 {
    let bytes = f64::from(kib) * 1024.0;
    (dies as f64 * bytes / mb_per_s - bytes / 800.0).clamp(1.0, 1e6)
}

/// Random reads a second of a model at a depth, on a small drive of its kind.
fn reads_per_s(parameters: &SsdParameters, depth: usize) -> f64 {
    let mut parameters = parameters.clone();
    parameters.flash.capacity_bytes = 4 << 30;
    parameters.flash.physical_bytes = 5 << 30;
    parameters.flash.superblock_mib = 16;
    let Ok(model) = SsdModel::new(parameters) else { return 1.0 };
    let count = (depth as u64 * 40).clamp(200, 3000);
    let took = run(1, |runtime, _| async move {
        let store = SparseDevice::new("model", Geometry::of_size(model.size_bytes()));
        let device = ModelDevice::ssd(Rc::new(store), Rc::new(model), State::Full, 1, &runtime);
        let device: Rc<dyn BlockDevice> = Rc::new(device);
        let probe = Probe::new(&device, &runtime, Random::new(1), &|_| {});
        probe.carry_out(ProbeLoad { is_write: false, bytes: BLOCK, depth, count, from: None }).await
    });
    match took {
        Ok(Ok(seconds)) => count as f64 / seconds,
        _ => 1.0,
    }
}
