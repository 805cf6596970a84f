//! The judge: replays of the trace on models of the devices.

use super::{Judge, JudgeError, Question, Trial, Twist};
use crate::long_run::{LongRun, Rounds};
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

impl Judge for Replays<'_> {
    fn judge(&mut self, questions: &[Question]) -> Result<Vec<Trial>, JudgeError> {
        let mut prepared: Vec<(usize, Twist, Rounds)> = Vec::new();
        let mut experiments = Vec::new();
        for question in questions {
            let is_same =
                |it: &&(usize, Twist, Rounds)| (it.0, it.1) == (question.requests, question.twist);
            if prepared.iter().find(is_same).is_none() {
                let rounds = self.rounds(question);
                prepared.push((question.requests, question.twist, rounds));
            }
            let (.., rounds) = prepared.iter().find(is_same).expect("it was prepared");
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
    fn rounds(&self, question: &Question) -> Rounds {
        let cache_bytes = self.stack.cache.as_ref().map_or(0, |cache| cache.size.bytes());
        let cache_bytes = match question.twist {
            Twist::CacheTimes(factor) => (cache_bytes as f64 * factor) as u64,
            _ => cache_bytes,
        };
        let mut rounds = self.run.shorter(question.requests).rounds(cache_bytes, self.of_bytes);
        if let Twist::ReadShare(share) = question.twist {
            let mut records = rounds.records.to_vec();
            for (number, record) in records.iter_mut().enumerate() {
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
            remainder: remainder(pace, rounds),
            format: self.format,
        });
        let stack = question.candidate.applied(self.stack, rounds.cache_bytes);
        Experiment { stack, load, seed: SEED }
    }
}

/// At recorded times what is left is done between requests. As fast as it goes there is no between.
fn remainder(pace: Pace, rounds: &Rounds) -> Remainder {
    match pace {
        Pace::Recorded { .. } => Remainder::Nothing,
        _ if rounds.has_room => Remainder::OfDrives,
        _ => Remainder::OfDrivesAndCache,
    }
}
