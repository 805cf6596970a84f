//! The demo's page: table and chart in one file that needs nothing else.

use super::machine::{DRIVE, DRIVES, GROUPS};
use super::outcome::{DemoOutcome, gain, rate};
use anyhow::{Context, Result};
use askama::Template;
use charts_rs::{AxisScale, BarChart, Series};
use headpond_volume::Size;
use std::path::Path;

#[derive(Template)]
#[template(path = "try.html")]
struct Page<'a> {
    setup: String,
    rows: Vec<PageRow>,
    /// An SVG of our own making.
    chart: String,
    notes: Vec<String>,
    applied: &'a [String],
    signature: &'a str,
    advice: &'a str,
}

struct PageRow {
    name: &'static str,
    before: String,
    burst: String,
    burst_gain: String,
    sustained: String,
    sustained_gain: String,
}

/// Writes the page.
///
/// # Errors
/// Where the file cannot be written.
pub fn write(path: &Path, outcome: &DemoOutcome) -> Result<()> {
    let page = Page {
        setup: format!(
            "RAID 60 of {DRIVES} modelled drives ({DRIVE}, {GROUPS} groups of 8+2, strip 64K), \
             {:.1} TB, behind a cache of {}",
            outcome.volume_bytes as f64 / 1e12,
            Size(outcome.cache_bytes),
        ),
        rows: rows(outcome),
        chart: chart(outcome)?,
        notes: outcome.footnotes(),
        applied: &outcome.applied,
        signature: &outcome.signature,
        advice: &outcome.advice,
    };
    std::fs::write(path, page.render()?).with_context(|| format!("cannot write {}", path.display()))
}

fn rows(outcome: &DemoOutcome) -> Vec<PageRow> {
    let rows = outcome.rows.iter().map(|row| PageRow {
        name: row.workload.name,
        before: rate(&row.before, row.workload),
        burst: rate(&row.burst, row.workload),
        burst_gain: gain(row.burst_gain()),
        sustained: rate(&row.sustained, row.workload),
        sustained_gain: gain(row.sustained_gain()),
    });
    rows.collect()
}

fn chart(outcome: &DemoOutcome) -> Result<String> {
    let series = |name: &str, pick: fn(&super::outcome::Row) -> f64| -> Series {
        let values: Vec<f32> = outcome.rows.iter().map(|row| pick(row) as f32).collect();
        (name, values).into()
    };
    let all = vec![
        series("before", |row| row.before.iops()),
        series("after: sustained", |row| row.sustained.iops()),
        series("after: burst", |row| row.burst.iops()),
    ];
    let names = outcome.rows.iter().map(|row| row.workload.name.replace(", ", "\n")).collect();
    let mut chart = BarChart::new(all, names);
    chart.base.width = 920.0;
    chart.base.height = 420.0;
    chart.base.font_family = "sans-serif".to_owned();
    chart.base.title.text = "Requests a second (logarithmic)".to_owned();
    if let Some(axis) = chart.y_axis_configs.first_mut() {
        axis.scale = AxisScale::Log(10.0);
        axis.formatter = Some("{t}".to_owned());
    }
    chart.svg().context("the chart cannot be drawn")
}
