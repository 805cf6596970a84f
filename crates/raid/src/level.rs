//! RAID levels by their number, as an administrator writes them.
//!
//! **Not here**: the layout of a level (`layout`).

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A RAID level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "u8", into = "u8")]
pub enum Level {
    /// Striping without redundancy.
    Raid0,
    /// Mirrors: every member has all data.
    Raid1,
    /// Striping over mirrors.
    Raid10,
    /// Striping with one rotating parity strip.
    Raid5,
    /// Striping with two rotating parity strips.
    Raid6,
    /// Striping over groups of RAID 5.
    Raid50,
    /// Striping over groups of RAID 6.
    Raid60,
}

/// A number that is not a supported RAID level.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not a supported RAID level: use 0, 1, 10, 5, 6, 50 or 60")]
pub struct UnknownLevel(pub String);

impl Level {
    /// Every level.
    pub const ALL: [Level; 7] = [
        Level::Raid0,
        Level::Raid1,
        Level::Raid10,
        Level::Raid5,
        Level::Raid6,
        Level::Raid50,
        Level::Raid60,
    ];

    /// The number by which users, and the superblock, call it.
    pub fn number(self) -> u8 {
        match self {
            Level::Raid0 => 0,
            Level::Raid1 => 1,
            Level::Raid10 => 10,
            Level::Raid5 => 5,
            Level::Raid6 => 6,
            Level::Raid50 => 50,
            Level::Raid60 => 60,
        }
    }

    /// Parity strips in a stripe.
    pub fn parity(self) -> u8 {
        match self {
            Level::Raid0 | Level::Raid1 | Level::Raid10 => 0,
            Level::Raid5 | Level::Raid50 => 1,
            Level::Raid6 | Level::Raid60 => 2,
        }
    }

    /// Whether a strip is kept in several copies.
    pub fn is_mirrored(self) -> bool {
        matches!(self, Level::Raid1 | Level::Raid10)
    }

    /// Whether the array may consist of several groups.
    pub fn has_groups(self) -> bool {
        matches!(self, Level::Raid10 | Level::Raid50 | Level::Raid60)
    }

    /// The default groups of so many members: mirrors of two, and two groups of parity.
    pub fn usual_groups(self, members: u16) -> u16 {
        match self {
            Level::Raid10 => members.div_ceil(2).max(1),
            Level::Raid50 | Level::Raid60 => 2,
            Level::Raid0 | Level::Raid1 | Level::Raid5 | Level::Raid6 => 1,
        }
    }

    /// The fewest members that one group can have.
    pub fn group_members_min(self) -> usize {
        match self {
            Level::Raid0 => 1,
            Level::Raid1 | Level::Raid10 => 2,
            Level::Raid5 | Level::Raid50 => 3,
            Level::Raid6 | Level::Raid60 => 4,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RAID {}", self.number())
    }
}

impl TryFrom<u8> for Level {
    type Error = UnknownLevel;

    fn try_from(number: u8) -> Result<Self, UnknownLevel> {
        Level::ALL
            .into_iter()
            .find(|level| level.number() == number)
            .ok_or_else(|| UnknownLevel(number.to_string()))
    }
}

impl From<Level> for u8 {
    fn from(level: Level) -> u8 {
        level.number()
    }
}

impl FromStr for Level {
    type Err = UnknownLevel;

    fn from_str(text: &str) -> Result<Self, UnknownLevel> {
        let number = text.trim().parse::<u8>().map_err(|_| UnknownLevel(text.to_owned()))?;
        Level::try_from(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_is_found_by_its_number() {
        for level in Level::ALL {
            assert_eq!(level.number().to_string().parse(), Ok(level));
        }
    }

    #[test]
    fn an_unknown_level_names_the_known_ones() {
        let error = "7".parse::<Level>().unwrap_err();
        assert!(error.to_string().contains("50 or 60"));
    }
}
