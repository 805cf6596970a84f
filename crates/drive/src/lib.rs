//! What a drive is and how it is set, by the kernel's word and by its own.
//!
//! 1. [`Drive::find`] finds the disk behind a path.
//! 2. [`Drive::kernel`] reads what `/sys` has; [`Drive::own`] asks the drive itself (SCSI mode
//!    pages, NVMe identify and features).
//! 3. [`Facts::of`] joins both, with hints at power-loss protection, and says where they disagree.
//! 4. [`switch`] turns the write cache on or off by a [`CacheControl`], or [`switch_by_hook`] by a
//!    command of the controller's maker, and reads back what the drive has made of it.
//!
//! **Invariants**
//! - A fact names its source. What cannot be found out is unknown and says why; it is never
//!   guessed.
//! - A cache is flushed before it is switched off, and nothing is switched whose state before was
//!   not kept.
//! - `queue/write_cache` is the kernel's belief. It is never written, and never taken for the
//!   drive's state.
//!
//! **Not here**: where states are kept (the binary's folder), what is printed, RAID controllers'
//! own protocols.

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
