//! A signature as a table of figures, for engines that ask many signatures at once.
//!
//! 1. What the JSON says is walked in its order. 2. Each figure and word becomes a row: its names
//!    from the outside in, joined by points, and where lists are on the way its place in the
//!    outermost (`item`) and in the one within it (`point`).
//!
//! **Invariants**: the columns are the same whatever the signature has; what is not known has no
//! row. Numbers are doubles: exact up to 2^53.
//!
//! **Not here**: the file's format (`trace`).

use std::io::{self, Write};

use headpond_trace::{Cell, ColumnKind, ParquetTable};
use serde_json::Value;

use super::Signature;

const COLUMNS: [(&str, ColumnKind); 6] = [
    ("trace", ColumnKind::Text),
    ("figure", ColumnKind::Text),
    ("item", ColumnKind::Unsigned),
    ("point", ColumnKind::Unsigned),
    ("number", ColumnKind::Real),
    ("word", ColumnKind::Text),
];

impl Signature {
    /// Writes the figures as Parquet; `trace` is what the rows call this signature.
    ///
    /// # Errors
    /// Where the output takes nothing.
    pub fn write_parquet<W: Write + Send>(&self, trace: &str, output: W) -> io::Result<()> {
        let mut figures = Figures { trace, table: ParquetTable::new(output, &COLUMNS)? };
        figures.walk(&serde_json::to_value(self)?, "", FigurePath::default())?;
        figures.table.finish(Vec::new())
    }
}

/// Where in lists a figure is.
#[derive(Clone, Copy, Default)]
struct FigurePath {
    item: Option<u64>,
    point: Option<u64>,
}

impl FigurePath {
    /// The place `index` of a list that is met here; no signature has three within each other.
    fn within(self, index: u64) -> Self {
        match self.item {
            None => Self { item: Some(index), ..self },
            Some(_) => Self { point: Some(index), ..self },
        }
    }
}

struct Figures<'a, W: Write + Send> {
    trace: &'a str,
    table: ParquetTable<W>,
}

impl<W: Write + Send> Figures<'_, W> {
    fn walk(&mut self, value: &Value, name: &str, place: FigurePath) -> io::Result<()> {
        match value {
            Value::Null => Ok(()),
            Value::Bool(is) => self.push(name, place, Cell::Real(f64::from(u8::from(*is)))),
            Value::Number(number) => {
                self.push(name, place, number.as_f64().map_or(Cell::Absent, Cell::Real))
            }
            Value::String(word) => self.push(name, place, Cell::Text(word)),
            Value::Array(list) => (0..)
                .zip(list)
                .try_for_each(|(index, value)| self.walk(value, name, place.within(index))),
            Value::Object(parts) => parts.iter().try_for_each(|(part, value)| {
                let point = if name.is_empty() { "" } else { "." };
                self.walk(value, &format!("{name}{point}{part}"), place)
            }),
        }
    }

    fn push(&mut self, name: &str, place: FigurePath, told: Cell<'_>) -> io::Result<()> {
        let index = |at: Option<u64>| at.map_or(Cell::Absent, Cell::Unsigned);
        let (number, word) = match told {
            Cell::Text(_) => (Cell::Absent, told),
            _ => (told, Cell::Absent),
        };
        let trace = Cell::Text(self.trace);
        let (item, point) = (index(place.item), index(place.point));
        self.table.push(&[trace, Cell::Text(name), item, point, number, word])
    }
}
