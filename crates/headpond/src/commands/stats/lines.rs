//! Comma-separated values, with the columns of `casadm --stats --output-format csv`.

use super::{GROUPS, rows};
use anyhow::Result;
use serde_json::Value;

/// A line of names and one of values; with classes a line for each.
pub fn csv(stats: &Value, classes: Option<&[Value]>) -> Result<String> {
    let mut lines = csv::Writer::from_writer(Vec::new());
    match classes {
        Some(classes) => {
            for (index, class) in classes.iter().enumerate() {
                let cells: Vec<_> = class_cells(class);
                if index == 0 {
                    lines.write_record(cells.iter().map(|cell| &cell.0))?;
                }
                lines.write_record(cells.iter().map(|cell| &cell.1))?;
            }
        }
        None => {
            let groups = GROUPS.iter().filter_map(|(pointer, _)| stats.pointer(pointer));
            let cells: Vec<_> = groups.flat_map(rows).flat_map(row_cells).collect();
            lines.write_record(cells.iter().map(|cell| &cell.0))?;
            lines.write_record(cells.iter().map(|cell| &cell.1))?;
        }
    }
    Ok(String::from_utf8(lines.into_inner()?)?)
}

fn class_cells(class: &Value) -> Vec<(String, String)> {
    let name = class["name"].as_str().unwrap_or_default().to_owned();
    let head =
        [("IO class ID".to_owned(), class["id"].to_string()), ("IO class name".to_owned(), name)];
    let groups = [&class["usage"], &class["requests"], &class["blocks"]];
    head.into_iter().chain(groups.into_iter().flat_map(rows).flat_map(row_cells)).collect()
}

/// `Read hits [Requests]` and `Read hits [%]`.
fn row_cells(row: &Value) -> [(String, String); 2] {
    let text = |field: &str| row[field].as_str().unwrap_or_default();
    let (name, unit) = (text("name"), text("unit"));
    let percent = row["percent"].as_f64().unwrap_or(0.0);
    [
        (format!("{name} [{unit}]"), row["count"].to_string()),
        (format!("{name} [%]"), format!("{percent:.1}")),
    ]
}
