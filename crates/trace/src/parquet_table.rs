//! A table in columns, as Parquet, for other engines (DuckDB, Spark, pandas).
//!
//! 1. [`ParquetTable::new`] takes the columns by name and kind. 2. Each row gives every column a
//!    [`Cell`]. 3. Rows are written in groups. 4. [`ParquetTable::finish`] writes the remaining
//!    rows, metadata, and the footer.
//!
//! **Invariants**: memory is one row group, for any length; every column is optional.
//!
//! **Not here**: what the columns mean (`export/parquet.rs`, and the signature in `advise`);
//! reading.
//!
//! Source: the format's own description, <https://parquet.apache.org/docs/file-format/>.

use std::io::{self, Write};
use std::mem;
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::writer::ColumnWriterImpl;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;

/// Rows of a group: some tens of megabytes in memory.
const GROUP_ROWS: usize = 256 * 1024;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// Integers with few distinct values, up to 2^64.
    Unsigned,
    /// Integers near their predecessors, such as times.
    Growing,
    Real,
    Text,
    Flag,
}

/// A row's value in a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    Unsigned(u64),
    Real(f64),
    Text(&'a str),
    Flag(bool),
    Absent,
}

/// Writes rows into a file of columns.
pub struct ParquetTable<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    columns: Vec<Column>,
    rows: usize,
}

/// What is gathered of one column for the next row group.
struct Column {
    values: Values,
    /// 1 where the row has a value, 0 where it has none.
    present: Vec<i16>,
}

enum Values {
    Unsigned(Vec<i64>),
    Real(Vec<f64>),
    Text(Vec<ByteArray>),
    Flag(Vec<bool>),
}

impl<W: Write + Send> ParquetTable<W> {
    /// A table of these columns.
    ///
    /// # Errors
    /// Where the output fails.
    pub fn new(output: W, columns: &[(&'static str, ColumnKind)]) -> io::Result<Self> {
        let schema: String = columns.iter().map(|&(name, kind)| kind.declared(name)).collect();
        let schema = format!("message table {{ {schema} }}");
        let schema = parse_message_type(&schema).map_err(cause)?;
        let properties = Arc::new(properties(columns));
        let writer = SerializedFileWriter::new(output, Arc::new(schema), properties);
        let columns = columns.iter().map(|&(_, kind)| Column::new(kind)).collect();
        Ok(Self { writer: writer.map_err(cause)?, columns, rows: 0 })
    }

    /// Adds a row: a cell for each column, in their order.
    ///
    /// # Errors
    /// Where a row group is full and cannot be written.
    ///
    /// # Panics
    /// Where a cell is not of its column's kind.
    pub fn push(&mut self, row: &[Cell<'_>]) -> io::Result<()> {
        assert_eq!(row.len(), self.columns.len(), "a cell for each column");
        self.columns.iter_mut().zip(row).for_each(|(column, &cell)| column.push(cell));
        self.rows += 1;
        if self.rows == GROUP_ROWS { self.write_group() } else { Ok(()) }
    }

    /// Writes the remaining rows, the metadata (pairs of name and text) and the end.
    ///
    /// # Errors
    /// Where that cannot be written.
    pub fn finish(mut self, notes: Vec<(String, String)>) -> io::Result<()> {
        if self.rows > 0 {
            self.write_group()?;
        }
        for (name, text) in notes {
            self.writer.append_key_value_metadata(KeyValue::new(name, text));
        }
        let mut output = self.writer.into_inner().map_err(cause)?;
        output.flush()
    }

    fn write_group(&mut self) -> io::Result<()> {
        let mut group = self.writer.next_row_group().map_err(cause)?;
        for column in &mut self.columns {
            let writer = group.next_column().map_err(cause)?.expect("the schema has it");
            column.write(writer).map_err(cause)?;
        }
        group.close().map_err(cause)?;
        self.rows = 0;
        Ok(())
    }
}

impl ColumnKind {
    /// The column in the words of a schema.
    fn declared(self, name: &str) -> String {
        match self {
            ColumnKind::Unsigned | ColumnKind::Growing => {
                format!("OPTIONAL INT64 {name} (INTEGER(64, false)); ")
            }
            ColumnKind::Real => format!("OPTIONAL DOUBLE {name}; "),
            ColumnKind::Text => format!("OPTIONAL BYTE_ARRAY {name} (STRING); "),
            ColumnKind::Flag => format!("OPTIONAL BOOLEAN {name}; "),
        }
    }
}

/// Growing numbers are delta-encoded, all else by a dictionary where that is shorter.
fn properties(columns: &[(&'static str, ColumnKind)]) -> WriterProperties {
    let properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_created_by(concat!("headpond ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::default()));
    let growing = columns.iter().filter(|(_, kind)| *kind == ColumnKind::Growing);
    let growing = growing.map(|(name, _)| ColumnPath::from(*name));
    let properties = growing.fold(properties, |properties, path| {
        properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED)
    });
    properties.build()
}

impl Column {
    fn new(kind: ColumnKind) -> Self {
        let values = match kind {
            ColumnKind::Unsigned | ColumnKind::Growing => Values::Unsigned(Vec::new()),
            ColumnKind::Real => Values::Real(Vec::new()),
            ColumnKind::Text => Values::Text(Vec::new()),
            ColumnKind::Flag => Values::Flag(Vec::new()),
        };
        Self { values, present: Vec::new() }
    }

    fn push(&mut self, cell: Cell<'_>) {
        match (&mut self.values, cell) {
            (_, Cell::Absent) => {}
            // The format stores the bits; the schema says that they have no sign.
            (Values::Unsigned(values), Cell::Unsigned(value)) => values.push(value.cast_signed()),
            (Values::Real(values), Cell::Real(value)) => values.push(value),
            (Values::Text(values), Cell::Text(text)) => {
                let again = values.last().filter(|last| last.data() == text.as_bytes());
                values.push(again.cloned().unwrap_or_else(|| ByteArray::from(text)));
            }
            (Values::Flag(values), Cell::Flag(value)) => values.push(value),
            (_, cell) => panic!("{cell:?} in a column of another kind"),
        }
        self.present.push(i16::from(cell != Cell::Absent));
    }

    fn write(&mut self, mut writer: SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        let present = mem::take(&mut self.present);
        match &mut self.values {
            Values::Unsigned(values) => batch(writer.typed::<Int64Type>(), values, &present),
            Values::Real(values) => batch(writer.typed::<DoubleType>(), values, &present),
            Values::Text(values) => batch(writer.typed::<ByteArrayType>(), values, &present),
            Values::Flag(values) => batch(writer.typed::<BoolType>(), values, &present),
        }?;
        writer.close()
    }
}

fn batch<T: DataType>(
    writer: &mut ColumnWriterImpl<'_, T>,
    values: &mut Vec<T::T>,
    present: &[i16],
) -> Result<(), ParquetError> {
    writer.write_batch(values, Some(present), None)?;
    values.clear();
    Ok(())
}

/// What the output said, where it was the output.
fn cause(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}
