//! Which of two configurations wins where.

mod along;

use super::curves::Curve;
use super::{Answer, actual, distinct, group, ms};
use crate::plan::CellLoad;
use crate::results::{CellResult, Results};
use crate::statistics::{RankComparison, adjust, at_budget, differ};
use along::{along, sentence, within};
use headpond_report::{Grid, Table, Tone, factor};
use serde_json::{Value, json};

/// Two cells that differ in nothing but the axis.
struct Pair<'a> {
    first: &'a CellResult,
    second: &'a CellResult,
    verdict: RankComparison,
}

impl Pair<'_> {
    fn group(&self, results: &Results, axis: &str) -> String {
        group(results, axis, self.first)
    }
}

pub(super) fn answer(
    results: &Results,
    axis: &str,
    values: [&str; 2],
    budgets_ms: &[f64],
) -> Answer {
    let values = actual(results, axis, values);
    let [first, second] = [&values[0], &values[1]];
    let mut answer = Answer::new(&format!("{first} or {second}?"));
    let mut pairs = pairs(results, axis, [first, second]);
    adjust(&mut pairs.iter_mut().map(|pair| &mut pair.verdict).collect::<Vec<_>>());
    if pairs.is_empty() {
        answer.sentences.push(format!("nothing was measured with both {first} and {second}"));
        return answer;
    }
    answer.sentences.push(score(&pairs, first, second));
    let curves = Curve::all(results);
    let mut facts = Vec::new();
    for group in distinct(pairs.iter().map(|pair| pair.group(results, axis))) {
        let of: Vec<_> = pairs.iter().filter(|pair| pair.group(results, axis) == group).collect();
        let named = if group.is_empty() { String::new() } else { format!("{group}: ") };
        for request in distinct(of.iter().map(|pair| pair.first.cell.load.request())) {
            let is_it = |pair: &&&Pair<'_>| pair.first.cell.load.request() == request;
            let Some(pair) = of.iter().find(is_it) else { continue };
            let curve = |number: usize| curves.iter().find(|curve| curve.has(number));
            let numbers = (pair.first.cell.number, pair.second.cell.number);
            let (Some(one), Some(other)) = (curve(numbers.0), curve(numbers.1)) else { continue };
            let names = [first.as_str(), second.as_str()];
            let (found, mut fact) = compare(results, [one, other], names, budgets_ms);
            answer.sentences.extend(found.iter().map(|it| format!("{named}{request}: {it}")));
            (fact["of"], fact["request"]) = (json!(group), json!(request));
            facts.push(fact);
        }
        answer.grids.push((format!("{named}{second}, of {first}"), grid(&of)));
    }
    answer.tables.push(table(results, axis, [first, second], &pairs));
    let cells = pairs.iter().map(|pair| {
        json!({ "first": pair.first.cell.number, "second": pair.second.cell.number,
                "verdict": pair.verdict })
    });
    let cells: Vec<_> = cells.collect();
    answer.facts = json!({ "axis": axis, "first": first, "second": second, "cells": cells,
                           "requests": facts });
    answer
}

fn pairs<'a>(results: &'a Results, axis: &str, values: [&String; 2]) -> Vec<Pair<'a>> {
    let plan = &results.plan;
    let measured: Vec<_> = results.measured().map(|(cell, _)| cell).collect();
    let value = |cell: &CellResult| cell.cell.axis(plan, axis);
    let firsts = measured.iter().filter(|cell| value(cell).as_ref() == Some(values[0]));
    let partner = |first: &CellResult| {
        measured
            .iter()
            .copied()
            .find(|cell| value(cell).as_ref() == Some(values[1]) && is_like(first, cell, axis))
    };
    let pairs = firsts.filter_map(|&first| {
        let second = partner(first)?;
        let verdict = differ(&first.merits(plan), &second.merits(plan))?;
        Some(Pair { first, second, verdict })
    });
    pairs.collect()
}

/// Whether two cells are the same but for an axis.
fn is_like(first: &CellResult, second: &CellResult, axis: &str) -> bool {
    let (mut a, mut b) = (first.cell.clone(), second.cell.clone());
    for cell in [&mut a, &mut b] {
        cell.number = 0;
        match axis {
            "target" => cell.target = 0,
            "rw" => cell.load.rw = String::new(),
            "mix" => cell.load.mix = None,
            "bs" => cell.load.bs = headpond_volume::Size(0),
            "jobs" => cell.load.jobs = 1,
            "depth" => cell.load.depth = 1,
            "sync" => cell.load.sync = crate::plan::Sync::None,
            "rate" => cell.load.rate = None,
            setting => {
                cell.settings.remove(setting);
            }
        }
    }
    a == b
}

fn score(pairs: &[Pair<'_>], first: &str, second: &str) -> String {
    let winner = |pair: &&Pair<'_>| pair.verdict.winner_is_second();
    let seconds = pairs.iter().filter(|pair| winner(pair) == Some(true)).count();
    let firsts = pairs.iter().filter(|pair| winner(pair) == Some(false)).count();
    let ratios = pairs.iter().map(|pair| pair.verdict.ratio);
    let (low, high) = ratios
        .fold((f64::INFINITY, 0.0_f64), |(low, high), ratio| (low.min(ratio), high.max(ratio)));
    let open = pairs.len() - firsts - seconds;
    let short = pairs.iter().any(|pair| pair.verdict.is_short_of_rounds());
    let why = if short { " (with so few rounds no difference can be shown)" } else { "" };
    format!(
        "of {} cells {second} is faster in {seconds}, {first} in {firsts}, and {open} do not \
         differ by more than chance or 3 %{why}; {second} has {} to {} of the requests a second",
        pairs.len(),
        factor(low),
        factor(high)
    )
}

/// What two curves say of each other, in words and in figures.
fn compare(
    results: &Results,
    [one, other]: [&Curve; 2],
    names: [&str; 2],
    budgets_ms: &[f64],
) -> (Vec<String>, Value) {
    let (a, b) = (one.rounds(results), other.rounds(results));
    let stretches = along(&a, &b);
    let within = budgets_ms
        .iter()
        .map(|&budget| format!("at a mean of {}, {}", ms(budget), within(&a, &b, names, budget)));
    let found = sentence(&stretches, names).into_iter().chain(within).collect();
    let figures = budgets_ms.iter().map(|&budget| {
        json!({
            "budget_ms": budget,
            "first_iops": at_budget(&one.mean(), budget),
            "second_iops": at_budget(&other.mean(), budget),
        })
    });
    let facts = json!({ "along": stretches, "within_budget": figures.collect::<Vec<_>>() });
    (found, facts)
}

fn table(results: &Results, axis: &str, names: [&str; 2], pairs: &[Pair<'_>]) -> Table {
    let groups: Vec<_> = pairs.iter().map(|pair| pair.group(results, axis)).collect();
    let has_groups = groups.iter().any(|group| !group.is_empty());
    let row = |(pair, group): (&Pair<'_>, &String)| {
        let winner = match pair.verdict.winner_is_second() {
            Some(true) => names[1],
            Some(false) => names[0],
            None => "-",
        };
        let cells = [
            pair.first.cell.load.to_string(),
            winner.to_owned(),
            factor(pair.verdict.ratio),
            format!("{:.3}", pair.verdict.chance),
        ];
        has_groups.then(|| group.clone()).into_iter().chain(cells)
    };
    let columns = has_groups.then_some("of").into_iter();
    let columns: Vec<_> = columns.chain(["load", "better", "second/first", "chance"]).collect();
    let words = columns.len() - 2;
    Table::of(&columns, words, pairs.iter().zip(&groups).map(row))
}

/// More columns than this are wider than a page.
const COLUMNS_MAX: usize = 12;

/// By how much is in flight; where that would be too wide, by depth, with a row for so many jobs.
fn grid(pairs: &[&Pair<'_>]) -> Grid {
    let load = |pair: &Pair<'_>| pair.first.cell.load.clone();
    let widths = distinct(pairs.iter().map(|pair| load(pair).parallel()));
    let is_wide = widths.len() > COLUMNS_MAX && pairs.iter().all(|pair| load(pair).rate.is_none());
    let place = |load: &CellLoad| match is_wide {
        true => {
            let jobs =
                if load.jobs == 1 { "1 job".to_owned() } else { format!("{} jobs", load.jobs) };
            (format!("{}, {jobs}", load.request()), format!("depth {}", load.depth))
        }
        false => (load.request(), load.parallel()),
    };
    let columns = distinct(pairs.iter().map(|pair| place(&load(pair)).1));
    let rows = distinct(pairs.iter().map(|pair| place(&load(pair)).0));
    let cell = |row: &String, column: &String| {
        let is_it = |pair: &&&Pair<'_>| place(&load(pair)) == (row.clone(), column.clone());
        pairs.iter().find(is_it).map_or((String::new(), Tone::Blank), |pair| {
            let tone = match pair.verdict.winner_is_second() {
                None => Tone::Even,
                Some(_) => Tone::of_factor(pair.verdict.ratio, 0.0),
            };
            (factor(pair.verdict.ratio), tone)
        })
    };
    let rows = rows
        .into_iter()
        .map(|row| (row.clone(), columns.iter().map(|column| cell(&row, column)).collect()));
    let rows = rows.collect();
    let corner = if is_wide { "request" } else { "jobs x depth" };
    Grid { corner: corner.to_owned(), columns: columns.clone(), rows, note: String::new() }
}
