//! What a volume counts, as it is: what another thread sums up and renders costs requests nothing.

use crate::assembly::cached::Cached;
use crate::history::DeviceReport;
use crate::serving::endpoint::CoreCounts;
use crate::serving::readahead::ReadaheadStats;
use crate::volume::Volume;
use headpond_cache::{LatencyStats, SliceStats};

/// Counters of a volume at one time, since it was opened or they were reset.
#[derive(Clone, Debug)]
pub struct VolumeCounts {
    pub cache: Option<CacheCounts>,
    /// The cache in memory in front of it.
    pub tier: Option<CacheCounts>,
    /// What clients have asked of each core, by its ID.
    pub cores: Vec<(u16, CoreCounts)>,
    pub readahead: ReadaheadStats,
    /// Every device, also those without errors.
    pub devices: Vec<DeviceReport>,
}

#[derive(Clone, Debug)]
pub struct CacheCounts {
    pub slices: Vec<SliceStats>,
    /// Of all slices.
    pub latency: LatencyStats,
}

impl Volume {
    pub fn counts(&self) -> VolumeCounts {
        let counts = |id| self.dispatcher.endpoint(id).map(|it| it.counts()).unwrap_or_default();
        let cores = self.cores();
        VolumeCounts {
            cache: self.cached().map(|cached| cached.counts()),
            tier: self.tier().map(|cached| cached.counts()),
            cores: cores.iter().map(|(core, _)| (core.id, counts(core.id))).collect(),
            readahead: self.dispatcher.readahead_stats(),
            devices: self.devices(),
        }
    }
}

impl Cached {
    fn counts(&self) -> CacheCounts {
        CacheCounts { slices: self.stats(), latency: self.latency() }
    }

    /// Of all slices.
    pub(crate) fn latency(&self) -> LatencyStats {
        let mut latency = LatencyStats::default();
        self.slices.iter().for_each(|slice| latency += &slice.latencies());
        latency
    }
}
