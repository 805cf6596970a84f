//! What the electronics of a drive take for a command, by case.
//!
//! Measured drives answer a command that they find in memory sooner than one that moves the arm,
//! and take their time differently after a read and after a write.

use super::parameters::InterfaceParameters;
use crate::error::{ModelError, require};
use serde::Deserialize;

/// Times by case, in milliseconds.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverheadParameters {
    pub read_hit: AfterParameters,
    pub read_miss: AfterParameters,
    /// A write that is answered when its data is in the cache.
    pub write_hit: AfterParameters,
    pub write_miss: AfterParameters,
    /// To prepare data for the interface, before the first of it is sent.
    #[serde(default)]
    pub read_data_ms: f64,
    #[serde(default)]
    pub write_data_ms: f64,
    /// To take up the interface again, where the drive had let it go while the arm moved.
    #[serde(default)]
    pub reconnect_ms: f64,
    /// A write keeps the interface if its data has come before the arm has stopped.
    #[serde(default)]
    pub stays_connected_in_seek: bool,
    /// From the last data to the answer.
    #[serde(default)]
    pub read_completion_ms: f64,
    #[serde(default)]
    pub write_completion_ms: f64,
}

/// The time of a case, by what the drive did before.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AfterParameters {
    pub after_read_ms: f64,
    pub after_write_ms: f64,
}

/// A direction of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Read,
    Write,
}

/// The same in nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Overheads {
    read: [After; 2],
    write: [After; 2],
    data_ns: [u64; 2],
    completion_ns: [u64; 2],
    pub reconnect_ns: u64,
    pub stays_connected_in_seek: bool,
}

#[derive(Clone, Copy, Debug)]
struct After {
    read_ns: u64,
    write_ns: u64,
}

impl Overheads {
    pub(super) fn new(interface: &InterfaceParameters) -> Self {
        let Some(by_case) = &interface.overheads else {
            let same_ns = nanos(interface.command_ms);
            let turned_ns = nanos(interface.command_ms + interface.turnaround_ms);
            return Self {
                read: [After { read_ns: same_ns, write_ns: turned_ns }; 2],
                write: [After { read_ns: turned_ns, write_ns: same_ns }; 2],
                data_ns: [0; 2],
                completion_ns: [0; 2],
                reconnect_ns: 0,
                stays_connected_in_seek: false,
            };
        };
        let after = |case: AfterParameters| After {
            read_ns: nanos(case.after_read_ms),
            write_ns: nanos(case.after_write_ms),
        };
        Self {
            read: [after(by_case.read_miss), after(by_case.read_hit)],
            write: [after(by_case.write_miss), after(by_case.write_hit)],
            data_ns: [by_case.read_data_ms, by_case.write_data_ms].map(nanos),
            completion_ns: [by_case.read_completion_ms, by_case.write_completion_ms].map(nanos),
            reconnect_ns: nanos(by_case.reconnect_ms),
            stays_connected_in_seek: by_case.stays_connected_in_seek,
        }
    }

    /// Before anything moves or is sent.
    pub(super) fn command_ns(&self, way: Way, is_hit: bool, before: Way) -> u64 {
        let case = match way {
            Way::Read => self.read[usize::from(is_hit)],
            Way::Write => self.write[usize::from(is_hit)],
        };
        match before {
            Way::Read => case.read_ns,
            Way::Write => case.write_ns,
        }
    }

    /// Before data is on the interface.
    pub(super) fn data_ns(&self, way: Way) -> u64 {
        self.data_ns[way as usize]
    }

    /// From the last data to the answer.
    pub(super) fn completion_ns(&self, way: Way) -> u64 {
        self.completion_ns[way as usize]
    }
}

impl OverheadParameters {
    pub(super) fn check(&self) -> Result<(), ModelError> {
        let cases = [self.read_hit, self.read_miss, self.write_hit, self.write_miss];
        let by_case = cases.iter().flat_map(|case| [case.after_read_ms, case.after_write_ms]);
        let others = [
            self.read_data_ms,
            self.write_data_ms,
            self.reconnect_ms,
            self.read_completion_ms,
            self.write_completion_ms,
        ];
        let sane = by_case.chain(others).all(|ms| (0.0..=10_000.0).contains(&ms));
        require(sane, "interface.overheads", "has a time that is not between 0 and 10,000 ms")
    }
}

fn nanos(ms: f64) -> u64 {
    (ms * 1e6) as u64
}
