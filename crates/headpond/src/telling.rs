//! `print!` and `println!` for output whose reader may close the pipe.
//!
//! Names of processes, hosts and devices come from untrusted traces and superblocks. Control
//! characters in them are printed escaped.
//!
//! The standard macros panic when the pipe is closed, as by `| head`. A command that changes
//! something completes without a reader, and its exit code reports the outcome. Other write errors,
//! such as a full disk, are reported, and the exit code is an error. Commands that only print end
//! with their reader: `main.rs`.
//!
//! Lines of text fit the terminal, or 100 columns where the output is none, or `COLUMNS`:
//! [`fit_terminal`].

pub use headpond_api::word;
use headpond_report::{columns, fold, set_columns};
use serde::Serialize;
use std::fmt::{self, Arguments};
use std::io::{self, ErrorKind, IsTerminal, Write, stdout};
use std::sync::atomic::{AtomicBool, Ordering};

static IS_UNHEARD: AtomicBool = AtomicBool::new(false);
static IS_LOST: AtomicBool = AtomicBool::new(false);

macro_rules! print {
    ($($told:tt)*) => { crate::telling::tell(format_args!($($told)*)) };
}

macro_rules! println {
    () => { crate::telling::tell(format_args!("\n")) };
    ($($told:tt)*) => { crate::telling::tell(format_args!("{}\n", format_args!($($told)*))) };
}

/// Prints text, in lines that fit.
pub fn tell(told: Arguments) {
    document(&fold(&told.to_string(), columns()));
}

/// Prints text that a program reads, or that is to be copied: its lines stay as they are.
pub fn document(text: &str) {
    let mut out = Plain { out: stdout().lock(), outcome: Ok(()) };
    // A failure is in the outcome.
    let _ = fmt::Write::write_str(&mut out, text);
    note(out.outcome);
}

/// Prints a document for programs.
///
/// # Errors
/// Where the value cannot be written as JSON.
pub fn print_json(value: &impl Serialize) -> serde_json::Result<()> {
    document(&(serde_json::to_string_pretty(value)? + "\n"));
    Ok(())
}

/// Text is as wide as the terminal that it goes to, or as `COLUMNS` says.
pub fn fit_terminal() {
    let asked = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let terminal = || rustix::termios::tcgetwinsize(stdout()).ok().map(|size| size.ws_col);
    let terminal = if stdout().is_terminal() { terminal() } else { None };
    let terminal = terminal.filter(|columns| *columns > 0).map(usize::from);
    if let Some(columns) = asked.or(terminal) {
        set_columns(columns);
    }
}

/// Text as it may be shown.
pub fn plain(text: &str) -> String {
    let mut out = Plain { out: Vec::new(), outcome: Ok(()) };
    // Memory takes all of it.
    let _ = fmt::Write::write_str(&mut out, text);
    String::from_utf8(out.out).expect("it was text")
}

/// Writes text with control characters escaped, but for the ends of lines and tabs.
struct Plain<W> {
    out: W,
    outcome: io::Result<()>,
}

impl<W: Write> fmt::Write for Plain<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let is_steering = |c: char| c.is_control() && c != '\n' && c != '\t';
        for piece in text.split_inclusive(is_steering) {
            let last = piece.chars().next_back().filter(|c| is_steering(*c));
            let clean = &piece[..piece.len() - last.map_or(0, char::len_utf8)];
            let mut outcome = self.out.write_all(clean.as_bytes());
            if let Some(last) = last {
                outcome = outcome.and_then(|()| write!(self.out, "{}", last.escape_default()));
            }
            if outcome.is_err() {
                self.outcome = outcome;
                return Err(fmt::Error);
            }
        }
        Ok(())
    }
}

fn note(outcome: io::Result<()>) {
    let Err(error) = outcome else { return };
    if error.kind() == ErrorKind::BrokenPipe {
        IS_UNHEARD.store(true, Ordering::Relaxed);
    } else if !IS_LOST.swap(true, Ordering::Relaxed) {
        eprintln!("headpond: error: cannot write to the standard output: {error}");
    }
}

/// Whether the reader has closed the pipe.
pub fn is_unheard() -> bool {
    IS_UNHEARD.load(Ordering::Relaxed)
}

/// Whether output was lost for another reason than a closed pipe.
pub fn is_lost() -> bool {
    note(stdout().flush());
    IS_LOST.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn what_would_steer_a_terminal_is_escaped() {
        assert_eq!(
            plain("a\x1b[31mb\u{9b}2J\r\n\tc\u{e9}"),
            "a\\u{1b}[31mb\\u{9b}2J\\r\n\tc\u{e9}"
        );
        assert_eq!(plain("plain, to the end"), "plain, to the end");
    }
}
