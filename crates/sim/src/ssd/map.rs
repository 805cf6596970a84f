//! Which superblock holds how much that is valid, region by region.
//!
//! Which unit an overwrite replaces is not known. A stream replaces what was written first of its
//! region, since that is what came before it in the pass before; everything else replaces any unit
//! of its region.
//!
//! **Invariants**: the mapped units of a region are the sum of its counts over all superblocks.

use super::tally::PrefixSums;
use crate::Random;

/// Parts of the address space that are told apart.
const REGIONS: u64 = 256;

/// Runs that are followed at once, and how many units make one: 1 MiB.
const STREAMS: usize = 16;
const STREAM_UNITS_MIN: u64 = 256;

#[derive(Clone, Debug)]
pub(super) struct Map {
    units: u64,
    region_units: u64,
    /// Where the units of each region are.
    tallies: Vec<PrefixSums>,
    /// The same counts by superblock, then region.
    counts: Vec<u32>,
    valid: Vec<u64>,
    mapped: Vec<Mapped>,
    /// When each superblock was begun, as a number.
    begun: Vec<u64>,
    next_begun: u64,
    /// The superblock with the oldest units of each region, as far as it was looked for.
    oldest: Vec<Option<usize>>,
    streams: Streams,
}

/// Runs of writes, each beginning where it left off.
#[derive(Clone, Debug, Default)]
struct Streams {
    /// The next unit of each, and how many came before.
    heads: [(u64, u64); STREAMS],
    next: usize,
}

/// Which units of a region are mapped. Single units are remembered only where the answer is neither
/// all nor none.
#[derive(Clone, Debug)]
enum Mapped {
    None,
    All,
    Some(Vec<u64>),
}

impl Map {
    /// A map of `units` units over as many superblocks as `shares` has, each holding its share of
    /// every region; nothing is mapped where the shares are nothing.
    pub(super) fn new(units: u64, shares: &[u64]) -> Self {
        let held: u64 = shares.iter().sum();
        assert!(held == 0 || held == units, "a map is full or empty");
        let region_units = units.div_ceil(REGIONS);
        let regions = units.div_ceil(region_units);
        let superblocks = shares.len();
        let mut counts = vec![0; superblocks * regions as usize];
        if held > 0 {
            spread(&mut counts, shares, units, region_units);
        }
        let column = |region: usize| {
            let counts = &counts;
            (0..superblocks).map(move |index| counts[index * regions as usize + region])
        };
        let tallies = (0..regions as usize).map(|region| PrefixSums::of(column(region))).collect();
        let row = |index: usize| &counts[index * regions as usize..(index + 1) * regions as usize];
        let sum = |index| row(index).iter().map(|count| u64::from(*count)).sum();
        let valid = (0..superblocks).map(sum).collect();
        let mapped = if held > 0 { Mapped::All } else { Mapped::None };
        let mapped = vec![mapped; regions as usize];
        // The first superblock of a worn drive is the youngest.
        let begun = (1..=superblocks as u64).rev().collect();
        let oldest = vec![None; regions as usize];
        let (next_begun, streams) = (superblocks as u64 + 1, Streams::default());
        Self {
            units,
            region_units,
            tallies,
            counts,
            valid,
            mapped,
            begun,
            next_begun,
            oldest,
            streams,
        }
    }

    /// A full map whose units lie in the order of their addresses, from the first superblock on.
    pub(super) fn in_order(units: u64, superblocks: usize, superblock_units: u64) -> Self {
        let mut map = Self::new(units, &vec![0; superblocks]);
        map.mapped.fill(Mapped::All);
        map.begun.reverse();
        for region in 0..map.tallies.len() {
            let (mut unit, end) = map.bounds(region);
            while unit < end {
                let superblock = unit / superblock_units;
                let stop = end.min((superblock + 1) * superblock_units);
                map.add(superblock as usize, region, (stop - unit) as u32);
                unit = stop;
            }
        }
        map
    }

    fn bounds(&self, region: usize) -> (u64, u64) {
        let start = region as u64 * self.region_units;
        (start, self.units.min(start + self.region_units))
    }

    pub(super) fn region(&self, unit: u64) -> usize {
        (unit / self.region_units) as usize
    }

    pub(super) fn mapped_units(&self) -> u64 {
        self.tallies.iter().map(PrefixSums::total).sum()
    }

    /// Valid units of a superblock.
    pub(super) fn valid(&self, superblock: usize) -> u64 {
        self.valid[superblock]
    }

    pub(super) fn is_mapped(&self, unit: u64) -> bool {
        let within = unit % self.region_units;
        match &self.mapped[self.region(unit)] {
            Mapped::None => false,
            Mapped::All => true,
            Mapped::Some(bits) => bits[within as usize / 64] >> (within % 64) & 1 == 1,
        }
    }

    /// An empty superblock is begun.
    pub(super) fn begin(&mut self, superblock: usize) {
        assert_eq!(self.valid[superblock], 0, "only an empty one is begun");
        self.begun[superblock] = self.next_begun;
        self.next_begun += 1;
    }

    /// A unit is written anew: it is valid in `superblock` from now on, and nowhere else.
    pub(super) fn write(&mut self, unit: u64, superblock: usize, random: &mut Random) {
        let region = self.region(unit);
        let is_stream = self.streams.follow(unit) >= STREAM_UNITS_MIN;
        if self.is_mapped(unit) {
            match is_stream {
                true => self.forget_oldest(region),
                false => self.forget_one(region, random),
            }
        } else {
            self.set_mapped(unit, true);
        }
        self.add(superblock, region, 1);
    }

    /// Nobody needs a unit any more.
    pub(super) fn discard(&mut self, unit: u64, random: &mut Random) {
        if self.is_mapped(unit) {
            self.forget_one(self.region(unit), random);
            self.set_mapped(unit, false);
        }
    }

    /// Moves up to `units_max` valid units of a superblock to another; how many it were.
    pub(super) fn relocate(&mut self, from: usize, to: usize, units_max: u64) -> u64 {
        let regions = self.tallies.len();
        let mut left = units_max;
        for region in 0..regions {
            let count = u64::from(self.counts[from * regions + region]).min(left) as u32;
            if count > 0 {
                self.take(from, region, count);
                self.add(to, region, count);
                left -= u64::from(count);
            }
            if left == 0 {
                break;
            }
        }
        units_max - left
    }

    /// Any valid unit of the region is as likely as any other to be the one that is written over.
    fn forget_one(&mut self, region: usize, random: &mut Random) {
        let rank = random.below(self.tallies[region].total());
        let holder = self.tallies[region].holder(rank);
        self.take(holder, region, 1);
    }

    fn forget_oldest(&mut self, region: usize) {
        let regions = self.tallies.len();
        let holds = |index: &usize| self.counts[index * regions + region] > 0;
        let holder = self.oldest[region].filter(holds).or_else(|| {
            let all = 0..self.begun.len();
            all.filter(holds).min_by_key(|index| self.begun[*index])
        });
        self.oldest[region] = holder;
        self.take(holder.expect("a mapped unit is somewhere"), region, 1);
    }

    fn add(&mut self, superblock: usize, region: usize, count: u32) {
        self.counts[superblock * self.tallies.len() + region] += count;
        self.valid[superblock] += u64::from(count);
        self.tallies[region].add(superblock, count);
    }

    fn take(&mut self, superblock: usize, region: usize, count: u32) {
        self.counts[superblock * self.tallies.len() + region] -= count;
        self.valid[superblock] -= u64::from(count);
        self.tallies[region].remove(superblock, count);
    }

    fn set_mapped(&mut self, unit: u64, is_mapped: bool) {
        let within = (unit % self.region_units) as usize;
        let region = self.region(unit);
        let (start, end) = self.bounds(region);
        let size = end - start;
        if !matches!(self.mapped[region], Mapped::Some(_)) {
            let full = matches!(self.mapped[region], Mapped::All);
            self.mapped[region] = Mapped::Some(bits(if full { size } else { 0 }, size));
        }
        let Mapped::Some(bits) = &mut self.mapped[region] else { unreachable!("just made") };
        match is_mapped {
            true => bits[within / 64] |= 1 << (within % 64),
            false => bits[within / 64] &= !(1 << (within % 64)),
        }
        // The last unit of a region makes it whole again; it is counted after this.
        if is_mapped && self.tallies[region].total() + 1 == size {
            self.mapped[region] = Mapped::All;
        }
    }

    #[cfg(test)]
    pub(super) fn self_check(&self) {
        let regions = self.tallies.len();
        for (region, tally) in self.tallies.iter().enumerate() {
            let column = self.counts.iter().skip(region).step_by(regions);
            assert_eq!(column.map(|count| u64::from(*count)).sum::<u64>(), tally.total());
            if let Mapped::Some(bits) = &self.mapped[region] {
                let set: u64 = bits.iter().map(|word| u64::from(word.count_ones())).sum();
                assert_eq!(set, tally.total(), "region {region}");
            }
        }
    }
}

impl Streams {
    /// How many units came before this one without a gap.
    fn follow(&mut self, unit: u64) -> u64 {
        if let Some((next, length)) = self.heads.iter_mut().find(|(next, _)| *next == unit) {
            (*next, *length) = (unit + 1, *length + 1);
            return *length;
        }
        self.heads[self.next] = (unit + 1, 0);
        self.next = (self.next + 1) % STREAMS;
        0
    }
}

/// As many bits as a region has units, the first `set` of them set.
fn bits(set: u64, size: u64) -> Vec<u64> {
    let word = |index: u64| match set.saturating_sub(index * 64) {
        left @ 0..64 => (1 << left) - 1,
        _ => u64::MAX,
    };
    (0..size.div_ceil(64)).map(word).collect()
}

/// Gives each superblock its share of every region; rounding is carried on, so that each region
/// comes out whole.
fn spread(counts: &mut [u32], shares: &[u64], units: u64, region_units: u64) {
    let regions = units.div_ceil(region_units) as usize;
    for region in 0..regions {
        let start = region as u64 * region_units;
        let size = (units - start).min(region_units);
        let (mut held, mut given) = (0u64, 0);
        for (index, share) in shares.iter().enumerate() {
            held += share;
            let up_to = (u128::from(held) * u128::from(size) / u128::from(units)) as u64;
            counts[index * regions + region] = (up_to - given) as u32;
            given = up_to;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mapped_unit_is_valid_once_whatever_is_written() {
        let mut random = Random::new(7);
        for mut map in [Map::new(10_000, &[0; 40]), Map::in_order(10_000, 40, 300)] {
            for step in 0..50_000 {
                let unit = random.below(10_000);
                match step % 5 {
                    0 => map.discard(unit, &mut random),
                    _ => map.write(unit, step % 40, &mut random),
                }
                if step % 7 == 0 {
                    map.relocate(step % 40, (step + 1) % 40, 10);
                }
            }
            map.self_check();
            assert!((0..10_000).all(|unit| !map.is_mapped(unit)) || map.mapped_units() > 0);
        }
    }

    #[test]
    fn shares_come_out_as_asked() {
        let map = Map::new(1_000_000, &[100_000, 500_000, 400_000]);
        map.self_check();
        assert_eq!(map.mapped_units(), 1_000_000);
        for (index, share) in [(0, 100_000u64), (1, 500_000), (2, 400_000)] {
            assert!(map.valid(index).abs_diff(share) < 300, "{}", map.valid(index));
        }
    }
}
