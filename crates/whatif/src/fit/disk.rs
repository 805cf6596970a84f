//! A disk from outside: rotation, zones, seeks, electronics, track buffer.

use super::FitError;
use super::probe::{BLOCK, MIB, Probe, ProbeLoad, median};
use super::rotation::revolution;
use serde::Serialize;
use std::fmt::Write;
use std::time::Duration;

/// Nothing from outside tells one head from another, so this many are assumed; seek distances are
/// in cylinders of so many tracks.
const HEADS_ASSUMED: f64 = 8.0;

/// Times at which a sector had been read, and reads elsewhere between them, so that the drive has
/// forgotten it: more than such drives have segments.
const TURNS: usize = 40;
const READS_BETWEEN: usize = 70;

const ZONES: usize = 24;
const TRIES_A_SEEK: u64 = 96;

/// What was measured. Times in seconds.
#[derive(Clone, Debug, Serialize)]
pub struct MeasuredDisk {
    pub size_bytes: u64,
    pub revolution_s: f64,
    /// A block that the drive has in its buffer.
    pub hit_s: f64,
    pub interface_mb_per_s: f64,
    /// Sequential rates from the outer to the inner edge, evenly spaced in address.
    pub rates_mb_per_s: Vec<f64>,
    /// Distance in cylinders, and the time of the seek.
    pub seeks: Vec<(u32, f64)>,
    pub read_ahead_bytes: u64,
    pub segments: usize,
    pub is_stable: bool,
    pub writes: Option<MeasuredDiskWrites>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct MeasuredDiskWrites {
    pub cache_enabled: bool,
    /// Scattered writes that it took before it made the next one wait.
    pub runs: u64,
}

pub(super) async fn measure(
    probe: &Probe<'_>,
    destructive: bool,
) -> Result<MeasuredDisk, FitError> {
    probe.tell("rotation");
    let times = turns(probe).await?;
    // What answers sooner than a third of a turn on average does not wait for one.
    let reads = (TURNS * (READS_BETWEEN * 3 / 2 + 1)) as f64;
    let mean_s = times[times.len() - 1] / reads;
    let revolution_s = revolution(&times).filter(|turn| mean_s > turn / 3.0);
    let revolution_s = revolution_s.ok_or(FitError::NoRotation)?;
    probe.tell("command overhead and interface");
    let hit_s = hit(probe, BLOCK).await?;
    let large = hit(probe, 64 * BLOCK).await?;
    let interface_mb_per_s = (63 * BLOCK) as f64 / 1e6 / (large - hit_s).max(1e-6);
    probe.tell("zones");
    let rates_mb_per_s = rates(probe).await?;
    probe.tell("track buffer");
    // A tenth of a turn for timers that are late; a miss as quick by chance must not repeat.
    let limit_s = hit_s * 2.0 + revolution_s * 0.1;
    let read_ahead_bytes = read_ahead(probe, limit_s).await?;
    let segments = segments(probe, limit_s).await?;
    let mut disk = MeasuredDisk {
        size_bytes: probe.size_bytes(),
        revolution_s,
        hit_s,
        interface_mb_per_s: interface_mb_per_s.clamp(1.0, 5000.0),
        rates_mb_per_s,
        seeks: Vec::new(),
        read_ahead_bytes,
        segments,
        is_stable: probe.is_stable(),
        writes: None,
    };
    probe.tell("seeks");
    // The seek to the next cylinder says what a turn of a stream costs, and with it how long the
    // tracks are; only then is known which addresses are so many cylinders apart.
    disk.seeks = seeks(probe, &disk, &[1.0]).await?;
    let distances = Strokes::of(&disk).distances();
    disk.seeks = seeks(probe, &disk, &distances).await?;
    if destructive {
        probe.tell("write cache");
        disk.writes = Some(super::writes::of_disk(probe, revolution_s).await?);
    }
    Ok(disk)
}

/// When the same sector had been read, again and again.
async fn turns(probe: &Probe<'_>) -> Result<Vec<f64>, FitError> {
    let place = probe.size_bytes() / 2 / BLOCK * BLOCK;
    let begun = probe.runtime.now();
    let mut times = Vec::new();
    for _ in 0..TURNS {
        // Pauses of one length would fit other periods as well.
        for _ in 0..READS_BETWEEN + probe.below(READS_BETWEEN as u64) as usize {
            probe.read(probe.anywhere(), BLOCK).await?;
        }
        probe.read(place, BLOCK).await?;
        times.push(probe.runtime.now().since(begun).as_secs_f64());
    }
    Ok(times)
}

/// The time of a read that the drive answers from its buffer.
async fn hit(probe: &Probe<'_>, bytes: u64) -> Result<f64, FitError> {
    let mut times = Vec::new();
    for _ in 0..9 {
        let place = probe.below(probe.size_bytes() / MIB - 1) * MIB;
        probe.read(place, bytes).await?;
        times.push(probe.read(place, bytes).await?);
    }
    Ok(median(times))
}

async fn rates(probe: &Probe<'_>) -> Result<Vec<f64>, FitError> {
    let count = (probe.size_bytes() / ZONES as u64 / MIB / 2).clamp(1, 48);
    let last = probe.size_bytes() - 2 * count * MIB;
    let mut rates = Vec::new();
    for zone in 0..ZONES as u64 {
        let from = Some(last / (ZONES as u64 - 1) * zone / BLOCK * BLOCK);
        let load = ProbeLoad { is_write: false, bytes: MIB, depth: 4, count, from };
        let took = probe.carry_out(load).await?;
        rates.push((count * MIB) as f64 / 1e6 / took);
    }
    Ok(rates)
}

/// How far behind a read the drive goes on by itself.
async fn read_ahead(probe: &Probe<'_>, limit_s: f64) -> Result<u64, FitError> {
    let mut reach = 0;
    let mut distance = 4 * BLOCK;
    while distance <= 32 * MIB && distance < probe.size_bytes() / 4 {
        let mut hits = 0;
        for _ in 0..5 {
            let place = probe.below((probe.size_bytes() - distance) / BLOCK - 2) * BLOCK;
            probe.read(place, BLOCK).await?;
            probe.rest(Duration::from_millis(50 + distance / MIB * 25)).await;
            hits += u32::from(probe.read(place + distance, BLOCK).await? <= limit_s);
        }
        if hits < 4 {
            break;
        }
        reach = distance;
        distance *= 2;
    }
    Ok(reach)
}

/// How many places it remembers.
async fn segments(probe: &Probe<'_>, limit_s: f64) -> Result<usize, FitError> {
    let mut remembered = 0;
    for places in [1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128] {
        let mut hits = 0;
        for _ in 0..3 {
            let first = probe.anywhere();
            probe.read(first, BLOCK).await?;
            for _ in 1..places {
                probe.read(probe.anywhere(), BLOCK).await?;
            }
            hits += u32::from(probe.read(first, BLOCK).await? <= limit_s);
        }
        if hits < 2 {
            break;
        }
        remembered = places;
    }
    Ok(remembered)
}

/// Seek times over rising distances: the shortest of many reads over a distance has waited for
/// rotation least.
async fn seeks(
    probe: &Probe<'_>,
    disk: &MeasuredDisk,
    distances: &[f64],
) -> Result<Vec<(u32, f64)>, FitError> {
    let strokes = Strokes::of(disk);
    let mut seeks: Vec<(u32, f64)> = Vec::new();
    for distance in distances.iter().copied() {
        let mut shortest = f64::MAX;
        for _ in 0..TRIES_A_SEEK {
            let span = (strokes.cylinders - distance - 1.0).max(1.0);
            let inner = probe.below(span as u64) as f64;
            let (from, to) = match probe.below(2) {
                0 => (inner, inner + distance),
                _ => (inner + distance, inner),
            };
            // The same place in both cylinders, give or take half a track, so that the angle
            // between them is any.
            let part = |whole: f64| probe.below(1 << 20) as f64 / f64::from(1 << 20) * whole;
            let place = part(1.0);
            let within =
                |cylinder: f64| strokes.offset(cylinder + place + part(1.0 / HEADS_ASSUMED));
            probe.read(within(from), BLOCK).await?;
            shortest = shortest.min(probe.read(within(to), BLOCK).await?);
        }
        let waited = disk.revolution_s / (TRIES_A_SEEK + 1) as f64;
        let before = seeks.last().map_or(0.0, |(_, time)| *time);
        seeks.push((distance as u32, (shortest - waited - disk.hit_s).max(before).max(1e-5)));
    }
    Ok(seeks)
}

/// Which cylinder an address is on, as far as the rates tell.
struct Strokes {
    /// Cylinders up to each of evenly spaced addresses.
    up_to: Vec<f64>,
    cylinders: f64,
    size_bytes: u64,
}

impl Strokes {
    fn of(disk: &MeasuredDisk) -> Self {
        let part = disk.size_bytes as f64 / (disk.rates_mb_per_s.len() - 1) as f64;
        let mut up_to = vec![0.0];
        for pair in disk.rates_mb_per_s.windows(2) {
            let track_bytes = (pair[0] + pair[1]) / 2.0 * 1e6 * disk.turn_s();
            up_to.push(up_to[up_to.len() - 1] + part / (track_bytes * HEADS_ASSUMED));
        }
        Self { cylinders: up_to[up_to.len() - 1], up_to, size_bytes: disk.size_bytes }
    }

    fn distances(&self) -> Vec<f64> {
        let mut distances = vec![1.0];
        while distances[distances.len() - 1] * 4.0 < self.cylinders / 4.0 {
            distances.push((distances[distances.len() - 1] * 4.0).floor());
        }
        for share in [0.25, 1.0 / 3.0, 0.5, 0.75, 0.98] {
            distances.push((self.cylinders * share).floor());
        }
        distances.dedup();
        distances
    }

    fn offset(&self, cylinder: f64) -> u64 {
        let after = self.up_to.partition_point(|up_to| *up_to <= cylinder);
        let after = after.clamp(1, self.up_to.len() - 1);
        let (low, high) = (self.up_to[after - 1], self.up_to[after]);
        let share =
            (after as f64 - 1.0 + (cylinder - low) / (high - low)) / (self.up_to.len() - 1) as f64;
        let blocks = self.size_bytes / BLOCK - 2;
        ((share * blocks as f64) as u64).min(blocks) * BLOCK
    }
}

impl MeasuredDisk {
    /// What a stream needs for each track: a turn, the switch to the next one and what its skew
    /// spares.
    fn turn_s(&self) -> f64 {
        self.revolution_s * 1.01 + self.seeks.first().map_or(0.0, |(_, seconds)| *seconds)
    }

    pub(super) fn model_text(&self, name: &str, origin: &str) -> String {
        let single_ms = self.seeks.first().map_or(1.0, |(_, time)| time * 1e3);
        let turn_s = self.turn_s();
        let sectors = |rate: f64| (rate * 1e6 * turn_s / 512.0).round() as u32;
        let (outer, inner) = (
            sectors(self.rates_mb_per_s[0]),
            sectors(*self.rates_mb_per_s.last().expect("measured")),
        );
        let wire_s = BLOCK as f64 / 1e6 / self.interface_mb_per_s;
        let mut text = format!(
            "# Fitted to {origin}.\n\
             #   [M] measured;   [A] assumed, since it cannot be told from outside or was not asked.\n\n\
             kind = \"hdd\"\nname = {name:?}\ndescription = \"fitted to {origin}\"\n\n\
             [geometry]\n\
             capacity_bytes = {}            # [M]\n\
             physical_sector_bytes = 4096   # [A]\n\
             rpm = {}                       # [M]\n\
             heads = {HEADS_ASSUMED}        # [A]\n\
             zones = {ZONES}                # [A]\n\
             outer_sectors_per_track = {}   # [M] {:.0} MB/s\n\
             inner_sectors_per_track = {}   # [M] {:.0} MB/s\n\
             head_switch_ms = {single_ms:.3} # [A] as a seek to the next cylinder\n\n",
            self.size_bytes,
            (60.0 / self.revolution_s).round(),
            outer.max(inner),
            self.rates_mb_per_s[0],
            inner.max(8),
            self.rates_mb_per_s[self.rates_mb_per_s.len() - 1],
        );
        let curve: Vec<String> = self
            .seeks
            .iter()
            .map(|(distance, s)| format!("[{distance}, {:.3}]", s * 1e3))
            .collect();
        let curve = curve.join(", ");
        let (enabled, runs) = match self.writes {
            Some(writes) => (writes.cache_enabled, writes.runs),
            None => (!self.is_stable, 1024),
        };
        let how = if self.writes.is_some() { "[M]" } else { "[A] writes were not measured" };
        let _ = write!(
            text,
            "[seek]\nwrite_settle_ms = 0.6          # [A]\ncurve = [{curve}] # [M]\n\n\
             [interface]\ncommand_ms = {:.4}             # [M]\nmb_per_s = {:.1}               # [M]\n\
             queue_depth = 32               # [A]\nwait_max_ms = 500.0            # [A]\n\n\
             [read_buffer]\nsegments = {}                  # [M]\nread_ahead_kib = {}            # [M]\n\n\
             [write_cache]\nenabled = {enabled}            # {how}\ncapacity_kib = 65536           # [A]\n\
             runs_max = {}                  # {how}\nidle_ms = 0.0                  # [A]\n",
            (self.hit_s - wire_s).max(0.0) * 1e3,
            self.interface_mb_per_s,
            self.segments,
            self.read_ahead_bytes / 1024,
            runs.clamp(1, 1 << 20),
        );
        text
    }
}
