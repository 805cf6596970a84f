//! Every scenario as a test of its own name; what the table names exists, and the document says
//! the same.

use super::{About, Proof, ROWS_AND_LOSSES, all};
use std::path::{Path, PathBuf};

/// Rows that are about volumes.
const ROWS: std::ops::RangeInclusive<u8> = 1..=43;
const LOSSES: std::ops::RangeInclusive<u8> = 1..=5;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/swarm").to_owned()
}

#[test]
fn every_row_and_every_loss_is_in_the_table_once_and_has_a_proof() {
    let abouts: Vec<About> = ROWS_AND_LOSSES.iter().map(|entry| entry.about).collect();
    let expected: Vec<About> = ROWS.map(About::Row).chain(LOSSES.map(About::Loss)).collect();
    assert_eq!(abouts, expected);
    assert!(ROWS_AND_LOSSES.iter().all(|entry| !entry.proofs.is_empty()));
}

#[test]
fn every_test_that_the_table_names_exists() {
    for entry in ROWS_AND_LOSSES {
        for proof in entry.proofs {
            let Proof::Test(path, function) = proof else { continue };
            let source = std::fs::read_to_string(workspace().join(path));
            let source = source.unwrap_or_else(|error| panic!("{}: {path}: {error}", entry.about));
            let is_test = source.contains(&format!("fn {function}("));
            assert!(
                is_test && source.contains("#[test]"),
                "{}: no test {path}::{function}",
                entry.about
            );
        }
    }
}

/// The table as text. With `UPDATE_FAULTS` set, the test below writes it.
fn document() -> String {
    let mut text = String::from(HEAD);
    for entry in ROWS_AND_LOSSES {
        let (mut proofs, mut missing) = (Vec::new(), Vec::new());
        for proof in entry.proofs {
            match proof {
                Proof::Scenario(scenario) => proofs.push(format!("`{}`", scenario.name)),
                Proof::Test(path, name) => {
                    proofs.push(format!("`{}::{name}`", path.trim_start_matches("crates/")));
                }
                Proof::NotYet(what) => missing.push(*what),
            }
        }
        let state = match (proofs.is_empty(), missing.is_empty()) {
            (false, true) => "kept".to_owned(),
            (true, _) => format!("not yet: {}", missing.join("; ")),
            (false, false) => format!("in part: {}", missing.join("; ")),
        };
        let (about, fault) = (entry.about, entry.fault);
        text += &format!("| {about} | {fault} | {state} | {} |\n", proofs.join(", "));
    }
    text
}

const HEAD: &str = "\
# The fault table

For each fault that is about volumes: the state of its rule, and what proves it. A bare name is a
scenario of `crates/swarm/src/scenarios` (`cargo test -p headpond-swarm NAME`), the others are tests
named by their file below `crates/`. Rows 44 to 56 are about NBD:
`crates/nbd/tests/integration/hostile.rs`. This file is written by
`UPDATE_FAULTS=1 cargo test -p headpond-swarm the_document`.

| | fault | state | proof |
|---|---|---|---|
";

#[test]
fn the_document_is_this_table() {
    let path = workspace().join("docs/faults.md");
    if std::env::var_os("UPDATE_FAULTS").is_some() {
        std::fs::write(&path, document()).expect("docs can be written to");
    }
    let found = std::fs::read_to_string(&path).expect("docs/faults.md");
    assert!(found == document(), "docs/faults.md is out of date");
}

/// A test for each name, and a check that none was forgotten.
macro_rules! each {
    ($($name:ident)*) => {
        const NAMED: &[&str] = &[$(stringify!($name)),*];
        $(#[test] fn $name() { run(stringify!($name)) })*
    };
}

fn run(name: &str) {
    let scenario = all().into_iter().find(|scenario| scenario.name == name);
    (scenario.expect("a scenario of the table").run)();
}

#[test]
fn every_scenario_is_a_test_of_its_own_name() {
    let mut names: Vec<&str> = all().iter().map(|scenario| scenario.name).collect();
    let mut named = NAMED.to_vec();
    names.sort_unstable();
    named.sort_unstable();
    assert_eq!(names, named);
}

each! {
    flushed_and_fua_writes_outlive_a_cut_in_every_mode
    what_a_rebuild_could_not_read_is_told_to_the_byte
    write_past_a_dirty_block_cut_anywhere_leaves_the_old_block_or_the_new
    torn_block_that_nobody_promised_gives_way_to_the_version_before
    torn_block_that_was_promised_is_an_error_until_it_is_written_again
    torn_copy_of_any_superblock_costs_nothing
    descriptor_that_landed_before_its_data_is_as_if_never_written
    log_that_a_lying_device_cut_short_is_noticed_and_the_volume_takes_no_writes
    volume_whose_promised_blocks_are_damaged_takes_no_writes_where_that_can_be_kept
    flushed_record_that_a_lying_device_lost_is_an_error_never_something_older
    degraded_and_torn_is_made_whole_from_the_stripe_journal
    degraded_and_torn_is_refused_unless_forced
    cut_between_cleaning_and_the_flush_of_the_core_leaves_the_data_dirty
    cut_after_a_switch_to_write_through_keeps_what_was_dirty_dirty
    killed_program_loses_nothing_that_it_acknowledged
    stop_cut_anywhere_loses_nothing_and_leaves_dirty_data_dirty
    dirty_data_stays_dirty_over_a_clean_stop_and_a_cut_after_it
    switch_to_pass_through_brings_no_old_mapping_back
    cache_that_vanishes_clean_costs_nothing_and_the_volume_stays_online
    cache_that_vanishes_dirty_costs_its_dirty_blocks_and_restarts_only_by_force
    cache_that_is_lost_after_a_restart_leaves_a_consistent_past_as_well
    cache_that_is_lost_leaves_a_consistent_past_where_cleaning_is_ordered
    cache_that_was_away_over_a_restart_comes_back_with_its_dirty_data
    clean_block_that_the_cache_cannot_read_comes_from_the_core_and_is_counted
    dirty_block_that_the_cache_cannot_read_is_an_error_and_the_others_are_served
    dirty_block_that_one_copy_cannot_give_comes_from_the_other_and_is_written_anew
    write_that_the_cache_refuses_goes_to_the_core_and_nothing_older_comes_back
    cache_that_errs_too_often_is_mistrusted_until_a_mode_is_set
    cache_full_of_dirty_data_says_so_until_there_is_room_again
    silent_corruption_is_noticed_and_a_clean_block_comes_from_the_core
    silent_corruption_of_a_dirty_block_is_mended_from_the_copy_that_is_right
    copy_of_a_cache_that_missed_writes_is_refused_alone_and_left_out_beside_the_other
    copy_that_leaves_while_an_array_fails_leaves_a_cache_that_fits
    misdirected_write_is_noticed_by_the_block_that_it_hit
    misdirected_record_is_not_replayed_where_it_landed
    lost_write_is_noticed_by_the_next_read
    damaged_cache_never_ends_the_program_nor_returns_something_else
    block_that_a_member_cannot_read_is_reconstructed_and_written_again
    block_that_the_only_copy_cannot_give_is_an_error
    member_that_cannot_flush_is_out_and_the_flush_holds_without_it
    flush_that_the_cache_refuses_is_an_error_and_the_next_one_covers_it
    flush_that_the_core_refuses_makes_nothing_clean
    members_lost_within_the_redundancy_cost_nothing_and_beyond_it_writes_stop
    array_beyond_its_redundancy_leaves_dirty_data_in_the_cache
    copy_that_missed_writes_is_not_read_when_it_returns
    slow_member_holds_up_nothing_that_the_cache_can_answer_and_stays_a_member
    hung_member_is_read_around_at_once_and_evicted_by_a_write
    cache_and_member_lost_together_cost_only_what_was_dirty
    full_member_fails_writes_and_nothing_else
    tier_that_is_lost_with_the_power_takes_nothing_that_was_flushed_with_it
    core_that_is_removed_leaves_the_others_what_they_had
    cache_that_is_emptied_loses_nothing_wherever_the_power_is_cut
    creation_cut_anywhere_leaves_no_volume_or_a_whole_one
    recreation_cut_anywhere_leaves_the_old_volume_or_the_new_one_or_none
    cache_of_another_volume_is_refused_and_both_are_named
    volume_that_another_host_has_open_is_refused_until_that_one_has_stopped
    cache_whose_core_went_on_without_it_is_refused
    cache_that_the_description_forgets_is_asked_for_and_never_comes_back_stale
    core_that_was_written_outside_is_refused_while_the_cache_is_dirty
    cache_of_a_later_version_or_with_unknown_features_is_refused_and_says_so
    member_of_a_later_version_or_with_unknown_features_is_refused_and_says_so
    device_that_shrank_or_shows_larger_sectors_is_refused
}
