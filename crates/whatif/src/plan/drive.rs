//! What one drive does, as the formulas of arrays take it.
//!
//! Figures come from a sheet (`drives/*.toml`, or a file of the user's in the same form) or, for
//! every model of the catalogue, from the model itself, measured in virtual time.

use super::measure;
use crate::models;
use crate::simulate::SimulateError;
use headpond_sim::{CatalogueError, Model, catalogue};
use serde::{Deserialize, Serialize};

/// The figures of one drive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveFigures {
    pub name: String,
    pub description: String,
    /// What the simulator takes for such a drive: a name of the catalogue, or a file.
    pub model: String,
    /// Where the figures are from.
    pub source: String,
    pub capacity_bytes: u64,
    /// 4 KiB, with so many in flight that more would gain nothing.
    pub random_read_iops: f64,
    pub random_write_iops: f64,
    /// Time of a read and of a write where both are mixed, if the source rounds them; else what the
    /// rates say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_ms: Option<f64>,
    /// A random read with nothing else in flight: the mean, and how far they deviate from it.
    pub lone_read_ms: f64,
    #[serde(default)]
    pub lone_read_deviation_ms: f64,
    /// A random write with nothing else in flight, and none before it that waits in the drive's
    /// cache; as with many in flight, where the source does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lone_write_ms: Option<f64>,
    /// Of a disk; 0 for solid state.
    #[serde(default)]
    pub revolution_ms: f64,
    /// At the outer edge, in 10^6 bytes.
    pub sequential_read_mb_per_s: f64,
    pub sequential_write_mb_per_s: f64,
    /// Rate at the inner edge, of that; 1 for solid state.
    pub inner_share: f64,
    /// Bits read for each sector that cannot be read.
    pub unreadable_bits: f64,
    /// Share of such drives that fail in a year.
    pub failures_per_year: f64,
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    #[error("no drive named {name}; there are {known}, or a file (with a / or .toml)")]
    Unknown { name: String, known: String },
    #[error(transparent)]
    Model(#[from] CatalogueError),
    #[error("the model {name} cannot be measured: {source}")]
    Measure { name: String, source: Box<SimulateError> },
    #[error("{file}: {source}")]
    Syntax { file: String, source: toml::de::Error },
    #[error("{file}: {field} must be {what}, not {found}")]
    Field { file: String, field: &'static str, what: &'static str, found: f64 },
}

const SHEETS: [(&str, &str); 1] = [("hdd-14t", include_str!("../../drives/hdd-14t.toml"))];

impl DriveFigures {
    /// The drive that `word` names: a sheet, a model of the catalogue, or a file of either kind.
    ///
    /// # Errors
    /// Where there is no such drive; the error says which there are.
    pub fn find(word: &str) -> Result<Self, DriveError> {
        if let Some((_, text)) = SHEETS.iter().find(|(name, _)| *name == word) {
            return Self::parse(word, text);
        }
        if !catalogue::is_file(word) && !catalogue::builtin_names().any(|name| name == word) {
            let name = word.to_owned();
            return Err(DriveError::Unknown { name, known: known().join(", ") });
        }
        let text = models::text(word)?;
        if catalogue::is_file(word) && !text.lines().any(|line| line.starts_with("kind")) {
            return Self::parse(word, &text);
        }
        match models::load(word)? {
            model @ (Model::Hdd(_) | Model::Ssd(_)) => {
                measure::figures(word, &model).map_err(|source| DriveError::Measure {
                    name: word.to_owned(),
                    source: source.into(),
                })
            }
            other => Err(other.is_not("a drive, hdd or ssd (--drive)").into()),
        }
    }

    /// Reads and checks a sheet, which errors call `file`.
    ///
    /// # Errors
    /// Where it is no TOML, lacks or has unknown fields, or a figure is none.
    pub fn parse(file: &str, text: &str) -> Result<Self, DriveError> {
        let file = file.to_owned();
        let figures: Self = toml::from_str(text)
            .map_err(|source| DriveError::Syntax { file: file.clone(), source })?;
        match figures.flaw() {
            Some((field, what, found)) => Err(DriveError::Field { file, field, what, found }),
            None => Ok(figures),
        }
    }

    /// The first figure that cannot be: its field, what it must be, and what it is.
    fn flaw(&self) -> Option<(&'static str, &'static str, f64)> {
        let positive = [
            ("random_read_iops", self.random_read_iops),
            ("random_write_iops", self.random_write_iops),
            ("read_ms", self.read_ms()),
            ("write_ms", self.write_ms()),
            ("lone_read_ms", self.lone_read_ms),
            ("lone_write_ms", self.lone_write_ms()),
            ("sequential_read_mb_per_s", self.sequential_read_mb_per_s),
            ("sequential_write_mb_per_s", self.sequential_write_mb_per_s),
            ("unreadable_bits", self.unreadable_bits),
        ];
        let wrong = positive.into_iter().find(|(_, figure)| !(1e-9..=1e20).contains(figure));
        if let Some((field, found)) = wrong {
            return Some((field, "more than 0", found));
        }
        let turning = [
            ("lone_read_deviation_ms", self.lone_read_deviation_ms),
            ("revolution_ms", self.revolution_ms),
        ];
        let wrong = turning.into_iter().find(|(_, figure)| !(0.0..=1e6).contains(figure));
        if let Some((field, found)) = wrong {
            return Some((field, "0 or more", found));
        }
        let (inner, failures) = (self.inner_share, self.failures_per_year);
        if !(inner > 0.0 && inner <= 1.0) {
            return Some(("inner_share", "a share of at most 1", inner));
        }
        let is_share = failures > 0.0 && failures < 1.0;
        (!is_share).then_some(("failures_per_year", "a share between 0 and 1", failures))
    }

    pub fn read_ms(&self) -> f64 {
        self.read_ms.unwrap_or(1000.0 / self.random_read_iops)
    }

    pub fn write_ms(&self) -> f64 {
        self.write_ms.unwrap_or(1000.0 / self.random_write_iops)
    }

    pub fn lone_write_ms(&self) -> f64 {
        self.lone_write_ms.unwrap_or(self.write_ms())
    }

    /// Whether a write is answered before it is where it belongs: on a medium that turns, sooner
    /// than that comes by.
    pub(super) fn answers_from_its_cache(&self) -> bool {
        self.revolution_ms == 0.0 || self.lone_write_ms() < self.revolution_ms / 2.0
    }

    /// Hours to copy all of it to another one at full speed. Every track takes a turn, so over the
    /// whole surface the mean of outermost and innermost rate counts.
    pub fn copy_hours(&self) -> f64 {
        let outer = self.sequential_read_mb_per_s.min(self.sequential_write_mb_per_s);
        let mean = outer * (1.0 + self.inner_share) / 2.0;
        self.capacity_bytes as f64 / (mean * 1e6) / 3600.0
    }
}

/// Every drive that has a name.
fn known() -> Vec<&'static str> {
    let is_drive = |name: &&str| {
        let model = Model::builtin(name).expect("models that come with the program are sound");
        matches!(model, Model::Hdd(_) | Model::Ssd(_))
    };
    let sheets = SHEETS.iter().map(|(name, _)| *name);
    sheets.chain(catalogue::builtin_names().filter(is_drive)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_drive_is_answered_with_those_there_are() {
        let error = DriveFigures::find("floppy").unwrap_err().to_string();
        assert!(error.contains("hdd-14t, hdd-7k2-4t") && !error.contains("net-10g"), "{error}");
        let error = DriveFigures::find("net-10g").unwrap_err().to_string();
        assert!(error.contains("kind network"), "{error}");
        let error = DriveFigures::find("rbd").unwrap_err().to_string();
        assert!(error.contains("kind remote; here a drive, hdd or ssd"), "{error}");
    }

    #[test]
    fn a_sheet_that_cannot_be_names_its_field() {
        let text = SHEETS[0].1;
        for (from, to, says) in [
            ("inner_share = 0.485", "inner_share = 2", "inner_share must be a share"),
            ("read_ms = 5.0", "read_ms = 0", "read_ms must be more than 0"),
            ("revolution_ms = 8.33", "revolution_ms = -1", "revolution_ms must be 0 or more"),
            ("lone_read_ms = 11.7", "lone_read = 1", "unknown field `lone_read`"),
            ("failures_per_year = 0.0035", "failures_per_year = 1", "between 0 and 1"),
        ] {
            let error = DriveFigures::parse("x.toml", &text.replace(from, to)).unwrap_err();
            let error = error.to_string();
            assert!(error.starts_with("x.toml: ") && error.contains(says), "{error}");
        }
    }
}
