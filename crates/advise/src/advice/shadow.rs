//! What settings gain over others for the same work, as far as the models say.

use super::{pace, volume};
use crate::long_run::LongRun;
use crate::sample::Sample;
use crate::search::{
    Candidate, Gain, Judge, JudgeError, Question, Replays, Simulate, Trial, Twist,
};
use crate::signature::Signature;
use crate::situation::Situation;
use headpond_trace::TraceFormat;
use headpond_whatif::Stack;

/// The gain of what is set in `situation` over what is set in `before`, on the same devices.
///
/// # Errors
/// Where a machine like that cannot be put together.
pub fn shadow<'a>(
    signature: &Signature,
    (sample, format): (Sample, TraceFormat),
    situation: &'a Situation,
    before: &'a Stack,
    simulate: &'a mut Simulate<'a>,
) -> Result<Gain, JudgeError> {
    if !sample.asks_for_data() {
        return Ok(Gain::NONE);
    }
    let run = LongRun::of(sample, volume(&situation.stack)?);
    let mut trial = |stack: &'a Stack| -> Result<Trial, JudgeError> {
        let question = Question {
            candidate: Candidate::standing(stack),
            requests: run.requests(),
            twist: Twist::None,
        };
        let mut replays = Replays {
            stack,
            run: &run,
            format,
            of_bytes: signature.volume.footprint_bytes,
            pace: pace(situation),
            simulate: &mut *simulate,
        };
        Ok(replays.judge(&[question])?.remove(0))
    };
    let (then, now) = (trial(before)?, trial(&situation.stack)?);
    Ok(now.gain_over(&then, situation.goal))
}
