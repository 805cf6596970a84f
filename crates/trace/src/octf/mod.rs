//! Traces of the Open CAS Telemetry Framework, version 1: a folder of queues (`octf.trace.N`), or a
//! tar of it, each queue a row of length-delimited protobuf messages.
//!
//! 1. `archive.rs` finds the queues. 2. `queue.rs` reads one, `message.rs` decodes its messages. 3.
//!    [`OctfEvents`] joins them by time and tells completions what it was that completed. 4. The
//!    events are paired into requests like the kernel's.
//!
//! **Invariants**: a queue in a folder streams through one buffer; queues of a tar are held whole,
//! at most `ARCHIVE_BYTES_MAX` together, because they lie one behind the other.
//!
//! **Source**: open-cas-telemetry-framework, `source/octf/proto/trace.proto`.

mod archive;
mod merge;
mod message;
mod queue;
#[cfg(test)]
mod tests;

pub(crate) use archive::{is_archive, queues_of, unpack};
pub(crate) use merge::OctfEvents;
pub(crate) use message::begins_queue;
pub(crate) use queue::OctfQueue;

/// What is looked at to recognise a queue or a tar.
pub(crate) const HEAD_BYTES: usize = message::LENGTH_BYTES_MAX + message::MESSAGE_BYTES_MAX;
