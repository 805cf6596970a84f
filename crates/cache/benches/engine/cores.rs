//! A slice on each of two cores: two threads that share nothing, each with an executor, a RAM cache
//! device and a null core of its own (decision 0006), beside as many threads that only copy.
//!
//! 1. One thread works alone, then copies alone; 2. both work, then both copy, beginning together.
//!
//! What two gain over one is counted until the slower one has done its share. Memory that both have
//! to go through counts against the slices and against the copies.

use crate::work::{Bench, ROUNDS, Row, Work, timed};
use crate::{Clock, copies, median, memory};
use headpond_block::devices::RamDevice;
use headpond_block::{Buffer, Executor, Order};
use std::rc::Rc;
use std::sync::Barrier;
use std::time::Instant;

/// What is measured on two cores.
pub const ROWS: [Row; 3] = [
    Row::plain(Work::Fill, 4 << 10),
    Row::plain(Work::WriteHit, 4 << 10),
    Row::plain(Work::ReadHit, 4 << 10),
];

/// Nanoseconds of one request on one thread.
#[derive(Clone, Copy)]
struct Times {
    alone: f64,
    together: f64,
}

impl Times {
    /// How many times as much two threads do in a time as one.
    fn gain(self, other: Self) -> f64 {
        2.0 * self.alone / self.together.max(other.together)
    }
}

/// Prints what two threads gain over one.
pub fn measure(row: Row) {
    let turn = Barrier::new(2);
    let [first, second] = std::thread::scope(|scope| {
        [true, false]
            .map(|is_first| {
                scope.spawn({
                    let turn = &turn;
                    move || Thread::new(row, turn, is_first).run()
                })
            })
            .map(|thread| thread.join().expect("measured"))
    });
    let gain = |part: fn(&[Times; 2]) -> Times| {
        let rounds = first.iter().zip(&second);
        median(rounds.map(|(first, second)| part(first).gain(part(second))).collect())
    };
    let (ours, limit) = (gain(|[ours, _]| *ours), gain(|[_, copies]| *copies));
    let name = format!("{} on two cores", row.name());
    println!(
        "{name:<34} {ours:.2} times one   copy {limit:.2} times one   {:.2} of it",
        ours / limit
    );
    println!(r#"{{"name":"{name}","unit":"times one","ours":{ours:.3},"limit":{limit:.3}}}"#);
}

/// One of the two.
struct Thread<'a> {
    row: Row,
    turn: &'a Barrier,
    /// This one works alone as well.
    is_first: bool,
    executor: Executor,
    ram: Rc<RamDevice>,
    arena: Buffer,
}

impl<'a> Thread<'a> {
    fn new(row: Row, turn: &'a Barrier, is_first: bool) -> Self {
        let executor = Executor::new(Box::new(Clock(Instant::now())), Order::Fifo);
        let (ram, arena) = memory(1);
        Self { row, turn, is_first, executor, ram, arena }
    }

    /// The times of requests and of copies, for each round.
    fn run(self) -> Vec<[Times; 2]> {
        let round = |round| {
            [
                self.times(|| self.requests(round)),
                self.times(|| {
                    self.turn.wait();
                    copies(&self.arena, self.row, round)
                }),
            ]
        };
        (0..ROUNDS).map(round).collect()
    }

    /// Carries `work` out alone, where that is this thread's part, and then beside the other one.
    /// `work` waits for its turn when everything is prepared.
    fn times(&self, work: impl Fn() -> f64) -> Times {
        let alone = match self.is_first {
            true => work(),
            false => {
                self.turn.wait();
                f64::NAN
            }
        };
        self.turn.wait();
        let together = work();
        self.turn.wait();
        Times { alone, together }
    }

    /// Nanoseconds of one request on a new slice.
    fn requests(&self, round: u64) -> f64 {
        let (row, requests, runtime) = (self.row, self.row.requests(), self.executor.runtime());
        let measured = self.executor.block_on(async {
            let bench = Bench::new(&runtime, &self.ram, row, round).await;
            row.prepare(&bench, requests).await;
            self.turn.wait();
            timed(requests, row.carry_out(&bench, requests, round)).await
        });
        measured.expect("it waits for nothing")
    }
}
