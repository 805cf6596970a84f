//! A command for settings out of the kernel's reach: the tool of a RAID controller's vendor.
//!
//! It is split at spaces and run without a shell: the command shown is the command run.

use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

/// A command line with placeholders for device, setting and value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Hook(String);

/// Why a hook cannot be used, or did not work.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    #[error("the hook is empty")]
    Empty,
    #[error("the hook has no {{value}}: it would do the same for on and off")]
    NoValue,
    #[error(
        "the hook has the unknown placeholder {0}; known: {{device}}, {{setting}} and {{value}}"
    )]
    UnknownPlace(String),
    #[error(
        "the hook has a quote or a backslash: it is split at spaces and run without a shell; put what \
         needs one into a script"
    )]
    Quoted,
    #[error("{program} cannot be run: {source}")]
    Start { program: String, source: io::Error },
    #[error("{program} failed with {status}: what it has changed is unknown; see its manual")]
    Failed { program: String, status: ExitStatus },
}

impl Hook {
    /// # Errors
    /// Where it cannot be a command that depends on the value.
    pub fn new(text: &str) -> Result<Self, HookError> {
        if text.trim().is_empty() {
            return Err(HookError::Empty);
        }
        if text.contains(['"', '\'', '\\']) {
            return Err(HookError::Quoted);
        }
        if let Some(place) = places(text).find(|it| !["device", "setting", "value"].contains(it)) {
            return Err(HookError::UnknownPlace(format!("{{{place}}}")));
        }
        if !text.contains("{value}") {
            return Err(HookError::NoValue);
        }
        Ok(Self(text.trim().to_owned()))
    }

    /// The words to run.
    pub fn words(&self, device: &Path, setting: &str, value: &str) -> Vec<String> {
        let fill = |word: &str| {
            let word = word.replace("{setting}", setting).replace("{value}", value);
            word.replace("{device}", &device.display().to_string())
        };
        self.0.split_whitespace().map(fill).collect()
    }
}

/// Runs the command; its output goes to standard error.
///
/// # Errors
/// Where they cannot be run, or fail.
pub(crate) fn run(words: &[String]) -> Result<(), HookError> {
    let [program, arguments @ ..] = words else { return Err(HookError::Empty) };
    let program = program.clone();
    let mut command = Command::new(&program);
    let status = command.args(arguments).stdin(Stdio::null()).stdout(io::stderr()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(HookError::Failed { program, status }),
        Err(source) => Err(HookError::Start { program, source }),
    }
}

/// The placeholders.
fn places(text: &str) -> impl Iterator<Item = &str> {
    let behind = text.split('{').skip(1);
    behind.map(|rest| rest.split_once('}').map_or(rest, |(place, _)| place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_places_are_filled_and_spaces_in_a_name_split_nothing() {
        let hook = Hook::new("storcli64 /c0/v0 set {setting}={value} # {device}").unwrap();
        let words = hook.words(Path::new("/dev/a b"), "wrcache", "wb");
        assert_eq!(words, ["storcli64", "/c0/v0", "set", "wrcache=wb", "#", "/dev/a b"]);
    }

    #[test]
    fn a_hook_that_cannot_depend_on_the_value_is_refused_and_so_is_an_unknown_place() {
        assert!(matches!(Hook::new(" "), Err(HookError::Empty)));
        assert!(matches!(Hook::new("tool on"), Err(HookError::NoValue)));
        assert!(
            matches!(Hook::new("tool {vlaue}"), Err(HookError::UnknownPlace(it)) if it == "{vlaue}")
        );
        assert!(matches!(Hook::new("sh -c 'x {value}'"), Err(HookError::Quoted)));
    }

    #[test]
    fn a_command_that_fails_or_is_not_there_is_an_error() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(run(&words("true")).is_ok());
        assert!(matches!(run(&words("false")), Err(HookError::Failed { .. })));
        assert!(matches!(run(&words("/not/there now")), Err(HookError::Start { .. })));
    }
}
