//! The way to the answer: each question that decided, the figure that answered it, and where that
//! led.
//!
//! **Invariants**: the questions are those that the search asked, in its order and with its
//! bounds; nothing is decided here.

use super::Advice;
use crate::search::{
    GAIN_MIN, Gain, Goal, NEARLY_AS_MUCH, Risk, SearchResult, Tried, WORTH_CHANGING, told,
};
use crate::situation::Situation;
use headpond_report::{a_request, factor};
use serde::Serialize;

/// A fork of the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Decision {
    pub question: String,
    /// What was found out.
    pub figure: String,
    /// Where it leads.
    pub branch: String,
}

fn decision(question: String, figure: String, branch: impl Into<String>) -> Decision {
    Decision { question, figure, branch: branch.into() }
}

/// When half the interval of a gain lies above 1.
const LIKELY: &str = "at odds of five to one";

/// All of them, in order.
pub(super) fn all(found: &SearchResult, situation: &Situation) -> Vec<Decision> {
    let goal = situation.goal;
    let mut all = vec![of_clean(found, goal), of_leave(situation)];
    if situation.may_be_dirty() {
        all.push(of_dirty(found, goal));
    }
    if found.chosen.candidate.has_cache() {
        all.extend(of_mode(found, goal));
        all.push(of_sparing(found, goal));
        all.extend(found.effects.iter().filter(|effect| effect.key != "mode").map(of_setting));
    }
    all
}

/// Whether what stands is worth a change.
pub(super) fn of_standing(advice: &Advice) -> Option<Decision> {
    let gain = advice.standing.as_ref()?.gain?;
    let question =
        format!("Is that {} of what is set now or more, {LIKELY}?", factor(NEARLY_AS_MUCH));
    let branch = match advice.is_worth_changing() {
        true => "yes: worth a change",
        false => "no: leave it as it is",
    };
    Some(decision(question, told(gain), branch))
}

/// What a cache that nothing is lost with is worth.
fn of_clean(found: &SearchResult, goal: Goal) -> Decision {
    let question = format!(
        "Does a cache without dirty data reach {} of {} without one, {LIKELY}?",
        factor(GAIN_MIN),
        goal.what()
    );
    let Some(best) = &found.best_clean else {
        return decision(question, "none holds anything".into(), "no: the array alone, so far");
    };
    let gain = best.trial.gain_over(&found.without_cache.trial, goal);
    let branch = match gain.is_worth_a_cache() {
        true => format!("yes: {}, so far", best.candidate.mode()),
        false => "no: the array alone, so far".to_owned(),
    };
    decision(question, format!("{} with {}", told(gain), best.candidate), branch)
}

/// Whether dirty data is allowed.
fn of_leave(situation: &Situation) -> Decision {
    let question = "May the cache have the only copy of something?".to_owned();
    let is_lost = situation.cache_is_lost_on_power;
    let (figure, branch) = match (situation.may_be_dirty(), situation.goal, is_lost) {
        (true, _, true) => ("it is lost with the power, and that was allowed", "yes"),
        (true, ..) => ("it is kept over a power cut", "yes"),
        (false, Goal::Safety, _) => ("safety is what is wanted", "no"),
        (false, _, true) => ("it is lost with the power", "no"),
        (false, ..) => ("nothing may be less safe than it is now", "no"),
    };
    decision(question, figure.to_owned(), branch)
}

/// What it is worth that it may.
fn of_dirty(found: &SearchResult, goal: Goal) -> Decision {
    let before = found
        .best_clean
        .as_ref()
        .filter(|best| best.trial.gain_over(&found.without_cache.trial, goal).is_worth_a_cache());
    let (than, bound) = match before {
        Some(_) => ("the best that never has it", NEARLY_AS_MUCH),
        None => ("the array alone", GAIN_MIN),
    };
    let question = format!("Is a cache that has it {} of {than} or more?", factor(bound));
    let Some(best) = &found.best_dirty else {
        return decision(question, "none holds anything".into(), "no");
    };
    let gain = best.trial.gain_over(&before.unwrap_or(&found.without_cache).trial, goal);
    let is_worth_it = match before {
        Some(_) => gain.factor >= NEARLY_AS_MUCH,
        None => gain.is_worth_a_cache(),
    };
    let branch = match is_worth_it {
        true => format!("yes: {}", best.candidate.mode()),
        false => "no: as before".to_owned(),
    };
    decision(question, format!("{} with {}", told(gain), best.candidate), branch)
}

/// Why not another mode of the same risk.
fn of_mode(found: &SearchResult, goal: Goal) -> Option<Decision> {
    let chosen = &found.chosen;
    let of_risk = |it: &&Tried| it.candidate.risk() == chosen.candidate.risk();
    let others = found.finalists.iter().filter(of_risk);
    let other = others.into_iter().find(|it| it.candidate.mode() != chosen.candidate.mode())?;
    let gain = chosen.trial.gain_over(&other.trial, goal);
    let mode = chosen.candidate.mode();
    let question = format!("Why {mode} and not {}?", other.candidate.mode());
    let branch = match gain.factor {
        factor if factor >= WORTH_CHANGING => format!("{mode} does more"),
        _ => format!(
            "they do nearly as much; {mode} writes less to the cache, or is the plainer one"
        ),
    };
    Some(decision(question, told(gain), branch))
}

/// Of those that do nearly as well.
fn of_sparing(found: &SearchResult, goal: Goal) -> Decision {
    let chosen = &found.chosen;
    let question =
        "Of settings that do nearly as well: which writes least to the cache, and changes least?";
    let best = match chosen.candidate.risk() {
        Risk::Dirty => found.finalists.iter().find(|it| it.candidate.risk() == Risk::Dirty),
        _ => found.finalists.iter().find(|it| it.candidate.risk() == Risk::Clean),
    };
    let gain = best.map_or(Gain::NONE, |best| chosen.trial.gain_over(&best.trial, goal));
    let figure = format!(
        "{} of the fastest of its kind, with {}",
        factor(gain.factor),
        a_request(chosen.trial.expected.cache_bytes_per_request)
    );
    decision(question.to_owned(), figure, chosen.candidate.to_string())
}

fn of_setting(effect: &crate::search::Effect) -> Decision {
    let question = format!("{}: why {} and not {}?", effect.key, effect.value, effect.instead);
    let branch = match effect.gain.factor {
        factor if factor >= WORTH_CHANGING => "it does more",
        factor if factor > 1.0 / WORTH_CHANGING => "no difference worth a change: the plainer one",
        _ => "the other did more on a part of the requests, and not enough on all",
    };
    decision(question, told(effect.gain), branch)
}
