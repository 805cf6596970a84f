//! The record of the volume on its members: settings, and what makes it up, beside the superblocks.
//!
//! With it a volume can be started where its description was lost. Names of devices in it are those
//! of the last start; exports are not in it, since they belong to the host.

use crate::description::{Description, DescriptionError};
use headpond_block::DeviceError;
use headpond_raid::volume_record::TEXT_BYTES_MAX;
use serde::{Deserialize, Serialize};

/// What each member has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VolumeRecord {
    /// Of the writes to all arrays of the volume; the highest counts.
    pub generation: u64,
    pub volume: Description,
}

/// Why a volume was not recorded on its members.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error(
        "settings of {bytes} bytes do not fit on the members, which have room for \
         {TEXT_BYTES_MAX}: use fewer or shorter rules of I/O classes"
    )]
    Long { bytes: usize },
    #[error("the settings could not be written to the members: {0}")]
    Device(#[from] DeviceError),
}

impl VolumeRecord {
    pub fn new(generation: u64, description: &Description) -> Self {
        Self { generation, volume: Description { exports: Vec::new(), ..description.clone() } }
    }

    /// The record as bytes for the members.
    ///
    /// # Errors
    /// Where it is too long for them.
    pub fn to_bytes(&self) -> Result<Vec<u8>, RecordError> {
        let text = toml::to_string(self).expect("a description is plain data");
        match text.len() {
            0..=TEXT_BYTES_MAX => Ok(text.into_bytes()),
            bytes => Err(RecordError::Long { bytes }),
        }
    }

    /// The record of a member.
    ///
    /// # Errors
    /// Where a newer program wrote it.
    pub fn parse(bytes: &[u8]) -> Result<Self, DescriptionError> {
        let text = String::from_utf8_lossy(bytes);
        let record: Self = toml::from_str(&text)?;
        record.volume.check()?;
        Ok(record)
    }

    /// Whether it says the same of the volume.
    pub fn agrees(&self, description: &Description) -> bool {
        Self::new(self.generation, description) == *self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description() -> Description {
        let text = include_str!("../tests/fixtures/description-2026-11.toml");
        let text = format!("{text}\n[[export]]\nnbd = \"unix:/run/hv0.sock\"\n");
        Description::parse(&text).unwrap()
    }

    #[test]
    fn a_record_is_read_as_it_was_written_without_exports() {
        let described = description();
        assert!(!described.exports.is_empty());
        let record = VolumeRecord::new(3, &described);
        let read = VolumeRecord::parse(&record.to_bytes().unwrap()).unwrap();
        assert_eq!(read, record);
        assert!(read.volume.exports.is_empty() && read.agrees(&described));
        let other = Description { heartbeat_ms: 0, ..described };
        assert!(!read.agrees(&other));
    }

    #[test]
    fn what_does_not_fit_and_what_is_not_known_is_told() {
        let mut long = description();
        long.cache.as_mut().unwrap().device = "/".repeat(TEXT_BYTES_MAX);
        let error = VolumeRecord::new(1, &long).to_bytes().unwrap_err().to_string();
        assert!(error.contains("do not fit on the members"), "{error}");
        let bytes = VolumeRecord::new(1, &description()).to_bytes().unwrap();
        let newer = String::from_utf8(bytes).unwrap().replace("slices =", "colour = 1\nslices =");
        let error = VolumeRecord::parse(newer.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("colour"), "{error}");
    }
}
