//! Storage behind a network, of which only answers are known: an image of a Ceph cluster, a volume
//! of an array or of a cloud.
//!
//! The model is what was measured from outside: how long requests take alone, how many of 4 KiB a
//! second complete with so many in flight, and what longer ones add. All requests in flight share
//! the service evenly (processor sharing), at the rate that was measured with as many: with `n`
//! small requests in flight all the time, exactly that rate comes out, and latency grows with load
//! as it did there. Of mixed requests each has its share of the rate of its own kind.
//!
//! **Invariants**: no clock, no I/O; what is drawn comes from the seed. A request is in one stage:
//! served, or answered at a known time.
//!
//! **Not here**: where on the storage a request goes, caches and readahead there, thin
//! provisioning, recovery, other clients. What the network itself does is part of what was
//! measured; [`NetworkLink`](crate::NetworkLink) is for drives whose network is described.
//!
//! **Source**: L. Kleinrock, "Queueing Systems, Volume 2: Computer Applications", 1976, section 4.4
//! (processor sharing); ours has a rate that depends on the number in the queue.

mod model;
mod queue;

pub use model::{FlushParameters, RemoteModel, RemoteParameters, ServiceParameters};
pub use queue::RemoteQueue;

#[cfg(test)]
mod tests;
