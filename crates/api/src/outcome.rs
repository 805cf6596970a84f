//! Exit codes, and the format of errors.

use std::fmt;
use std::process::ExitCode;

/// The exit code; scripts rely on the numbers. `--help` and `docs/serving.md` have the same table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Ok = 0,
    /// It failed.
    Error = 1,
    /// The command line is wrong, a device or volume that it names included; clap's own code.
    Usage = 2,
    /// Done, and a volume is degraded or has an alert.
    Degraded = 3,
    /// Refused, because data could be lost; nothing was changed.
    Refused = 4,
    /// The volume is not served, or its daemon does not answer.
    NotServed = 5,
    /// Ended by a signal, such as Ctrl-C; 128 and the number of SIGINT, as a shell has it.
    Interrupted = 130,
}

impl Exit {
    /// All of them with what they mean, in the order of the numbers.
    pub const ALL: [(Self, &'static str); 7] = [
        (Self::Ok, "well"),
        (Self::Error, "error"),
        (Self::Usage, "usage: a wrong argument, or a name of nothing that exists"),
        (Self::Degraded, "done, and a volume is degraded or has an alert"),
        (Self::Refused, "refused for safety (nothing was changed)"),
        (Self::NotServed, "the volume is not served, or its daemon does not answer"),
        (Self::Interrupted, "ended by Ctrl-C or another signal"),
    ];

    /// The exit of this number; an error where there is none.
    pub fn of_code(code: u8) -> Self {
        let found = Self::ALL.into_iter().find(|(exit, _)| *exit as u8 == code);
        found.map_or(Self::Error, |(exit, _)| exit)
    }
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

    /// No daemon, or none that answers.
    pub fn not_served(message: impl ToString) -> anyhow::Error {
        Self { exit: Exit::NotServed, message: message.to_string() }.into()
    }

    /// The exit code of an error.
    pub fn exit_of(error: &anyhow::Error) -> Exit {
        let failure = error.chain().find_map(|cause| cause.downcast_ref::<Self>());
        failure.map_or(Exit::Error, |failure| failure.exit)
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
    fn every_code_stands_in_the_document_as_it_is_here() {
        let document = include_str!("../../../docs/serving.md");
        for (exit, meaning) in Exit::ALL {
            let row = format!("| {} | {meaning} |", exit as u8);
            assert!(document.contains(&row), "docs/serving.md lacks {row}");
            assert_eq!(Exit::of_code(exit as u8), exit);
        }
        assert_eq!(Exit::of_code(77), Exit::Error, "of another version");
    }

    #[test]
    fn a_cause_is_told_once() {
        let error = NotOpened(io::ErrorKind::NotFound.into());
        let told = told(&Err::<(), _>(error).context("analyzing").unwrap_err());
        assert_eq!(told, "analyzing: cannot open trace t: entity not found");
    }
}
