//! What simulations found out, as one page that needs nothing else.

use super::{comparison, report};
use anyhow::{Context, Result};
use askama::Template;
use charts_rs::{LineChart, Series};
use headpond_whatif::{Outcome, Window};
use std::path::Path;

#[derive(Template)]
#[template(path = "simulate.html")]
struct Page<'a> {
    stacks: Vec<&'a str>,
    jobs: String,
    comparison: Vec<Row>,
    /// SVGs of our own making.
    charts: Vec<String>,
    devices: String,
    outcomes: &'a [Outcome],
}

struct Row {
    name: String,
    cells: Vec<Cell>,
}

struct Cell {
    words: String,
    is_best: bool,
}

/// Writes the page.
///
/// # Errors
/// Where the file cannot be written.
pub fn write(path: &Path, outcomes: &[Outcome]) -> Result<()> {
    let page = Page {
        stacks: outcomes.iter().map(|outcome| outcome.name.as_str()).collect(),
        jobs: report::jobs(outcomes).render(),
        comparison: comparison(outcomes),
        charts: charts(outcomes)?,
        devices: report::devices(outcomes).render(),
        outcomes,
    };
    std::fs::write(path, page.render()?).with_context(|| format!("cannot write {}", path.display()))
}

fn comparison(outcomes: &[Outcome]) -> Vec<Row> {
    let rows = comparison::metrics(outcomes).into_iter().map(|metric| {
        let winner = metric.winner();
        let cell = |stack| Cell { words: metric.words(stack), is_best: winner == Some(stack) };
        Row { cells: (0..outcomes.len()).map(cell).collect(), name: metric.name.clone() }
    });
    rows.collect()
}

fn charts(outcomes: &[Outcome]) -> Result<Vec<String>> {
    let iops = chart("Requests a second", outcomes, |it| it.read_iops + it.write_iops);
    let has_cache = outcomes.iter().any(|outcome| outcome.cache.is_some());
    let dirty = |window: &Window| window.dirty_ratio * 100.0;
    let dirty = has_cache.then(|| chart("Dirty, percent of what may be", outcomes, dirty));
    [iops].into_iter().chain(dirty).collect()
}

/// A line for each stack over the seconds of the longest.
fn chart(title: &str, outcomes: &[Outcome], pick: impl Fn(&Window) -> f64) -> Result<String> {
    let series = |outcome: &Outcome| -> Series {
        let values: Vec<f32> = outcome.windows.iter().map(|window| pick(window) as f32).collect();
        (outcome.name.as_str(), values).into()
    };
    let longest = outcomes.iter().max_by_key(|outcome| outcome.windows.len());
    let windows = longest.map(|outcome| outcome.windows.as_slice()).unwrap_or_default();
    let seconds = windows.iter().map(|window| format!("{:.0} s", window.at_s)).collect();
    let mut chart = LineChart::new(outcomes.iter().map(series).collect(), seconds);
    chart.base.width = 920.0;
    chart.base.height = 320.0;
    chart.base.font_family = "sans-serif".to_owned();
    chart.base.title.text = title.to_owned();
    chart.svg().context("the chart cannot be drawn")
}
