//! The description of a drive as its data file gives it.

use super::overheads::OverheadParameters;
use super::read_ahead;
use super::zone::ZoneParameters;
use crate::error::{ModelError, require};
use crate::kind::Kind;
use serde::Deserialize;

/// One model file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HddParameters {
    #[serde(default)]
    pub kind: Kind,
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
    /// Zones of as many cylinders each, their tracks shrinking evenly; this and the next two are
    /// left out where there is a `zone_table`.
    #[serde(default)]
    pub zones: u32,
    #[serde(default)]
    pub outer_sectors_per_track: u32,
    #[serde(default)]
    pub inner_sectors_per_track: u32,
    pub head_switch_ms: f64,
    /// The zones as they were measured.
    #[serde(default)]
    pub zone_table: Vec<ZoneParameters>,
    #[serde(default)]
    pub serpentine: Serpentine,
}

/// Which cylinders are gone through from the last head to the first.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Serpentine {
    #[default]
    No,
    /// Every second one of a zone.
    ByZone,
    /// Those with odd numbers.
    ByCylinder,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeekParameters {
    /// This and the next two are left out where there is a `curve`.
    #[serde(default)]
    pub single_cylinder_ms: f64,
    /// Mean over all pairs of cylinders, settled for reading.
    #[serde(default)]
    pub average_ms: f64,
    #[serde(default)]
    pub full_stroke_ms: f64,
    /// How much longer the head settles before it may write.
    pub write_settle_ms: f64,
    /// Measured seeks: cylinders and milliseconds, rising in cylinders.
    #[serde(default)]
    pub curve: Vec<(u32, f64)>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceParameters {
    /// Time of the electronics before a command can move the arm or be answered from the cache.
    pub command_ms: f64,
    /// How much longer that is for a read after a write, and for a write after a read.
    #[serde(default)]
    pub turnaround_ms: f64,
    pub mb_per_s: f64,
    /// Of data on its way to the drive; the same where it is left out.
    #[serde(default)]
    pub write_mb_per_s: Option<f64>,
    /// Commands that the drive sees and orders at once; further ones wait outside, first come
    /// first.
    pub queue_depth: usize,
    /// How long a command may be passed over for nearer ones.
    pub wait_max_ms: f64,
    /// Measured times of the electronics, which then take the place of `command_ms`.
    #[serde(default)]
    pub overheads: Option<OverheadParameters>,
    /// Part of a read that must have come from the medium before the drive starts to send it.
    #[serde(default)]
    pub read_watermark: f64,
    /// The watermark is a part of a segment, not of the read.
    #[serde(default)]
    pub watermark_of_segment: bool,
    /// The start of a read that is in memory waits for the watermark, too.
    #[serde(default)]
    pub defers_partial_hits: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadBufferParameters {
    pub segments: usize,
    /// How far the drive reads on behind a read while nothing else is to be done.
    pub read_ahead_kib: f64,
    /// The most that a segment keeps; as much as is read ahead where it is left out.
    #[serde(default)]
    pub segment_kib: Option<f64>,
    #[serde(default)]
    pub reach: ReadAheadReach,
    /// What is read ahead does not take the place of what was asked for.
    #[serde(default)]
    pub keeps_request: bool,
    /// Segments, beside those for reads, that keep what was written; then a write also drives out
    /// what it replaces. As many as for reads where it is left out, and nothing is driven out. With
    /// none, unwritten data is not read either before it is on the medium.
    #[serde(default)]
    pub written_segments: Option<usize>,
    /// Sectors are taken in the order in which they pass, not in the order of addresses.
    #[serde(default)]
    pub on_arrival: bool,
    /// A read of many in a row that the buffer answers lets the drive, where it has nothing else to
    /// read or write, go on behind what it holds, so that a reader slower than the track never
    /// empties its segment.
    #[serde(default)]
    pub resumes_on_hit: bool,
    /// How many in a row. Reads of a controller that makes parity anew, with writes between them,
    /// are not: published arrays show that such streams wait for the medium again and again.
    #[serde(default = "resumes_after")]
    pub resumes_after: u32,
    /// What the drive reads on behind a read before it serves another command.
    #[serde(default)]
    pub read_ahead_least_kib: f64,
    /// What was written takes its segments from `segments`, and none besides.
    #[serde(default)]
    pub shares_segments: bool,
    /// What was asked for is given up when it has been sent.
    #[serde(default)]
    pub drops_sent: bool,
    /// Keeps what passes on the track while the head waits for the first sector.
    #[serde(default)]
    pub reads_before: bool,
    /// Only what is missing behind data in the buffer is read from the medium.
    #[serde(default)]
    pub partial_hits: bool,
    /// Reading ahead ends between two sectors only.
    #[serde(default)]
    pub whole_sectors: bool,
    /// A write that the cache takes does not end reading ahead.
    #[serde(default)]
    pub reads_on_in_writes: bool,
}

fn resumes_after() -> u32 {
    16
}

/// What ends reading ahead, beside its distance.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum ReadAheadReach {
    #[default]
    Distance,
    /// The end of the track.
    Track,
    /// The end of the cylinder.
    Cylinder,
    /// The end of the next track, if the track before was read lately; otherwise that of its own.
    /// The distance is no limit: what does not fit the segment pushes out what came before it.
    NextTrack,
}

impl ReadBufferParameters {
    pub(super) fn segment_sectors(&self) -> u64 {
        read_ahead::sectors(self.segment_kib.unwrap_or(self.read_ahead_kib))
    }
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
    /// Sectors are written in the order in which they pass, not in the order of addresses.
    #[serde(default)]
    pub on_arrival: bool,
    /// The rules of a cache that is a few segments of the buffer, `runs_max` of them. Without them
    /// runs are merged and written in any order.
    #[serde(default)]
    pub segments: Option<WriteSegmentParameters>,
}

/// A segment holds one run, until all of it is on the medium; that comes before any other command
/// is served from the medium.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteSegmentParameters {
    /// A write that continues a run shares its segment.
    pub combines: bool,
    /// While anything is unwritten, only such a write is taken into the cache.
    pub streams_only: bool,
}

impl GeometryParameters {
    pub(super) fn check(&self) -> Result<(), ModelError> {
        let physical = self.physical_sector_bytes;
        let lengths = (self.inner_sectors_per_track, self.outer_sectors_per_track);
        require(
            physical == 512 || physical == 4096,
            "geometry.physical_sector_bytes",
            "is 512 or 4096",
        )?;
        let whole = self.capacity_bytes.is_multiple_of(u64::from(physical));
        require(
            whole && self.capacity_bytes > 0,
            "geometry.capacity_bytes",
            "is no multiple of physical_sector_bytes",
        )?;
        require(
            (100..=100_000).contains(&self.rpm),
            "geometry.rpm",
            "is not between 100 and 100,000",
        )?;
        require((1..=64).contains(&self.heads), "geometry.heads", "is not between 1 and 64")?;
        if !self.zone_table.is_empty() {
            let even = (self.zones, lengths.0, lengths.1);
            require(even == (0, 0, 0), "geometry.zones", "has no meaning beside a zone_table")?;
            return self.check_zone_table();
        }
        require((1..=1000).contains(&self.zones), "geometry.zones", "is not between 1 and 1000")?;
        let ordered = lengths.0 >= 8 && lengths.0 <= lengths.1 && lengths.1 <= 100_000;
        require(
            ordered,
            "geometry.inner_sectors_per_track",
            "is not between 8 and outer_sectors_per_track, which is at most 100,000",
        )
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
            ("interface.command_ms", self.interface.command_ms),
            ("interface.turnaround_ms", self.interface.turnaround_ms),
            ("interface.wait_max_ms", self.interface.wait_max_ms),
            ("write_cache.idle_ms", self.write_cache.idle_ms),
        ] {
            require((0.0..=10_000.0).contains(&ms), field, "is not between 0 and 10,000 ms")?;
        }
        // Measured drives are known whose writes settle sooner than their reads.
        let settle = self.seek.write_settle_ms;
        let field = "seek.write_settle_ms";
        require((-100.0..=10_000.0).contains(&settle), field, "is not between -100 and 10,000 ms")?;
        if let Some(overheads) = &self.interface.overheads {
            overheads.check()?;
        }
        let watermark = self.interface.read_watermark;
        let field = "interface.read_watermark";
        require((0.0..=1.0).contains(&watermark), field, "is not between 0 and 1")?;
        let buffer = &self.read_buffer;
        let least = Some(buffer.read_ahead_least_kib);
        for kib in [Some(buffer.read_ahead_kib), least, buffer.segment_kib].into_iter().flatten() {
            let field = "read_buffer";
            require((0.0..=1e9).contains(&kib), field, "has a size not between 0 and 1e9 KiB")?;
        }
        let (rate, to_drive) = (self.interface.mb_per_s, self.interface.write_mb_per_s);
        for (field, rate) in
            [("interface.mb_per_s", rate), ("interface.write_mb_per_s", to_drive.unwrap_or(rate))]
        {
            require((1e-3..=1e6).contains(&rate), field, "is not between 0.001 and 1e6")?;
        }
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
        require(segments <= 4096, "read_buffer.segments", "is more than 4096")?;
        let written = buffer.written_segments.unwrap_or(segments);
        require(written <= 4096, "read_buffer.written_segments", "is more than 4096")
    }
}
