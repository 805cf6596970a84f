//! A drive model made ready for use: the data file with everything that follows from it.

use super::angle::Angle;
use super::layout::SECTOR_BYTES;
use super::overheads::{Overheads, Way};
use super::zone::Skews;
use super::{layout::Layout, parameters::HddParameters, seek::SeekCurve};
use crate::error::ModelError;

/// A kind of drive; shared by all drives of that kind. Times in nanoseconds.
#[derive(Clone, Debug)]
pub struct HddModel {
    parameters: HddParameters,
    layout: Layout,
    pub(super) seek: SeekCurve,
    pub(super) revolution_ns: u64,
    pub(super) head_switch_ns: u64,
    /// Added to a seek before a write.
    pub(super) write_settle_ns: i64,
    pub(super) overheads: Overheads,
    pub(super) wait_max_ns: u64,
    pub(super) idle_ns: u64,
}

impl HddModel {
    /// Reads a model file.
    ///
    /// # Errors
    /// Names the line or the field that is wrong.
    pub fn parse(text: &str) -> Result<Self, ModelError> {
        Self::new(toml::from_str(text)?)
    }

    /// # Errors
    /// Names the field that is wrong.
    pub fn new(parameters: HddParameters) -> Result<Self, ModelError> {
        parameters.check()?;
        let (geometry, seek) = (&parameters.geometry, &parameters.seek);
        let revolution_ns = 60_000_000_000 / u64::from(geometry.rpm);
        let head_switch_ns = nanos(geometry.head_switch_ms);
        let single_ns = nanos(seek.single_cylinder_ms);
        let skews = Skews {
            heads: geometry.heads.into(),
            track: skew(head_switch_ns, revolution_ns),
            cylinder: skew(single_ns.max(head_switch_ns), revolution_ns),
        };
        let layout = Layout::new(geometry, skews)?;
        Ok(Self {
            seek: SeekCurve::new(seek, layout.cylinders)?,
            revolution_ns,
            head_switch_ns,
            write_settle_ns: (seek.write_settle_ms * 1e6) as i64,
            overheads: Overheads::new(&parameters.interface),
            wait_max_ns: nanos(parameters.interface.wait_max_ms),
            idle_ns: nanos(parameters.write_cache.idle_ms),
            layout,
            parameters,
        })
    }

    /// The same drive with its write cache switched.
    pub fn with_write_cache(mut self, enabled: bool) -> Self {
        self.parameters.write_cache.enabled = enabled;
        self
    }

    pub fn parameters(&self) -> &HddParameters {
        &self.parameters
    }

    pub fn size_bytes(&self) -> u64 {
        self.parameters.geometry.capacity_bytes
    }

    /// Time of one revolution, in nanoseconds.
    pub fn revolution_ns(&self) -> u64 {
        self.revolution_ns
    }

    /// Milliseconds of a seek over so many cylinders, settled for reading.
    pub fn seek_ms(&self, cylinders: u32) -> f64 {
        self.seek.time_ns(cylinders) as f64 / 1e6
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Nanoseconds that so many sectors take on the interface.
    pub(super) fn wire_ns(&self, way: Way, sectors: u64) -> u64 {
        let interface = &self.parameters.interface;
        let mb_per_s = match way {
            Way::Read => interface.mb_per_s,
            Way::Write => interface.write_mb_per_s.unwrap_or(interface.mb_per_s),
        };
        ((sectors * SECTOR_BYTES) as f64 * 1e3 / mb_per_s) as u64
    }
}

fn nanos(ms: f64) -> u64 {
    (ms * 1e6) as u64
}

/// How far the next track starts behind: the switch to it and a hundredth of a turn to spare.
fn skew(switch_ns: u64, revolution_ns: u64) -> Angle {
    Angle::fraction(switch_ns + revolution_ns / 100, revolution_ns)
}
