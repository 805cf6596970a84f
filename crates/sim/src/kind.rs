//! The kinds of models.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What a model file describes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    #[default]
    Hdd,
    Ssd,
    Controller,
    Network,
    Remote,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hdd => "hdd",
            Self::Ssd => "ssd",
            Self::Controller => "controller",
            Self::Network => "network",
            Self::Remote => "remote",
        })
    }
}
