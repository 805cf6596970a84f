use super::*;
use crate::field::event::Event;

const BLOCKS: u64 = 4;

/// Blocks 0 and 1 are written twice, the first time with a flush; block 2 once with one.
fn book() -> Book {
    let mut book = Book::new(BLOCKS);
    let mut sequence = 0;
    let mut write = |book: &mut Book, block| {
        sequence += 1;
        let announced = Event::Announced { sequence, block, blocks: 1 };
        for event in [announced, Event::Begun { sequence }, Event::Acknowledged { sequence }] {
            book.apply(event).unwrap();
        }
    };
    for block in [0, 1, 2] {
        write(&mut book, block);
    }
    book.apply(Event::FlushBegun).unwrap();
    book.apply(Event::FlushAcknowledged).unwrap();
    for block in [0, 1] {
        write(&mut book, block);
    }
    book.cut();
    book
}

fn at(block: u64, sequence: u64) -> BlockContent {
    BlockContent::Written { sequence, address: block * BLOCK_BYTES }
}

fn good() -> [BlockContent; 4] {
    [at(0, 4), at(1, 2), at(2, 3), BlockContent::Foreign]
}

fn rule_on(atom_bytes: u64, found: &[BlockContent]) -> Ruling {
    let mut book = book();
    let mut judge = Judge::new(atom_bytes);
    found.iter().for_each(|found| judge.look(&book, found));
    judge.rule(&mut book, true)
}

fn rule(found: &[BlockContent]) -> Ruling {
    rule_on(BLOCK_BYTES, found)
}

#[test]
fn what_was_promised_and_what_may_be_there_is_kept() {
    let ruling = rule(&good());
    assert_eq!(ruling.verdict, Verdict::Kept);
    assert_eq!((ruling.blocks_promised, ruling.blocks_of_this_run), (3, 3));
    assert_eq!((ruling.unpromised_kept, ruling.unpromised_gone), (1, 1));
}

#[test]
fn each_offence_has_its_name_and_its_block() {
    let damaged = [Sector::Damaged; 8];
    let mut torn = [Sector::Written { sequence: 3, address: 8192 }; 8];
    torn[0] = Sector::Zeroes;
    for (found, offence) in [
        (BlockContent::Zeroes, Offence::Lost),
        (BlockContent::Foreign, Offence::Lost),
        (at(2, 2), Offence::Stale),
        (at(1, 3), Offence::Misdirected),
        (at(2, 9), Offence::ThirdValue),
        (BlockContent::Mixed(damaged), Offence::ThirdValue),
        (BlockContent::Mixed(torn), Offence::Torn),
        (BlockContent::Unreadable, Offence::Unreadable),
    ] {
        let mut all = good();
        all[2] = found.clone();
        let ruling = rule(&all);
        let first = ruling.first.expect("an offence");
        assert_eq!((ruling.verdict, first.offence, first.block), (Verdict::Broken, offence, 2));
        assert_eq!(ruling.counts.total(), 1, "{found:?}");
    }
}

#[test]
fn a_loss_is_reordered_where_something_later_survived() {
    let mut all = good();
    all[2] = BlockContent::Zeroes;
    assert_eq!(rule(&all).counts.reordered, 1, "write 4 began after the flush");
    all[0] = at(0, 1);
    assert_eq!(rule(&all).counts.reordered, 0, "nothing after the flush is there");
}

#[test]
fn a_torn_block_is_judged_by_sector_where_the_device_promises_no_more() {
    let mut all = good();
    let mut sectors = [Sector::Written { sequence: 1, address: 0 }; 8];
    sectors[7] = Sector::Written { sequence: 4, address: 0 };
    all[0] = BlockContent::Mixed(sectors);
    assert_eq!(rule(&all).counts.torn, 1);
    let ruling = rule_on(SECTOR_BYTES, &all);
    assert_eq!((ruling.verdict, ruling.torn_allowed), (Verdict::Kept, 1));
    sectors[3] = Sector::Zeroes;
    all[0] = BlockContent::Mixed(sectors);
    assert_eq!(rule_on(SECTOR_BYTES, &all).counts.lost, 1, "what was promised is not there");
}

#[test]
fn nothing_passes_that_was_not_looked_at_or_not_promised() {
    assert_eq!(rule(&good()[..3]).verdict, Verdict::Incomplete);
    assert_eq!(rule(&[]).verdict, Verdict::Incomplete);
    let mut book = Book::new(1);
    let mut judge = Judge::new(BLOCK_BYTES);
    judge.look(&book, &BlockContent::Zeroes);
    assert_eq!(judge.rule(&mut book, true).verdict, Verdict::NothingPromised);
}

#[test]
fn what_a_look_has_shown_stays() {
    let mut book = book();
    let mut judge = Judge::new(BLOCK_BYTES);
    good().iter().for_each(|found| judge.look(&book, found));
    assert_eq!(judge.rule(&mut book, true).verdict, Verdict::Kept);
    let mut judge = Judge::new(BLOCK_BYTES);
    let [first, _, third, fourth] = good();
    [first, at(1, 5), third, fourth].iter().for_each(|found| judge.look(&book, found));
    assert_eq!(judge.rule(&mut book, true).counts.third_value, 1, "it was gone and is back");
}

#[test]
fn what_was_told_is_not_told_again_until_something_new_is_promised() {
    let mut book = book();
    let mut all = good();
    all[2] = BlockContent::Mixed([Sector::Damaged; 8]);
    let look = |book: &mut Book| {
        let mut judge = Judge::new(BLOCK_BYTES);
        all.iter().for_each(|found| judge.look(book, found));
        judge.rule(book, true).verdict
    };
    assert_eq!(look(&mut book), Verdict::Broken);
    assert_eq!(look(&mut book), Verdict::Kept);
    let sequence = book.next_sequence();
    let announced = Event::Announced { sequence, block: 2, blocks: 1 };
    for event in [announced, Event::Begun { sequence }, Event::Stable { sequence }] {
        book.apply(event).unwrap();
    }
    assert_eq!(look(&mut book), Verdict::Broken);
}

#[test]
fn a_block_of_two_values_stays_one_of_them() {
    let mut book = book();
    let mut all = good();
    let mut sectors = [Sector::Written { sequence: 1, address: 0 }; 8];
    sectors[7] = Sector::Written { sequence: 4, address: 0 };
    all[0] = BlockContent::Mixed(sectors);
    for _ in 0..2 {
        let mut judge = Judge::new(SECTOR_BYTES);
        all.iter().for_each(|found| judge.look(&book, found));
        assert_eq!(judge.rule(&mut book, true).verdict, Verdict::Kept);
    }
    assert!(book.is_settled());
}

#[test]
fn without_a_flush_a_look_settles_nothing() {
    let mut book = book();
    let mut judge = Judge::new(BLOCK_BYTES);
    good().iter().for_each(|found| judge.look(&book, found));
    assert_eq!(judge.rule(&mut book, false).verdict, Verdict::Kept);
    assert!(!book.is_settled());
}
