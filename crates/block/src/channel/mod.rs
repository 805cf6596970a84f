//! A device on another thread: requests cross by a mailbox, and their memory is lent.
//!
//! 1. [`channel`] makes two ends, each of which is moved to its thread. 2. [`DeviceEnd::serve`]
//!    runs on the device's thread; [`ClientEnd::open`] answers with a [`ChannelDevice`] on that of
//!    the clients. 3. A request is kept on the clients' thread, and a message about it sent: its
//!    memory is lent to the device's thread, which makes buffers of it. 4. The answer comes when
//!    the device has completed the request; the memory is returned when the last of those buffers
//!    is dropped, which may be later, and is free from then on. 5. When the last [`ChannelDevice`]
//!    is dropped, the device's thread completes what was sent, and its end closes.
//!
//! **Invariants**
//! - Memory that is lent stays allocated until it is returned, even where its thread ends before.
//! - Counts of handles are each thread's own ([`Buffer`](crate::Buffer)): no handle crosses.
//! - A request has one answer. Where the device's thread ends, that is an error.
//! - At most as many requests are under way as the channel has places; further ones wait here.
//!
//! **Not here**: threads. A runtime crate starts them, and a simulation runs several executors.

mod atomics;
mod client;
mod mailbox;
mod server;

pub use client::{ChannelDevice, ClientEnd};
pub use mailbox::{Receiver, Sender, mailbox};
pub use server::DeviceEnd;

use crate::{ByteRange, Geometry, Hints, Outcome, RequestFlags, RequestKind};
use smallvec::SmallVec;

/// A request under way, by the number of its place on the clients' thread.
type Ticket = u32;

/// A request as it crosses.
struct Crossing {
    ticket: Ticket,
    kind: RequestKind,
    range: ByteRange,
    flags: RequestFlags,
    hints: Hints,
    memory: SmallVec<[Lent; 1]>,
}

/// Memory of a request. Whoever sends it keeps it allocated until it is returned.
struct Lent {
    /// `None` for buffers without payload.
    start: Option<std::ptr::NonNull<u8>>,
    len: usize,
}

// SAFETY: the memory belongs to the request, and with it to whichever thread has that: the clients'
// thread does not touch it between the message and the answer.
unsafe impl Send for Lent {}

/// What the device's thread says of a request: its answer first.
enum Reply {
    Answered(Ticket, Outcome),
    /// No buffer is left of its memory.
    Returned(Ticket),
}

/// A channel to a device with this geometry, for so many requests at a time.
///
/// # Panics
/// Where that is no power of two.
pub fn channel(geometry: Geometry, places: usize) -> (ClientEnd, DeviceEnd) {
    let (requests, received) = mailbox(places);
    // An answer and a return for each request.
    let (replies, answers) = mailbox(2 * places);
    (ClientEnd::new(geometry, requests, answers, places), DeviceEnd::new(received, replies))
}
