//! Each round as a point of time.

use super::Answer;
use super::curves::named;
use crate::results::{CellResult, Results, own_jobs};
use crate::statistics::{Pattern, outliers, pattern, spread};
use headpond_report::{Axis, Line, Lines, Table, Unit, number};
use serde_json::json;

pub(super) fn answer(results: &Results) -> Answer {
    let mut answer = Answer::new("Pass after pass");
    let (mut rows, mut facts) = (Vec::new(), Vec::new());
    for (cell, _) in results.measured() {
        let of = format!("{}: {}", named(results, cell), cell.cell.load);
        let sides = [("read", series(cell, true)), ("write", series(cell, false))];
        let mut lines = Vec::new();
        for (colour, (side, rates)) in sides.into_iter().enumerate() {
            if rates.iter().all(|&rate| rate == 0.0) {
                continue;
            }
            let middle = spread(&rates);
            let words = habit(&rates);
            answer.sentences.push(format!(
                "{of}: {side} {} MB/s in the middle, {} to {}{words}",
                number(middle.median),
                number(middle.smallest),
                number(middle.largest)
            ));
            rows.push(vec![
                named(results, cell),
                side.to_owned(),
                number(middle.median),
                number(middle.smallest),
                number(middle.largest),
                rates.len().to_string(),
            ]);
            facts.push(json!({ "cell": cell.cell.number, "side": side, "mb_per_s": rates }));
            let points = rates.iter().enumerate().map(|(at, &rate)| (at as f64 + 1.0, rate));
            lines.push(Line::new(side, colour, points.collect()));
        }
        let most = lines.iter().flat_map(|line| &line.points).map(|point| point.1);
        let most = most.fold(0.0, f64::max);
        let chart = Lines {
            title: of,
            note: "MB/s over passes".to_owned(),
            across: Axis::linear(1.0, (cell.rounds.len() as f64).max(2.0), Unit::Count),
            up: Axis::linear(0.0, most, Unit::Number),
            series: lines,
            marks: Vec::new(),
            level: None,
            are_steps: false,
        };
        answer.charts.push(chart.draw());
    }
    let columns = ["what", "side", "MB/s", "least", "most", "passes"];
    answer.tables.push(Table::of(&columns, 2, rows));
    answer.facts = json!({ "series": facts });
    answer
}

/// 10^6 bytes a second of each round, warm-ups too: the first passes are what is interesting.
fn series(cell: &CellResult, is_read: bool) -> Vec<f64> {
    let rate = |round: &crate::results::StoredRound| {
        let own = own_jobs(&round.round);
        let jobs = own.iter().map(|job| match is_read {
            true => job.measured.read.mb_per_s,
            false => job.measured.write.mb_per_s,
        });
        jobs.sum()
    };
    cell.rounds.iter().map(rate).collect()
}

fn habit(rates: &[f64]) -> String {
    match pattern(rates) {
        Some(Pattern::Alternates { high, low, period, .. }) => format!(
            "; it alternates between {} and {}, every {} passes",
            number(high),
            number(low),
            number(period)
        ),
        Some(Pattern::Settles { from, to, at }) => {
            format!("; it settles from {} to {} after {at} passes", number(from), number(to))
        }
        None => match outliers(rates).len() {
            0 => String::new(),
            1 => "; one pass is not like the others".to_owned(),
            count => format!("; {count} passes are not like the others"),
        },
    }
}
