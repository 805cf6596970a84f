//! Devices of commands: those of a daemon, exports of servers, and who else names them.

pub mod claims;
mod export;
mod speed;

pub use export::{Export, ends};
pub use headpond_daemon::device::*;
pub use speed::read_mb_per_s;
