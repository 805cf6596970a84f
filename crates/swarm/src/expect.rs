//! What the faults so far allow a volume to do.
//!
//! It follows from what was done to the devices alone; what the engine says of itself is no excuse.

mod copies;

pub(crate) use copies::CopyBook;

use crate::faults::CacheIll;
use crate::faults::Ill;
use crate::topology::Topology;
use headpond_raid::{AssembleError, JournalWhen};
use headpond_volume::OpenError;
use std::collections::BTreeSet;

/// Excuses, which hold to the end of the case.
#[derive(Clone, Debug, Default)]
pub(crate) struct Excuses {
    /// Requests may fail: a block was damaged, or a device that nothing replaces failed.
    pub errors: bool,
    /// Members that were lost, or may have been taken out of use.
    pub lost: BTreeSet<usize>,
    /// The cache device failed, so that the core may have gone on without it.
    pub cache_failed: bool,
    /// An older image lies in the place of the cache.
    pub is_older_cache: bool,
    /// Blocks of the cache device are damaged: what depends on them may be refused.
    pub cache_damaged: bool,
    /// The last life did not end in order.
    pub unclean: bool,
    /// The stripe journal failed, or was not there.
    pub journal_failed: bool,
    /// It was taken away, or may have been.
    pub journal_dropped: bool,
    /// Members without which a volume was opened and written to.
    pub known_lost: BTreeSet<usize>,
    /// Some life ended out of order without a stripe journal that has whatever that tore.
    pub torn: bool,
    /// Of a cache that lies on several devices, which of them have what.
    pub copies: CopyBook,
}

impl Excuses {
    /// Takes note of a fault that is about to happen.
    pub fn note(&mut self, ill: Ill, topology: &Topology) {
        if let Some(member) = ill.costs_member() {
            self.lost.insert(member);
        }
        self.errors |= match ill {
            Ill::MemberLatent { .. } => topology.redundancy() == 0,
            Ill::MemberSlow { .. } | Ill::Cache { ill: CacheIll::Slow { .. }, .. } => false,
            Ill::Cache { copy: Some(_), .. } => false,
            Ill::JournalWrite | Ill::JournalGone => false,
            Ill::MemberWrite { .. }
            | Ill::MemberFlush { .. }
            | Ill::MemberGone { .. }
            | Ill::Hang { .. } => self.is_beyond_redundancy(topology),
            _ => true,
        };
        self.journal_failed |= ill.costs_journal();
        // Without the journal a degraded array takes no writes.
        self.errors |= self.journal_failed && !self.lost.is_empty();
        match ill {
            Ill::Cache { copy: None, ill } => {
                self.cache_failed |= matches!(ill, CacheIll::Gone | CacheIll::Writes { .. });
                self.cache_damaged |= matches!(ill, CacheIll::Damage(_));
            }
            Ill::Cache { copy: Some(copy), ill } => {
                self.copies.note(copy, ill);
                self.note_copies();
            }
            _ => {}
        }
    }

    /// Copies of the cache are not there in the life that begins.
    pub fn note_absent_copies(&mut self, absent: &BTreeSet<usize>) {
        self.copies.begin_life();
        absent.iter().for_each(|copy| self.copies.lose(*copy));
        self.note_copies();
    }

    /// Where none of several copies is known to have everything, that is as if one device failed.
    pub fn note_copies(&mut self) {
        let is_lost = self.copies.are_kept() && !self.copies.hold();
        self.errors |= is_lost;
        self.cache_failed |= is_lost;
        self.cache_damaged |= is_lost;
    }

    /// Whether nothing stands in for what was lost.
    pub fn is_beyond_redundancy(&self, topology: &Topology) -> bool {
        self.lost.len() > topology.redundancy()
    }

    /// Takes note that a volume is about to be opened without the members that were lost. After an
    /// unclean stop what only torn parity could tell is an error.
    pub fn note_opening(&mut self, topology: &Topology) {
        let is_torn = self.unclean && !self.is_covered(topology);
        // The journal that has what was torn may be away only now.
        self.torn |= is_torn;
        self.errors |=
            (is_torn || self.journal_failed) && !self.lost.is_empty() && topology.has_parity();
    }

    /// A life has ended out of order.
    pub fn note_unclean(&mut self, topology: &Topology) {
        self.unclean = true;
        self.torn |= !self.is_covered(topology);
    }

    /// A volume was opened, without these members.
    pub fn note_opened(&mut self, absent: &BTreeSet<usize>) {
        self.known_lost.extend(absent);
    }

    /// The array has members in all roles, nothing of which is missing: the volume is held to that,
    /// where nothing else went wrong. Whoever is lost from now on the array does not know of.
    pub fn note_whole(&mut self) {
        self.known_lost.clear();
        if !self.errors {
            self.lost.clear();
        }
    }

    /// Whether the stripe journal has everything that a cut may have torn.
    fn is_covered(&self, topology: &Topology) -> bool {
        let is_known = self.known_lost.is_superset(&self.lost);
        let is_guarded = match topology.journal {
            None => false,
            Some(JournalWhen::Always) => true,
            // Which stripes the log of a cache has still to recompute, nobody tells the array.
            Some(JournalWhen::Degraded) => is_known && topology.cache.is_none(),
        };
        is_guarded && topology.is_initialised && self.is_guarded()
    }

    /// Whether the stripe journal that the array was made with, or another, is there.
    pub fn is_guarded(&self) -> bool {
        !self.journal_failed && !self.journal_dropped
    }

    /// Why a volume may have refused to open; `None` where nothing excuses it.
    pub fn refusal(&self, error: &OpenError, topology: &Topology) -> Option<&'static str> {
        use headpond_cache::OpenError as Cache;
        match error {
            OpenError::Array(AssembleError::DegradedAndUnclean { .. })
                if !self.lost.is_empty() && !self.is_covered(topology) =>
            {
                Some("degraded and unclean")
            }
            OpenError::Array(AssembleError::DegradedAndUninitialised { .. })
                if !self.lost.is_empty() && (self.torn || !self.is_covered(topology)) =>
            {
                Some("degraded, and its parity is not to be trusted")
            }
            OpenError::Array(AssembleError::DegradedWithoutJournal { .. })
                if !self.lost.is_empty() && self.journal_failed =>
            {
                Some("degraded and unclean")
            }
            OpenError::Array(AssembleError::TooFew { .. } | AssembleError::Diverged { .. })
                if self.errors && !self.lost.is_empty() =>
            {
                Some("too many members lost")
            }
            // An image of before the array was given another shape.
            OpenError::Array(AssembleError::Contradiction { .. }) if !self.lost.is_empty() => {
                Some("an older image")
            }
            OpenError::Cache(Cache::Generation { .. })
                if self.cache_failed || self.cache_damaged =>
            {
                Some("stale cache")
            }
            OpenError::OlderCache { .. }
            | OpenError::OtherCache { .. }
            | OpenError::UnnamedCache { .. }
            | OpenError::NoCacheDevice { .. }
            | OpenError::Cache(Cache::Generation { .. } | Cache::NoCache { .. })
                if self.is_older_cache =>
            {
                Some("an older image of the cache")
            }
            OpenError::NoCacheDevice { .. } | OpenError::Copies(_) if self.cache_failed => {
                Some("cache missing")
            }
            OpenError::Cache(
                Cache::NoCache { .. }
                | Cache::NoSlice { .. }
                | Cache::StaleHeader { .. }
                | Cache::Checkpoint { .. }
                | Cache::LostRecords { .. },
            ) if self.cache_damaged || self.cache_failed => Some("cache damaged"),
            OpenError::Cache(Cache::Device(error)) if error.is_gone() && self.cache_failed => {
                Some("cache gone")
            }
            _ => None,
        }
    }
}
