//! The record of the volume on its members: settings, and what makes it up, beside the superblocks.
//!
//! With it a volume can be started where its description was lost. Names of devices in it are those
//! of the last start; exports are not in it, since they belong to the host.

use crate::description::{Description, DescriptionError};
use crate::history::KeptHistory;
use headpond_block::DeviceError;
use headpond_raid::volume_record::TEXT_BYTES_MAX;
use serde::{Deserialize, Serialize};

/// What each member has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VolumeRecord {
    /// Of the writes to all arrays of the volume; the highest counts.
    pub generation: u64,
    pub volume: Description,
    #[serde(
        default,
        skip_serializing_if = "KeptHistory::is_empty",
        deserialize_with = "KeptHistory::lenient"
    )]
    pub history: KeptHistory,
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
    /// Without a history.
    pub fn new(generation: u64, description: &Description) -> Self {
        let volume = Description { exports: Vec::new(), ..description.clone() };
        Self { generation, volume, history: KeptHistory::default() }
    }

    pub fn with_history(self, history: KeptHistory) -> Self {
        Self { history, ..self }
    }

    /// The record as bytes for the members; history that does not fit is left out.
    ///
    /// # Errors
    /// Where the settings are too long for them.
    pub fn to_bytes(&self) -> Result<Vec<u8>, RecordError> {
        let mut record = self.clone();
        loop {
            let text = toml::to_string(&record).expect("a description is plain data");
            match text.len() {
                0..=TEXT_BYTES_MAX => return Ok(text.into_bytes()),
                _ if record.history.shorten() => {}
                bytes => return Err(RecordError::Long { bytes }),
            }
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
        Self::new(self.generation, description).volume == self.volume
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::KeptErrors;
    use headpond_block::DeviceErrors;
    use uuid::Uuid;

    fn description() -> Description {
        let text = include_str!("../tests/fixtures/description-2026-11.toml");
        let text = format!("{text}\n[[export]]\naddress = \"unix:/run/hv0.sock\"\n");
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
    fn history_that_is_long_or_of_a_newer_program_stands_in_the_way_of_no_setting() {
        let device = |id| KeptErrors {
            device: Uuid::from_u128(id),
            errors: DeviceErrors { read: id as u64, ..DeviceErrors::default() },
            last: None,
        };
        let history =
            KeptHistory { sequence: 2, devices: (1..256).map(device).collect(), ..<_>::default() };
        let record = VolumeRecord::new(3, &description()).with_history(history);
        let read = VolumeRecord::parse(&record.to_bytes().unwrap()).unwrap();
        assert_eq!((read.generation, &read.volume), (3, &record.volume));
        assert!(!read.history.devices.is_empty() && read.history.devices[0] == device(255));
        let text = toml::to_string(&VolumeRecord::new(3, &description())).unwrap();
        let newer = format!("{text}\n[history]\nsequence = 'a word'\n");
        let read = VolumeRecord::parse(newer.as_bytes()).unwrap();
        assert!(read.agrees(&description()) && read.history.is_empty());
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
