//! Facts and settings of a drive, as the kernel and the drive report them.
//!
//! 1. [`Drive::find`] finds the disk behind a path.
//! 2. [`Drive::kernel`] reads what `/sys` has; [`Drive::own`] queries the drive itself (SCSI mode
//!    pages, NVMe identify and features).
//! 3. [`Facts::of`] joins both, with evidence of power-loss protection, and reports where they
//!    disagree.
//! 4. [`switch`] turns the write cache on or off by a [`CacheControl`], or [`switch_by_hook`] by a
//!    command of the controller's vendor, and reads the state back.
//!
//! **Invariants**
//! - A fact names its source. What cannot be found out is unknown, with the reason; never guessed.
//! - A cache is flushed before it is switched off, and never switched before its state was saved.
//! - `queue/write_cache` is the kernel's assumption. It is never written, and never used as the
//!   drive's state.
//!
//! **Not here**: where states are saved (the binary's folder), output, RAID controllers' own
//! protocols.

mod ask;
mod control;
mod drive;
mod fact;
mod facts;
mod hook;
mod kernel;
mod own;
mod parse;
mod protection;
mod write_cache;

pub use ask::AskError;
pub use control::{
    CacheControl, ControlError, Lasting, SetError, Switched, switch, switch_by_hook,
};
pub use drive::{Drive, FindError, Protocol};
pub use fact::Fact;
pub use facts::Facts;
pub use hook::{Hook, HookError};
pub use kernel::KernelFacts;
pub use own::OwnFacts;
pub use protection::{Hint, Protection, Verdict};
pub use write_cache::{CacheState, Setting};
