//! Synchronisation of tasks on one thread: no atomics, no poisoning, FIFO order.

mod busy;
mod join;
mod key_locks;
mod notify;
mod oneshot;
mod range_locks;
mod semaphore;
mod waiter;

pub use busy::{Busy, BusyGuard};
pub use join::join_all;
pub use key_locks::{KeyGuard, KeyLocks};
pub use notify::Notify;
pub use oneshot::{Receiver, Sender, oneshot};
pub use range_locks::{Access, RangeGuard, RangeLocks};
pub use semaphore::{Permit, Semaphore};
