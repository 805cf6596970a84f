//! Runs of rows that are rebuilt concurrently.
//!
//! A *run* is some neighbouring rows, which each drive that takes part in them reads or writes
//! sequentially. A device is rebuilt by one run after the other, since it is the bottleneck. For a
//! rebuild onto distributed spare space, runs of several columns are in flight, so that all members
//! are busy: when one ends the next begins, where its members have the least to do.
//!
//! **Invariants**: runs in flight take no more memory than the limit; a run that has begun is
//! completed.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::Poll;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use headpond_block::{Outcome, Submission};

use super::Array;
use super::beside::ROWS_AT_A_TIME;
use super::fill::Goal;
use super::members::Lent;
use crate::layout::{Role, StripCell};

/// Runs that a member takes part in at a time.
const RUNS_OF_MEMBER_MAX: usize = 8;
/// Rows of a run without client load: drives seek between runs, less often the longer these are.
const ROWS_OF_RUN_ALONE: u64 = 2 * ROWS_AT_A_TIME;

/// A run's number, and what it comes to.
type Filling<'a> = Pin<Box<dyn Future<Output = (u64, Outcome)> + 'a>>;

/// The runs of one goal.
#[derive(Default)]
pub(super) struct Runs<'a> {
    filling: FuturesUnordered<Filling<'a>>,
    /// Results of completed runs that were not waited for yet.
    ended: Vec<(u64, Outcome)>,
    under_way: Vec<Run>,
    begun: u64,
    /// Those of spare space at which runs may begin, in order.
    piles: VecDeque<Pile>,
    /// The pile behind them.
    next_pile: u64,
}

struct Run {
    number: u64,
    /// Those that take memory.
    rows: u64,
    parts: Vec<Role>,
}

/// The rest of some adjacent rows.
struct Pile {
    /// The first row that no run has had.
    next: u64,
    end: u64,
    /// The members read from or written to for each of them.
    parts: Vec<Role>,
}

impl<'a> Runs<'a> {
    /// Waits until a run has ended.
    ///
    /// # Errors
    /// The first of a run, when none is in progress any more.
    pub(super) async fn some(&mut self) -> Outcome {
        if self.ended.is_empty() {
            self.ended.extend(self.filling.next().await);
        }
        // All others that have ended by then.
        self.beside(std::future::ready(())).await;
        let outcome = self.ended.drain(..).map(|(number, outcome)| {
            self.under_way.retain(|run| run.number != number);
            outcome
        });
        let outcome = outcome.fold(Ok(()), Outcome::and);
        if outcome.is_err() {
            // Half of a run would leave its stripes locked, and what is written there unknown.
            while self.filling.next().await.is_some() {}
            self.under_way.clear();
        }
        outcome
    }

    /// Waits until no run is in progress.
    ///
    /// # Errors
    /// As there.
    pub(super) async fn end(&mut self) -> Outcome {
        while !self.under_way.is_empty() {
            self.some().await?;
        }
        Ok(())
    }

    /// Waits for something else while the runs go on.
    pub(super) async fn beside<T>(&mut self, other: impl Future<Output = T>) -> T {
        let mut other = pin!(other);
        std::future::poll_fn(|context| {
            while let Poll::Ready(Some(ended)) = self.filling.poll_next_unpin(context) {
                self.ended.push(ended);
            }
            other.as_mut().poll(context)
        })
        .await
    }

    fn begin(
        &mut self,
        (rows, parts): (std::ops::Range<u64>, Vec<Role>),
        fill: impl FnOnce(std::ops::Range<u64>) -> Submission<'a>,
    ) {
        let number = self.begun;
        self.begun += 1;
        let taking = if parts.is_empty() { 0 } else { rows.end - rows.start };
        self.under_way.push(Run { number, rows: taking, parts });
        let filled = fill(rows);
        self.filling.push(Box::pin(async move { (number, filled.await) }));
    }

    fn rows_under_way(&self) -> u64 {
        self.under_way.iter().map(|run| run.rows).sum()
    }

    /// Runs in which a member takes part.
    fn runs_of(&self, role: Role) -> usize {
        self.under_way.iter().filter(|run| run.parts.contains(&role)).count()
    }

    /// The pile of which the next run is best taken: whose busiest member has least to do. `None`
    /// where all are busy enough.
    fn best_pile(&self) -> Option<usize> {
        let work = |pile: &Pile| {
            let each = pile.parts.iter().map(|role| self.runs_of(*role));
            each.fold((0, 0), |(most, sum), runs| (runs.max(most), sum + runs))
        };
        let works = self.piles.iter().map(work).enumerate();
        let works = works.filter(|(_, (most, _))| *most < RUNS_OF_MEMBER_MAX);
        works.min_by_key(|(_, work)| *work).map(|(at, _)| at)
    }

    /// Takes the next run of a pile.
    fn take(&mut self, at: usize, rows_max: u64) -> (std::ops::Range<u64>, Vec<Role>) {
        let pile = &mut self.piles[at];
        // If all members are idle, parts gain nothing.
        let rows_max = if pile.parts.is_empty() { u64::MAX } else { rows_max };
        let rows = pile.next..pile.end.min(pile.next.saturating_add(rows_max));
        pile.next = rows.end;
        let parts = pile.parts.clone();
        if pile.next == pile.end {
            self.piles.remove(at);
        }
        (rows, parts)
    }
}

impl Array {
    /// Starts further runs as far as the limit allows.
    pub(super) fn begin_runs<'a>(&'a self, goal: &'a Goal, runs: &mut Runs<'a>) {
        let fill = |rows| Submission::pending(self.fill_run(goal, rows));
        match goal {
            Goal::Device(_, filling) => {
                if runs.under_way.is_empty() {
                    let start = filling.progress.rows();
                    let end = self.layout.rows().min(start + self.rows_at_a_time());
                    runs.begin((start..end, Vec::new()), fill);
                }
            }
            Goal::Slot(lent) => {
                let rows_max = self.spread_rows_at_a_time();
                let of_run = if self.is_alone() { ROWS_OF_RUN_ALONE } else { ROWS_AT_A_TIME };
                let of_run = of_run.min(rows_max);
                while runs.under_way.is_empty() || runs.rows_under_way() + of_run <= rows_max {
                    self.note_piles(lent, runs);
                    let Some(at) = runs.best_pile() else { break };
                    let run = runs.take(at, of_run);
                    runs.begin(run, fill);
                }
            }
        }
    }

    /// Adds the piles that have come near enough to the first row that is not filled.
    fn note_piles<'a>(&'a self, lent: &Lent, runs: &mut Runs<'a>) {
        let (height, rows) = (self.layout.pile_rows(), self.layout.rows());
        let first = lent.progress.rows() / height;
        // Enough for some that have few members in common.
        let window = first..rows.div_ceil(height).min(first + 2 * self.layout.members() as u64);
        for index in window.start.max(runs.next_pile)..window.end {
            runs.next_pile = index + 1;
            let end = rows.min((index + 1) * height);
            let next = (index * height..end).find(|row| !lent.progress.holds(*row));
            if let Some(next) = next {
                let parts = self.parts_in(lent, next);
                runs.piles.push_back(Pile { next, end, parts });
            }
        }
    }

    /// The members read from or written to for a row.
    fn parts_in(&self, lent: &Lent, row: u64) -> Vec<Role> {
        let home = self.members.home(StripCell { role: lent.role, row });
        let Some((stripe, _)) = home.and_then(|home| self.layout.strip_in(home)) else {
            return Vec::new();
        };
        let read = self.layout.strips().map(|strip| self.layout.cell(stripe, strip).role);
        let read = read.filter(|role| *role != lent.role);
        read.chain([self.layout.spare_cell(lent.slot, row).role]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_block::{Executor, Order, Runtime, VirtualClock};
    use std::time::Duration;

    /// Begins a run that takes so many milliseconds, one by one.
    fn begin<'a>(runs: &mut Runs<'a>, runtime: &'a Runtime, ms: u64) {
        let work = async move {
            for _ in 0..ms {
                runtime.sleep(Duration::from_millis(1)).await;
            }
            Ok(())
        };
        runs.begin((0..1, Vec::new()), |_| Submission::pending(work));
    }

    #[test]
    fn runs_go_on_while_their_caller_waits_for_something_else() {
        let executor = Executor::new(Box::<VirtualClock>::default(), Order::Fifo);
        let runtime = executor.runtime();
        let life = async {
            let begun = runtime.now();
            let mut runs = Runs::default();
            [30, 10, 10].into_iter().for_each(|ms| begin(&mut runs, &runtime, ms));
            runs.some().await.unwrap();
            assert_eq!((runs.under_way.len(), runtime.now().since(begun).as_millis()), (1, 10));
            runs.beside(runtime.sleep(Duration::from_millis(50))).await;
            assert_eq!(runs.under_way.len(), 1, "nobody has waited for it");
            runs.end().await.unwrap();
            assert_eq!((runs.under_way.len(), runtime.now().since(begun).as_millis()), (0, 60));
        };
        executor.block_on(life).unwrap();
    }
}
