//! What the settings of an advice come to: each by its name, and all of them together.

use super::Occasion;
use crate::advice::Advice;
use crate::search::Setting;
use crate::situation::Situation;
use headpond_cache::Mode;
use headpond_volume::{ArraySettings, CacheSettings, SettingChange, Size};
use headpond_whatif::{CoreStack, Kind};
use std::fmt;

/// A setting as the user sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub key: String,
    pub value: String,
}

/// The advice, and the machine that it is for.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// False: no cache at all.
    pub has_cache: bool,
    /// Those of the advice, and those that the machine had before and keeps.
    pub settings: Vec<Named>,
    /// All of a cache.
    pub cache: CacheSettings,
    pub line: Size,
    pub cache_bytes: u64,
    pub is_lost_on_power: bool,
    pub core: CoreStack,
    /// What is set now does nearly as much: nothing is to be done.
    pub stays: bool,
    /// Of all requests, reads that the cache answers.
    pub reads_answered: f64,
    pub occasion: Occasion,
}

impl Wanted {
    /// # Panics
    /// Where the machine has no cache, or a setting of the advice is none.
    pub(super) fn of(advice: &Advice, situation: &Situation, occasion: &Occasion) -> Self {
        let stack = &situation.stack;
        let before = stack.cache.as_ref().expect("advice is about a cache");
        let mut cache = before.settings.clone();
        let (mut core, mut line) = (stack.core.clone(), before.line);
        let size = |setting: &Setting| setting.value.parse::<Size>().expect("a size");
        for setting in &advice.settings {
            match setting.key {
                "strip" => core.strip = size(setting),
                "line" => line = size(setting),
                _ => cache = changed(cache, setting),
            }
        }
        let named = |it: &Setting| Named { key: it.key.to_owned(), value: it.value.clone() };
        let mut settings: Vec<Named> = advice.settings.iter().map(named).collect();
        if advice.cache {
            settings.extend(kept(&before.settings, &cache, &settings));
        }
        settings.extend(kept_of_array(&stack.array, &settings));
        Self {
            has_cache: advice.cache,
            settings,
            cache,
            line,
            cache_bytes: before.size.bytes(),
            is_lost_on_power: situation.cache_is_lost_on_power,
            core,
            stays: advice.leaves_as_it_is(),
            reads_answered: reads_answered(advice),
            occasion: occasion.clone(),
        }
    }

    pub(super) fn mode(&self) -> Mode {
        self.cache.mode
    }
}

fn changed(cache: CacheSettings, setting: &Setting) -> CacheSettings {
    let change: SettingChange = setting.to_string().parse().expect("a key and a value");
    match change.is_of_array() {
        true => cache,
        false => cache.with_all(&[change]).expect("it was replayed with this setting"),
    }
}

/// What was set before, is not what it is by itself, and is not changed by the advice.
fn kept(before: &CacheSettings, after: &CacheSettings, named: &[Named]) -> Vec<Named> {
    let after = after.shown();
    let pairs = before.shown().into_iter().zip(after);
    let is_kept = |(old, new): &(_, _)| {
        let (old, new): (&headpond_volume::ShownSetting, &headpond_volume::ShownSetting) =
            (old, new);
        old.value != old.default && old.value == new.value && old.key != "preset"
    };
    let kept = pairs.filter(is_kept).map(|(old, _)| Named { key: old.key, value: old.value });
    kept.filter(|it| named.iter().all(|other| other.key != it.key)).collect()
}

fn kept_of_array(before: &ArraySettings, named: &[Named]) -> Vec<Named> {
    let set = before.shown().into_iter().filter(|it| it.value != it.default);
    let set = set.map(|it| Named { key: it.key, value: it.value });
    set.filter(|it| named.iter().all(|other| other.key != it.key)).collect()
}

fn reads_answered(advice: &Advice) -> f64 {
    let all: u64 = advice.kinds.iter().map(|kind| kind.requests).sum();
    let reads = advice.kinds.iter().filter(|kind| kind.kind == Kind::Read);
    let reads: u64 = reads.map(|kind| kind.requests).sum();
    advice.with_advice.read_hit_ratio * reads as f64 / all.max(1) as f64
}

impl Named {
    /// What it is a part of.
    pub(super) fn root(&self) -> &str {
        self.key.split('.').next().unwrap_or_default()
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}
