//! Tells the phases of one stream apart: a process may first write small and then read large.
//!
//! A stream is summed up window by window; each window joins the phase it resembles (mean size,
//! read share, depth) or begins a new one. Phases that come back are recognised, not counted twice.
//!
//! **Invariants**: at most `PHASES_MAX` phases; every window is in exactly one.

use headpond_trace::TraceRecord;

use super::depth::DepthSweep;
use super::totals::Totals;

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
    pub(crate) fn add(&mut self, record: &TraceRecord, is_random: bool) {
        if self.count >= JUDGED_REQUESTS {
            self.end_window(record.issued_ns);
        }
        self.count += 1;
        self.window.add(record, is_random);
        if let Some(before_ns) = self.issued_ns.replace(record.issued_ns) {
            self.window.gaps.add(record.issued_ns.saturating_sub(before_ns));
        }
        if let Some(completed_ns) = record.completed_ns {
            self.sweep.add(record.issued_ns, completed_ns);
        }
    }

    pub(crate) fn end_run(&mut self, requests: u64, bytes: u64) {
        self.window.runs.add(requests, bytes);
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
        let is_over = pause_ns > PAUSE_NS || self.window.span_ns > WINDOW_NS;
        if self.count < WINDOW_REQUESTS && !is_over {
            return;
        }
        // Without a pause the windows follow each other without a gap or an overlap.
        if pause_ns <= PAUSE_NS {
            self.window.span_ns = next_ns.saturating_sub(self.window.first_ns);
        }
        self.sweep.exchange(&mut self.window.depth);
        self.file_window();
        self.window.clear();
        self.count = 0;
    }

    fn file_window(&mut self) {
        let window = &self.window;
        if self.count == 0 {
            // Runs may end after the last request of their window.
            if let Some((_, last)) = self.phases.last_mut() {
                last.runs.merge(&window.runs);
            }
            return;
        }
        let likeness = Likeness::of(window);
        let nearest = likeness.nearest(self.phases.iter().map(|(phase, _)| *phase));
        match nearest {
            Some((index, distance)) if distance < SAME_PHASE || self.phases.len() == PHASES_MAX => {
                let (phase, totals) = &mut self.phases[index];
                totals.merge(window);
                *phase = Likeness::of(totals);
            }
            _ => self.phases.push((likeness, window.clone())),
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
