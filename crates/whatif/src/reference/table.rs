//! The published tables as files: CSV with a heading, remarks behind #.

use super::ReferenceError;
use std::path::{Path, PathBuf};

/// A CSV file with a heading; lines that start with # are remarks.
pub(super) struct Table {
    path: PathBuf,
    pub(super) columns: Vec<String>,
    /// With the numbers of their lines.
    pub(super) rows: Vec<Row>,
}

/// A line's number and its cells.
pub(super) type Row = (usize, Vec<String>);

impl Table {
    pub(super) fn read(folder: &Path, name: &str) -> Result<Self, ReferenceError> {
        let path = folder.join(format!("{name}.csv"));
        let text = std::fs::read_to_string(&path)
            .map_err(|source| ReferenceError::Read { path: path.clone(), source })?;
        Self::parse(path, &text)
    }

    fn parse(path: PathBuf, text: &str) -> Result<Self, ReferenceError> {
        let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
        let mut lines = lines.filter(|(_, line)| !line.starts_with('#') && !line.trim().is_empty());
        let split = |line: &str| line.split(',').map(|cell| cell.trim().to_owned()).collect();
        let columns: Vec<String> = lines.next().map(|(_, line)| split(line)).unwrap_or_default();
        let rows: Vec<Row> = lines.map(|(number, line)| (number, split(line))).collect();
        let table = Self { path, columns, rows };
        match table.rows.iter().find(|(_, cells)| cells.len() != table.columns.len()) {
            Some(row) => Err(table.damaged(row, "another number of cells than the heading")),
            None => Ok(table),
        }
    }

    pub(super) fn text<'a>(&self, row: &'a Row, column: &str) -> Result<&'a str, ReferenceError> {
        let at = self.columns.iter().position(|name| name == column);
        at.map(|at| row.1[at].as_str()).ok_or_else(|| self.damaged(row, "a column is missing"))
    }

    pub(super) fn number<T: std::str::FromStr>(
        &self,
        row: &Row,
        column: &str,
    ) -> Result<T, ReferenceError> {
        let text = self.text(row, column)?;
        text.parse().map_err(|_| self.damaged(row, &format!("{column}: {text:?} is no number")))
    }

    /// A measurement; nothing where none was made.
    pub(super) fn figure(&self, row: &Row, column: &str) -> Result<Option<f64>, ReferenceError> {
        if self.text(row, column)?.is_empty() {
            Ok(None)
        } else {
            self.number(row, column).map(Some)
        }
    }

    pub(super) fn damaged(&self, row: &Row, detail: &str) -> ReferenceError {
        let (path, detail) = (self.path.clone(), detail.to_owned());
        ReferenceError::Damaged { path, line: row.0, detail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read_and_damage_is_named() {
        let parse = |text: &str| Table::parse("t.csv".into(), text);
        let table = parse("# remark\nstrip_kib,qd1\n64,5.5\n32,\n").unwrap();
        assert_eq!(table.figure(&table.rows[0], "qd1").unwrap(), Some(5.5));
        assert_eq!(table.figure(&table.rows[1], "qd1").unwrap(), None);
        let error = parse("a,b\n1\n").err().unwrap().to_string();
        assert!(error.contains("t.csv: line 2"), "{error}");
        let error = table.number::<u32>(&table.rows[0], "qd1").unwrap_err().to_string();
        assert!(error.contains("line 3") && error.contains("5.5"), "{error}");
    }
}
