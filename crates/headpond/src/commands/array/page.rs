//! Planned arrays as one page that needs nothing else.

use super::Planned;
use super::report::{self, SPEEDS};
use anyhow::{Context, Result};
use askama::Template;
use charts_rs::{BarChart, Series};
use headpond_whatif::Condition;
use headpond_whatif::plan::{Assumptions, AtDepth, DriveFigures, Speeds};
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

/// A chart for each kind of load, with a bar for each condition; and one with a bar for each depth,
/// and for what the simulator says of it.
fn charts(arrays: &[Planned]) -> Result<Vec<String>> {
    let conditions = SPEEDS.into_iter().map(|(title, pick)| {
        let series = Condition::ALL.map(|condition| {
            let of = |it: &Planned| it.plan.when(condition).map_or(0.0, |it| pick(it.full));
            bars(&condition.to_string(), arrays, of)
        });
        chart(title, arrays, series.to_vec())
    });
    let depths = SPEEDS.into_iter().map(|(title, pick)| {
        chart(&format!("{title}, healthy, by requests in flight"), arrays, by_depth(arrays, pick))
    });
    conditions.chain(depths).collect()
}

fn by_depth(arrays: &[Planned], pick: fn(Speeds) -> f64) -> Vec<Series> {
    let expected = |it: &Planned| it.plan.when(Condition::Healthy).map(|it| it.by_depth.clone());
    let depths = arrays.iter().find_map(expected).unwrap_or_default();
    let mut series = Vec::new();
    for (at, depth) in depths.iter().map(|it| it.depth).enumerate() {
        let speed = |of: Option<&AtDepth>| of.map_or(0.0, |it| pick(it.speeds));
        let of = |it: &Planned| speed(expected(it).unwrap_or_default().get(at));
        series.push(bars(&format!("depth {depth}"), arrays, of));
        if arrays.iter().any(|it| !it.simulated.is_empty()) {
            let of = |it: &Planned| speed(it.simulated.first().and_then(|it| it.by_depth.get(at)));
            series.push(bars(&format!("depth {depth}, simulated"), arrays, of));
        }
    }
    series
}

fn bars(name: &str, arrays: &[Planned], of: impl Fn(&Planned) -> f64) -> Series {
    (name, arrays.iter().map(|it| of(it) as f32).collect::<Vec<f32>>()).into()
}

fn chart(title: &str, arrays: &[Planned], series: Vec<Series>) -> Result<String> {
    let names = arrays.iter().map(|it| it.name.clone()).collect();
    let mut chart = BarChart::new(series, names);
    chart.base.width = 920.0;
    chart.base.height = 320.0;
    chart.base.font_family = "sans-serif".to_owned();
    chart.base.title.text = title.to_owned();
    chart.svg().context("the chart cannot be drawn")
}
