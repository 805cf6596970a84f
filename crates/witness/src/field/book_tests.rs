use super::*;
use crate::{Promise, Witness, WriteId};
use proptest::prelude::*;

fn book() -> Book {
    Book::new(8)
}

fn apply(book: &mut Book, events: &[Event]) {
    for event in events {
        book.apply(*event).unwrap_or_else(|error| panic!("{event:?}: {error}"));
    }
}

fn write(sequence: u64, block: u64) -> [Event; 3] {
    let announced = Event::Announced { sequence, block, blocks: 1 };
    [announced, Event::Begun { sequence }, Event::Acknowledged { sequence }]
}

const FLUSH: [Event; 2] = [Event::FlushBegun, Event::FlushAcknowledged];

#[test]
fn a_flush_promises_what_was_acknowledged_before_it_began_and_no_more() {
    let mut book = book();
    apply(&mut book, &write(1, 0));
    apply(&mut book, &[Event::FlushBegun]);
    apply(&mut book, &write(2, 0));
    apply(&mut book, &write(3, 1));
    apply(&mut book, &[Event::FlushAcknowledged]);
    assert_eq!((book.block(0).promised, book.block(0).possible), (1, 2));
    assert_eq!((book.block(1).promised, book.block(1).possible), (0, 3));
    apply(&mut book, &FLUSH);
    assert_eq!((book.block(0).promised, book.block(1).promised), (2, 3));
    assert!(book.is_settled());
}

#[test]
fn a_failed_flush_promises_nothing_and_a_stable_write_itself() {
    let mut book = book();
    apply(&mut book, &write(1, 0));
    apply(&mut book, &[Event::FlushBegun, Event::FlushFailed]);
    assert_eq!(book.block(0).promised, 0);
    let [announced, begun, _] = write(2, 1);
    apply(&mut book, &[announced, begun, Event::Stable { sequence: 2 }]);
    assert_eq!((book.block(0).promised, book.block(1).promised), (0, 2));
}

#[test]
fn what_was_announced_may_be_there_after_a_cut_and_not_after_an_end_in_order() {
    let mut book = book();
    apply(&mut book, &write(1, 0));
    apply(&mut book, &FLUSH);
    apply(&mut book, &[Event::Announced { sequence: 2, block: 0, blocks: 2 }]);
    let mut ended = book.clone();
    apply(&mut ended, &[Event::Ended]);
    assert!(ended.is_settled());
    book.cut();
    assert_eq!((book.block(0).promised, book.block(0).possible), (1, 2));
    book.settle(0, Settled::Values { oldest: 2, newest: 2 });
    book.settle(1, Settled::Values { oldest: 0, newest: 0 });
    assert!(book.is_settled());
    assert_eq!((book.block(0).promised, book.next_sequence()), (2, 3));
}

#[test]
fn reports_that_cannot_be_true_are_refused_and_change_nothing() {
    let mut book = book();
    let announce = |sequence, block, blocks| Event::Announced { sequence, block, blocks };
    apply(&mut book, &[announce(5, 0, 2), announce(6, 1, 1), Event::Begun { sequence: 5 }]);
    let before = book.clone();
    for (event, error) in [
        (announce(6, 0, 1), BookError::NotNew(6)),
        (announce(7, 7, 2), BookError::Outside(7)),
        (announce(7, 0, 0), BookError::Outside(7)),
        (announce(7, u64::MAX, 2), BookError::Outside(7)),
        (Event::Begun { sequence: 6 }, BookError::Overlapping(6)),
        (Event::Begun { sequence: 9 }, BookError::Unknown(9)),
        (Event::Acknowledged { sequence: 6 }, BookError::NotBegun(6)),
        (Event::Stable { sequence: 6 }, BookError::NotBegun(6)),
        (Event::FlushAcknowledged, BookError::Flush),
        (Event::Ended, BookError::NotOver),
    ] {
        assert_eq!(book.apply(event), Err(error));
        assert_eq!(book, before, "{event:?}");
    }
}

#[test]
fn what_a_peer_may_have_outstanding_is_bounded() {
    let mut book = book();
    for sequence in 1..=OUTSTANDING_MAX as u64 {
        apply(&mut book, &[Event::Announced { sequence, block: 0, blocks: 1 }]);
    }
    let sequence = OUTSTANDING_MAX as u64 + 1;
    let more = book.apply(Event::Announced { sequence, block: 0, blocks: 1 });
    assert_eq!(more, Err(BookError::TooMany));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Write { is_stable: bool },
    Answer { fails: bool },
    BeginFlush,
    EndFlush,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        any::<bool>().prop_map(|is_stable| Step::Write { is_stable }),
        any::<bool>().prop_map(|fails| Step::Answer { fails }),
        Just(Step::BeginFlush),
        Just(Step::EndFlush),
    ]
}

proptest! {
    /// The oracle of the simulations keeps every write and every instant. With one write of a block
    /// in flight at a time, the few numbers kept here must allow the same values.
    #[test]
    fn after_a_cut_the_same_values_are_allowed_as_by_the_oracle_of_the_simulations(
        steps in prop::collection::vec(step(), 0..40)
    ) {
        let (mut book, mut oracle) = (Book::new(1), Witness::new(4096, 1));
        let (mut in_flight, mut flush, mut next) = (None, None, 1);
        for step in steps {
            match step {
                Step::Write { is_stable } if in_flight.is_none() => {
                    let promise = if is_stable { Promise::Stable } else { Promise::Volatile };
                    let id = oracle.begin_write(0, 4096, promise);
                    prop_assert_eq!(id, WriteId(next));
                    let [announced, begun, _] = write(next, 0);
                    apply(&mut book, &[announced, begun]);
                    in_flight = Some((id, is_stable));
                    next += 1;
                }
                Step::Answer { fails } => {
                    let Some((id, is_stable)) = in_flight.take() else { continue };
                    let sequence = id.0;
                    let event = match (fails, is_stable) {
                        (true, _) => Event::Failed { sequence },
                        (_, true) => Event::Stable { sequence },
                        _ => Event::Acknowledged { sequence },
                    };
                    apply(&mut book, &[event]);
                    if fails { oracle.fail(id) } else { oracle.acknowledge(id) }
                }
                Step::BeginFlush if flush.is_none() => {
                    apply(&mut book, &[Event::FlushBegun]);
                    flush = Some(oracle.begin_flush());
                }
                Step::EndFlush => {
                    let Some(flush) = flush.take() else { continue };
                    apply(&mut book, &[Event::FlushAcknowledged]);
                    oracle.acknowledge_flush(flush);
                }
                _ => {}
            }
        }
        book.cut();
        oracle.crash();
        let block = book.block(0);
        let allowed: Vec<u64> = oracle.allowed(0).iter().map(|write| write.0).collect();
        let expected: Vec<u64> = (block.promised..=block.possible).collect();
        prop_assert_eq!(allowed, expected);
    }
}
