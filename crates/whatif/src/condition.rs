//! In which condition an array is when it is looked at, and how a machine comes into it.

use headpond_block::BlockDevice;
use headpond_raid::{Contents, Level, Occupied};
use headpond_volume::{ChangeMembersError, NewMember, Volume};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::rc::Rc;
use uuid::Uuid;

/// What has become of an array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Condition {
    /// Every member is there, and parity is right.
    #[default]
    Healthy,
    /// Parity was never computed, and nobody is about to.
    Uninitialised,
    /// One member is gone, and nothing takes its place.
    Degraded,
    /// One member is gone; what it held is written to a new drive, or to distributed spares, at the
    /// usual pace beside the requests.
    Rebuilding,
}

/// What a new drive is called.
pub(crate) const SPARE: &str = "spare";
/// The one that is lost.
const LOST: &str = "drive00";

impl Condition {
    pub const ALL: [Self; 4] =
        [Self::Healthy, Self::Uninitialised, Self::Degraded, Self::Rebuilding];

    /// Whether arrays of this level can be in it.
    pub fn is_of(self, level: Level) -> bool {
        match self {
            Self::Healthy => true,
            Self::Uninitialised => level.parity() > 0,
            Self::Degraded | Self::Rebuilding => level != Level::Raid0,
        }
    }

    /// Whether a member has no part in it.
    pub(crate) fn lacks_member(self) -> bool {
        matches!(self, Self::Degraded | Self::Rebuilding)
    }

    pub(crate) fn contents(self) -> Contents {
        if self == Self::Uninitialised { Contents::Unknown } else { Contents::Zeros }
    }

    /// Brings an open volume into it; `spare` is for the rebuild.
    ///
    /// # Errors
    /// Where the array refuses to lose a member, or the spare.
    pub(crate) async fn bring_about(
        self,
        volume: &Volume,
        spare: Option<Rc<dyn BlockDevice>>,
    ) -> Result<(), ChangeMembersError> {
        let rests = matches!(self, Self::Uninitialised | Self::Degraded);
        volume.pause_background(None, rests)?;
        if let Some(device) = spare {
            let (word, uuid) = (SPARE.to_owned(), Uuid::from_u128(0x5fa7e));
            let occupied = Occupied::Overwrite;
            volume.add_spare(None, NewMember { word, device, uuid, occupied }).await?;
        }
        match self {
            Self::Healthy | Self::Uninitialised => Ok(()),
            Self::Degraded | Self::Rebuilding => volume.fail_member(None, LOST).await,
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Healthy => "healthy",
            Self::Uninitialised => "uninitialised",
            Self::Degraded => "degraded",
            Self::Rebuilding => "rebuilding",
        })
    }
}
