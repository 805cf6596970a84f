//! Stripes spread over more members than they have strips, with spare space among them.
//!
//! Piles of strips are laid down one behind the other in tall rows of `members - spares` columns: a
//! pile is `height` strips of as many stripes, one behind the other on its member, so that a
//! rebuild reads the strips that one member has in common with another sequentially. The piles of a
//! stripe that do not fit in a tall row go on in the next; a *band* is the fewest tall rows after
//! which none goes on. All of a band is permuted alike, so that the piles of a stripe, which are at
//! most as many as columns and follow each other, are on members of their own. The columns behind
//! them are spare space.
//!
//! Stripes are counted round the piles that begin in the same tall row, so that a sequential read
//! of the array keeps all of them busy, each sequentially.
//!
//! Band b uses base permutation `b div members mod bases`, rotated by `b mod members`: whatever
//! the base, after as many bands as members each member has had each column once. How evenly pairs
//! of members share stripes is up to the bases ([`search`](super::search)).
//!
//! **Invariants**: the way from a strip to its cell and the way back agree; a base permutation
//! follows from its seed, for ever.
//! **Source**: M. Holland, G. Gibson, "Parity Declustering for Continuous Operation in Redundant
//! Disk Arrays", ASPLOS 1992 (stripes over more disks than strips); T. Schwarz, J. Steinberg, W.
//! Burkhard, "Permutation Development Data Layout (PDDL)", HPCA 1999 (a base permutation developed
//! by rotation, distributed sparing); OpenZFS dRAID, `module/zfs/vdev_draid.c` (stripes that run on
//! in the next row of a slice, rows of 16 MiB, several bases from a seed). Ours differ in how a
//! base follows from its seed, in that each has a seed of its own, and in the order of stripes.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LayoutError, MEMBERS_MAX, Role, StripCell, Stripe};
use crate::level::Level;

/// The most columns of distributed spare space.
pub const SLOTS_MAX: u16 = 16;
/// The most base permutations.
pub const BASES_MAX: usize = 16;
/// The height of a column of strips where members are large enough: dRAID's row.
const PILE_BYTES: u64 = 16 << 20;
/// Cycles over all members where they are not: fewer would be uneven, more would have more seams.
const TURNS_MIN: u64 = 4;

/// How an array is to be declustered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// Strips of a stripe, data and parity.
    pub width: u16,
    /// Members' worth of spare space.
    pub spares: u16,
}

/// How an array is declustered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declustering {
    pub spread: Spread,
    /// Strips of a column.
    pub height: u32,
    /// Of each base permutation.
    pub seeds: Vec<u32>,
}

/// The permutations of a declustered array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Development {
    spread: Spread,
    members: u64,
    /// Of a row, those that hold strips of stripes.
    columns: u64,
    height: u64,
    band_rows: u64,
    band_stripes: u64,
    bases: u64,
    /// The member of each column, for each base.
    member_in: Vec<u8>,
    /// The column of each member, for each base.
    column_of: Vec<u8>,
}

/// What a member holds in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// The strip of a stripe in this place of its order.
    Strip(Stripe, u16),
    /// Spare space of this slot.
    Spare(u16),
}

impl Spread {
    /// Whether so many members can be declustered so.
    ///
    /// # Errors
    /// What is in the way, and what would do.
    pub fn check(self, level: Level, members: usize) -> Result<(), LayoutError> {
        if !matches!(level, Level::Raid5 | Level::Raid6) {
            return Err(LayoutError::NotDeclustered { level });
        }
        let (width, spares) = (usize::from(self.width), usize::from(self.spares));
        let needed = level.group_members_min();
        if width < needed {
            return Err(LayoutError::TooNarrow { level, needed, width });
        }
        if self.spares > SLOTS_MAX {
            return Err(LayoutError::TooManySlots { spares });
        }
        let needed = width + spares;
        if members > MEMBERS_MAX || members < needed {
            return Err(LayoutError::TooFewForSpread { members, width, spares, needed });
        }
        Ok(())
    }

    /// Strips of a pile on members with so many rows.
    pub(super) fn height(self, members: u64, strip_bytes: u32, rows: u64) -> u32 {
        let (tall_rows, _) = self.band(members);
        let even = rows / (tall_rows * members * TURNS_MIN);
        even.clamp(1, (PILE_BYTES / u64::from(strip_bytes)).max(1)) as u32
    }

    /// Tall rows of a band, and the piles of stripes in it.
    pub(super) fn band(self, members: u64) -> (u64, u64) {
        let (width, columns) = (u64::from(self.width), members - u64::from(self.spares));
        let common = divisor(width, columns);
        (width / common, columns / common)
    }
}

impl Development {
    /// Of a spread that was checked.
    pub(super) fn new(of: &Declustering, members: usize) -> Development {
        assert!(!of.seeds.is_empty() && of.seeds.len() <= BASES_MAX, "there are a few bases");
        assert!(of.height > 0, "a pile has a strip");
        let (tall_rows, piles) = of.spread.band(members as u64);
        let height = u64::from(of.height);
        let member_in: Vec<u8> =
            of.seeds.iter().flat_map(|seed| permutation(*seed, members)).collect();
        let mut column_of = vec![0; member_in.len()];
        for (base, bytes) in member_in.chunks(members).enumerate() {
            for (column, member) in bytes.iter().enumerate() {
                column_of[base * members + usize::from(*member)] = column as u8;
            }
        }
        Development {
            spread: of.spread,
            members: members as u64,
            columns: members as u64 - u64::from(of.spread.spares),
            height,
            band_rows: tall_rows * height,
            band_stripes: piles * height,
            bases: of.seeds.len() as u64,
            member_in,
            column_of,
        }
    }

    pub(super) fn height(&self) -> u64 {
        self.height
    }

    pub(super) fn spares(&self) -> u16 {
        self.spread.spares
    }

    /// Bands after which all begins again.
    pub(super) fn bands(&self) -> u64 {
        self.members * self.bases
    }

    /// Where the strip in place `place` of a stripe's order lies.
    pub(super) fn cell(&self, stripe: Stripe, place: u16) -> StripCell {
        let (band, in_band) = (stripe.0 / self.band_stripes, stripe.0 % self.band_stripes);
        let width = u64::from(self.spread.width);
        let (first, count) = self.beginning_with(in_band / self.height);
        let within = in_band - first * self.height;
        let (pile, level) = (first + within % count, within / count);
        let piles = pile * width + u64::from(place);
        let (tall_row, column) = (piles / self.columns, piles % self.columns);
        let row = band * self.band_rows + tall_row * self.height + level;
        StripCell { role: self.member(band, column), row }
    }

    /// The piles of stripes that begin in the same tall row as this one: the first, and how many.
    fn beginning_with(&self, pile: u64) -> (u64, u64) {
        let width = u64::from(self.spread.width);
        let tall_row = pile * width / self.columns;
        let first = (tall_row * self.columns).div_ceil(width);
        let next = ((tall_row + 1) * self.columns).div_ceil(width);
        (first, next - first)
    }

    /// The cell of a spare slot in a row.
    pub(super) fn spare_cell(&self, slot: u16, row: u64) -> StripCell {
        assert!(slot < self.spread.spares, "slot {slot} of {}", self.spread.spares);
        let column = self.columns + u64::from(slot);
        StripCell { role: self.member(row / self.band_rows, column), row }
    }

    /// The contents of a cell.
    pub(super) fn content(&self, cell: StripCell) -> Content {
        let (band, row) = (cell.row / self.band_rows, cell.row % self.band_rows);
        let column = self.column(band, cell.role);
        if column >= self.columns {
            return Content::Spare((column - self.columns) as u16);
        }
        let (tall_row, level) = (row / self.height, row % self.height);
        let (piles, width) = (tall_row * self.columns + column, u64::from(self.spread.width));
        let (pile, place) = (piles / width, piles % width);
        let (first, count) = self.beginning_with(pile);
        let in_band = first * self.height + level * count + (pile - first);
        Content::Strip(Stripe(band * self.band_stripes + in_band), place as u16)
    }

    fn member(&self, band: u64, column: u64) -> Role {
        let (base, rotation) = self.turn(band);
        let member = u64::from(self.member_in[(base + column) as usize]) + rotation;
        Role((if member >= self.members { member - self.members } else { member }) as u16)
    }

    fn column(&self, band: u64, role: Role) -> u64 {
        let (base, rotation) = self.turn(band);
        let member = u64::from(role.0) + self.members - rotation;
        let member = if member >= self.members { member - self.members } else { member };
        u64::from(self.column_of[(base + member) as usize])
    }

    /// Where the base of a band begins in the tables, and by how much it is rotated.
    fn turn(&self, band: u64) -> (u64, u64) {
        (band / self.members % self.bases * self.members, band % self.members)
    }
}

/// The base permutation of a seed: the numbers in order, shuffled from the last to the second.
///
/// **Source**: R. Fisher, F. Yates, in the form of D. Knuth, "The Art of Computer Programming",
/// volume 2, 3.4.2, algorithm P; the generator is SplitMix64: G. Steele, D. Lea, C. Flood, "Fast
/// Splittable Pseudorandom Number Generators", OOPSLA 2014.
pub(super) fn permutation(seed: u32, members: usize) -> Vec<u8> {
    let mut chance = SplitMix64::seed_from_u64(seed.into());
    let mut order: Vec<u8> = (0..members).map(|member| member as u8).collect();
    for last in (1..members).rev() {
        order.swap(last, (chance.next_u64() % (last as u64 + 1)) as usize);
    }
    order
}

/// The greatest common divisor.
fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Layout, Strip};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn layout(level: Level, members: usize, spread: Spread, rows: u64) -> Layout {
        tall_layout(level, members, spread, (1, rows))
    }

    fn tall_layout(
        level: Level,
        members: usize,
        spread: Spread,
        (height, rows): (u32, u64),
    ) -> Layout {
        let declustering = Layout::decluster(level, members, spread, (4096, rows << 12)).unwrap();
        let declustering = Declustering { height, ..declustering };
        Layout::declustered(level, members, &declustering, 4096, rows << 12).unwrap()
    }

    fn shapes() -> impl Strategy<Value = (Level, usize, Spread)> {
        let level = prop::sample::select(vec![Level::Raid5, Level::Raid6]);
        (level, 0_u16..9, 0_u16..5, 0_usize..20).prop_map(|(level, extra, spares, more)| {
            let width = level.group_members_min() as u16 + extra;
            let members = usize::from(width + spares) + more;
            (level, members, Spread { width, spares })
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_cell_has_one_strip_or_one_slot(
            (level, members, spread) in shapes(), height in 1_u32..6, from in 0_u64..1 << 28,
        ) {
            let layout = tall_layout(level, members, spread, (height, 1 << 31));
            let (band_rows, band_stripes) = (layout.band_rows(), layout.band_stripes());
            let mut cells = BTreeSet::new();
            let first = from / band_rows;
            for stripe in first * band_stripes..(first + 2) * band_stripes {
                let stripe = Stripe(stripe);
                let mut roles = BTreeSet::new();
                for strip in layout.strips() {
                    let cell = layout.cell(stripe, strip);
                    prop_assert_eq!(layout.strip_in(cell), Some((stripe, strip)));
                    prop_assert_eq!(layout.slot_in(cell), None);
                    prop_assert!(roles.insert(cell.role), "two strips of a stripe on a member");
                    prop_assert!(cells.insert(cell));
                }
                let rows = first * band_rows..(first + 2) * band_rows;
                prop_assert!(layout.strips().all(|it| rows.contains(&layout.cell(stripe, it).row)));
            }
            for row in first * band_rows..(first + 2) * band_rows {
                for slot in 0..layout.spare_slots() {
                    let cell = layout.spare_cell(slot, row);
                    prop_assert_eq!(layout.slot_in(cell), Some(slot));
                    prop_assert_eq!(layout.strip_in(cell), None);
                    prop_assert!(cells.insert(cell));
                }
            }
            prop_assert_eq!(cells.len() as u64, 2 * band_rows * members as u64);
        }
    }

    /// Reads from and writes to every other member, when one is rebuilt onto slot 0.
    fn rebuild_work(layout: &Layout, lost: Role) -> Vec<u64> {
        let mut work = vec![0; layout.members()];
        for row in 0..layout.rows() {
            let Some((stripe, strip)) = layout.strip_in(StripCell { role: lost, row }) else {
                continue;
            };
            let read = |it: &Strip| match it {
                Strip::Data(_) => *it != strip,
                Strip::P => matches!(strip, Strip::Data(_)),
                Strip::Q => false,
            };
            let read = layout.strips().filter(read).map(|it| layout.cell(stripe, it));
            for cell in read.chain([layout.spare_cell(0, row)]) {
                work[cell.role.index()] += 1;
            }
        }
        work.remove(lost.index());
        work
    }

    #[test]
    fn the_work_of_a_rebuild_falls_on_all_other_members_alike() {
        for (level, members, width, spares, percent) in [
            (Level::Raid6, 40, 10, 2, 3),
            (Level::Raid5, 12, 4, 1, 3),
            (Level::Raid6, 24, 8, 2, 3),
            (Level::Raid6, 60, 14, 3, 4),
            (Level::Raid5, 7, 3, 1, 3),
        ] {
            let spread = Spread { width, spares };
            let rows = layout(level, members, spread, 1 << 31).pattern_rows();
            let layout = layout(level, members, spread, rows);
            for lost in [Role(0), Role(members as u16 / 2)] {
                let work = rebuild_work(&layout, lost);
                let mean = work.iter().sum::<u64>() as f64 / work.len() as f64;
                let (least, most) = (work.iter().min().unwrap(), work.iter().max().unwrap());
                let off = |it: &u64| (*it as f64 / mean - 1.0).abs() * 100.0;
                assert!(
                    off(least).max(off(most)) <= f64::from(percent),
                    "{level} of {members}, {spread:?}: {least} to {most}, mean {mean}"
                );
            }
        }
    }

    #[test]
    fn every_member_holds_as_much_data_parity_and_spare_space_as_every_other() {
        let layout = layout(Level::Raid6, 40, Spread { width: 10, spares: 2 }, 200);
        assert_eq!((layout.rows(), layout.stripes()), (200, 760));
        for role in layout.group_roles(0) {
            let cells = || (0..200).map(|row| StripCell { role, row });
            let spare = cells().filter(|cell| layout.strip_in(*cell).is_none()).count();
            let is_parity = |it: &StripCell| {
                layout.strip_in(*it).is_some_and(|(_, it)| !matches!(it, Strip::Data(_)))
            };
            assert_eq!((spare, cells().filter(is_parity).count()), (10, 38));
        }
    }

    /// The layout is the format: whatever else changes, a seed gives this order.
    #[test]
    fn a_seed_gives_the_same_permutation_for_ever() {
        assert_eq!(permutation(0, 8), [2, 5, 0, 3, 4, 6, 1, 7]);
        assert_eq!(permutation(7, 12), [10, 11, 5, 1, 7, 4, 8, 2, 9, 6, 0, 3]);
    }

    /// A sequential read of the array, or of the strips that one member has in common with another,
    /// is sequential on the members.
    #[test]
    fn neighbours_on_a_member_are_of_stripes_of_the_same_members() {
        let spread = Spread { width: 10, spares: 2 };
        let layout = tall_layout(Level::Raid6, 40, spread, (16, 16 * 5 * 40));
        let peers = |row| {
            let (stripe, _) = layout.strip_in(StripCell { role: Role(7), row })?;
            Some(layout.strips().map(|it| layout.cell(stripe, it).role).collect::<Vec<_>>())
        };
        for row in 0..16 * 40 {
            assert!(row % 16 == 0 || peers(row) == peers(row - 1), "row {row}");
        }
        let first: BTreeSet<Role> = (0..4)
            .flat_map(|stripe| layout.strips().map(move |strip| (Stripe(stripe), strip)))
            .map(|(stripe, strip)| layout.cell(stripe, strip).role)
            .collect();
        assert_eq!(first.len(), 38, "four stripes keep every column busy");
        let data = Layout::decluster(Level::Raid6, 40, spread, (64 << 10, 4 << 40)).unwrap();
        assert_eq!(data.height, 256, "16 MiB");
    }

    #[test]
    fn shapes_that_cannot_be_are_refused_with_what_would_do() {
        let refused = |level, members, width, spares| {
            let spread = Spread { width, spares };
            Layout::decluster(level, members, spread, (4096, 1 << 30)).unwrap_err().to_string()
        };
        assert!(refused(Level::Raid0, 9, 4, 1).contains("use level 5 or 6"));
        assert!(refused(Level::Raid6, 9, 3, 1).contains("at least 4"));
        assert!(refused(Level::Raid6, 9, 8, 2).contains("need 10 to 255 members"));
        assert!(refused(Level::Raid6, 60, 8, 17).contains("the maximum is 16"));
        let declustering =
            Layout::decluster(Level::Raid6, 12, Spread { width: 5, spares: 0 }, (4096, 1 << 14))
                .unwrap();
        let small = Layout::declustered(Level::Raid6, 12, &declustering, 4096, 4 * 4096);
        assert_eq!(small, Err(LayoutError::TooFewRows { rows: 4, needed: 5 }));
    }
}
