//! Finds sequential runs, however many are interleaved, in one pass.
//!
//! A request that starts where an earlier one ended continues its run. A run is *proven* at its
//! fourth request; until then its records are held back, because they may turn out to be random.
//! Two runs that meet become one, which puts requests right that a deep queue has shuffled.
//!
//! **Invariants**: at most `PENDING_MAX` unproven and `PROVEN_MAX` proven runs are followed, the
//! least recently continued leaves first; every record comes out exactly once.

use headpond_trace::{Op, TraceRecord};

use super::edges::{Edge, Edges, SEATS, Seat};
use super::use_order::UseOrder;
use super::waiting::{List, Waiting};

/// Requests that prove a run.
const PROOF_REQUESTS: u64 = 4;

const PENDING_MAX: usize = 256;
const PROVEN_MAX: usize = 256;

// One of each more before there is room.
const _: () = assert!(PENDING_MAX + PROVEN_MAX + 2 <= SEATS);

/// Where a record belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    Random,
    /// Continues (or begins) the proven run with this number.
    Sequential(RunId),
}

/// Numbers proven runs; given again when the run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RunId(pub u16);

/// What comes out of the detector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum DetectedRun {
    Placed(TraceRecord, Placement),
    /// A record without data.
    Aside(TraceRecord),
    /// A proven run is over, or has become a part of another.
    Ended {
        run: RunId,
        joined: Option<RunId>,
    },
}

/// The detector.
#[derive(Debug, Default)]
pub(crate) struct RunDetector {
    /// By seat; those of free seats are over.
    runs: Vec<Run>,
    free: Vec<Seat>,
    /// By where a run is expected to go on.
    by_end: Edges,
    /// By where a run began, for requests that a deep queue brings too late.
    by_start: Edges,
    pending: UseOrder,
    proven: UseOrder,
    waiting: Waiting,
    /// Numbers given so far, and those of them that are free again.
    ids: u16,
    free_ids: Vec<RunId>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    end: Edge,
    requests: u64,
    proof: Proof,
}

#[derive(Clone, Copy, Debug)]
enum Proof {
    Pending(List),
    Proven(RunId),
    Over,
}

impl RunDetector {
    /// Takes a read or write in; what is decided by it goes to `found`.
    pub(crate) fn add(&mut self, record: &TraceRecord, found: &mut Vec<DetectedRun>) {
        let start = Edge::new(record.device, record.op == Op::Write, record.offset_bytes);
        let end = start.at(record.end_bytes());
        let seat = if let Some(seat) = self.by_end.take(start) {
            self.run(seat).end = end;
            self.by_end.insert(end, seat);
            self.join_follower(seat, found);
            seat
        } else if let Some(seat) = self.by_start.take(end) {
            self.by_start.insert(start, seat);
            seat
        } else {
            self.begin(start, end)
        };
        self.extend(seat, record, found);
        self.make_room(found);
    }

    /// Gives out everything held back.
    pub(crate) fn finish(&mut self, found: &mut Vec<DetectedRun>) {
        for seat in 0..self.runs.len() {
            self.end(seat as Seat, found);
        }
    }

    #[inline]
    fn run(&mut self, seat: Seat) -> &mut Run {
        &mut self.runs[usize::from(seat)]
    }

    fn begin(&mut self, start: Edge, end: Edge) -> Seat {
        let run = Run { end, requests: 0, proof: Proof::Pending(List::new()) };
        let seat = match self.free.pop() {
            Some(seat) => {
                self.runs[usize::from(seat)] = run;
                seat
            }
            None => {
                self.runs.push(run);
                (self.runs.len() - 1) as Seat
            }
        };
        self.by_start.insert_if_free(start, seat);
        self.by_end.insert(end, seat);
        self.pending.push(seat);
        seat
    }

    #[inline]
    fn extend(&mut self, seat: Seat, record: &TraceRecord, found: &mut Vec<DetectedRun>) {
        let run = &mut self.runs[usize::from(seat)];
        run.requests += 1;
        match &mut run.proof {
            Proof::Proven(id) => {
                found.push(DetectedRun::Placed(*record, Placement::Sequential(*id)));
                self.proven.renew(seat);
            }
            Proof::Pending(held) => {
                self.waiting.push(held, *record);
                if run.requests >= PROOF_REQUESTS {
                    let id = self.number();
                    self.prove(seat, id, found);
                } else {
                    self.pending.renew(seat);
                }
            }
            Proof::Over => unreachable!("a run that is over is found nowhere"),
        }
    }

    fn number(&mut self) -> RunId {
        self.free_ids.pop().unwrap_or_else(|| {
            self.ids += 1;
            RunId(self.ids - 1)
        })
    }

    /// A run that was pending is proven: its held records are parts of run `id`.
    fn prove(&mut self, seat: Seat, id: RunId, found: &mut Vec<DetectedRun>) {
        let proof = std::mem::replace(&mut self.run(seat).proof, Proof::Proven(id));
        let Proof::Pending(held) = proof else {
            unreachable!("a run is proven once");
        };
        let placement = Placement::Sequential(id);
        self.waiting.drain(held, |record| found.push(DetectedRun::Placed(*record, placement)));
        self.pending.remove(seat);
        self.proven.push(seat);
    }

    /// Joins the run that begins where this one now ends.
    fn join_follower(&mut self, seat: Seat, found: &mut Vec<DetectedRun>) {
        let ends = self.run(seat).end;
        let Some(other) = self.by_start.get(ends).filter(|&other| other != seat) else {
            return;
        };
        let follower = self.remove(other);
        self.by_end.take(ends);
        let run = self.run(seat);
        run.end = follower.end;
        run.requests += follower.requests;
        let (ends, proof) = (run.end, run.proof);
        match (follower.proof, proof) {
            (Proof::Pending(records), _) => self.adopt(seat, records, found),
            (Proof::Proven(id), Proof::Pending(_)) => self.prove(seat, id, found),
            (Proof::Proven(id), Proof::Proven(into)) => self.report_end(id, Some(into), found),
            _ => unreachable!("a run that is over is found nowhere"),
        }
        self.by_end.insert(ends, seat);
    }

    fn adopt(&mut self, seat: Seat, records: List, found: &mut Vec<DetectedRun>) {
        let run = &mut self.runs[usize::from(seat)];
        match &mut run.proof {
            Proof::Pending(held) => self.waiting.append(held, records),
            Proof::Proven(id) => {
                let placement = Placement::Sequential(*id);
                self.waiting.drain(records, |r| found.push(DetectedRun::Placed(*r, placement)));
            }
            Proof::Over => unreachable!("a run that is over is found nowhere"),
        }
    }

    #[inline]
    fn make_room(&mut self, found: &mut Vec<DetectedRun>) {
        if self.pending.len() > PENDING_MAX {
            self.end_oldest(self.pending.oldest(), found);
        }
        if self.proven.len() > PROVEN_MAX {
            self.end_oldest(self.proven.oldest(), found);
        }
    }

    fn end_oldest(&mut self, oldest: Option<Seat>, found: &mut Vec<DetectedRun>) {
        self.end(oldest.expect("more than none are in"), found);
    }

    fn end(&mut self, seat: Seat, found: &mut Vec<DetectedRun>) {
        let run = self.remove(seat);
        match run.proof {
            Proof::Pending(held) => {
                self.waiting
                    .drain(held, |r| found.push(DetectedRun::Placed(*r, Placement::Random)));
            }
            Proof::Proven(id) => self.report_end(id, None, found),
            Proof::Over => {}
        }
    }

    fn report_end(&mut self, run: RunId, joined: Option<RunId>, found: &mut Vec<DetectedRun>) {
        found.push(DetectedRun::Ended { run, joined });
        self.free_ids.push(run);
    }

    /// Frees the seat of a run, unless it is free.
    #[inline]
    fn remove(&mut self, seat: Seat) -> Run {
        let run = self.runs[usize::from(seat)];
        match run.proof {
            Proof::Pending(_) => self.pending.remove(seat),
            Proof::Proven(_) => self.proven.remove(seat),
            Proof::Over => return run,
        }
        self.runs[usize::from(seat)].proof = Proof::Over;
        self.by_start.release(seat);
        self.by_end.release(seat);
        self.free.push(seat);
        run
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(offset: u64) -> TraceRecord {
        TraceRecord::new(0, Op::Read, offset * 4096, 4096)
    }

    fn found(offsets: impl IntoIterator<Item = u64>) -> Vec<DetectedRun> {
        let mut detector = RunDetector::default();
        let mut found = Vec::new();
        offsets.into_iter().for_each(|offset| detector.add(&read(offset), &mut found));
        detector.finish(&mut found);
        assert_eq!((detector.pending.len(), detector.proven.len()), (0, 0));
        assert!(detector.by_start.is_empty() && detector.by_end.is_empty());
        found
    }

    /// Requests of each run, in the order of their ends.
    fn runs(found: &[DetectedRun]) -> Vec<u64> {
        let (mut open, mut ended) = (std::collections::BTreeMap::new(), Vec::new());
        for found in found {
            match found {
                DetectedRun::Placed(_, Placement::Sequential(run)) => {
                    *open.entry(*run).or_default() += 1;
                }
                DetectedRun::Ended { run, joined } => {
                    let requests: u64 = open.remove(run).unwrap();
                    match joined {
                        Some(into) => *open.get_mut(into).unwrap() += requests,
                        None => ended.push(requests),
                    }
                }
                _ => {}
            }
        }
        assert!(open.is_empty(), "each run ends");
        ended
    }

    fn random(found: &[DetectedRun]) -> usize {
        found.iter().filter(|f| matches!(f, DetectedRun::Placed(_, Placement::Random))).count()
    }

    #[test]
    fn two_interleaved_runs_and_random_requests_between_them_are_told_apart() {
        let offsets = (0..100).flat_map(|n| [n, 1_000_000 + n, 5_000_000 + n * 7919 % 100_003]);
        let found = found(offsets);
        assert_eq!(runs(&found), [100, 100]);
        assert_eq!(random(&found), 100);
    }

    #[test]
    fn run_shuffled_by_a_deep_queue_is_one_run() {
        let offsets = (0..50).flat_map(|n| [4 * n + 1, 4 * n, 4 * n + 3, 4 * n + 2]);
        let found = found(offsets);
        assert_eq!(runs(&found), [200]);
        assert_eq!(random(&found), 0);
    }

    #[test]
    fn runs_that_meet_are_one_and_each_number_ends() {
        let (front, back) =
            ((0..10).map(|n| [n, 1000 + n]), (10..1000).map(|n| [n, 2_000_000 + n]));
        let found = found(front.chain(back).flatten());
        assert_eq!((runs(&found), random(&found)), (vec![1010, 990], 0));
        let joined = |f: &&DetectedRun| matches!(f, DetectedRun::Ended { joined: Some(_), .. });
        assert_eq!(found.iter().filter(joined).count(), 1);
    }

    #[test]
    fn three_neighbours_prove_nothing() {
        let found = found([0, 1, 2, 50, 51, 52]);
        assert!(runs(&found).is_empty());
        assert_eq!(random(&found), 6);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_record_comes_out_once(offsets in proptest::collection::vec(0u64..600, 0..2000)) {
            let placed = found(offsets.iter().copied()).into_iter().filter_map(|f| match f {
                DetectedRun::Placed(record, _) => Some(record.offset_bytes / 4096),
                _ => None,
            });
            let (mut placed, mut offsets) = (placed.collect::<Vec<_>>(), offsets);
            placed.sort_unstable();
            offsets.sort_unstable();
            prop_assert_eq!(placed, offsets);
        }
    }
}
