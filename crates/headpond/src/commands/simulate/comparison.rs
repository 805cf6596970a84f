//! Comparison of stacks, with the best of each metric.

use headpond_report::{Align, Table, count};
use headpond_whatif::{Outcome, Side};

/// Smaller differences have no winner.
const TIE: f64 = 0.02;

/// One metric.
pub struct Metric {
    pub name: String,
    /// One for each stack; nothing where it has none.
    pub figures: Vec<Option<f64>>,
    is_rate: bool,
}

impl Metric {
    /// The stack that is significantly better than every other one.
    pub fn winner(&self) -> Option<usize> {
        let better = |a: f64, b: f64| if self.is_rate { a > b } else { a < b };
        let known =
            self.figures.iter().enumerate().filter_map(|(at, figure)| Some((at, (*figure)?)));
        let mut known: Vec<(usize, f64)> = known.collect();
        known.sort_by(|a, b| a.1.total_cmp(&b.1));
        if self.is_rate {
            known.reverse();
        }
        let [(first, best), (_, next), ..] = known[..] else { return None };
        let distance = (best - next).abs() / best.abs().max(next.abs()).max(f64::MIN_POSITIVE);
        (better(best, next) && distance > TIE).then_some(first)
    }

    /// A figure, formatted.
    pub fn words(&self, stack: usize) -> String {
        match self.figures[stack] {
            None => "-".to_owned(),
            Some(rate) if self.is_rate && rate >= 100.0 => count(rate.round() as u64),
            Some(rate) if self.is_rate => format!("{rate:.1}"),
            Some(ms) => format!("{ms:.2}"),
        }
    }
}

/// The metrics; empty for a single stack.
pub fn metrics(outcomes: &[Outcome]) -> Vec<Metric> {
    let jobs = outcomes.iter().map(|outcome| outcome.jobs.len()).min().unwrap_or(0);
    if outcomes.len() < 2 {
        return Vec::new();
    }
    (0..jobs).flat_map(|job| metrics_of_job(outcomes, job, jobs > 1)).collect()
}

fn metrics_of_job(outcomes: &[Outcome], job: usize, is_named: bool) -> Vec<Metric> {
    type Pick = fn(&Side) -> f64;
    let of: [(&str, bool, Pick); 6] = [
        ("IOPS", true, |side| side.iops),
        ("MB/s", true, |side| side.mb_per_s),
        ("mean ms", false, |side| side.latency.mean_us / 1e3),
        ("p99 ms", false, |side| side.latency.p99_us / 1e3),
        ("p99.9 ms", false, |side| side.latency.p99_9_us / 1e3),
        ("p99.99 ms", false, |side| side.latency.p99_99_us / 1e3),
    ];
    let mut metrics = Vec::new();
    for (kind, side) in ["read", "write", "flush"].into_iter().zip(0..) {
        let sides: Vec<Option<Side>> = outcomes
            .iter()
            .map(|outcome| {
                let measured = &outcome.jobs[job].measured;
                let side = [measured.read, measured.write, measured.flush][side];
                (side.requests > 0).then_some(side)
            })
            .collect();
        if sides.iter().all(Option::is_none) {
            continue;
        }
        let job = &outcomes[0].jobs[job].name;
        let prefix = if is_named { format!("{job}: {kind}") } else { kind.to_owned() };
        metrics.extend(of.iter().filter(|(name, ..)| kind != "flush" || *name != "MB/s").map(
            |&(name, is_rate, pick)| Metric {
                name: format!("{prefix} {name}"),
                figures: sides.iter().map(|side| side.as_ref().map(pick)).collect(),
                is_rate,
            },
        ));
    }
    metrics
}

/// The comparison as a table; empty where there is nothing to compare.
pub fn table(outcomes: &[Outcome]) -> String {
    let metrics = metrics(outcomes);
    if metrics.is_empty() {
        return String::new();
    }
    let names = outcomes.iter().map(|outcome| (outcome.name.as_str(), Align::Right));
    let columns = [("", Align::Left)].into_iter().chain(names).chain([("best", Align::Left)]);
    let mut table = Table::new(columns);
    for metric in &metrics {
        let best = metric.winner().map_or("-", |stack| outcomes[stack].name.as_str());
        let figures = (0..outcomes.len()).map(|stack| metric.words(stack));
        let cells = [metric.name.clone()].into_iter().chain(figures).chain([best.to_owned()]);
        table.row(cells);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(is_rate: bool, figures: &[Option<f64>]) -> Metric {
        Metric { name: "m".into(), figures: figures.to_vec(), is_rate }
    }

    #[test]
    fn more_is_better_for_rates_and_less_for_times() {
        assert_eq!(metric(true, &[Some(10.0), Some(30.0), Some(20.0)]).winner(), Some(1));
        assert_eq!(metric(false, &[Some(10.0), Some(30.0), None]).winner(), Some(0));
    }

    #[test]
    fn nobody_wins_by_chance_or_alone() {
        assert_eq!(metric(true, &[Some(100.0), Some(101.0)]).winner(), None);
        assert_eq!(metric(true, &[Some(100.0), None]).winner(), None);
        assert_eq!(metric(false, &[Some(0.0), Some(0.0)]).winner(), None);
        assert_eq!(metric(true, &[None, None]).words(1), "-");
    }
}
