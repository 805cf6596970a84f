//! Promotion: decides which requests are inserted into the cache.
//!
//! A request without promotion is still served from cached blocks; and a write over dirty blocks
//! always goes through the log, the shorter path that loses nothing. The first of these that
//! refuses is counted as the reason: its class bypasses the cache, it is part of a stream, its
//! blocks were not requested often enough.
//!
//! **Invariants**: pure; memory is bounded when the settings are known.
//!
//! **Not here**: recognition of streams and classes (the volume, before the split); I/O.

mod config;
mod nhit;

pub use config::{AdmissionConfig, CutoffPolicy, Promotion, PromotionPolicy};

use crate::classes::{CLASSES_MAX, ClassId, Occupancy};
use crate::stats::BypassReason;
use crate::types::{BlockRun, CoreBlock};
use nhit::HitCounts;

/// What a decision depends on, apart from the settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Applicant {
    pub class: ClassId,
    /// Part of a stream that is longer than the cutoff.
    pub is_streaming: bool,
    pub filling: Filling,
}

/// How full the cache is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filling {
    pub percent: u64,
    /// What enters drives something out.
    pub is_full: bool,
}

/// The settings at work, and what they remember.
pub(crate) struct Admission {
    config: AdmissionConfig,
    /// Classes whose requests go past the cache.
    is_past: [bool; CLASSES_MAX],
    /// Those, and the ones that have a share.
    is_limited: [bool; CLASSES_MAX],
    counts: Option<HitCounts>,
    slots: u64,
}

impl Admission {
    /// For a cache of so many blocks.
    pub fn new(config: &AdmissionConfig, slots: u64) -> Self {
        let mut admission = Self {
            config: AdmissionConfig::default(),
            is_past: [false; CLASSES_MAX],
            is_limited: [false; CLASSES_MAX],
            counts: None,
            slots,
        };
        admission.set(config);
        admission
    }

    /// Other settings. What was counted is kept where promotion goes on as it was.
    pub fn set(&mut self, config: &AdmissionConfig) {
        (self.is_past, self.is_limited) = ([false; CLASSES_MAX], [false; CLASSES_MAX]);
        for class in config.classes.iter() {
            self.is_past[class.id.index()] = class.is_pass_through();
            self.is_limited[class.id.index()] = class.occupancy != Occupancy::ALL;
        }
        match config.promotion.policy {
            PromotionPolicy::Always => self.counts = None,
            PromotionPolicy::Nhit => {
                self.counts.get_or_insert_with(|| HitCounts::for_blocks(self.slots));
            }
        }
        self.config = config.clone();
    }

    /// Whether a request enters without anything to be counted or looked up.
    #[inline]
    pub fn is_open(&self, class: ClassId, is_streaming: bool) -> bool {
        self.counts.is_none() && !is_streaming && !self.is_limited[class.index()]
    }

    /// Why a request does not enter, as far as that is known before its blocks are looked at.
    pub fn refuses(&self, applicant: Applicant) -> Option<BypassReason> {
        if self.is_past[applicant.class.index()] {
            return Some(BypassReason::Class);
        }
        let cuts_off = match self.config.cutoff {
            CutoffPolicy::Always => true,
            CutoffPolicy::Full => applicant.filling.is_full,
            CutoffPolicy::Never => false,
        };
        (applicant.is_streaming && cuts_off).then_some(BypassReason::Sequential)
    }

    /// Whether a block that was read and missed goes into the cache now; counts the asking.
    pub fn promotes(&mut self, block: CoreBlock, filling: Filling) -> bool {
        let Promotion { insertion_threshold, trigger, .. } = self.config.promotion;
        match &mut self.counts {
            Some(counts) if filling.percent >= trigger.into() => {
                counts.count(block) >= insertion_threshold
            }
            _ => true,
        }
    }

    /// Whether a write to blocks of which the cache has none goes into the cache now: where all of
    /// them were asked for often enough. Counts the asking.
    pub fn promotes_all(&mut self, run: BlockRun, filling: Filling) -> bool {
        let mut all = true;
        for block in run.blocks() {
            all &= self.promotes(block, filling);
        }
        all
    }

    /// As [`HitCounts::self_check`].
    pub fn self_check(&self) {
        self.counts.iter().for_each(HitCounts::self_check);
    }

    pub fn memory_bytes(&self) -> u64 {
        self.counts.as_ref().map_or(0, HitCounts::memory_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::Classes;
    use std::sync::Arc;

    const EMPTY: Filling = Filling { percent: 10, is_full: false };
    const FULL: Filling = Filling { percent: 100, is_full: true };

    fn applicant(filling: Filling) -> Applicant {
        Applicant { class: ClassId::UNCLASSIFIED, is_streaming: true, filling }
    }

    #[test]
    fn the_policy_of_the_cutoff_decides_with_the_filling() {
        let refuses = |cutoff, occupancy| {
            let config = AdmissionConfig { cutoff, ..AdmissionConfig::default() };
            Admission::new(&config, 100).refuses(applicant(occupancy)).is_some()
        };
        use CutoffPolicy::{Always, Full, Never};
        let table =
            [Always, Full, Never].map(|policy| (refuses(policy, EMPTY), refuses(policy, FULL)));
        assert_eq!(table, [(true, true), (false, true), (false, false)]);
    }

    #[test]
    fn nhit_counts_only_from_its_trigger_on() {
        let promotion =
            Promotion { policy: PromotionPolicy::Nhit, insertion_threshold: 3, trigger: 80 };
        let config = AdmissionConfig { promotion, ..AdmissionConfig::default() };
        let mut admission = Admission::new(&config, 1000);
        assert!(admission.promotes(CoreBlock(7), EMPTY));
        let asked = [(); 4].map(|()| admission.promotes(CoreBlock(7), FULL));
        assert_eq!(asked, [false, false, true, true]);
        let run = BlockRun { first: CoreBlock(6), count: 2 };
        assert!(!admission.promotes_all(run, FULL), "one of them is new");
        assert!(admission.memory_bytes() > 0);
        admission.set(&AdmissionConfig::default());
        assert_eq!(admission.memory_bytes(), 0);
        assert!(admission.promotes(CoreBlock(9), FULL));
    }

    #[test]
    fn a_class_may_go_past_and_that_is_the_reason_told() {
        let text = "[[class]]\nid = 2\nwhen = \"lba:ge:0\"\npass_through = true\n";
        let classes = Arc::new(Classes::parse(text).unwrap());
        let config = AdmissionConfig { classes, ..AdmissionConfig::default() };
        let admission = Admission::new(&config, 100);
        let class = ClassId::new(2).unwrap();
        let past = Applicant { class, ..applicant(FULL) };
        assert_eq!(admission.refuses(past), Some(BypassReason::Class));
        assert_eq!(admission.refuses(applicant(FULL)), Some(BypassReason::Sequential));
        let plain = Applicant { is_streaming: false, ..applicant(FULL) };
        assert!(
            admission.is_open(ClassId::UNCLASSIFIED, false) && admission.refuses(plain).is_none()
        );
        assert!(!admission.is_open(class, false));
    }
}
