//! Devices of commands: those of a daemon, exports of servers, which volumes use them,
//! and their superblocks.

pub mod claims;
mod export;
pub mod labels;
mod speed;

pub use export::{Export, ends};
pub use headpond_daemon::device::*;
pub use speed::read_mb_per_s;
