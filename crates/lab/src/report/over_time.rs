//! A cell over its rounds, and within them: throughput as lines, latency as a map.

use crate::answer::name_of;
use crate::results::{CellResult, Results, iops};
use headpond_report::{Axis, COLOURS, Chart, Heat, HeatColumn, Line, Lines, Unit, number};
use headpond_whatif::LatencyWindow;

/// Requests a second of each window and of each round.
pub(super) fn course(results: &Results, cell: &CellResult) -> Option<Chart> {
    let (mut begun, mut within) = (0.0, Vec::new());
    let (mut rounds, mut marks) = (Vec::new(), Vec::new());
    for round in &cell.rounds {
        let windows = &round.round.windows;
        let length = windows.last()?.at_s;
        within.extend(windows.iter().map(|it| (begun + it.at_s, it.read_iops + it.write_iops)));
        let iops = iops(&round.round);
        rounds.extend([(begun, iops), (begun + length, iops)]);
        begun += length;
        if !round.counts {
            marks = vec![(begun, "warm".to_owned())];
        }
    }
    // What was counted within a round was counted of all jobs together.
    let names = match results.plan.beside.is_empty() {
        true => ["within rounds", "rounds"],
        false => ["within rounds, of all jobs", "rounds, without the jobs beside"],
    };
    let most = within.iter().chain(&rounds).map(|point| point.1).fold(0.0, f64::max);
    let lines = Lines {
        title: format!("{}: {}", name_of(results, cell), cell.cell.load),
        note: format!("requests a second over seconds; {} at most", number(most)),
        across: Axis::linear(0.0, begun, Unit::Number),
        up: Axis::linear(0.0, most, Unit::Count),
        series: vec![Line::new(names[0], 0, within), Line::new(names[1], 1 % COLOURS, rounds)],
        marks,
        level: None,
        are_steps: false,
    };
    (most > 0.0).then(|| lines.draw())
}

/// How long requests took in each window; nothing where that was not recorded.
pub(super) fn latencies(results: &Results, cell: &CellResult) -> Option<Chart> {
    let (mut begun, mut columns, mut marks) = (0.0, Vec::new(), Vec::new());
    for round in &cell.rounds {
        let windows = &round.round.windows;
        let length = windows.last()?.at_s;
        columns.extend(columns_of(&round.round.latencies, begun, length / windows.len() as f64));
        begun += length;
        if !round.counts {
            marks = vec![(begun, "warm".to_owned())];
        }
    }
    let ends = columns.iter().flat_map(|column| column.cells.iter().map(|cell| (cell.0, cell.1)));
    let (low, high) =
        ends.fold((f64::INFINITY, 0.0_f64), |(low, high), it| (low.min(it.0), high.max(it.1)));
    let whose = if results.plan.beside.is_empty() { "" } else { " of all jobs" };
    let heat = Heat {
        title: format!("{}: {}", name_of(results, cell), cell.cell.load),
        note: format!("latency (logarithmic) over seconds; the darker, the more requests{whose}"),
        across: Axis::linear(0.0, begun, Unit::Number),
        up: Axis::logarithmic(low, high, Unit::Nanos),
        columns,
        marks,
    };
    (high > 0.0).then(|| heat.draw())
}

/// Windows are of one length, but some may be missing.
fn columns_of(windows: &[LatencyWindow], begun: f64, length: f64) -> Vec<HeatColumn> {
    let column = |window: &LatencyWindow| HeatColumn {
        from: begun + (window.at_s - length).max(0.0),
        to: begun + window.at_s,
        cells: window
            .bins
            .iter()
            .map(|&(begin, count)| (begin as f64, LatencyWindow::bin_end(begin) as f64, count))
            .collect(),
    };
    windows.iter().map(column).collect()
}
