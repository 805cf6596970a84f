//! Two curves of latency over throughput, from the lightest load to where both end.
//!
//! At each place along the way the curves of the single rounds are two rows of latencies: where the
//! medians lie apart by what somebody would notice, the rank test says whether that is chance.

use super::super::curves::Points;
use crate::statistics::{at_budget, differ, median};
use headpond_report::number;
use serde::Serialize;

/// Latencies within this factor of each other are alike to whoever waits.
const ALIKE: f64 = 1.15;
/// Places along the axis of throughput at which two curves are compared.
const PLACES: u32 = 400;
/// Stretches shorter than this share of the way are left to those beside them.
const SHORT: f64 = 0.02;

/// What holds on a stretch of the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Holds {
    Alike,
    /// They lie apart, but by no more than chance.
    Open,
    FirstIsSlower,
    SecondIsSlower,
}

/// A part of the way, in requests a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Stretch {
    pub from: f64,
    pub to: f64,
    pub holds: Holds,
}

/// What two curves are to each other, place by place; nothing where they do not meet.
pub(super) fn along(first: &[Points], second: &[Points]) -> Vec<Stretch> {
    let (a, b) = (rising_all(first), rising_all(second));
    if a.is_empty() || b.is_empty() {
        return Vec::new();
    }
    let begins = |curves: &[Points]| median(&ends(curves, |points| points[0].0));
    let (a_ends, b_ends) = (ends(&a, last), ends(&b, last));
    let (a_end, b_end) = (median(&a_ends), median(&b_ends));
    let (from, to) = (begins(&a).max(begins(&b)), a_end.min(b_end));
    let mut stretches: Vec<Stretch> = Vec::new();
    if to >= from {
        for step in 0..=PLACES {
            let iops = from + (to - from) * f64::from(step) / f64::from(PLACES);
            let latencies = |curves: &[Points]| {
                curves.iter().map(|points| latency_at(points, iops)).collect::<Vec<_>>()
            };
            push(&mut stretches, Stretch { from: iops, to: iops, holds: place(&a, &b, latencies) });
        }
        merge_short(&mut stretches, SHORT * (to - from));
    }
    // One ends where the other goes on: there it takes longer without end.
    if a_end.max(b_end) > ALIKE * to {
        let is_shown = differ(&a_ends, &b_ends).is_some_and(|it| it.winner_is_second().is_some());
        let holds = match (is_shown, b_end < a_end) {
            (false, _) => Holds::Open,
            (true, true) => Holds::SecondIsSlower,
            (true, false) => Holds::FirstIsSlower,
        };
        push(&mut stretches, Stretch { from: to, to: a_end.max(b_end), holds });
    }
    stretches
}

/// The same in words.
pub(super) fn sentence(stretches: &[Stretch], names: [&str; 2]) -> Option<String> {
    let does = |holds: Holds| match holds {
        Holds::Alike => "both take the same time".to_owned(),
        Holds::Open => "they differ by no more than chance".to_owned(),
        Holds::FirstIsSlower => format!("{} takes longer", names[0]),
        Holds::SecondIsSlower => format!("{} takes longer", names[1]),
    };
    let (last, before) = stretches.split_last()?;
    if before.is_empty() {
        return Some(match last.holds {
            Holds::Alike | Holds::Open => {
                format!("{} as far as both go, {}/s", does(last.holds), number(last.to))
            }
            _ => format!("{} from the lightest load on", does(last.holds)),
        });
    }
    let parts =
        before.iter().map(|it| format!("up to about {}/s {}", number(it.to), does(it.holds)));
    let parts: Vec<_> = parts.chain([format!("beyond, {}", does(last.holds))]).collect();
    Some(parts.join("; "))
}

/// What is carried within a budget of mean latency.
pub(super) fn within(
    first: &[Points],
    second: &[Points],
    names: [&str; 2],
    budget_ms: f64,
) -> String {
    let carried = |curves: &[Points]| {
        curves.iter().map(|points| at_budget(points, budget_ms)).collect::<Option<Vec<_>>>()
    };
    let [one, other] = names;
    let (a, b) = match (carried(first), carried(second)) {
        (Some(a), Some(b)) => (a, b),
        (Some(_), None) => return format!("only {one} stays within it in every round"),
        (None, Some(_)) => return format!("only {other} stays within it in every round"),
        (None, None) => return "neither stays within it in every round".to_owned(),
    };
    let Some(verdict) = differ(&a, &b) else { return "nothing can be said".to_owned() };
    let times = headpond_report::factor;
    match verdict.winner_is_second() {
        Some(true) => format!("{other} carries {} the requests of {one}", times(verdict.ratio)),
        Some(false) => {
            format!("{one} carries {} the requests of {other}", times(1.0 / verdict.ratio))
        }
        None => {
            let few = match verdict.is_short_of_rounds() {
                true => ", which so few rounds cannot show to be more than chance",
                false => ": no more than chance or 3 %",
            };
            format!("{other} carries {} the requests of {one}{few}", times(verdict.ratio))
        }
    }
}

/// What holds where the curves of the rounds have these latencies.
fn place(a: &[Points], b: &[Points], latencies: impl Fn(&[Points]) -> Vec<f64>) -> Holds {
    let Some(verdict) = differ(&latencies(a), &latencies(b)) else { return Holds::Open };
    if (1.0 / ALIKE..=ALIKE).contains(&verdict.ratio) {
        return Holds::Alike;
    }
    match verdict.winner_is_second() {
        None => Holds::Open,
        // More of a latency is no win.
        Some(true) => Holds::SecondIsSlower,
        Some(false) => Holds::FirstIsSlower,
    }
}

fn push(stretches: &mut Vec<Stretch>, next: Stretch) {
    match stretches.last_mut() {
        Some(last) if last.holds == next.holds => last.to = next.to,
        Some(last) => {
            last.to = next.from;
            stretches.push(next);
        }
        None => stretches.push(next),
    }
}

/// Where curves touch, nobody wants to hear of every wriggle.
fn merge_short(stretches: &mut Vec<Stretch>, least: f64) {
    if stretches.iter().all(|it| it.to - it.from < least) {
        return;
    }
    let long: Vec<_> = stretches.iter().filter(|it| it.to - it.from >= least).copied().collect();
    let (from, to) = (stretches[0].from, stretches[stretches.len() - 1].to);
    stretches.clear();
    for stretch in long {
        push(stretches, stretch);
    }
    stretches[0].from = from;
    stretches.last_mut().expect("one is long").to = to;
}

/// The parts of curves on which throughput rises.
fn rising_all(curves: &[Points]) -> Vec<Points> {
    let rising = curves.iter().map(|points| {
        let mut rising: Points = Vec::new();
        for &point in points.iter().filter(|point| point.1 > 0.0) {
            if rising.last().is_none_or(|last| point.0 > last.0) {
                rising.push(point);
            }
        }
        rising
    });
    rising.filter(|points| !points.is_empty()).collect()
}

fn ends(curves: &[Points], of: impl Fn(&Points) -> f64) -> Vec<f64> {
    curves.iter().map(of).collect()
}

fn last(points: &Points) -> f64 {
    points[points.len() - 1].0
}

/// Between the points by straight lines; before the first and behind the last, theirs.
fn latency_at(points: &Points, iops: f64) -> f64 {
    let after = points.iter().position(|point| point.0 >= iops).unwrap_or(points.len() - 1);
    let (to, from) = (points[after], points[after.saturating_sub(1)]);
    let share = if to.0 > from.0 { (iops - from.0) / (to.0 - from.0) } else { 0.0 };
    from.1 + (to.1 - from.1) * share.clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Five rounds of a curve, each a little slower than the one before.
    fn rounds(latency: impl Fn(f64) -> f64, points: u32) -> Vec<Points> {
        let round = |number: u32| {
            let noise = 1.0 + 0.001 * f64::from(number);
            let of = |n| (f64::from(n) * 10_000.0 / noise, latency(f64::from(n)) * noise);
            (1..=points).map(of).collect()
        };
        (0..5).map(round).collect()
    }

    fn holds(stretches: &[Stretch]) -> Vec<Holds> {
        stretches.iter().map(|it| it.holds).collect()
    }

    const NAMES: [&str; 2] = ["one", "other"];

    #[test]
    fn curves_that_part_are_alike_up_to_there() {
        let straight = rounds(|_| 0.1, 20);
        let bent = rounds(|n| 0.1 + 0.05 * (n - 8.0).max(0.0), 20);
        let found = along(&straight, &bent);
        assert_eq!(holds(&found), [Holds::Alike, Holds::SecondIsSlower]);
        assert!((80_000.0..90_000.0).contains(&found[0].to), "{found:?}");
        assert_eq!(holds(&along(&straight, &straight)), [Holds::Alike]);
        let slow = rounds(|_| 0.5, 20);
        let found = along(&slow, &straight);
        assert_eq!(sentence(&found, NAMES).unwrap(), "one takes longer from the lightest load on");
        // The one ends where the other goes on.
        let ended = rounds(|_| 0.1, 8);
        assert_eq!(holds(&along(&straight, &ended)), [Holds::Alike, Holds::SecondIsSlower]);
    }

    #[test]
    fn curves_that_cross_are_said_to_and_the_winner_of_light_loads_is_not_that_of_all() {
        let flat = rounds(|_| 0.3, 20);
        let bent = rounds(|n| 0.2 + 0.1 * (n - 8.0).max(0.0), 12);
        let found = along(&flat, &bent);
        let expected = [Holds::FirstIsSlower, Holds::Alike, Holds::SecondIsSlower];
        assert_eq!(holds(&found), expected, "{found:?}");
        let said = sentence(&found, NAMES).unwrap();
        assert!(
            said.starts_with("up to about 8") && said.contains("/s one takes longer; "),
            "{said}"
        );
        assert!(said.ends_with("beyond, other takes longer"), "{said}");
    }

    #[test]
    fn what_rounds_cannot_show_is_left_open() {
        let (few, slow) = (rounds(|_| 0.1, 20)[..3].to_vec(), rounds(|_| 0.5, 20)[..3].to_vec());
        assert_eq!(holds(&along(&few, &slow)), [Holds::Open]);
        let said = within(&few, &slow, NAMES, 1.0);
        assert!(said.contains("so few rounds cannot show"), "{said}");
        // As often faster as slower: apart by medians alone.
        let mut wild = rounds(|_| 0.1, 20);
        for (number, points) in wild.iter_mut().enumerate() {
            let times = [0.5, 0.6, 1.3, 1.4, 1.5][number];
            points.iter_mut().for_each(|point| point.1 *= times);
        }
        assert_eq!(holds(&along(&rounds(|_| 0.1, 20), &wild)), [Holds::Open]);
    }

    #[test]
    fn a_budget_is_compared_round_by_round() {
        let (fast, slow) = (rounds(|n| 0.1 * n, 20), rounds(|n| 0.2 * n, 20));
        assert_eq!(within(&slow, &fast, NAMES, 1.0), "other carries 2.00x the requests of one");
        let same = within(&fast, &fast, NAMES, 1.0);
        assert!(same.ends_with("no more than chance or 3 %"), "{same}");
        assert_eq!(within(&fast, &slow, NAMES, 0.15), "only one stays within it in every round");
    }
}
