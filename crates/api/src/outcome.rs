//! Exit codes, and the format of errors.

use std::fmt;
use std::process::ExitCode;

/// The exit code; scripts rely on the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Ok = 0,
    /// It failed.
    Error = 1,
    /// The command line is wrong; clap's own code.
    Usage = 2,
    /// Done, and the volume is degraded.
    Degraded = 3,
    /// Refused, because data could be lost; nothing was changed.
    Refused = 4,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// An error that decides the exit code; carried inside an `anyhow::Error`.
#[derive(Debug)]
pub struct Failure {
    pub exit: Exit,
    pub message: String,
}

impl Failure {
    /// Refused for safety.
    pub fn refused(message: impl ToString) -> anyhow::Error {
        Self { exit: Exit::Refused, message: message.to_string() }.into()
    }

    /// The error of a command, which is a refusal or not.
    pub fn of<E>(error: E, is_refusal: impl Fn(&E) -> bool) -> anyhow::Error
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        match is_refusal(&error) {
            true => Self::refused(error.to_string()),
            false => error.into(),
        }
    }

    pub fn usage(message: impl ToString) -> anyhow::Error {
        Self { exit: Exit::Usage, message: message.to_string() }.into()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// An error and its causes in one line. A cause that the text already contains is not repeated.
pub fn told(error: &anyhow::Error) -> String {
    let mut told = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if told.is_empty() {
            told = cause;
        } else if !told.contains(&cause) {
            told = format!("{told}: {cause}");
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;
    use std::io;

    /// Whose text names its cause, as many do.
    #[derive(Debug)]
    struct NotOpened(io::Error);

    impl fmt::Display for NotOpened {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "cannot open trace t: {}", self.0)
        }
    }

    impl std::error::Error for NotOpened {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn a_cause_is_told_once() {
        let error = NotOpened(io::ErrorKind::NotFound.into());
        let told = told(&Err::<(), _>(error).context("analyzing").unwrap_err());
        assert_eq!(told, "analyzing: cannot open trace t: entity not found");
    }
}
