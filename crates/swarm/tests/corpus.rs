//! Seeds that every change has to pass, and two minutes of seeds that nobody has tried.

use headpond_swarm::{Failure, Hunt, Tally, hunt};
use std::time::{Duration, SystemTime};

/// The same for everybody.
const CORPUS: std::ops::Range<u64> = 1..161;
const FRESH: Duration = Duration::from_secs(120);

fn tell(failures: &[Failure]) -> String {
    let one = |failure: &Failure| {
        let Failure { seed, offence, .. } = failure;
        format!("\nseed {seed}: {offence}\nits story: cargo xtask swarm --replay {seed}")
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
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let order = Hunt { time_max: Some(FRESH), ..Hunt::from_seed(now.as_secs() * 1_000_000) };
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
