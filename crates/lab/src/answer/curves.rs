//! Latency against throughput.

use super::{AT_MOST, Answer, distinct, ms};
use crate::results::{CellResult, Results, Summary, iops, mean_ms, own_jobs};
use crate::statistics::{Knee, at_budget, knee};
use headpond_report::{Axis, COLOURS, Chart, Line, Lines, Table, Unit, number};
use headpond_whatif::rounds::Round;
use serde::Serialize;
use serde_json::json;

/// Requests a second and latencies, from light loads to heavy ones.
pub(super) type Points = Vec<(f64, f64)>;

/// What one target with one set of settings does under more and more of one kind of request.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    /// The target and its settings.
    pub of: String,
    pub request: String,
    /// By the requests in flight, or by rate; where several cells have as many in flight, by more
    /// or fewer jobs, the one that carries most.
    pub points: Vec<Point>,
    /// All cells that it was made of.
    #[serde(skip)]
    cells: Vec<usize>,
    pub knee: Option<Knee>,
}

/// One cell of it.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    pub cell: usize,
    pub parallel: String,
    pub iops: f64,
    pub mean_ms: f64,
    pub p99_99_ms: f64,
    /// Whether that is a bound, and no measurement.
    pub p99_99_is_at_most: bool,
}

impl Curve {
    /// All curves, in the order of the plan.
    pub(crate) fn all(results: &Results) -> Vec<Self> {
        let measured: Vec<_> = results.measured().collect();
        let of = |cell: &CellResult| (named(results, cell), cell.cell.load.request());
        let keys = distinct(measured.iter().map(|(cell, _)| of(cell)));
        let curves = keys.into_iter().map(|key| {
            let mut cells: Vec<_> = measured.iter().filter(|(cell, _)| of(cell) == key).collect();
            cells.sort_by(|(a, _), (b, _)| {
                a.cell.load.how_much().total_cmp(&b.cell.load.how_much())
            });
            let most =
                cells.chunk_by(|(a, _), (b, _)| a.cell.load.how_much() == b.cell.load.how_much());
            let most = most.filter_map(|alike| {
                alike.iter().max_by(|(_, a), (_, b)| a.iops.median.total_cmp(&b.iops.median))
            });
            let points: Vec<_> = most.map(|(cell, it)| Point::of(cell, it)).collect();
            let pairs: Vec<_> = points.iter().map(|point| (point.iops, point.mean_ms)).collect();
            let cells = cells.iter().map(|(cell, _)| cell.cell.number).collect();
            Self { of: key.0, request: key.1, points, cells, knee: knee(&pairs) }
        });
        curves.collect()
    }

    /// Whether a cell belongs to it.
    pub(super) fn has(&self, cell: usize) -> bool {
        self.cells.contains(&cell)
    }

    /// The curve of each round that counts, by mean latency: as many as every point has.
    pub(super) fn rounds(&self, results: &Results) -> Vec<Points> {
        let counted = |point: &Point| results.cells[point.cell].counted(&results.plan);
        let of_points: Vec<_> = self.points.iter().map(counted).collect();
        let rounds = of_points.iter().map(Vec::len).min().unwrap_or(0);
        let point = |round: &Round| Some((iops(round), mean_ms(&own_jobs(round))?));
        let curve = |number: usize| of_points.iter().filter_map(|of| point(of[number])).collect();
        (0..rounds).map(curve).collect()
    }

    pub(crate) fn mean(&self) -> Vec<(f64, f64)> {
        self.points.iter().map(|point| (point.iops, point.mean_ms)).collect()
    }

    fn tail(&self) -> Vec<(f64, f64)> {
        self.points.iter().map(|point| (point.iops, point.p99_99_ms)).collect()
    }
}

impl Point {
    fn of(cell: &CellResult, summary: &Summary) -> Self {
        Self {
            cell: cell.cell.number,
            parallel: cell.cell.load.parallel(),
            iops: summary.iops.median,
            mean_ms: summary.mean_ms.median,
            p99_99_ms: summary.all.p99_99,
            p99_99_is_at_most: summary.all_is_at_most,
        }
    }
}

/// The target and its settings, as a line is called.
pub(crate) fn named(results: &Results, cell: &CellResult) -> String {
    let target = &results.plan.targets[cell.cell.target].name;
    match cell.cell.settings_text() {
        settings if settings.is_empty() => target.clone(),
        settings => format!("{target}, {settings}"),
    }
}

pub(super) fn answer(results: &Results, budgets_ms: &[f64]) -> Answer {
    let mut answer = Answer::new("Latency against throughput");
    let curves = Curve::all(results);
    let mut rows = Vec::new();
    for request in distinct(curves.iter().map(|curve| &curve.request)) {
        let of: Vec<_> = curves.iter().filter(|curve| &curve.request == request).collect();
        answer.charts.extend(charts(request, &of));
        for curve in of {
            answer.sentences.push(sentence(curve, budgets_ms));
            rows.extend(budgets_ms.iter().map(|&budget| row(curve, budget)));
        }
    }
    let columns = ["what", "request", "knee", "at", "budget", "within it"];
    answer.tables.push(Table::of(&columns, 2, rows));
    answer.facts = json!({ "curves": curves, "budgets_ms": budgets_ms });
    answer
}

fn sentence(curve: &Curve, budgets_ms: &[f64]) -> String {
    let bend = match (&curve.knee, curve.points.len()) {
        (_, 0..=2) => "too few points to say where it bends".to_owned(),
        (Some(knee), _) => {
            format!("bends near {}/s, at {}", number(knee.iops), ms(knee.latency_ms))
        }
        (None, _) => "has no bend in what was measured".to_owned(),
    };
    let carried = budgets_ms.iter().map(|&budget| match at_budget(&curve.mean(), budget) {
        Some(iops) => format!("{}/s within {}", number(iops), ms(budget)),
        None => format!("nothing within {}", ms(budget)),
    });
    let carried: Vec<_> = carried.collect();
    format!("{}, {}: {bend}; it carries {}", curve.of, curve.request, carried.join(", "))
}

fn row(curve: &Curve, budget_ms: f64) -> Vec<String> {
    let knee = |figure: fn(&Knee) -> String| curve.knee.as_ref().map(figure).unwrap_or_default();
    vec![
        curve.of.clone(),
        curve.request.clone(),
        knee(|knee| format!("{}/s", number(knee.iops))),
        knee(|knee| ms(knee.latency_ms)),
        ms(budget_ms),
        at_budget(&curve.mean(), budget_ms)
            .map_or("-".to_owned(), |iops| format!("{}/s", number(iops))),
    ]
}

/// Of the mean, and of the slowest in ten thousand.
fn charts(request: &str, curves: &[&Curve]) -> Vec<Chart> {
    let chart = |words: &str, is_tail: bool| {
        let points = if is_tail { Curve::tail } else { Curve::mean };
        let is_bound = |point: &Point| is_tail && point.p99_99_is_at_most;
        let has_bounds = curves.iter().flat_map(|curve| &curve.points).any(is_bound);
        let (bound, why) = match has_bounds {
            true => (", at most", "; fio measures no write together with its flush"),
            false => ("", ""),
        };
        let all = || curves.iter().flat_map(|curve| points(curve));
        let most = all().map(|point| point.0).fold(0.0, f64::max);
        let (low, high) = all()
            .map(|point| point.1)
            .filter(|ms| *ms > 0.0)
            .fold((f64::INFINITY, 0.0_f64), |(low, high), ms| (low.min(ms), high.max(ms)));
        if most <= 0.0 || high <= 0.0 {
            return None;
        }
        let series = curves.iter().enumerate().map(|(index, curve)| {
            let dots = curve.points.iter().zip(points(curve)).map(|(point, (iops, latency))| {
                let sign = if is_bound(point) { AT_MOST } else { "" };
                let at = format!("{} {}: {}/s", curve.of, point.parallel, number(iops));
                format!("{at}, {sign}{}", ms(latency))
            });
            Line { dots: dots.collect(), ..Line::new(&curve.of, index % COLOURS, points(curve)) }
        });
        let knees = curves.iter().filter_map(|curve| curve.knee.as_ref().map(|it| (curve, it)));
        let marks = knees.map(|(curve, knee)| (knee.iops, format!("knee: {}", curve.of)));
        let lines = Lines {
            title: format!("{request}: {words} latency{bound}"),
            note: format!("milliseconds (logarithmic) over requests a second{why}"),
            across: Axis::linear(0.0, most, Unit::Count),
            up: Axis::logarithmic(low, high, Unit::Number),
            series: series.collect(),
            marks: if !is_tail && curves.len() <= 4 { marks.collect() } else { Vec::new() },
            level: None,
            are_steps: false,
        };
        Some(lines.draw())
    };
    let charts = [chart("mean", false), chart("99.99 %", true)];
    charts.into_iter().flatten().collect()
}
