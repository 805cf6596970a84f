//! What was done in all.

use crate::faults::{Damage, Ill};
use serde::Serialize;
use std::collections::BTreeMap;

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
    /// Arrays that were given more members and opened with their new size.
    pub grown: u64,
    /// Copies of RAID 1 that were added, and that were given up.
    pub copies_added: u64,
    pub copies_dropped: u64,
    /// Stripe journals that were exchanged or given, and that were taken away.
    pub journals_set: u64,
    pub journals_dropped: u64,
    /// Cores that were taken away, or made and added.
    pub cores_switched: u64,
    /// Sectors of members that changed while nothing ran, and were put right.
    pub rot_healed: u64,
    /// Members that came back to their role.
    pub returned: u64,
    /// Caches on copies that had all of them again, after some were lost.
    pub copies_filled: u64,
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

    /// A fault has befallen.
    pub(crate) fn note(&mut self, ill: Ill) {
        *self.faults.entry(ill.kind()).or_default() += 1;
        if let Some(row) = ill.row() {
            self.row(row);
        }
        if ill.damage().is_some_and(|(_, damage)| damage == Damage::Revert) {
            // The flush that made the write stable has lied.
            self.row(5);
        }
    }

    pub(crate) fn row(&mut self, row: u8) {
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
        self.grown += other.grown;
        self.copies_added += other.copies_added;
        self.copies_dropped += other.copies_dropped;
        self.journals_set += other.journals_set;
        self.journals_dropped += other.journals_dropped;
        self.cores_switched += other.cores_switched;
        self.rot_healed += other.rot_healed;
        self.returned += other.returned;
        self.copies_filled += other.copies_filled;
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
