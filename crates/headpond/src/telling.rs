//! `print!` and `println!` of a program whose reader may go.
//!
//! The standard ones end the program by a panic where nobody reads its output any more, as behind
//! `| head`. What a command changes it changes to its end, and its exit code says how that went,
//! whoever reads of it. Where its output cannot be kept for another reason, as on a full disk, that
//! is told, and the exit code says so too. Commands that end with their reader: `main.rs`.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write, stdout};
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

pub fn tell(told: Arguments) {
    note(stdout().write_fmt(told));
}

fn note(outcome: io::Result<()>) {
    let Err(error) = outcome else { return };
    if error.kind() == ErrorKind::BrokenPipe {
        IS_UNHEARD.store(true, Ordering::Relaxed);
    } else if !IS_LOST.swap(true, Ordering::Relaxed) {
        eprintln!("headpond: error: cannot write to the standard output: {error}");
    }
}

/// Whether nobody reads what is told any more.
pub fn is_unheard() -> bool {
    IS_UNHEARD.load(Ordering::Relaxed)
}

/// Whether something was told and could not be written, while there was a reader.
pub fn is_lost() -> bool {
    note(stdout().flush());
    IS_LOST.load(Ordering::Relaxed)
}
