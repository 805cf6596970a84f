//! Statistics of device traffic and errors, by class and by core.
//!
//! A block belongs to the core of its address; it is of the class of its request, and without a
//! request, of its class in the map.

use super::{Formed, Log};
use crate::classes::ClassId;
use crate::line_map::{Counts, State, Version};
use crate::stats::{ClassUsage, CoreStats, ErrorStats, PartTraffic};
use crate::types::{BlockRun, CoreBlock, CorePlace, SlotIndex};
use headpond_block::BLOCK_BYTES;
use std::collections::BTreeSet;

impl Log {
    /// Counts by core from now on, in order of address; by none where there is one only.
    pub fn divide(&mut self, places: &[CorePlace]) {
        let starts: Vec<CoreBlock> = places.iter().map(|place| place.first).collect();
        self.map.divide(&starts);
        let stats = |place: &CorePlace| CoreStats { core: place.core, ..CoreStats::default() };
        self.cores = match places.len() {
            0 | 1 => Vec::new(),
            _ => places.iter().map(stats).collect(),
        };
    }

    #[inline]
    pub(crate) fn core_at(&mut self, block: CoreBlock) -> Option<&mut CoreStats> {
        if self.cores.is_empty() {
            return None;
        }
        let index = self.map.core_index(block);
        Some(&mut self.cores[index])
    }

    /// What was counted of each core, and what it holds.
    pub fn core_stats(&self) -> Vec<CoreStats> {
        let cores = self.cores.iter().enumerate();
        let stats = |(index, stats): (usize, &CoreStats)| {
            let Counts { clean, dirty, pending_dirty, written, .. } = self.map.held_by_core(index);
            let dirty_blocks = dirty + pending_dirty + written;
            let usage = ClassUsage { clean_blocks: clean, dirty_blocks, resident_blocks: 0 };
            CoreStats { usage, ..*stats }
        };
        cores.map(stats).collect()
    }

    /// Bytes of blocks of one core go to or from a device, for a class.
    #[inline]
    pub(crate) fn count_part(
        &mut self,
        class: ClassId,
        block: CoreBlock,
        bytes: u64,
        field: impl Fn(&mut PartTraffic) -> &mut u64,
    ) {
        *field(&mut self.classes[class.index()].traffic) += bytes;
        if let Some(core) = self.core_at(block) {
            *field(&mut core.traffic) += bytes;
        }
    }

    /// The same for versions of blocks that nobody asks for now.
    pub(crate) fn count_versions<'a>(
        &mut self,
        versions: impl Iterator<Item = &'a Version>,
        field: impl Fn(&mut PartTraffic) -> &mut u64,
    ) {
        for version in versions {
            let class = self.class_of_slot(version.slot);
            self.count_part(class, version.block, BLOCK_BYTES, &field);
        }
    }

    /// An error without a class: of the log itself, or of an unknown block.
    pub(crate) fn count_own_error(&mut self, field: impl Fn(&mut ErrorStats) -> &mut u64) {
        *field(&mut self.counters.errors) += 1;
    }

    /// An error of a device at this block, which a request of this class wanted.
    pub(crate) fn count_error(
        &mut self,
        class: ClassId,
        block: CoreBlock,
        field: impl Fn(&mut ErrorStats) -> &mut u64,
    ) {
        *field(&mut self.counters.errors) += 1;
        *field(&mut self.classes[class.index()].errors) += 1;
        if let Some(core) = self.core_at(block) {
            *field(&mut core.errors) += 1;
        }
    }

    /// The same for a block in the cache, for any request.
    pub(crate) fn count_error_of(
        &mut self,
        version: &Version,
        field: impl Fn(&mut ErrorStats) -> &mut u64,
    ) {
        self.count_error(self.class_of_slot(version.slot), version.block, field);
    }

    /// A record is known to have failed: an error of each core and class that has blocks in it.
    pub(crate) fn count_failed_record(&mut self, formed: &Formed) {
        let (slot, _) = self.layout.slot_at(formed.data);
        let slots = (slot.0..slot.0 + formed.blocks).map(SlotIndex);
        let mapped = slots.filter(|slot| self.map.state(*slot) != State::Free);
        let (mut cores, mut classes) = (BTreeSet::new(), BTreeSet::new());
        for slot in mapped {
            cores.insert(self.map.core_index(self.map.version(slot).block));
            classes.insert(self.class_of_slot(slot));
        }
        for class in classes {
            self.classes[class.index()].errors.cache_write += 1;
        }
        for index in cores {
            if let Some(core) = self.cores.get_mut(index) {
                core.errors.cache_write += 1;
            }
        }
    }

    /// What a run that goes into the log is to its class and core.
    #[inline]
    pub(super) fn count_logged(&mut self, class: ClassId, run: BlockRun) {
        self.count_part(class, run.first, run.count * BLOCK_BYTES, |part| &mut part.cache_written);
    }
}
