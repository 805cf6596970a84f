//! The answer of a daemon that refuses or fails a request.

use crate::outcome::{Exit, Failure, told};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The cause, as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Refusal {
    pub error: String,
    /// The exit code that the command line ends with.
    pub exit: u8,
}

impl Refusal {
    pub(crate) fn into_error(self) -> anyhow::Error {
        let exit = match self.exit {
            code if code == Exit::Refused as u8 => Exit::Refused,
            code if code == Exit::Usage as u8 => Exit::Usage,
            _ => Exit::Error,
        };
        Failure { exit, message: self.error }.into()
    }
}

impl From<anyhow::Error> for Refusal {
    fn from(error: anyhow::Error) -> Self {
        let failure = error.downcast_ref::<Failure>();
        let exit = failure.map_or(Exit::Error, |failure| failure.exit);
        Self { error: told(&error), exit: exit as u8 }
    }
}
