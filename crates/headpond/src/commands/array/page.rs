//! Planned arrays as one page that needs nothing else.

use super::Planned;
use super::report::{self, SPEEDS};
use anyhow::{Context, Result};
use askama::Template;
use charts_rs::{BarChart, Series};
use headpond_lab::plan::{Assumptions, DriveFigures, Plan, Speeds};
use std::path::Path;

#[derive(Template)]
#[template(path = "array.html")]
struct Page<'a> {
    arrays: Vec<&'a str>,
    head: String,
    tables: Vec<(&'static str, String)>,
    /// SVGs of our own making.
    charts: Vec<String>,
    notes: String,
}

/// Writes the page.
///
/// # Errors
/// Where the file cannot be written.
pub fn write(
    path: &Path,
    drive: &DriveFigures,
    given: &Assumptions,
    arrays: &[Planned],
) -> Result<()> {
    let tables = report::tables(arrays).into_iter().filter(|(_, table)| !table.is_empty());
    let page = Page {
        arrays: arrays.iter().map(|it| it.name.as_str()).collect(),
        head: report::head(drive),
        tables: tables.map(|(title, table)| (title, table.render())).collect(),
        charts: charts(arrays)?,
        notes: report::notes(drive, given),
    };
    std::fs::write(path, page.render()?).with_context(|| format!("cannot write {}", path.display()))
}

/// A chart for each kind of load: arrays side by side, a bar for each condition.
fn charts(arrays: &[Planned]) -> Result<Vec<String>> {
    type Of = fn(&Plan) -> Option<Speeds>;
    let conditions: [(&str, Of); 3] = [
        ("healthy", |plan| Some(plan.healthy)),
        ("a drive lost", |plan| plan.degraded),
        ("rebuilding", |plan| plan.rebuilding),
    ];
    let chart = |(title, pick): (&str, fn(Speeds) -> f64)| {
        let series = conditions.iter().map(|(condition, of)| -> Series {
            let bar = |it: &Planned| of(&it.plan).map_or(0.0, pick) as f32;
            (*condition, arrays.iter().map(bar).collect::<Vec<f32>>()).into()
        });
        let names = arrays.iter().map(|it| it.name.clone()).collect();
        let mut chart = BarChart::new(series.collect(), names);
        chart.base.width = 920.0;
        chart.base.height = 320.0;
        chart.base.font_family = "sans-serif".to_owned();
        chart.base.title.text = title.to_owned();
        chart.svg().context("the chart cannot be drawn")
    };
    SPEEDS.into_iter().map(chart).collect()
}
