//! Which cells taught something, and which only check.
//!
//! A figure that was looked at when a constant or a rule was chosen is no proof of it. Here stands
//! which were, and of what; every other cell is a check. Constants that come from tables which are
//! not scored (`opencas_limits`) or from data sheets were taught by no cell.

use super::cached::RANDOM_WRITE_CACHED;
use super::raid60::{MIXED, RANDOM_WRITE};
use super::sequential::{LARGE_WRITE, WRITE, WRITE_CACHED};
use super::syncs::SYNCS;

/// A lesson: what was chosen with these cells in view.
struct Lesson {
    table: &'static str,
    /// By their names; all where there are none.
    rows: &'static [&'static str],
    columns: &'static [&'static str],
    what: &'static str,
}

const SEEKS: &str = "hdd-7k2-4t: seeks and settling, within the ranges of the sheets";

const WAY_IN: &str = "hdd-7k2-4t: turnaround_ms and write_mb_per_s";
const FLUSHES: &str = "that the array passes flushes on to its drives";

const LESSONS: [Lesson; 9] = [
    Lesson { table: RANDOM_WRITE, rows: &[], columns: &[], what: SEEKS },
    Lesson {
        table: MIXED,
        rows: &["50 % reads, no cache", "30 % reads, no cache", "70 % reads, no cache"],
        columns: &[],
        what: SEEKS,
    },
    Lesson { table: WRITE, rows: &[], columns: &[], what: WAY_IN },
    Lesson {
        table: LARGE_WRITE,
        rows: &["strip 64K, block 128K", "strip 64K, block 512K", "strip 128K, block 1024K"],
        columns: &[],
        what: WAY_IN,
    },
    Lesson {
        table: WRITE_CACHED,
        rows: &[],
        columns: &[],
        what: "opencas-22.06: that the cleaner shares the core; that memory costs nothing beside it",
    },
    Lesson { table: RANDOM_WRITE_CACHED, rows: &[], columns: &["qd32", "qd1"], what: FLUSHES },
    Lesson {
        table: MIXED,
        rows: &["30 % reads, write-back, acp very aggressive"],
        columns: &[],
        what: FLUSHES,
    },
    Lesson {
        table: SYNCS,
        rows: &["Intel X25-M G2 160GB"],
        columns: &["sata_d+"],
        what: "ssd-x25m-g2-160g: that it ignores flushes",
    },
    Lesson {
        table: SYNCS,
        rows: &["Intel X25-M G2 160GB"],
        columns: &["sata_d-"],
        what: "ssd-x25m-g2-160g: when the page of the journal is programmed",
    },
];

/// What a cell taught; nothing where it only checks.
pub(super) fn taught(table: &str, row: &str, column: &str) -> Option<&'static str> {
    let is_one = |names: &[&str], name: &str| names.is_empty() || names.contains(&name);
    let is_it =
        |it: &&Lesson| it.table == table && is_one(it.rows, row) && is_one(it.columns, column);
    LESSONS.iter().find(is_it).map(|it| it.what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::{Times, plan};
    use headpond_testkit::{shared, skip};

    #[test]
    fn lessons_name_cells_that_there_are_and_leave_some_to_check() {
        let Some(folder) = shared("reference") else {
            skip!("lessons_name_cells_that_there_are", "no published tables");
        };
        let cells = plan(&folder, Times::default(), &[]).unwrap().cells;
        for Lesson { table, rows, columns, what } in &LESSONS {
            let of_table: Vec<_> = cells.iter().filter(|cell| cell.table == *table).collect();
            assert!(!of_table.is_empty(), "{what}: {table}");
            for row in *rows {
                assert!(of_table.iter().any(|cell| cell.row == *row), "{what}: {row}");
            }
            for column in *columns {
                assert!(of_table.iter().any(|cell| cell.column == *column), "{what}: {column}");
            }
        }
        let checks = |cell: &&crate::reference::Planned| {
            taught(cell.table, &cell.row, &cell.column).is_none()
        };
        assert!(cells.iter().filter(checks).count() * 4 > cells.len(), "some are left to check");
    }
}
