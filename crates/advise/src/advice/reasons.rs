//! Why, in sentences with figures.

use super::Reason;
use crate::search::{Effect, GAIN_MIN, Gain, Goal, Risk, SearchResult, Setting, told};
use crate::situation::Situation;
use headpond_report::{factor, percent, size};

/// Gains within so much of one are none.
const NOTHING: f64 = 0.005;

/// The mode first, then every setting that was looked at by itself.
pub(super) fn of(found: &SearchResult, situation: &Situation) -> Vec<Reason> {
    let mut reasons = vec![of_mode(found, situation)];
    if !found.chosen.candidate.has_cache() {
        let is_set = |setting: &Setting| {
            let standing = found.standing.as_ref().map(|it| &it.candidate);
            standing.is_some_and(|it| it.value(setting.key) == Some(&setting.value))
        };
        let settings = found.chosen.candidate.settings().into_iter();
        let changed = settings.filter(|it| it.key != "mode" && !is_set(it));
        reasons.extend(changed.map(|setting| Reason {
            setting: setting.to_string(),
            reason: "without a cache, the array does best so, of what was tried".to_owned(),
            gain: None,
        }));
        return reasons;
    }
    let effects = found.effects.iter().filter(|effect| effect.key != "mode");
    let (matters, others): (Vec<&Effect>, Vec<&Effect>) =
        effects.partition(|effect| (effect.gain.factor - 1.0).abs() >= NOTHING);
    reasons.extend(matters.into_iter().map(|effect| of_setting(effect, situation.goal)));
    if !others.is_empty() {
        let settings = others.iter().map(|effect| format!("{}={}", effect.key, effect.value));
        reasons.push(Reason {
            setting: settings.collect::<Vec<_>>().join(" "),
            reason: "make no difference that can be seen here".to_owned(),
            gain: None,
        });
    }
    reasons
}

fn of_mode(found: &SearchResult, situation: &Situation) -> Reason {
    let goal = situation.goal;
    let gain = |it: &crate::search::Tried| it.trial.gain_over(&found.without_cache.trial, goal);
    let best = found.finalists.first().map(|it| (it, gain(it)));
    let chosen = &found.chosen;
    if !chosen.candidate.has_cache() {
        let reason = match best {
            None => "do not cache: no setting was allowed".to_owned(),
            Some((it, best)) => format!(
                "do not cache: the best that a cache reaches is {} of {} ({}), {}",
                gained(best),
                goal.what(),
                it.candidate,
                why_not(best)
            ),
        };
        return Reason { setting: "mode=pass-through".into(), reason, gain: None };
    }
    let expected = &chosen.trial.expected;
    let mut reason = format!("{} of {} without a cache", gained(gain(chosen)), goal.what());
    reason += &format!(
        "; it answers {} of the reads, and is {} dirty in the long run",
        percent(expected.read_hit_ratio),
        percent(expected.dirty_ratio)
    );
    let other = found.finalists.iter().find(|it| it.candidate.risk() != chosen.candidate.risk());
    if let Some(other) = other {
        let is_safer = chosen.candidate.risk() < other.candidate.risk();
        let why =
            if is_safer { "with data that only the cache has" } else { "with nothing to lose" };
        reason += &format!(
            "; the best {why} ({}) reaches {}",
            other.candidate.mode(),
            factor(gain(other).factor)
        );
    }
    if chosen.candidate.risk() == Risk::Clean && !situation.may_be_dirty() {
        reason += "; modes with dirty data were not considered";
    }
    Reason { setting: format!("mode={}", chosen.candidate.mode()), reason, gain: None }
}

/// Why so much is not enough.
fn why_not(best: Gain) -> String {
    if best.factor < GAIN_MIN {
        return format!("and less than {} is not worth a device that can fail", factor(GAIN_MIN));
    }
    match best.is_likely() {
        false => "which may be chance".to_owned(),
        true => "and that without a block in the cache: it is not the cache's doing".to_owned(),
    }
}

fn of_setting(effect: &Effect, goal: Goal) -> Reason {
    let Effect { key, value, instead, gain } = effect;
    let reason = match gain.factor {
        factor if factor < 1.0 => {
            let more = percent(1.0 / factor - 1.0);
            format!(
                "{instead} was {more} better on a part of the requests, but not worth it on all"
            )
        }
        _ => format!("{} of {} with {instead}, the next best", gained(*gain), goal.what()),
    };
    Reason { setting: format!("{key}={value}"), reason, gain: Some(*gain) }
}

/// `1.5x (1.4x to 1.6x)`, or why not.
fn gained(gain: Gain) -> String {
    match gain.has_parts() {
        true => told(gain),
        false => format!("{}, of too few requests for an interval,", told(gain)),
    }
}

/// The machine, and what of it nobody said.
pub(super) fn assumptions(situation: &Situation) -> Vec<String> {
    let core = &situation.stack.core;
    let unless = if situation.freedom.array { " where no other is advised" } else { "" };
    let mut lines = vec![match core.drives {
        1 => format!("one {}", core.drive),
        drives => format!(
            "RAID {} of {drives} {} in {} groups, strip {}{unless}",
            core.raid.number(),
            core.drive,
            core.groups,
            size(core.strip.bytes())
        ),
    }];
    if let Some(cache) = &situation.stack.cache {
        let device = match &cache.model {
            Some(model) => model.clone(),
            None if situation.cache_is_lost_on_power => "memory".to_owned(),
            None => format!("{} us reads, {} us writes", cache.read_us, cache.write_us),
        };
        lines.push(format!("a cache of {} on {device}", size(cache.size.bytes())));
    }
    lines.extend(situation.assumptions.iter().cloned());
    lines
}
