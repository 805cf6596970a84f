//! The metrics of a volume, in the text format of Prometheus.
//!
//! 1. The data thread takes one [`Snapshot`]: the status, and the counters as they are. 2. The
//!    control thread, or a command for a volume that is not served, renders it.
//!
//! **Invariants**
//! - A metric is a [`Family`] of [`GROUPS`]: `docs/metrics.md` has a row for each of them.
//! - All figures of a scrape are of one moment.
//! - A name that a client or an administrator chose is a label, and cannot end its line.
//!
//! **Not here**: who may ask (`control`), and the address that a monitoring system scrapes
//! (`headpond metrics`).
//!
//! **Source**: <https://prometheus.io/docs/instrumenting/exposition_formats/>, version 0.0.4.

mod arrays;
mod cache;
mod cores;
mod exposition;
mod family;
mod merge;
mod server;
mod volume;

use exposition::Exposition;
pub use family::{Family, GROUPS, Kind, document};
use headpond_api::answers::Status;
use headpond_volume::VolumeCounts;
pub use merge::merge;
use std::time::Duration;

/// A volume at one time.
#[derive(Debug)]
pub struct Snapshot {
    pub status: Status,
    /// Of a volume that is served.
    pub served: Option<Served>,
}

#[derive(Debug)]
pub struct Served {
    pub counts: VolumeCounts,
    /// Time that the data thread has taken for this.
    pub took: Duration,
}

impl Snapshot {
    /// Of a volume that is not served, or whose daemon does not answer.
    pub fn without_daemon(status: Status) -> Self {
        Self { status, served: None }
    }

    pub fn render(&self) -> String {
        let Self { status, served } = self;
        let mut out = Exposition::new(&status.name);
        volume::add(&mut out, status, served.as_ref());
        if let Some(Served { counts, .. }) = served {
            cores::add(&mut out, status, counts);
            server::add(&mut out, status);
            cache::add(&mut out, status, counts);
        }
        arrays::add(&mut out, status, served.as_ref().map(|it| &it.counts));
        out.finish()
    }
}

/// Of a volume that nothing could be found out about.
pub fn of_failure(volume: &str) -> String {
    let mut out = Exposition::new(volume);
    volume::add_failure(&mut out);
    out.finish()
}

#[cfg(test)]
mod tests;
