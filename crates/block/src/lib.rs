//! The central interface of Headpond: block devices, their memory, and the executor.
//!
//! Everything that stores data (files, RAM, drive models, arrays, caches, NBD clients) is a
//! [`BlockDevice`]; everything that waits runs on one [`Executor`] per thread. The real runtime and
//! the virtual-time runtime differ only in the [`Driver`] below that executor, so the same engine
//! source runs on both.
//!
//! **Invariants**
//! - A device holds its own handles to the memory of an operation until it completes, so that a
//!   dropped [`Submission`] never frees memory that hardware or the kernel still uses.
//! - A write is durable when a later FLUSH, or its own FUA, has been acknowledged, and not before.
//! - No clock, thread, file or socket is touched here: only drivers do that.
//!
//! **Not here**: files, sockets and rings (`headpond-uring`), models and virtual time
//! (`headpond-sim`), and any policy.

pub mod buffer;
pub mod channel;
pub mod decorators;
pub mod defect;
pub mod device;
pub mod devices;
mod error;
mod error_log;
pub mod executor;
mod geometry;
pub mod memory;
mod prefetch;
mod range;
mod remote;
mod request;
mod size;
mod started;
pub mod stream;
pub mod sync;
mod time;

pub use buffer::{Buffer, BufferPool, Buffers, PoolClass, PoolConfig};
pub use device::{BlockDevice, Copies, Outcome, Submission};
pub use error::{Cause, DeviceError, DeviceName};
pub use error_log::{DeviceErrors, ErrorCause, ErrorKind, ErrorLog, LastError};
pub use executor::{
    Driver, Executor, JoinHandle, Late, Order, Runtime, Stalled, Starter, VirtualClock, Wait,
};
pub use geometry::{ChangingGeometry, Geometry, Stability, StripeGeometry};
pub use prefetch::prefetch;
pub use range::ByteRange;
pub use remote::{OnLoss, RemoteStatus, RemoteStorage};
pub use request::{Hints, Request, RequestFlags, RequestKind};
pub use size::{Size, SizeError};
pub use started::{Started, start};
pub use stream::{Listener, LocalFuture, MovedStream, Stream};
pub use time::{Instant, UtcTime, UtcTimeError};

/// The smallest unit of validity in a cache, and the alignment of every pooled buffer, in bytes.
pub const BLOCK_BYTES: u64 = 4096;

/// What the kernel calls a sector, in bytes.
pub const SECTOR_BYTES: u64 = 512;
