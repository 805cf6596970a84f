//! How far a spare holds the role that it is being given.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use super::Member;

/// A spare on its way to a role.
pub(in crate::array) struct Filling {
    pub(in crate::array) member: Rc<Member>,
    /// It holds every row below.
    rows: Cell<u64>,
    /// Rows that it holds beyond: several are filled at a time.
    ahead: RefCell<BTreeSet<u64>>,
    /// Rows from the start on that are stable there, and may be recorded.
    recorded_rows: Cell<u64>,
}

impl Filling {
    pub(super) fn new(member: Rc<Member>, rows: u64) -> Filling {
        let (rows, recorded_rows) = (Cell::new(rows), Cell::new(rows));
        Filling { member, rows, ahead: RefCell::default(), recorded_rows }
    }

    /// Whether what lies in a row there is right.
    pub(in crate::array) fn holds(&self, row: u64) -> bool {
        row < self.rows.get() || self.ahead.borrow().contains(&row)
    }

    /// The first row that it does not hold.
    pub(in crate::array) fn rows(&self) -> u64 {
        self.rows.get()
    }

    /// A row has been written there, and its stripe is still locked.
    pub(in crate::array) fn add(&self, row: u64) {
        let mut ahead = self.ahead.borrow_mut();
        ahead.insert(row);
        while ahead.remove(&self.rows.get()) {
            self.rows.set(self.rows.get() + 1);
        }
    }

    pub(in crate::array) fn recorded_rows(&self) -> u64 {
        self.recorded_rows.get()
    }

    /// These rows are stable.
    pub(in crate::array) fn record(&self, rows: u64) {
        assert!(self.recorded_rows.get() <= rows && rows <= self.rows.get());
        self.recorded_rows.set(rows);
    }
}
