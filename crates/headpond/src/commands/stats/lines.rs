//! Comma-separated values, with the columns of `casadm --stats --output-format csv`.

use super::Shown;
use anyhow::Result;
use headpond_volume::{ClassReport, CoreReport, Row};

/// A line of names and one of values; of classes a line for each.
pub fn csv(shown: &Shown) -> Result<String> {
    let mut lines = csv::Writer::from_writer(Vec::new());
    let all: Vec<Vec<(String, String)>> = match shown {
        Shown::Classes(classes) => classes.iter().map(class_cells).collect(),
        Shown::Core(core) => vec![core_cells(core)],
        Shown::Volume(stats) => {
            let groups = stats.report.cache.iter().map(|cache| &cache.groups);
            let rows = groups.flat_map(|it| [&it.usage, &it.requests, &it.blocks, &it.errors]);
            vec![rows.flatten().flat_map(row_cells).collect()]
        }
    };
    for (index, cells) in all.iter().enumerate() {
        if index == 0 {
            lines.write_record(cells.iter().map(|cell| &cell.0))?;
        }
        lines.write_record(cells.iter().map(|cell| &cell.1))?;
    }
    Ok(String::from_utf8(lines.into_inner()?)?)
}

/// casadm has no errors of classes.
fn class_cells(class: &ClassReport) -> Vec<(String, String)> {
    let name = class.name.clone().unwrap_or_default();
    let rows = [&class.usage, &class.requests, &class.blocks].into_iter().flatten();
    head("IO class", class.id, name).into_iter().chain(rows.flat_map(row_cells)).collect()
}

fn core_cells(core: &CoreReport) -> Vec<(String, String)> {
    let rows = [&core.usage, &core.requests, &core.blocks, &core.errors].into_iter().flatten();
    head("Core", core.id, core.name.clone()).into_iter().chain(rows.flat_map(row_cells)).collect()
}

fn head(kind: &str, id: impl ToString, name: String) -> [(String, String); 2] {
    [(format!("{kind} ID"), id.to_string()), (format!("{kind} name"), name)]
}

/// `Read hits [Requests]` and `Read hits [%]`.
fn row_cells(Row { name, count, percent, unit }: &Row) -> [(String, String); 2] {
    [
        (format!("{name} [{unit}]"), count.to_string()),
        (format!("{name} [%]"), format!("{percent:.1}")),
    ]
}
