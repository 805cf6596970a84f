//! What jobs that run at the same time do to each other.

use super::curves::named;
use super::{Answer, all_within, compared, distinct, ms};
use crate::results::{JobFigures, Results};
use crate::statistics::{RankComparison, differ};
use headpond_report::{Comparison, Entry, Scale, Table, Unit, factor, number};
use serde_json::json;

/// A job, and on what it ran.
struct Share {
    what: String,
    figures: JobFigures,
}

pub(super) fn answer(results: &Results) -> Answer {
    let mut answer = Answer::new("What gets how much");
    let (mut rows, mut facts) = (Vec::new(), Vec::new());
    let mut all: Vec<Share> = Vec::new();
    for (cell, summary) in results.measured() {
        let (job, merits) = (cell.cell.load.to_string(), cell.rates(&results.plan));
        let own = JobFigures { job, summary, merits };
        let each = [own].into_iter().chain(cell.beside(&results.plan));
        all.extend(each.map(|figures| Share { what: named(results, cell), figures }));
    }
    for Share { what, figures: JobFigures { job, summary, .. } } in &all {
        rows.push(vec![
            what.clone(),
            job.clone(),
            number(summary.iops.median),
            number(summary.mb_per_s.median),
            ms(summary.mean_ms.median),
            all_within(summary, summary.all.p99),
        ]);
        facts.push(json!({ "what": what, "job": job, "iops": summary.iops.median,
            "mb_per_s": summary.mb_per_s.median, "mean_ms": summary.mean_ms.median,
            "p99_ms": summary.all.p99 }));
    }
    for job in distinct(all.iter().map(|share| &share.figures.job)) {
        let of: Vec<_> = all.iter().filter(|share| &share.figures.job == job).collect();
        let bar = |share: &&Share| (share.what.clone(), vec![Some(compared(share.iops()))]);
        let comparison = Comparison {
            title: format!("{job}: requests a second"),
            note: "medians of the rounds, with their interval".to_owned(),
            series: vec![Entry::new("", 0)],
            rows: of.iter().map(bar).collect(),
            scale: Scale::Linear(Unit::Number),
        };
        answer.charts.push(comparison.draw());
        answer.sentences.extend(sentence(job, of));
    }
    let columns = ["what", "job", "IOPS", "MB/s", "mean", "99 %"];
    answer.tables.push(Table::of(&columns, 2, rows));
    answer.facts = json!({ "jobs": facts });
    answer
}

/// Where a job gets most, and what of that it gets elsewhere.
fn sentence(job: &str, mut of: Vec<&Share>) -> Option<String> {
    of.sort_by(|a, b| b.iops().median.total_cmp(&a.iops().median));
    let (best, others) = of.split_first().filter(|(_, others)| !others.is_empty())?;
    let told = others.iter().map(|other| {
        let verdict = differ(&best.figures.merits, &other.figures.merits);
        let rate = number(other.iops().median);
        let words = beside_best(verdict);
        format!("{words} {} ({rate}/s)", other.what)
    });
    let told = told.collect::<Vec<_>>().join(", ");
    let (what, rate) = (&best.what, number(best.iops().median));
    Some(format!("{job}: most with {what} ({rate}/s), {told}"))
}

/// What the second of two figures is to the first, the largest.
fn beside_best(verdict: Option<RankComparison>) -> String {
    match verdict {
        Some(it) if it.winner_is_second() == Some(false) => {
            format!("{} of that with", factor(it.ratio))
        }
        Some(it) if !it.is_short_of_rounds() => {
            "no further from it than chance or 3 % with".to_owned()
        }
        Some(_) => "with so few rounds no difference can be shown from".to_owned(),
        None => "not to be compared with".to_owned(),
    }
}

impl Share {
    fn iops(&self) -> &crate::statistics::Spread {
        &self.figures.summary.iops
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_enough_rounds_say_that_figures_are_alike() {
        let told = |rounds: usize, second: f64| {
            let row = |figure: f64| (0..rounds).map(|it| figure + it as f64).collect::<Vec<_>>();
            beside_best(differ(&row(10_000.0), &row(second)))
        };
        assert!(told(5, 100.0).ends_with("of that with"), "{}", told(5, 100.0));
        assert!(told(5, 10_001.0).starts_with("no further"), "{}", told(5, 10_001.0));
        assert!(told(3, 100.0).starts_with("with so few rounds"), "{}", told(3, 100.0));
        assert!(beside_best(None).starts_with("not to be compared"));
    }
}
