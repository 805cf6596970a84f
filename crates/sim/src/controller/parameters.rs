//! The description of a controller as its data file gives it.

use crate::error::{ModelError, require, require_all};
use crate::kind::Kind;
use serde::Deserialize;

/// One model file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerModel {
    pub kind: Kind,
    pub name: String,
    pub description: String,
    pub ceilings: CeilingParameters,
    pub cache: ControllerCacheParameters,
    /// What it sets the drives' own write caches to; left out, it leaves them.
    #[serde(default)]
    pub drive_write_cache: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CeilingParameters {
    /// Added to every command, and to those that write the cache to the drives.
    pub command_us: f64,
    /// Commands that the processor passes on.
    pub iops_max: f64,
    /// Commands that go through its cache, which costs it more; the same where it is left out.
    #[serde(default)]
    pub cached_iops_max: Option<f64>,
    /// Of the link to the host, each way.
    pub mb_per_s: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheMode {
    WriteThrough,
    WriteBack,
}

/// What becomes of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlushRule {
    /// The cache is written to the drives, and they are flushed.
    PassedOn,
    /// It is answered: what the cache holds is safe there, and the drives are trusted.
    Answered,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerCacheParameters {
    pub mode: CacheMode,
    /// The rest is left out in write-through.
    #[serde(default)]
    pub capacity_mib: u64,
    /// Writes that are under way to each drive.
    #[serde(default = "one")]
    pub destage_depth: usize,
    /// The most that is written to a drive at once.
    #[serde(default = "destage_kib")]
    pub destage_kib: u64,
    /// How full the cache is before anything is written to the drives.
    #[serde(default)]
    pub destage_from_percent: u64,
    pub flush: FlushRule,
}

const fn one() -> usize {
    1
}

const fn destage_kib() -> u64 {
    256
}

impl ControllerModel {
    /// Whether its volumes say that they have a cache.
    pub fn reports_a_cache(&self) -> bool {
        self.cache.mode == CacheMode::WriteBack
    }

    /// # Errors
    /// Names the line or the field that is wrong.
    pub fn parse(text: &str) -> Result<Self, ModelError> {
        let model: Self = toml::from_str(text)?;
        model.check()?;
        Ok(model)
    }

    fn check(&self) -> Result<(), ModelError> {
        let (ceilings, cache) = (&self.ceilings, &self.cache);
        let time = [("ceilings.command_us", ceilings.command_us)];
        require_all(&time, 0.0..=1e6, "is not between 0 and 1,000,000 us")?;
        let counts = [
            ("ceilings.iops_max", ceilings.iops_max),
            ("ceilings.cached_iops_max", ceilings.cached_iops_max.unwrap_or(1.0)),
        ];
        require_all(&counts, 1.0..=1e8, "is not between 1 and 100,000,000 a second")?;
        let rate = [("ceilings.mb_per_s", ceilings.mb_per_s)];
        require_all(&rate, 1.0..=1e6, "is not between 1 and 1,000,000 MB/s")?;
        let depth = (1..=1024).contains(&cache.destage_depth);
        require(depth, "cache.destage_depth", "is not between 1 and 1024")?;
        let unit = (4..=16_384).contains(&cache.destage_kib);
        require(unit, "cache.destage_kib", "is not between 4 and 16,384 KiB")?;
        let percent = cache.destage_from_percent <= 90;
        require(percent, "cache.destage_from_percent", "is not between 0 and 90")?;
        let is_cache = cache.mode == CacheMode::WriteBack;
        let capacity = !is_cache || (1..=1 << 20).contains(&cache.capacity_mib);
        require(capacity, "cache.capacity_mib", "is not between 1 MiB and 1 TiB")
    }
}
