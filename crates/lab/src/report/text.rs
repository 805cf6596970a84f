//! Results for a terminal.

use crate::answer::{all_within, answers, name_of};
use crate::plan::{Plan, Target};
use crate::results::{CellResult, Ending, Results, Summary};
use crate::statistics::{Interval, Pattern};
use headpond_report::{Table, duration, number};

const FIO_AT_A_RATE: &str =
    "latencies count from when fio sent a request, not from when it was due";

/// What was found out, and the figures behind it.
pub fn text(results: &Results) -> String {
    let plan = &results.plan;
    let mut text = format!("{}\n", plan.name);
    if !plan.question.is_empty() {
        text += &format!("{}\n", plan.question);
    }
    text += &format!("{}\n", origin(plan));
    let open = results.cells.iter().filter(|cell| cell.ending.is_none()).count();
    if open > 0 {
        let all = results.cells.len();
        text += &format!("{open} of {all} cells are not measured yet (headpond lab resume)\n");
    }
    if results.measured().next().is_none() {
        return text + &remarks(results).iter().map(|it| format!("{it}\n")).collect::<String>();
    }
    for answer in answers(results) {
        text += &format!("\n{}", answer.text());
    }
    text += &format!("\n{}", cells(results).render());
    for remark in remarks(results) {
        text += &format!("{remark}\n");
    }
    text
}

/// Which figures are measured and which are a model's.
pub(super) fn origin(plan: &Plan) -> String {
    let names = |are_models: bool| {
        let is_it = |target: &&Target| target.machine.is_some() == are_models;
        let names = plan.targets.iter().filter(is_it).map(|target| target.name.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    match (names(false), names(true)) {
        (measured, models) if models.is_empty() => format!("Measured: {measured}."),
        (measured, models) if measured.is_empty() => {
            format!("Modelled: {models}; no device was measured.")
        }
        (measured, models) => format!("Measured: {measured}. Modelled: {models}."),
    }
}

/// All cells with their figures.
pub(super) fn cells(results: &Results) -> Table {
    let measured: Vec<_> = results.measured().collect();
    let has_flushes = measured.iter().any(|(_, summary)| summary.flush.requests > 0);
    let rows = measured.iter().map(|(cell, summary)| {
        let flush = |figure: f64| match summary.flush.requests {
            0 => "-".to_owned(),
            _ => ms(figure),
        };
        let flushes = [flush(summary.flush.p99), flush(summary.flush.p99_99)];
        let mut row = vec![
            name_of(results, cell),
            cell.cell.load.to_string(),
            number(summary.iops.median),
            spread(summary),
            number(summary.mb_per_s.median),
            ms(summary.mean_ms.median),
            all_within(summary, summary.all.p99),
            all_within(summary, summary.all.p99_99),
        ];
        row.extend(flushes.into_iter().filter(|_| has_flushes));
        row.push(summary.rounds.to_string());
        row
    });
    let mut columns = vec!["what", "load", "IOPS", "between", "MB/s", "mean", "99 %", "99.99 %"];
    columns.extend(["flush 99 %", "flush 99.99 %"].into_iter().filter(|_| has_flushes));
    columns.push("rounds");
    Table::of(&columns, 2, rows)
}

/// Where the median lies, and how sure that is; with too few rounds, from the least to the most.
fn spread(summary: &Summary) -> String {
    let iops = &summary.iops;
    match iops.interval {
        Some(Interval { from, to, confidence }) => {
            format!("{} to {} ({:.0} %)", number(from), number(to), confidence * 100.0)
        }
        None => format!("{} to {}", number(iops.smallest), number(iops.largest)),
    }
}

/// What a reader of the figures has to know of single cells.
pub(super) fn remarks(results: &Results) -> Vec<String> {
    let plan = &results.plan;
    let by_fio = plan.targets.iter().filter(|target| !target.is_in_process(&plan.matrix));
    let mut remarks: Vec<_> = by_fio
        .filter(|_| !plan.matrix.rate.is_empty())
        .map(|target| format!("{}: {FIO_AT_A_RATE}", target.name))
        .chain(plan.caveats())
        .collect();
    for cell in &results.cells {
        let title = cell.cell.title(plan);
        if let Some(Ending::LeftOut { why }) = &cell.ending {
            remarks.push(format!("{title}: left out: {why}"));
        }
        if let Some(Ending::Cut { why }) = &cell.ending {
            remarks.push(format!("{title}: cut short: {why}"));
        }
        if let Some(Ending::Failed { why }) = &cell.ending {
            remarks.push(format!("{title}: could not be measured: {why}"));
        }
        if let Some(Ending::NotSteady { drift }) = &cell.ending {
            let words = drift.map(|drift| {
                let (range, slope) = (drift.range * 100.0, drift.slope * 100.0);
                format!(" (range {range:.0} %, slope {slope:.0} %)")
            });
            remarks.push(format!("{title}: no steady state{}", words.unwrap_or_default()));
        }
        if let Some(summary) = cell.summary(plan) {
            remarks.extend(habits(cell, &summary).into_iter().map(|it| format!("{title}: {it}")));
        }
    }
    remarks
}

fn habits(cell: &CellResult, summary: &Summary) -> Vec<String> {
    let mut habits = Vec::new();
    habits.extend(behind(cell, summary));
    if summary.errors > 0 {
        habits.push(format!("{} requests failed", summary.errors));
    }
    if !summary.outliers.is_empty() {
        let numbers: Vec<_> =
            summary.outliers.iter().map(|number| (number + 1).to_string()).collect();
        habits.push(match &numbers[..] {
            [one] => format!("round {one} is not like the others"),
            several => format!("rounds {} are not like the others", several.join(", ")),
        });
    }
    // A cache that fills is what the first rounds are for.
    let is_pass = cell.rounds.iter().all(|round| round.round.windows.is_empty());
    match summary.pattern {
        Some(Pattern::Alternates { high, low, high_share, period }) if !is_pass => {
            let seconds = duration((period * summary.window_s * 1e9) as u64);
            habits.push(format!(
                "periodic: alternates between {} and {} IOPS ({:.0} % of the time high), every \
                 {seconds}",
                number(high),
                number(low),
                high_share * 100.0
            ));
        }
        Some(Pattern::Settles { from, to, at }) if !is_pass => {
            let seconds = duration((at as f64 * summary.window_s * 1e9) as u64);
            habits.push(format!(
                "settles from {} to {} IOPS after {seconds}",
                number(from),
                number(to)
            ));
        }
        _ => {}
    }
    habits
}

/// So much of a rate is missed by chance: of all requests, and in deviations of their number.
const MISSED: f64 = 0.02;
const DEVIATIONS: f64 = 3.0;

/// Where requests were due more often than they were answered.
fn behind(cell: &CellResult, summary: &Summary) -> Option<String> {
    let (rate, reached) = (cell.cell.load.rate?, summary.iops.median);
    let chance = DEVIATIONS / (summary.all.requests.max(1) as f64).sqrt();
    (reached < rate * (1.0 - MISSED - chance)).then(|| {
        format!(
            "{}/s were asked for, and {}/s were answered: it does not keep up, and its latencies are \
             of that and not of this rate",
            number(rate),
            number(reached)
        )
    })
}

fn ms(ms: f64) -> String {
    duration((ms * 1e6) as u64)
}
