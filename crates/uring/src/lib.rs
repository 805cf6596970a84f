//! The real runtime: one io_uring per thread; files, block devices, sockets and timers.
//!
//! [`run`] gives a thread a [`Ring`] below block's executor. [`FileDevice`] makes a regular file or
//! a block device a `BlockDevice`; [`SocketStream`] and [`SocketListener`] are `Stream` and
//! `Listener` over Unix and TCP sockets. [`safety`] reports what using a path would destroy.
//!
//! **Invariants**
//! - Memory that the kernel reads or writes is owned by the operation until it has completed, also
//!   after its waiter was dropped.
//! - FLUSH is fdatasync and FUA is RWF_DSYNC: an acknowledgement means what the kernel means by it.
//! - Everything of a ring stays on the ring's thread. Files whose server may hang (FUSE, NFS) have
//!   rings and threads of their own, which take entries and return completions.
//!
//! **Not here**: drive models and virtual time (`headpond-sim`), protocols, any policy.

mod driver;
mod error;
mod file;
mod memory_node;
mod ring;
mod run;
pub mod safety;
mod socket;
pub mod ublk;

pub use driver::RingDriver;
pub use error::{RingError, RunError};
pub use file::{
    Access, Allocation, Caching, FileDevice, FileOptions, FileProperties, Holder, OpenError,
    OpenFile, Ownership,
};
pub use memory_node::MemoryNode;
pub use ring::{Level, Ring, RingConfig, RingCounters};
pub use run::{RunConfig, run, run_with_pool};
pub use socket::{SocketListener, SocketStream};
