//! How fast a cache fills, and how fast it is cleaned.
//!
//! A cache is full where it takes in less than it did because writes wait for the cleaner, however
//! much of it is dirty by then: scattered blocks may use up the memory for their lines long before
//! the space, and of long runs much is clean already that has not been given back.

use super::Answer;
use super::curves::named;
use crate::results::{CellResult, Results, StoredRound};
use crate::statistics::{Pattern, median, pattern};
use headpond_report::{Axis, Chart, Line, Lines, Table, Unit, number, percent};
use headpond_whatif::CacheShare;
use serde::Serialize;
use serde_json::json;

const BLOCK_BYTES: f64 = 4096.0;
/// From so much of the dirtiest that it ever was, a cache no longer fills.
const TOP: f64 = 0.95;
/// What is taken in has fallen where it is less than so much of what it was.
const FALLEN: f64 = 0.9;
/// A cache fills where it gets dirtier by more than this.
const RISES: f64 = 0.05;

/// What a cell says of a cache.
struct CacheLimits {
    state: State,
    /// 10^6 bytes a second, while there was room.
    fill: Option<f64>,
    /// In the later half of the rounds: what was taken in, and what was cleaned.
    settled: Option<f64>,
    cleaned: Option<f64>,
    dirtiest: f64,
}

/// In the later half of the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    /// Takes in less than it did, and writes wait for the cleaner.
    Full,
    /// Is cleaned as fast as it is written to.
    KeepsUp,
    /// Gets dirtier still.
    Fills,
    /// From without nothing shows.
    Unknown,
}

pub(super) fn answer(results: &Results) -> Answer {
    let mut answer = Answer::new("How fast does the cache fill, and how fast is it cleaned?");
    let (mut rows, mut facts) = (Vec::new(), Vec::new());
    for (cell, _) in results.measured() {
        let of = format!("{}, {}", named(results, cell), cell.cell.load);
        let found = found(cell);
        answer.sentences.push(format!("{of}: {}", sentence(&found)));
        let word = |rate: Option<f64>| rate.map(number).unwrap_or_else(|| "-".to_owned());
        let full = found.settled.filter(|_| found.state == State::Full);
        rows.push(vec![
            named(results, cell),
            cell.cell.load.to_string(),
            word(found.fill),
            word(full),
            word(found.cleaned),
            percent(found.dirtiest),
        ]);
        facts.push(json!({ "cell": cell.cell.number, "load": cell.cell.load.to_string(),
            "settings": cell.cell.settings_text(), "state": found.state,
            "fill_mb_per_s": found.fill, "when_full_mb_per_s": full,
            "cleaned_mb_per_s": found.cleaned, "dirtiest": found.dirtiest }));
        answer.charts.extend(chart(&of, cell));
    }
    let columns = ["what", "load", "fills MB/s", "full MB/s", "cleans MB/s", "dirtiest"];
    answer.tables.push(Table::of(&columns, 2, rows));
    answer.facts = json!({ "cells": facts });
    answer
}

fn found(cell: &CellResult) -> CacheLimits {
    let bytes = cell.cell.load.bs.bytes() as f64;
    let windows = |rounds: &[StoredRound]| {
        let all = rounds.iter().flat_map(|round| &round.round.windows);
        all.map(|it| (it.write_iops * bytes / 1e6, it.dirty_ratio)).collect::<Vec<_>>()
    };
    let all = windows(&cell.rounds);
    let later = &cell.rounds[cell.rounds.len() / 2..];
    let caches: Option<Vec<_>> =
        later.iter().map(|round| round.round.machine.as_ref()?.cache).collect();
    match (caches, &windows(later)[..]) {
        (Some(caches), [_, ..]) => watched(&all, &windows(later), &Cleaned::of(&caches)),
        _ => from_without(&all),
    }
}

/// What the cleaner did.
struct Cleaned {
    mb_per_s: f64,
    /// Whether writes waited for it.
    is_awaited: bool,
}

impl Cleaned {
    fn of(caches: &[CacheShare]) -> Self {
        let rate = |cache: &CacheShare| cache.cleaned_per_s * BLOCK_BYTES / 1e6;
        let is_awaited = caches.iter().any(|cache| cache.waited > 0);
        Self { mb_per_s: mean(caches.iter().map(rate)), is_awaited }
    }
}

/// Of windows, each with what was taken in and how dirty it was at its end.
fn watched(all: &[(f64, f64)], later: &[(f64, f64)], cleaned: &Cleaned) -> CacheLimits {
    let dirtiest = all.iter().map(|window| window.1).fold(0.0, f64::max);
    let top = all.iter().position(|window| window.1 >= TOP * dirtiest).unwrap_or(0);
    // Where it is full in less than a window, that one is what there is.
    let filling: Vec<_> = all[..top.max(1)].iter().map(|window| window.0).collect();
    let (fill, settled) = (median(&filling), mean(later.iter().map(|window| window.0)));
    let rises = later[later.len() - 1].1 - later[0].1;
    let state = match () {
        () if cleaned.is_awaited && settled < FALLEN * fill => State::Full,
        () if rises > RISES => State::Fills,
        () => State::KeepsUp,
    };
    let (settled, cleaned) = (Some(settled), Some(cleaned.mb_per_s));
    CacheLimits { state, fill: Some(fill), settled, cleaned, dirtiest }
}

/// There a cache that is full shows as throughput that settles.
fn from_without(all: &[(f64, f64)]) -> CacheLimits {
    let rates: Vec<_> = all.iter().map(|window| window.0).collect();
    let (state, fill, full) = match pattern(&rates) {
        Some(Pattern::Settles { from, to, .. }) if from > to => (State::Full, Some(from), Some(to)),
        _ => (State::Unknown, None, None),
    };
    let dirtiest = all.iter().map(|window| window.1).fold(0.0, f64::max);
    CacheLimits { state, fill, settled: full, cleaned: full, dirtiest }
}

fn mean(figures: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = figures.fold((0.0, 0_u32), |(sum, count), it| (sum + it, count + 1));
    sum / f64::from(count.max(1))
}

fn sentence(found: &CacheLimits) -> String {
    let rate = |rate: Option<f64>| rate.map_or("-".to_owned(), |it| format!("{} MB/s", number(it)));
    let (fill, settled) = (rate(found.fill), rate(found.settled));
    let (cleaned, dirtiest) = (rate(found.cleaned), percent(found.dirtiest));
    match found.state {
        State::Full if found.dirtiest > 0.0 => format!(
            "fills at {fill}; full at {dirtiest} dirty, it takes in {settled} and cleans {cleaned}"
        ),
        State::Full => format!("fills at {fill}; once full it takes in {settled}"),
        State::KeepsUp => {
            format!("is never full: {settled} come in, and are cleaned as fast ({dirtiest} dirty)")
        }
        State::Fills => format!(
            "takes in {fill} and still fills at the end ({dirtiest} dirty): measure it for longer"
        ),
        State::Unknown => "nothing shows from without that it was ever full".to_owned(),
    }
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
    let of_it = format!("dirty, {} being 100 %", number(most));
    let lines = Lines {
        title: title.to_owned(),
        note: "MB/s over seconds, beside it how much is dirty".to_owned(),
        across: Axis::linear(0.0, begun, Unit::Number),
        up: Axis::linear(0.0, most, Unit::Number),
        series: vec![Line::new("written, MB/s", 0, rates), Line::new(&of_it, 1, dirty)],
        marks: Vec::new(),
        level: None,
        are_steps: false,
    };
    Some(lines.draw())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(all: &[(f64, f64)], mb_per_s: f64, is_awaited: bool) -> State {
        watched(all, &all[all.len() / 2..], &Cleaned { mb_per_s, is_awaited }).state
    }

    #[test]
    fn a_cache_is_full_when_writes_wait_for_the_cleaner_however_dirty_it_is() {
        let scattered = [(375.0, 0.16), (375.0, 0.17), (3.0, 0.16), (3.0, 0.15), (3.0, 0.15)];
        let cleaned = Cleaned { mb_per_s: 3.0, is_awaited: true };
        let found = watched(&scattered, &scattered[2..], &cleaned);
        assert_eq!(found.state, State::Full);
        assert_eq!((found.fill, found.settled, found.cleaned), (Some(375.0), Some(3.0), Some(3.0)));
        let slower = [(495.0, 0.01), (495.0, 0.02), (400.0, 0.0), (400.0, 0.01)];
        assert_eq!(state(&slower, 400.0, false), State::KeepsUp, "it waits for something else");
        let rising = [(495.0, 0.1), (495.0, 0.2), (495.0, 0.3), (495.0, 0.4)];
        assert_eq!(state(&rising, 100.0, false), State::Fills);
    }

    #[test]
    fn from_without_a_full_cache_is_throughput_that_settles() {
        let settles: Vec<_> = (0..40).map(|at| (if at < 10 { 500.0 } else { 50.0 }, 0.0)).collect();
        let found = from_without(&settles);
        assert_eq!(
            (found.state, found.fill, found.cleaned),
            (State::Full, Some(500.0), Some(50.0))
        );
        assert_eq!(from_without(&[(500.0, 0.0); 40]).state, State::Unknown);
    }
}
