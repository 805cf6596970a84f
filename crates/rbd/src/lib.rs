//! Images of Ceph (RBD) as block devices.
//!
//! librbd is loaded when the first image is opened ([`library`]): nothing of Headpond depends on it
//! otherwise. Decision 0053.
//!
//! Lifecycle: 1. [`OpenImage::open`] connects, opens and locks, blocking, on a thread that may; 2.
//! [`RbdDevice::new`] gives the image two threads: one submits requests ([`queue`]), so that no
//! lock inside librbd stops the data thread, one asks once a second whether the image's lock is
//! held ([`keeper`]); 3. librbd's own threads complete requests, and wake the data thread; 4. the
//! last handle has the image closed aside, once all requests have completed:
//! [`wait_until_closed`].
//!
//! **Invariants**
//! - Memory of a request is kept until librbd has completed it, also where its submission is
//!   dropped.
//! - Nothing is written without the image's exclusive lock. Once it is lost nothing is asked of the
//!   image any more: [`RemoteStorage`] tells, and all requests fail.
//! - A cluster that does not answer is waited for, without a limit.
//!
//! **Not here**: what a lost lock means for a volume (`headpond-volume`, ownership).
//!
//! **Source**: `librbd.h` and `librados.h` of Ceph 16.2.
//!
//! [`RemoteStorage`]: headpond_block::RemoteStorage

mod address;
mod answers;
mod device;
mod image;
mod keeper;
mod library;
mod queue;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod twin;

pub use address::{AddressError, ImageAddress};
pub use device::RbdDevice;
pub use image::{ImageError, OpenImage, Opener, wait_until_closed};
pub use library::{LibraryError, check_library};
