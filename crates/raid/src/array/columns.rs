//! Parity over vectored memory: each data strip is a column of the same length, cut into parts
//! anyhow.
//!
//! **Invariants**: no operation that writes to this memory is in flight while it is computed on;
//! memory without payload is left alone.

use std::collections::BTreeSet;

use headpond_block::{Buffer, Buffers};
use smallvec::SmallVec;

use crate::parity::{self, Lost};

/// The data strips of a stripe over one span; `None` for one that is not known.
pub(super) type Columns = SmallVec<[Option<Buffers>; 8]>;

/// Where P and Q of a stripe are computed.
pub(super) struct ParityMemory {
    pub(super) p: Buffer,
    /// For levels with two parity strips.
    pub(super) q: Option<Buffer>,
}

impl ParityMemory {
    /// Makes the parity of columns that are all known.
    pub(super) fn generate(&mut self, columns: &Columns) {
        assert!(columns.iter().all(Option::is_some));
        let len = self.p.len();
        for_each_run(columns, len, |start, strips| {
            let (p, q) = self.run(start, run_len(strips));
            match q {
                Some(q) => parity::pq(p, q, strips),
                None => parity::sum(p, &known(strips)),
            }
        });
    }

    /// Puts the lost columns in their places, solved from the known ones and the old parity held
    /// here.
    pub(super) fn solve(mut self, columns: &mut Columns, lost: Lost) {
        let len = self.p.len();
        self.add_columns(columns);
        {
            let (p, q) = self.run(0, len);
            parity::recover(lost, Some(p), q);
        }
        let q = self.q.map(Buffers::from);
        match lost {
            Lost::OneFromP(k) => columns[usize::from(k)] = Some(self.p.into()),
            Lost::OneFromQ(k) => columns[usize::from(k)] = q,
            Lost::Two(first, second) => {
                columns[usize::from(first)] = q;
                columns[usize::from(second)] = Some(self.p.into());
            }
        }
    }

    /// Adds the columns that are known to what is held here.
    pub(super) fn add_columns(&mut self, columns: &Columns) {
        let len = self.p.len();
        for_each_run(columns, len, |start, strips| {
            let (p, q) = self.run(start, run_len(strips));
            match q {
                Some(q) => parity::add_pq(p, q, strips),
                None => parity::add(p, &known(strips)),
            }
        });
    }

    /// The blocks of so many bytes in which something else than zeros is held here.
    pub(super) fn blocks_not_zero(&mut self, block_bytes: usize) -> BTreeSet<usize> {
        let (p, q) = self.run(0, self.p.len());
        let blocks_of = |bytes: &[u8]| {
            let blocks = bytes.chunks(block_bytes).enumerate();
            let blocks = blocks.filter(|(_, block)| block.iter().any(|byte| *byte != 0));
            blocks.map(|(block, _)| block).collect::<BTreeSet<usize>>()
        };
        let mut blocks = blocks_of(p);
        blocks.extend(q.map(|q| blocks_of(q)).into_iter().flatten());
        blocks
    }

    /// Patches the old parity held here for a change of data strip `k` from `start` of the span on.
    /// The memory of `old` is used up.
    pub(super) fn patch(&mut self, k: u16, start: usize, old: &Buffer, new: &Buffers) {
        // SAFETY: old contents were read into scratch memory of this request alone, and are there.
        let difference = unsafe { old.as_mut_slice() };
        let new: SmallVec<[Option<Buffers>; 8]> = SmallVec::from_iter([Some(new.clone())]);
        for_each_run(&new, difference.len(), |at, strips| {
            let run = at..at + run_len(strips);
            parity::add(&mut difference[run], &known(strips));
        });
        let (p, q) = self.run(start, difference.len());
        parity::add(p, &[difference]);
        if let Some(q) = q {
            let k = if headpond_block::defect!(WrongCoefficient) { k + 1 } else { k };
            parity::add_multiple(q, parity::coefficient(k), difference);
        }
    }

    /// The bytes of P and Q from `start` on.
    fn run(&mut self, start: usize, len: usize) -> (&mut [u8], Option<&mut [u8]>) {
        let run = start..start + len;
        // SAFETY: this is scratch memory of one request, which is borrowed for as long as the
        // slices live, with no operation on it in flight.
        let (p, q) = unsafe { (self.p.as_mut_slice(), self.q.as_ref().map(|q| q.as_mut_slice())) };
        (&mut p[run.clone()], q.map(|q| &mut q[run]))
    }
}

fn known<'a>(strips: &[Option<&'a [u8]>]) -> SmallVec<[&'a [u8]; 16]> {
    strips.iter().flatten().copied().collect()
}

fn run_len(strips: &[Option<&[u8]>]) -> usize {
    strips.iter().flatten().next().map_or(0, |strip| strip.len())
}

/// Calls `compute` with each run of bytes that is contiguous in all columns, and its start.
fn for_each_run(
    columns: &[Option<Buffers>],
    len: usize,
    mut compute: impl FnMut(usize, &[Option<&[u8]>]),
) {
    let is_as_long = |column: &Buffers| column.len_bytes() == len;
    assert!(columns.iter().flatten().all(is_as_long), "columns are as long as the parity");
    let mut cursors: SmallVec<[Cursor<'_>; 16]> = columns.iter().map(Cursor::new).collect();
    let mut start = 0;
    while start < len {
        // Where no column is known at all there is nothing to add.
        let Some(left) = cursors.iter().filter_map(Cursor::left).min() else { return };
        let strips: SmallVec<[Option<&[u8]>; 16]> =
            cursors.iter_mut().map(|cursor| cursor.take(left)).collect();
        compute(start, &strips);
        start += left;
    }
}

/// A place in one column.
struct Cursor<'a> {
    parts: std::slice::Iter<'a, Buffer>,
    rest: Option<&'a [u8]>,
}

impl<'a> Cursor<'a> {
    fn new(column: &'a Option<Buffers>) -> Self {
        let mut cursor =
            Cursor { parts: column.as_ref().map_or([].iter(), Buffers::iter), rest: None };
        cursor.refill();
        cursor
    }

    fn left(&self) -> Option<usize> {
        self.rest.map(<[u8]>::len)
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest?.split_at(len);
        self.rest = Some(rest);
        if rest.is_empty() {
            self.refill();
        }
        Some(taken)
    }

    fn refill(&mut self) {
        // SAFETY: no client can write to the memory of a `Buffer` (decision 0042), the program does
        // not while the request runs, and what was read for it has arrived.
        self.rest = self.parts.next().map(|part| unsafe { part.as_slice() });
    }
}
