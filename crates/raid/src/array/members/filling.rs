//! The rows that a member or slot has of a role.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

use super::Member;
use crate::layout::{Layout, Role};

/// A spare on its way to a role.
pub(in crate::array) struct Filling {
    pub(in crate::array) member: Rc<Member>,
    pub(in crate::array) progress: FilledRows,
}

/// A slot of distributed spare space that stands in for a lost member.
pub(in crate::array) struct Lent {
    pub(in crate::array) role: Role,
    pub(in crate::array) slot: u16,
    pub(in crate::array) progress: FilledRows,
}

/// Rows that are filled: those below a mark, and some ahead of it.
pub(in crate::array) struct FilledRows {
    /// Every row below is filled.
    rows: Cell<u64>,
    /// Rows that are filled beyond: several are at a time.
    ahead: RefCell<BTreeSet<u64>>,
    /// The rows that are not filled to begin with; ascending, and apart from each other.
    lacks: Vec<Range<u64>>,
    rows_total: u64,
    /// Rows from the start on that are stable, and may be recorded.
    recorded_rows: Cell<u64>,
}

impl FilledRows {
    /// The first `rows`.
    pub(super) fn up_to(rows: u64, layout: &Layout) -> FilledRows {
        let filled = FilledRows::but_for(std::iter::once(0..layout.rows()).collect(), layout);
        filled.rows.set(rows);
        filled.recorded_rows.set(rows);
        filled
    }

    /// All that are not in `lacks`.
    pub(super) fn but_for(lacks: Vec<Range<u64>>, layout: &Layout) -> FilledRows {
        let (rows, ahead, recorded_rows) = Default::default();
        let filled = FilledRows { rows, ahead, lacks, rows_total: layout.rows(), recorded_rows };
        filled.advance();
        filled
    }

    /// Whether the contents of a row there are valid.
    pub(in crate::array) fn holds(&self, row: u64) -> bool {
        row < self.rows.get() || self.brings(row) || self.ahead.borrow().contains(&row)
    }

    /// The first row that is not filled.
    pub(in crate::array) fn rows(&self) -> u64 {
        self.rows.get()
    }

    /// Whether all of it is stable.
    pub(in crate::array) fn is_whole(&self) -> bool {
        self.recorded_rows.get() == self.rows_total
    }

    /// How many are filled.
    pub(in crate::array) fn count(&self) -> u64 {
        self.rows.get() + self.ahead.borrow().len() as u64
    }

    /// A row has been filled, and its stripe is still locked.
    pub(in crate::array) fn add(&self, row: u64) {
        self.ahead.borrow_mut().insert(row);
        self.advance();
    }

    pub(in crate::array) fn recorded_rows(&self) -> u64 {
        self.recorded_rows.get()
    }

    /// These rows are stable.
    pub(in crate::array) fn record(&self, rows: u64) {
        assert!(self.recorded_rows.get() <= rows && rows <= self.rows.get());
        self.recorded_rows.set(rows);
    }

    /// Checks how far it is; for tests and simulation.
    ///
    /// # Panics
    /// Where an invariant does not hold.
    pub(in crate::array) fn self_check(&self) {
        let (rows, recorded) = (self.rows.get(), self.recorded_rows.get());
        assert!(recorded <= rows && rows <= self.rows_total, "recorded is what is filled");
        let is_lacked = |row: &u64| *row > rows && self.lacks.iter().any(|it| it.contains(row));
        assert!(self.ahead.borrow().iter().all(is_lacked), "filled ahead is what was lacking");
        let is_apart = |one: &Range<u64>, next: &Range<u64>| one.end <= next.start;
        assert!(self.lacks.is_sorted_by(is_apart), "what was lacking ascends");
        assert!(rows == self.rows_total || !self.brings(rows), "the mark is at a row that lacks");
    }

    fn advance(&self) {
        let mut ahead = self.ahead.borrow_mut();
        loop {
            let row = self.rows.get();
            match self.lacking_from(row) {
                Some(lacking) if row < lacking.start => self.rows.set(lacking.start),
                Some(_) if ahead.remove(&row) => self.rows.set(row + 1),
                Some(_) => break,
                None => break self.rows.set(self.rows_total),
            }
        }
    }

    fn brings(&self, row: u64) -> bool {
        self.lacking_from(row).is_none_or(|lacking| row < lacking.start)
    }

    /// The first range that is not below a row.
    fn lacking_from(&self, row: u64) -> Option<&Range<u64>> {
        self.lacks.get(self.lacks.partition_point(|lacking| lacking.end <= row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::level::Level;
    use headpond_testkit::{Break, assert_trips};

    #[test]
    fn check_notices_what_is_wrong_with_filled_rows() {
        let make = || {
            let layout = Layout::new(Level::Raid5, 3, 1, 4096, 40 << 12).expect("a shape");
            let filled = FilledRows::but_for(vec![4..8, 20..30], &layout);
            [4, 5, 21, 22].into_iter().for_each(|row| filled.add(row));
            filled.record(5);
            filled
        };
        let breaks: [Break<FilledRows>; 5] = [
            ("recorded is what is filled", |it| it.recorded_rows.set(7)),
            ("what was lacking", |it| _ = it.ahead.borrow_mut().insert(10)),
            ("what was lacking", |it| _ = it.ahead.borrow_mut().insert(6)),
            ("what was lacking ascends", |it| it.lacks.reverse()),
            ("the mark is at a row that lacks", |it| it.rows.set(9)),
        ];
        assert_trips(make, FilledRows::self_check, &breaks);
    }
}
