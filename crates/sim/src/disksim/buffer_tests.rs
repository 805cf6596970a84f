//! What each parameter of the buffer means: a made-up drive with one of them changed is asked for
//! sectors, and answers sooner or later, or its note says what is left out.
//!
//! A turn takes 10 ms; the tracks begin at 0, 29, 79 and 129, two in a cylinder. A sector takes 0.2
//! ms on the medium and 0.1 ms on the interface.

use super::*;
use crate::Machine;
use crate::command::{Command, CommandKind};
use crate::hdd::Drive;
use headpond_block::{ByteRange, Instant};
use std::io;
use std::rc::Rc;

const DRIVE: &str = include_str!("fixtures/small.diskspecs");
const MEDIUM: &str = include_str!("fixtures/small.model");
const CURVE: &str = include_str!("fixtures/small.seek");

/// Answers from memory take less than this, and from the medium more.
const FROM_MEMORY_MS: f64 = 0.6;

/// The made-up drive with other values, or further ones.
fn imported(changes: &[(&str, f64)]) -> Imported {
    let line = |line: &str| {
        let change = changes.iter().find(|(key, _)| line.trim().starts_with(&format!("{key} = ")));
        match change {
            Some((key, value)) => format!("{key} = {value},\n"),
            None => format!("{line}\n"),
        }
    };
    let mut text: String = DRIVE.lines().map(line).collect();
    let is_new = |(key, _): &&(&str, f64)| !DRIVE.contains(&format!("{key} = "));
    for (key, value) in changes.iter().filter(is_new) {
        text = text.replace("Colour of", &format!("{key} = {value}, Colour of"));
    }
    let mut read = |name: &str| match name {
        "small.diskspecs" => Ok(text.clone()),
        "small.model" => Ok(MEDIUM.to_owned()),
        "small.seek" => Ok(CURVE.to_owned()),
        _ => Err(io::ErrorKind::NotFound.into()),
    };
    import(Import { file: "small.diskspecs", disk: None }, &mut read).unwrap()
}

fn noted(changes: &[(&str, f64)]) -> bool {
    let notes = imported(changes).notes;
    notes.iter().any(|note| note.text.contains("is not modelled"))
}

/// A drive and the time.
struct Bench {
    drive: Drive,
    now: u64,
}

impl Bench {
    /// Without reading ahead, and without a cache for writes, unless they are asked for.
    fn of(changes: &[(&str, f64)]) -> Self {
        let base = [
            ("Buffer continuous read", 0.0),
            ("Fast write level", 0.0),
            ("High (read) water mark", 0.0),
            ("Use separate write segment", 0.0),
        ];
        let kept = base.iter().filter(|(key, _)| changes.iter().all(|(other, _)| other != key));
        let all: Vec<(&str, f64)> = kept.chain(changes).copied().collect();
        Self { drive: Drive::new(Rc::new(imported(&all).model), 0), now: 0 }
    }

    /// Milliseconds until it is answered.
    fn took(&mut self, kind: CommandKind, start: u64, sectors: u64) -> f64 {
        let range = ByteRange::at(start * 512, sectors * 512);
        let tag = self.drive.submit(Instant::from_nanos(self.now), Command { kind, range });
        loop {
            let at = self.drive.next_answer().expect("a command waits");
            if let Some(answer) = self.drive.take_answer(at) {
                assert_eq!(answer.tag, tag);
                let before = std::mem::replace(&mut self.now, answer.at.as_nanos());
                return (self.now - before) as f64 / 1e6;
            }
        }
    }

    fn read(&mut self, start: u64, sectors: u64) -> f64 {
        self.took(CommandKind::Read, start, sectors)
    }

    fn write(&mut self, start: u64, sectors: u64) -> f64 {
        self.took(CommandKind::Write, start, sectors)
    }

    fn pause(&mut self, ms: u64) -> &mut Self {
        self.now += ms * 1_000_000;
        self
    }

    /// Whether a sector is in memory, after some time.
    fn holds(&mut self, sector: u64) -> bool {
        self.pause(100).read(sector, 1) < FROM_MEMORY_MS
    }

    fn writes_early(&mut self, start: u64) -> bool {
        self.write(start, 1) < FROM_MEMORY_MS
    }
}

#[test]
fn number_of_buffer_segments() {
    for (segments, held) in [(1.0, false), (2.0, true)] {
        let mut bench = Bench::of(&[("Number of buffer segments", segments)]);
        bench.read(10, 1);
        bench.read(1000, 1);
        assert_eq!(bench.holds(10), held, "{segments} segments");
    }
}

#[test]
fn maximum_number_of_write_segments() {
    for (segments, early) in [(1.0, false), (2.0, true)] {
        let maximum = ("Maximum number of write segments", segments);
        let mut bench = Bench::of(&[maximum, ("Fast write level", 2.0)]);
        assert!(bench.writes_early(10));
        assert_eq!(bench.writes_early(5000), early, "{segments} segments");
    }
    // What was written is held in no more of them either.
    let mut bench = Bench::of(&[("Maximum number of write segments", 1.0)]);
    bench.write(10, 1);
    bench.write(5000, 1);
    assert!(bench.holds(5000) && !bench.holds(10));
}

#[test]
fn segment_size() {
    for (sectors, held) in [(16.0, false), (32.0, true)] {
        let mut bench = Bench::of(&[("Segment size (in blks)", sectors)]);
        bench.read(30, 20);
        assert!(bench.holds(49));
        assert_eq!(bench.holds(30), held, "{sectors} sectors");
    }
}

#[test]
fn use_separate_write_segment() {
    for (separate, held) in [(0.0, false), (1.0, true)] {
        let mut bench = Bench::of(&[
            ("Use separate write segment", separate),
            ("Number of buffer segments", 2.0),
            ("Maximum number of write segments", 2.0),
        ]);
        bench.read(10, 1);
        bench.write(1000, 1);
        bench.write(5000, 1);
        assert_eq!(bench.holds(10), held, "writes take the segments of reads unless apart");
    }
}

#[test]
fn low_write_water_mark() {
    let took = |mark: f64| Bench::of(&[("Low (write) water mark", mark)]).write(40, 10);
    assert_eq!(took(0.0), took(0.75), "it concerns writes that fill a segment");
    assert!(noted(&[("Low (write) water mark", 0.75)]));
}

#[test]
fn high_read_water_mark() {
    let took = |mark: f64| Bench::of(&[("High (read) water mark", mark)]).read(40, 10);
    // Sent while they pass, the last one after it has passed; or all of them then.
    assert!((took(1.0) - took(0.0) - 9.0 * 0.1).abs() < 0.01, "{} {}", took(1.0), took(0.0));
}

#[test]
fn set_watermark_by_reqsize() {
    let took = |by_request: f64| {
        let mark = ("High (read) water mark", 0.2);
        Bench::of(&[mark, ("Set watermark by reqsize", by_request)]).read(40, 10)
    };
    // A fifth of ten sectors, or of a segment: then all of them.
    assert!((took(0.0) - took(1.0) - 9.0 * 0.1).abs() < 0.01, "{} {}", took(0.0), took(1.0));
}

#[test]
fn calc_sector_by_sector() {
    let took = |by_sector: f64| {
        let mut bench = Bench::of(&[("Calc sector by sector", by_sector)]);
        [bench.read(40, 10), bench.write(500, 3), bench.read(45, 90)]
    };
    assert_eq!(took(0.0), took(1.0), "a matter of how DiskSim computes");
    assert!(!noted(&[("Calc sector by sector", 0.0)]));
}

#[test]
fn enable_caching_in_buffer() {
    for (caching, held) in [(0.0, false), (1.0, true), (2.0, true)] {
        let level = ("Fast write level", 2.0);
        let mut bench = Bench::of(&[("Enable caching in buffer", caching), level]);
        bench.read(40, 10);
        assert_eq!(bench.holds(40), held, "caching {caching}");
        assert_eq!(bench.writes_early(500), held, "nothing is cached");
    }
}

#[test]
fn buffer_continuous_read() {
    let held = |scheme: f64, before: Option<u64>, sector: u64| {
        let mut bench = Bench::of(&[
            ("Buffer continuous read", scheme),
            ("Segment size (in blks)", 200.0),
            ("Maximum read-ahead (blks)", 200.0),
        ]);
        if let Some(before) = before {
            bench.read(before, 1);
        }
        bench.pause(100).read(40, 10);
        bench.holds(sector)
    };
    let until =
        |scheme, before, end: u64| held(scheme, before, end - 1) && !held(scheme, before, end);
    assert!(until(0.0, None, 50), "off");
    assert!(until(1.0, None, 79), "to the end of the track");
    assert!(until(2.0, None, 79), "to the end of the cylinder");
    assert!(until(3.0, None, 50 + 190), "to the end of the segment");
    assert!(until(4.0, None, 79), "of one track");
    assert!(until(4.0, Some(20), 129), "and of the next in a stream");
}

#[test]
fn minimum_read_ahead() {
    let took = |least: f64, next: u64| {
        let ahead = ("Buffer continuous read", 3.0);
        let mut bench = Bench::of(&[ahead, ("Minimum read-ahead (blks)", least)]);
        bench.read(30, 2);
        bench.read(next, 2)
    };
    // Thirty sectors take 6 ms of a turn: what is elsewhere waits for them and is a turn late.
    assert!(took(30.0, 79) > took(0.0, 79) + 5.0, "{} {}", took(30.0, 79), took(0.0, 79));
    assert_eq!(took(30.0, 32), took(0.0, 32), "what is being read does not wait");
}

#[test]
fn maximum_read_ahead() {
    let held = |next| {
        let ahead = ("Buffer continuous read", 3.0);
        let mut bench = Bench::of(&[ahead, ("Maximum read-ahead (blks)", 8.0)]);
        bench.read(30, 2);
        bench.holds(next)
    };
    assert!(held(39) && !held(40));
}

#[test]
fn read_ahead_over_requested() {
    let held = |over: f64, sector| {
        let ahead = ("Buffer continuous read", 3.0);
        let most = ("Maximum read-ahead (blks)", 64.0);
        let mut bench = Bench::of(&[ahead, most, ("Read-ahead over requested", over)]);
        bench.read(30, 10);
        bench.holds(sector)
    };
    assert!(held(0.0, 30) && held(0.0, 93) && !held(0.0, 94), "a segment of 64 sectors");
    assert!(!held(1.0, 30) && held(1.0, 103), "takes the place of what was asked for");
    assert!(!held(-1.0, 39) && held(-1.0, 40), "which is given up when it is sent");
}

#[test]
fn read_ahead_on_idle_hit() {
    for (on_hit, held) in [(0.0, false), (1.0, true)] {
        let ahead = ("Buffer continuous read", 3.0);
        let most = ("Maximum read-ahead (blks)", 8.0);
        let mut bench = Bench::of(&[ahead, most, ("Read-ahead on idle hit", on_hit)]);
        bench.read(30, 2);
        assert!(bench.holds(39));
        assert_eq!(bench.holds(47), held);
    }
}

#[test]
fn read_any_free_blocks() {
    for (free, held) in [(0.0, false), (1.0, true)] {
        let mut bench = Bench::of(&[("Read any free blocks", free)]);
        bench.read(40, 1);
        bench.pause(8).read(60, 2);
        assert_eq!(bench.holds(59), held, "it passed before");
        assert!(!bench.holds(62), "this did not");
    }
}

#[test]
fn fast_write_level() {
    let early = |level: f64| {
        let segments = ("Maximum number of write segments", 2.0);
        let mut bench = Bench::of(&[("Fast write level", level), segments]);
        let first = bench.writes_early(10);
        let next = bench.writes_early(11);
        let elsewhere = bench.writes_early(5000);
        [first, next, elsewhere, bench.pause(100).writes_early(9000)]
    };
    assert_eq!(early(0.0), [false, false, false, false]);
    assert_eq!(early(1.0), [true, true, false, true], "one stream at a time");
    assert_eq!(early(2.0), [true, true, true, true]);
    // A read is served when all is written: then both segments are free.
    let segments = ("Maximum number of write segments", 2.0);
    let mut bench = Bench::of(&[("Fast write level", 2.0), segments]);
    assert!(bench.writes_early(5000) && bench.writes_early(10) && !bench.writes_early(16_000));
    let mut bench = Bench::of(&[("Fast write level", 2.0), segments]);
    assert!(bench.writes_early(5000) && bench.writes_early(10));
    bench.read(5100, 1);
    assert!(bench.writes_early(5000) && bench.writes_early(16_000));
}

#[test]
fn immediate_buffer_read() {
    let took = |immediate: f64| {
        let mut bench = Bench::of(&[("Immediate buffer read", immediate)]);
        bench.read(40, 1);
        bench.pause(4).read(30, 49)
    };
    assert!(took(1.0) < 11.5 && took(0.0) > 12.0, "{} {}", took(1.0), took(0.0));
}

#[test]
fn immediate_buffer_write() {
    let took = |immediate: f64| {
        let fast = ("Bulk sector transfer time", 0.01);
        let mut bench = Bench::of(&[fast, ("Immediate buffer write", immediate)]);
        bench.read(5000, 1);
        bench.pause(4).write(30, 49)
    };
    assert!(took(1.0) < took(0.0) - 1.0, "{} {}", took(1.0), took(0.0));
}

#[test]
fn allow_read_hits_on_write_data() {
    for (allowed, hit) in [(0.0, false), (1.0, true)] {
        let level = ("Fast write level", 2.0);
        let mut bench = Bench::of(&[level, ("Allow read hits on write data", allowed)]);
        assert!(bench.writes_early(40));
        assert_eq!(bench.read(40, 1) < FROM_MEMORY_MS, hit, "while it is unwritten");
        bench.write(500, 1);
        assert_eq!(bench.holds(500), hit, "and afterwards");
    }
}

#[test]
fn combine_seq_writes() {
    for (combines, early) in [(0.0, false), (1.0, true)] {
        let mut bench = Bench::of(&[("Combine seq writes", combines), ("Fast write level", 2.0)]);
        assert!(bench.writes_early(10));
        assert_eq!(bench.writes_early(11), early, "there is one segment");
    }
}

#[test]
fn stop_prefetch_in_sector() {
    let took = |in_sector: f64, target: u64| {
        let ahead = ("Buffer continuous read", 3.0);
        let mut bench = Bench::of(&[ahead, ("Stop prefetch in sector", in_sector)]);
        bench.read(30, 1);
        bench.read(target, 1)
    };
    // The one that begins to pass just when the head could be there is missed.
    let later: Vec<f64> = (129..179).map(|at| took(0.0, at) - took(1.0, at)).collect();
    assert!(later.iter().all(|ms| *ms > -0.01), "{later:?}");
    assert_eq!(later.iter().filter(|ms| (**ms - 10.0).abs() < 0.01).count(), 1, "{later:?}");
}

#[test]
fn disconnect_write_if_seek() {
    let took = |disconnects: f64| {
        let reselect = ("First reselect overhead", 0.4);
        Bench::of(&[reselect, ("Disconnect write if seek", disconnects)]).write(16_000, 1)
    };
    // Half of 0.4 ms, by the time scale.
    assert!((took(1.0) - took(0.0) - 0.2).abs() < 1e-6, "{} {}", took(1.0), took(0.0));
}

#[test]
fn write_hit_stop_prefetch() {
    for (stops, held) in [(1.0, false), (0.0, true)] {
        let ahead = ("Buffer continuous read", 3.0);
        let level = ("Fast write level", 2.0);
        let mut bench = Bench::of(&[ahead, level, ("Write hit stop prefetch", stops)]);
        bench.read(30, 2);
        bench.write(5000, 2);
        assert_eq!(bench.holds(60), held);
    }
}

#[test]
fn read_directly_to_buffer() {
    let took = |directly: f64| Bench::of(&[("Read directly to buffer", directly)]).read(40, 10);
    assert_eq!(took(0.0), took(1.0), "there is room in the segment for all of it");
    assert!(noted(&[("Read directly to buffer", 0.0)]) && !noted(&[]));
}

#[test]
fn immed_transfer_partial_hit() {
    let took = |immediate: f64| {
        let mut bench = Bench::of(&[
            ("Bulk sector transfer time", 1.0),
            ("High (read) water mark", 0.75),
            ("Immed transfer partial hit", immediate),
        ]);
        bench.read(40, 10);
        bench.pause(3).read(40, 20)
    };
    // Sent from the start, or when fifteen sectors are there.
    assert!((took(1.0) - 20.15).abs() < 0.01, "{}", took(1.0));
    assert!(took(0.0) > took(1.0) + 1.0, "{}", took(0.0));
}

#[test]
fn of_a_partial_hit_the_rest_is_read() {
    let mut bench = Bench::of(&[]);
    bench.read(40, 10);
    let mut whole = Bench::of(&[]);
    whole.read(200, 10);
    // Sector 50 comes by first: the others need not pass again.
    bench.pause(100);
    whole.pause(100);
    assert!(bench.read(40, 12) < whole.read(40, 12));
}
