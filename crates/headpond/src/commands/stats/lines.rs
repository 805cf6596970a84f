//! Comma-separated values, with the columns of `casadm --stats --output-format csv`.

use super::{GROUPS, rows};
use anyhow::Result;
use serde_json::Value;

/// A line of names and one of values; with parts of it, classes or a core, a line for each.
pub fn csv(stats: &Value, parts: Option<&[Value]>) -> Result<String> {
    let mut lines = csv::Writer::from_writer(Vec::new());
    match parts {
        Some(parts) => {
            for (index, part) in parts.iter().enumerate() {
                let cells: Vec<_> = part_cells(part);
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

fn part_cells(part: &Value) -> Vec<(String, String)> {
    let name = part["name"].as_str().unwrap_or_default().to_owned();
    // casadm has no errors of classes.
    let (kind, errors) = match part["array"].is_null() {
        true => ("IO class", &Value::Null),
        false => ("Core", &part["errors"]),
    };
    let head = [(format!("{kind} ID"), part["id"].to_string()), (format!("{kind} name"), name)];
    let groups = [&part["usage"], &part["requests"], &part["blocks"], errors];
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
