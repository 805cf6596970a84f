//! Results of simulations as a self-contained page.

use super::{comparison, report};
use headpond_report::{Axis, COLOURS, Chart, Grid, Line, Lines, Tone, Unit};
use headpond_report::{document, escape, listed, part, section, side_by_side};
use headpond_whatif::{Outcome, Window};

const MODELLED: &str = "Modelled: all figures are of models in virtual time, none was measured.";

/// The whole page.
pub fn page(outcomes: &[Outcome]) -> String {
    let stacks: Vec<_> = outcomes.iter().map(|outcome| outcome.name.as_str()).collect();
    let compared = compared(outcomes);
    let why = |it: &Outcome| section(&it.name, &listed(&it.why));
    let parts = [
        format!("<h1>Simulated: {}</h1>\n", escape(&stacks.join(", "))),
        section("", &report::jobs(outcomes).draw()),
        if compared.rows.is_empty() { String::new() } else { section("", &compared.draw()) },
        side_by_side(&charts(outcomes)),
        part("Utilisation", &section("", &report::devices(outcomes).draw())),
        part("Where the time went", &outcomes.iter().map(why).collect::<String>()),
    ];
    document("simulated", MODELLED, &parts.concat())
}

/// The stacks beside each other, the best of each row in colour.
fn compared(outcomes: &[Outcome]) -> Grid {
    let rows = comparison::metrics(outcomes).into_iter().map(|metric| {
        let winner = metric.winner();
        let tone = |stack| if winner == Some(stack) { Tone::Good(2) } else { Tone::Blank };
        let cells = (0..outcomes.len()).map(|stack| (metric.words(stack), tone(stack))).collect();
        (metric.name, cells)
    });
    Grid {
        corner: String::new(),
        columns: outcomes.iter().map(|outcome| outcome.name.clone()).collect(),
        rows: rows.collect(),
        note: String::new(),
    }
}

fn charts(outcomes: &[Outcome]) -> Vec<Chart> {
    let iops = |window: &Window| window.read_iops + window.write_iops;
    let windows = outcomes.iter().flat_map(|outcome| &outcome.windows);
    let up = Axis::linear(0.0, windows.map(iops).fold(0.0, f64::max), Unit::Count);
    let iops = chart("Requests a second", up, outcomes, iops);
    let has_cache = outcomes.iter().any(|outcome| outcome.cache.is_some());
    let up = Axis::linear(0.0, 1.0, Unit::Share);
    let dirty = || chart("Dirty ratio, percent", up, outcomes, |it| it.dirty_ratio);
    [iops].into_iter().chain(has_cache.then(dirty)).collect()
}

/// A line for each stack over the time of the longest.
fn chart(title: &str, up: Axis, outcomes: &[Outcome], pick: impl Fn(&Window) -> f64) -> Chart {
    let nanos = |window: &Window| window.at_s * 1e9;
    let line = |(index, outcome): (usize, &Outcome)| {
        let points = outcome.windows.iter().map(|window| (nanos(window), pick(window)));
        Line::new(&outcome.name, index % COLOURS, points.collect())
    };
    let ends = outcomes.iter().filter_map(|outcome| outcome.windows.last());
    let lines = Lines {
        title: title.to_owned(),
        note: String::new(),
        across: Axis::linear(0.0, ends.map(nanos).fold(0.0, f64::max), Unit::Nanos),
        up,
        series: outcomes.iter().enumerate().map(line).collect(),
        marks: Vec::new(),
        level: None,
        are_steps: false,
    };
    lines.draw()
}
