//! Space: which superblock is written next, and which one is copied together and erased.
//!
//! **Invariants**: a superblock is free, open or closed; at least one is always free.

use super::map::Map;
use super::model::{SsdModel, UNIT_BYTES};
use super::parameters::State;
use crate::Random;
use std::collections::VecDeque;

/// Free superblocks below which nothing is put off.
const FREE_MIN: usize = 2;

#[derive(Clone, Debug)]
pub(super) struct Collector {
    map: Map,
    free: VecDeque<usize>,
    is_closed: Vec<bool>,
    /// Where the host's data goes, and what is copied together.
    host: Open,
    copies: Open,
    victim: Option<Victim>,
    /// Units that should have been copied by now.
    debt: f64,
    free_target: usize,
    superblock_units: u64,
    page_units: f64,
    is_in_place: bool,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    superblock: usize,
    filled: u64,
}

#[derive(Clone, Copy, Debug)]
struct Victim {
    superblock: usize,
    /// Units to copy for each unit of space that comes free.
    price: f64,
    /// Page reads for each unit copied: where little is valid, a page is read for one unit.
    reads_per_unit: f64,
}

/// Work that the flash has to do for collected space.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Collected {
    pub units: u64,
    pub page_reads: f64,
    pub superblocks_erased: u32,
}

impl Collector {
    pub(super) fn new(model: &SsdModel, state: State) -> Self {
        let flash = &model.parameters().flash;
        let superblock_units = (u64::from(flash.superblock_mib) << 20) / UNIT_BYTES;
        let units = flash.capacity_bytes / UNIT_BYTES;
        let superblocks = (flash.physical_bytes / UNIT_BYTES / superblock_units) as usize;
        let free_target = 4 + superblocks / 256;
        let (mut map, used) = match state {
            _ if flash.in_place => (Map::in_order(units, superblocks, superblock_units), 0),
            State::Fresh => (Map::new(units, &vec![0; superblocks]), 0),
            State::Full => {
                let used = units.div_ceil(superblock_units) as usize;
                (Map::in_order(units, superblocks, superblock_units), used)
            }
            State::Steady => {
                // Two are open, and one less is free than there should be: collection is under way.
                let used = superblocks - free_target - 1;
                let shares = steady_shares(units, used, superblock_units, superblocks);
                (Map::new(units, &shares), used)
            }
        };
        let mut free: VecDeque<usize> = (used..superblocks).collect();
        let mut open = || {
            let superblock = free.pop_front().expect("spare space");
            if !flash.in_place {
                map.begin(superblock);
            }
            Open { superblock, filled: 0 }
        };
        Self {
            host: open(),
            copies: open(),
            map,
            free,
            is_closed: (0..superblocks).map(|index| index < used).collect(),
            victim: None,
            debt: 0.0,
            free_target,
            superblock_units,
            page_units: f64::from(flash.page_kib) * 1024.0 / UNIT_BYTES as f64,
            is_in_place: flash.in_place,
        }
    }

    pub(super) fn is_mapped(&self, unit: u64) -> bool {
        self.map.is_mapped(unit)
    }

    /// Share of the host's space that holds data.
    pub(super) fn occupancy(&self, units: u64) -> f64 {
        self.map.mapped_units() as f64 / units as f64
    }

    pub(super) fn write(&mut self, unit: u64, random: &mut Random) {
        self.map.write(unit, self.host.superblock, random);
        self.fill_host(1);
    }

    /// Space that is programmed with nothing in it.
    pub(super) fn pad(&mut self, units: u64) {
        (0..units).for_each(|_| self.fill_host(1));
    }

    pub(super) fn discard(&mut self, unit: u64, random: &mut Random) {
        self.map.discard(unit, random);
    }

    /// What has to be done now that `written` more units of space are used.
    pub(super) fn collect(&mut self, written: u64) -> Collected {
        let mut done = Collected::default();
        if self.is_in_place || (!self.is_short() && self.victim.is_none()) {
            self.debt = 0.0;
            return done;
        }
        let victim = self.victim();
        self.debt += written as f64 * victim.price;
        while self.debt >= 1.0 || self.free.len() <= FREE_MIN {
            let wanted = (self.debt.max(1.0) as u64).max(1);
            self.copy(wanted, &mut done);
            if self.victim.is_none() && !self.is_short() {
                self.debt = 0.0;
                break;
            }
        }
        // A victim without valid units costs nothing but its erasure.
        if self.victim.is_some_and(|victim| self.map.valid(victim.superblock) == 0) {
            self.copy(0, &mut done);
        }
        done
    }

    /// Whether there is less free space than there should be. It is counted in units, so that
    /// copying goes along with writing instead of coming in bursts of a superblock.
    fn is_short(&self) -> bool {
        let size = self.superblock_units;
        let open = 2 * size - self.host.filled - self.copies.filled;
        self.free.len() as u64 * size + open < (self.free_target as u64 + 1) * size
    }

    /// Copies up to `wanted` units of the victim, and frees it where that was the last.
    fn copy(&mut self, wanted: u64, done: &mut Collected) {
        let victim = self.victim();
        let room = self.superblock_units - self.copies.filled;
        let moved = self.map.relocate(victim.superblock, self.copies.superblock, wanted.min(room));
        self.copies.filled += moved;
        if self.copies.filled == self.superblock_units {
            self.is_closed[self.copies.superblock] = true;
            self.copies = self.take_free();
        }
        self.debt -= moved as f64;
        done.units += moved;
        done.page_reads += moved as f64 * victim.reads_per_unit;
        if self.map.valid(victim.superblock) == 0 {
            self.victim = None;
            self.is_closed[victim.superblock] = false;
            self.free.push_back(victim.superblock);
            done.superblocks_erased += 1;
        }
    }

    /// The superblock under collection: the closed one with the least valid data.
    fn victim(&mut self) -> Victim {
        if let Some(victim) = self.victim {
            return victim;
        }
        let closed = (0..self.is_closed.len()).filter(|index| self.is_closed[*index]);
        let superblock =
            closed.min_by_key(|index| self.map.valid(*index)).expect("more is closed than open");
        let valid = self.map.valid(superblock) as f64;
        let share = valid / self.superblock_units as f64;
        let empty_page = (1.0 - share.min(1.0)).powf(self.page_units);
        let victim = Victim {
            superblock,
            price: valid / (self.superblock_units as f64 - valid).max(1.0),
            reads_per_unit: (1.0 - empty_page) / (self.page_units * share).max(1e-9),
        };
        self.victim = Some(victim);
        victim
    }

    fn fill_host(&mut self, units: u64) {
        if self.is_in_place {
            return;
        }
        self.host.filled += units;
        if self.host.filled == self.superblock_units {
            self.is_closed[self.host.superblock] = true;
            self.host = self.take_free();
        }
    }

    fn take_free(&mut self) -> Open {
        let superblock = self.free.pop_front().expect("collection keeps some free");
        self.map.begin(superblock);
        Open { superblock, filled: 0 }
    }
}

/// Valid units of each superblock after endless random writes. One after the other they were filled
/// and have lost units at a rate proportional to what they still hold, so the shares fall
/// exponentially with age, down to the one that is collected next; how steeply follows from the
/// space that there is.
///
/// Source: the fixed point behind Bux and Iliadis, "Performance of greedy garbage collection in
/// flash-based solid-state drives", 2010, for large superblocks.
fn steady_shares(units: u64, used: usize, superblock_units: u64, superblocks: usize) -> Vec<u64> {
    let wanted = units as f64 / superblock_units as f64;
    let sum = |rate: f64| (1..=used).map(|age| (-rate * age as f64).exp()).sum::<f64>();
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        *(if sum(middle) > wanted { &mut low } else { &mut high }) = middle;
    }
    let share = |age: usize| (-high * age as f64).exp() * superblock_units as f64;
    let mut shares: Vec<u64> = (1..=used).map(|age| share(age) as u64).collect();
    let mut missing = units - shares.iter().sum::<u64>();
    while missing > 0 {
        for share in &mut shares {
            let more = missing.min(1);
            *share += more;
            missing -= more;
        }
    }
    shares.resize(superblocks, 0);
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Model;

    /// A tenth of a drive, with superblocks of a tenth.
    fn model() -> SsdModel {
        let Ok(Model::Ssd(model)) = Model::builtin("ssd-dc-s3500-80g") else { panic!("an SSD") };
        let mut parameters = model.parameters().clone();
        parameters.flash.capacity_bytes = 8 << 30;
        parameters.flash.physical_bytes = 10 << 30;
        parameters.flash.superblock_mib = 10;
        SsdModel::new(parameters).unwrap()
    }

    /// Units that the flash programs for each unit that the host writes.
    fn amplification(
        collector: &mut Collector,
        writes: u64,
        mut unit: impl FnMut(u64) -> u64,
    ) -> f64 {
        let mut random = Random::new(3);
        let mut copied = 0;
        for step in 0..writes {
            collector.write(unit(step), &mut random);
            copied += collector.collect(1).units;
        }
        1.0 + copied as f64 / writes as f64
    }

    fn units(model: &SsdModel) -> u64 {
        model.size_bytes() / UNIT_BYTES
    }

    #[test]
    fn sequential_writes_are_not_amplified() {
        let model = model();
        let units = units(&model);
        let mut collector = Collector::new(&model, State::Full);
        let amplification = amplification(&mut collector, 2 * units, |step| step % units);
        assert!(amplification < 1.1, "{amplification}");
    }

    #[test]
    fn random_writes_on_a_fresh_drive_become_those_of_the_steady_state() {
        let model = model();
        let units = units(&model);
        let mut random = Random::new(9);
        let mut fresh = Collector::new(&model, State::Fresh);
        let begin = amplification(&mut fresh, units / 2, |_| random.below(units));
        assert_eq!(begin, 1.0, "there is space left");
        amplification(&mut fresh, 4 * units, |_| random.below(units));
        let worn = amplification(&mut fresh, units / 2, |_| random.below(units));
        let mut steady = Collector::new(&model, State::Steady);
        let steady = amplification(&mut steady, units / 2, |_| random.below(units));
        assert!((worn / steady - 1.0).abs() < 0.15, "{worn} against {steady}");
        assert!(steady > 1.5, "{steady}");
        fresh.map.self_check();
    }

    #[test]
    fn more_spare_space_means_less_copying() {
        let at = |physical_gib: u64| {
            let mut parameters = model().parameters().clone();
            parameters.flash.physical_bytes = physical_gib << 30;
            let model = SsdModel::new(parameters).unwrap();
            let units = units(&model);
            let mut random = Random::new(5);
            let mut collector = Collector::new(&model, State::Steady);
            amplification(&mut collector, units / 2, |_| random.below(units))
        };
        let (tight, roomy) = (at(9), at(11));
        assert!(tight > 1.5 * roomy, "{tight} {roomy}");
    }
}
