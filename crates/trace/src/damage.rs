//! What was wrong with what lenient reading passed over, and where it first was.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::Position;

/// What to do at damage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Damage {
    /// Stop with an error that says where it is.
    #[default]
    Fail,
    /// Skip to the next thing that looks sound, and count.
    Skip,
}

/// A kind of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DamageKind {
    /// A line or record that says nothing in its format, or something impossible.
    Unreadable,
    /// A line longer than any format has.
    Overlong,
    /// Bytes that begin no record.
    Foreign,
    /// A record of a version that is not known.
    Version,
    /// The end comes in the middle of a record.
    Truncated,
    /// A checksum that does not fit.
    Checksum,
    /// A recording without its end.
    Unfinished,
}

/// One kind of damage in one reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamageCount {
    pub places: u64,
    /// Bytes passed over there.
    pub skipped_bytes: u64,
    /// Where it was met first; in a set of files the place in its file.
    pub first: Position,
}

/// All damage of one reading, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "BTreeMap<DamageKind, DamageCount>", from = "BTreeMap<DamageKind, DamageCount>")]
pub struct DamageCounts {
    counts: [Option<DamageCount>; DamageKind::ALL.len()],
}

impl DamageKind {
    pub const ALL: [DamageKind; 7] = [
        DamageKind::Unreadable,
        DamageKind::Overlong,
        DamageKind::Foreign,
        DamageKind::Version,
        DamageKind::Truncated,
        DamageKind::Checksum,
        DamageKind::Unfinished,
    ];

    /// What a person reads.
    pub fn words(self) -> &'static str {
        match self {
            DamageKind::Unreadable => "unreadable records",
            DamageKind::Overlong => "overlong lines",
            DamageKind::Foreign => "foreign bytes",
            DamageKind::Version => "records of an unknown version",
            DamageKind::Truncated => "truncated records",
            DamageKind::Checksum => "blocks with a wrong checksum",
            DamageKind::Unfinished => "ends missing",
        }
    }
}

impl DamageCounts {
    /// Notes one place.
    pub(crate) fn note(&mut self, kind: DamageKind, at: Position, skipped_bytes: u64) {
        self.merge(kind, DamageCount { places: 1, skipped_bytes, first: at });
    }

    /// Adds what another reading met; its places come after those of this one.
    pub(crate) fn add(&mut self, other: DamageCounts) {
        other.iter().for_each(|(kind, count)| self.merge(kind, count));
    }

    /// The kinds that occurred.
    pub fn iter(&self) -> impl Iterator<Item = (DamageKind, DamageCount)> {
        let pairs = DamageKind::ALL.into_iter().zip(self.counts);
        pairs.filter_map(|(kind, count)| Some((kind, count?)))
    }

    /// Places of all kinds.
    pub fn places(&self) -> u64 {
        self.iter().map(|(_, count)| count.places).sum()
    }

    /// Bytes of all kinds.
    pub fn skipped_bytes(&self) -> u64 {
        self.iter().map(|(_, count)| count.skipped_bytes).sum()
    }

    fn merge(&mut self, kind: DamageKind, more: DamageCount) {
        let known = &mut self.counts[kind as usize];
        let before = known.map_or((0, 0), |known| (known.places, known.skipped_bytes));
        *known = Some(DamageCount {
            places: before.0 + more.places,
            skipped_bytes: before.1 + more.skipped_bytes,
            first: known.map_or(more.first, |known| known.first),
        });
    }
}

impl From<DamageCounts> for BTreeMap<DamageKind, DamageCount> {
    fn from(counts: DamageCounts) -> Self {
        counts.iter().collect()
    }
}

impl From<BTreeMap<DamageKind, DamageCount>> for DamageCounts {
    fn from(map: BTreeMap<DamageKind, DamageCount>) -> Self {
        let mut counts = DamageCounts::default();
        map.into_iter().for_each(|(kind, count)| counts.merge(kind, count));
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_by_kind_and_the_first_is_kept() {
        let mut counts = DamageCounts::default();
        counts.note(DamageKind::Checksum, Position::Byte(100), 20);
        counts.note(DamageKind::Foreign, Position::Byte(7), 3);
        counts.note(DamageKind::Checksum, Position::Byte(50), 5);
        let expected = DamageCount { places: 2, skipped_bytes: 25, first: Position::Byte(100) };
        assert!(counts.iter().any(|it| it == (DamageKind::Checksum, expected)));
        assert_eq!((counts.places(), counts.skipped_bytes()), (3, 28));
    }

    #[test]
    fn json_names_the_kinds_that_occurred_and_comes_back() {
        let mut counts = DamageCounts::default();
        counts.note(DamageKind::Overlong, Position::Line(3), 70_000);
        let json = serde_json::to_string(&counts).unwrap();
        let expected = r#"{"overlong":{"places":1,"skipped_bytes":70000,"first":{"line":3}}}"#;
        assert_eq!(json, expected);
        assert_eq!(serde_json::from_str::<DamageCounts>(&json).unwrap(), counts);
    }

    #[test]
    fn each_kind_stands_at_its_number() {
        for (number, kind) in DamageKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
        }
    }
}
