//! The mapping of the bytes of an array to its members.
//!
//! An array is `groups` equal groups of members. A *stripe* is one row of strips across one group;
//! stripes rotate over the groups. Level 0 and mirrors are the cases without parity: level 0 has as
//! many data strips as members, a mirror has one, in as many copies as members. Declustered stripes
//! are narrower than their group, and distributed over all of it ([`spread`]). Where members
//! without redundancy have weights, a stripe is one strip, and members have more or fewer of them
//! ([`weighted`]).
//!
//! **Invariants**: every array byte has one (stripe, data strip, offset in it); the strips of a
//! stripe are on members of their own; only whole bands are used, so that no stripe lacks a strip.
//! **Not here**: what to read or write (`plan`), where the data area of a member begins
//! (`superblock`).
//! **Source**: rotation of Linux md, `drivers/md/raid5.c` `raid5_compute_sector`,
//! `ALGORITHM_LEFT_SYMMETRIC`.

mod error;
mod search;
mod spread;
mod weighted;

use std::ops::Range;
use std::rc::Rc;

use crate::level::Level;
pub use error::LayoutError;
pub use spread::{BASES_MAX, Declustering, SLOTS_MAX, Spread};
use spread::{Content, Development};
use weighted::Dealing;
pub use weighted::{Striping, WEIGHTED_MAX, Weights};

/// The smallest strip.
pub const STRIP_BYTES_MIN: u32 = 4 << 10;
/// The largest strip.
pub const STRIP_BYTES_MAX: u32 = 1 << 20;
/// The most members of an array: a data strip must have a coefficient of its own in Q.
pub const MEMBERS_MAX: usize = 255;

/// The role of a member: its place among all members of the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Role(pub u16);

impl Role {
    /// As an index into a table of all members.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The number of a stripe, counted over all groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stripe(pub u64);

/// The place of a strip: one row on one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StripCell {
    pub role: Role,
    /// Of strips, from the start of the data area.
    pub row: u64,
}

/// What a strip of a stripe holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Strip {
    /// The data strip with this number, from 0.
    Data(u16),
    /// The sum of the data strips.
    P,
    /// The weighted sum of the data strips.
    Q,
}

/// A byte of the array as (stripe, data strip, offset in the strip).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripOffset {
    pub stripe: Stripe,
    pub strip: u16,
    pub within: u32,
}

/// The shape of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    level: Level,
    members: u16,
    groups: u16,
    width: u16,
    data: u16,
    strip_bytes: u32,
    rows: u64,
    /// The fewest rows that hold whole stripes, and how many stripes.
    band_rows: u64,
    band_stripes: u64,
    /// Where it is declustered.
    development: Option<Rc<Development>>,
    /// Where members have weights; rows are those of a weight of one then.
    dealing: Option<Rc<Dealing>>,
}

impl Layout {
    /// The layout of an array whose members each give `member_data_bytes`, rounded down to whole
    /// strips.
    ///
    /// # Errors
    /// Where the level does not allow the shape.
    pub fn new(
        level: Level,
        members: usize,
        groups: usize,
        strip_bytes: u32,
        member_data_bytes: u64,
    ) -> Result<Layout, LayoutError> {
        check_strip(strip_bytes)?;
        let width = group_width(level, members, groups)?;
        let rows = member_data_bytes / u64::from(strip_bytes);
        let data = if level.is_mirrored() { 1 } else { width - u16::from(level.parity()) };
        let rows_max = u64::MAX / u64::from(strip_bytes) / MEMBERS_MAX as u64;
        if rows == 0 || rows > rows_max {
            return Err(LayoutError::MemberTooSmall { data_bytes: member_data_bytes, strip_bytes });
        }
        let (members, groups) = (members as u16, groups as u16);
        let (band_rows, band_stripes) = (1, u64::from(groups));
        let (development, dealing) = (None, None);
        Ok(Layout {
            level,
            members,
            groups,
            width,
            data,
            strip_bytes,
            rows,
            band_rows,
            band_stripes,
            development,
            dealing,
        })
    }

    /// The layout of an array of level 0 in which a member gives `unit_bytes`, rounded down to
    /// whole strips, times its weight.
    ///
    /// # Errors
    /// Where that is no strip, or too much.
    pub fn weighted(
        weights: Weights,
        strip_bytes: u32,
        unit_bytes: u64,
    ) -> Result<Layout, LayoutError> {
        let whole =
            Layout::new(Level::Raid0, weights.as_slice().len(), 1, strip_bytes, unit_bytes)?;
        let band_stripes = weights.total();
        if whole.rows > u64::MAX / u64::from(strip_bytes) / band_stripes {
            return Err(LayoutError::MemberTooSmall { data_bytes: unit_bytes, strip_bytes });
        }
        let dealing = Some(Rc::new(Dealing::new(weights)));
        Ok(Layout { width: 1, data: 1, band_stripes, dealing, ..whole })
    }

    /// The layout of a declustered array, whose members each give `member_data_bytes`, rounded down
    /// to whole bands.
    ///
    /// # Errors
    /// Where the shape cannot be.
    pub fn declustered(
        level: Level,
        members: usize,
        declustering: &Declustering,
        strip_bytes: u32,
        member_data_bytes: u64,
    ) -> Result<Layout, LayoutError> {
        let spread = declustering.spread;
        spread.check(level, members)?;
        let whole = Layout::new(level, members, 1, strip_bytes, member_data_bytes)?;
        let (tall_rows, piles) = spread.band(members as u64);
        let height = u64::from(declustering.height);
        let (band_rows, band_stripes) = (tall_rows * height, piles * height);
        let rows = whole.rows - whole.rows % band_rows;
        if rows == 0 {
            return Err(LayoutError::TooFewRows { rows: whole.rows, needed: band_rows });
        }
        Ok(Layout {
            width: spread.width,
            data: spread.width - u16::from(level.parity()),
            rows,
            band_rows,
            band_stripes,
            development: Some(Rc::new(Development::new(declustering, members))),
            ..whole
        })
    }

    /// A declustering of so many members under which they take equal parts in a rebuild, for strips
    /// and data areas of so many bytes.
    ///
    /// # Errors
    /// Where the shape cannot be.
    pub fn decluster(
        level: Level,
        members: usize,
        spread: Spread,
        (strip_bytes, member_data_bytes): (u32, u64),
    ) -> Result<Declustering, LayoutError> {
        check_strip(strip_bytes)?;
        spread.check(level, members)?;
        let rows = member_data_bytes / u64::from(strip_bytes);
        let height = spread.height(members as u64, strip_bytes, rows);
        Ok(Declustering { spread, height, seeds: search::seeds(level, members, spread) })
    }

    /// The level.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Members of the whole array.
    pub fn members(&self) -> usize {
        usize::from(self.members)
    }

    /// Groups of members.
    pub fn groups(&self) -> usize {
        usize::from(self.groups)
    }

    /// Strips of a stripe, data and parity; of a mirror, its copies.
    pub fn width(&self) -> usize {
        usize::from(self.width)
    }

    /// Members of one group.
    pub fn group_members(&self) -> usize {
        self.members() / self.groups()
    }

    /// The members of a group.
    pub fn group_roles(&self, group: usize) -> impl Iterator<Item = Role> {
        let first = group * self.group_members();
        (first..first + self.group_members()).map(|index| Role(index as u16))
    }

    /// The group of a member.
    pub fn group_of_role(&self, role: Role) -> usize {
        role.index() / self.group_members()
    }

    /// Data strips in a stripe.
    pub fn data_strips(&self) -> usize {
        usize::from(self.data)
    }

    /// Parity strips in a stripe.
    pub fn parity_strips(&self) -> usize {
        usize::from(self.level.parity())
    }

    /// Copies of each strip.
    pub fn copies(&self) -> usize {
        if self.level.is_mirrored() { self.width() } else { 1 }
    }

    /// Members that a group can lose without losing data.
    pub fn redundancy(&self) -> usize {
        self.parity_strips().max(self.copies() - 1)
    }

    /// Every strip of a stripe: the data, then the parity.
    pub fn strips(&self) -> impl Iterator<Item = Strip> {
        let parity = [Strip::P, Strip::Q].into_iter().take(self.parity_strips());
        (0..self.data).map(Strip::Data).chain(parity)
    }

    /// Bytes of a strip.
    pub fn strip_bytes(&self) -> u32 {
        self.strip_bytes
    }

    /// Data bytes of a stripe.
    pub fn stripe_bytes(&self) -> u64 {
        u64::from(self.strip_bytes) * u64::from(self.data)
    }

    /// Bytes of the data area of each member; where they have weights, of a weight of one.
    pub fn member_data_bytes(&self) -> u64 {
        self.rows * u64::from(self.strip_bytes)
    }

    /// Rows of strips on each member; where they have weights, of a weight of one.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Stripes of the whole array.
    pub fn stripes(&self) -> u64 {
        self.rows / self.band_rows * self.band_stripes
    }

    /// Rows of a band: the fewest that hold whole stripes only.
    pub fn band_rows(&self) -> u64 {
        self.band_rows
    }

    /// Stripes of a band, over all groups.
    pub fn band_stripes(&self) -> u64 {
        self.band_stripes
    }

    /// Rows after which the pattern of a declustered layout begins again; 1 for others.
    pub fn pattern_rows(&self) -> u64 {
        self.development.as_ref().map_or(1, |it| it.bands() * self.band_rows)
    }

    /// Rows of strips that are adjacent to those of the same stripes, where stripes are
    /// declustered; 1 for others.
    pub fn pile_rows(&self) -> u64 {
        self.development.as_ref().map_or(1, |it| it.height())
    }

    /// Whether stripes are narrower than their group.
    pub fn is_declustered(&self) -> bool {
        self.development.is_some()
    }

    /// Members' worth of distributed spare space.
    pub fn spare_slots(&self) -> u16 {
        self.development.as_ref().map_or(0, |it| it.spares())
    }

    /// The rows that hold strips of some stripes.
    pub fn rows_of(&self, stripes: Range<u64>) -> Range<u64> {
        let bands = stripes.start / self.band_stripes..stripes.end.div_ceil(self.band_stripes);
        bands.start * self.band_rows..bands.end * self.band_rows
    }

    /// Bytes of the array.
    pub fn array_bytes(&self) -> u64 {
        self.stripes() * self.stripe_bytes()
    }

    /// The place of an array byte.
    ///
    /// # Panics
    /// If the byte is past the end of the array.
    pub fn place(&self, array_offset: u64) -> StripOffset {
        assert!(array_offset < self.array_bytes(), "byte {array_offset} is past the array");
        let strips = array_offset / u64::from(self.strip_bytes);
        StripOffset {
            stripe: Stripe(strips / u64::from(self.data)),
            strip: (strips % u64::from(self.data)) as u16,
            within: (array_offset % u64::from(self.strip_bytes)) as u32,
        }
    }

    /// The first array byte of a stripe.
    pub fn stripe_start(&self, stripe: Stripe) -> u64 {
        stripe.0 * self.stripe_bytes()
    }

    /// The group in which a stripe lies.
    pub fn group_of(&self, stripe: Stripe) -> usize {
        (stripe.0 % u64::from(self.groups)) as usize
    }

    /// Where a row of strips begins in the data area of a member.
    pub fn row_start(&self, row: u64) -> u64 {
        row * u64::from(self.strip_bytes)
    }

    /// Where a strip lies. For mirrors this is the first copy; the others are in the same row.
    pub fn cell(&self, stripe: Stripe, strip: Strip) -> StripCell {
        if let Some(development) = &self.development {
            return development.cell(stripe, self.order_of(strip));
        }
        if let Some(dealing) = &self.dealing {
            return dealing.cell(stripe);
        }
        let (group, row) = (self.group_of(stripe), stripe.0 / u64::from(self.groups));
        let slot = self.slot_of(row, strip);
        StripCell { role: Role((group * self.width() + slot) as u16), row }
    }

    /// The cell of copy `copy` of the strip of a stripe in a mirrored group.
    pub fn cell_of_copy(&self, stripe: Stripe, copy: usize) -> StripCell {
        assert!(copy < self.copies());
        let (group, row) = (self.group_of(stripe), stripe.0 / u64::from(self.groups));
        StripCell { role: Role((group * self.width() + copy) as u16), row }
    }

    /// The contents of a cell; `None` for spare space.
    pub fn strip_in(&self, cell: StripCell) -> Option<(Stripe, Strip)> {
        if let Some(development) = &self.development {
            return match development.content(cell) {
                Content::Strip(stripe, place) => Some((stripe, self.strip_of(place))),
                Content::Spare(_) => None,
            };
        }
        if let Some(dealing) = &self.dealing {
            return Some((dealing.stripe_in(cell), Strip::Data(0)));
        }
        let StripCell { role, row } = cell;
        let group = self.group_of_role(role);
        let stripe = Stripe(row * u64::from(self.groups) + group as u64);
        let strip = match self.level.is_mirrored() {
            true => Strip::Data(0),
            false => self.strip_at(row, role.index() - group * self.width()),
        };
        Some((stripe, strip))
    }

    /// The spare slot of which a cell is a part.
    pub fn slot_in(&self, cell: StripCell) -> Option<u16> {
        match self.development.as_ref()?.content(cell) {
            Content::Strip(..) => None,
            Content::Spare(slot) => Some(slot),
        }
    }

    /// The cell of a spare slot in a row.
    ///
    /// # Panics
    /// Where there is no such slot.
    pub fn spare_cell(&self, slot: u16, row: u64) -> StripCell {
        let development = self.development.as_ref().expect("only declustered arrays have slots");
        development.spare_cell(slot, row)
    }

    /// The place of a strip in the order of its stripe: the data, then the parity.
    fn order_of(&self, strip: Strip) -> u16 {
        match strip {
            Strip::Data(k) => k,
            Strip::P => self.data,
            Strip::Q => self.data + 1,
        }
    }

    fn strip_of(&self, place: u16) -> Strip {
        match place {
            k if k < self.data => Strip::Data(k),
            p if p == self.data => Strip::P,
            _ => Strip::Q,
        }
    }

    fn slot_of(&self, row: u64, strip: Strip) -> usize {
        let (width, parity) = (self.width(), self.parity_strips());
        let p = width - 1 - (row % width as u64) as usize;
        match strip {
            Strip::Data(k) if parity == 0 => usize::from(k),
            Strip::Data(k) => wrap(p + parity + usize::from(k), width),
            Strip::P => p,
            Strip::Q => wrap(p + 1, width),
        }
    }

    fn strip_at(&self, row: u64, slot: usize) -> Strip {
        let (width, parity) = (self.width(), self.parity_strips());
        let p = width - 1 - (row % width as u64) as usize;
        let from_p = wrap(slot + width - p, width);
        match from_p {
            _ if parity == 0 => Strip::Data(slot as u16),
            0 => Strip::P,
            1 if parity == 2 => Strip::Q,
            _ => Strip::Data((from_p - parity) as u16),
        }
    }
}

fn wrap(slot: usize, width: usize) -> usize {
    if slot >= width { slot - width } else { slot }
}

fn check_strip(strip_bytes: u32) -> Result<(), LayoutError> {
    let allowed = STRIP_BYTES_MIN..=STRIP_BYTES_MAX;
    if strip_bytes.is_power_of_two() && allowed.contains(&strip_bytes) {
        return Ok(());
    }
    Err(LayoutError::Strip(strip_bytes))
}

fn group_width(level: Level, members: usize, groups: usize) -> Result<u16, LayoutError> {
    if members == 0 || members > MEMBERS_MAX {
        return Err(LayoutError::Members { members });
    }
    if groups != 1 && !level.has_groups() {
        return Err(LayoutError::GroupsNotAllowed { level, groups });
    }
    if groups == 0 || !members.is_multiple_of(groups) {
        return Err(LayoutError::Uneven { members, groups });
    }
    let (found, needed) = (members / groups, level.group_members_min());
    if found < needed {
        return Err(LayoutError::TooFew { level, needed, found });
    }
    Ok(found as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn layout(level: Level, members: usize, groups: usize) -> Layout {
        Layout::new(level, members, groups, 4096, 1 << 20).unwrap()
    }

    fn row_text(layout: &Layout, row: u64) -> String {
        (0..layout.width())
            .map(|slot| {
                match layout.strip_in(StripCell { role: Role(slot as u16), row }).unwrap().1 {
                    Strip::Data(k) => {
                        format!("{}", row * layout.data_strips() as u64 + u64::from(k))
                    }
                    Strip::P => "P".into(),
                    Strip::Q => "Q".into(),
                }
            })
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn raid5_rotates_like_md_left_symmetric() {
        let layout = layout(Level::Raid5, 4, 1);
        let rows: Vec<_> = (0..5).map(|row| row_text(&layout, row)).collect();
        assert_eq!(rows, ["0 1 2 P", "4 5 P 3", "8 P 6 7", "P 9 10 11", "12 13 14 P"]);
    }

    #[test]
    fn raid6_rotates_like_md_left_symmetric() {
        let layout = layout(Level::Raid6, 5, 1);
        let rows: Vec<_> = (0..5).map(|row| row_text(&layout, row)).collect();
        assert_eq!(rows, ["Q 0 1 2 P", "3 4 5 P Q", "7 8 P Q 6", "11 P Q 9 10", "P Q 12 13 14"]);
    }

    #[test]
    fn raid60_goes_round_the_groups_by_whole_stripes() {
        let layout = Layout::new(Level::Raid60, 40, 4, 65536, 4 << 40).unwrap();
        let stripe_bytes = 8 * 65536;
        assert_eq!(layout.stripe_bytes(), stripe_bytes);
        assert_eq!(layout.group_of(layout.place(5 * stripe_bytes).stripe), 1);
        assert_eq!(layout.cell(layout.place(5 * stripe_bytes).stripe, Strip::P).row, 1);
        assert!(layout.array_bytes() > 100 << 40);
    }

    #[test]
    fn shapes_that_a_level_does_not_allow_are_refused() {
        let attempt = |level, members, groups| Layout::new(level, members, groups, 4096, 1 << 20);
        assert!(matches!(attempt(Level::Raid6, 8, 2), Err(LayoutError::GroupsNotAllowed { .. })));
        assert!(matches!(attempt(Level::Raid60, 7, 2), Err(LayoutError::Uneven { .. })));
        assert!(matches!(attempt(Level::Raid60, 6, 2), Err(LayoutError::TooFew { .. })));
        assert!(matches!(attempt(Level::Raid5, 2, 1), Err(LayoutError::TooFew { .. })));
        assert!(matches!(attempt(Level::Raid0, 256, 1), Err(LayoutError::Members { .. })));
        assert!(Layout::new(Level::Raid0, 1, 1, 5000, 1 << 20).is_err());
        assert!(Layout::new(Level::Raid0, 1, 1, 4096, 4095).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_strip_of_a_stripe_has_its_own_member(
            level in prop::sample::select(Level::ALL.to_vec()),
            extra in 0_usize..6, groups in 1_usize..4, stripe in 0_u64..500,
        ) {
            let groups = if level.has_groups() { groups } else { 1 };
            let width = level.group_members_min() + extra;
            let layout = Layout::new(level, width * groups, groups, 4096, 1 << 30).unwrap();
            let stripe = Stripe(stripe);
            for strip in layout.strips() {
                let cell = layout.cell(stripe, strip);
                prop_assert_eq!(layout.strip_in(cell), Some((stripe, strip)));
                prop_assert_eq!(layout.group_of_role(cell.role), layout.group_of(stripe));
            }
        }
    }
}
