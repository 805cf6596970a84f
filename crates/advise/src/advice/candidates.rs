//! All settings that are considered, predicted and ranked.

use serde::Serialize;

use super::loads::WeightedLoad;
use crate::facts::{CacheFacts, CoreFacts};
use crate::model::{CoreModel, Load, predict_cached};
use crate::settings::{CacheMode, Cleaning, SeqCutoff};

/// A cache that gains less than this over all streams is not worth its risk.
pub const GAIN_MIN: f64 = 1.1;

/// Gains that differ by less than this are decided by what is safer and spares the cache.
const NEARLY_AS_MUCH: f64 = 1.05;

/// A cache is full most of its life: sustained rates count more than bursts.
const SUSTAINED_WEIGHT: f64 = 0.7;

/// Cutoffs considered: 64 KiB to 64 MiB. The field's default comes first: equals keep their order.
const CUTOFFS: [u64; 11] = [
    1 << 20,
    2 << 20,
    512 << 10,
    4 << 20,
    256 << 10,
    8 << 20,
    128 << 10,
    16 << 20,
    64 << 10,
    32 << 20,
    64 << 20,
];

/// Requests a second of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StreamRates {
    pub without_cache: f64,
    /// While the cache absorbs.
    pub burst: f64,
    /// With the cache full of dirty data.
    pub sustained: f64,
    /// What the cache gains or would gain, burst and sustained together.
    pub gain_if_cached: f64,
    pub past_the_cache: bool,
}

/// One combination of settings.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub mode: CacheMode,
    pub cleaning: Cleaning,
    pub cutoff: SeqCutoff,
    pub streams: Vec<StreamRates>,
    /// Bytes that go through the cache without a gain, or past it although it would gain.
    misplaced_bytes: f64,
    /// Weighted logarithms of the gains.
    burst_log: f64,
    sustained_log: f64,
}

impl Candidate {
    pub(super) fn burst_gain(&self) -> f64 {
        self.burst_log.exp()
    }

    pub(super) fn sustained_gain(&self) -> f64 {
        self.sustained_log.exp()
    }

    /// What candidates are ranked by.
    pub(super) fn score(&self) -> f64 {
        weigh(self.burst_log, self.sustained_log)
    }
}

impl StreamRates {
    pub fn burst_gain(&self) -> f64 {
        self.burst / self.without_cache
    }

    pub fn sustained_gain(&self) -> f64 {
        self.sustained / self.without_cache
    }
}

/// Predicts every candidate.
pub(super) fn candidates(
    loads: &[WeightedLoad],
    core: &CoreFacts,
    cache: &CacheFacts,
) -> Vec<Candidate> {
    let mut all = Vec::new();
    let settings = [
        (CacheMode::PassThrough, Cleaning::Stripe),
        (CacheMode::WriteThrough, Cleaning::Stripe),
        (CacheMode::WriteBack, Cleaning::Stripe),
        (CacheMode::WriteBack, Cleaning::Nop),
    ];
    for (mode, cleaning) in settings {
        all.push(predict(loads, core, cache, (mode, cleaning, SeqCutoff::Never)));
        if mode == CacheMode::PassThrough {
            continue;
        }
        for bytes in CUTOFFS {
            let cutoff = SeqCutoff::Bytes(bytes);
            if loads.iter().any(|load| goes_past(&load.load, cutoff)) {
                all.push(predict(loads, core, cache, (mode, cleaning, cutoff)));
            }
        }
    }
    all
}

/// The best of the candidates whose mode is allowed: the one that gains most, unless a safer mode
/// gains nearly as much; pass-through when none gains enough.
pub(super) fn best(all: &[Candidate], allowed: impl Fn(CacheMode) -> bool) -> &Candidate {
    let safest_first = [CacheMode::PassThrough, CacheMode::WriteThrough, CacheMode::WriteBack];
    let mut chosen: Option<&Candidate> = None;
    for mode in safest_first.into_iter().filter(|&mode| allowed(mode)) {
        let Some(candidate) = best_of_mode(all, mode) else {
            continue;
        };
        let needed = match chosen.map(|chosen| chosen.mode) {
            None => f64::NEG_INFINITY,
            Some(CacheMode::PassThrough) => GAIN_MIN.ln(),
            Some(_) => NEARLY_AS_MUCH.ln(),
        };
        if candidate.score() >= chosen.map_or(0.0, Candidate::score) + needed {
            chosen = Some(candidate);
        }
    }
    chosen.expect("at least one mode is allowed")
}

/// Of the candidates that gain nearly as much as the best: the one that sends most where it
/// belongs, which spares the cache room and wear; of equals the one that keeps least dirty.
fn best_of_mode(all: &[Candidate], mode: CacheMode) -> Option<&Candidate> {
    let of_mode = || all.iter().filter(|candidate| candidate.mode == mode);
    let highest = of_mode().map(Candidate::score).reduce(f64::max)?;
    let good = of_mode().filter(|candidate| candidate.score() >= highest - NEARLY_AS_MUCH.ln());
    good.reduce(|best, next| {
        let better = next.misplaced_bytes.total_cmp(&best.misplaced_bytes);
        let dirtier = best.cleaning == Cleaning::Stripe && next.cleaning == Cleaning::Nop;
        let gains = next.score() > best.score() + 1e-9 && !dirtier && next.cutoff == best.cutoff;
        if better.is_lt() || (better.is_eq() && gains) { next } else { best }
    })
}

/// True when nearly all of a stream goes past the cache under this cutoff: its runs are much
/// longer, or each request by itself is.
pub(super) fn goes_past(load: &Load, cutoff: SeqCutoff) -> bool {
    match cutoff {
        SeqCutoff::Never => false,
        SeqCutoff::Bytes(cutoff) => {
            load.bytes > cutoff || (load.is_sequential && load.run_bytes > 4.0 * cutoff as f64)
        }
    }
}

fn predict(
    loads: &[WeightedLoad],
    core: &CoreFacts,
    cache: &CacheFacts,
    (mode, cleaning, cutoff): (CacheMode, Cleaning, SeqCutoff),
) -> Candidate {
    let plain = CoreModel::new(core);
    let mut streams = Vec::new();
    let (mut burst_log, mut sustained_log, mut total_s) = (0.0, 0.0, 0.0);
    let mut misplaced_bytes = 0.0;
    for WeightedLoad { load, requests } in loads {
        let without_cache = plain.requests_per_second(load);
        let rates = predict_cached(load, core, cache, mode, cleaning);
        let past_the_cache = goes_past(load, cutoff);
        let gain_if_cached =
            weigh((rates.burst / without_cache).ln(), (rates.sustained / without_cache).ln()).exp();
        let (burst, sustained) = match past_the_cache {
            true => (without_cache, without_cache),
            false => (rates.burst, rates.sustained),
        };
        if past_the_cache == (gain_if_cached >= GAIN_MIN) {
            misplaced_bytes += *requests as f64 * load.bytes as f64;
        }
        let rates = StreamRates { without_cache, burst, sustained, gain_if_cached, past_the_cache };
        let seconds = *requests as f64 / without_cache;
        burst_log += seconds * rates.burst_gain().ln();
        sustained_log += seconds * rates.sustained_gain().ln();
        total_s += seconds;
        streams.push(rates);
    }
    let weight = if total_s > 0.0 { 1.0 / total_s } else { 0.0 };
    let (burst_log, sustained_log) = (burst_log * weight, sustained_log * weight);
    Candidate { mode, cleaning, cutoff, streams, misplaced_bytes, burst_log, sustained_log }
}

fn weigh(burst_log: f64, sustained_log: f64) -> f64 {
    SUSTAINED_WEIGHT * sustained_log + (1.0 - SUSTAINED_WEIGHT) * burst_log
}
