//! The rows and their proofs.

use super::About::{Loss, Row};
use super::{
    Entry, Proof, Scenario, array_faults, cache_faults, changes, mirrored_cache, power, starts,
};

const ARRAY_FAILURES: &str = "crates/raid/tests/integration/failures.rs";
const ARRAY_DEADLINES: &str = "crates/raid/tests/integration/deadlines.rs";
const ARRAY_RESHAPE_CUTS: &str = "crates/raid/tests/integration/reshape_cuts.rs";
const ARRAY_IMAGES: &str = "crates/raid/tests/integration/images.rs";
const ARRAY_LIVES: &str = "crates/raid/tests/integration/lives.rs";
const ARRAY_RETURNING: &str = "crates/raid/tests/integration/returning.rs";
const ARRAY_LOST: &str = "crates/raid/tests/integration/lost.rs";
const ARRAY_LOST_CUTS: &str = "crates/raid/tests/integration/lost_cuts.rs";
const ARRAY_INTEGRITY: &str = "crates/raid/tests/integration/integrity.rs";
const ARRAY_VERIFIER: &str = "crates/raid/tests/integration/verifier.rs";
const EXISTING: &str = "crates/volume/tests/integration/existing.rs";
const MIRROR: &str = "crates/volume/tests/integration/mirror/departures.rs";
const VERIFY: &str = "crates/volume/tests/integration/verify_contents.rs";
const ARRAY_MODEL: &str = "crates/raid/tests/integration/model.rs";
const ARRAY_SCRUB: &str = "crates/raid/tests/integration/scrub.rs";
const ARRAY_SPARES: &str = "crates/raid/tests/integration/spares.rs";
const ARRAY_JOURNAL: &str = "crates/raid/tests/integration/journal.rs";
const ARRAY_STARTS: &str = "crates/raid/tests/integration/starts.rs";
const CACHE_CRASH: &str = "crates/cache/tests/slice/crash.rs";
const CACHE_DAMAGE: &str = "crates/cache/tests/slice/damage.rs";
const CACHE_FAULTS: &str = "crates/cache/tests/slice/faults.rs";
const CACHE_SAMPLES: &str = "crates/cache/tests/slice/samples.rs";
const CORE_FLUSHES: &str = "crates/cache/tests/slice/core_flushes.rs";
const CACHE_SERVING: &str = "crates/cache/tests/slice/serving.rs";
const COMMANDS: &str = "crates/volume/tests/integration/commands.rs";
const COMMAND_LINE: &str = "crates/headpond/tests/integration/command_line.rs";
const FILES: &str = "crates/uring/src/file/tests.rs";
const RESHAPE: &str = "crates/headpond/tests/integration/reshape.rs";
const INTENT: &str = "crates/raid/src/intent.rs";
const KILL: &str = "crates/headpond/tests/integration/kill.rs";
const LIFECYCLE: &str = "crates/volume/tests/integration/lifecycle.rs";
const MEMORY: &str = "crates/headpond/tests/integration/memory.rs";
const MEMBERS: &str = "crates/headpond/tests/integration/members.rs";
const OWNERSHIP: &str = "crates/volume/tests/integration/ownership.rs";
const RESERVE: &str = "crates/block/tests/memory.rs";
const SHORTAGE: &str = "crates/nbd/tests/shortage.rs";
const ENUMERATE: &str = "crates/swarm/tests/enumerate.rs";
const PROMISES: &str = "crates/volume/tests/integration/flushed_positions.rs";
const POWER_CUTS: &str = "crates/volume/tests/integration/power_cuts.rs";
const REPLAY: &str = "crates/cache/src/replay_tests.rs";
const TIDY: &str = "xtask/src/tidy/calls.rs";
const TWO_HOSTS: &str = "crates/headpond/tests/integration/two_hosts.rs";
const VOLUME_RESHAPE_CUTS: &str = "crates/volume/tests/integration/reshape_cuts.rs";
const WITNESS: &str = "crates/witness/src/witness.rs";

/// Each row with its proofs.
macro_rules! table {
    ($($about:ident($number:literal) $fault:literal {
        $($kind:ident $($place:ident :: $name:ident)? $($what:literal)?;)+
    })+) => {
        pub const ROWS_AND_LOSSES: &[Entry] = &[$(Entry {
            about: $about($number),
            fault: $fault,
            proofs: &[$(proof!($kind $($place::$name)? $($what)?)),+],
        }),+];
    };
}

macro_rules! proof {
    (scenario $module:ident :: $name:ident) => {
        Proof::Scenario(Scenario { name: stringify!($name), run: $module::$name })
    };
    (test $file:ident :: $name:ident) => {
        Proof::Test($file, stringify!($name))
    };
    (missing $what:literal) => {
        Proof::NotYet($what)
    };
}

/// Every scenario once, in the order of the table.
pub fn all() -> Vec<Scenario> {
    let proofs = ROWS_AND_LOSSES.iter().flat_map(|entry| entry.proofs);
    let mut scenarios: Vec<Scenario> = Vec::new();
    for proof in proofs {
        let Proof::Scenario(scenario) = proof else { continue };
        if scenarios.iter().all(|known| known.name != scenario.name) {
            scenarios.push(*scenario);
        }
    }
    scenarios
}

table! {
    Row(1) "power cut at any I/O boundary" {
        test POWER_CUTS::write_back_keeps_its_promises_at_every_cut;
        test POWER_CUTS::write_through_keeps_its_promises_at_every_cut;
        test POWER_CUTS::pass_through_with_the_intent_bitmap_keeps_its_promises_at_every_cut;
        scenario power::stop_cut_anywhere_loses_nothing_and_leaves_dirty_data_dirty;
        scenario power::flushed_and_fua_writes_outlive_a_cut_in_every_mode;
        scenario changes::tier_that_is_lost_with_the_power_takes_nothing_that_was_flushed_with_it;
    }
    Row(2) "torn data block in the cache" {
        scenario power::torn_block_that_nobody_promised_gives_way_to_the_version_before;
        scenario power::torn_block_that_was_promised_is_an_error_until_it_is_written_again;
    }
    Row(3) "torn superblock or header" {
        scenario power::torn_copy_of_any_superblock_costs_nothing;
        test ARRAY_STARTS::a_damaged_copy_is_bridged_and_two_are_refused;
        test CACHE_DAMAGE::older_header_is_refused_where_records_of_a_later_life_are_in_the_log;
    }
    Row(4) "metadata ahead of its data" {
        scenario power::descriptor_that_landed_before_its_data_is_as_if_never_written;
        scenario power::write_past_a_dirty_block_cut_anywhere_leaves_the_old_block_or_the_new;
        test ARRAY_LIVES::
            a_failed_member_never_hides_what_was_acknowledged_however_its_recording_is_cut;
    }
    Row(5) "lying flush" {
        scenario power::flushed_record_that_a_lying_device_lost_is_an_error_never_something_older;
        test REPLAY::promised_record_that_nobody_describes_is_reported;
        test COMMAND_LINE::what_could_lose_data_is_refused_and_changes_nothing;
        scenario power::log_that_a_lying_device_cut_short_is_noticed_and_the_volume_takes_no_writes;
        scenario power::
            volume_whose_promised_blocks_are_damaged_takes_no_writes_where_that_can_be_kept;
        test PROMISES::a_device_that_keeps_its_promises_is_never_taken_for_a_liar;
        missing "each flush would have to be recorded elsewhere; flushes of the last second before a cut are not";
    }
    Row(6) "cut mid-stripe, all members present" {
        test POWER_CUTS::parity_is_right_soon_after_a_cut_though_nobody_asks;
        test POWER_CUTS::writes_past_the_cache_right_after_a_cut_leave_no_torn_parity;
        test ARRAY_STARTS::the_intent_bitmap_finds_every_torn_stripe;
    }
    Row(7) "cut mid-stripe, degraded" {
        scenario power::degraded_and_torn_is_made_whole_from_the_stripe_journal;
        scenario power::degraded_and_torn_is_refused_unless_forced;
        test ARRAY_JOURNAL::
            after_losses_and_a_cut_every_block_is_old_or_new_and_flushed_data_is_there;
        test POWER_CUTS::
            a_member_that_is_lost_right_after_a_cut_costs_errors_at_most_and_shows_nothing_wrong;
    }
    Row(8) "cut in rebuild" {
        test ARRAY_SPARES::
            however_an_exchange_is_cut_what_was_acknowledged_is_there_and_the_exchange_can_be_ended;
        test ARRAY_SPARES::filling_goes_on_after_a_stop_where_it_was;
        test MEMBERS::a_rebuild_survives_a_kill_and_goes_on_by_itself;
    }
    Row(9) "cut in scrub" {
        test ARRAY_SCRUB::a_scrub_goes_on_after_a_restart_where_it_was_left;
    }
    Row(10) "cut in reshape" {
        test ARRAY_RESHAPE_CUTS::
            wherever_the_power_is_cut_the_array_has_what_it_promised_and_grows_on;
        test ARRAY_RESHAPE_CUTS::a_member_that_is_lost_between_the_cuts_costs_nothing_either;
        test RESHAPE::
            an_array_grows_across_a_kill_and_who_connects_afterwards_finds_a_larger_volume;
        test VOLUME_RESHAPE_CUTS::
            an_array_that_grows_behind_a_write_back_cache_loses_nothing_wherever_the_power_is_cut;
    }
    Row(11) "cut in cleaning" {
        scenario power::cut_between_cleaning_and_the_flush_of_the_core_leaves_the_data_dirty;
        test CACHE_CRASH::write_back_with_cleaner_keeps_its_promises_at_every_cut;
    }
    Row(12) "cut after a mode change, or in a detach" {
        scenario power::cut_after_a_switch_to_write_through_keeps_what_was_dirty_dirty;
        test CACHE_CRASH::switching_modes_on_the_live_slice_keeps_its_promises;
        test ENUMERATE::write_back_survives_every_cut_of_three_operations;
    }
    Row(13) "cut in create" {
        scenario starts::creation_cut_anywhere_leaves_no_volume_or_a_whole_one;
        scenario starts::recreation_cut_anywhere_leaves_the_old_volume_or_the_new_one_or_none;
        test LIFECYCLE::what_fails_half_way_through_a_create_leaves_no_superblock_behind;
    }
    Row(14) "program killed" {
        scenario power::killed_program_loses_nothing_that_it_acknowledged;
        test KILL::nothing_flushed_is_lost_in_200_kills;
    }
    Row(15) "allocation failure" {
        test ARRAY_FAILURES::little_scratch_memory_slows_down_and_does_not_stop;
        test RESERVE::what_is_under_way_has_the_reserve_and_what_begins_is_told_that_there_is_none;
        test SHORTAGE::requests_of_clients_wait_for_memory_and_not_for_ever;
        test MEMORY::a_daemon_without_memory_waits_then_refuses_and_goes_on_when_there_is_some;
    }
    Row(16) "clock jump" {
        test TIDY::each_forbidden_call_is_found_however_it_is_written;
    }
    Row(17) "cache lost, clean" {
        scenario cache_faults::cache_that_vanishes_clean_costs_nothing_and_the_volume_stays_online;
    }
    Row(18) "cache lost, dirty" {
        scenario cache_faults::
            cache_that_vanishes_dirty_costs_its_dirty_blocks_and_restarts_only_by_force;
        scenario cache_faults::
            cache_that_is_lost_leaves_a_consistent_past_where_cleaning_is_ordered;
        scenario cache_faults::
            cache_that_is_lost_after_a_restart_leaves_a_consistent_past_as_well;
        scenario cache_faults::cache_that_was_away_over_a_restart_comes_back_with_its_dirty_data;
    }
    Row(19) "cache read error, clean" {
        scenario cache_faults::
            clean_block_that_the_cache_cannot_read_comes_from_the_core_and_is_counted;
    }
    Row(20) "cache read error, dirty" {
        scenario cache_faults::
            dirty_block_that_the_cache_cannot_read_is_an_error_and_the_others_are_served;
        scenario mirrored_cache::
            dirty_block_that_one_copy_cannot_give_comes_from_the_other_and_is_written_anew;
    }
    Row(21) "cache write error" {
        scenario cache_faults::
            write_that_the_cache_refuses_goes_to_the_core_and_nothing_older_comes_back;
        scenario cache_faults::cache_that_errs_too_often_is_mistrusted_until_a_mode_is_set;
    }
    Row(22) "silent corruption in the cache" {
        scenario cache_faults::silent_corruption_is_noticed_and_a_clean_block_comes_from_the_core;
        scenario mirrored_cache::
            silent_corruption_of_a_dirty_block_is_mended_from_the_copy_that_is_right;
    }
    Row(23) "cache full of dirty data" {
        scenario cache_faults::cache_full_of_dirty_data_says_so_until_there_is_room_again;
        test CACHE_SERVING::full_of_dirty_data_waits_for_the_cleaner;
        test CACHE_SERVING::
            full_of_dirty_data_without_a_cleaner_goes_past_the_cache_and_never_hangs;
        test CACHE_FAULTS::request_larger_than_the_cache_goes_past_it;
    }
    Row(24) "wrong cache for the core" {
        scenario starts::cache_of_another_volume_is_refused_and_both_are_named;
    }
    Row(25) "attached twice, or by two hosts" {
        test FILES::second_opener_is_refused_and_told_by_whom;
        scenario starts::volume_that_another_host_has_open_is_refused_until_that_one_has_stopped;
        test OWNERSHIP::an_owner_that_wakes_after_it_was_taken_over_writes_nothing;
        test OWNERSHIP::of_two_that_open_at_the_same_moment_one_at_most_goes_on;
        test TWO_HOSTS::
            a_daemon_that_was_stopped_too_long_finds_its_successor_and_writes_nothing;
    }
    Row(26) "core written outside while the cache is dirty" {
        scenario starts::cache_that_the_description_forgets_is_asked_for_and_never_comes_back_stale;
        scenario starts::core_that_was_written_outside_is_refused_while_the_cache_is_dirty;
        test CACHE_SAMPLES::core_that_was_changed_is_refused_where_something_is_dirty_until_it_is_taken;
        test EXISTING::a_device_that_somebody_else_wrote_to_is_refused_until_the_cache_is_given_up;
        test EXISTING::a_power_cut_at_any_operation_is_no_change_by_others;
    }
    Row(27) "stale cache returns" {
        scenario starts::cache_whose_core_went_on_without_it_is_refused;
        scenario mirrored_cache::
            copy_of_a_cache_that_missed_writes_is_refused_alone_and_left_out_beside_the_other;
        scenario mirrored_cache::copy_that_leaves_while_an_array_fails_leaves_a_cache_that_fits;
    }
    Row(28) "unknown version or features" {
        scenario starts::cache_of_a_later_version_or_with_unknown_features_is_refused_and_says_so;
        scenario starts::member_of_a_later_version_or_with_unknown_features_is_refused_and_says_so;
    }
    Row(29) "core read error" {
        scenario array_faults::block_that_a_member_cannot_read_is_reconstructed_and_written_again;
        scenario array_faults::block_that_the_only_copy_cannot_give_is_an_error;
    }
    Row(30) "core error while cleaning" {
        test CACHE_FAULTS::core_that_fails_while_cleaning_keeps_the_data_dirty_and_flush_reports_it;
        scenario array_faults::full_member_fails_writes_and_nothing_else;
    }
    Row(31) "flush fails" {
        scenario array_faults::member_that_cannot_flush_is_out_and_the_flush_holds_without_it;
        scenario array_faults::flush_that_the_cache_refuses_is_an_error_and_the_next_one_covers_it;
        scenario array_faults::flush_that_the_core_refuses_makes_nothing_clean;
        test CORE_FLUSHES::what_was_written_back_survives_a_core_that_forgets;
        test CORE_FLUSHES::what_was_written_through_survives_a_core_that_forgets;
        test CORE_FLUSHES::
            what_went_past_the_cache_and_may_be_lost_is_told_to_who_flushes_next;
        test CORE_FLUSHES::flush_that_waits_for_one_that_fails_makes_nothing_clean;
        test CORE_FLUSHES::what_reclaim_carries_on_beside_flushes_that_overlap_is_written_again;
        test CORE_FLUSHES::slices_of_one_core_hear_of_each_others_flushes_that_failed;
    }
    Row(32) "array loses 1, 2, 3 members" {
        scenario array_faults::
            members_lost_within_the_redundancy_cost_nothing_and_beyond_it_writes_stop;
        scenario array_faults::array_beyond_its_redundancy_leaves_dirty_data_in_the_cache;
        test ARRAY_FAILURES::a_member_lost_in_the_middle_of_many_writes_costs_no_data;
    }
    Row(33) "loss during rebuild" {
        test ARRAY_SPARES::a_member_lost_in_a_rebuild_costs_data_only_beyond_the_redundancy;
        test ARRAY_SPARES::a_spare_that_fails_leaves_the_role_to_whoever_has_it;
    }
    Row(34) "latent error during rebuild" {
        scenario array_faults::what_a_rebuild_could_not_read_is_told_to_the_byte;
        test ARRAY_LOST::
            a_rebuild_goes_on_past_unreadable_sectors_and_exactly_what_depends_on_them_is_lost;
        test ARRAY_LOST_CUTS::
            wherever_the_power_is_cut_lost_sectors_never_read_as_data_nor_rewritten_ones_as_errors;
        test ARRAY_LOST::a_member_that_reads_almost_nothing_ends_the_rebuild_with_that_reason;
    }
    Row(35) "stale member returns" {
        scenario array_faults::copy_that_missed_writes_is_not_read_when_it_returns;
        test ARRAY_LIVES::a_member_put_back_from_an_older_image_is_stale;
        test ARRAY_IMAGES::
            an_older_image_put_back_is_never_read_as_new;
        test ARRAY_IMAGES::no_cut_within_a_start_an_event_or_a_stop_makes_a_member_stale;
        test ARRAY_RETURNING::
            however_a_return_is_cut_what_was_flushed_is_there_and_on_the_member_too;
        test ARRAY_RETURNING::a_member_that_was_used_by_itself_meanwhile_is_refused;
    }
    Row(36) "silent corruption of the core" {
        test ARRAY_SCRUB::
            silent_corruption_of_one_strip_is_found_and_put_right_where_two_equations_or_copies_tell;
        test ARRAY_SCRUB::where_nobody_can_tell_who_is_wrong_it_is_reported_and_nothing_changed;
        test ARRAY_INTEGRITY::a_signed_block_changed_underneath_is_located_and_repaired;
        test ARRAY_INTEGRITY::a_mismatch_in_an_unsigned_region_is_reported_and_not_guessed;
        test ARRAY_VERIFIER::blocks_are_put_right_or_left_alone;
        test VERIFY::what_the_cache_has_written_is_told_from_what_the_array_made_of_it;
        test VERIFY::what_the_cache_has_only_read_proves_nothing;
    }
    Row(37) "misdirected write" {
        scenario cache_faults::misdirected_write_is_noticed_by_the_block_that_it_hit;
        scenario cache_faults::misdirected_record_is_not_replayed_where_it_landed;
        missing "needs checksums on the members";
    }
    Row(38) "lost write" {
        scenario cache_faults::lost_write_is_noticed_by_the_next_read;
        missing "needs checksums on the members";
    }
    Row(39) "slow or hung member" {
        scenario array_faults::
            slow_member_holds_up_nothing_that_the_cache_can_answer_and_stays_a_member;
        scenario array_faults::hung_member_is_read_around_at_once_and_evicted_by_a_write;
        test ARRAY_DEADLINES::reads_of_a_hung_member_are_reconstructed;
        test ARRAY_DEADLINES::
            an_answer_that_comes_too_late_does_not_touch_the_memory_of_the_client;
        test ARRAY_DEADLINES::
            a_member_that_is_late_again_and_again_is_evicted_and_one_that_is_rarely_stays;
        test ARRAY_DEADLINES::without_redundancy_left_a_request_waits_and_the_others_go_on;
    }
    Row(40) "completions out of order" {
        test ARRAY_MODEL::overlapping_writes_leave_one_of_them_and_right_parity;
        test WITNESS::a_write_acknowledged_while_the_flush_ran_is_not_covered;
    }
    Row(41) "dirty cache and a member lost" {
        scenario array_faults::cache_and_member_lost_together_cost_only_what_was_dirty;
    }
    Row(42) "no space left below" {
        scenario array_faults::full_member_fails_writes_and_nothing_else;
        test ARRAY_FAILURES::a_full_member_is_no_failed_member_and_its_stripe_is_made_right_later;
        test MIRROR::a_copy_without_room_leaves_and_the_cache_goes_on;
    }
    Row(43) "smaller device, larger sectors" {
        scenario starts::device_that_shrank_or_shows_larger_sectors_is_refused;
    }
    Loss(1) "metadata before its data, or not flushed; a superblock that did not wait" {
        scenario power::descriptor_that_landed_before_its_data_is_as_if_never_written;
        scenario power::write_past_a_dirty_block_cut_anywhere_leaves_the_old_block_or_the_new;
        scenario power::stop_cut_anywhere_loses_nothing_and_leaves_dirty_data_dirty;
        test INTENT::a_write_waits_until_its_mark_is_stable_and_the_next_does_not;
    }
    Loss(2) "a command or a stop cut half-way; old mappings reappear after recreating the cache" {
        scenario power::stop_cut_anywhere_loses_nothing_and_leaves_dirty_data_dirty;
        scenario starts::recreation_cut_anywhere_leaves_the_old_volume_or_the_new_one_or_none;
        scenario changes::core_that_is_removed_leaves_the_others_what_they_had;
        scenario changes::cache_that_is_emptied_loses_nothing_wherever_the_power_is_cut;
        test COMMANDS::
            a_core_that_is_added_or_removed_is_there_or_not_wherever_the_power_is_cut;
        test COMMANDS::a_cache_on_copies_comes_and_goes_wherever_the_power_is_cut;
        test COMMANDS::a_copy_is_replaced_and_added_wherever_the_power_is_cut;
        test COMMANDS::a_cache_is_exchanged_wherever_a_write_fails;
    }
    Loss(3) "dirty data treated as clean; pass-through that loaded dirty mappings" {
        scenario power::dirty_data_stays_dirty_over_a_clean_stop_and_a_cut_after_it;
        scenario power::switch_to_pass_through_brings_no_old_mapping_back;
    }
    Loss(4) "a stale cache overwrites newer data; core errors while cleaning ignored" {
        scenario starts::cache_whose_core_went_on_without_it_is_refused;
        scenario starts::cache_that_the_description_forgets_is_asked_for_and_never_comes_back_stale;
        scenario array_faults::flush_that_the_core_refuses_makes_nothing_clean;
        test CACHE_FAULTS::core_that_fails_while_cleaning_keeps_the_data_dirty_and_flush_reports_it;
    }
    Loss(5) "a corrupt cache made the process abort" {
        scenario cache_faults::damaged_cache_never_ends_the_program_nor_returns_something_else;
    }
}
