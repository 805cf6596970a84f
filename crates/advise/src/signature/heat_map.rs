//! When and where requests were: a grid of time and address.
//!
//! Cells begin small; when time or addresses do not fit the grid any more, two become one. All
//! devices of a trace lie over each other.
//!
//! **Invariants**: at most `COLUMNS` by `ROWS` cells; counts are exact, and merging two traces
//! gives what one pass over both would give.

use headpond_trace::Op;
use serde::{Deserialize, Serialize};

const COLUMNS: u64 = 128;
const ROWS: u64 = 128;

/// The smallest cell: 2^20 ns by 4 KiB.
const TIME_EXPONENT_MIN: u32 = 20;
const ADDRESS_EXPONENT_MIN: u32 = 12;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub(crate) struct HeatCounts {
    time_exponent: u32,
    address_exponent: u32,
    /// Lowest and highest row in use, counted from address 0; they lie within `ROWS`.
    rows: Option<(u64, u64)>,
    /// Reads and writes, column by column; a row stands at its number modulo `ROWS`.
    cells: Vec<[u64; 2]>,
}

/// The exponents, then column, row, reads and writes of each cell in use.
#[derive(Clone, Serialize, Deserialize)]
struct Stored(u32, u32, Vec<(u64, u64, u64, u64)>);

/// Reads and writes over time and address.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeatMap {
    pub cell_ns: u64,
    pub cell_bytes: u64,
    /// Those with a request, in order of time and address.
    pub cells: Vec<HeatCell>,
}

/// One cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct HeatCell {
    /// From the start of the trace.
    pub from_ns: u64,
    pub offset_bytes: u64,
    pub reads: u64,
    pub writes: u64,
}

impl Default for HeatCounts {
    fn default() -> Self {
        Self {
            time_exponent: TIME_EXPONENT_MIN,
            address_exponent: ADDRESS_EXPONENT_MIN,
            rows: None,
            cells: Vec::new(),
        }
    }
}

impl HeatCounts {
    /// Adds a read or a write, where it begins.
    #[inline]
    pub(crate) fn add(&mut self, op: Op, at_ns: u64, offset_bytes: u64) {
        let counts = if op == Op::Write { [0, 1] } else { [1, 0] };
        self.count(at_ns, offset_bytes, counts);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        let exponents = (other.time_exponent, other.address_exponent);
        self.coarsen(exponents.0.max(self.time_exponent), exponents.1.max(self.address_exponent));
        for (column, row, counts) in other.in_use() {
            self.count(column << exponents.0, row << exponents.1, counts);
        }
    }

    #[inline]
    fn count(&mut self, at_ns: u64, offset_bytes: u64, counts: [u64; 2]) {
        let (column, row) = (at_ns >> self.time_exponent, offset_bytes >> self.address_exponent);
        match self.rows {
            Some((low, high)) if column < COLUMNS && (low..=high).contains(&row) => {
                self.count_in(column, row, counts);
            }
            _ => self.count_beside(at_ns, offset_bytes, counts),
        }
    }

    #[inline]
    fn count_in(&mut self, column: u64, row: u64, counts: [u64; 2]) {
        let cell = &mut self.cells[place(column, row)];
        *cell = [cell[0].saturating_add(counts[0]), cell[1].saturating_add(counts[1])];
    }

    /// Counts what the grid may have to be changed for.
    fn count_beside(&mut self, at_ns: u64, offset_bytes: u64, counts: [u64; 2]) {
        if at_ns >> self.time_exponent >= COLUMNS {
            let needed = (at_ns / COLUMNS).ilog2() + 1;
            self.coarsen(needed.max(self.time_exponent), self.address_exponent);
        }
        let mut row = offset_bytes >> self.address_exponent;
        let (mut low, mut high) = self.rows.unwrap_or((row, row));
        (low, high) = (low.min(row), high.max(row));
        let mut exponent = self.address_exponent;
        while high - low >= ROWS {
            (low, high, row, exponent) = (low / 2, high / 2, row / 2, exponent + 1);
        }
        if exponent > self.address_exponent {
            self.coarsen(self.time_exponent, exponent);
        }
        self.rows = Some((low, high));
        if self.cells.is_empty() {
            self.cells.resize((COLUMNS * ROWS) as usize, [0; 2]);
        }
        self.count_in(at_ns >> self.time_exponent, row, counts);
    }

    fn coarsen(&mut self, time_exponent: u32, address_exponent: u32) {
        if (time_exponent, address_exponent) == (self.time_exponent, self.address_exponent) {
            return;
        }
        let columns_joined = time_exponent - self.time_exponent;
        let rows_joined = address_exponent - self.address_exponent;
        let small: Vec<_> = self.in_use().collect();
        self.cells.fill([0; 2]);
        for (column, row, [reads, writes]) in small {
            self.count_in(column >> columns_joined, row >> rows_joined, [reads, writes]);
        }
        (self.time_exponent, self.address_exponent) = (time_exponent, address_exponent);
        self.rows = self.rows.map(|(low, high)| (low >> rows_joined, high >> rows_joined));
    }

    /// Column, row and counts of the cells with a request.
    fn in_use(&self) -> impl Iterator<Item = (u64, u64, [u64; 2])> {
        let low = self.rows.map_or(0, |(low, _)| low);
        let row = move |at: u64| low + at.wrapping_sub(low) % ROWS;
        let cells = (0u64..).zip(&self.cells).filter(|(_, counts)| **counts != [0; 2]);
        cells.map(move |(at, &counts)| (at / ROWS, row(at % ROWS), counts))
    }

    pub(crate) fn summary(&self) -> HeatMap {
        let mut cells: Vec<_> = self
            .in_use()
            .map(|(column, row, [reads, writes])| HeatCell {
                from_ns: column << self.time_exponent,
                offset_bytes: row << self.address_exponent,
                reads,
                writes,
            })
            .collect();
        cells.sort_unstable_by_key(|cell| (cell.from_ns, cell.offset_bytes));
        HeatMap { cell_ns: 1 << self.time_exponent, cell_bytes: 1 << self.address_exponent, cells }
    }

    /// False where damage has left what no trace gives.
    pub(crate) fn is_sound(&self) -> bool {
        (TIME_EXPONENT_MIN..64).contains(&self.time_exponent)
            && (ADDRESS_EXPONENT_MIN..64).contains(&self.address_exponent)
    }
}

#[inline]
fn place(column: u64, row: u64) -> usize {
    (column * ROWS + row % ROWS) as usize
}

impl From<Stored> for HeatCounts {
    /// Cells that no grid has, as damage may bring them, are left out.
    fn from(Stored(time_exponent, address_exponent, cells): Stored) -> Self {
        let mut grid = Self { time_exponent, address_exponent, ..Self::default() };
        if !grid.is_sound() {
            return grid;
        }
        for (column, row, reads, writes) in cells {
            if column < COLUMNS && row <= u64::MAX >> address_exponent {
                grid.count(column << time_exponent, row << address_exponent, [reads, writes]);
            }
        }
        grid
    }
}

impl From<HeatCounts> for Stored {
    fn from(grid: HeatCounts) -> Self {
        let mut cells: Vec<_> = grid
            .in_use()
            .map(|(column, row, [reads, writes])| (column, row, reads, writes))
            .collect();
        cells.sort_unstable();
        Self(grid.time_exponent, grid.address_exponent, cells)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn drawn(requests: &[(u64, u64, bool)]) -> HeatCounts {
        let mut grid = HeatCounts::default();
        for &(at_ns, offset, is_write) in requests {
            let op = if is_write { Op::Write } else { Op::Read };
            grid.add(op, at_ns, offset);
        }
        grid
    }

    #[test]
    fn a_descending_stream_is_a_falling_line() {
        let requests: Vec<_> =
            (0..1000).map(|n| (n * 1_000_000_000, (1 << 40) - n * (1 << 20), false)).collect();
        let map = drawn(&requests).summary();
        assert_eq!(map.cells.iter().map(|cell| cell.reads).sum::<u64>(), 1000);
        let span = map.cells.last().unwrap().from_ns / map.cell_ns;
        assert!((64..128).contains(&span), "{span}");
        assert!(map.cells.windows(2).all(|pair| {
            pair[0].from_ns == pair[1].from_ns || pair[0].offset_bytes >= pair[1].offset_bytes
        }));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn merging_is_one_pass_over_both_in_any_order(
            one in prop::collection::vec((any::<u64>(), any::<u64>(), any::<bool>()), 0..8),
            many in prop::collection::vec((0u64..1 << 36, 0u64..1 << 40, any::<bool>()), 0..300),
        ) {
            let whole = drawn(&[one.clone(), many.clone()].concat());
            let mut merged = drawn(&one);
            merged.merge(&drawn(&many));
            prop_assert_eq!(&merged, &whole);
            let mut merged = drawn(&many);
            merged.merge(&drawn(&one));
            prop_assert_eq!(&merged, &whole);
            prop_assert_eq!(HeatCounts::from(Stored::from(whole.clone())), whole);
        }
    }
}
