//! Block devices of the kernel, `/dev/ublkbN`, whose requests are served here.
//!
//! 1. [`Devices`] has the driver make a device of [`Parameters`], or take over one whose server is
//!    gone. 2. [`serve`] asks for requests with every tag of a queue, carries each out on a
//!    `BlockDevice`, and answers it. 3. The block device is shown, or goes on, when every tag is
//!    asked with. 4. At the end the device is removed; or it stays, and its requests wait for the
//!    next server.
//!
//! **Invariants**
//! - A request is answered once, when the device has completed it. One that was not answered when
//!   the server ended is given to the next one: it may have been carried out, and is carried out
//!   again.
//! - Memory that the kernel copies to or from is nobody else's meanwhile.
//! - Commands to the driver are never given on the thread that serves: they wait for it.
//!
//! **Not here**: which volumes have devices, their names, and who uses them.
#![forbid(unsafe_code)]

mod devices;
mod features;
mod information;
mod memory;
mod parameters;
mod request;
mod server;
#[cfg(test)]
mod tests;

pub use devices::{Devices, DriverError};
pub use features::{Features, Flags};
pub use information::{Information, State};
pub use parameters::{IO_BYTES_MAX, Parameters, Shape};
pub use server::{Queue, Service, serve};
