//! The rows and their proofs.

use super::About::{Loss, Row};
use super::Proof::{NotYet, Test};
use super::{Entry, Proof, Scenario, array_faults, cache_faults, power, starts};

/// The scenario of this name.
macro_rules! scenario {
    ($module:ident :: $name:ident) => {
        Proof::Scenario(Scenario { name: stringify!($name), run: $module::$name })
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

pub const ROWS_AND_LOSSES: &[Entry] = &[
    Entry {
        about: Row(1),
        fault: "power cut at any I/O boundary",
        proofs: &[
            Test("crates/volume/tests/power_cuts.rs::write_back_keeps_its_promises_at_every_cut"),
            Test("crates/volume/tests/power_cuts.rs::write_through_keeps_its_promises_at_every_cut"),
            Test("crates/volume/tests/power_cuts.rs::pass_through_with_the_intent_bitmap_keeps_its_promises_at_every_cut"),
            scenario!(power::stop_cut_anywhere_loses_nothing_and_leaves_dirty_data_dirty),
        ],
    },
    Entry {
        about: Row(2),
        fault: "torn data block in the cache",
        proofs: &[
            scenario!(power::torn_block_that_nobody_promised_gives_way_to_the_version_before),
            scenario!(power::torn_block_that_was_promised_is_an_error_until_it_is_written_again),
        ],
    },
    Entry {
        about: Row(3),
        fault: "torn superblock or header",
        proofs: &[
            scenario!(power::torn_copy_of_any_superblock_costs_nothing),
            Test("crates/raid/tests/starts.rs::a_damaged_copy_is_bridged_and_two_are_refused"),
            Test("crates/cache/tests/slice/damage.rs::older_header_is_refused_where_records_of_a_later_life_are_in_the_log"),
        ],
    },
    Entry {
        about: Row(4),
        fault: "metadata ahead of its data",
        proofs: &[
            scenario!(power::descriptor_that_landed_before_its_data_is_as_if_never_written),
            Test("crates/raid/tests/lives.rs::a_failed_member_never_hides_what_was_acknowledged_however_its_recording_is_cut"),
        ],
    },
    Entry {
        about: Row(5),
        fault: "lying flush",
        proofs: &[
            scenario!(power::flushed_record_that_a_lying_device_lost_is_an_error_never_something_older),
            Test("crates/cache/src/replay_tests.rs::promised_record_that_nobody_describes_is_reported"),
            Test("crates/headpond/tests/command_line.rs::what_could_lose_data_is_refused_and_changes_nothing"),
            NotYet("needs a log whose end is known elsewhere: a device that loses everything from some record on is believed; a start after damage is writable and tells how many blocks, not which"),
        ],
    },
    Entry {
        about: Row(6),
        fault: "cut mid-stripe, all members present",
        proofs: &[
            Test("crates/volume/tests/power_cuts.rs::parity_is_right_soon_after_a_cut_though_nobody_asks"),
            Test("crates/volume/tests/power_cuts.rs::writes_past_the_cache_right_after_a_cut_leave_no_torn_parity"),
            Test("crates/raid/tests/starts.rs::the_intent_bitmap_finds_every_torn_stripe"),
        ],
    },
    Entry {
        about: Row(7),
        fault: "cut mid-stripe, degraded",
        proofs: &[
            scenario!(power::degraded_and_torn_is_refused_unless_forced),
            NotYet("needs a journal of stripes, to start without force"),
        ],
    },
    Entry { about: Row(8), fault: "cut in rebuild", proofs: &[NotYet("needs rebuild")] },
    Entry { about: Row(9), fault: "cut in scrub", proofs: &[NotYet("needs scrub")] },
    Entry { about: Row(10), fault: "cut in reshape", proofs: &[NotYet("needs reshape")] },
    Entry {
        about: Row(11),
        fault: "cut in cleaning",
        proofs: &[
            scenario!(power::cut_between_cleaning_and_the_flush_of_the_core_leaves_the_data_dirty),
            Test("crates/cache/tests/slice/crash.rs::write_back_with_cleaner_keeps_its_promises_at_every_cut"),
        ],
    },
    Entry {
        about: Row(12),
        fault: "cut after a switch of the mode",
        proofs: &[
            scenario!(power::cut_after_a_switch_to_write_through_keeps_what_was_dirty_dirty),
            Test("crates/cache/tests/slice/crash.rs::switching_modes_on_the_live_slice_keeps_its_promises"),
            NotYet("needs detach"),
        ],
    },
    Entry {
        about: Row(13),
        fault: "cut in create",
        proofs: &[
            scenario!(starts::creation_cut_anywhere_leaves_no_volume_or_a_whole_one),
            scenario!(starts::recreation_cut_anywhere_leaves_the_old_volume_or_the_new_one_or_none),
        ],
    },
    Entry {
        about: Row(14),
        fault: "program killed",
        proofs: &[
            scenario!(power::killed_program_loses_nothing_that_it_acknowledged),
            Test("crates/headpond/tests/kill.rs::nothing_flushed_is_lost_in_200_kills"),
        ],
    },
    Entry {
        about: Row(15),
        fault: "allocation failure",
        proofs: &[
            Test("crates/raid/tests/failures.rs::little_scratch_memory_slows_down_and_does_not_stop"),
            Test("crates/block/src/buffer/pool.rs::an_empty_class_borrows_from_the_next_and_then_from_the_heap"),
            NotYet("needs pools that never borrow from the heap: where that is empty, the program aborts, as in row 14"),
        ],
    },
    Entry {
        about: Row(16),
        fault: "clock jump",
        proofs: &[Test("xtask/src/tidy/calls.rs::each_forbidden_call_is_found_however_it_is_written")],
    },
    Entry {
        about: Row(17),
        fault: "cache vanishes, all clean",
        proofs: &[
            scenario!(cache_faults::cache_that_vanishes_clean_costs_nothing_and_the_volume_stays_online),
        ],
    },
    Entry {
        about: Row(18),
        fault: "cache vanishes, dirty",
        proofs: &[
            scenario!(cache_faults::cache_that_vanishes_dirty_costs_its_dirty_blocks_and_restarts_only_by_force),
            scenario!(cache_faults::cache_that_was_away_over_a_restart_comes_back_with_its_dirty_data),
        ],
    },
    Entry {
        about: Row(19),
        fault: "cache read error, clean",
        proofs: &[
            scenario!(cache_faults::clean_block_that_the_cache_cannot_read_comes_from_the_core_and_is_counted),
        ],
    },
    Entry {
        about: Row(20),
        fault: "cache read error, dirty",
        proofs: &[
            scenario!(cache_faults::dirty_block_that_the_cache_cannot_read_is_an_error_and_the_others_are_served),
            NotYet("needs mirrored caches: another copy"),
        ],
    },
    Entry {
        about: Row(21),
        fault: "cache write error",
        proofs: &[
            scenario!(cache_faults::write_that_the_cache_refuses_goes_to_the_core_and_nothing_older_comes_back),
        ],
    },
    Entry {
        about: Row(22),
        fault: "silent corruption in the cache",
        proofs: &[
            scenario!(cache_faults::silent_corruption_is_noticed_and_a_clean_block_comes_from_the_core),
        ],
    },
    Entry {
        about: Row(23),
        fault: "cache full of dirty data",
        proofs: &[
            Test("crates/cache/tests/slice/serving.rs::full_of_dirty_data_waits_for_the_cleaner"),
            Test("crates/cache/tests/slice/serving.rs::full_of_dirty_data_without_a_cleaner_goes_past_the_cache_and_never_hangs"),
            Test("crates/cache/tests/slice/faults.rs::request_larger_than_the_cache_goes_past_it"),
        ],
    },
    Entry {
        about: Row(24),
        fault: "wrong cache for the core",
        proofs: &[scenario!(starts::cache_of_another_volume_is_refused_and_both_are_named)],
    },
    Entry {
        about: Row(25),
        fault: "attached twice, or by two hosts",
        proofs: &[Test("crates/uring/src/file/tests.rs::second_opener_is_refused_and_told_by_whom"), NotYet("needs a persistent owner and a heartbeat")],
    },
    Entry {
        about: Row(26),
        fault: "core written outside while the cache is dirty",
        proofs: &[
            scenario!(starts::cache_whose_core_was_opened_without_it_is_refused),
            NotYet("needs a label on the core that tells of its cache: taken out of the description, the cache is not missed until it returns"),
        ],
    },
    Entry {
        about: Row(27),
        fault: "stale cache returns",
        proofs: &[scenario!(starts::cache_whose_core_went_on_without_it_is_refused)],
    },
    Entry {
        about: Row(28),
        fault: "unknown version or features",
        proofs: &[
            scenario!(starts::cache_of_a_later_version_or_with_unknown_features_is_refused_and_says_so),
            scenario!(starts::member_of_a_later_version_or_with_unknown_features_is_refused_and_says_so),
        ],
    },
    Entry {
        about: Row(29),
        fault: "core read error",
        proofs: &[
            scenario!(array_faults::block_that_a_member_cannot_read_is_reconstructed_and_written_again),
            scenario!(array_faults::block_that_the_only_copy_cannot_give_is_an_error),
        ],
    },
    Entry {
        about: Row(30),
        fault: "core error while cleaning",
        proofs: &[
            Test("crates/cache/tests/slice/faults.rs::core_that_fails_while_cleaning_keeps_the_data_dirty_and_flush_reports_it"),
            scenario!(array_faults::full_member_fails_writes_and_nothing_else),
        ],
    },
    Entry {
        about: Row(31),
        fault: "flush fails",
        proofs: &[
            scenario!(array_faults::member_that_cannot_flush_is_out_and_the_flush_holds_without_it),
            scenario!(array_faults::flush_that_the_cache_refuses_is_an_error_and_the_next_one_covers_it),
            scenario!(array_faults::flush_that_the_core_refuses_makes_nothing_clean),
        ],
    },
    Entry {
        about: Row(32),
        fault: "array loses 1, 2, 3 members",
        proofs: &[
            scenario!(array_faults::members_lost_within_the_redundancy_cost_nothing_and_beyond_it_writes_stop),
            scenario!(array_faults::array_beyond_its_redundancy_leaves_dirty_data_in_the_cache),
            Test("crates/raid/tests/failures.rs::a_member_lost_in_the_middle_of_many_writes_costs_no_data"),
        ],
    },
    Entry { about: Row(33), fault: "loss during rebuild", proofs: &[NotYet("needs rebuild")] },
    Entry { about: Row(34), fault: "latent error during rebuild", proofs: &[NotYet("needs rebuild")] },
    Entry {
        about: Row(35),
        fault: "stale member returns",
        proofs: &[
            scenario!(array_faults::copy_that_missed_writes_is_not_read_when_it_returns),
            Test("crates/raid/tests/lives.rs::a_member_put_back_from_an_older_image_is_stale"),
            NotYet("needs re-adding of members: catch-up by the bitmap"),
        ],
    },
    Entry { about: Row(36), fault: "silent corruption of the core", proofs: &[NotYet("needs scrub")] },
    Entry {
        about: Row(37),
        fault: "misdirected write",
        proofs: &[
            scenario!(cache_faults::misdirected_write_is_noticed_by_the_block_that_it_hit),
            scenario!(cache_faults::misdirected_record_is_not_replayed_where_it_landed),
            NotYet("needs checksums on the members"),
        ],
    },
    Entry {
        about: Row(38),
        fault: "lost write",
        proofs: &[
            scenario!(cache_faults::lost_write_is_noticed_by_the_next_read),
            NotYet("needs checksums on the members"),
        ],
    },
    Entry {
        about: Row(39),
        fault: "slow or hung member",
        proofs: &[
            scenario!(array_faults::slow_member_holds_up_nothing_that_the_cache_can_answer_and_stays_a_member),
            NotYet("needs deadlines for members: one that hangs is waited for"),
        ],
    },
    Entry {
        about: Row(40),
        fault: "completions out of order",
        proofs: &[
            Test("crates/raid/tests/model.rs::overlapping_writes_leave_one_of_them_and_right_parity"),
            Test("crates/witness/src/witness.rs::a_write_acknowledged_while_the_flush_ran_is_not_covered"),
        ],
    },
    Entry {
        about: Row(41),
        fault: "dirty cache and a member lost",
        proofs: &[
            scenario!(array_faults::cache_and_member_lost_together_cost_only_what_was_dirty),
            NotYet("needs an export of the list of lost extents: only their number is told"),
        ],
    },
    Entry {
        about: Row(42),
        fault: "no space left below",
        proofs: &[
            scenario!(array_faults::full_member_fails_writes_and_nothing_else),
            Test("crates/raid/tests/failures.rs::a_full_member_is_no_failed_member_and_its_stripe_is_made_right_later"),
        ],
    },
    Entry {
        about: Row(43),
        fault: "smaller device, larger sectors",
        proofs: &[scenario!(starts::device_that_shrank_or_shows_larger_sectors_is_refused)],
    },
    Entry {
        about: Loss(1),
        fault: "metadata before its data, or not flushed; a superblock that did not wait",
        proofs: &[
            scenario!(power::descriptor_that_landed_before_its_data_is_as_if_never_written),
            scenario!(power::stop_cut_anywhere_loses_nothing_and_leaves_dirty_data_dirty),
            Test("crates/raid/src/intent.rs::a_write_waits_until_its_mark_is_stable_and_the_next_does_not"),
        ],
    },
    Entry {
        about: Loss(2),
        fault: "a command or a stop cut half-way; old mappings back after making the cache anew",
        proofs: &[
            scenario!(power::stop_cut_anywhere_loses_nothing_and_leaves_dirty_data_dirty),
            scenario!(starts::recreation_cut_anywhere_leaves_the_old_volume_or_the_new_one_or_none),
        ],
    },
    Entry {
        about: Loss(3),
        fault: "dirty taken for clean; pass-through that loaded dirty mappings",
        proofs: &[
            scenario!(power::dirty_data_stays_dirty_over_a_clean_stop_and_a_cut_after_it),
            scenario!(power::switch_to_pass_through_brings_no_old_mapping_back),
        ],
    },
    Entry {
        about: Loss(4),
        fault: "a stale cache overwrites newer data; core errors while cleaning ignored",
        proofs: &[
            scenario!(starts::cache_whose_core_went_on_without_it_is_refused),
            scenario!(starts::cache_whose_core_was_opened_without_it_is_refused),
            scenario!(array_faults::flush_that_the_core_refuses_makes_nothing_clean),
            Test("crates/cache/tests/slice/faults.rs::core_that_fails_while_cleaning_keeps_the_data_dirty_and_flush_reports_it"),
        ],
    },
    Entry {
        about: Loss(5),
        fault: "a corrupt cache made the process abort",
        proofs: &[
            scenario!(cache_faults::damaged_cache_never_ends_the_program_nor_returns_something_else),
        ],
    },
];
