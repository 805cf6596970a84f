//! Every management command, with one of its device writes failing, or the power cut at one of its
//! operations: then the volume is opened, and its state is the old one or the new one, with all
//! that was flushed.
//!
//! 1. A volume is made in the state that the command begins with, and given data that only its
//!    cache has, where it has one; 2. a copy of its disks is opened and the command carried out,
//!    with one [`Blow`]; 3. where the program is still alive everything is read; 4. the power goes,
//!    the volume is opened as its description was kept, everything is read, and it is stopped;
//!    5. the same with the blow one later, until it comes too late.

mod disks;
mod jobs;

use self::disks::{Blow, Disks};
use self::jobs::Command;
use headpond_volume::Volume;
use std::cell::Cell;
use std::rc::Rc;

/// What a sweep has come to.
#[derive(Debug, Default)]
struct Swept {
    blows: u64,
    /// Commands that answered with an error.
    failed: u64,
    /// Loads that found the old state, and the new one.
    old: u64,
    new: u64,
}

/// One command from its beginning, with one blow; false where that came too late.
fn strike(command: Command, base: &Disks, blow: Blow, swept: &mut Swept) -> bool {
    let context = format!("{command:?}, {blow:?}");
    let disks = base.duplicate();
    let (answer, has_struck) = (Cell::new(None), Cell::new(false));
    let was_done = disks.live(async |runtime, sim| {
        let volume = disks.open(&runtime, &sim).await;
        command.prepare(&disks, &volume, &runtime, &sim).await;
        disks.arm(blow);
        let acted = command.job(&disks, &volume, &runtime, &sim).await;
        has_struck.set(disks.disarm());
        answer.set(Some(acted.is_ok()));
        if !command.leaves_nothing_open() {
            check(command, &volume, &format!("{context}, {acted:?}")).await;
        }
        if acted.is_ok() {
            assert!(command.is_new(&volume), "{context}: it said that it was done");
        }
        // A device that has failed may have to be told of, which the next start makes good.
        let _ = volume.stop().await;
    });
    disks.lose_power(blow.number() + 1);
    assert!(disks.live(async |runtime, sim| {
        let volume = disks.open(&runtime, &sim).await;
        check(command, &volume, &format!("{context}, loaded")).await;
        let is_new = command.is_new(&volume);
        assert!(is_new || answer.get() != Some(true), "{context}: it was done");
        *if is_new { &mut swept.new } else { &mut swept.old } += 1;
        volume.stop().await.unwrap_or_else(|error| panic!("{context}: {error}"));
    }));
    let has_struck = has_struck.get() || !was_done;
    swept.blows += u64::from(has_struck);
    swept.failed += u64::from(answer.get() == Some(false));
    has_struck
}

async fn check(command: Command, volume: &Rc<Volume>, context: &str) {
    disks::check_data(command, volume, context).await;
    volume.self_check();
}

/// The first so many blows one after the other, and of what comes later every so manieth.
const FIRST: u64 = 200;
const LATER: u64 = 311;

fn sweep(command: Command, blow: fn(u64) -> Blow) -> Swept {
    let base = Disks::new(command);
    let mut swept = Swept::default();
    for at in (0..FIRST).chain((FIRST..).step_by(LATER as usize)) {
        if !strike(command, &base, blow(at), &mut swept) {
            break;
        }
    }
    println!("{command:?}: {swept:?}");
    swept
}

fn fail(command: Command) {
    let swept = sweep(command, Blow::Write);
    assert!(swept.blows >= command.writes_min(), "{command:?}: {swept:?}");
}

fn cut(command: Command) {
    let swept = sweep(command, Blow::Cut);
    assert!(swept.blows >= command.writes_min(), "{command:?}: {swept:?}");
    use Command::{AttachTier, DetachTier, RemoveCore, RemoveSpare, Scrub};
    // A core or a spare is listed no more before anything is written.
    let has_one_state =
        matches!(command, AttachTier | DetachTier | RemoveCore | RemoveSpare | Scrub);
    assert!(swept.old > 0 || has_one_state, "{command:?}: {swept:?}");
    assert!(swept.new > 0, "{command:?}: {swept:?}");
}

#[test]
fn a_core_that_is_added_or_removed_is_there_or_not_wherever_a_write_fails() {
    fail(Command::AddCore);
    fail(Command::RemoveCore);
}

#[test]
fn a_core_that_is_added_or_removed_is_there_or_not_wherever_the_power_is_cut() {
    cut(Command::AddCore);
    cut(Command::RemoveCore);
}

#[test]
fn a_core_comes_and_goes_below_a_cache_wherever_a_write_fails() {
    fail(Command::AddCoreBelow);
    fail(Command::RemoveCoreBelow);
}

#[test]
fn a_core_comes_and_goes_below_a_cache_wherever_the_power_is_cut() {
    cut(Command::AddCoreBelow);
    cut(Command::RemoveCoreBelow);
}

#[test]
fn a_tier_comes_and_goes_wherever_a_write_fails() {
    fail(Command::AttachTier);
    fail(Command::DetachTier);
}

#[test]
fn a_tier_comes_and_goes_wherever_the_power_is_cut() {
    cut(Command::AttachTier);
    cut(Command::DetachTier);
}

#[test]
fn a_cache_comes_and_goes_wherever_a_write_fails() {
    fail(Command::Attach);
    fail(Command::Detach);
}

#[test]
fn a_cache_is_exchanged_wherever_a_write_fails() {
    fail(Command::Replace);
    fail(Command::Resize);
    fail(Command::Purge);
}

#[test]
fn a_volume_is_cleaned_and_stopped_wherever_a_write_fails() {
    fail(Command::CleanAll);
    fail(Command::Stop);
}

#[test]
fn a_volume_is_set_and_cleaned_and_scrubbed_wherever_a_write_fails() {
    fail(Command::SetAndClean);
    fail(Command::Scrub);
}

#[test]
fn a_volume_is_set_and_cleaned_and_scrubbed_wherever_the_power_is_cut() {
    cut(Command::SetAndClean);
    cut(Command::Scrub);
}

#[test]
fn what_is_given_up_by_force_is_there_or_not_wherever_a_write_fails() {
    fail(Command::DetachLosing);
    fail(Command::PurgeDropping);
}

#[test]
fn what_is_given_up_by_force_is_there_or_not_wherever_the_power_is_cut() {
    cut(Command::DetachLosing);
    cut(Command::PurgeDropping);
}

/// Those of a single device, which the enumeration of the swarm has in one shape only.
#[test]
fn a_cache_is_exchanged_wherever_the_power_is_cut() {
    cut(Command::Attach);
    cut(Command::Detach);
    cut(Command::Replace);
    cut(Command::Resize);
    cut(Command::Purge);
    cut(Command::CleanAll);
}

#[test]
fn a_cache_on_copies_comes_and_goes_wherever_a_write_fails() {
    fail(Command::AttachCopies);
    fail(Command::DetachCopies);
}

#[test]
fn a_cache_on_copies_comes_and_goes_wherever_the_power_is_cut() {
    cut(Command::AttachCopies);
    cut(Command::DetachCopies);
}

#[test]
fn a_cache_on_copies_changes_its_size_wherever_a_write_fails() {
    fail(Command::ResizeCopies);
    fail(Command::RemakeCopies);
}

#[test]
fn a_cache_on_copies_changes_its_size_wherever_the_power_is_cut() {
    cut(Command::ResizeCopies);
    cut(Command::RemakeCopies);
}

#[test]
fn a_stripe_journal_comes_and_goes_wherever_a_write_fails() {
    fail(Command::AddJournal);
    fail(Command::ExchangeJournal);
    fail(Command::DropJournal);
}

#[test]
fn a_stripe_journal_comes_and_goes_wherever_the_power_is_cut() {
    cut(Command::AddJournal);
    cut(Command::ExchangeJournal);
    cut(Command::DropJournal);
}

#[test]
fn a_copy_is_replaced_and_added_wherever_a_write_fails() {
    fail(Command::ReplaceCopy);
    fail(Command::AddCopy);
    fail(Command::FailCopy);
}

#[test]
fn a_copy_is_replaced_and_added_wherever_the_power_is_cut() {
    cut(Command::ReplaceCopy);
    cut(Command::AddCopy);
    cut(Command::FailCopy);
}

#[test]
fn a_copy_of_an_array_and_a_spare_go_wherever_a_write_fails() {
    fail(Command::DropCopy);
    fail(Command::RemoveSpare);
}

#[test]
fn a_copy_of_an_array_and_a_spare_go_wherever_the_power_is_cut() {
    cut(Command::DropCopy);
    cut(Command::RemoveSpare);
}
