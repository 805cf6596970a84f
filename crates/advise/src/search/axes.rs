//! What can be chosen: one axis for each setting, with the values that are tried.

use super::class_axis::{self, class_axis};
use super::{Candidate, Risk};
use crate::signature::Signature;
use headpond_cache::{CleaningConfig, CleaningPreset};
use headpond_volume::{CacheSettings, ClassSetting};

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
pub(super) const KEYS: [&str; 23] = [
    "mode",
    "cleaning",
    "seq-cutoff",
    class_axis::KEY,
    FULL_WAIT,
    IN_FLIGHT_MAX,
    "cleaning.stripe.low-percent",
    "cleaning.stripe.target-percent",
    "cleaning.stripe.high-percent",
    "cleaning.alru.wake-up-s",
    "cleaning.alru.staleness-s",
    "cleaning.alru.flush-max-buffers",
    "cleaning.alru.activity-threshold-ms",
    "cleaning.acp.wake-up-ms",
    "cleaning.acp.flush-max-buffers",
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

/// What all cleaners have in common.
const FULL_WAIT: &str = "cleaning.full-wait-ms";
const IN_FLIGHT_MAX: &str = "cleaning.in-flight-max";

/// Values besides those of the machine: a SATA drive has 32 tags, and 16 writes keep the queues of
/// an array short.
const OF_ALL_CLEANERS: [(&str, &[&str]); 2] =
    [(FULL_WAIT, &["5000", "0"]), (IN_FLIGHT_MAX, &["1024", "128", "16"])];

/// Cleaning sooner and later than at the pace that the default has.
const OF_STRIPE: [(&str, &[&str]); 3] = [
    ("cleaning.stripe.low-percent", &["10", "0"]),
    ("cleaning.stripe.target-percent", &["40", "20", "60"]),
    ("cleaning.stripe.high-percent", &["75", "90"]),
];

/// The preset's, those of the preset `lustre`, and the defaults of Open CAS.
const OF_ALRU: [(&str, &[&str]); 4] = [
    ("cleaning.alru.wake-up-s", &["0", "2", "20"]),
    ("cleaning.alru.staleness-s", &["1", "5", "120"]),
    ("cleaning.alru.flush-max-buffers", &["8192", "256", "100"]),
    ("cleaning.alru.activity-threshold-ms", &["0", "500", "10000"]),
];

/// The preset's, and the defaults of Open CAS.
const OF_ACP: [(&str, &[&str]); 2] = [
    ("cleaning.acp.wake-up-ms", &["1", "10"]),
    ("cleaning.acp.flush-max-buffers", &["8192", "128"]),
];

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
    pub(super) fn has(&self, value: &str) -> bool {
        self.values.iter().any(|it| it == value)
    }

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

    /// Only the values that hold.
    fn of(mut self, holds: impl Fn(u32) -> bool) -> Self {
        let standing = self.values[0].clone();
        let is_possible = |value: &str| holds(value.parse().expect("a per cent"));
        self.values.retain(|value| *value == standing || is_possible(value));
        self
    }
}

/// Whether a setting changes anything for who has these.
pub(super) fn is_of_use(key: &str, candidate: &Candidate) -> bool {
    if key == INSERTION_THRESHOLD {
        return candidate.value("promotion") == Some("nhit");
    }
    if key != "cleaning" && !key.starts_with("cleaning.") {
        return true;
    }
    // Who has nothing dirty has nothing to clean.
    let cleaning = candidate.value("cleaning");
    candidate.risk() == Risk::Dirty
        && match cleaner_of(key) {
            Some(cleaner) => cleaning == Some(cleaner),
            None => key != IN_FLIGHT_MAX || cleaning != Some("nop"),
        }
}

/// Whose parameter it is, where it is one of a single cleaner.
pub(super) fn cleaner_of(key: &str) -> Option<&'static str> {
    let policy = key.strip_prefix("cleaning.")?.split_once('.')?.0;
    CLEANINGS.into_iter().find(|cleaning| cleaning.starts_with(policy))
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
/// `cleaning` and `classes` are what the machine has now.
pub fn further_axes(
    signature: &Signature,
    freedom: Freedom,
    cleaning: CleaningConfig,
    classes: &ClassSetting,
) -> Vec<Axis> {
    let mut axes = cleaning_axes(cleaning);
    axes.extend([
        axis("promotion", ["always", "nhit"]),
        axis(INSERTION_THRESHOLD, ["3", "2", "5"]),
        axis("eviction", ["s3-fifo", "lru", "arc", "fifo", "adaptive"]),
        axis("bypass", ["off", "adaptive"]),
    ]);
    if has_long_runs(signature) {
        axes.push(axis("seq-cutoff", ["full", "never"].into_iter().chain(CUTOFFS)));
        axes.push(axis("merge-wait-us", ["auto", "off"]));
        axes.push(axis("readahead", ["adaptive", "off"]));
    }
    axes.extend(class_axis(signature, classes));
    if freedom.cache {
        axes.push(axis("line", ["4K", "64K"]));
    }
    if freedom.array {
        axes.push(axis("strip", STRIPS));
    }
    axes
}

/// Parameters of cleaners: each as it is on the machine, or in the preset that sets it.
fn cleaning_axes(cleaning: CleaningConfig) -> Vec<Axis> {
    let parameters = |of: &[(&'static str, &[&'static str])], cleaning: CleaningConfig| {
        let shown = CacheSettings { cleaning, ..CacheSettings::default() }.shown();
        let of_key = |&(key, values): &(&'static str, &[&'static str])| {
            let standing = shown.iter().find(|it| it.key == key).expect("a parameter is shown");
            let mut axis = axis(key, values.iter().copied());
            axis.values.retain(|value| *value != standing.value);
            axis.values.insert(0, standing.value.clone());
            axis
        };
        of.iter().map(of_key).collect::<Vec<Axis>>()
    };
    let mut axes = parameters(&OF_ALL_CLEANERS, cleaning);
    axes.extend(rising(parameters(&OF_STRIPE, cleaning), cleaning));
    let alru = CleaningPreset::AlruVeryAggressive.apply(cleaning);
    axes.extend(parameters(&OF_ALRU, alru));
    let acp = CleaningPreset::AcpVeryAggressive.apply(cleaning);
    axes.extend(parameters(&OF_ACP, acp));
    axes
}

/// Of the ratios of `stripe`, the values of which every combination rises.
fn rising(axes: Vec<Axis>, cleaning: CleaningConfig) -> Vec<Axis> {
    let [low, target, high] = <[Axis; 3]>::try_from(axes).expect("there are three ratios");
    let (low_now, high_now) = (cleaning.stripe.low_percent, cleaning.stripe.high_percent);
    let target = target.of(|percent| (low_now..=high_now).contains(&percent));
    let targets: Vec<u32> = target.values.iter().filter_map(|it| it.parse().ok()).collect();
    let low = low.of(|percent| targets.iter().all(|target| percent <= *target));
    let high = high.of(|percent| targets.iter().all(|target| percent >= *target));
    vec![low, target, high]
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
