//! The advice: whether to cache, and every setting with its reason in figures.
//!
//! 1. What was sampled of the trace goes on as it would in the long run (`long_run`).
//! 2. Settings are searched for by replaying it on models of the devices (`search`).
//! 3. The result is explained: what each setting does, what each kind of request gets (`reasons`),
//!    what would change the answer (`turning`), what could go wrong (`warnings`).
//!
//! **Invariants**: the decision comes out of replays; no rule names a workload. Settings that
//! weaken durability are advised only where the situation allows them.
//!
//! **Not here**: applying settings; the models.

mod course;
mod decision;
mod longer;
mod reasons;
mod shadow;
#[cfg(test)]
mod tests;
mod turning;
mod warnings;

use crate::long_run::{LongRun, Volume};
use crate::sample::Sample;
use crate::search::{
    Candidate, Expected, Gain, Goal, JudgeError, NEARLY_AS_MUCH, Quest, Replays, SearchResult,
    Setting, Simulate, Trial, Tried, search,
};
use crate::signature::Signature;
use crate::situation::{Effort, Situation};
use crate::wear::{self, Wear};
use headpond_report::shell_words;
use headpond_trace::TraceFormat;
use headpond_whatif::{Kind, Pace, Stack};
use serde::Serialize;

pub use course::Course;
pub use decision::Decision;
pub use shadow::shadow;
pub use turning::{Point, Turning};

/// What to set, why, and what to expect.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// False: leave the cache out.
    pub cache: bool,
    pub goal: Goal,
    /// Over the array without a cache, in terms of the goal.
    pub gain: Gain,
    /// As keys and values for `headpond set`, and those for `headpond create`.
    pub settings: Vec<Setting>,
    /// In sentences; the first says what and how much.
    pub reasons: Vec<Reason>,
    /// The way to the answer, from question to question.
    pub decisions: Vec<Decision>,
    /// How the replays of what is compared went.
    pub courses: Vec<Course>,
    pub without_cache: Expected,
    /// What is set now, where the volume is there.
    pub standing: Option<Standing>,
    pub with_advice: Expected,
    /// What each kind of request gets, by kind and size.
    pub kinds: Vec<KindAdvice>,
    /// What else was tried to the end, the best first.
    pub alternatives: Vec<Alternative>,
    /// What would change the answer.
    pub turning: Vec<Turning>,
    pub warnings: Vec<String>,
    /// Of the cache device; none without a cache, or one that wears out, and where the trace does
    /// not tell how long it took.
    pub wear: Option<Wear>,
    /// The machine that the figures hold for, and what of it nobody said.
    pub assumptions: Vec<String>,
    pub evidence: Evidence,
}

/// A setting and its reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reason {
    pub setting: String,
    pub reason: String,
    /// Over the best of its other values, where one was looked at by itself.
    pub gain: Option<Gain>,
}

/// What is set now.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Standing {
    pub expected: Expected,
    /// Of the advice over it; none where they are the same.
    pub gain: Option<Gain>,
}

/// Mean responses of one kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct KindAdvice {
    pub kind: Kind,
    /// The power of two below their sizes.
    pub bytes: u64,
    pub requests: u64,
    pub without_cache_us: f64,
    pub with_advice_us: f64,
}

/// Settings that were considered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Alternative {
    pub settings: Candidate,
    pub gain: Gain,
    pub cache_bytes_per_request: f64,
}

/// What was done to find out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    pub replays: usize,
    /// In each of the last ones, measured.
    pub requests: usize,
    pub of_requests: u64,
    /// What is advised was replayed for longer than what it is compared with.
    pub looks_longer: bool,
}

const NOT_LONGER: &str = "what is advised was not replayed for longer than the search took: what \
                          shows only later is not seen (a larger --effort looks)";

impl Advice {
    /// Draws advice from a signature and a sample of the same trace.
    ///
    /// # Errors
    /// Where a machine like that cannot be put together.
    ///
    /// # Panics
    /// Where the machine has no cache, or names models that there are not.
    pub fn from<'a>(
        signature: &Signature,
        (sample, format): (Sample, TraceFormat),
        situation: &'a Situation,
        simulate: &'a mut Simulate<'a>,
    ) -> Result<Self, JudgeError> {
        assert!(situation.stack.cache.is_some(), "advice is about a cache");
        let (of_requests, remarks) = (sample.of_requests, sample.remarks());
        if !sample.asks_for_data() {
            return Ok(Self::of_nothing(situation, of_requests));
        }
        let run = LongRun::of(sample, volume(&situation.stack)?);
        let mut judge = Replays {
            stack: &situation.stack,
            run: &run,
            format,
            of_bytes: signature.volume.footprint_bytes,
            pace: pace(situation),
            simulate,
        };
        let cache = situation.stack.cache.as_ref().expect("it was just seen to have one");
        let quest = Quest {
            cleaning: cache.settings.cleaning,
            classes: cache.settings.classes.clone(),
            goal: situation.goal,
            freedom: situation.freedom,
            may_be_dirty: situation.may_be_dirty(),
            standing: situation.stands.then(|| Candidate::standing(&situation.stack)),
            cache_bytes_max: wear::lasting_bytes_per_request(signature, situation),
            requests: run.requests(),
            is_exhaustive: situation.effort == Effort::Exhaustive,
        };
        let found = search(signature, quest.clone(), &mut judge)?;
        let turning = match situation.effort {
            Effort::Quick => Vec::new(),
            _ => turning::points(signature, situation, &found, &quest, &mut judge)?,
        };
        let looks_longer = situation.effort != Effort::Quick && found.chosen.candidate.has_cache();
        let against = match looks_longer {
            true => longer::look(&found.chosen, run.requests(), &mut judge)?,
            false => Vec::new(),
        };
        let replays = found.trials + usize::from(looks_longer);
        let evidence = Evidence { replays, requests: run.requests(), of_requests, looks_longer };
        let mut advice = Self::compose(signature, situation, &found, turning, evidence);
        advice.warnings.extend(against);
        if advice.cache && !looks_longer {
            advice.warnings.push(NOT_LONGER.to_owned());
        }
        advice.decisions.extend(decision::of_standing(&advice));
        advice.assumptions.extend(remarks);
        Ok(advice)
    }

    fn compose(
        signature: &Signature,
        situation: &Situation,
        found: &SearchResult,
        turning: Vec<Turning>,
        evidence: Evidence,
    ) -> Self {
        let SearchResult { chosen, without_cache, .. } = found;
        let goal = situation.goal;
        let gain_of = |it: &Tried| it.trial.gain_over(&without_cache.trial, goal);
        let kinds = kinds(&without_cache.trial, &chosen.trial);
        let wear = chosen.candidate.has_cache();
        let wear = wear.then(|| Wear::of(signature, situation, &chosen.trial.expected)).flatten();
        let alternatives = found.finalists.iter().filter(|it| it.candidate != chosen.candidate);
        Self {
            cache: chosen.candidate.has_cache(),
            goal,
            gain: gain_of(chosen),
            settings: chosen.candidate.settings(),
            reasons: reasons::of(found, situation),
            decisions: decision::all(found, situation),
            courses: course::all(found),
            without_cache: without_cache.trial.expected,
            standing: found.standing.as_ref().map(|it| Standing::of(it, chosen, goal)),
            with_advice: chosen.trial.expected,
            warnings: warnings::all(signature, situation, found, (wear.as_ref(), &kinds)),
            wear,
            kinds,
            alternatives: alternatives
                .map(|it| Alternative {
                    settings: it.candidate.clone(),
                    gain: gain_of(it),
                    cache_bytes_per_request: it.trial.expected.cache_bytes_per_request,
                })
                .collect(),
            turning,
            assumptions: reasons::assumptions(situation),
            evidence,
        }
    }

    /// Nobody asked for any data, in so many requests.
    fn of_nothing(situation: &Situation, of_requests: u64) -> Self {
        let reason = match of_requests {
            0 => "the trace has no requests: there is nothing to cache",
            _ => "the trace has flushes and discards alone: there is nothing to cache",
        };
        let none = Expected::NOTHING;
        let without = Candidate::without_cache();
        Self {
            cache: false,
            goal: situation.goal,
            gain: Gain::NONE,
            settings: without.settings(),
            reasons: vec![Reason {
                setting: "mode=pass-through".into(),
                reason: reason.into(),
                gain: None,
            }],
            decisions: Vec::new(),
            courses: Vec::new(),
            without_cache: none,
            standing: None,
            with_advice: none,
            kinds: Vec::new(),
            alternatives: Vec::new(),
            turning: Vec::new(),
            warnings: Vec::new(),
            wear: None,
            assumptions: reasons::assumptions(situation),
            evidence: Evidence { replays: 0, requests: 0, of_requests, looks_longer: false },
        }
    }

    /// The answer.
    pub fn verdict(&self) -> &'static str {
        match (self.leaves_as_it_is(), self.cache) {
            (true, _) => "Leave it as it is",
            (false, true) => "Use the cache",
            (false, false) => "Do not cache",
        }
    }

    /// What is set now does nearly as much.
    pub fn leaves_as_it_is(&self) -> bool {
        self.standing.is_some() && !self.is_worth_changing()
    }

    /// Whether it is worth a change of what is set now.
    pub fn is_worth_changing(&self) -> bool {
        let gain = self.standing.as_ref().and_then(|standing| standing.gain);
        gain.is_some_and(|gain| gain.factor >= NEARLY_AS_MUCH && gain.is_likely())
    }

    /// The settings in one line, as a shell and `headpond set` take them.
    pub fn settings_line(&self) -> String {
        shell_words(self.settings.iter().map(Setting::to_string))
    }
}

fn volume(stack: &Stack) -> Result<Volume, JudgeError> {
    let (bytes, core) = (stack.capacity_bytes()?, &stack.core);
    let drive_bytes = stack.parts()?.drive.capacity_bytes().unwrap_or(bytes).max(1);
    Ok(Volume { bytes, row_bytes: core.strip.bytes() * (bytes / drive_bytes).max(1) })
}

fn pace(situation: &Situation) -> Pace {
    match situation.goal.is_about_responses() {
        true => Pace::Recorded { speed: 1.0 },
        false => Pace::AsDeepAsRecorded { unknown: situation.depth_unless_told },
    }
}

impl Standing {
    fn of(standing: &Tried, chosen: &Tried, goal: Goal) -> Self {
        let is_other = standing.candidate != chosen.candidate;
        let gain = is_other.then(|| chosen.trial.gain_over(&standing.trial, goal));
        Self { expected: standing.trial.expected, gain }
    }
}

/// Both trials had the same requests.
fn kinds(without_cache: &Trial, with_advice: &Trial) -> Vec<KindAdvice> {
    let pairs = without_cache.kinds.iter().zip(&with_advice.kinds);
    pairs
        .map(|(without, with)| KindAdvice {
            kind: without.kind,
            bytes: without.bytes,
            requests: without.requests,
            without_cache_us: without.mean_us,
            with_advice_us: with.mean_us,
        })
        .collect()
}
