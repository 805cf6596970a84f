//! Seeds that every change has to pass, and a few that nobody has tried; minutes of those are a
//! conclusion.

use headpond_swarm::{Failure, Hunt, Tally, hunt};
use std::time::{Duration, SystemTime};

/// The same for everybody.
const CORPUS: std::ops::Range<u64> = 1..161;
const FRESH_CASES: u64 = 40;

fn tell(failures: &[Failure]) -> String {
    let one = |failure: &Failure| {
        let Failure { seed, offence, .. } = failure;
        format!("\nseed {seed}: {offence}\nreplay: cargo xtask swarm --replay {seed}")
    };
    failures.iter().map(one).collect()
}

fn print(tally: &Tally) {
    println!(
        "{} cases: {} requests, {} crashes, {} faults",
        tally.cases,
        tally.requests,
        tally.crashes(),
        tally.faults_total()
    );
}

#[test]
fn the_corpus_is_kept_to() {
    let cases_max = CORPUS.end - CORPUS.start;
    let order = Hunt { cases_max, stops_at_failure: false, ..Hunt::from_seed(CORPUS.start) };
    let (tally, failures) = hunt(&order, |_| {});
    print(&tally);
    assert!(failures.is_empty(), "{}", tell(&failures));
    assert_eq!(tally.cases, cases_max);
    // What a case is, on average: less would be a judge who looks away.
    assert!(tally.requests >= 1000 * cases_max, "{tally:?}");
    assert!(tally.crashes() >= 3 * cases_max, "{tally:?}");
    assert!(tally.faults_total() >= 2 * cases_max, "{tally:?}");
}

#[test]
fn fresh_seeds_find_nothing() {
    hunt_fresh(|order| Hunt { cases_max: FRESH_CASES, ..order });
}

fn hunt_fresh(until: impl FnOnce(Hunt) -> Hunt) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let order = until(Hunt::from_seed(now.as_secs() * 1_000_000));
    println!("from seed {} on", order.seed);
    let (tally, failures) = hunt(&order, |_| {});
    print(&tally);
    assert!(failures.is_empty(), "{}", tell(&failures));
    assert!(tally.cases > 0);
}

/// Its journal was away when the power went, so that the parity counts for nothing: a copy without
/// two members is rightly refused, also after the orderly stop that followed.
#[test]
fn a_journal_that_is_away_at_a_cut_excuses_the_refusal_of_a_degraded_copy() {
    assert!(headpond_swarm::run_case(1_795_387_535_000_625, &mut |_| {}).is_ok());
}

/// The journal had everything that a cut had torn, and was away at the next start: the parity had
/// to be computed anew, and the life was too short for that.
#[test]
fn a_journal_that_is_away_after_a_cut_excuses_the_refusal_of_a_degraded_copy() {
    assert!(headpond_swarm::run_case(190_003_192, &mut |_| {}).is_ok());
}

/// Where a core lies behind one whose members have weights was reckoned in two ways.
#[test]
fn a_core_behind_members_that_differ_lies_where_it_was_made() {
    assert!(headpond_swarm::run_case(170_001_877, &mut |_| {}).is_ok());
}

/// A stop left the erasure of a member under way that another had replaced.
#[test]
fn a_stop_waits_for_the_erasure_of_whoever_was_replaced() {
    assert!(headpond_swarm::run_case(170_002_187, &mut |_| {}).is_ok());
}

/// A member was replaced while it was away; an array that grew was given the disk that was not
/// there, and lacked it at the next start.
#[test]
fn a_disk_that_is_away_is_given_to_nobody() {
    assert!(headpond_swarm::run_case(1_795_477_032_000_218, &mut |_| {}).is_ok());
}

/// What a write-through had shown that the core then refused was to be recorded as dirty, and was
/// not where the map had no extents left for lines in many pieces.
#[test]
fn what_a_refused_write_through_has_shown_stays_though_its_line_is_scattered() {
    assert!(headpond_swarm::run_case(460_001_972, &mut |_| {}).is_ok());
}

/// Who had been away was back and the array whole; at the next cut one was lost that the journal
/// had not been told of.
#[test]
fn who_has_come_back_is_not_known_to_be_lost() {
    assert!(headpond_swarm::run_case(460_000_198, &mut |_| {}).is_ok());
}

/// A member was gone at the cut: what only torn parity could tell is an error with one copy of the
/// cache as it is with both.
#[test]
fn a_start_with_one_copy_of_the_cache_is_judged_like_one_with_all() {
    assert!(headpond_swarm::run_case(1_795_583_398_000_729, &mut |_| {}).is_ok());
}

/// An array without redundancy had lost a member when a copy of the cache left: the other copy was
/// told so again with each write, and the array, which had failed, could not be.
#[test]
fn a_copy_that_leaves_is_counted_once_though_the_array_has_failed() {
    assert!(headpond_swarm::run_case(771_101_236, &mut |_| {}).is_ok());
}

/// A scrub was asked of an array without redundancy, on which work beside the requests goes on only
/// where it is grown: the volume panicked then, and waited for ever at all other times.
#[test]
fn an_array_without_redundancy_that_grows_is_not_scrubbed() {
    assert!(headpond_swarm::run_case(1823, &mut |_| {}).is_ok());
}

/// A new journal lies on the device of the one that was lost.
#[test]
fn a_journal_comes_to_where_the_lost_one_lay() {
    assert!(headpond_swarm::run_case(1_795_593_430_000_030, &mut |_| {}).is_ok());
}

/// A cut between the two steps of giving up a copy had left it out of use, which nothing else
/// mends: it was waited for until every role had a member.
#[test]
fn a_copy_that_a_cut_left_out_of_use_goes_or_another_takes_its_place() {
    assert!(headpond_swarm::run_case(920_000_415, &mut |_| {}).is_ok());
}

/// The first of three copies was given up, and the power went before the last had heard of it: at
/// the next start it was given a superblock that nobody could read.
#[test]
fn a_copy_that_has_not_heard_of_a_drop_moves_up_all_the_same() {
    assert!(headpond_swarm::run_case(930_001_018, &mut |_| {}).is_ok());
}

/// Lives that are drawn aside gave a cache the identity of one that had lain on its device before:
/// what that had left in the log counted.
#[test]
fn a_cache_that_is_made_anew_has_an_identity_that_none_had_before() {
    assert!(headpond_swarm::run_case(930_001_397, &mut |_| {}).is_ok());
}

/// A command takes a copy of the cache out of use, and then the one that is left hangs, which is
/// waited for.
#[test]
fn the_last_copy_of_a_cache_is_waited_for_whoever_took_the_others_away() {
    assert!(headpond_swarm::run_case(930_001_234, &mut |_| {}).is_ok());
}

/// The array had been stopped in order for another journal when the power went, and the cache had
/// not: what that wrote again was refused, while a member was missing.
#[test]
fn a_cut_while_the_journal_is_exchanged_leaves_nothing_that_cannot_be_cleaned() {
    for seed in [940_003_419, 940_001_126] {
        assert!(headpond_swarm::run_case(seed, &mut |_| {}).is_ok(), "{seed}");
    }
}

/// In a tier that keeps the order, what a flush had to wait for was taken for written by a discard
/// of the same blocks: the flush was answered, and a cut brought back what was older.
#[test]
fn a_discard_does_not_end_what_a_flush_waits_for() {
    for seed in [828, 1118] {
        assert!(headpond_swarm::run_case(seed, &mut |_| {}).is_ok(), "{seed}");
    }
}

/// The seal of an event reached a spare that was about to join, whose name it does not have: after
/// a cut in the next event one member called it out, and nothing could choose between the two.
#[test]
fn a_seal_is_not_written_to_who_is_about_to_join() {
    assert!(headpond_swarm::run_case(7_000_317, &mut |_| {}).is_ok());
}

/// Segments were freed after a stable write instead of a flush, so the tail passed the last
/// position that was known to be stable: records after it counted as stable from then on.
#[test]
fn a_tail_that_passes_the_last_flush_makes_no_later_record_stable() {
    assert!(headpond_swarm::run_case(1_796_021_999_000_618, &mut |_| {}).is_ok());
}

#[test]
fn a_seed_tells_one_story() {
    let story = |seed| {
        let mut lines = Vec::new();
        let tally = headpond_swarm::run_case(seed, &mut |line| lines.push(line.to_owned()));
        (lines, tally.map_err(|failure| failure.offence.to_string()))
    };
    for seed in [3, 1 << 40] {
        assert_eq!(story(seed), story(seed));
    }
}

/// A scrub that a cut had left went on while the cache was cleaned, and rightly signed nothing: the
/// one that was asked for then was taken for it.
#[test]
fn a_scrub_that_goes_on_is_not_the_one_that_signs_everything() {
    assert!(headpond_swarm::run_case(1_795_631_281_000_470, &mut |_| {}).is_ok());
}

/// Copies were added, given up and added in one life, so that only one was sure to have
/// everything: there was more than that one to compare.
#[test]
fn a_scrub_compares_copies_that_may_not_have_everything() {
    assert!(headpond_swarm::run_case(20_262_321, &mut |_| {}).is_ok());
}

/// Minutes of seeds, for `make conclusions`.
mod conclusions {
    use super::*;

    #[test]
    fn fresh_seeds_find_nothing_in_minutes() {
        let minutes = Duration::from_secs(300);
        hunt_fresh(|order| Hunt { time_max: Some(minutes), ..order });
    }
}
