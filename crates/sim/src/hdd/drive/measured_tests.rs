//! What the figures of a measured drive do, one at a time.

use super::*;
use crate::hdd::{
    AfterParameters, HddParameters, OverheadParameters, ReadAheadReach, Serpentine, ZoneParameters,
};
use headpond_block::ByteRange;

const MS: u64 = 1_000_000;

/// A turn takes 10 ms, a track has 100 sectors, a sector 0.1 ms. One sector takes 1 us on the
/// interface.
fn parameters() -> HddParameters {
    let mut parameters = HddModel::builtin("hdd-7k2-4t").unwrap().parameters().clone();
    let geometry = &mut parameters.geometry;
    (geometry.zones, geometry.heads, geometry.rpm) = (0, 2, 6000);
    (geometry.outer_sectors_per_track, geometry.inner_sectors_per_track) = (0, 0);
    geometry.physical_sector_bytes = 512;
    geometry.capacity_bytes = 20_000 * 512;
    geometry.head_switch_ms = 1.0;
    geometry.serpentine = Serpentine::No;
    geometry.zone_table = vec![ZoneParameters {
        first_cylinder: 0,
        cylinders: 100,
        sectors_per_track: 100,
        offset_sectors: 0.0,
        track_skew_sectors: 20.0,
        cylinder_skew_sectors: 30.0,
        extents: Vec::new(),
    }];
    parameters.seek.curve = vec![(1, 2.0), (100, 6.0)];
    parameters.seek.write_settle_ms = 0.0;
    parameters.interface.command_ms = 0.0;
    parameters.interface.turnaround_ms = 0.0;
    parameters.interface.mb_per_s = 512.0;
    parameters.interface.write_mb_per_s = None;
    parameters.read_buffer.read_ahead_kib = 0.0;
    parameters.read_buffer.segment_kib = Some(64.0);
    parameters.read_buffer.segments = 2;
    parameters.read_buffer.written_segments = Some(1);
    parameters.write_cache.enabled = false;
    parameters
}

fn drive(change: impl FnOnce(&mut HddParameters)) -> Drive {
    let mut parameters = parameters();
    change(&mut parameters);
    Drive::new(Rc::new(HddModel::new(parameters).unwrap()), 0)
}

/// Serves one command that is sent at `now`; when it is answered.
fn serve(drive: &mut Drive, now: u64, kind: CommandKind, start: u64, sectors: u64) -> u64 {
    let range = ByteRange::at(start * 512, sectors * 512);
    drive.submit(Instant::from_nanos(now), Command { kind, range });
    loop {
        let at = drive.next_answer().expect("a command waits");
        if let Some(answer) = drive.take_answer(at) {
            return answer.at.as_nanos();
        }
    }
}

fn read(drive: &mut Drive, now: u64, start: u64, sectors: u64) -> u64 {
    serve(drive, now, CommandKind::Read, start, sectors)
}

fn write(drive: &mut Drive, now: u64, start: u64, sectors: u64) -> u64 {
    serve(drive, now, CommandKind::Write, start, sectors)
}

fn after(read_ms: f64, write_ms: f64) -> AfterParameters {
    AfterParameters { after_read_ms: read_ms, after_write_ms: write_ms }
}

fn near(at: u64, ms: f64) {
    let off = (at as f64 / 1e6 - ms).abs();
    assert!(off < 0.005, "{} ms instead of {ms}", at as f64 / 1e6);
}

#[test]
fn a_read_ends_when_its_last_sector_has_passed_and_is_sent() {
    // Sector 50 begins to pass at 5 ms; ten sectors take 1 ms, the last one 1 us more to send.
    near(read(&mut drive(|_| {}), 0, 50, 10), 6.001);
}

#[test]
fn a_slow_interface_sends_while_the_medium_turns() {
    // 0.5 ms for each of ten sectors, from when the first has passed.
    let slow = |p: &mut HddParameters| p.interface.mb_per_s = 512.0 / 500.0;
    near(read(&mut drive(slow), 0, 50, 10), 5.1 + 5.0);
    let later = |p: &mut HddParameters| {
        slow(p);
        p.interface.read_watermark = 0.5;
    };
    near(read(&mut drive(later), 0, 50, 10), 5.5 + 5.0);
}

#[test]
fn a_write_waits_for_its_data_and_then_for_its_sector() {
    // All data is there after 5 ms, or keeps up from 4.1 ms on: the first sector has passed at 4.
    let slow = |p: &mut HddParameters| p.interface.mb_per_s = 512.0 / 500.0;
    near(write(&mut drive(slow), 0, 40, 10), 15.0);
    near(write(&mut drive(slow), 0, 42, 10), 5.2);
}

#[test]
fn overheads_go_by_case() {
    let measured = |p: &mut HddParameters| {
        p.write_cache.enabled = true;
        p.interface.overheads = Some(OverheadParameters {
            read_hit: after(0.1, 0.2),
            read_miss: after(1.0, 2.0),
            write_hit: after(0.3, 0.4),
            write_miss: after(7.0, 7.0),
            read_data_ms: 0.0,
            write_data_ms: 0.0,
            reconnect_ms: 0.25,
            stays_connected_in_seek: false,
            read_completion_ms: 0.05,
            write_completion_ms: 0.06,
        });
    };
    let mut drive = drive(measured);
    // A miss after a read: under way at 1 ms, passed at 5.1, reconnected, sent and completed.
    let mut now = read(&mut drive, 0, 50, 1);
    near(now, 5.1 + 0.25 + 0.001 + 0.05);
    let mut took = |kind, start| {
        let before = now;
        now = serve(&mut drive, now, kind, start, 1);
        now - before
    };
    near(took(CommandKind::Read, 50), 0.1 + 0.001 + 0.05);
    near(took(CommandKind::Write, 9000), 0.3 + 0.001 + 0.06);
    near(took(CommandKind::Write, 9001), 0.4 + 0.001 + 0.06);
    near(took(CommandKind::Read, 50), 0.2 + 0.001 + 0.05);
}

#[test]
fn a_drive_turns_from_reads_to_writes_and_takes_them_at_a_rate_of_their_own() {
    let mut drive = drive(|p| {
        p.write_cache.enabled = true;
        (p.interface.command_ms, p.interface.turnaround_ms) = (0.1, 0.3);
        p.interface.write_mb_per_s = Some(0.512);
    });
    let mut now = read(&mut drive, 0, 50, 1);
    let mut took = |kind, start| {
        let before = now;
        now = serve(&mut drive, now, kind, start, 1);
        now - before
    };
    near(took(CommandKind::Read, 50), 0.1 + 0.001);
    near(took(CommandKind::Write, 9000), 0.1 + 0.3 + 1.0);
    near(took(CommandKind::Write, 9001), 0.1 + 1.0);
    near(took(CommandKind::Read, 50), 0.1 + 0.3 + 0.001);
}

#[test]
fn sectors_taken_on_arrival_need_no_more_than_a_turn() {
    let on_arrival = |p: &mut HddParameters| p.read_buffer.on_arrival = true;
    // At 4 ms the head is over sector 40, among those asked for.
    for (change, ms) in [(true, 4.0 + 10.0), (false, 12.0 + 6.0)] {
        let mut drive = drive(|p| {
            if change {
                on_arrival(p)
            }
        });
        let at = read(&mut drive, 4 * MS, 20, 60);
        near(at, ms + 0.001);
    }
    // Outside of them it waits for the first, as always.
    near(read(&mut drive(on_arrival), 4 * MS, 50, 20), 7.001);
}

#[test]
fn a_slipped_defect_costs_its_own_time_and_no_turn() {
    let slipped = |p: &mut HddParameters| {
        let extent = |position, sectors| crate::hdd::ExtentParameters {
            position,
            sectors,
            turned_sectors: 0,
        };
        p.geometry.zone_table[0].extents = vec![extent(0, 55), extent(56, 19_944)];
        p.geometry.capacity_bytes -= 512;
    };
    near(read(&mut drive(slipped), 0, 50, 10), 6.101);
}

#[test]
fn the_next_track_starts_behind_its_skew() {
    // The track ends at 10 ms, the head is on the next at 11, whose start comes 20 sectors late.
    near(read(&mut drive(|_| {}), 0, 90, 20), 13.001);
}

#[test]
fn reading_ahead_goes_as_far_as_the_drive_reaches() {
    let hits = |reach, next: u64| {
        let mut drive = drive(|p| {
            p.read_buffer.read_ahead_kib = 64.0;
            p.read_buffer.reach = reach;
        });
        let first = read(&mut drive, 0, 10, 4);
        let second = read(&mut drive, first + 200 * MS, next, 4);
        second - first - 200 * MS < MS / 10
    };
    assert!(hits(ReadAheadReach::Distance, 120));
    assert!(!hits(ReadAheadReach::Distance, 140));
    assert!(hits(ReadAheadReach::Track, 96));
    assert!(!hits(ReadAheadReach::Track, 98));
    assert!(hits(ReadAheadReach::Cylinder, 120));
    assert!(hits(ReadAheadReach::NextTrack, 96));
    assert!(!hits(ReadAheadReach::NextTrack, 98));
}

#[test]
fn a_stream_of_tracks_is_read_one_track_ahead() {
    let mut drive = drive(|p| {
        p.read_buffer.read_ahead_kib = 64.0;
        p.read_buffer.reach = ReadAheadReach::NextTrack;
    });
    let mut now = 0;
    let mut took = |start| {
        let before = now + 200 * MS;
        now = read(&mut drive, before, start, 90);
        now - before
    };
    took(5);
    assert!(took(100) > MS, "the second track is no stream yet");
    assert!(took(190) < MS, "the third was read behind the second");
}

#[test]
fn what_is_asked_for_is_kept_where_the_drive_keeps_it() {
    let again = |keeps: bool| {
        let mut drive = drive(|p| {
            p.read_buffer.read_ahead_kib = 32.0;
            p.read_buffer.segment_kib = Some(32.0);
            p.read_buffer.keeps_request = keeps;
        });
        let first = read(&mut drive, 0, 10, 8);
        let second = read(&mut drive, first + 100 * MS, 10, 8);
        second - first - 100 * MS
    };
    assert!(again(true) < MS);
    assert!(again(false) > MS);
}

#[test]
fn a_write_drives_out_what_it_replaces_and_is_kept_itself() {
    for (written_segments, hits) in [(1, true), (0, false)] {
        let mut drive = drive(|p| p.read_buffer.written_segments = Some(written_segments));
        let mut now = read(&mut drive, 0, 50, 8);
        now = write(&mut drive, now, 50, 8);
        let at = read(&mut drive, now + 3 * MS, 50, 8);
        assert_eq!(at - now - 3 * MS < MS / 10, hits);
    }
}

#[test]
fn a_write_may_settle_sooner_or_later_than_a_read() {
    // One cylinder on, the first sector comes by at 5 ms; the arm is there after 2 ms.
    let at = |settle_ms, start| {
        let mut drive = drive(|p| p.seek.write_settle_ms = settle_ms);
        write(&mut drive, 0, start, 1)
    };
    near(at(0.0, 200), 5.1);
    near(at(3.5, 200), 15.1);
    // A sector that begins to pass at 1.5 ms.
    near(at(0.0, 265), 11.6);
    near(at(-0.7, 265), 1.6);
}
