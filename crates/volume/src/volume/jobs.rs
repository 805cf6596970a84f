//! The jobs of a volume in progress.

use super::Volume;
use crate::assembly::cores::Core;
use crate::description::FIRST_CORE;
use crate::jobs::{Job, JobKind, JobStatus};
use headpond_block::Runtime;

impl Volume {
    /// Reports the cleaning of the present dirty data as a job from now on.
    pub(crate) fn begin_cleaning(&self) -> Job<'_> {
        self.cleaning.begin(&self.runtime, self.unwritten_bytes())
    }

    pub(crate) fn begin_scrubbing(&self) -> Job<'_> {
        self.scrubbing.begin(&self.runtime, self.unread_bytes())
    }

    /// Not on the array, or not after a power cut.
    fn unwritten_bytes(&self) -> u64 {
        self.caches().map(|cached| cached.dirty_bytes()).sum()
    }

    fn unread_bytes(&self) -> u64 {
        self.cached().map_or(0, |cached| cached.scrub_left_bytes())
    }

    /// Reports the draining of a cache whose mode makes no dirty data, where it has some.
    pub(crate) fn follow_draining(&self) -> u64 {
        let draining = self.caches().filter(|cached| cached.is_draining());
        let left_bytes = draining.map(|cached| cached.dirty_bytes()).sum();
        self.draining.follow(&self.runtime, left_bytes);
        left_bytes
    }

    pub(crate) fn jobs(&self) -> Vec<JobStatus> {
        let runtime = &self.runtime;
        let undrained = self.follow_draining();
        let draining = || self.draining.status(runtime, JobKind::Cleaning, undrained);
        let cleaning = self.cleaning.status(runtime, JobKind::Cleaning, self.unwritten_bytes());
        let cleaning = cleaning.or_else(draining);
        let scrubbing = self.scrubbing.status(runtime, JobKind::Scrubbing, self.unread_bytes());
        let cores = self.cores();
        let background = cores.iter().filter_map(|(core, _)| core.background_job(runtime));
        let copies = self.caches().filter_map(|cached| cached.mirror.clone());
        let copies = copies.filter_map(|mirror| mirror.core.background_job(runtime));
        cleaning.into_iter().chain(scrubbing).chain(background).chain(copies).collect()
    }
}

impl Core {
    fn background_job(&self, runtime: &Runtime) -> Option<JobStatus> {
        let core = (self.id != FIRST_CORE).then(|| self.name.clone());
        Some(JobStatus { core, ..self.background.job(runtime)? })
    }
}
