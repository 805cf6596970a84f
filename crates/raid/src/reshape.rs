//! The steps in which the data of an array moves to a shape of more members, on the same rows.
//!
//! Both shapes count the bytes of the array from its start on, and a row of the new shape holds
//! more of them. So moved data takes fewer rows than before, and the rows between are free: a step
//! that writes only those overwrites nothing that is needed, and may be cut anywhere. At the start
//! no row is free. There a step is *staged*: its rows are first written, with their parity, before
//! the data area.
//!
//! **Invariants**
//! - Rows of a step that is not staged have, by the former shape, only bytes before the step.
//! - Every step ends where a row of the new shape does.
//!
//! **Source**: the critical section of Linux md's reshape and its backup; here the backup is on the
//! members, in the new shape, and so has its redundancy.

use std::ops::Range;

use headpond_block::ByteRange;

use crate::layout::Layout;
use crate::superblock::STAGE_BYTES;

/// What is moved at a time, and held back from clients so long: bytes of the array.
const STEP_BYTES: u64 = 8 << 20;

/// The way from one shape to the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    former_bytes: u64,
    /// Bytes of the array in a row of strips over all members, by either shape.
    former_row_bytes: u64,
    row_bytes: u64,
    rows: u64,
    stage_rows: u64,
}

/// What is moved at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Of the new shape.
    pub rows: Range<u64>,
    pub is_staged: bool,
}

impl Way {
    /// # Panics
    /// Where the shapes do not have the same rows, a row does not hold more by the new one, or a
    /// strip does not fit where rows are staged.
    pub fn new(former: &Layout, next: &Layout) -> Way {
        assert_eq!(former.strip_bytes(), next.strip_bytes(), "both have the same strips");
        assert_eq!(former.rows(), next.rows(), "both have the same rows");
        let way = Way {
            former_bytes: former.array_bytes(),
            former_row_bytes: row_bytes(former),
            row_bytes: row_bytes(next),
            rows: next.rows(),
            stage_rows: stage_rows(next.strip_bytes()),
        };
        assert!(way.former_row_bytes < way.row_bytes, "an array grows");
        assert!(way.stage_rows > 0, "a strip can be staged");
        way
    }

    /// Rows of the new shape.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The step after so many rows of the new shape; `None` at the end.
    pub fn step(&self, moved_rows: u64) -> Option<Step> {
        assert!(moved_rows <= self.rows);
        if moved_rows == self.rows {
            return None;
        }
        let free = self.free_rows(moved_rows) - moved_rows;
        let is_staged = free == 0;
        let most = match is_staged {
            true => self.stage_rows.min(self.rows_without_room()),
            false => free.min(STEP_BYTES / self.row_bytes).max(1),
        };
        let end = self.rows.min(moved_rows + most);
        Some(Step { rows: moved_rows..end, is_staged })
    }

    /// The first row that holds data by the former shape which has not moved.
    pub fn free_rows(&self, moved_rows: u64) -> u64 {
        let moved = moved_rows * self.row_bytes;
        if moved >= self.former_bytes { self.rows } else { moved / self.former_row_bytes }
    }

    /// How many bytes of the former array are in so many rows of the new shape.
    pub fn moved_bytes(&self, moved_rows: u64) -> u64 {
        self.former_bytes.min(moved_rows * self.row_bytes)
    }

    /// The bytes of some rows of the new shape; those behind the end of the former array are new.
    pub fn bytes_of(&self, rows: &Range<u64>) -> ByteRange {
        ByteRange::between(rows.start * self.row_bytes, rows.end * self.row_bytes)
    }

    /// Twice as many rows as it takes until one is free: more is staged than has to be, so that the
    /// first steps after that are no shorter than a row or two.
    fn rows_without_room(&self) -> u64 {
        2 * self.former_row_bytes.div_ceil(self.row_bytes - self.former_row_bytes)
    }
}

/// Rows of strips that can be staged on each member at a time.
pub fn stage_rows(strip_bytes: u32) -> u64 {
    STAGE_BYTES / u64::from(strip_bytes)
}

fn row_bytes(layout: &Layout) -> u64 {
    layout.stripe_bytes() * layout.groups() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Role, StripCell};
    use crate::level::Level;
    use proptest::prelude::*;

    const STRIP: u32 = 64 << 10;

    fn shapes() -> impl Strategy<Value = (Layout, Layout)> {
        let levels = [Level::Raid0, Level::Raid5, Level::Raid6, Level::Raid10, Level::Raid50];
        let counts = (1_usize..4, 0_usize..6, 1_usize..4);
        (prop::sample::select(levels.to_vec()), counts, 1_u64..80).prop_map(
            |(level, (groups, extra, more), rows)| {
                let groups = if level.has_groups() { groups } else { 1 };
                let width = level.group_members_min() + extra;
                let new_groups = if level.has_groups() { groups + more } else { 1 };
                let members = if level.has_groups() { new_groups * width } else { width + more };
                let data_bytes = rows * u64::from(STRIP);
                let shape = |members, groups| {
                    Layout::new(level, members, groups, STRIP, data_bytes).expect("a shape")
                };
                (shape(groups * width, groups), shape(members, new_groups))
            },
        )
    }

    /// Cells that hold bytes of a range by a shape, parity and copies among them.
    fn cells(layout: &Layout, bytes: ByteRange) -> Vec<StripCell> {
        let (first, last) = (layout.place(bytes.start()).stripe, layout.place(bytes.end() - 1));
        let stripes = first.0..=last.stripe.0;
        let in_group = |stripe| layout.group_roles(layout.group_of(stripe));
        let row = |stripe: u64| stripe / layout.groups() as u64;
        let cell = |stripe, role: Role| StripCell { role, row: row(stripe) };
        let stripes = stripes.map(|stripe| (stripe, in_group(crate::layout::Stripe(stripe))));
        stripes.flat_map(|(stripe, roles)| roles.map(move |role| cell(stripe, role))).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_step_that_is_not_staged_writes_over_nothing_that_has_not_moved(
            (former, next) in shapes(),
        ) {
            let way = Way::new(&former, &next);
            let (mut moved, mut steps) = (0, 0);
            while let Some(step) = way.step(moved) {
                prop_assert_eq!(step.rows.start, moved);
                prop_assert!(step.rows.end > moved && step.rows.end <= next.rows());
                let rest = ByteRange::between(way.moved_bytes(moved), former.array_bytes());
                if !step.is_staged && !rest.is_empty() {
                    let needed = cells(&former, rest);
                    let written = cells(&next, way.bytes_of(&step.rows));
                    prop_assert!(!written.iter().any(|cell| needed.contains(cell)));
                }
                let staged = step.rows.end - step.rows.start;
                prop_assert!(!step.is_staged || staged <= stage_rows(STRIP));
                (moved, steps) = (step.rows.end, steps + 1);
            }
            prop_assert_eq!(moved, next.rows());
            prop_assert_eq!(way.moved_bytes(moved), former.array_bytes());
            prop_assert!(steps <= next.rows());
        }
    }

    #[test]
    fn only_the_start_is_staged() {
        let shape = |members| Layout::new(Level::Raid5, members, 1, STRIP, 100 << 20).unwrap();
        let way = Way::new(&shape(3), &shape(4));
        let mut step = way.step(0).expect("there is data");
        assert_eq!(step, Step { rows: 0..4, is_staged: true });
        while let Some(next) = way.step(step.rows.end) {
            assert!(!next.is_staged, "{next:?}");
            step = next;
        }
    }
}
