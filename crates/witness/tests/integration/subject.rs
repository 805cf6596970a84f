//! One device at the witness: what it keeps on its own disk, and what a restart finds.

use headpond_witness::field::content::BlockContent;
use headpond_witness::field::event::Event;
use headpond_witness::field::folder::LOG_BYTES_MAX;
use headpond_witness::field::ruling::Verdict;
use headpond_witness::field::subject::{Subject, SubjectError};
use headpond_witness::field::wire::{EVENTS_MAX, Hello, Purpose, Region};
use std::path::Path;

const BLOCKS: u64 = 16;

fn hello(purpose: Purpose) -> Hello {
    let region = Some(Region { start_bytes: 0, blocks: BLOCKS, atom_bytes: 512 });
    let boot = Some("before".to_owned());
    Hello { name: "disk".into(), purpose, region, device_bytes: 1 << 20, boot }
}

fn begun(path: &Path) -> Subject {
    let mut subject = Subject::create(path, &hello(Purpose::Write), 7).unwrap();
    subject.open_write(&hello(Purpose::Write)).unwrap();
    subject
}

/// Writes of one block after another, each with a flush.
fn writes(from: u64, count: u64) -> Vec<Event> {
    let one = |sequence| {
        let announced = Event::Announced { sequence, block: sequence % BLOCKS, blocks: 1 };
        let (begun, done) = (Event::Begun { sequence }, Event::Acknowledged { sequence });
        [announced, begun, done, Event::FlushBegun, Event::FlushAcknowledged]
    };
    (from..from + count).flat_map(one).collect()
}

/// Reports writes until the log was replaced; the number of the next write.
fn written_past_a_replacement(subject: &mut Subject, path: &Path) -> u64 {
    let a_lot = (EVENTS_MAX / 5) as u64;
    let (mut next, mut longest) = (1, 0);
    loop {
        subject.report(0, writes(next, a_lot)).unwrap();
        next += a_lot;
        let log = path.join("log").metadata().unwrap().len();
        if log < longest {
            return next;
        }
        longest = log;
        assert!(longest < LOG_BYTES_MAX + (64 << 10), "{longest} bytes");
    }
}

#[test]
fn the_story_of_a_block_goes_on_over_the_end_of_a_log() {
    let dir = headpond_testkit::tempdir();
    let mut subject = begun(dir.path());
    let next = written_past_a_replacement(&mut subject, dir.path());
    subject.lose(0).unwrap();
    subject.open_look(&hello(Purpose::Verify)).unwrap();
    subject.look(&vec![BlockContent::Zeroes; BLOCKS as usize]).unwrap();
    let first = subject.rule(0, true).unwrap().first.expect("everything is lost");
    let newest = (next - BLOCKS..next).find(|number| number % BLOCKS == first.block).unwrap();
    let told = |words: &str| first.story.iter().any(|line| line.ends_with(words));
    assert!(told(&format!("write {newest} is acknowledged")), "{:#?}", first.story);
    assert!(told("the writer is gone"), "{:#?}", first.story);
    let kept = ["log", "log.before"].map(|name| dir.path().join(name).metadata().unwrap().len());
    assert!(kept.iter().sum::<u64>() < 2 * (LOG_BYTES_MAX + (64 << 10)), "{kept:?}");
}

#[test]
fn the_log_never_grows_beyond_its_limit_and_a_restart_in_the_middle_is_a_cut() {
    let dir = headpond_testkit::tempdir();
    let mut subject = begun(dir.path());
    let next = written_past_a_replacement(&mut subject, dir.path());
    drop(subject);
    let mut subject = Subject::open(dir.path()).unwrap().expect("it is known");
    assert_eq!((subject.cuts(), subject.book().next_sequence()), (1, next));
    assert!(matches!(subject.open_write(&hello(Purpose::Write)), Err(SubjectError::NotLookedAt)));
}

/// Looks at a device that holds the newest write of each block, of so many writes.
fn look(subject: &mut Subject, boot: &str, writes: u64) -> headpond_witness::field::ruling::Ruling {
    let boot = Some(boot.to_owned());
    subject.open_look(&Hello { boot, ..hello(Purpose::Verify) }).unwrap();
    for block in 0..BLOCKS {
        let sequence = writes - (writes + BLOCKS - block) % BLOCKS;
        subject.look(&[BlockContent::Written { sequence, address: block * 4096 }]).unwrap();
    }
    subject.rule(0, true).unwrap()
}

#[test]
fn a_cut_is_counted_once_judged_and_then_forgotten() {
    let dir = headpond_testkit::tempdir();
    let mut subject = begun(dir.path());
    subject.report(0, writes(1, 40)).unwrap();
    subject.note_hook().unwrap();
    subject.lose(5).unwrap();
    subject.lose(6).unwrap();
    drop(subject);
    let mut subject = Subject::open(dir.path()).unwrap().expect("it is known");
    let ruling = look(&mut subject, "after", 40);
    assert_eq!((ruling.verdict, ruling.cut), (Verdict::Kept, Some(1)), "{ruling:#?}");
    assert_eq!((ruling.was_restarted, ruling.was_hooked), (Some(true), true));
    drop(subject);
    let mut subject = Subject::open(dir.path()).unwrap().expect("it is known");
    let ruling = look(&mut subject, "before", 40);
    assert_eq!((ruling.cut, ruling.was_restarted, ruling.was_hooked), (None, Some(false), false));
    subject.open_write(&hello(Purpose::Write)).unwrap();
}

#[test]
fn a_second_look_says_what_the_first_one_came_to_until_something_is_written() {
    let dir = headpond_testkit::tempdir();
    let mut subject = begun(dir.path());
    subject.report(0, writes(1, 40)).unwrap();
    subject.lose(5).unwrap();
    let first = look(&mut subject, "after", 24);
    assert_eq!((first.verdict, first.before), (Verdict::Broken, None), "{first:#?}");
    for _ in 0..2 {
        let again = look(&mut subject, "after", 24);
        assert_ne!(again.verdict, Verdict::Broken, "what was shown stays");
        assert_eq!(again.before, Some(Verdict::Broken), "{again:#?}");
        drop(subject);
        subject = Subject::open(dir.path()).unwrap().expect("it is known");
    }
    subject.open_write(&hello(Purpose::Write)).unwrap();
    subject.report(0, writes(41, 40)).unwrap();
    subject.report(0, vec![Event::Ended]).unwrap();
    let third = look(&mut subject, "after", 80);
    assert_eq!((third.verdict, third.before), (Verdict::Kept, None), "{third:#?}");
}

#[test]
fn findings_behind_the_end_of_the_region_are_refused() {
    let dir = headpond_testkit::tempdir();
    let mut subject = begun(dir.path());
    subject.report(0, writes(1, 1)).unwrap();
    subject.lose(0).unwrap();
    assert!(subject.look(&[BlockContent::Zeroes]).is_err(), "nobody said that they would look");
    subject.open_look(&hello(Purpose::Verify)).unwrap();
    assert!(subject.look(&vec![BlockContent::Zeroes; BLOCKS as usize + 1]).is_err());
}

#[test]
fn half_a_look_passes_nothing_and_leaves_the_cut_to_be_looked_at() {
    let dir = headpond_testkit::tempdir();
    let mut subject = begun(dir.path());
    subject.report(0, writes(1, 40)).unwrap();
    subject.lose(0).unwrap();
    subject.open_look(&hello(Purpose::Verify)).unwrap();
    let block = 40 % BLOCKS;
    for at in 0..block {
        let sequence = 32 + at;
        subject.look(&[BlockContent::Written { sequence, address: at * 4096 }]).unwrap();
    }
    let ruling = subject.rule(0, true).unwrap();
    assert_eq!((ruling.verdict, ruling.cut), (Verdict::Incomplete, Some(1)), "{ruling:#?}");
    assert!(subject.wants_a_look());
    assert_eq!(look(&mut subject, "after", 40).cut, Some(1));
    assert!(!subject.wants_a_look());
}

#[test]
fn cuts_after_a_new_beginning_are_not_mixed_with_those_before() {
    let dir = headpond_testkit::tempdir();
    for cut in 1..3 {
        let mut subject = begun(dir.path());
        subject.report(0, writes(1, 40)).unwrap();
        subject.lose(0).unwrap();
        assert_eq!(look(&mut subject, "after", 40).cut, Some(cut));
    }
}
