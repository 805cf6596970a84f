//! What streams are, in the plainest way: a list of runs that is searched.

use super::{Direction, GROWN_MAX, REORDERED_MAX, Sighting, YOUNG_MAX};
use crate::description::cutoff::StreamPromotion;
use headpond_block::ByteRange;

/// The runs, the one seen last at the end.
#[derive(Default)]
pub struct NaiveTable {
    runs: Vec<NaiveRun>,
    clock: u64,
}

#[derive(Clone)]
struct NaiveRun {
    start: u64,
    end: u64,
    direction: Direction,
    stream: u64,
    requests: u32,
    is_grown: bool,
    /// Another run with the same start came later.
    is_hidden: bool,
}

impl NaiveRun {
    fn sighting(&self) -> Sighting {
        let Self { start, end, stream, requests, .. } = *self;
        Sighting { stream, bytes: end - start, requests, end }
    }
}

impl NaiveTable {
    pub fn observe(
        &mut self,
        range: ByteRange,
        direction: Direction,
        promotion: StreamPromotion,
    ) -> Sighting {
        self.clock += 1;
        let (start, end) = (range.start(), range.end());
        let mut run = NaiveRun {
            start,
            end,
            direction,
            stream: self.clock,
            requests: 1,
            is_grown: false,
            is_hidden: false,
        };
        let ends_at = |runs: &[NaiveRun], end| {
            runs.iter().position(|it| (it.end, it.direction) == (end, direction))
        };
        let before = ends_at(&self.runs, start);
        let starts = |it: &NaiveRun| (it.start, it.direction) == (end, direction) && !it.is_hidden;
        let after = self.runs.iter().position(starts).filter(|at| {
            let run = &self.runs[*at];
            run.requests <= REORDERED_MAX && !run.is_grown && Some(*at) != before
        });
        if before.is_none() && after.is_none() {
            if let Some(known) = ends_at(&self.runs, end) {
                let known = self.runs.remove(known);
                self.show(known);
                return run.sighting();
            }
        } else {
            let parts: Vec<NaiveRun> =
                [after, before].into_iter().flatten().map(|at| self.runs[at].clone()).collect();
            for part in &parts {
                (run.start, run.end) = (run.start.min(part.start), run.end.max(part.end));
                run.stream = part.stream;
                run.requests += part.requests;
                run.is_grown |= part.is_grown;
            }
            let gone = |it: &NaiveRun| parts.iter().any(|part| part.stream == it.stream);
            self.runs.retain(|it| !gone(it));
            if let Some(same) = ends_at(&self.runs, run.end) {
                self.runs.remove(same);
            }
        }
        run.is_grown |= run.requests >= promotion.requests || run.end - run.start > promotion.bytes;
        let most = if run.is_grown { GROWN_MAX } else { YOUNG_MAX };
        let same_age = |it: &NaiveRun| it.is_grown == run.is_grown;
        if self.runs.iter().filter(|it| same_age(it)).count() == most {
            let oldest = self.runs.iter().position(same_age).expect("there are some");
            self.runs.remove(oldest);
        }
        let sighting = run.sighting();
        self.show(run);
        sighting
    }

    /// Puts a run behind all others, and before those with its start.
    fn show(&mut self, run: NaiveRun) {
        let is_same = |it: &&mut NaiveRun| (it.start, it.direction) == (run.start, run.direction);
        self.runs.iter_mut().filter(is_same).for_each(|it| it.is_hidden = true);
        self.runs.push(NaiveRun { is_hidden: false, ..run });
    }
}
