//! The rated endurance of a drive: what its maker says may be written to it.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// That data sheets mostly give.
const WARRANTY_YEARS: f64 = 5.0;
const DAYS_PER_YEAR: f64 = 365.0;
/// More is a mistake in the unit.
const WRITTEN_MAX_BYTES: f64 = 1e18;
const DRIVE_WRITES_MAX: f64 = 1000.0;
const WARRANTY_MAX_YEARS: f64 = 20.0;

/// Bytes that may be written to a drive, and the years of its warranty. As text `3500TB`, or as
/// drive writes a day `1DWPD`; with `/3y` behind it where the warranty is not five years.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Endurance {
    rating: Rating,
    warranty_years: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Rating {
    Terabytes(f64),
    DriveWritesPerDay(f64),
}

/// Text that is no endurance.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an endurance is what may be written (600TB, 3.5PB) or the drive writes a day (1DWPD), up to \
     1 EB or 1000, and behind it the warranty where it is not 5 years (1DWPD/3y, up to 20y), not \
     {0:?}"
)]
pub struct EnduranceError(String);

impl Endurance {
    /// Of a drive with so many bytes.
    pub fn bytes(self, drive_bytes: u64) -> f64 {
        match self.rating {
            Rating::Terabytes(terabytes) => terabytes * 1e12,
            Rating::DriveWritesPerDay(writes) => {
                writes * drive_bytes as f64 * self.warranty_years * DAYS_PER_YEAR
            }
        }
    }

    pub fn warranty_years(self) -> f64 {
        self.warranty_years
    }

    /// How long a drive lasts that so many bytes are written to on each day.
    pub fn years(self, drive_bytes: u64, bytes_per_day: f64) -> f64 {
        self.bytes(drive_bytes) / bytes_per_day / DAYS_PER_YEAR
    }

    /// What may be written on each day, so that it lasts as long as its warranty.
    pub fn bytes_per_day(self, drive_bytes: u64) -> f64 {
        self.bytes(drive_bytes) / (self.warranty_years * DAYS_PER_YEAR)
    }
}

impl FromStr for Endurance {
    type Err = EnduranceError;

    fn from_str(text: &str) -> Result<Self, EnduranceError> {
        let error = || EnduranceError(text.to_owned());
        let lower = text.to_ascii_lowercase();
        let (rating, years) = lower.split_once('/').unwrap_or((&lower, "5y"));
        let number = |text: &str, unit: &str, most: f64| {
            let number: f64 = text.trim().strip_suffix(unit)?.trim_end().parse().ok()?;
            (number > 0.0 && number <= most).then_some(number)
        };
        let warranty_years = number(years, "y", WARRANTY_MAX_YEARS).ok_or_else(error)?;
        let terabytes = |unit, each: f64| {
            number(rating, unit, WRITTEN_MAX_BYTES / 1e12 / each).map(|it| it * each)
        };
        let rating = match number(rating, "dwpd", DRIVE_WRITES_MAX) {
            Some(writes) => Rating::DriveWritesPerDay(writes),
            None => Rating::Terabytes(
                terabytes("tb", 1.0).or_else(|| terabytes("pb", 1e3)).ok_or_else(error)?,
            ),
        };
        Ok(Self { rating, warranty_years })
    }
}

impl TryFrom<String> for Endurance {
    type Error = EnduranceError;

    fn try_from(text: String) -> Result<Self, EnduranceError> {
        text.parse()
    }
}

impl From<Endurance> for String {
    fn from(endurance: Endurance) -> Self {
        endurance.to_string()
    }
}

impl fmt::Display for Endurance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rating {
            Rating::Terabytes(terabytes) => write!(f, "{terabytes}TB")?,
            Rating::DriveWritesPerDay(writes) => write!(f, "{writes}DWPD")?,
        }
        if self.warranty_years == WARRANTY_YEARS {
            return Ok(());
        }
        write!(f, "/{}y", self.warranty_years)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRIVE_BYTES: u64 = 2_000_000_000_000;

    fn of(text: &str) -> Endurance {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn drive_writes_a_day_are_of_the_whole_drive_over_its_warranty() {
        assert_eq!(of("1DWPD").bytes(DRIVE_BYTES), 2e12 * 5.0 * 365.0);
        assert_eq!(of("0.5 dwpd/3y").bytes(DRIVE_BYTES), 1e12 * 3.0 * 365.0);
        assert_eq!(of("3.5PB").bytes(DRIVE_BYTES), 3.5e15);
        assert_eq!(of("600TB").bytes(1), 600e12);
    }

    #[test]
    fn drive_lasts_as_long_as_what_may_be_written() {
        assert_eq!(of("3650TB").years(DRIVE_BYTES, 1e12), 10.0);
        assert_eq!(of("1DWPD").years(DRIVE_BYTES, 2e12), 5.0);
        assert_eq!(of("1DWPD/3y").bytes_per_day(DRIVE_BYTES), 2e12);
    }

    #[test]
    fn text_is_read_as_it_is_shown() {
        for text in ["600TB", "3500TB", "1DWPD", "0.3DWPD/3y", "1200.5TB/2.5y"] {
            assert_eq!(of(text).to_string(), text);
        }
        assert_eq!(of(" 3.5 PB / 5Y ").to_string(), "3500TB");
    }

    #[test]
    fn mistakes_say_what_an_endurance_is() {
        let wrong = ["600", "600GB", "-1TB", "0DWPD", "1DWPD/0y", "1DWPD/30y", "5000DWPD", "2EB"];
        for text in wrong.into_iter().chain(["", "nanTB", "infTB", "1DWPD/5", "2000PB"]) {
            let error = text.parse::<Endurance>().unwrap_err().to_string();
            assert!(error.contains("600TB") && error.contains(&format!("{text:?}")), "{error}");
        }
    }
}
