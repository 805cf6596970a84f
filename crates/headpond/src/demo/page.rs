//! The demo's page: table and chart in one self-contained file.

use super::machine::{DRIVE, DRIVES, GROUPS};
use super::outcome::{DemoOutcome, Row};
use headpond_report::{Chart, Compared, Comparison, Entry, Scale, Unit};
use headpond_report::{document, escape, listed, part, section, side_by_side, verbatim};
use headpond_volume::Size;

const MEASURED: &str =
    "Measured on this machine, but for the drives: their service times are a model's.";

/// The whole page.
pub fn page(outcome: &DemoOutcome) -> String {
    let setup = format!(
        "RAID 60 of {DRIVES} modelled drives ({DRIVE}, {GROUPS} groups of 8+2, strip 64K), \
         {:.1} TB, behind a cache of {}",
        outcome.volume_bytes as f64 / 1e12,
        Size(outcome.cache_bytes),
    );
    let applied = format!("headpond set NAME {}", outcome.applied.join(" "));
    let parts = [
        format!("<h1>Before and after</h1>\n<p class=\"verdict\">{}</p>\n", escape(&setup)),
        section("", &outcome.grid().draw()),
        side_by_side(&[chart(outcome)]),
        listed(outcome.footnotes()),
        part("What was applied", &verbatim(&applied)),
        part("The workload's signature", &verbatim(&outcome.signature)),
        part("The advice", &verbatim(&outcome.advice)),
    ];
    document("before and after", MEASURED, &parts.concat())
}

fn chart(outcome: &DemoOutcome) -> Chart {
    let row = |row: &Row| {
        let all = [&row.before, &row.sustained, &row.burst];
        let bars = all.map(|it| Some(Compared { value: it.iops(), span: None }));
        (row.workload.name.to_owned(), bars.to_vec())
    };
    let names = [("before", 7), ("after: sustained", 0), ("after: burst", 1)];
    let comparison = Comparison {
        title: "Requests a second (logarithmic)".to_owned(),
        note: "from line to line ten times as many".to_owned(),
        series: names.map(|(name, colour)| Entry::new(name, colour)).to_vec(),
        rows: outcome.rows.iter().map(row).collect(),
        scale: Scale::Logarithmic(Unit::Number),
    };
    comparison.draw()
}
