//! How far a spare holds the role that it is being given.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

use super::Member;

/// A spare on its way to a role.
pub(in crate::array) struct Filling {
    pub(in crate::array) member: Rc<Member>,
    /// It holds every row below.
    rows: Cell<u64>,
    /// Rows that it holds beyond: several are filled at a time.
    ahead: RefCell<BTreeSet<u64>>,
    /// The rows that it does not bring with it; ascending, and apart from each other.
    lacks: Vec<Range<u64>>,
    /// Of the role.
    rows_total: u64,
    /// Rows from the start on that are stable there, and may be recorded.
    recorded_rows: Cell<u64>,
}

impl Filling {
    /// Of a device that holds the first `rows` of `rows_total`, and beyond whatever is not in
    /// `lacks`.
    pub(super) fn new(
        member: Rc<Member>,
        rows: u64,
        lacks: Vec<Range<u64>>,
        rows_total: u64,
    ) -> Filling {
        let (rows, recorded_rows) = (Cell::new(rows), Cell::new(rows));
        let ahead = RefCell::default();
        let filling = Filling { member, rows, ahead, lacks, rows_total, recorded_rows };
        filling.advance();
        filling
    }

    /// Whether what lies in a row there is right.
    pub(in crate::array) fn holds(&self, row: u64) -> bool {
        row < self.rows.get() || self.brings(row) || self.ahead.borrow().contains(&row)
    }

    /// The first row that it does not hold.
    pub(in crate::array) fn rows(&self) -> u64 {
        self.rows.get()
    }

    /// A row has been written there, and its stripe is still locked.
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

    /// The first range that does not lie below a row.
    fn lacking_from(&self, row: u64) -> Option<&Range<u64>> {
        self.lacks.get(self.lacks.partition_point(|lacking| lacking.end <= row))
    }
}
