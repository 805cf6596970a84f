//! A RAID controller or host adapter between the host and its drives, as a decorator of each drive.
//!
//! What it has is shared by all drives behind it: a processor that goes through so many commands
//! a second, a link to the host, and perhaps a protected cache. In write-back a write is answered
//! when it is in the cache, and goes to its drive later, in the order of addresses; when the cache
//! is full, writes wait for that, and their latency is that of the drives. A drive behind it is
//! what such controllers call a volume of one drive: the array is ours.
//!
//! **Invariants**
//! - What the cache holds of a drive does not overlap; what is being written to the drive is
//!   written over only after that has ended.
//! - A read sees the newest data, wherever it is.
//!
//! **Not here**: reading ahead, the controller's own RAID levels, what a power cut leaves.

mod behind;
mod cache;
mod parameters;

pub use behind::Controller;
pub use parameters::{
    CacheMode, CeilingParameters, ControllerCacheParameters, ControllerModel, FlushRule,
};
