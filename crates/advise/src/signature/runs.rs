//! Finds sequential runs, however many are interleaved, in one pass.
//!
//! A request that starts where an earlier one ended continues its run. A run is *proven* at its
//! fourth request; until then its records are held back, because they may turn out to be random.
//! Two runs that meet become one, which puts requests right that a deep queue has shuffled.
//!
//! **Invariants**: at most `PENDING_MAX` unproven and `PROVEN_MAX` proven runs are followed, the
//! least recently continued leaves first; every record comes out exactly once.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::FixedState;
use headpond_trace::{Op, TraceRecord};

/// Requests that prove a run.
const PROOF_REQUESTS: u64 = 4;

const PENDING_MAX: usize = 256;
const PROVEN_MAX: usize = 256;

/// Where a record belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    Random,
    /// Continues (or begins) the proven run with this number.
    Sequential(RunId),
}

/// Numbers proven runs; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RunId(pub u64);

/// What comes out of the detector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Found {
    Placed(TraceRecord, Placement),
    /// A proven run is over; without requests where it has become a part of another, which counts
    /// them.
    Ended {
        run: RunId,
        requests: u64,
        bytes: u64,
    },
}

/// The detector.
#[derive(Debug, Default)]
pub(crate) struct RunDetector {
    runs: Vec<Option<Run>>,
    free: Vec<usize>,
    /// By where a run is expected to go on.
    by_end: HashMap<Edge, usize, FixedState>,
    /// By where a run began, for requests that a deep queue brings too late.
    by_start: HashMap<Edge, usize, FixedState>,
    pending: Recency,
    proven: Recency,
    stamp: u64,
    next_id: u64,
}

/// A place where a run begins or ends: device, direction, offset.
type Edge = (u16, bool, u64);

#[derive(Debug)]
struct Run {
    device: u16,
    is_write: bool,
    start_bytes: u64,
    end_bytes: u64,
    requests: u64,
    bytes: u64,
    stamp: u64,
    proof: Proof,
}

#[derive(Debug)]
enum Proof {
    Pending(Vec<TraceRecord>),
    Proven(RunId),
}

/// Runs in the order of their last use; entries of runs used again since are stale.
#[derive(Debug, Default)]
struct Recency {
    order: VecDeque<(usize, u64)>,
    live: usize,
}

impl RunDetector {
    /// Takes a read or write in; what is decided by it goes to `found`.
    pub(crate) fn add(&mut self, record: TraceRecord, found: &mut Vec<Found>) {
        self.stamp += 1;
        let is_write = record.op == Op::Write;
        let device = record.device;
        let (start, end) = (record.offset_bytes, record.end_bytes());
        let index = if let Some(index) = self.by_end.remove(&(device, is_write, start)) {
            self.run(index).end_bytes = end;
            self.by_end.insert((device, is_write, end), index);
            self.join_follower(index, found);
            index
        } else if let Some(index) = self.by_start.remove(&(device, is_write, end)) {
            self.run(index).start_bytes = start;
            self.by_start.insert((device, is_write, start), index);
            index
        } else {
            self.begin(&record)
        };
        self.extend(index, record, found);
        self.make_room(found);
    }

    /// Gives out everything held back.
    pub(crate) fn finish(&mut self, found: &mut Vec<Found>) {
        for index in 0..self.runs.len() {
            self.end(index, found);
        }
    }

    fn run(&mut self, index: usize) -> &mut Run {
        self.runs[index].as_mut().expect("an indexed run exists")
    }

    fn begin(&mut self, record: &TraceRecord) -> usize {
        let run = Run {
            device: record.device,
            is_write: record.op == Op::Write,
            start_bytes: record.offset_bytes,
            end_bytes: record.end_bytes(),
            requests: 0,
            bytes: 0,
            stamp: 0,
            proof: Proof::Pending(Vec::new()),
        };
        let (begins, ends) = (run.begins(), run.ends());
        let index = self.free.pop().unwrap_or_else(|| {
            self.runs.push(None);
            self.runs.len() - 1
        });
        self.runs[index] = Some(run);
        self.by_start.entry(begins).or_insert(index);
        self.by_end.insert(ends, index);
        self.pending.live += 1;
        index
    }

    fn extend(&mut self, index: usize, record: TraceRecord, found: &mut Vec<Found>) {
        let stamp = self.stamp;
        let next_id = RunId(self.next_id);
        let run = self.run(index);
        run.requests += 1;
        run.bytes = run.bytes.saturating_add(record.length_bytes);
        run.stamp = stamp;
        match &mut run.proof {
            Proof::Proven(id) => found.push(Found::Placed(record, Placement::Sequential(*id))),
            Proof::Pending(held) => held.push(record),
        }
        if run.requests >= PROOF_REQUESTS && run.prove(next_id, found) {
            self.next_id += 1;
            self.pending.live -= 1;
            self.proven.live += 1;
        }
        self.touch(index);
    }

    /// Joins the run that begins where this one now ends.
    fn join_follower(&mut self, index: usize, found: &mut Vec<Found>) {
        let ends = self.run(index).ends();
        let Some(&other) = self.by_start.get(&ends) else {
            return;
        };
        if other == index {
            return;
        }
        let follower = self.remove(other);
        self.by_end.remove(&ends);
        let run = self.run(index);
        run.end_bytes = follower.end_bytes;
        run.requests += follower.requests;
        run.bytes = run.bytes.saturating_add(follower.bytes);
        let ends = run.ends();
        match follower.proof {
            Proof::Pending(records) => self.adopt(index, records, found),
            Proof::Proven(id) => {
                if !self.become_proven(index, id, found) {
                    found.push(Found::Ended { run: id, requests: 0, bytes: 0 });
                }
            }
        }
        self.by_end.insert(ends, index);
    }

    fn adopt(&mut self, index: usize, records: Vec<TraceRecord>, found: &mut Vec<Found>) {
        match &mut self.run(index).proof {
            Proof::Pending(held) => held.extend(records),
            Proof::Proven(id) => {
                let placement = Placement::Sequential(*id);
                found.extend(records.into_iter().map(|r| Found::Placed(r, placement)));
            }
        }
    }

    /// False where it was proven before, under a number of its own.
    fn become_proven(&mut self, index: usize, id: RunId, found: &mut Vec<Found>) -> bool {
        let is_first = self.run(index).prove(id, found);
        if is_first {
            self.pending.live -= 1;
            self.proven.live += 1;
        }
        is_first
    }

    fn touch(&mut self, index: usize) {
        let (stamp, is_proven) = {
            let run = self.run(index);
            (run.stamp, matches!(run.proof, Proof::Proven(_)))
        };
        let recency = if is_proven { &mut self.proven } else { &mut self.pending };
        recency.order.push_back((index, stamp));
        if recency.order.len() > 4 * (PENDING_MAX + PROVEN_MAX) {
            let runs = &self.runs;
            recency.order.retain(|&(i, stamp)| is_current(runs, i, stamp, is_proven));
        }
    }

    fn make_room(&mut self, found: &mut Vec<Found>) {
        while self.pending.live > PENDING_MAX {
            self.end_oldest(false, found);
        }
        while self.proven.live > PROVEN_MAX {
            self.end_oldest(true, found);
        }
    }

    fn end_oldest(&mut self, is_proven: bool, found: &mut Vec<Found>) {
        let recency = if is_proven { &mut self.proven } else { &mut self.pending };
        while let Some((index, stamp)) = recency.order.pop_front() {
            if is_current(&self.runs, index, stamp, is_proven) {
                return self.end(index, found);
            }
        }
        unreachable!("every live run has a current entry");
    }

    fn end(&mut self, index: usize, found: &mut Vec<Found>) {
        if self.runs[index].is_none() {
            return;
        }
        let run = self.remove(index);
        match run.proof {
            Proof::Pending(records) => {
                found.extend(records.into_iter().map(|r| Found::Placed(r, Placement::Random)));
            }
            Proof::Proven(id) => {
                found.push(Found::Ended { run: id, requests: run.requests, bytes: run.bytes });
            }
        }
    }

    fn remove(&mut self, index: usize) -> Run {
        let run = self.runs[index].take().expect("a removed run exists");
        self.free.push(index);
        for (map, edge) in [(&mut self.by_start, run.begins()), (&mut self.by_end, run.ends())] {
            if map.get(&edge) == Some(&index) {
                map.remove(&edge);
            }
        }
        match run.proof {
            Proof::Pending(_) => self.pending.live -= 1,
            Proof::Proven(_) => self.proven.live -= 1,
        }
        run
    }
}

impl Run {
    fn begins(&self) -> Edge {
        (self.device, self.is_write, self.start_bytes)
    }

    fn ends(&self) -> Edge {
        (self.device, self.is_write, self.end_bytes)
    }

    /// Gives the held records out as parts of run `id`. False when the run was proven before.
    fn prove(&mut self, id: RunId, found: &mut Vec<Found>) -> bool {
        let Proof::Pending(held) = &mut self.proof else {
            return false;
        };
        let placed = |record| Found::Placed(record, Placement::Sequential(id));
        found.extend(held.drain(..).map(placed));
        self.proof = Proof::Proven(id);
        true
    }
}

fn is_current(runs: &[Option<Run>], index: usize, stamp: u64, is_proven: bool) -> bool {
    let same = |run: &Run| run.stamp == stamp && matches!(run.proof, Proof::Proven(_)) == is_proven;
    runs[index].as_ref().is_some_and(same)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(offset: u64) -> TraceRecord {
        TraceRecord::new(0, Op::Read, offset * 4096, 4096)
    }

    fn found(offsets: impl IntoIterator<Item = u64>) -> Vec<Found> {
        let mut detector = RunDetector::default();
        let mut found = Vec::new();
        offsets.into_iter().for_each(|offset| detector.add(read(offset), &mut found));
        detector.finish(&mut found);
        assert_eq!((detector.pending.live, detector.proven.live), (0, 0));
        assert!(detector.by_start.is_empty() && detector.by_end.is_empty());
        found
    }

    fn runs(found: &[Found]) -> Vec<u64> {
        let ended = |f: &Found| match f {
            Found::Ended { requests, .. } => Some(*requests),
            Found::Placed(..) => None,
        };
        found.iter().filter_map(ended).collect()
    }

    fn random(found: &[Found]) -> usize {
        found.iter().filter(|f| matches!(f, Found::Placed(_, Placement::Random))).count()
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
    fn runs_that_meet_end_once_with_requests_and_each_number_ends() {
        let (front, back) =
            ((0..10).map(|n| [n, 1000 + n]), (10..1000).map(|n| [n, 2_000_000 + n]));
        let found = found(front.chain(back).flatten());
        let (mut placed, mut ended) = (std::collections::BTreeSet::new(), Vec::new());
        for found in found {
            match found {
                Found::Placed(_, Placement::Sequential(run)) => _ = placed.insert(run),
                Found::Ended { run, requests, .. } => ended.push((run, requests)),
                Found::Placed(..) => panic!("all is sequential"),
            }
        }
        ended.sort_unstable();
        assert_eq!(ended.iter().map(|it| it.0).collect::<Vec<_>>(), Vec::from_iter(placed));
        assert_eq!(ended.iter().map(|it| it.1).collect::<Vec<_>>(), [1010, 0, 990]);
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
                Found::Placed(record, _) => Some(record.offset_bytes / 4096),
                Found::Ended { .. } => None,
            });
            let (mut placed, mut offsets) = (placed.collect::<Vec<_>>(), offsets);
            placed.sort_unstable();
            offsets.sort_unstable();
            prop_assert_eq!(placed, offsets);
        }
    }
}
