//! Devices of commands: those of a daemon, exports of servers, and which volumes use them.

pub mod claims;
mod export;
mod speed;

pub use export::{Export, ends};
pub use headpond_daemon::device::*;
pub use speed::read_mb_per_s;
