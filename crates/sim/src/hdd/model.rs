//! A drive model made ready for use: the data file with everything that follows from it.

use super::angle::Angle;
use super::layout::SECTOR_BYTES;
use super::overheads::Overheads;
use super::zone::Skews;
use super::{layout::Layout, parameters::HddParameters, seek::SeekCurve};

/// Why a model file describes no drive.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    #[error("drive model: {0}")]
    Syntax(#[from] toml::de::Error),
    #[error("drive model: {field} {reason}")]
    Invalid { field: &'static str, reason: &'static str },
    #[error("no drive model named {name}; there are: {known}")]
    Unknown { name: String, known: String },
}

/// The model files that come with the program.
const BUILTIN: [(&str, &str); 1] = [("hdd-7k2-4t", include_str!("../../models/hdd-7k2-4t.toml"))];

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

    /// A model that comes with the program.
    ///
    /// # Errors
    /// Where there is none of that name.
    pub fn builtin(name: &str) -> Result<Self, ModelError> {
        Self::parse(Self::builtin_text(name)?)
    }

    /// The data file of a model that comes with the program, with the source of every number.
    ///
    /// # Errors
    /// Where there is none of that name.
    pub fn builtin_text(name: &str) -> Result<&'static str, ModelError> {
        match BUILTIN.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => Ok(text),
            None => {
                let known = Self::builtin_names().collect::<Vec<_>>().join(", ");
                Err(ModelError::Unknown { name: name.to_owned(), known })
            }
        }
    }

    pub fn builtin_names() -> impl Iterator<Item = &'static str> {
        BUILTIN.iter().map(|(name, _)| *name)
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
    pub(super) fn wire_ns(&self, sectors: u64) -> u64 {
        let bytes = sectors * SECTOR_BYTES;
        (bytes as f64 * 1e3 / self.parameters.interface.mb_per_s) as u64
    }
}

fn nanos(ms: f64) -> u64 {
    (ms * 1e6) as u64
}

/// How far the next track starts behind: the switch to it and a hundredth of a turn to spare.
fn skew(switch_ns: u64, revolution_ns: u64) -> Angle {
    Angle::fraction(switch_ns + revolution_ns / 100, revolution_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_builtin_model_is_sound_and_bears_its_name() {
        for name in HddModel::builtin_names() {
            assert_eq!(HddModel::builtin(name).unwrap().parameters().name, name);
        }
    }

    #[test]
    fn a_wrong_field_is_named() {
        let text = BUILTIN[0].1;
        let wrong = text.replace("heads = 10 ", "heads = 0 ");
        let error = HddModel::parse(&wrong).unwrap_err().to_string();
        assert!(error.contains("heads"), "{error}");
        let unknown = text.replace("heads = 10 ", "haeds = 10 ");
        let error = HddModel::parse(&unknown).unwrap_err().to_string();
        assert!(error.contains("haeds"), "{error}");
        let error = HddModel::builtin("nothing").unwrap_err().to_string();
        assert!(error.contains("hdd-7k2-4t"), "{error}");
    }
}
