//! Whether and how far to read ahead of sequential readers.

use crate::Size;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The least degree of a stream; also the least that is read at once, but at the end of the device.
pub(crate) const DEGREE_MIN: u64 = 128 << 10;
/// What a reader takes at a gigabyte a second in one turn of a 7200 rpm disk, 8.3 ms: a window that
/// lasts less runs dry where a disk has just missed what it is asked for, and has to wait for it to
/// come round.
const DEGREE_MAX: Size = Size(8 << 20);

/// Whether and how far to read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReadaheadPolicy {
    #[default]
    Adaptive,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, try_from = "Parameters")]
pub struct Readahead {
    pub policy: ReadaheadPolicy,
    /// Largest degree of a stream.
    pub degree_max: Size,
}

/// The same, unchecked.
#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Parameters {
    policy: ReadaheadPolicy,
    degree_max: Size,
}

impl Default for Readahead {
    fn default() -> Self {
        Self { policy: ReadaheadPolicy::Adaptive, degree_max: DEGREE_MAX }
    }
}

impl Default for Parameters {
    fn default() -> Self {
        let Readahead { policy, degree_max } = Readahead::default();
        Self { policy, degree_max }
    }
}

impl TryFrom<Parameters> for Readahead {
    type Error = String;

    fn try_from(from: Parameters) -> Result<Self, String> {
        let Parameters { policy, degree_max } = from;
        let (least, most) = (Size(DEGREE_MIN), Size(64 << 20));
        match (least..=most).contains(&degree_max) {
            true => Ok(Self { policy, degree_max }),
            false => Err(format!("the largest degree is {least} to {most}, not {degree_max}")),
        }
    }
}
