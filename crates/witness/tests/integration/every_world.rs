//! The oracle against an enumerator that shares none of its reasoning: it carries every possible
//! world of one block through a history and collects what reads may show.
//!
//! A world is the sequence of values that the block has held since the last promise about it. A
//! write in flight may be applied at any time until it is answered; a power cut leaves any value of
//! the sequence. The oracle must allow a value exactly where some world shows it.

use headpond_witness::{FlushId, Promise, Witness, WriteId};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug)]
enum Step {
    Begin(Promise),
    /// Answers one of the writes in flight.
    Acknowledge(usize),
    Fail(usize),
    BeginFlush,
    EndFlush(usize),
    /// Reads, and sees one of the values that are allowed.
    Read(usize),
    Crash,
}

/// Values since the last promise, oldest first; never empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct World {
    held: Vec<WriteId>,
    /// Index in `held` before which nothing can come back.
    stable: usize,
    /// Writes in flight that are applied already.
    applied: BTreeSet<WriteId>,
    /// For each flush in progress, what was held when it began.
    flushes: BTreeMap<usize, usize>,
}

impl World {
    fn current(&self) -> WriteId {
        *self.held.last().expect("never empty")
    }

    fn apply(&self, write: WriteId) -> World {
        let mut world = self.clone();
        world.held.push(write);
        world.applied.insert(write);
        world
    }
}

#[derive(Default)]
struct Enumerator {
    worlds: BTreeSet<World>,
    in_flight: BTreeMap<WriteId, Promise>,
    flushes: usize,
}

impl Enumerator {
    fn new() -> Self {
        let (held, stable) = (vec![WriteId(0)], 0);
        let start = World { held, stable, applied: BTreeSet::new(), flushes: BTreeMap::new() };
        Self { worlds: [start].into(), ..Self::default() }
    }

    /// Every world in which any of the writes in flight have been applied meanwhile, in any order.
    fn let_time_pass(&mut self) {
        let mut fresh: Vec<World> = self.worlds.iter().cloned().collect();
        while let Some(world) = fresh.pop() {
            let waiting = self.in_flight.keys().filter(|write| !world.applied.contains(write));
            for next in waiting.map(|write| world.apply(*write)) {
                if self.worlds.insert(next.clone()) {
                    fresh.push(next);
                }
            }
        }
    }

    fn allowed(&self) -> BTreeSet<WriteId> {
        let current = self.worlds.iter().map(World::current);
        current.chain(self.in_flight.keys().copied()).collect()
    }

    fn map(&mut self, change: impl Fn(World) -> Vec<World>) {
        self.worlds = std::mem::take(&mut self.worlds).into_iter().flat_map(change).collect();
        assert!(!self.worlds.is_empty(), "the history is possible");
    }

    fn acknowledge(&mut self, write: WriteId) {
        let promise = self.in_flight.remove(&write).expect("in flight");
        self.map(|mut world| {
            if !world.applied.remove(&write) {
                return vec![];
            }
            if promise == Promise::Stable {
                let at = world.held.iter().position(|held| *held == write).expect("applied");
                world.stable = world.stable.max(at);
            }
            vec![world]
        });
    }

    fn fail(&mut self, write: WriteId) {
        self.in_flight.remove(&write).expect("in flight");
        self.map(|mut world| {
            world.applied.remove(&write);
            vec![world]
        });
    }

    fn begin_flush(&mut self) -> usize {
        let flush = self.flushes;
        self.flushes += 1;
        self.map(|mut world| {
            world.flushes.insert(flush, world.held.len() - 1);
            vec![world]
        });
        flush
    }

    fn end_flush(&mut self, flush: usize) {
        self.map(|mut world| {
            let at = world.flushes.remove(&flush).expect("in progress");
            world.stable = world.stable.max(at);
            vec![world]
        });
    }

    fn observe(&mut self, value: WriteId) {
        if !self.in_flight.contains_key(&value) {
            self.map(|world| if world.current() == value { vec![world] } else { vec![] });
        }
    }

    fn crash(&mut self) {
        self.in_flight.clear();
        self.map(|world| {
            let survivor = |value: &WriteId| World {
                held: vec![*value],
                stable: 0,
                applied: BTreeSet::new(),
                flushes: BTreeMap::new(),
            };
            world.held[world.stable..].iter().map(survivor).collect()
        });
    }
}

/// Runs both and compares what they allow after every step.
fn compare(steps: &[Step]) -> Result<(), TestCaseError> {
    let mut witness = Witness::new(4096, 1);
    let mut enumerator = Enumerator::new();
    let mut flushes: Vec<(usize, FlushId)> = Vec::new();
    for step in steps {
        let in_flight: Vec<WriteId> = enumerator.in_flight.keys().copied().collect();
        match *step {
            Step::Begin(promise) if in_flight.len() < 3 => {
                let write = witness.begin_write(0, 4096, promise);
                enumerator.in_flight.insert(write, promise);
            }
            Step::Acknowledge(index) if !in_flight.is_empty() => {
                let write = in_flight[index % in_flight.len()];
                witness.acknowledge(write);
                enumerator.acknowledge(write);
            }
            Step::Fail(index) if !in_flight.is_empty() => {
                let write = in_flight[index % in_flight.len()];
                witness.fail(write);
                enumerator.fail(write);
            }
            Step::BeginFlush => flushes.push((enumerator.begin_flush(), witness.begin_flush())),
            Step::EndFlush(index) if !flushes.is_empty() => {
                let (number, flush) = flushes.remove(index % flushes.len());
                witness.acknowledge_flush(flush);
                enumerator.end_flush(number);
            }
            Step::Read(index) => {
                let allowed: Vec<WriteId> = enumerator.allowed().into_iter().collect();
                let value = allowed[index % allowed.len()];
                witness.check_now(0, &block(&witness, value)).map_err(|verdict| {
                    TestCaseError::fail(format!("refused a possible read: {verdict}"))
                })?;
                enumerator.observe(value);
            }
            Step::Crash => {
                flushes.clear();
                witness.crash();
                enumerator.crash();
            }
            _ => {}
        }
        enumerator.let_time_pass();
        let allowed: BTreeSet<WriteId> = witness.allowed(512).into_iter().collect();
        prop_assert_eq!(&allowed, &enumerator.allowed(), "after {:?}", step);
        prop_assert!(refuses_all_others(&witness, &allowed));
    }
    Ok(())
}

fn block(witness: &Witness, value: WriteId) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    if value != WriteId(0) {
        witness.payload().fill(value, 0, &mut bytes);
    }
    bytes
}

fn refuses_all_others(witness: &Witness, allowed: &BTreeSet<WriteId>) -> bool {
    let others = (0..20).map(WriteId).filter(|value| !allowed.contains(value));
    others.into_iter().all(|value| witness.clone().check_now(0, &block(witness, value)).is_err())
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Begin(Promise::Volatile)),
        1 => Just(Step::Begin(Promise::Stable)),
        4 => (0usize..3).prop_map(Step::Acknowledge),
        1 => (0usize..3).prop_map(Step::Fail),
        2 => Just(Step::BeginFlush),
        2 => (0usize..2).prop_map(Step::EndFlush),
        3 => (0usize..8).prop_map(Step::Read),
        2 => Just(Step::Crash),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]
    #[test]
    fn the_oracle_allows_what_some_world_shows_and_nothing_else(
        steps in prop::collection::vec(step(), 1..16),
    ) {
        compare(&steps)?;
    }
}
