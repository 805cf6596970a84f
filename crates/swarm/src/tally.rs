//! What was done in all.

use serde::Serialize;
use std::collections::BTreeMap;

/// Rows of the fault table that cases can exercise, and what they are about.
pub const ROWS: [(u8, &str); 20] = [
    (1, "power cut at any I/O boundary"),
    (2, "torn data in the cache"),
    (6, "cut mid-stripe, all members present"),
    (7, "cut while degraded"),
    (11, "cut in cleaning"),
    (12, "cut after a switch of the mode"),
    (14, "program killed"),
    (17, "cache vanishes, clean"),
    (18, "cache vanishes, dirty"),
    (19, "cache read error"),
    (21, "cache write error"),
    (22, "silent corruption in the cache"),
    (27, "stale cache returns"),
    (29, "core read error"),
    (31, "flush fails"),
    (32, "array loses members"),
    (35, "stale member returns"),
    (37, "misdirected write"),
    (38, "lost write"),
    (39, "slow or hung device"),
];

/// Counts of one case or many.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    pub cases: u64,
    /// Cases with as many requests, crashes and faults as one should have; the others ended before,
    /// by a refusal that a fault explains.
    pub full_cases: u64,
    pub lives: u64,
    pub requests: u64,
    pub failed_requests: u64,
    pub power_cuts: u64,
    pub kills: u64,
    pub clean_stops: u64,
    pub commands: u64,
    /// Faults that befell an operation or a device, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Opens that were refused, as they must be, by reason.
    pub refusals: BTreeMap<&'static str, u64>,
    /// Cases in which a row of the fault table was exercised.
    pub rows: BTreeMap<u8, u64>,
}

impl Tally {
    pub fn crashes(&self) -> u64 {
        self.power_cuts + self.kills
    }

    pub fn faults_total(&self) -> u64 {
        self.faults.values().sum()
    }

    pub(crate) fn fault(&mut self, kind: &'static str) {
        *self.faults.entry(kind).or_default() += 1;
    }

    pub(crate) fn row(&mut self, row: u8) {
        debug_assert!(ROWS.iter().any(|(known, _)| *known == row), "row {row} has a name");
        self.rows.insert(row, 1);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.cases += other.cases;
        self.full_cases += other.full_cases;
        self.lives += other.lives;
        self.requests += other.requests;
        self.failed_requests += other.failed_requests;
        self.power_cuts += other.power_cuts;
        self.kills += other.kills;
        self.clean_stops += other.clean_stops;
        self.commands += other.commands;
        add_all(&mut self.faults, &other.faults);
        add_all(&mut self.refusals, &other.refusals);
        add_all(&mut self.rows, &other.rows);
    }
}

fn add_all<K: Ord + Copy>(sum: &mut BTreeMap<K, u64>, other: &BTreeMap<K, u64>) {
    for (key, count) in other {
        *sum.entry(*key).or_default() += count;
    }
}
