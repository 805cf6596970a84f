//! Sizes as storage engineers write them: `64K`, `1.5M`, `4T`, in powers of two.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A number of bytes that reads and writes itself with a binary unit.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "SizeText", into = "String")]
pub struct Size(pub u64);

/// A size that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a size: write a number of bytes with an optional unit, e.g. 4096, 64K, 1.5M, 4T"
)]
pub struct SizeError {
    pub text: String,
}

const UNITS: [(char, u64); 5] =
    [('P', 1 << 50), ('T', 1 << 40), ('G', 1 << 30), ('M', 1 << 20), ('K', 1 << 10)];

impl Size {
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for Size {
    type Err = SizeError;

    /// Reads `123`, `64K`, `64KiB`, `1.5M`; the units are powers of 1024.
    fn from_str(text: &str) -> Result<Self, SizeError> {
        let error = || SizeError { text: text.to_owned() };
        let plain = text.trim().trim_end_matches("iB").trim_end_matches('B');
        let (number, unit) = match plain.char_indices().last() {
            Some((at, letter)) if letter.is_ascii_alphabetic() => {
                let letter = letter.to_ascii_uppercase();
                let unit = UNITS.iter().find(|(name, _)| *name == letter).ok_or_else(error)?.1;
                (&plain[..at], unit)
            }
            _ => (plain, 1),
        };
        if let Ok(whole) = number.trim().parse::<u64>() {
            return whole.checked_mul(unit).map(Size).ok_or_else(error);
        }
        let parts = number.trim().parse::<f64>().map_err(|_| error())? * unit as f64;
        let fits =
            parts.is_finite() && parts >= 0.0 && parts < 2f64.powi(64) && parts.fract() == 0.0;
        if fits { Ok(Size(parts as u64)) } else { Err(error()) }
    }
}

impl fmt::Display for Size {
    /// The largest unit that divides the size evenly, so that the text is exact.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().find(|(_, unit)| self.0 >= *unit && self.0.is_multiple_of(*unit)) {
            Some((name, unit)) => write!(f, "{}{name}", self.0 / unit),
            None => write!(f, "{}", self.0),
        }
    }
}

impl fmt::Debug for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl From<Size> for String {
    fn from(size: Size) -> String {
        size.to_string()
    }
}

/// The forms of a size in a description: a text or a number of bytes.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum SizeText {
    Bytes(u64),
    Text(String),
}

impl TryFrom<SizeText> for Size {
    type Error = SizeError;

    fn try_from(text: SizeText) -> Result<Self, SizeError> {
        match text {
            SizeText::Bytes(bytes) => Ok(Size(bytes)),
            SizeText::Text(text) => text.parse(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn units_are_binary_and_fractions_must_come_out_even() {
        assert_eq!("64K".parse(), Ok(Size(65536)));
        assert_eq!("64KiB".parse(), Ok(Size(65536)));
        assert_eq!("1.5m".parse(), Ok(Size(3 << 19)));
        assert_eq!("512".parse(), Ok(Size(512)));
        for bad in ["", "K", "12Q", "-1", "1.0001K", "99999999999T", "1e400"] {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn every_size_survives_being_written_and_read(bytes in any::<u64>(), shift in 0u32..64) {
            let size = Size(bytes >> shift << (shift / 2));
            prop_assert_eq!(size.to_string().parse(), Ok(size));
        }
    }
}
