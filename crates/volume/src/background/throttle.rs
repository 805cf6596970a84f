//! How fast work beside the requests goes, by what it costs them.
//!
//! 1. Every answer that clients get while the work goes on is noted, with the time that it took;
//!    2. now and then the work rests for a moment, and what is asked in the middle of that says
//!    what requests take without it; 3. the slowest of a hundred of both are compared twice a
//!    second: the rate is raised while they hardly differ, and lowered where the work is felt. It
//!    moves between floor and ceiling; what the floor asks for is made up for.
//!
//! So many rows are worked on side by side as the rate needs and no more: with few of them a
//! request waits for little, and with many the work has its share of queues that are always full.
//!
//! **Invariants**: beside requests the rate is never below the floor, nor above the ceiling; while
//! nobody asks anything only the ceiling holds. The floor is the same all the time, but for copies
//! on disks of which one was lost, where it begins lower and ends higher.
//! **Not here**: waiting, and what the work is (`background`).

use super::rate::BackgroundRate;
use headpond_block::Instant;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::time::Duration;

const JUDGE_EVERY: Duration = Duration::from_millis(500);
/// At most so often it is chosen how many steps overlap.
const CHOOSE_EVERY: Duration = Duration::from_millis(100);
/// How much longer the slowest of a hundred takes than without the work: less than that lets it go
/// faster, more has it go slower. Both are less than twice: beside disks that turn much less, for
/// what counts is an array without the loss that is being made good, which costs them by itself.
const FELT_ON_DISKS: Range<f64> = 1.15..1.35;
const FELT_ON_FLASH: Range<f64> = 1.55..1.75;
/// Of two copies on disks one is left, which does the work of both: that alone nearly doubles what
/// requests take, and leaves the least room.
const FELT_ON_COPIES: Range<f64> = 1.03..1.12;
const RAISED_BY: f64 = 1.25;
const LOWERED_BY: f64 = 0.7;
/// Of the floor, what holds at the beginning of a rebuild of copies on disks, and at most; and how
/// fast it rises with the share that is done. Until there is something to read on the new drive the
/// one that is left does the work of both, and what is taken of its time is felt twice over. Where
/// it is never more than that, such a rebuild takes no longer than at an even floor.
const FLOOR_OF_COPIES: Range<f64> = 0.3..1.3;
const FLOOR_OF_COPIES_RISES: f64 = 5.0;
/// Answers without which nothing is concluded.
const SAMPLES_MIN: f64 = 150.0;
/// A rest is so much longer than the slowest of a hundred requests, and within these bounds.
const REST_OF_SLOWEST: u32 = 5;
const REST: Range<Duration> = Duration::from_millis(20)..Duration::from_millis(400);
/// Of copies on disks one may be left with the requests of both: queues are longer.
const REST_OF_COPIES_MAX: Duration = Duration::from_secs(2);
/// Of the time, what rests may take.
const REST_SHARE: u32 = 10;
/// What is done between them makes up for them.
const MORE_BETWEEN_RESTS: f64 = 1.0 + 1.0 / (REST_SHARE - 1) as f64;
/// Further than that behind, nothing is made up for.
const ARREARS_MAX: Duration = Duration::from_secs(2);
const ROWS: u64 = 16;
const ROWS_MAX: u64 = 128;
/// Of steps that overlap: far from what clients ask, drives with full queues let them wait for most
/// of a second, so that only many come to anything. What memory allows is less.
const ROWS_OVERLAPPING_MAX: u64 = 512;

/// What a work has done since it last rested.
pub(super) struct Step {
    pub begun: Instant,
    pub ended: Instant,
    pub bytes: u64,
    /// Requests came meanwhile.
    pub is_asked: bool,
    /// Of the whole work, with this step.
    pub share_done: f64,
}

/// What comes after a step.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rest {
    pub until: Instant,
    /// Of the next step, side by side; `None` where nobody is in the way.
    pub rows: Option<u64>,
}

/// What a work is like.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    pub is_rotational: bool,
    pub is_mirrored: bool,
    /// A lost member is made good.
    pub is_of_loss: bool,
    pub steps: Steps,
}

/// Whether one step begins when the one before has ended.
#[derive(Clone, Copy)]
pub(super) enum Steps {
    Apart,
    Overlapping,
}

/// Governs one piece of work.
pub(super) struct Throttle {
    /// Rows that a step has at least: a drive that seeks is to do more than seek.
    rows_min: u64,
    kind: Kind,
    rows: Cell<u64>,
    /// Of steps that overlap: how long the work has waited for its own answers since its rows were
    /// chosen, and how long for its turn.
    spent: Cell<(Duration, Duration)>,
    /// Bytes a second beside requests.
    rate: Cell<f64>,
    /// Until when what is done would have taken at that rate.
    due: Cell<Instant>,
    judged: Cell<Instant>,
    /// Bytes since then.
    done: Cell<u64>,
    listens_next: Cell<Instant>,
    /// What is asked then says what requests take without the work.
    quiet_time: Cell<(Instant, Instant)>,
    beside: RefCell<Latencies>,
    quiet: RefCell<Latencies>,
}

impl Kind {
    fn felt(self) -> Range<f64> {
        match (self.is_rotational, self.is_mirrored) {
            (false, _) => FELT_ON_FLASH,
            (true, false) => FELT_ON_DISKS,
            (true, true) => FELT_ON_COPIES,
        }
    }

    /// Of the floor, what holds when so much of the work is done.
    fn floor_share(self, share_done: f64) -> f64 {
        if !(self.is_rotational && self.is_mirrored && self.is_of_loss) {
            return 1.0;
        }
        (FLOOR_OF_COPIES.start + FLOOR_OF_COPIES_RISES * share_done).min(FLOOR_OF_COPIES.end)
    }

    fn rest_max(self) -> Duration {
        if self.is_rotational && self.is_mirrored { REST_OF_COPIES_MAX } else { REST.end }
    }
}

impl Throttle {
    pub fn new(now: Instant, kind: Kind) -> Self {
        Self {
            rows_min: if kind.is_rotational { ROWS } else { 1 },
            kind,
            rows: Cell::new(ROWS),
            spent: Cell::default(),
            rate: Cell::new(0.0),
            due: Cell::new(now),
            judged: Cell::new(now),
            done: Cell::new(0),
            listens_next: Cell::new(now + JUDGE_EVERY),
            quiet_time: Cell::new((now, now)),
            beside: RefCell::new(Latencies::default()),
            quiet: RefCell::new(Latencies::default()),
        }
    }

    /// Notes a request of a client that was answered.
    pub fn note(&self, begun: Instant, now: Instant) {
        let took = now.since(begun);
        self.beside.borrow_mut().add(took);
        let (start, end) = self.quiet_time.get();
        if start <= begun && begun < end {
            self.quiet.borrow_mut().add(took);
        }
    }

    /// What comes after a step.
    pub fn end(&self, step: &Step, pace: BackgroundRate) -> Rest {
        let now = step.ended;
        self.done.update(|done| done + step.bytes);
        let floor_share = self.kind.floor_share(step.share_done);
        let floor = pace.min.0.max(1) as f64 * floor_share;
        let ceiling = pace.max.map_or(f64::INFINITY, |ceiling| ceiling.0.max(1) as f64);
        if !step.is_asked {
            self.rows.set(ROWS);
            self.due.set(now);
            let until = step.begun + time_of(step.bytes, ceiling);
            return Rest { until: until.max(now), rows: None };
        }
        self.judge(now, floor_share < 1.0);
        let rate = self.rate.get().max(floor).min(ceiling);
        self.rate.set(rate);
        let due = self.due.get();
        let forgiven = now.since(due).saturating_sub(ARREARS_MAX);
        let due = due + forgiven + time_of(step.bytes, rate * MORE_BETWEEN_RESTS);
        self.due.set(due);
        self.choose_rows(step, due);
        let rest = self.rest(now, due, rate > floor);
        Rest { until: due.max(rest).max(now), rows: Some(self.rows.get()) }
    }

    /// Takes more rows where the work cannot keep up with its rate, and fewer where it waits for
    /// most of the time.
    fn choose_rows(&self, step: &Step, due: Instant) {
        let (took, ahead) = (step.ended.since(step.begun), due.since(step.ended));
        let rows = self.rows.get();
        let (rows, most) = match self.kind.steps {
            Steps::Apart if ahead > took => (rows / 2, ROWS_MAX),
            Steps::Apart if ahead.is_zero() => (rows * 2, ROWS_MAX),
            Steps::Apart => (rows, ROWS_MAX),
            Steps::Overlapping => {
                (self.choose_overlapping(rows, (took, ahead)), ROWS_OVERLAPPING_MAX)
            }
        };
        self.rows.set(rows.clamp(self.rows_min, most));
    }

    /// Of steps that overlap some end at nearly the same time: what each took says little, and one
    /// more or less is enough at a time.
    fn choose_overlapping(&self, rows: u64, (took, ahead): (Duration, Duration)) -> u64 {
        let (worked, waited) = self.spent.get();
        let (worked, waited) = (worked + took, waited + ahead);
        self.spent.set((worked, waited));
        if worked + waited < CHOOSE_EVERY {
            return rows;
        }
        self.spent.take();
        match ahead.is_zero() {
            true => rows + ROWS,
            false if waited > worked => rows.saturating_sub(ROWS),
            false => rows,
        }
    }

    /// Until when the work rests so that it is known what requests take without it. Where it does
    /// not reach its rate that matters most, unless it is the floor that it does not reach.
    fn rest(&self, now: Instant, due: Instant, is_above_floor: bool) -> Instant {
        let is_behind = !is_above_floor && now.since(due) > ARREARS_MAX / 2;
        if now < self.listens_next.get() || is_behind {
            return now;
        }
        let slowest = self.beside.borrow().slowest_of_a_hundred().unwrap_or(REST.end);
        let rest = (slowest * REST_OF_SLOWEST).clamp(REST.start, self.kind.rest_max());
        // First what the work has left in the queues ends, and what is asked last meets it again.
        self.quiet_time.set((now + rest / 4, now + rest * 2 / 3));
        self.listens_next.set(now + rest * REST_SHARE);
        self.due.set(due + rest);
        now + rest
    }

    /// Compares; where the work is dearest nothing is raised, for what a little more of it costs is
    /// less than answers differ by chance, and yet too much.
    fn judge(&self, now: Instant, is_dearest: bool) {
        let since = now.since(self.judged.get());
        if since < JUDGE_EVERY {
            return;
        }
        let reached = self.done.replace(0) as f64 / since.as_secs_f64();
        self.judged.set(now);
        let (mut beside, mut quiet) = (self.beside.borrow_mut(), self.quiet.borrow_mut());
        beside.age(0.85);
        quiet.age(0.97);
        let (Some(with), Some(without)) =
            (beside.slowest_of_a_hundred(), quiet.slowest_of_a_hundred())
        else {
            return;
        };
        let cost = with.as_secs_f64() / without.as_secs_f64();
        let rate = self.rate.get();
        let felt = self.kind.felt();
        if cost > felt.end {
            // What was slow at the old rate says nothing of the new one.
            *beside = Latencies::default();
            self.rate.set(rate.min(reached) * LOWERED_BY);
        } else if cost < felt.start && !is_dearest {
            // Not further than it gets.
            self.rate.set(rate.max((rate * RAISED_BY).min(reached * 2.0)));
        }
    }
}

fn time_of(bytes: u64, rate: f64) -> Duration {
    Duration::from_secs_f64(bytes as f64 / rate)
}

/// Times by their logarithm, older ones for less.
#[derive(Default)]
struct Latencies {
    weights: Vec<f64>,
    sum: f64,
}

/// Steps for each doubling of a time.
const STEPS: f64 = 16.0;

impl Latencies {
    fn add(&mut self, took: Duration) {
        let micros = took.as_secs_f64() * 1e6;
        let index = (micros.max(1.0).log2() * STEPS) as usize;
        if self.weights.len() <= index {
            self.weights.resize(index + 1, 0.0);
        }
        self.weights[index] += 1.0;
        self.sum += 1.0;
    }

    fn age(&mut self, by: f64) {
        self.weights.iter_mut().for_each(|weight| *weight *= by);
        self.sum *= by;
    }

    /// What one of a hundred exceeds; `None` where too few are known.
    fn slowest_of_a_hundred(&self) -> Option<Duration> {
        if self.sum < SAMPLES_MIN {
            return None;
        }
        let mut above = 0.0;
        let is_it = |weight: &f64| {
            above += weight;
            above >= self.sum / 100.0
        };
        let index = self.weights.iter().rev().position(is_it)?;
        let index = self.weights.len() - 1 - index;
        Some(Duration::from_secs_f64((index as f64 / STEPS).exp2() / 1e6))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Size;

    const MIB: u64 = 1 << 20;
    const PACE: BackgroundRate = BackgroundRate { min: Size(10 * MIB), max: Some(Size(400 * MIB)) };

    const DISKS: Kind =
        Kind { is_rotational: true, is_mirrored: false, is_of_loss: true, steps: Steps::Apart };

    fn at(ms: u64) -> Instant {
        Instant::START + Duration::from_millis(ms)
    }

    /// Works for so long in steps of a MiB that take 2 ms each; a request that is asked in a step
    /// takes so many microseconds, and else 100. Answers with bytes a second of the last second.
    fn work(pace: BackgroundRate, seconds: u64, beside_us: u64) -> u64 {
        let throttle = Throttle::new(at(0), DISKS);
        let (mut now, mut late) = (at(0), 0);
        while now < at(seconds * 1000) {
            let (begun, ended) = (now, now + Duration::from_millis(2));
            let note = |begun: Instant, us| throttle.note(begun, begun + Duration::from_micros(us));
            (0..20).for_each(|index| note(begun + Duration::from_micros(index * 100), beside_us));
            let step = Step { begun, ended, bytes: MIB, is_asked: true, share_done: 0.0 };
            late += if now > at(seconds * 1000 - 1000) { MIB } else { 0 };
            now = throttle.end(&step, pace).until;
            let mut rest = ended;
            while rest < now {
                note(rest, 100);
                rest += Duration::from_micros(100);
            }
        }
        late
    }

    #[test]
    fn it_goes_to_the_ceiling_where_nobody_feels_it() {
        let rate = work(PACE, 30, 100);
        assert!((360 * MIB..=450 * MIB).contains(&rate), "{rate}");
    }

    #[test]
    fn it_stays_at_the_floor_where_it_is_felt() {
        let rate = work(PACE, 30, 10_000);
        assert!((8 * MIB..=13 * MIB).contains(&rate), "{rate}");
    }

    #[test]
    fn it_rests_where_it_does_not_reach_a_rate_above_the_floor() {
        let throttle = Throttle::new(at(0), DISKS);
        throttle.rate.set(100.0 * MIB as f64);
        let (mut now, mut rests) = (at(0), 0);
        while now < at(20_000) {
            let (begun, ended) = (now, now + Duration::from_millis(100));
            let step = Step { begun, ended, bytes: MIB, is_asked: true, share_done: 0.0 };
            now = throttle.end(&step, PACE).until;
            rests += usize::from(ended + REST.start < now);
        }
        assert!(rests >= 2, "{rests}");
    }

    #[test]
    fn alone_it_goes_at_the_ceiling() {
        let throttle = Throttle::new(at(0), Kind { is_rotational: false, ..DISKS });
        let step =
            |begun| Step { begun, ended: begun, bytes: MIB, is_asked: false, share_done: 0.0 };
        assert_eq!(throttle.end(&step(at(0)), PACE).until, at(0) + Duration::from_micros(2500));
        let free = BackgroundRate { max: None, ..PACE };
        assert_eq!(throttle.end(&step(at(10)), free).until, at(10));
    }

    #[test]
    fn a_work_that_does_not_keep_up_takes_more_rows_and_one_that_rests_fewer() {
        let throttle = Throttle::new(at(0), DISKS);
        let step = |begun, took, bytes| {
            let (begun, ended) = (at(begun), at(begun + took));
            throttle.end(&Step { begun, ended, bytes, is_asked: true, share_done: 0.0 }, PACE).rows
        };
        assert_eq!(step(0, 300, MIB), Some(2 * ROWS));
        assert_eq!(step(300, 300, MIB), Some(4 * ROWS));
        assert_eq!(step(600, 1, 100 * MIB), Some(2 * ROWS));
    }

    #[test]
    fn steps_that_overlap_become_one_more_or_less_at_a_time() {
        let throttle = Throttle::new(at(0), Kind { steps: Steps::Overlapping, ..DISKS });
        let step = |begun, took, bytes| {
            let (begun, ended) = (at(begun), at(begun + took));
            throttle.end(&Step { begun, ended, bytes, is_asked: true, share_done: 0.0 }, PACE).rows
        };
        assert_eq!(step(0, 300, MIB), Some(2 * ROWS));
        assert_eq!(step(300, 1, 0), Some(2 * ROWS), "too soon");
        assert_eq!(step(301, 300, MIB), Some(3 * ROWS));
        assert_eq!(step(601, 1, 100 * MIB), Some(2 * ROWS));
    }

    #[test]
    fn the_floor_of_copies_rises_and_is_an_even_one_over_the_whole_rebuild() {
        let copies = Kind { is_mirrored: true, ..DISKS };
        let times = (0..1000).map(|done| 1.0 / copies.floor_share(f64::from(done) / 1000.0));
        let as_long = times.sum::<f64>() / 1000.0;
        assert!((0.85..1.0).contains(&as_long), "{as_long}");
        let lone = Kind { is_of_loss: false, ..copies };
        for even in [DISKS, lone, Kind { is_rotational: false, ..copies }] {
            assert_eq!((even.floor_share(0.0), even.floor_share(1.0)), (1.0, 1.0));
        }
    }

    #[test]
    fn copies_begin_below_the_floor_and_are_not_raised_there() {
        let throttle = Throttle::new(at(0), Kind { is_mirrored: true, ..DISKS });
        let mut now = at(0);
        while now < at(20_000) {
            (0..200).for_each(|_| throttle.note(now, now + Duration::from_micros(100)));
            let (begun, ended) = (now, now + Duration::from_millis(2));
            let step = Step { begun, ended, bytes: MIB, is_asked: true, share_done: 0.0 };
            now = throttle.end(&step, PACE).until;
        }
        assert_eq!(throttle.rate.get(), 0.3 * (10 * MIB) as f64);
    }

    #[test]
    fn one_of_a_hundred_is_slower() {
        let mut latencies = Latencies::default();
        (1..=1000).for_each(|ms| latencies.add(Duration::from_millis(ms)));
        let found = latencies.slowest_of_a_hundred().expect("enough are known");
        assert!((940..=1000).contains(&found.as_millis()), "{found:?}");
    }
}
