//! Settings that are tried in pairs: what is best of one depends on the other, and the way from one
//! pair to a better one leads past something worse.

use super::axes::{Axis, CLEANINGS, CREATION_KEYS};
use super::{Candidate, HOPELESS, JudgeError, Risk, Search, Tried, candidates_of, class_axis};

/// Pairs with each setting that are tried on everything, and those that are no worse than these.
const PAIRS_KEPT: usize = 3;

impl Search<'_> {
    /// What is chosen at creation, and classes, with what each of their values goes with best: on a
    /// part of the requests, and the best of each setting on everything.
    pub(super) fn pair(&mut self, rung: &[Tried], axes: &[Axis]) -> Result<Vec<Tried>, JudgeError> {
        let goal = self.quest.goal;
        let cost = |it: &Tried| it.trial.cost(goal);
        let (kinds, modes) = self.starts(rung, axes);
        let mut finalists = Vec::new();
        for axis in axes {
            let starts = match axis.key {
                key if CREATION_KEYS.contains(&key) => &kinds,
                class_axis::KEY => &modes,
                _ => continue,
            };
            let with_all = |it: &Candidate| -> Vec<Candidate> {
                let others = axis.values[1..].iter().map(|value| it.with(axis.key, value));
                std::iter::once(it.clone()).chain(others).collect()
            };
            let asked: Vec<Candidate> = starts.iter().flat_map(with_all).collect();
            let mut tried = self.try_all(&asked, self.part())?;
            self.sort(&mut tried);
            // Where hardly anything is cleaned in a part, it does not tell who cleans well.
            let last = tried.get(PAIRS_KEPT - 1).map_or(f64::INFINITY, cost);
            // Nor does it tell much of classes: the best of each is kept.
            let is_of_classes = axis.key == class_axis::KEY;
            let hopeless = tried.first().map_or(0.0, cost) * HOPELESS;
            let mut values: Vec<String> = Vec::new();
            tried.retain(|it| {
                let value = it.candidate.value(axis.key).unwrap_or_default();
                let is_first = is_of_classes && !values.iter().any(|known| known == value);
                values.extend(is_first.then(|| value.to_owned()));
                cost(it) <= last || is_first && cost(it) <= hopeless
            });
            finalists.extend(self.try_all(&candidates_of(&tried), self.quest.requests)?);
        }
        Ok(finalists)
    }

    /// Each mode and cleaner of a rung that does not do much worse than the best, where there is
    /// dirty data: without it all modes write the same to the array. And each mode as it is best
    /// and as it is plain, with nothing cut off: classes do in one mode what they spoil in another,
    /// and where they keep out what is long, neither cutoff nor cleaner need deal with it.
    fn starts(&self, rung: &[Tried], axes: &[Axis]) -> (Vec<Candidate>, Vec<Candidate>) {
        let cost = |it: &Tried| it.trial.cost(self.quest.goal);
        let risk = if self.quest.may_be_dirty { Risk::Dirty } else { Risk::Clean };
        let (mut kinds, mut modes): (Vec<Candidate>, Vec<Candidate>) = (Vec::new(), Vec::new());
        let mut of_risk = rung.iter().filter(|it| it.candidate.risk() == risk).peekable();
        let least = of_risk.peek().map_or(0.0, |best| cost(best));
        let is_cutoff = |axis: &Axis| axis.key == "seq-cutoff";
        let can_be_without =
            axes.iter().filter(|axis| is_cutoff(axis)).any(|axis| axis.has("never"));
        for it in of_risk {
            let candidate = &it.candidate;
            let is_hopeless = cost(it) > least * HOPELESS;
            let is_there = kinds.iter().any(|other| other.kind() == candidate.kind());
            if risk == Risk::Dirty && !is_there && (self.quest.is_exhaustive || !is_hopeless) {
                kinds.push(candidate.clone());
            }
            if modes.iter().all(|other| other.mode() != candidate.mode()) {
                modes.push(candidate.clone());
                let plain = candidate.with("cleaning", CLEANINGS[0]);
                modes.push(match can_be_without {
                    true => plain.with("seq-cutoff", "never"),
                    false => plain,
                });
            }
        }
        modes.dedup();
        (kinds, modes)
    }
}
