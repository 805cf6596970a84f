//! What a watch did and why, for the journal that users read.

use super::{Change, Weakening};
use crate::search::{Gain, told};
use headpond_report::{rate, shell_words};
use serde::{Deserialize, Serialize};
use std::fmt;

/// One step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// There is too little to see for a while.
    Quiet {
        requests: usize,
    },
    /// There is work on the volume that will be over; looks do not count until then.
    Unsettled {
        why: String,
    },
    /// What is asked of the volume has changed.
    Changed {
        what: String,
    },
    /// The best settings for what is asked of it now.
    Advised {
        settings: Vec<String>,
        /// Over what is set now, as the models say; none where they are the same.
        gain: Option<Gain>,
        /// Whether that is worth a change.
        proposed: bool,
        reasons: Vec<String>,
        requests_per_second: f64,
    },
    /// Something of it would be less safe, and nobody gave leave.
    Withheld {
        setting: String,
        loses: String,
    },
    /// It was set before for such a workload, and did not deliver.
    TriedBefore {
        settings: Vec<String>,
    },
    /// It was set, and is being watched.
    Applied {
        settings: Vec<String>,
        /// How to go back, as `key=value`.
        back: Vec<String>,
    },
    /// What it came to.
    Judged {
        gain: Gain,
        /// `the time before` or `the models`.
        against: String,
        /// The other of the two, where it could be had.
        besides: Option<Gain>,
    },
    Kept {
        settings: Vec<String>,
    },
    /// What was decided; it is over when it is set.
    RollingBack {
        why: String,
        settings: Vec<String>,
    },
    RolledBack {
        settings: Vec<String>,
    },
}

impl Event {
    pub(super) fn changed(change: Change) -> Self {
        Self::Changed { what: change.to_string() }
    }

    pub(super) fn withheld(weakening: &Weakening) -> Self {
        Self::Withheld { setting: weakening.setting.to_string(), loses: weakening.loses.to_owned() }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quiet { requests } => {
                write!(f, "quiet: {requests} requests are too few to say anything")
            }
            Self::Changed { what } => write!(f, "the workload has changed: {what}"),
            Self::Advised { settings, gain, proposed, requests_per_second, reasons } => {
                let settings = shell_words(settings);
                match (gain, proposed) {
                    (None, _) => write!(f, "nothing is better than what is set now")?,
                    (Some(gain), false) => {
                        write!(f, "not worth a change: {} with {settings}", told(*gain))?;
                    }
                    (Some(gain), true) => {
                        write!(f, "better: {settings}: {} of what is set now", told(*gain))?;
                    }
                }
                write!(f, " (the models: {})", rate(*requests_per_second))?;
                reasons.iter().try_for_each(|reason| write!(f, "\n    {reason}"))
            }
            Self::Withheld { setting, loses } => write!(
                f,
                "not set: {setting} weakens what is promised: {loses}; with --may-lose-dirty it is set"
            ),
            Self::TriedBefore { settings } => {
                write!(f, "not set: it did not deliver before: {}", shell_words(settings))
            }
            Self::Applied { settings, .. } => {
                write!(f, "set, and being watched: {}", shell_words(settings))
            }
            Self::Judged { gain, against, besides } => {
                write!(f, "it is {} of what it was, by {against}", told(*gain))?;
                match besides {
                    Some(other) => write!(f, " (the models say {})", told(*other)),
                    None => Ok(()),
                }
            }
            Self::Kept { settings } => write!(f, "kept: {}", shell_words(settings)),
            Self::RollingBack { why, settings } => {
                write!(f, "rolling back: {why}: {}", shell_words(settings))
            }
            Self::RolledBack { settings } => write!(f, "rolled back: {}", shell_words(settings)),
            Self::Unsettled { why } => write!(f, "waiting: {why}"),
        }
    }
}
