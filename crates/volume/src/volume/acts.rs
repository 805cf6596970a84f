//! The acts of a volume that are under way.

use super::Volume;
use crate::acts::{Act, ActKind, ActStatus};
use crate::assembly::cores::Core;
use crate::description::FIRST_CORE;
use headpond_block::Runtime;

impl Volume {
    /// From now on it is told how far the cleaning is of what is dirty now.
    pub(crate) fn begin_cleaning(&self) -> Act<'_> {
        self.cleaning.begin(&self.runtime, self.unwritten_bytes())
    }

    pub(crate) fn begin_scrubbing(&self) -> Act<'_> {
        self.scrubbing.begin(&self.runtime, self.unread_bytes())
    }

    /// What the array lacks, or may lack after a power cut.
    fn unwritten_bytes(&self) -> u64 {
        self.caches().map(|cached| cached.dirty_bytes()).sum()
    }

    fn unread_bytes(&self) -> u64 {
        self.cached().map_or(0, |cached| cached.scrub_left_bytes())
    }

    /// From now on it is told how far a cache is whose mode makes no dirty data, where it has some.
    pub(crate) fn follow_draining(&self) -> u64 {
        let draining = self.caches().filter(|cached| cached.is_draining());
        let left_bytes = draining.map(|cached| cached.dirty_bytes()).sum();
        self.draining.follow(&self.runtime, left_bytes);
        left_bytes
    }

    pub(crate) fn acts(&self) -> Vec<ActStatus> {
        let runtime = &self.runtime;
        let undrained = self.follow_draining();
        let draining = || self.draining.status(runtime, ActKind::Cleaning, undrained);
        let cleaning = self.cleaning.status(runtime, ActKind::Cleaning, self.unwritten_bytes());
        let cleaning = cleaning.or_else(draining);
        let scrubbing = self.scrubbing.status(runtime, ActKind::Scrubbing, self.unread_bytes());
        let cores = self.cores();
        let upkeep = cores.iter().filter_map(|(core, _)| core.upkeep_act(runtime));
        let copies = self.caches().filter_map(|cached| cached.mirror.clone());
        let copies = copies.filter_map(|mirror| mirror.core.upkeep_act(runtime));
        cleaning.into_iter().chain(scrubbing).chain(upkeep).chain(copies).collect()
    }
}

impl Core {
    fn upkeep_act(&self, runtime: &Runtime) -> Option<ActStatus> {
        let core = (self.id != FIRST_CORE).then(|| self.name.clone());
        Some(ActStatus { core, ..self.upkeep.act(runtime)? })
    }
}
