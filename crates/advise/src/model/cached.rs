//! The core behind a cache: while the cache absorbs, and when it is full of dirty data.

use serde::Serialize;

use crate::facts::{CacheFacts, CoreFacts};
use crate::model::Load;
use crate::model::core::{CoreModel, closed_loop};
use crate::settings::{CacheMode, Cleaning};

/// Share of the cache that may be dirty.
const USABLE: f64 = 0.85;

/// Share of the array's full-stripe rate that the cleaner reaches.
const CLEANER_EFFICIENCY: f64 = 0.9;

/// Requests a second behind a cache.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CachedRates {
    /// While the cache has room for what is written.
    pub burst: f64,
    /// With the cache full of dirty data.
    pub sustained: f64,
}

/// Rates of this load in this mode with this cleaning, not counting a bypass.
pub fn predict_cached(
    load: &Load,
    core: &CoreFacts,
    cache: &CacheFacts,
    mode: CacheMode,
    cleaning: Cleaning,
) -> CachedRates {
    let model = Behind { core: CoreModel::new(core), facts: core, cache, load };
    match mode {
        CacheMode::PassThrough => {
            let rate = model.core.requests_per_second(load);
            CachedRates { burst: rate, sustained: rate }
        }
        CacheMode::WriteThrough => {
            let rate = model.write_through();
            CachedRates { burst: rate, sustained: rate }
        }
        CacheMode::WriteBack => {
            let burst = model.absorbing();
            let sustained = match cleaning {
                Cleaning::Stripe => model.cleaning().min(burst),
                Cleaning::Nop if model.never_fills() => burst,
                Cleaning::Nop => model.write_through().min(burst),
            };
            CachedRates { burst, sustained }
        }
    }
}

/// True when everything that the load writes stays in the cache: it then never fills up.
pub fn writes_fit(load: &Load, cache: &CacheFacts) -> bool {
    load.footprint_bytes <= cache.size_bytes as f64 * USABLE
}

struct Behind<'a> {
    core: CoreModel<'a>,
    facts: &'a CoreFacts,
    cache: &'a CacheFacts,
    load: &'a Load,
}

impl Behind<'_> {
    /// Writes as without a cache, reads from the cache where they hit.
    fn write_through(&self) -> f64 {
        let plain_ms = 1e3 * self.load.depth / self.core.requests_per_second(self.load);
        let hits = self.load.read_share * self.load.read_hits;
        let rate = self.load.depth / (plain_ms * (1.0 - hits) + self.hit_ms() * hits) * 1e3;
        rate.min(self.cache_limit())
    }

    /// Every write is absorbed; reads that miss go to a core that has nothing else to do.
    fn absorbing(&self) -> f64 {
        self.rate(0.0)
    }

    /// As many writes come in as are cleaned.
    fn cleaning(&self) -> f64 {
        if self.never_fills() {
            return self.absorbing();
        }
        if self.load.is_sequential {
            let bytes = self.load.bytes as f64;
            let written = (1.0 - self.load.read_share).max(1e-9);
            let cleaned = self.core.full_stripe_bytes_per_second() * CLEANER_EFFICIENCY;
            return (cleaned.min(self.through_cache()) / bytes / written).min(self.absorbing());
        }
        self.rate(self.core.clean_work_ms(self.load.bytes, self.per_stripe()))
    }

    fn rate(&self, clean_work_ms: f64) -> f64 {
        let load = self.load;
        let misses = load.read_share * (1.0 - load.read_hits);
        let writes = 1.0 - load.read_share;
        if load.is_sequential && misses > 0.0 {
            let core = self.core.requests_per_second(&Load { read_share: 1.0, ..*load });
            return 1.0 / (misses / core + (1.0 - misses) / self.cache_limit());
        }
        let hit_ms = self.hit_ms() * load.read_share * load.read_hits;
        let miss_ms = misses * self.core.random_read_ms(load.bytes);
        let response_ms = miss_ms + hit_ms + writes * self.write_ms();
        let work_ms = misses * self.core.read_work_ms(load.bytes, 1.0)
            + writes * (1.0 - load.overwrites) * clean_work_ms;
        closed_loop(load.depth, response_ms, work_ms).min(self.cache_limit())
    }

    /// Dirty requests that the cleaner finds in one stripe: the denser, the cheaper each.
    fn per_stripe(&self) -> f64 {
        let dirty = (self.cache.size_bytes as f64 * USABLE).min(self.load.footprint_bytes);
        let stripe = self.facts.stripe_bytes() as f64;
        let share = (dirty / self.load.range_bytes.max(1.0)).min(1.0);
        let mean = share * stripe / self.load.bytes as f64;
        // Of stripes that have any at all.
        if mean < 1e-6 { 1.0 } else { mean / (1.0 - (-mean).exp()) }
    }

    fn never_fills(&self) -> bool {
        writes_fit(self.load, self.cache)
    }

    fn hit_ms(&self) -> f64 {
        self.cache.read_us / 1e3 + self.load.bytes as f64 / (self.cache.read_mb_s * 1e3)
    }

    fn write_ms(&self) -> f64 {
        self.cache.write_us / 1e3 + self.load.bytes as f64 / (self.cache.write_mb_s * 1e3)
    }

    /// Bytes a second that can be written to the cache and read from it for cleaning at once.
    fn through_cache(&self) -> f64 {
        1e6 / (1.0 / self.cache.write_mb_s + 1.0 / self.cache.read_mb_s)
    }

    /// Requests a second that the cache device can take at most.
    fn cache_limit(&self) -> f64 {
        let load = self.load;
        let seconds = load.bytes as f64
            * (load.read_share / self.cache.read_mb_s
                + (1.0 - load.read_share) / self.cache.write_mb_s)
            / 1e6;
        (1.0 / seconds).min(self.cache.iops_max)
    }
}
