//! `print!` and `println!` of a program whose reader may go.
//!
//! The standard ones end the program by a panic where nobody reads its output any more, as behind
//! `| head`. What a command changes it changes to its end, and its exit code says how that went,
//! whoever reads of it. Commands that do nothing but print end with their reader (`main.rs`).

macro_rules! print {
    ($($told:tt)*) => {{
        use std::io::Write as _;
        let _ = write!(std::io::stdout(), $($told)*);
    }};
}

macro_rules! println {
    ($($told:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($told)*);
    }};
}
