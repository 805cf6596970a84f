//! The advice: whether to cache, and every setting with its reason in figures.
//!
//! 1. Streams become loads (`loads`), with what the volume says about reuse.
//! 2. Every candidate (mode, cleaning, cutoff) is predicted for every stream by the model
//!    (`candidates`).
//! 3. The best one is taken if it gains enough; each setting is explained by the figures of the
//!    candidates that differ in it (`reasons`), and what could go wrong is said (`warnings`).
//!
//! **Invariants**: the decision comes out of predicted rates; no rule names a workload. Settings
//! that weaken durability are advised only where the situation allows them.
//!
//! **Not here**: applying settings; the model itself.

mod candidates;
mod loads;
mod reasons;
#[cfg(test)]
mod tests;
mod warnings;

use serde::Serialize;

use crate::facts::{CacheFacts, CoreFacts};
use crate::settings::{CacheMode, Cleaning, SeqCutoff, Setting};
use crate::signature::Signature;

pub use candidates::{GAIN_MIN, StreamRates};

use candidates::{Candidate, best, candidates};

/// What the advice may build on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Situation {
    /// The slow store; assumed, and said so, where `None`.
    pub core: Option<CoreFacts>,
    /// The fast store; likewise.
    pub cache: Option<CacheFacts>,
    /// Losing what is dirty at a power cut is acceptable: write-back on a volatile cache may be
    /// advised.
    pub may_lose_dirty: bool,
}

/// What to set, why, and what to expect.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// False: leave the cache out.
    pub cache: bool,
    pub mode: Reasoned<CacheMode>,
    pub cleaning: Reasoned<Cleaning>,
    pub seq_cutoff: Reasoned<SeqCutoff>,
    /// The same as keys and values for `headpond set`.
    pub settings: Vec<Setting>,
    /// What each stream gets, in the order of the signature.
    pub streams: Vec<StreamAdvice>,
    /// The best candidate of each mode.
    pub alternatives: Vec<Alternative>,
    pub warnings: Vec<String>,
    /// The devices that the figures hold for, and whether they were given or assumed.
    pub assumptions: Vec<String>,
    pub core: CoreFacts,
    pub cache_device: CacheFacts,
}

/// A decision and its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reasoned<T> {
    pub value: T,
    pub reason: String,
}

/// Predictions for one stream.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StreamAdvice {
    pub number: usize,
    pub description: String,
    /// Requests a second that the trace shows.
    pub measured: f64,
    pub rates: StreamRates,
    /// The advised cutoff sends it past the cache.
    pub past_the_cache: bool,
}

/// A setting that was considered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Alternative {
    pub mode: CacheMode,
    pub cleaning: Cleaning,
    pub seq_cutoff: SeqCutoff,
    /// Over all streams: mean gain weighted by the time that each takes without a cache.
    pub burst_gain: f64,
    pub sustained_gain: f64,
    /// Not allowed on this cache.
    pub refused: bool,
}

impl Advice {
    /// Draws advice from a signature.
    pub fn from(signature: &Signature, situation: &Situation) -> Self {
        let core = situation.core.unwrap_or_else(CoreFacts::assumed);
        let cache = situation.cache.unwrap_or_else(CacheFacts::assumed);
        let loads = loads::of(signature, &cache);
        let allowed =
            |mode| mode != CacheMode::WriteBack || !cache.lost_on_power || situation.may_lose_dirty;
        let all = candidates(&loads, &core, &cache);
        let chosen = best(&all, allowed);
        let streams = stream_advice(signature, chosen);
        Self {
            cache: chosen.mode != CacheMode::PassThrough,
            mode: reasons::of_mode(&all, chosen, &streams, &cache, allowed),
            cleaning: reasons::of_cleaning(&all, chosen, &loads, &cache),
            seq_cutoff: reasons::of_cutoff(&all, chosen, &streams),
            settings: settings(chosen),
            alternatives: alternatives(&all, allowed),
            warnings: warnings::all(signature, &loads, &cache, chosen, &streams),
            assumptions: reasons::assumptions(situation, &core, &cache),
            streams,
            core,
            cache_device: cache,
        }
    }

    /// The settings in one line, as `headpond set` takes them.
    pub fn settings_line(&self) -> String {
        self.settings.iter().map(Setting::to_string).collect::<Vec<_>>().join(" ")
    }
}

fn settings(chosen: &Candidate) -> Vec<Setting> {
    vec![
        Setting { key: "mode", value: chosen.mode.to_string() },
        Setting { key: "cleaning", value: chosen.cleaning.to_string() },
        Setting { key: "seq-cutoff", value: chosen.cutoff.to_string() },
    ]
}

fn stream_advice(signature: &Signature, chosen: &Candidate) -> Vec<StreamAdvice> {
    let streams = signature.streams.iter().zip(&chosen.streams);
    streams
        .map(|(stream, rates)| StreamAdvice {
            number: stream.number,
            description: stream.describe(),
            measured: stream.requests_per_second,
            rates: *rates,
            past_the_cache: rates.past_the_cache,
        })
        .collect()
}

fn alternatives(all: &[Candidate], allowed: impl Fn(CacheMode) -> bool) -> Vec<Alternative> {
    let modes = [CacheMode::WriteBack, CacheMode::WriteThrough, CacheMode::PassThrough];
    let best_of = |mode| best(all, |candidate| candidate == mode);
    modes
        .into_iter()
        .map(|mode| {
            let candidate = best_of(mode);
            Alternative {
                mode,
                cleaning: candidate.cleaning,
                seq_cutoff: candidate.cutoff,
                burst_gain: candidate.burst_gain(),
                sustained_gain: candidate.sustained_gain(),
                refused: !allowed(mode),
            }
        })
        .collect()
}
