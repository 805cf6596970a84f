//! What would change the answer, as curves with the place of this machine.

use crate::advice::{Advice, Point, Turning};
use crate::search::between;
use crate::signature::Signature;
use crate::situation::Situation;
use headpond_report::{Axis, Line, Lines, Table, Unit, figure, folded};
use headpond_report::{count, factor, percent, size};

/// How far intervals are drawn above the best gain, as a multiple of it.
const SPAN_MAX: f64 = 1.5;

/// A curve and a table for each.
pub(super) fn figures(advice: &Advice, signature: &Signature, situation: &Situation) -> String {
    let drawn = advice.turning.iter().filter(|turning| turning.points.len() > 1);
    drawn.map(|turning| drawn_of(turning, here(turning, signature, situation))).collect()
}

/// Where this machine and this trace stand.
fn here(turning: &Turning, signature: &Signature, situation: &Situation) -> Option<f64> {
    match turning.of {
        "cache size" => situation.stack.cache.as_ref().map(|cache| cache.size.bytes() as f64),
        "depth" => {
            let depth = signature.depth.as_ref().map(|depth| depth.typical);
            Some(depth.unwrap_or(situation.depth_unless_told).into())
        }
        _ => reads(signature),
    }
}

/// Of the requests that read or write, those that read.
fn reads(signature: &Signature) -> Option<f64> {
    let sum = |pick: fn(&crate::StreamSignature) -> f64| -> f64 {
        signature.streams.iter().map(|stream| stream.requests as f64 * pick(stream)).sum()
    };
    let (reads, writes) = (sum(|stream| stream.mix.read), sum(|stream| stream.mix.write));
    (reads + writes > 0.0).then(|| reads / (reads + writes))
}

fn words(turning: &Turning, at: f64) -> String {
    match turning.of {
        "cache size" => size(at as u64),
        "depth" => count(at as u64),
        _ => percent(at),
    }
}

fn drawn_of(turning: &Turning, here: Option<f64>) -> String {
    let points = &turning.points;
    let span = |point: &Point| point.gain.interval().map(|(low, high)| (point.at, low, high));
    let spans: Vec<_> = points.iter().filter_map(span).collect();
    // Where little is known, the interval goes on beyond the chart.
    let best = points.iter().map(|point| point.gain.factor).fold(1.2, f64::max);
    let highest = spans.iter().map(|span| span.2).fold(best, f64::max).min(best * SPAN_MAX);
    let line = Line {
        spans,
        ..Line::new("", 0, points.iter().map(|point| (point.at, point.gain.factor)).collect())
    };
    let lines = Lines {
        title: format!("Gain by {}", turning.of),
        note: format!("{}; the line across is the array alone", turning.says),
        across: across(turning, here),
        up: Axis::linear(0.0, highest, Unit::Factor),
        series: vec![line],
        marks: here.map(|at| (at, format!("here: {}", words(turning, at)))).into_iter().collect(),
        level: Some(1.0),
        are_steps: false,
    };
    figure(&lines.draw()).replace("</figure>", &format!("{}</figure>", table(turning)))
}

fn across(turning: &Turning, here: Option<f64>) -> Axis {
    let places = || turning.points.iter().map(|point| point.at).chain(here);
    let (low, high) = (places().fold(f64::MAX, f64::min), places().fold(0.0, f64::max));
    match turning.of {
        "cache size" => Axis::logarithmic(low, high, Unit::Bytes),
        "depth" => Axis::logarithmic(low, high, Unit::Count),
        _ => Axis::linear(0.0, 1.0, Unit::Share),
    }
}

fn table(turning: &Turning) -> String {
    let row =
        |point: &Point| [words(turning, point.at), factor(point.gain.factor), between(point.gain)];
    let table = Table::of(&[turning.of, "gain", "between"], 1, turning.points.iter().map(row));
    folded("in figures", &table.draw())
}
