//! Answers of a daemon.
//!
//! **Invariants**
//! - Keys and enumerated values are in snake_case; a setting has the value that `set` takes.
//! - Within one [`SCHEMA`] fields are added, and none is renamed or removed (`docs/openapi.json`).

mod status;

pub use status::{
    BlockDeviceStatus, CacheAnswer, ClientStatus, CoreAnswer, LoadingStatus, ServerStatus,
    ServiceState, Status,
};

use headpond_volume::StatsReport;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Version of all answers.
pub const SCHEMA: u32 = 1;

/// Any answer with its version, as it goes over the socket and to `--json`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "{A}Document")]
pub struct Versioned<A> {
    pub schema: u32,
    #[serde(flatten)]
    pub answer: A,
}

impl<A> Versioned<A> {
    pub fn new(answer: A) -> Self {
        Self { schema: SCHEMA, answer }
    }
}

/// An export that is a block device of the kernel.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AttachedDevice {
    pub export: String,
    /// Its path.
    pub device: String,
}

/// Statistics of a served volume since it was opened or its counters were reset.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Stats {
    pub name: String,
    /// In UTC, where there is a cache or a tier.
    pub counted_since: Option<String>,
    #[serde(flatten)]
    pub report: StatsReport,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Flushed {
    pub cleaned_bytes: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Resized {
    /// It had this size already, and keeps its data.
    pub is_unchanged: bool,
    pub status: Status,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RecordingStarted {
    pub output: PathBuf,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Recorded {
    pub records: u64,
    /// Requests missing from the file, which could not be written fast enough.
    pub dropped: u64,
}

/// The volume is closed, and its daemon ends.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Stopped {}
