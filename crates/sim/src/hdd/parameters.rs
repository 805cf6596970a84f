//! The description of a drive as its data file gives it.

use super::ModelError;
use serde::Deserialize;

/// One model file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HddParameters {
    pub name: String,
    pub description: String,
    pub geometry: GeometryParameters,
    pub seek: SeekParameters,
    pub interface: InterfaceParameters,
    pub read_buffer: ReadBufferParameters,
    pub write_cache: WriteCacheParameters,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GeometryParameters {
    pub capacity_bytes: u64,
    /// Smallest unit on the medium, 512 or 4096; a smaller write costs a revolution more.
    pub physical_sector_bytes: u32,
    pub rpm: u32,
    pub heads: u32,
    pub zones: u32,
    pub outer_sectors_per_track: u32,
    pub inner_sectors_per_track: u32,
    pub head_switch_ms: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeekParameters {
    pub single_cylinder_ms: f64,
    /// Mean over all pairs of cylinders, settled for reading.
    pub average_ms: f64,
    pub full_stroke_ms: f64,
    /// How much longer the head settles before it may write.
    pub write_settle_ms: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceParameters {
    /// Time of the electronics before a command can move the arm or be answered from the cache.
    pub command_ms: f64,
    pub mb_per_s: f64,
    /// Commands that the drive sees and orders at once; further ones wait outside, first come
    /// first.
    pub queue_depth: usize,
    /// How long a command may be passed over for nearer ones.
    pub wait_max_ms: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadBufferParameters {
    pub segments: usize,
    /// How far the drive reads on behind a read while nothing else is to be done; also the most
    /// that a segment keeps.
    pub read_ahead_kib: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteCacheParameters {
    pub enabled: bool,
    pub capacity_kib: u32,
    /// Contiguous runs of unwritten data that the firmware can keep apart.
    pub runs_max: usize,
    /// Time without work before unwritten data is written.
    pub idle_ms: f64,
}

impl GeometryParameters {
    pub(super) fn check(&self) -> Result<(), ModelError> {
        let physical = self.physical_sector_bytes;
        let lengths = (self.inner_sectors_per_track, self.outer_sectors_per_track);
        require(physical == 512 || physical == 4096, "physical_sector_bytes", "is 512 or 4096")?;
        let whole = self.capacity_bytes.is_multiple_of(u64::from(physical));
        require(whole && self.capacity_bytes > 0, "capacity_bytes", "is no number of sectors")?;
        require((100..=100_000).contains(&self.rpm), "rpm", "is not between 100 and 100,000")?;
        require((1..=64).contains(&self.heads), "heads", "is not between 1 and 64")?;
        require((1..=1000).contains(&self.zones), "zones", "is not between 1 and 1000")?;
        let ordered = lengths.0 >= 8 && lengths.0 <= lengths.1 && lengths.1 <= 100_000;
        require(ordered, "inner_sectors_per_track", "is not between 8 and the outer figure")
    }
}

impl HddParameters {
    pub(super) fn check(&self) -> Result<(), ModelError> {
        self.geometry.check()?;
        for (field, ms) in [
            ("geometry.head_switch_ms", self.geometry.head_switch_ms),
            ("seek.single_cylinder_ms", self.seek.single_cylinder_ms),
            ("seek.average_ms", self.seek.average_ms),
            ("seek.full_stroke_ms", self.seek.full_stroke_ms),
            ("seek.write_settle_ms", self.seek.write_settle_ms),
            ("interface.command_ms", self.interface.command_ms),
            ("interface.wait_max_ms", self.interface.wait_max_ms),
            ("write_cache.idle_ms", self.write_cache.idle_ms),
        ] {
            require((0.0..=10_000.0).contains(&ms), field, "is not between 0 and 10,000 ms")?;
        }
        let rate = self.interface.mb_per_s;
        require((1.0..=1e6).contains(&rate), "interface.mb_per_s", "is not between 1 and 1e6")?;
        let depth = self.interface.queue_depth;
        require(
            (1..=65_536).contains(&depth),
            "interface.queue_depth",
            "is not between 1 and 65,536",
        )?;
        let runs = self.write_cache.runs_max;
        require(
            (1..=1 << 20).contains(&runs),
            "write_cache.runs_max",
            "is not between 1 and 2^20",
        )?;
        let segments = self.read_buffer.segments;
        require(segments <= 4096, "read_buffer.segments", "is more than 4096")
    }
}

fn require(holds: bool, field: &'static str, reason: &'static str) -> Result<(), ModelError> {
    if holds { Ok(()) } else { Err(ModelError::Invalid { field, reason }) }
}
