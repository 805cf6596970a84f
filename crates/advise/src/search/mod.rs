//! The search for the best settings: candidates are replayed on models of the user's devices.
//!
//! 1. All combinations of the axes that matter most are tried on a few requests, the better
//!    quarter on four times as many, and so on (successive halving: Jamieson and Talwalkar, 2016).
//! 2. What is left is tried on everything, beside the array without a cache.
//! 3. What is chosen at creation is tried in pairs with who is left of modes and cleaners, and so
//!    are classes with modes: which strip is best depends on who writes to the array, and the way
//!    from the best of one strip to that of another leads past something worse.
//! 4. Around the best, and the best of the other modes, the other axes are tried one after the
//!    other: all values on a part of the requests, and those that do well there on everything.
//!
//! **Invariants**: the same trace and machine give the same answer; a judge is asked the same
//! question once.

mod axes;
mod candidate;
mod class_axis;
mod gains;
mod judge;
mod pairs;
mod replays;
#[cfg(test)]
mod tests;
mod trial;

use crate::signature::Signature;
use axes::{CLEANINGS, MAIN_KEYS, further_axes, is_of_use, main_axes};
use foldhash::fast::FixedState;
use headpond_cache::CleaningConfig;
use headpond_volume::ClassSetting;
use std::collections::{HashMap, HashSet};

pub use axes::{Axis, DIRTY_MODES, Freedom};
pub use candidate::{Candidate, Risk, Setting};
pub(crate) use gains::{between, told};
pub use judge::{Judge, JudgeError, Question, Twist};
pub use replays::{Replays, Simulate};
pub use trial::{Expected, Gain, Goal, GoalError, Trial};

/// A cache that gains less than this is not worth its risk.
pub const GAIN_MIN: f64 = 1.1;

/// Costs that differ by less than this factor are decided by what is safer and spares the cache.
pub const NEARLY_AS_MUCH: f64 = 1.05;

/// A further setting must gain more than this factor to be changed.
pub const WORTH_CHANGING: f64 = 1.02;

/// The rungs before everything, as parts of it.
const RUNGS: [usize; 2] = [16, 4];
/// Of the candidates of each rung one in so many comes to the next: on few requests chance decides.
const KEPT: [usize; 2] = [2, 4];
/// Times that the other settings are looked at around what looked best.
const REFINED_MAX: usize = 3;
/// Other values of a setting that are tried on everything.
const CONTENDERS: usize = 2;
/// Those that cost no more than so many times the least on a part of the requests.
const CONTENDS: f64 = 1.1;
/// On a part of the requests, what is that much worse than what is chosen is not looked at again.
const HOPELESS: f64 = 1.25;
/// On fewer requests nothing is told apart.
const REQUESTS_MIN: usize = 1000;
/// For the endurance of the cache, so much of the gain (of its logarithm) may be given up.
const GIVEN_UP: f64 = 0.25;

/// What is searched for, and among what.
#[derive(Clone, Debug)]
pub struct Quest {
    pub goal: Goal,
    pub freedom: Freedom,
    /// The cache may have the only copy of something.
    pub may_be_dirty: bool,
    /// What is set now, where something is: other values are changes of these.
    pub standing: Option<Candidate>,
    /// How the machine cleans: parameters that are not changed stay.
    pub cleaning: CleaningConfig,
    /// The classes that it has now.
    pub classes: ClassSetting,
    /// With more for each request the cache device is worn out before its warranty ends.
    pub cache_bytes_max: Option<f64>,
    /// Of a round.
    pub requests: usize,
    /// Every main candidate is tried on everything, and each further value around the best.
    pub is_exhaustive: bool,
}

/// What a search found.
#[derive(Clone, Debug)]
pub struct SearchResult {
    pub chosen: Tried,
    pub without_cache: Tried,
    /// What is set now.
    pub standing: Option<Tried>,
    /// Of the modes without dirty data, and of those with it, what would be taken.
    pub best_clean: Option<Tried>,
    pub best_dirty: Option<Tried>,
    /// Everything that was tried to the end, the best first.
    pub finalists: Vec<Tried>,
    /// What each setting that was looked at by itself does to the cost.
    pub effects: Vec<Effect>,
    /// Replays.
    pub trials: usize,
}

/// A candidate and how it did.
#[derive(Clone, Debug)]
pub struct Tried {
    pub candidate: Candidate,
    pub trial: Trial,
}

/// What another value of one setting would do.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    pub key: &'static str,
    /// As chosen.
    pub value: String,
    pub instead: String,
    /// How much better the chosen value is.
    pub gain: Gain,
}

impl SearchResult {
    /// The advice, or the best with a cache where that is none.
    pub fn best_with_cache(&self) -> &Tried {
        match (self.chosen.candidate.has_cache(), self.finalists.first()) {
            (false, Some(best)) => best,
            _ => &self.chosen,
        }
    }
}

/// Each candidate where it stands first.
fn once_each(tried: &mut Vec<Tried>) {
    let mut seen: HashSet<Candidate, FixedState> = HashSet::default();
    tried.retain(|it| seen.insert(it.candidate.clone()));
}

fn candidates_of(tried: &[Tried]) -> Vec<Candidate> {
    tried.iter().map(|it| it.candidate.clone()).collect()
}

impl Effect {
    fn of(axis: &Axis, chosen: &Tried, rejected: &Tried, goal: Goal) -> Self {
        let value = |it: &Tried| it.candidate.value(axis.key).unwrap_or(&axis.values[0]).to_owned();
        let gain = chosen.trial.gain_over(&rejected.trial, goal);
        Self { key: axis.key, value: value(chosen), instead: value(rejected), gain }
    }
}

struct Search<'a> {
    quest: Quest,
    /// What each setting is by itself.
    defaults: Vec<(&'static str, String)>,
    judge: &'a mut dyn Judge,
    /// What was asked, on how many requests, and the answer.
    known: HashMap<(Candidate, usize), Trial, FixedState>,
}

/// Finds the best settings for a workload.
///
/// # Errors
/// Where the judge cannot answer.
pub fn search(
    signature: &Signature,
    quest: Quest,
    judge: &mut dyn Judge,
) -> Result<SearchResult, JudgeError> {
    let standing = quest.standing.clone();
    let from_standing = |axis: Axis| axis.beginning_with(standing.as_ref());
    let main: Vec<Axis> = main_axes(signature).into_iter().map(from_standing).collect();
    let further = further_axes(signature, quest.freedom, quest.cleaning, &quest.classes);
    let further: Vec<Axis> = further.into_iter().map(from_standing).collect();
    let default = |axis: &Axis| (axis.key, axis.values[0].clone());
    let defaults = main.iter().chain(&further).map(default).collect();
    let mut search = Search { quest, defaults, judge, known: HashMap::default() };
    let (rung, survivors) = search.halve(candidates(&main, search.quest.may_be_dirty))?;
    let is_again = |axis: &Axis| further.iter().any(|other| other.key == axis.key);
    let first = main.into_iter().filter(|axis| !is_again(axis));
    let axes = search.allowed(first.chain(further.iter().cloned()));
    let mut first = survivors;
    first.retain(|candidate| standing.as_ref() != Some(candidate));
    first.splice(0..0, standing.clone());
    let requests = search.quest.requests;
    let mut finalists = search.try_all(&first, requests)?;
    for pair in search.pair(&rung, &axes)? {
        if finalists.iter().all(|it| it.candidate != pair.candidate) {
            finalists.push(pair);
        }
    }
    search.refine_each(&mut finalists, &axes)?;
    let mut found = search.conclude(finalists.clone());
    for _ in 0..REFINED_MAX {
        let around = found.best_with_cache().candidate.clone();
        let (best, effects) = search.refine(around, &axes)?;
        let known = candidates_of(&finalists);
        let mut more = vec![best.array_alone(), best.clone()];
        more.retain(|it| !known.contains(it));
        finalists.extend(search.try_all(&more, requests)?);
        let (pruned, effects) = search.prune(best, &finalists, effects)?;
        let is_known = more.is_empty() && known.contains(&pruned.candidate);
        finalists.push(pruned);
        once_each(&mut finalists);
        found = SearchResult { effects, ..search.conclude(finalists.clone()) };
        if is_known {
            break;
        }
    }
    if found.chosen.candidate.has_cache() {
        found.effects = search.explained(&found.chosen, found.effects)?;
    }
    found.trials = search.known.len();
    found.standing = finalists.into_iter().find(|it| standing.as_ref() == Some(&it.candidate));
    Ok(found)
}

/// All combinations, and the array by itself.
fn candidates(axes: &[Axis], may_be_dirty: bool) -> Vec<Candidate> {
    let mut all = vec![Candidate::new([])];
    for axis in axes {
        let values = |candidate: &Candidate| -> Vec<Candidate> {
            // Who has nothing dirty has nothing to clean.
            let cleans = axis.key != "cleaning" || candidate.risk() == Risk::Dirty;
            let values = axis.values.iter().filter(|value| cleans || *value == CLEANINGS[0]);
            values.map(|value| candidate.with(axis.key, value)).collect()
        };
        all = all.iter().flat_map(values).collect();
    }
    all.retain(|candidate| may_be_dirty || candidate.risk() != Risk::Dirty);
    all.insert(0, Candidate::without_cache());
    all
}

impl Search<'_> {
    /// Rung by rung; all of the last, the best first, and what is left of them.
    fn halve(
        &mut self,
        mut candidates: Vec<Candidate>,
    ) -> Result<(Vec<Tried>, Vec<Candidate>), JudgeError> {
        let mut tried = Vec::new();
        if self.quest.is_exhaustive {
            tried = self.try_all(&candidates, self.quest.requests)?;
            self.sort(&mut tried);
            return Ok((tried, candidates));
        }
        let rungs = RUNGS.map(|part| self.rung(part));
        for (number, requests) in rungs.into_iter().enumerate() {
            // Of a short trace they are the same.
            if number > 0 && requests == rungs[number - 1] {
                continue;
            }
            tried = self.try_all(&candidates, requests)?;
            self.sort(&mut tried);
            candidates = self.the_better(&tried, KEPT[number]);
        }
        Ok((tried, candidates))
    }

    /// What is best around the best of each risk, or of each mode where everything is to be tried:
    /// from the best of all the way to another mode may lead past something worse.
    fn refine_each(&mut self, finalists: &mut Vec<Tried>, axes: &[Axis]) -> Result<(), JudgeError> {
        self.sort(finalists);
        let mut starts: Vec<Candidate> = Vec::new();
        for it in finalists.iter().filter(|it| it.candidate.has_cache()) {
            let is_like = |other: &Candidate| match self.quest.is_exhaustive {
                true => other.mode() == it.candidate.mode(),
                false => other.risk() == it.candidate.risk(),
            };
            if !starts.iter().any(is_like) {
                starts.push(it.candidate.clone());
            }
        }
        // The mode is what they start from.
        let around: Vec<Axis> = axes.iter().filter(|axis| axis.key != "mode").cloned().collect();
        for start in starts {
            let (best, _) = self.refine(start, &around)?;
            finalists.extend(self.try_all(&[best.array_alone(), best], self.quest.requests)?);
        }
        Ok(())
    }

    /// Where that is more than a third of everything, it is everything: it would save little, and
    /// tell little of what is best on all.
    fn rung(&self, part: usize) -> usize {
        let requests = (self.quest.requests / part).max(REQUESTS_MIN);
        if requests * 3 > self.quest.requests { self.quest.requests } else { requests }
    }

    /// On what many values are compared before some of them are on everything.
    fn part(&self) -> usize {
        if self.quest.is_exhaustive { self.quest.requests } else { self.rung(RUNGS[1]) }
    }

    /// The better part of each kind of risk: which risk is worth it is seen on everything.
    fn the_better(&self, sorted: &[Tried], one_in: usize) -> Vec<Candidate> {
        let kept = (sorted.len() / one_in).max(2);
        let mut of_risk = [0_usize; 3];
        let is_kept = |it: &&Tried| {
            let count = &mut of_risk[it.candidate.risk() as usize];
            *count += 1;
            let share = if it.candidate.risk() == Risk::Dirty { kept } else { kept / 2 };
            *count <= share.max(1)
        };
        sorted.iter().filter(is_kept).map(|it| it.candidate.clone()).collect()
    }

    /// Without what may not be chosen.
    fn allowed(&self, axes: impl Iterator<Item = Axis>) -> Vec<Axis> {
        let allowed = |mut axis: Axis| {
            let is_allowed = |value: &String| {
                axis.key != "mode" || self.quest.may_be_dirty || !DIRTY_MODES.contains(&&**value)
            };
            axis.values = axis.values.iter().filter(|value| is_allowed(value)).cloned().collect();
            axis
        };
        axes.map(allowed).collect()
    }

    /// Each axis by itself, around the best so far.
    fn refine(
        &mut self,
        mut best: Candidate,
        axes: &[Axis],
    ) -> Result<(Candidate, Vec<Effect>), JudgeError> {
        let goal = self.quest.goal;
        let mut effects = Vec::new();
        for axis in axes {
            let Some((now, next)) = self.best_instead(&best, axis)? else { continue };
            let is_better = next.trial.cost(goal) * WORTH_CHANGING < now.trial.cost(goal);
            let (chosen, rejected) = if is_better { (next, now) } else { (now, next) };
            effects.push(Effect::of(axis, &chosen, &rejected, goal));
            best = chosen.candidate;
        }
        Ok((best, effects))
    }

    /// Without the settings that are not worth a change on everything.
    fn prune(
        &mut self,
        candidate: Candidate,
        finalists: &[Tried],
        mut effects: Vec<Effect>,
    ) -> Result<(Tried, Vec<Effect>), JudgeError> {
        let goal = self.quest.goal;
        let known = finalists.iter().find(|it| it.candidate == candidate);
        let mut best = known.expect("it was tried on everything").clone();
        for key in candidate.changed(&self.defaults) {
            // It went with what it belongs to.
            if best.candidate.value(key).is_none() {
                continue;
            }
            let default = self.default_of(key);
            let plainer = self.plainer(&best.candidate, key, &default)?;
            let stays = best.trial.cost(goal) * WORTH_CHANGING < plainer.trial.cost(goal);
            let gain = match stays {
                true => best.trial.gain_over(&plainer.trial, goal),
                false => plainer.trial.gain_over(&best.trial, goal),
            };
            let set = best.candidate.value(key).unwrap_or_default().to_owned();
            let (value, instead) = if stays { (set, default) } else { (default, set) };
            effects.retain(|effect| effect.key != key);
            effects.push(Effect { key, value, instead, gain });
            if !stays {
                best = plainer;
            }
        }
        Ok((best, effects))
    }

    /// What each setting of the chosen candidate does: what is known of other candidates around it
    /// goes, and what is not known is asked.
    fn explained(
        &mut self,
        chosen: &Tried,
        mut effects: Vec<Effect>,
    ) -> Result<Vec<Effect>, JudgeError> {
        effects.retain(|effect| {
            let set = chosen.candidate.value(effect.key);
            is_of_use(effect.key, &chosen.candidate)
                && set.map_or_else(|| self.default_of(effect.key), str::to_owned) == effect.value
        });
        for key in chosen.candidate.changed(&self.defaults) {
            if effects.iter().any(|effect| effect.key == key) {
                continue;
            }
            let instead = self.default_of(key);
            let plainer = self.plainer(&chosen.candidate, key, &instead)?;
            let value = chosen.candidate.value(key).unwrap_or_default().to_owned();
            let gain = chosen.trial.gain_over(&plainer.trial, self.quest.goal);
            effects.push(Effect { key, value, instead, gain });
        }
        Ok(effects)
    }

    /// What a setting is by itself.
    fn default_of(&self, key: &str) -> String {
        let of_key = self.defaults.iter().find(|(known, _)| *known == key);
        of_key.expect("it is on an axis").1.clone()
    }

    /// A candidate without one of its settings, on everything.
    fn plainer(
        &mut self,
        candidate: &Candidate,
        key: &'static str,
        default: &str,
    ) -> Result<Tried, JudgeError> {
        let plainer = match MAIN_KEYS.contains(&key) {
            true => candidate.with(key, default),
            false => candidate.without(key),
        };
        Ok(self.try_all(&[plainer], self.quest.requests)?.remove(0))
    }

    /// A candidate, and the best of those that differ from it on one axis: on everything, unless
    /// none of them is worth that.
    fn best_instead(
        &mut self,
        candidate: &Candidate,
        axis: &Axis,
    ) -> Result<Option<(Tried, Tried)>, JudgeError> {
        if !is_of_use(axis.key, candidate) {
            return Ok(None);
        }
        let standing = candidate.value(axis.key).unwrap_or(&axis.values[0]);
        let others = axis.values.iter().filter(|value| *value != standing);
        let mut asked = vec![candidate.clone()];
        asked.extend(others.map(|value| candidate.with(axis.key, value)));
        let mut tried = self.try_all(&asked, self.part())?;
        let now = tried.remove(0);
        self.sort(&mut tried);
        let cost = |it: &Tried| it.trial.cost(self.quest.goal);
        let Some(least) = tried.first().map(cost) else { return Ok(None) };
        let contends =
            |it: &&Tried| cost(it) <= least * CONTENDS && cost(it) <= cost(&now) * HOPELESS;
        let contenders = tried.iter().filter(contends).take(CONTENDERS);
        let mut last: Vec<Candidate> = contenders.map(|it| it.candidate.clone()).collect();
        if last.is_empty() {
            return Ok(Some((now, tried.remove(0))));
        }
        last.insert(0, candidate.clone());
        let mut tried = self.try_all(&last, self.quest.requests)?;
        let now = tried.remove(0);
        self.sort(&mut tried);
        Ok(Some((now, tried.remove(0))))
    }

    /// The best first.
    fn sort(&self, tried: &mut [Tried]) {
        let cost = |it: &Tried| it.trial.cost(self.quest.goal);
        tried.sort_by(|one, other| cost(one).total_cmp(&cost(other)));
    }

    fn try_all(
        &mut self,
        candidates: &[Candidate],
        requests: usize,
    ) -> Result<Vec<Tried>, JudgeError> {
        let mut questions: Vec<Question> = Vec::new();
        for candidate in candidates {
            let is_known = self.known.contains_key(&(candidate.clone(), requests));
            if !is_known && !questions.iter().any(|question| question.candidate == *candidate) {
                let candidate = candidate.clone();
                questions.push(Question { candidate, requests, twist: Twist::None });
            }
        }
        let answers = self.judge.judge(&questions)?;
        let answered = questions.into_iter().map(|question| (question.candidate, requests));
        self.known.extend(answered.zip(answers));
        let tried = candidates.iter().map(|candidate| Tried {
            candidate: candidate.clone(),
            trial: self.known[&(candidate.clone(), requests)].clone(),
        });
        Ok(tried.collect())
    }

    /// The safest that does nearly as well as the best.
    fn conclude(&self, mut finalists: Vec<Tried>) -> SearchResult {
        let goal = self.quest.goal;
        self.sort(&mut finalists);
        let (alone, mut finalists): (Vec<Tried>, Vec<Tried>) =
            finalists.into_iter().partition(|it| it.candidate.risk() == Risk::NoCache);
        once_each(&mut finalists);
        let without_cache = alone.into_iter().next().expect("it is always among them");
        let mut chosen = &without_cache;
        for risk in [Risk::Clean, Risk::Dirty] {
            if risk == Risk::Dirty && !self.quest.may_be_dirty {
                continue;
            }
            let Some(best) = self.best_of_risk(&finalists, risk, &without_cache) else { continue };
            let gain = best.trial.gain_over(&chosen.trial, goal);
            // What may be chance alone is no reason to have a cache.
            let is_worth_it = match chosen.candidate.has_cache() {
                true => gain.factor >= NEARLY_AS_MUCH,
                false => gain.is_worth_a_cache(),
            };
            if is_worth_it {
                chosen = best;
            }
        }
        let chosen = chosen.clone();
        let best = |risk| self.best_of_risk(&finalists, risk, &without_cache).cloned();
        SearchResult {
            chosen,
            best_clean: best(Risk::Clean),
            best_dirty: best(Risk::Dirty),
            without_cache,
            standing: None,
            finalists,
            effects: Vec::new(),
            trials: self.known.len(),
        }
    }

    /// Of those that cost nearly as little as the best, the one that spares the cache; of those
    /// that give up some of the gain, where all of these wear its device out before its time.
    fn best_of_risk<'t>(
        &self,
        finalists: &'t [Tried],
        risk: Risk,
        without_cache: &Tried,
    ) -> Option<&'t Tried> {
        let goal = self.quest.goal;
        let counts = |it: &&Tried| it.candidate.risk() == risk && it.trial.uses_cache();
        let of_risk = || finalists.iter().filter(counts);
        let least = of_risk().map(|it| it.trial.cost(goal)).reduce(f64::min)?;
        let gain = (without_cache.trial.cost(goal) / least).ln().max(0.0);
        let written = |it: &Tried| it.trial.expected.cache_bytes_per_request;
        let lasts = |it: &Tried| self.quest.cache_bytes_max.is_none_or(|most| written(it) <= most);
        let is_as_good = |it: &Tried| it.trial.cost(goal) <= least * WORTH_CHANGING;
        let slack = match goal {
            Goal::Endurance => (gain * GIVEN_UP).exp().max(NEARLY_AS_MUCH),
            // As if that were asked for, where the drive does not last otherwise.
            _ if !of_risk().any(|it| is_as_good(it) && lasts(it)) => {
                (gain * GIVEN_UP).exp().max(NEARLY_AS_MUCH)
            }
            _ => WORTH_CHANGING,
        };
        let good = || of_risk().filter(|it| it.trial.cost(goal) <= least * slack);
        let sparing = good().map(written).reduce(f64::min)? * WORTH_CHANGING;
        good().filter(|it| written(it) <= sparing).min_by(|one, other| {
            let changed = |it: &Tried| it.candidate.changed(&self.defaults).len();
            let cost = |it: &Tried| it.trial.cost(goal);
            changed(one).cmp(&changed(other)).then(cost(one).total_cmp(&cost(other)))
        })
    }
}
