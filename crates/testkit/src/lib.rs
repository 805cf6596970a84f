//! What every crate's tests share: skipping loudly, finding tools and sample files, scratch
//! directories, memory that is counted or scarce, breaks that a `self_check` has to notice; and
//! fio and servers, which benchmarks need.
//!
//! A test that lacks something on this machine says so with [`skip!`] and ends. libtest knows no
//! such outcome and calls the test passed, so the skip is also written to the file named by
//! `HEADPOND_SKIP_LOG`, from which `cargo xtask test` corrects the count: a skipped test is never
//! counted as passed.
//!
//! **Invariants**
//! - One line per skip in the log: `test binary <TAB> test <TAB> name <TAB> why`. A test that skips
//!   several of its parts is one skipped test.
//! - Nothing here touches the network or anything outside the temporary directory.
//!
//! **Not here**: test data makers and oracles; they belong to the crate whose words they use. No
//! crate may depend on this one outside `[dev-dependencies]`; `cargo xtask tidy` checks it.

mod breaks;
mod find;
pub mod fio;
mod memory;
mod served;
mod skip;

pub use breaks::{Break, assert_trips};
pub use find::{shared, tool};
pub use memory::{CountedMemory, ScarceMemory};
pub use served::Served;
pub use skip::skip;

/// A fresh directory that is removed when the guard is dropped.
///
/// # Panics
/// When the temporary directory of the system cannot be written: no test can go on then.
pub fn tempdir() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("headpond-test-").tempdir().expect("a temporary directory")
}

/// Records that this test cannot run here, and returns from it.
#[macro_export]
macro_rules! skip {
    ($name:expr, $($why:tt)+) => {{
        $crate::skip($name, &format!($($why)+));
        return;
    }};
}
