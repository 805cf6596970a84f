//! What jobs that run at the same time do to each other.

use super::curves::named;
use super::{Answer, Rows, compared, distinct, ms};
use crate::results::{Results, Summary};
use headpond_report::{Comparison, Entry, Unit, factor, number};
use serde_json::json;

pub(super) fn answer(results: &Results) -> Answer {
    let mut answer = Answer::new("What gets how much");
    let (mut rows, mut facts) = (Vec::new(), Vec::new());
    // Of each job: who does how much, and how fast.
    let mut all: Vec<(String, String, Summary)> = Vec::new();
    for (cell, summary) in results.measured() {
        let of = named(results, cell);
        let own = (of.clone(), cell.cell.load.to_string(), summary);
        let others = cell.beside(&results.plan).into_iter();
        all.extend([own].into_iter().chain(others.map(|(job, it)| (of.clone(), job, it))));
    }
    for (of, job, summary) in &all {
        rows.push(vec![
            of.clone(),
            job.clone(),
            number(summary.iops.median),
            number(summary.mb_per_s.median),
            ms(summary.mean_ms.median),
            ms(summary.all.p99),
        ]);
        facts.push(json!({ "what": of, "job": job, "iops": summary.iops.median,
            "mb_per_s": summary.mb_per_s.median, "mean_ms": summary.mean_ms.median,
            "p99_ms": summary.all.p99 }));
    }
    for job in distinct(all.iter().map(|(_, job, _)| job)) {
        let mut of: Vec<_> = all.iter().filter(|(_, other, _)| other == job).collect();
        let bars = of.iter().map(|(what, _, it)| (what.clone(), vec![compared(&it.iops)]));
        let comparison = Comparison {
            title: format!("{job}: requests a second"),
            note: "medians of the rounds, with their interval".to_owned(),
            series: vec![Entry::new("", 0)],
            rows: bars.collect(),
            unit: Unit::Number,
        };
        answer.charts.push(comparison.draw());
        of.sort_by(|a, b| b.2.iops.median.total_cmp(&a.2.iops.median));
        let [best, .., worst] = &of[..] else { continue };
        answer.sentences.push(format!(
            "{job}: most with {} ({}/s), {} of what it gets with {} ({}/s)",
            best.0,
            number(best.2.iops.median),
            factor(best.2.iops.median / worst.2.iops.median.max(1e-9)),
            worst.0,
            number(worst.2.iops.median)
        ));
    }
    let columns = vec!["what", "job", "IOPS", "MB/s", "mean", "99 %"];
    answer.tables.push(Rows { columns, words: 2, rows });
    answer.facts = json!({ "jobs": facts });
    answer
}
