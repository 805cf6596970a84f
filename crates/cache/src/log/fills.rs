//! Reads of the core for the log, and whether their data is still current.

use super::{Intake, Log, Purpose};
use crate::types::BlockRun;
use std::cell::Cell;
use std::rc::Rc;

/// A read of the core whose result becomes wrong when its blocks are written meanwhile.
#[derive(Debug)]
pub struct Fill {
    run: BlockRun,
    spoiled: Cell<bool>,
}

impl Fill {
    /// Whether it has become wrong.
    pub(super) fn is_spoiled(&self) -> bool {
        self.spoiled.get()
    }
}

impl Log {
    pub fn begin_fill(&mut self, run: BlockRun) -> Rc<Fill> {
        let fill = Rc::new(Fill { run, spoiled: Cell::new(false) });
        self.fills.push(Rc::clone(&fill));
        fill
    }

    pub fn end_fill(&mut self, fill: &Rc<Fill>) {
        self.fills.retain(|other| !Rc::ptr_eq(other, fill));
    }

    /// What is being read from the core for these blocks is not to be inserted.
    pub fn spoil(&mut self, run: BlockRun) {
        for fill in self.fills.iter().filter(|fill| fill.run.overlaps(run)) {
            fill.spoiled.set(true);
        }
    }

    /// What others read of the blocks of an intake is not.
    pub(super) fn spoil_others(&mut self, intake: &Intake) {
        if self.fills.is_empty() || intake.purpose == Purpose::ReadInsert {
            return;
        }
        for fill in self.fills.iter().filter(|fill| fill.run.overlaps(intake.run)) {
            if intake.guard.is_none_or(|own| !Rc::ptr_eq(own, fill)) {
                fill.spoiled.set(true);
            }
        }
    }
}
