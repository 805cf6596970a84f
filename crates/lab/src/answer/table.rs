//! Requests a second by size and kind of request.

use super::{Answer, distinct};
use crate::plan::{CellLoad, Sweep};
use crate::results::{CellResult, Ending, Results};
use headpond_report::{Grid, Tone, number};
use serde_json::json;

pub(super) fn answer(results: &Results) -> Answer {
    let mut answer = Answer::new("Requests a second");
    let measured: Vec<_> = results.measured().collect();
    let is_unsteady = |ending: &Option<Ending>| {
        matches!(ending, Some(Ending::NotSteady { .. } | Ending::Cut { .. }) | None)
    };
    for of in distinct(measured.iter().map(|(cell, _)| super::curves::named(results, cell))) {
        let cells: Vec<_> =
            measured.iter().filter(|(cell, _)| super::curves::named(results, cell) == of).collect();
        let parallels = distinct(cells.iter().map(|(cell, _)| cell.cell.load.parallel()));
        for parallel in &parallels {
            let here: Vec<_> =
                cells.iter().filter(|(cell, _)| &cell.cell.load.parallel() == parallel).collect();
            let kinds = distinct(here.iter().map(|(cell, _)| kind(&cell.cell.load)));
            let mut sizes = distinct(here.iter().map(|(cell, _)| cell.cell.load.bs));
            sizes.sort_by_key(|size| size.bytes());
            let cell = |size, kind_of: &String| {
                let found = here.iter().find(|(cell, _)| {
                    cell.cell.load.bs == size && &kind(&cell.cell.load) == kind_of
                });
                found.map_or((String::new(), Tone::Blank), |(cell, summary)| {
                    let mark = if is_unsteady(&cell.ending) { " *" } else { "" };
                    (format!("{}{mark}", number(summary.iops.median)), Tone::Blank)
                })
            };
            let rows = sizes.iter().map(|&size| {
                (size.to_string(), kinds.iter().map(|kind| cell(size, kind)).collect())
            });
            let corner = "request".to_owned();
            let grid =
                Grid { corner, rows: rows.collect(), columns: kinds.clone(), note: String::new() };
            answer.grids.push((format!("{of}, {parallel}"), grid));
        }
        let unsteady = cells.iter().filter(|(cell, _)| is_unsteady(&cell.ending)).count();
        let is_asked = cells.iter().any(|(cell, _)| {
            let target = &results.plan.targets[cell.cell.target];
            results.plan.rounds_of(target).steady.is_some()
        });
        answer.sentences.push(match (unsteady, &results.plan.sweep) {
            _ if !is_asked => format!("{of}: no steady state was asked for"),
            (_, Some(sweep)) => {
                let cells: Vec<_> = cells.iter().map(|(cell, _)| *cell).collect();
                swept(&of, &cells, sweep)
            }
            (0, None) => format!("{of}: all of {} cells came to their steady state", cells.len()),
            _ => format!(
                "{of}: {unsteady} of {} cells (*) did not come to a steady state",
                cells.len()
            ),
        });
    }
    let facts = measured.iter().map(|(cell, summary)| {
        json!({ "cell": cell.cell.number, "iops": summary.iops, "ending": cell.ending })
    });
    answer.facts = json!({ "cells": facts.collect::<Vec<_>>() });
    answer
}

/// When a matrix that was measured round after round came to its steady state.
fn swept(of: &str, cells: &[&CellResult], sweep: &Sweep) -> String {
    let rounds = cells.iter().map(|cell| cell.rounds.len()).max().unwrap_or(0);
    let by = match &sweep.tracked[..] {
        [] => "every cell".to_owned(),
        tracked => tracked.join(" and "),
    };
    let all = cells.len();
    match cells.iter().all(|cell| matches!(cell.ending, Some(Ending::Steady { .. }))) {
        true => format!("{of}: steady by {by} after {rounds} rounds of all {all} cells"),
        false => format!("{of}: not steady by {by} after {rounds} rounds of all {all} cells (*)"),
    }
}

fn kind(load: &CellLoad) -> String {
    let mix = load.mix.map(|mix| format!(" {mix}/{}", 100 - mix)).unwrap_or_default();
    format!("{}{mix} {}", load.rw, load.sync).replace(" none", "")
}
