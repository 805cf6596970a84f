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
        let exit = Exit::of_code(self.exit);
        Failure { exit, message: self.error }.into()
    }
}

impl From<anyhow::Error> for Refusal {
    fn from(error: anyhow::Error) -> Self {
        let exit = Failure::exit_of(&error);
        Self { error: told(&error), exit: exit as u8 }
    }
}
