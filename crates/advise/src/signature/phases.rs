//! Tells the phases of one stream apart: a process may first write small and then read large.
//!
//! A stream is summed up window by window; each window joins the phase it resembles (mean size,
//! read share, depth) or begins a new one. Phases that come back are recognised, not counted twice.
//!
//! **Invariants**: at most `PHASES_MAX` phases; every window is in exactly one.

use headpond_trace::TraceRecord;

use super::depth::DepthSweep;
use super::runs::{Placement, RunId};
use super::totals::{RunTotals, Totals};

const WINDOW_REQUESTS: u64 = 512;

/// A window with enough requests to be judged by ends at a pause, or after this time.
const JUDGED_REQUESTS: u64 = 48;
const PAUSE_NS: u64 = 100_000_000;
const WINDOW_NS: u64 = 1_000_000_000;

const PHASES_MAX: usize = 8;

/// Windows that differ by less than this belong together; 1 is as far as one measure alone allows.
const SAME_PHASE: f64 = 1.0;

/// A phase below this share of requests, of bytes and of busy time is a transition, not a phase.
const PHASE_SHARE_MIN: f64 = 0.03;

/// One stream, in phases.
#[derive(Clone, Debug, Default)]
pub(crate) struct PhasedStream {
    window: Totals,
    /// Requests in the window.
    count: u64,
    sweep: DepthSweep,
    phases: Vec<(Likeness, Totals)>,
    issued_ns: Option<u64>,
    runs: PhasedRuns,
}

/// Brings the parts of runs to the phases in which they lie.
#[derive(Clone, Debug, Default)]
struct PhasedRuns {
    /// Of the window, in the order of their first requests.
    parts: Vec<RunPart>,
    /// Runs that may go on, with their parts in the phase of their last window.
    open: Vec<(RunId, usize, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct RunPart {
    run: RunId,
    requests: u64,
    bytes: u64,
    is_over: bool,
}

/// What phases are told apart by.
#[derive(Clone, Copy, Debug)]
struct Likeness {
    size_log2: f64,
    read_share: f64,
    random_share: f64,
    depth_log2: Option<f64>,
}

impl PhasedStream {
    #[inline]
    /// Adds a request; one without data has no placement.
    pub(crate) fn add(&mut self, record: &TraceRecord, placement: Option<Placement>) {
        if self.count >= JUDGED_REQUESTS {
            self.end_window(record.issued_ns);
        }
        self.count += 1;
        if let Some(Placement::Sequential(run)) = placement {
            self.runs.add(run, record.length_bytes);
        }
        self.window.add(record, placement == Some(Placement::Random));
        if let Some(before_ns) = self.issued_ns.replace(record.issued_ns) {
            self.window.gaps.add(record.issued_ns.saturating_sub(before_ns));
        }
        if let Some(completed_ns) = record.completed_ns {
            self.sweep.add(record.issued_ns, completed_ns);
        }
    }

    pub(crate) fn end_run(&mut self, run: RunId) {
        self.runs.end(run);
    }

    /// Run `run` has become a part of `into`.
    pub(crate) fn join_run(&mut self, run: RunId, into: RunId) {
        if let Some((phase, bytes)) = self.runs.join(run, into) {
            let runs = &mut self.phases[phase].1.runs;
            runs.runs -= 1;
            runs.longest_bytes = runs.longest_bytes.max(bytes);
        }
    }

    /// The phases, transitions folded into what they resemble.
    pub(crate) fn finish(mut self) -> Vec<Totals> {
        self.window.depth.merge(&self.sweep.finish());
        self.file_window();
        let mut phases = self.phases.into_iter().map(|(_, totals)| totals).collect();
        fold_small(&mut phases);
        phases
    }

    /// Closes a window that is full, or over before a request at this time.
    #[inline]
    fn end_window(&mut self, next_ns: u64) {
        let pause_ns = next_ns.saturating_sub(self.window.last_ns);
        let is_over = pause_ns > PAUSE_NS || self.window.span_ns() > WINDOW_NS;
        if self.count < WINDOW_REQUESTS && !is_over {
            return;
        }
        self.sweep.exchange(&mut self.window.depth);
        self.file_window();
        self.window.clear();
        self.count = 0;
    }

    fn file_window(&mut self) {
        let window = &self.window;
        if self.count == 0 {
            return;
        }
        let likeness = Likeness::of(window);
        let nearest = likeness.nearest(self.phases.iter().map(|(phase, _)| *phase));
        let index = match nearest {
            Some((index, distance)) if distance < SAME_PHASE || self.phases.len() == PHASES_MAX => {
                let (phase, totals) = &mut self.phases[index];
                totals.merge(window);
                *phase = Likeness::of(totals);
                index
            }
            _ => {
                self.phases.push((likeness, window.clone()));
                self.phases.len() - 1
            }
        };
        self.runs.file(index, &mut self.phases[index].1.runs);
    }
}

impl PhasedRuns {
    fn add(&mut self, run: RunId, bytes: u64) {
        match self.part(run) {
            Some(part) => {
                part.requests += 1;
                part.bytes = part.bytes.saturating_add(bytes);
            }
            None => self.parts.push(RunPart { run, requests: 1, bytes, is_over: false }),
        }
    }

    fn part(&mut self, run: RunId) -> Option<&mut RunPart> {
        self.parts.iter_mut().rev().find(|part| part.run == run && !part.is_over)
    }

    fn end(&mut self, run: RunId) {
        match self.part(run) {
            Some(part) => part.is_over = true,
            None => self.open.retain(|&(open, ..)| open != run),
        }
    }

    /// Gives one run the parts of another; the phase in which both were counted, if any, and their
    /// bytes there.
    fn join(&mut self, run: RunId, into: RunId) -> Option<(usize, u64)> {
        let place = |parts: &[RunPart], run| {
            parts.iter().rposition(|part: &RunPart| part.run == run && !part.is_over)
        };
        match (place(&self.parts, run), place(&self.parts, into)) {
            (Some(from), Some(to)) => {
                let part = self.parts[from];
                self.parts[to].requests += part.requests;
                self.parts[to].bytes = self.parts[to].bytes.saturating_add(part.bytes);
                self.parts.remove(from);
            }
            (Some(from), None) => self.parts[from].run = into,
            _ => {}
        }
        let from = self.open.iter().position(|&(open, ..)| open == run)?;
        let Some(to) = self.open.iter().position(|&(open, ..)| open == into) else {
            self.open[from].0 = into;
            return None;
        };
        let (_, phase, bytes) = self.open[from];
        let (_, phase_of_other, bytes_of_other) = &mut self.open[to];
        let joined = (phase == *phase_of_other).then(|| {
            *bytes_of_other = bytes_of_other.saturating_add(bytes);
            (phase, *bytes_of_other)
        });
        self.open.remove(from);
        joined
    }

    /// The window was found to be of this phase.
    fn file(&mut self, phase: usize, totals: &mut RunTotals) {
        for RunPart { run, requests, bytes, is_over } in self.parts.drain(..) {
            let place = self.open.iter().position(|&(open, ..)| open == run);
            let place = place.unwrap_or_else(|| {
                self.open.push((run, usize::MAX, 0));
                self.open.len() - 1
            });
            let (_, last_phase, bytes_there) = &mut self.open[place];
            let is_new = *last_phase != phase;
            *bytes_there = if is_new { bytes } else { bytes_there.saturating_add(bytes) };
            *last_phase = phase;
            let more =
                RunTotals { runs: u64::from(is_new), requests, bytes, longest_bytes: *bytes_there };
            totals.merge(&more);
            if is_over {
                self.open.remove(place);
            }
        }
    }
}

/// Folds parts that are too small to stand alone into the ones they resemble.
pub(crate) fn fold_small(parts: &mut Vec<Totals>) {
    let requests: u64 = parts.iter().map(Totals::total_requests).sum();
    let bytes = parts.iter().fold(0, |sum: u64, part| sum.saturating_add(part.total_bytes()));
    let busy_ns = parts.iter().fold(0, |sum: u64, part| sum.saturating_add(part.busy_ns()));
    let is_below = |part: u64, whole: u64| (part as f64) <= PHASE_SHARE_MIN * whole as f64;
    let is_small = |part: &Totals| {
        is_below(part.total_requests(), requests)
            && is_below(part.total_bytes(), bytes)
            && is_below(part.busy_ns(), busy_ns)
    };
    while parts.len() > 1 {
        let Some(small) = parts.iter().position(is_small) else {
            break;
        };
        let part = parts.swap_remove(small);
        let nearest = Likeness::of(&part).nearest(parts.iter().map(Likeness::of));
        let Some((index, _)) = nearest else {
            break;
        };
        parts[index].merge(&part);
    }
}

impl Likeness {
    fn of(part: &Totals) -> Self {
        Self {
            size_log2: part.sizes.mean_log2(),
            read_share: part.read_share(),
            random_share: part.random_share(),
            depth_log2: part.depth.mean().map(f64::log2),
        }
    }

    /// Which of these is most alike, and how far it is.
    fn nearest(self, others: impl Iterator<Item = Self>) -> Option<(usize, f64)> {
        let distances = others.map(|other| self.distance(other)).enumerate();
        distances.min_by(|one, other| one.1.total_cmp(&other.1))
    }

    /// 1 is: four thirds of a doubling in size, a quarter of the requests turned from read to write
    /// or from random to sequential, or one and a quarter doublings in depth.
    fn distance(self, other: Self) -> f64 {
        let size = (self.size_log2 - other.size_log2).abs() / 1.33;
        let mix = (self.read_share - other.read_share).abs() / 0.25;
        let depth = match (self.depth_log2, other.depth_log2) {
            (Some(one), Some(other)) => (one - other).abs() / 1.25,
            _ => 0.0,
        };
        let order = (self.random_share - other.random_share).abs() / 0.25;
        size.max(mix).max(order).max(depth)
    }
}
