//! Traces, played against small machines.

use headpond_testkit::{shared, skip, tempdir};
use headpond_trace::{
    Damage, Op, ReadOptions, RecordFlags, RecordingWriter, TraceFormat, TraceRecord,
};
use headpond_whatif::{
    Excerpt, Experiment, Fit, LAPS, Load, Outcome, Pace, Remainder, Replay, SimulateError, Stack,
    TraceLoad, job, simulate,
};
use std::fs::File;
use std::path::Path;

const PLAIN: &str = "name = \"plain\"\n[core]\nraid = 5\ndrive = \"hdd-7k2-4t\"\ndrives = 4\n";
const CACHE: &str = "[cache]\nsize = \"128M\"\nwrite_us = 20\nread_us = 80\n";
const RECORDED: Pace = Pace::Recorded { speed: 1.0 };

fn play(stack: &str, trace: &Path, pace: Pace, fit: Fit) -> Result<Outcome, SimulateError> {
    let load = TraceLoad::open(trace, pace, fit, ReadOptions::default()).unwrap();
    let stack = Stack::parse(stack).unwrap();
    simulate(&Experiment { stack, load: Load::Trace(load), seed: 1 })
}

fn replay(outcome: &Outcome) -> Replay {
    outcome.replay.expect("the load was a trace")
}

fn write(path: &Path, records: impl IntoIterator<Item = TraceRecord>) {
    let mut writer = RecordingWriter::new(File::create(path).unwrap(), 0).unwrap();
    writer.name_device(0, "sda").unwrap();
    records.into_iter().for_each(|record| writer.push(record).unwrap());
    writer.finish().unwrap();
}

/// 4 KiB reads all over the volume, one each `every_us`.
fn reads(count: u64, every_us: u64) -> impl Iterator<Item = TraceRecord> {
    (0..count).map(move |number| {
        let block = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 2_000_000_000;
        TraceRecord::new(number * every_us * 1000, Op::Read, block * 4096, 4096)
    })
}

#[test]
fn requests_come_when_they_were_recorded() {
    let dir = tempdir();
    let path = dir.path().join("calm");
    write(&path, reads(400, 50_000));
    let outcome = play(PLAIN, &path, RECORDED, Fit::Wrap).unwrap();
    let read = outcome.jobs[0].measured.read;
    assert_eq!((outcome.jobs[0].name.as_str(), read.requests), ("calm", 400));
    assert!((19.0..21.0).contains(&read.iops), "{read:?}");
    assert!((5_000.0..20_000.0).contains(&read.latency.mean_us), "{read:?}");
    assert!((59..=120).contains(&outcome.windows.len()), "{}", outcome.windows.len());
    let twice = play(PLAIN, &path, Pace::Recorded { speed: 2.0 }, Fit::Wrap).unwrap();
    assert!((38.0..42.0).contains(&twice.jobs[0].measured.read.iops));
}

/// Of two blocks, each read twice, one is metadata.
#[test]
fn what_a_trace_marks_as_metadata_is_metadata_to_the_classes() {
    let dir = tempdir();
    let path = dir.path().join("marked");
    let records = (0..4_u64).map(|number| {
        let mut record = TraceRecord::new(number * 100_000_000, Op::Read, (number % 2) << 30, 4096);
        record.flags.set(RecordFlags::METADATA, number % 2 == 1);
        record
    });
    write(&path, records);
    let hits = |classes: &str| {
        let stack = format!("{PLAIN}{CACHE}classes = \"{classes}\"\n");
        play(&stack, &path, RECORDED, Fit::Wrap).unwrap().cache.unwrap().read_hit_ratio
    };
    assert_eq!(
        [hits("none"), hits("only:metadata"), hits("past:io_direction:read")],
        [0.5, 0.25, 0.0]
    );
}

#[test]
fn every_kind_of_request_reaches_the_volume() {
    let dir = tempdir();
    let path = dir.path().join("kinds");
    let at = |step: u64, op, offset, len| TraceRecord::new(step * 10_000_000, op, offset, len);
    let mut fua = at(2, Op::Write, 8192, 4096);
    fua.flags |= RecordFlags::FUA | RecordFlags::PREFLUSH;
    let mut again = at(6, Op::Write, 0, 4096);
    again.flags |= RecordFlags::RETRIED;
    let mut slow = at(8, Op::Read, 1 << 30, 512);
    slow.completed_ns = Some(slow.issued_ns + 3_000_000);
    let records = [
        at(0, Op::Write, 0, 4096),
        at(1, Op::Flush, 0, 0),
        fua,
        at(3, Op::Discard, 1 << 30, 1 << 20),
        at(4, Op::WriteZeroes, 2 << 30, 1 << 20),
        at(5, Op::Read, 100, 4000),
        again,
        at(7, Op::Read, 0, 0),
        slow,
    ];
    write(&path, records);
    let outcome = play(&format!("{PLAIN}{CACHE}"), &path, RECORDED, Fit::Refuse).unwrap();
    let (measured, replay) = (&outcome.jobs[0].measured, replay(&outcome));
    assert_eq!(measured.errors, 0);
    let requests = (measured.read.requests, measured.write.requests, measured.flush.requests);
    assert_eq!(requests, (2, 4, 1), "{measured:?}");
    let counts = (replay.flushes, replay.fua_writes, replay.discards, replay.write_zeroes);
    assert_eq!(counts, (1, 1, 1, 1));
    assert_eq!((replay.rounded, replay.empty, replay.wrapped), (1, 2, 0));
    let recorded = replay.recorded_read.expect("one of the reads has a time");
    assert!((recorded.mean_us / 3000.0 - 1.0).abs() < 0.01 && replay.recorded_write.is_none());
}

#[test]
fn what_lies_beyond_the_volume_is_wrapped_skipped_or_refused() {
    let dir = tempdir();
    let path = dir.path().join("beyond");
    let volume = 3 * 4_000_000_000_000u64;
    let far = |number: u64| volume / 40_960 * number * 6 * 4096;
    let record = |number| TraceRecord::new(number * 20_000_000, Op::Read, far(number), 8192);
    write(&path, (0..8).map(record));
    let wrapped = play(PLAIN, &path, RECORDED, Fit::Wrap).unwrap();
    assert_eq!((wrapped.jobs[0].measured.read.requests, replay(&wrapped).wrapped), (8, 6));
    assert!(wrapped.why[0].contains("6 requests of the trace lay beyond"), "{:?}", wrapped.why);
    let skipped = play(PLAIN, &path, RECORDED, Fit::Skip).unwrap();
    assert_eq!((skipped.jobs[0].measured.read.requests, replay(&skipped).skipped), (2, 6));
    let refused = play(PLAIN, &path, RECORDED, Fit::Refuse).unwrap_err().to_string();
    assert!(refused.contains("request 3 of the trace ends at byte"), "{refused}");
}

#[test]
fn a_damaged_trace_says_where() {
    let dir = tempdir();
    let path = dir.path().join("log");
    std::fs::write(&path, "fio version 2 iolog\n/dev/a read 0 4096\n/dev/a tickle 0 1\n").unwrap();
    let open = |damage| {
        let reading = ReadOptions { damage, ..ReadOptions::default() };
        TraceLoad::open(&path, RECORDED, Fit::Wrap, reading)
    };
    let error = open(Damage::Fail).unwrap_err().to_string();
    assert!(error.contains("line 3"), "{error}");
    assert_eq!(open(Damage::Skip).unwrap().survey().records, 1);
}

#[test]
fn real_traces_are_played_whatever_their_format() {
    let stack = format!("{PLAIN}{CACHE}");
    let mut played = 0;
    for name in [
        "headpond-vm/vda.bin",
        "headpond-vm/vda.blktrace.0",
        "blktrace/takeoverjp-sample.blktrace.0",
        "fio-iolog/own-oltp-v3.iolog.zst",
    ] {
        let Some(path) = shared(Path::new("traces").join(name)) else { continue };
        let outcome = play(&stack, &path, RECORDED, Fit::Wrap).unwrap();
        let (measured, replay) = (&outcome.jobs[0].measured, replay(&outcome));
        let answered = measured.read.requests + measured.write.requests + measured.flush.requests;
        let load = TraceLoad::open(&path, RECORDED, Fit::Wrap, ReadOptions::default()).unwrap();
        assert_eq!(measured.errors, 0, "{name}");
        assert!(answered > 0 && answered + replay.empty >= load.survey().records, "{name}");
        assert!(measured.seconds >= load.survey().span.as_secs_f64() * 0.999, "{name}");
        played += 1;
    }
    if played < 4 {
        skip!("real traces are played", "{} of 4 sample traces are absent", 4 - played);
    }
}

#[test]
fn as_many_are_in_flight_as_were_when_it_was_recorded() {
    let dir = tempdir();
    let path = dir.path().join("waves");
    // Three at a time, and the next three when those are answered.
    let waves = reads(300, 1).enumerate().map(|(number, record)| {
        let issued_ns = number as u64 / 3 * 1_000_000;
        TraceRecord { issued_ns, completed_ns: Some(issued_ns + 900_000), ..record }
    });
    write(&path, waves);
    let pace = Pace::AsDeepAsRecorded { unknown: 50 };
    let outcome = play(PLAIN, &path, pace, Fit::Wrap).unwrap();
    assert_eq!(replay(&outcome).in_flight_max, 3);
    write(&path, reads(300, 1));
    let outcome = play(PLAIN, &path, pace, Fit::Wrap).unwrap();
    assert_eq!(replay(&outcome).in_flight_max, 50);
}

#[test]
fn the_first_requests_of_an_excerpt_warm_the_cache_and_are_not_measured() {
    let played = |warm_up: usize| {
        let rounds: Vec<_> = reads(2000, 5000).chain(reads(2000, 5000)).collect();
        let load = Load::Excerpt(Excerpt {
            name: "twice".into(),
            records: rounds[2000 - warm_up..].into(),
            warm_up,
            pace: RECORDED,
            fit: Fit::Wrap,
            remainder: Remainder::Nothing,
            format: TraceFormat::Recording,
        });
        let stack = Stack::parse(&format!("{PLAIN}{CACHE}")).unwrap();
        simulate(&Experiment { stack, load, seed: 1 }).unwrap()
    };
    let (cold, warm) = (played(0), played(2000));
    let hits = |outcome: &Outcome| outcome.cache.unwrap().read_hit_ratio;
    assert!(hits(&cold) < 0.01 && hits(&warm) > 0.99, "{} {}", hits(&cold), hits(&warm));
    for outcome in [&cold, &warm] {
        assert_eq!(outcome.jobs[0].measured.read.requests, 2000);
        assert_eq!(outcome.laps.len(), LAPS);
        let requests: u64 = outcome.laps.iter().map(|lap| lap.requests).sum();
        let seconds: f64 = outcome.laps.iter().map(|lap| lap.seconds).sum();
        assert!(requests == 2000 && (9.9..10.5).contains(&seconds), "{seconds}");
    }
    assert!(cold.laps[3].mean_us > 20.0 * warm.laps[3].mean_us);
}

/// Writes of 4 KiB all over the device, as many in flight as is said.
fn left_over(stack: &str, writes: u64, remainder: Remainder) -> Outcome {
    let scattered = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (100 << 30) / 4096 * 4096;
    let load = Load::Excerpt(Excerpt {
        name: "writes".into(),
        records: (0..writes)
            .map(|n| TraceRecord::new(n, Op::Write, scattered(n), 4096))
            .collect::<Vec<_>>()
            .into(),
        warm_up: 0,
        pace: Pace::AsFastAsPossible { depth: 16 },
        fit: Fit::Wrap,
        remainder,
        format: TraceFormat::Recording,
    });
    simulate(&Experiment { stack: Stack::parse(stack).unwrap(), load, seed: 1 }).unwrap()
}

/// Requests a second, with what is left to do in the end.
fn lasting_rate(outcome: &Outcome) -> f64 {
    let requests: u64 = outcome.laps.iter().map(|lap| lap.requests).sum();
    let seconds: f64 = outcome.laps.iter().map(|lap| lap.seconds).sum();
    requests as f64 / (seconds + outcome.afterwards.unwrap().counts_s)
}

#[test]
fn what_drives_and_cache_answered_and_still_have_counts_in_the_end() {
    for (stack, remainder) in [
        (PLAIN.replace("raid = 5", "raid = 0"), Remainder::OfDrives),
        (format!("{PLAIN}{CACHE}"), Remainder::OfDrivesAndCache),
    ] {
        let burst = lasting_rate(&left_over(&stack, 400, Remainder::Nothing));
        let rates = [400, 1200].map(|writes| lasting_rate(&left_over(&stack, writes, remainder)));
        assert!(burst > 3.0 * rates[0], "{burst} and {rates:?}");
        assert!((0.67..1.5).contains(&(rates[0] / rates[1])), "{rates:?}");
    }
}

/// Small writes all over the device, of which each takes a stripe of its own, among long ones that
/// fill theirs.
fn mixed_sizes(rounds: u64, warm_up: u64) -> Outcome {
    let scattered = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (100 << 30) / 4096 * 4096;
    let long = |n: u64| (200 << 30) + (n << 20);
    let round = |n: u64| {
        let small =
            (0..8).map(move |at| TraceRecord::new(n, Op::Write, scattered(8 * n + at), 4096));
        small.chain(std::iter::once(TraceRecord::new(n, Op::Write, long(n), 1 << 20)))
    };
    let load = Load::Excerpt(Excerpt {
        name: "mixed".into(),
        records: (0..warm_up + rounds).flat_map(round).collect::<Vec<_>>().into(),
        warm_up: 9 * warm_up as usize,
        pace: Pace::AsFastAsPossible { depth: 16 },
        fit: Fit::Wrap,
        remainder: Remainder::OfDrivesAndCache,
        format: TraceFormat::Recording,
    });
    let stack = format!("{PLAIN}{CACHE}seq_cutoff = \"never\"\n");
    simulate(&Experiment { stack: Stack::parse(&stack).unwrap(), load, seed: 1 }).unwrap()
}

/// What stays dirty is small and costly, and what is cleaned meanwhile long and cheap, or the other
/// way round: however the cache was filled and however much is measured, the rate is not far from
/// that of a long run. Long runs differ by a twentieth among themselves.
#[test]
fn what_is_left_counts_by_what_it_costs_to_clean() {
    let rate = |warm_up, rounds| lasting_rate(&mixed_sizes(rounds, warm_up));
    let long = rate(400, 1080);
    for warm_up in [0, 40, 200] {
        for rounds in [60, 120, 180] {
            let short = rate(warm_up, rounds);
            // Of so few requests one flush of the drives is a good part.
            let least = if rounds < 100 { 0.5 } else { 0.65 };
            assert!(
                (least..1.6).contains(&(short / long)),
                "{warm_up} {rounds}: {short} of {long}"
            );
        }
    }
}

#[test]
fn cleaning_in_the_shadow_of_idle_drives_costs_nothing() {
    let outcome = left_over(&format!("{PLAIN}{CACHE}"), 400, Remainder::OfDrivesAndCache);
    let afterwards = outcome.afterwards.unwrap();
    let seconds: f64 = outcome.laps.iter().map(|lap| lap.seconds).sum();
    assert!(afterwards.cleaning_s > seconds, "{afterwards:?}");
    let most = afterwards.drives_s + afterwards.cleaning_s;
    assert!(afterwards.counts_s > afterwards.drives_s && afterwards.counts_s < most);
}

/// Writes of 4 KiB all over the device, `per_s` of them each second after as many rounds as are
/// said, into a cache that has room for all of them.
fn written_at_their_times(stack: &str, per_s: u64, writes: u64, rounds: u64) -> Outcome {
    let scattered = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (8 << 40) / 4096 * 4096;
    let write = |n| TraceRecord::new(n * 1_000_000_000 / per_s, Op::Write, scattered(n), 4096);
    let load = Load::Excerpt(Excerpt {
        name: "writes".into(),
        records: (0..writes * (rounds + 1)).map(write).collect::<Vec<_>>().into(),
        warm_up: (writes * rounds) as usize,
        pace: RECORDED,
        fit: Fit::Wrap,
        remainder: Remainder::OfDrivesAndCache,
        format: TraceFormat::Recording,
    });
    simulate(&Experiment { stack: Stack::parse(stack).unwrap(), load, seed: 1 }).unwrap()
}

#[test]
fn who_does_not_keep_up_with_the_recorded_times_falls_behind_however_fast_a_cache_answers() {
    let stack = format!("{PLAIN}{CACHE}");
    let behind = |per_s, writes, rounds| {
        let outcome = written_at_their_times(&stack, per_s, writes, rounds);
        assert!(outcome.jobs[0].measured.write.latency.mean_us < 1000.0, "{:?}", outcome.jobs);
        outcome.afterwards.unwrap().behind_s / outcome.replay.unwrap().span_s
    };
    for (writes, rounds) in [(400, 1), (400, 3), (1200, 3)] {
        assert!(behind(40, writes, rounds) < 0.01, "{writes} {rounds}");
    }
    let far = [400, 1200].map(|writes| behind(2000, writes, 2));
    assert!(far[0] > 2.0 && (0.5..2.0).contains(&(far[0] / far[1])), "{far:?}");
}

/// They hold some when the last request is answered, and held as many after the warm-up.
#[test]
fn what_drives_hold_that_keep_up_is_not_charged_to_requests_at_their_own_times() {
    let afterwards = |per_s| {
        let stack = PLAIN.replace("raid = 5", "raid = 0");
        written_at_their_times(&stack, per_s, 800, 3).afterwards.unwrap()
    };
    let (calm, storm) = (afterwards(200), afterwards(4000));
    assert!(calm.drives_s > 0.0 && calm.behind_s < 0.02 * 4.0, "{calm:?}");
    assert!(storm.behind_s > 0.2 * 0.2, "{storm:?}");
}

/// They came to the array in the order of tasks, which is none: what fills stripes was merged by
/// chance only, and took four times as long.
#[test]
fn a_stream_reaches_the_array_in_its_order() {
    let stack =
        "name = \"stream\"\n[core]\nraid = 60\ngroups = 4\ndrive = \"hdd-7k2-4t\"\ndrives = 40\n";
    let dir = tempdir();
    let path = dir.path().join("stream");
    let write_at = |n: u64| TraceRecord::new(n, Op::Write, n * (128 << 10), 128 << 10);
    write(&path, (0..2000).map(write_at));
    let depth = Pace::AsFastAsPossible { depth: 4 };
    let played = play(stack, &path, depth, Fit::Refuse).unwrap();
    let job = "[w]\nrw=write\nbs=128k\niodepth=4\nramp_time=0\nsize=250m\n";
    let load = Load::Jobs(job::parse(job).unwrap());
    let asked =
        simulate(&Experiment { stack: Stack::parse(stack).unwrap(), load, seed: 1 }).unwrap();
    let rates = [&played, &asked].map(|outcome| outcome.jobs[0].measured.write.iops);
    assert!((0.8..1.25).contains(&(rates[0] / rates[1])), "{rates:?}");
}

/// Minutes of simulation, for `make conclusions`.
mod conclusions {
    use super::*;

    #[test]
    fn latency_counts_from_the_recorded_time_where_the_machine_falls_behind() {
        let dir = tempdir();
        let path = dir.path().join("storm");
        // Ten thousand reads a second are far beyond four drives, which do some hundred each.
        write(&path, reads(20_000, 100));
        let outcome = play(PLAIN, &path, RECORDED, Fit::Wrap).unwrap();
        let (read, seconds) = (outcome.jobs[0].measured.read, outcome.jobs[0].measured.seconds);
        assert_eq!(read.requests, 20_000);
        assert!(seconds > 10.0 && read.iops < 2000.0, "{read:?}");
        // Who came first waited little, who came last nearly for all of it: half of it on average.
        let half = (seconds - 2.0) / 2.0 * 1e6;
        assert!((0.6..1.4).contains(&(read.latency.mean_us / half)), "{read:?} {half}");
        assert!(replay(&outcome).in_flight_max > 10_000);
        // In a closed loop nothing waits for more than those in front of it.
        let depth = Pace::AsFastAsPossible { depth: 8 };
        let closed = play(PLAIN, &path, depth, Fit::Wrap).unwrap();
        let read = closed.jobs[0].measured.read;
        assert_eq!((read.requests, replay(&closed).in_flight_max), (20_000, 8));
        assert!(read.latency.p99_us < 200_000.0, "{read:?}");
    }
}
