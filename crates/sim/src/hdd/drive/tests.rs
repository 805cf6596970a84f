//! What a drive does, seen from outside: answers and their times.

use super::*;
use crate::hdd::{ReadAheadReach, WriteSegmentParameters};
use headpond_block::ByteRange;
use proptest::prelude::*;

const KIB: u64 = 1024;
const MS: u64 = 1_000_000;

fn drive_with(write_cache: bool) -> Drive {
    let model = HddModel::builtin("hdd-7k2-4t").unwrap().with_write_cache(write_cache);
    Drive::new(Rc::new(model), 0)
}

fn command(kind: CommandKind, offset: u64, len: u64) -> Command {
    Command { kind, range: ByteRange::at(offset, len) }
}

/// Waits for the next answer, however long that takes.
fn next(drive: &mut Drive) -> Answer {
    loop {
        let at = drive.next_answer().expect("a command waits");
        if let Some(answer) = drive.take_answer(at) {
            return answer;
        }
    }
}

/// Submits at `now` and waits for the one answer; its time in nanoseconds.
fn serve(drive: &mut Drive, now: u64, kind: CommandKind, offset: u64, len: u64) -> u64 {
    let tag = drive.submit(Instant::from_nanos(now), command(kind, offset, len));
    let answer = next(drive);
    assert_eq!(answer.tag, tag);
    answer.at.as_nanos()
}

/// Operations a second with `depth` commands of 4 KiB in flight at random places.
fn random_rate(mut drive: Drive, kind: CommandKind, depth: u64) -> f64 {
    let mut random = crate::Random::new(7);
    let blocks = drive.model().size_bytes() / 4096;
    let (mut now, count) = (0, 4000);
    let mut submit = |drive: &mut Drive, now| {
        let offset = random.below(blocks) * 4096;
        drive.submit(Instant::from_nanos(now), command(kind, offset, 4096));
    };
    (0..depth).for_each(|_| submit(&mut drive, 0));
    for _ in 0..count {
        now = next(&mut drive).at.as_nanos();
        submit(&mut drive, now);
    }
    f64::from(count) * 1e9 / now as f64
}

#[test]
fn depth_buys_random_reads_what_drives_are_known_for() {
    let one = random_rate(drive_with(true), CommandKind::Read, 1);
    let many = random_rate(drive_with(true), CommandKind::Read, 32);
    assert!((75.0..90.0).contains(&one), "{one} reads a second at depth 1");
    assert!((170.0..230.0).contains(&many), "{many} reads a second at depth 32");
}

#[test]
fn a_full_write_cache_orders_better_than_the_queue() {
    let cached = random_rate(drive_with(true), CommandKind::Write, 1);
    let through = random_rate(drive_with(false), CommandKind::Write, 1);
    assert!(cached > 3.0 * through, "{cached} against {through} writes a second");
}

#[test]
fn a_write_after_the_read_of_its_sector_waits_a_turn_or_goes_to_the_cache() {
    for (write_cache, least, most) in [(false, 7 * MS, 9 * MS), (true, 0, MS)] {
        let mut drive = drive_with(write_cache);
        let read = serve(&mut drive, 0, CommandKind::Read, 4096 * KIB, 4096);
        let written = serve(&mut drive, read, CommandKind::Write, 4096 * KIB, 4096);
        assert!((least..most).contains(&(written - read)), "{} ns", written - read);
    }
}

#[test]
fn sequential_streams_run_at_the_rate_of_the_medium() {
    for kind in [CommandKind::Read, CommandKind::Write] {
        let mut drive = drive_with(true);
        let (mut now, bytes, total) = (0, 64 * KIB, 1 << 30);
        for offset in (0..total).step_by(bytes as usize) {
            now = serve(&mut drive, now, kind, offset, bytes);
        }
        now = serve(&mut drive, now, CommandKind::Flush, 0, 0);
        let rate = total as f64 / 1e6 / (now as f64 / 1e9);
        assert!((165.0..190.0).contains(&rate), "{kind:?}: {rate} MB/s");
    }
}

/// Most that a reader of 64 KiB waits who comes every so often, once it has begun.
fn longest_wait(mut drive: Drive, every: u64) -> u64 {
    let mut now = 0;
    let waits = (0..500).map(|index| {
        let came = now;
        let answered = serve(&mut drive, came, CommandKind::Read, index * 64 * KIB, 64 * KIB);
        now = answered.max(came + every);
        answered - came
    });
    waits.skip(1).max().expect("500 of them")
}

#[test]
fn a_reader_slower_than_the_track_finds_all_of_it_read() {
    // Meanwhile four times as much passes under the head.
    let every = MS + 3 * MS / 10;
    assert!(longest_wait(drive_with(true), every) < MS / 2);
    let text = include_str!("../../../models/hdd-7k2-4t.toml");
    let without = text.replace("resumes_on_hit = true", "resumes_on_hit = false");
    let without = HddModel::parse(&without).unwrap();
    assert!(longest_wait(Drive::new(Rc::new(without), 0), every) > 3 * MS, "2 MiB at a time");
}

#[test]
fn a_reader_who_writes_between_waits_for_the_medium() {
    let mut drive = drive_with(true);
    let (mut now, mut longest) = (0, 0);
    for index in 0..500 {
        let came = now;
        now = serve(&mut drive, came, CommandKind::Read, index * 64 * KIB, 64 * KIB);
        longest = longest.max(if index == 0 { 0 } else { now - came });
        now = serve(&mut drive, now, CommandKind::Write, index * 64 * KIB, 64 * KIB) + 10 * MS;
    }
    assert!(longest > 3 * MS, "{longest}");
}

#[test]
fn what_was_read_or_written_lately_comes_from_the_cache() {
    let mut drive = drive_with(true);
    let read = serve(&mut drive, 0, CommandKind::Read, 0, 4096);
    let again = serve(&mut drive, read, CommandKind::Read, 0, 4096);
    assert!(again - read < MS);
    let written = serve(&mut drive, again, CommandKind::Write, 1 << 40, 4096);
    let back = serve(&mut drive, written, CommandKind::Read, 1 << 40, 4096);
    assert!(back - written < MS);
    let mut elsewhere = drive_with(true);
    assert!(serve(&mut elsewhere, 0, CommandKind::Read, 1 << 40, 4096) > MS);
}

#[test]
fn a_flush_waits_until_everything_before_it_is_on_the_medium() {
    let mut drive = drive_with(true);
    let mut now = 0;
    for index in 0..50 {
        now = serve(&mut drive, now, CommandKind::Write, index * 70_000_000_000, 4096);
    }
    assert!(now < 20 * MS, "the cache takes them at once");
    let flushed = serve(&mut drive, now, CommandKind::Flush, 0, 0);
    assert!(flushed - now > 50 * 2 * MS, "fifty seeks in {} ns", flushed - now);
    let again = serve(&mut drive, flushed, CommandKind::Flush, 0, 0);
    assert!(again - flushed < MS, "nothing is left to write");
}

#[test]
fn a_partial_physical_sector_costs_a_turn_more() {
    let whole = serve(&mut drive_with(false), 0, CommandKind::Write, 4096 * KIB, 4096);
    let part = serve(&mut drive_with(false), 0, CommandKind::Write, 4096 * KIB, 512);
    let turn = drive_with(false).model().revolution_ns();
    assert!((part - whole).abs_diff(turn) < 3 * MS, "{whole} and {part} ns");
}

#[test]
fn no_command_is_passed_over_for_ever() {
    let mut drive = drive_with(true);
    let mut random = crate::Random::new(3);
    let far = drive.submit(Instant::START, command(CommandKind::Read, 3_900_000_000_000, 4096));
    let mut near = |drive: &mut Drive, now| {
        let offset = random.below(1 << 15) * 4096;
        drive.submit(now, command(CommandKind::Read, offset, 4096));
    };
    (0..31).for_each(|_| near(&mut drive, Instant::START));
    loop {
        let answer = next(&mut drive);
        if answer.tag == far {
            let waited = answer.at.as_nanos();
            assert!((300 * MS..700 * MS).contains(&waited), "waited {waited} ns");
            return;
        }
        near(&mut drive, answer.at);
    }
}

#[test]
fn looking_late_changes_no_answer() {
    let run = |late: u64| {
        let mut drive = drive_with(true);
        for index in 0..200 {
            let kind = [CommandKind::Read, CommandKind::Write][index as usize % 2];
            let offset = (index * 7_919 % 900) * 4_000_000_000;
            drive.submit(Instant::from_nanos(index * 1000), command(kind, offset, 8192));
        }
        let mut answers = Vec::new();
        while let Some(at) = drive.next_answer() {
            let look = Instant::from_nanos(at.as_nanos() + late);
            answers.extend(std::iter::from_fn(|| drive.take_answer(look)));
        }
        answers.sort();
        answers
    };
    let prompt = run(0);
    assert_eq!(prompt.len(), 200);
    assert_eq!(run(3 * MS), prompt);
    assert_eq!(run(1000 * MS), prompt);
}

#[test]
fn a_sequential_reader_who_writes_back_is_not_thrown_off_its_track() {
    let mut drive = drive_with(true);
    let (mut now, total) = (0, 16 << 20);
    for offset in (0..total).step_by(4096) {
        now = serve(&mut drive, now, CommandKind::Read, offset, 4096);
        now = serve(&mut drive, now, CommandKind::Write, offset, 4096);
    }
    let rate = total as f64 / 1e6 / (now as f64 / 1e9);
    // Commands and turnarounds take 0.82 ms a pair, which is 5 MB/s; a turn for each would be 0.5.
    assert!(rate > 4.0, "{rate} MB/s");
}

#[test]
fn what_was_written_stays_readable_after_it_is_on_the_medium() {
    let mut drive = drive_with(true);
    let written = serve(&mut drive, 0, CommandKind::Write, 1 << 40, 4096);
    let flushed = serve(&mut drive, written, CommandKind::Flush, 0, 0);
    let read = serve(&mut drive, flushed, CommandKind::Read, 1 << 40, 4096);
    assert!(read - flushed < MS);
}

/// A drive of a few tracks with hardly any cache, where every limit is soon met; each bit of
/// `rules` switches a rule of its buffer.
fn tiny(write_cache: bool, rules: u32) -> Drive {
    let has = |bit: u32| rules & 1 << bit != 0;
    let mut parameters = HddModel::builtin("hdd-7k2-4t").unwrap().parameters().clone();
    parameters.geometry.capacity_bytes = 8 << 20;
    parameters.geometry.heads = 1;
    parameters.geometry.zones = 3;
    parameters.geometry.outer_sectors_per_track = 200;
    parameters.geometry.inner_sectors_per_track = 100;
    parameters.interface.queue_depth = 3;
    parameters.write_cache.enabled = write_cache;
    parameters.write_cache.capacity_kib = 64;
    parameters.write_cache.runs_max = if has(0) { 1 } else { 3 };
    parameters.write_cache.on_arrival = has(1);
    parameters.write_cache.segments =
        has(2).then_some(WriteSegmentParameters { combines: has(3), streams_only: has(4) });
    let interface = &mut parameters.interface;
    interface.read_watermark = if has(5) { 0.5 } else { 0.0 };
    (interface.watermark_of_segment, interface.defers_partial_hits) = (has(6), has(7));
    let buffer = &mut parameters.read_buffer;
    buffer.segments = 3;
    (buffer.read_ahead_kib, buffer.segment_kib) = (60.0, Some(if has(0) { 20.0 } else { 100.0 }));
    buffer.reach = match rules % 4 {
        0 => ReadAheadReach::Distance,
        1 => ReadAheadReach::Track,
        2 => ReadAheadReach::Cylinder,
        _ => ReadAheadReach::NextTrack,
    };
    (buffer.shares_segments, buffer.written_segments) = (has(8), has(8).then_some(1));
    (buffer.keeps_request, buffer.drops_sent, buffer.on_arrival) = (has(9), has(10), has(11));
    (buffer.reads_before, buffer.partial_hits) = (has(12), has(13));
    (buffer.whole_sectors, buffer.reads_on_in_writes) = (has(14), has(15));
    (buffer.resumes_on_hit, buffer.resumes_after) = (true, if has(16) { 1 } else { 16 });
    buffer.read_ahead_least_kib = if has(17) { 30.0 } else { 0.0 };
    Drive::new(Rc::new(HddModel::new(parameters).unwrap()), 0)
}

fn any_command() -> impl Strategy<Value = Command> {
    let kinds = [CommandKind::Read, CommandKind::Write, CommandKind::WriteThrough];
    let transfer = (prop::sample::select(kinds.to_vec()), 0u64..16_384, 1u64..300);
    prop_oneof![
        9 => transfer.prop_map(|(kind, start, sectors)| {
            let start = start.min(16_384 - sectors);
            command(kind, start * 512, sectors * 512)
        }),
        1 => Just(command(CommandKind::Flush, 0, 0)),
    ]
}

proptest! {
    #[test]
    fn every_command_is_answered_once_and_after_it_was_sent(
        commands in prop::collection::vec((any_command(), 0u64..20 * MS), 1..80),
        write_cache in any::<bool>(),
        rules in any::<u32>(),
    ) {
        let mut drive = tiny(write_cache, rules);
        let (mut now, mut sent, mut answers) = (0, std::collections::BTreeMap::new(), Vec::new());
        for (command, pause) in commands {
            now += pause;
            let tag = drive.submit(Instant::from_nanos(now), command);
            sent.insert(tag, now);
            answers.extend(std::iter::from_fn(|| drive.take_answer(Instant::from_nanos(now))));
        }
        while let Some(at) = drive.next_answer() {
            answers.extend(std::iter::from_fn(|| drive.take_answer(at)));
        }
        for answer in answers {
            let sent = sent.remove(&answer.tag).expect("answered once");
            prop_assert!(answer.at.as_nanos() > sent);
        }
        prop_assert!(sent.is_empty(), "{sent:?} never answered");
    }
}
