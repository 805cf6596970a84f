//! What can be chosen: one axis for each setting, with the values that are tried.

use super::{Candidate, Risk};
use crate::signature::Signature;

/// A setting and its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// As `headpond set` and `headpond create` call it.
    pub key: &'static str,
    /// The first is what it is by itself.
    pub values: Vec<String>,
}

/// What may be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freedom {
    /// The cache is not there yet, or may be made anew.
    pub cache: bool,
    /// Nor is the array.
    pub array: bool,
}

/// All of them, in the order in which they are set.
pub(super) const KEYS: [&str; 12] = [
    "mode",
    "cleaning",
    "seq-cutoff",
    "cleaning.full-wait-ms",
    "promotion",
    INSERTION_THRESHOLD,
    "eviction",
    "bypass",
    "merge-wait-us",
    "readahead",
    "line",
    "strip",
];

/// Modes that never have the only copy of anything.
pub const SAFE_MODES: [&str; 3] = ["write-through", "write-around", "write-invalidate"];

/// Modes of which the cache may have the only copy.
pub const DIRTY_MODES: [&str; 2] = ["write-back", "write-only"];

/// Who cleans, of modes with dirty data; a preset by its own name.
pub const CLEANINGS: [&str; 4] = ["stripe", "alru-very-aggressive", "acp-very-aggressive", "nop"];

/// How often a block is asked for until it enters, with `promotion=nhit`.
pub(super) const INSERTION_THRESHOLD: &str = "promotion.insertion-threshold";

/// Settings that each candidate with a cache names.
pub(super) const MAIN_KEYS: [&str; 3] = ["mode", "cleaning", "seq-cutoff"];

/// What cannot be changed later.
pub(super) const CREATION_KEYS: [&str; 2] = ["line", "strip"];

/// Settings of the array, which it has without a cache too.
pub(super) const ARRAY_KEYS: [&str; 2] = ["merge-wait-us", "strip"];

/// Streams and requests shorter than the least of these are nobody's burden.
const CUTOFFS: [&str; 6] = ["64K", "256K", "1M", "4M", "16M", "64M"];
const CUTOFF_BYTES_MIN: u64 = 64 << 10;

/// The strips that are tried on an array that is not there yet.
const STRIPS: [&str; 5] = ["64K", "16K", "32K", "128K", "256K"];

impl Axis {
    /// With the value that is set now, where one is, as what it is by itself.
    #[must_use]
    pub(super) fn beginning_with(mut self, standing: Option<&Candidate>) -> Self {
        let Some(value) = standing.and_then(|standing| standing.value(self.key)) else {
            return self;
        };
        let value = value.to_owned();
        self.values.retain(|other| *other != value);
        self.values.insert(0, value);
        self
    }

    /// Whether it changes anything for who has these settings.
    pub(super) fn is_of_use_to(&self, candidate: &Candidate) -> bool {
        match self.key {
            // Who has nothing dirty has nothing to clean.
            "cleaning" => candidate.risk() == Risk::Dirty,
            INSERTION_THRESHOLD => candidate.value("promotion") == Some("nhit"),
            _ => true,
        }
    }
}

/// The axes whose values depend on each other most: they are tried in all combinations.
pub fn main_axes(signature: &Signature) -> Vec<Axis> {
    let modes = DIRTY_MODES.into_iter().chain(SAFE_MODES);
    let mut cutoffs = vec!["full"];
    if has_long_runs(signature) {
        cutoffs.extend(["never", "1M", "256K"]);
    }
    vec![axis(MAIN_KEYS[0], modes), axis(MAIN_KEYS[1], CLEANINGS), axis(MAIN_KEYS[2], cutoffs)]
}

/// The others, which are tried one after the other around the best of those.
pub fn further_axes(signature: &Signature, freedom: Freedom) -> Vec<Axis> {
    let mut axes = vec![
        axis("cleaning.full-wait-ms", ["5000", "0"]),
        axis("promotion", ["always", "nhit"]),
        axis(INSERTION_THRESHOLD, ["3", "2", "5"]),
        axis("eviction", ["s3-fifo", "lru", "arc", "fifo", "adaptive"]),
        axis("bypass", ["off", "adaptive"]),
    ];
    if has_long_runs(signature) {
        axes.push(axis("seq-cutoff", ["full", "never"].into_iter().chain(CUTOFFS)));
        axes.push(axis("merge-wait-us", ["auto", "off"]));
        axes.push(axis("readahead", ["adaptive", "off"]));
    }
    if freedom.cache {
        axes.push(axis("line", ["4K", "64K"]));
    }
    if freedom.array {
        axes.push(axis("strip", STRIPS));
    }
    axes
}

fn axis(key: &'static str, values: impl IntoIterator<Item = &'static str>) -> Axis {
    Axis { key, values: values.into_iter().map(str::to_owned).collect() }
}

/// Whether anything of it is long enough to go past the cache for its length.
fn has_long_runs(signature: &Signature) -> bool {
    signature.streams.iter().any(|stream| {
        let longest = stream.runs.as_ref().map_or(0, |runs| runs.longest_bytes);
        longest.max(stream.typical_bytes()) >= CUTOFF_BYTES_MIN
    })
}
