//! How fast a cache fills, and how fast it is cleaned.

use super::curves::named;
use super::{Answer, Rows};
use crate::results::{CellResult, Results};
use crate::statistics::{Pattern, median, pattern};
use headpond_report::{Axis, Chart, Line, Lines, Unit, number, percent};
use serde_json::json;

/// A cache this dirty is full.
const FULL: f64 = 0.97;
const BLOCK_BYTES: f64 = 4096.0;

/// What a cell says of a cache.
struct Found {
    /// 10^6 bytes a second, while there was room.
    fill: Option<f64>,
    /// When there was none any more: what was taken in, and what was cleaned.
    full: Option<f64>,
    cleaned: Option<f64>,
    dirtiest: f64,
}

pub(super) fn answer(results: &Results) -> Answer {
    let mut answer = Answer::new("How fast does the cache fill, and how fast is it cleaned?");
    let (mut rows, mut facts) = (Vec::new(), Vec::new());
    for (cell, _) in results.measured() {
        let of = format!("{}, {}", named(results, cell), cell.cell.load);
        let found = found(cell);
        answer.sentences.push(format!("{of}: {}", sentence(&found)));
        let word = |rate: Option<f64>| rate.map(number).unwrap_or_else(|| "-".to_owned());
        rows.push(vec![
            named(results, cell),
            cell.cell.load.to_string(),
            word(found.fill),
            word(found.full),
            word(found.cleaned),
            percent(found.dirtiest),
        ]);
        facts.push(json!({ "cell": cell.cell.number, "fill_mb_per_s": found.fill,
            "when_full_mb_per_s": found.full, "cleaned_mb_per_s": found.cleaned,
            "dirtiest": found.dirtiest }));
        answer.charts.extend(chart(&of, cell));
    }
    let columns = vec!["what", "load", "fills MB/s", "full MB/s", "cleans MB/s", "dirtiest"];
    answer.tables.push(Rows { columns, words: 2, rows });
    answer.facts = json!({ "cells": facts });
    answer
}

fn found(cell: &CellResult) -> Found {
    let bytes = cell.cell.load.bs.bytes() as f64;
    let windows = || cell.rounds.iter().flat_map(|round| &round.round.windows);
    let rate = |window: &headpond_whatif::Window| window.write_iops * bytes / 1e6;
    let dirtiest = windows().map(|window| window.dirty_ratio).fold(0.0, f64::max);
    let is_watched = cell.rounds.iter().any(|round| round.round.machine.is_some());
    if !is_watched {
        // From without, a cache that is full shows as throughput that settles.
        let rates: Vec<_> = windows().map(rate).collect();
        let (fill, full) = match pattern(&rates) {
            Some(Pattern::Settles { from, to, .. }) if from > to => (Some(from), Some(to)),
            _ => (None, None),
        };
        return Found { fill, full, cleaned: full, dirtiest };
    }
    let (mut filling, mut full) = (Vec::new(), Vec::new());
    let mut before = 0.0;
    for window in windows() {
        if before >= FULL {
            full.push(rate(window));
        } else if window.dirty_ratio > before && window.dirty_ratio < FULL {
            filling.push(rate(window));
        }
        before = window.dirty_ratio;
    }
    let is_full = |round: &&crate::results::StoredRound| {
        round.round.windows.first().is_some_and(|window| window.dirty_ratio >= FULL)
    };
    let cleaned: Vec<_> = cell
        .rounds
        .iter()
        .filter(is_full)
        .filter_map(|round| round.round.machine.as_ref()?.cache)
        .map(|cache| cache.cleaned_per_s * BLOCK_BYTES / 1e6)
        .collect();
    let middle = |rates: &[f64]| (!rates.is_empty()).then(|| median(rates));
    Found { fill: middle(&filling), full: middle(&full), cleaned: middle(&cleaned), dirtiest }
}

fn sentence(found: &Found) -> String {
    let fill = match found.fill {
        Some(rate) => format!("fills at {} MB/s", number(rate)),
        None => "does not fill".to_owned(),
    };
    let full = match (found.full, found.cleaned) {
        (Some(full), Some(cleaned)) => format!(
            "; once full it takes in {} MB/s and cleans {} MB/s",
            number(full),
            number(cleaned)
        ),
        (Some(full), None) => format!("; once full it takes in {} MB/s", number(full)),
        (None, _) => format!("; it was never full ({} dirty at most)", percent(found.dirtiest)),
    };
    fill + &full
}

/// What came in and how dirty it was, over time.
fn chart(title: &str, cell: &CellResult) -> Option<Chart> {
    let bytes = cell.cell.load.bs.bytes() as f64;
    let (mut begun, mut rates, mut dirty) = (0.0, Vec::new(), Vec::new());
    for round in &cell.rounds {
        for window in &round.round.windows {
            let at = begun + window.at_s;
            rates.push((at, window.write_iops * bytes / 1e6));
            dirty.push((at, window.dirty_ratio));
        }
        begun += round.round.windows.last().map_or(0.0, |window| window.at_s);
    }
    let most = rates.iter().map(|point| point.1).fold(0.0, f64::max);
    if most <= 0.0 {
        return None;
    }
    // Both on one axis: the dirty ratio as a share of the highest rate.
    let dirty = dirty.into_iter().map(|(at, ratio)| (at, ratio * most)).collect();
    let lines = Lines {
        title: title.to_owned(),
        note: format!(
            "MB/s over seconds; the dirty ratio reaches the top ({}) at 100 %",
            number(most)
        ),
        across: Axis::linear(0.0, begun, Unit::Number),
        up: Axis::linear(0.0, most, Unit::Number),
        series: vec![Line::new("written", 0, rates), Line::new("dirty ratio", 1, dirty)],
        marks: Vec::new(),
        level: None,
        are_steps: false,
    };
    Some(lines.draw())
}
