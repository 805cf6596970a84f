//! How fast traces are read: one thread, from memory or from a file in the page cache, requests
//! paired.

use std::hint::black_box;
use std::io::Cursor;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use headpond_trace::{
    BlktraceDecoded, ReadOptions, RecordingWriter, TraceReader, decode_blktrace_header,
};

const REQUESTS: u64 = 400_000;
const EVENTS_PER_REQUEST: u64 = 6;
const ROUNDS: usize = 5;

const MAGIC_V7: u32 = 0x6561_7407;

/// Queue, get, plug, unplug, dispatch, complete: what the kernel says of a write, and when.
const LIFE: [(u32, u64); EVENTS_PER_REQUEST as usize] =
    [(1, 0), (4, 5), (9, 6), (10, 7), (7, 9), (8, 31_500)];

fn main() {
    let capture = kept(capture());
    let events = (REQUESTS * EVENTS_PER_REQUEST) as f64;
    let ours = best_rate(events, || read(capture));
    let limit = best_rate(events, || decode_only(capture));
    row("trace read blktrace", "events/s", ours, Some(limit), blkparse_rate(capture, events));
    let text = kept(text());
    row("trace read blkparse text", "events/s", best_rate(events, || read(text)), None, None);
    let recording = kept(recording(capture));
    let ours = best_rate(REQUESTS as f64, || read(recording));
    row("trace read recording", "requests/s", ours, None, None);
    for (name, table) in [("MSR", msr_table()), ("Alibaba", alibaba_table())] {
        let table = kept(table);
        let ours = best_rate(REQUESTS as f64, || read(table));
        let limit = best_rate(REQUESTS as f64, || count_lines(table));
        row(&format!("trace read {name} CSV"), "lines/s", ours, Some(limit), None);
    }
}

fn msr_table() -> Vec<u8> {
    table(|n, offset| {
        format!(
            "{},src1,0,Write,{offset},4096,{}\n",
            128_166_372_003_061_629 + n * 97,
            500 + n % 900
        )
    })
}

fn alibaba_table() -> Vec<u8> {
    table(|n, offset| {
        format!("{},W,{offset},16384,{}\n", n / 64 % 40, 1_577_808_000_000_046 + n * 3)
    })
}

/// A line for each request, of its number and an offset.
fn table(line: impl Fn(u64, u64) -> String) -> Vec<u8> {
    let offset = |n: u64| n.wrapping_mul(0x9e37_79b9) % (1 << 30) * 4096;
    (0..REQUESTS).map(|n| line(n, offset(n))).collect::<String>().into_bytes()
}

/// The limit: the ends of the lines found in memory, nothing done with them.
fn count_lines(bytes: &[u8]) {
    let mut rest = bytes;
    let mut count = 0;
    while let Some(at) = memchr::memchr(b'\n', rest) {
        rest = &rest[at + 1..];
        count += 1;
    }
    assert_eq!(black_box(count), REQUESTS);
}

/// Readers own their input; a copy for each round would be most of the time.
fn kept(bytes: Vec<u8>) -> &'static [u8] {
    bytes.leak()
}

/// Writes at depth 32 on one CPU.
fn capture() -> Vec<u8> {
    let mut out = Vec::new();
    for (time_ns, sector, action) in schedule() {
        out.extend(MAGIC_V7.to_le_bytes());
        out.extend(1u32.to_le_bytes());
        out.extend(time_ns.to_le_bytes());
        out.extend(sector.to_le_bytes());
        out.extend(4096u32.to_le_bytes());
        out.extend(((1u32 << 17) | action).to_le_bytes());
        out.extend(161u32.to_le_bytes());
        out.extend((254u32 << 20).to_le_bytes());
        out.extend([0; 8]);
    }
    out
}

fn text() -> Vec<u8> {
    let letter = |action| match action {
        1 => "Q",
        4 => "G",
        9 => "P",
        10 => "U",
        7 => "D",
        _ => "C",
    };
    let mut out = String::new();
    for (index, (time_ns, sector, action)) in schedule().into_iter().enumerate() {
        let (seconds, nanos) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000);
        out.push_str(&format!(
            "254,0    0 {index:>8} {seconds:>5}.{nanos:09}   161  {}  WS {sector} + 8 [fio]\n",
            letter(action)
        ));
    }
    out.into_bytes()
}

/// Time, sector and action of every event, in order of time.
fn schedule() -> Vec<(u64, u64, u32)> {
    let event = |n: u64, (action, delay_ns): (u32, u64)| {
        (n * 1000 + delay_ns, n.wrapping_mul(0x9e37_79b9) % (1 << 32) * 8, action)
    };
    let mut events: Vec<_> = (0..REQUESTS).flat_map(|n| LIFE.map(|step| event(n, step))).collect();
    events.sort_by_key(|&(time_ns, ..)| time_ns);
    events
}

fn recording(capture: &'static [u8]) -> Vec<u8> {
    let mut writer = RecordingWriter::new(Vec::new(), 0).expect("memory takes everything");
    for record in open(capture) {
        writer.push(record.expect("a sound capture")).expect("memory takes everything");
    }
    writer.finish().expect("memory takes everything")
}

fn open(bytes: &'static [u8]) -> TraceReader {
    let input = Box::new(Cursor::new(bytes));
    TraceReader::from_input("bench", input, ReadOptions::default()).expect("a known format")
}

fn read(bytes: &'static [u8]) {
    let mut reader = open(bytes);
    let mut count = 0;
    while let Some(record) = reader.next_record().expect("a sound trace") {
        black_box(record);
        count += 1;
    }
    assert_eq!(count, REQUESTS);
}

/// The limit: headers decoded in memory, nothing done with them.
fn decode_only(bytes: &[u8]) {
    let mut rest = bytes;
    while let BlktraceDecoded::Header(header) = decode_blktrace_header(rest) {
        rest = &rest[header.header_bytes + header.payload_bytes..];
        black_box(header);
    }
}

fn blkparse_rate(capture: &[u8], events: f64) -> Option<f64> {
    let Some(blkparse) = headpond_testkit::tool("blkparse") else {
        eprintln!("skipped: blkparse as a rival: it is not installed");
        return None;
    };
    let folder = headpond_testkit::tempdir();
    let file = folder.path().join("capture.blktrace.0");
    std::fs::write(&file, capture).expect("the capture is written");
    Some(best_rate(events, || run_blkparse(&blkparse, folder.path())))
}

fn run_blkparse(blkparse: &Path, folder: &Path) {
    let status = Command::new(blkparse)
        .args(["-q", "-i", "capture"])
        .current_dir(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .expect("blkparse runs");
    assert!(status.success());
}

fn best_rate(amount: f64, work: impl Fn()) -> f64 {
    let round = |_| {
        let start = Instant::now();
        work();
        amount / start.elapsed().as_secs_f64()
    };
    (0..ROUNDS).map(round).fold(0.0, f64::max)
}

fn row(name: &str, unit: &str, ours: f64, limit: Option<f64>, rival: Option<f64>) {
    let number =
        |value: Option<f64>| value.map_or("null".to_owned(), |value| format!("{value:.1}"));
    println!(
        "{{\"name\":\"{name}\",\"unit\":\"{unit}\",\"ours\":{ours:.1},\"limit\":{},\"rival\":{},\
         \"instructions\":null}}",
        number(limit),
        number(rival)
    );
}
