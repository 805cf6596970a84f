//! The judge: replays of the trace on models of the devices.

use super::{Judge, JudgeError, Question, Trial, Twist};
use crate::long_run::{LongRun, Rounds, WarmUp};
use headpond_cache::CleaningPolicy;
use headpond_trace::{Op, TraceFormat};
use headpond_whatif::{
    Excerpt, Experiment, Fit, Load, Outcome, Pace, Remainder, SimulateError, Stack,
};
use std::sync::Arc;

const SEED: u64 = 1;

/// Who runs experiments, one outcome for each: [`headpond_whatif::simulate_all`], perhaps with
/// something to look at meanwhile.
pub type Simulate<'a> = dyn FnMut(&[Experiment]) -> Vec<Result<Outcome, SimulateError>> + 'a;

/// Replays of one workload on one machine.
pub struct Replays<'a> {
    pub stack: &'a Stack,
    pub run: &'a LongRun,
    pub format: TraceFormat,
    /// Bytes that the whole trace touches.
    pub of_bytes: u64,
    pub pace: Pace,
    pub simulate: &'a mut Simulate<'a>,
}

/// Questions that are alike have the same rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Likeness {
    requests: usize,
    twist: Twist,
    warm_up: WarmUp,
}

impl Judge for Replays<'_> {
    fn judge(&mut self, questions: &[Question]) -> Result<Vec<Trial>, JudgeError> {
        let mut prepared: Vec<(Likeness, Rounds)> = Vec::new();
        let mut experiments = Vec::new();
        for question in questions {
            let likeness = self.likeness(question);
            if prepared.iter().all(|(other, _)| *other != likeness) {
                prepared.push((likeness, self.rounds(likeness)));
            }
            let it = prepared.iter().find(|(other, _)| *other == likeness);
            let (_, rounds) = it.expect("it was prepared");
            experiments.push(self.experiment(question, rounds));
        }
        let outcomes = (self.simulate)(&experiments);
        let trials = outcomes.into_iter().zip(questions).map(|(outcome, question)| {
            let candidate = question.candidate.to_string();
            outcome
                .map(|outcome| Trial::of(&outcome))
                .map_err(|source| JudgeError::Simulate { candidate, source: Box::new(source) })
        });
        trials.collect()
    }
}

impl Replays<'_> {
    fn likeness(&self, question: &Question) -> Likeness {
        let Question { requests, twist, candidate } = question;
        let cache = candidate.applied(self.stack, 0).cache;
        let cleaning = cache.map(|cache| (cache.settings.mode, cache.settings.cleaning.policy));
        let warm_up = match cleaning {
            _ if *twist == Twist::Longer => WarmUp::Filling,
            Some((mode, CleaningPolicy::Nop | CleaningPolicy::Alru)) if mode.is_write_back() => {
                WarmUp::Filling
            }
            _ => WarmUp::Usual,
        };
        Likeness { requests: *requests, twist: *twist, warm_up }
    }

    fn rounds(&self, Likeness { requests, twist, warm_up }: Likeness) -> Rounds {
        let cache_bytes = self.stack.cache.as_ref().map_or(0, |cache| cache.size.bytes());
        let cache_bytes = match twist {
            Twist::CacheTimes(factor) => (cache_bytes as f64 * factor) as u64,
            _ => cache_bytes,
        };
        let run = self.run.shorter(requests);
        let mut rounds = run.rounds(cache_bytes, self.of_bytes, warm_up);
        if let Twist::ReadShare(share) = twist {
            let mut records = rounds.records.to_vec();
            // Counted from the end, the round that counts is the same after any warm-up.
            for (number, record) in records.iter_mut().rev().enumerate() {
                if matches!(record.op, Op::Read | Op::Write) {
                    let drawn = (number as f64 * 0.618_033_988_7).fract();
                    record.op = if drawn < share { Op::Read } else { Op::Write };
                }
            }
            rounds.records = records.into();
        }
        rounds
    }

    fn experiment(&self, question: &Question, rounds: &Rounds) -> Experiment {
        let pace = match question.twist {
            Twist::Depth(depth) => Pace::AsFastAsPossible { depth },
            _ => self.pace,
        };
        let load = Load::Excerpt(Excerpt {
            name: "the trace".into(),
            records: Arc::clone(&rounds.records),
            warm_up: rounds.warm_up,
            pace,
            fit: Fit::Wrap,
            remainder: remainder(rounds),
            format: self.format,
        });
        let stack = question.candidate.applied(self.stack, rounds.cache_bytes);
        Experiment { stack, load, seed: SEED }
    }
}

/// Where all that will be touched has room, nothing need be cleaned.
fn remainder(rounds: &Rounds) -> Remainder {
    match rounds.has_room {
        true => Remainder::OfDrives,
        false => Remainder::OfDrivesAndCache,
    }
}
