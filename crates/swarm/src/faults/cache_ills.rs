//! The faults of a cache device, and of one of several that a cache lies on.

use super::Damage;
use headpond_block::RequestKind;
use headpond_block::decorators::{Fault, FaultRule};
use std::time::Duration;

/// What goes wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheIll {
    Slow {
        delay: Duration,
        times: u64,
    },
    Reads {
        times: u64,
    },
    /// Reads bring other bytes than are there.
    ReadsWrong {
        times: u64,
    },
    Writes {
        times: u64,
    },
    Flush,
    Gone,
    /// It stops to answer, for as long as the life lasts.
    Hang,
    /// A block that is stable changes.
    Damage(Damage),
}

impl CacheIll {
    /// Whether one of several copies that it befalls may be out of use from then on.
    pub fn costs_copy(self) -> bool {
        matches!(self, Self::Writes { .. } | Self::Flush | Self::Gone | Self::Hang)
    }

    /// What the device does, where it is the device that does it.
    pub fn rule(self) -> Option<FaultRule> {
        let on =
            |kind, fault, times| FaultRule { times: Some(times), ..FaultRule::on(kind, fault) };
        let always = |fault| FaultRule { kind: None, ..FaultRule::on(RequestKind::Read, fault) };
        Some(match self {
            Self::Slow { delay, times } => {
                FaultRule { times: Some(times), ..always(Fault::Delay(delay)) }
            }
            Self::Reads { times } => on(RequestKind::Read, Fault::Media, times),
            Self::ReadsWrong { times } => on(RequestKind::Read, Fault::Corrupt, times),
            Self::Writes { times } => on(RequestKind::Write, Fault::Media, times),
            Self::Flush => on(RequestKind::Flush, Fault::Media, 1),
            Self::Gone => always(Fault::Gone),
            Self::Hang => always(Fault::Hang),
            Self::Damage(_) => return None,
        })
    }

    /// What the counts call it: of a cache device, and of one of several.
    pub fn kinds(self) -> [&'static str; 2] {
        match self {
            Self::Slow { .. } => ["cache slow", "cache copy slow"],
            Self::Reads { .. } => ["cache read error", "cache copy read error"],
            Self::ReadsWrong { .. } => ["cache read corrupted", "cache copy read corrupted"],
            Self::Writes { .. } => ["cache write error", "cache copy write error"],
            Self::Flush => ["cache flush error", "cache copy flush error"],
            Self::Gone => ["cache gone", "cache copy gone"],
            Self::Hang => ["cache hangs", "cache copy hangs"],
            Self::Damage(Damage::Flip) => ["cache block corrupted", "cache copy corrupted"],
            Self::Damage(Damage::Revert) => ["cache write lost", "cache copy lost a write"],
            Self::Damage(Damage::Misplace) => {
                ["cache write misdirected", "cache copy misdirected a write"]
            }
        }
    }

    /// The row of the fault table that it belongs to, whatever comes of it.
    pub fn row(self) -> Option<u8> {
        Some(match self {
            Self::Slow { .. } | Self::Hang => 39,
            Self::Flush => 31,
            Self::Reads { .. } => 19,
            Self::Writes { .. } => 21,
            Self::ReadsWrong { .. } | Self::Damage(Damage::Flip) => 22,
            Self::Damage(Damage::Revert) => 38,
            Self::Damage(Damage::Misplace) => 37,
            Self::Gone => return None,
        })
    }
}
