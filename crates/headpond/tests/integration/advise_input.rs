//! `headpond advise` on input that nobody would expect: an answer or an error, and always an end.

use crate::common::{Ended, User};
use std::fs;

const DAY_US: u64 = 1_577_808_000_000_046;

/// Advice on a file of this content.
fn advised(content: impl AsRef<[u8]>, more: &[&str]) -> Ended {
    let user = User::new();
    let path = user.path("trace");
    fs::write(&path, content).unwrap();
    let machine = ["--raid", "5", "--members", "4", "--cache-size", "64M", "--effort", "quick"];
    let args = [&["advise", path.to_str().unwrap()], &machine[..], more].concat();
    user.run(&args)
}

/// Alibaba's lines of these operations, offsets, lengths and times.
fn table(lines: impl IntoIterator<Item = (char, u64, u64, u64)>) -> String {
    let line = |(op, offset, length, after_us)| {
        format!("7,{op},{offset},{length},{}\n", DAY_US + after_us)
    };
    lines.into_iter().map(line).collect()
}

/// One event of a kernel's trace: a queued request of so many bytes.
fn event(sector: u64, bytes: u32, category: u32) -> Vec<u8> {
    let mut record = Vec::new();
    record.extend(0x6561_7407_u32.to_le_bytes());
    record.extend(1_u32.to_le_bytes());
    record.extend(1_000_u64.to_le_bytes());
    record.extend(sector.to_le_bytes());
    record.extend(bytes.to_le_bytes());
    record.extend((category << 16 | 1).to_le_bytes());
    for word in [1_u32, 8 << 20, 0, 0] {
        record.extend(word.to_le_bytes());
    }
    record
}

const WRITE: u32 = 1 << 1;
const FLUSH: u32 = 1 << 2;

#[test]
fn what_is_no_trace_is_refused_with_the_reason() {
    let empty = advised("", &[]);
    assert!(empty.code != 0 && empty.err.contains("the trace is empty"), "{}", empty.err);
    let foreign = advised("these are no requests\nat all\n", &[]);
    assert!(
        foreign.code != 0 && foreign.err.contains("not a known trace format"),
        "{}",
        foreign.err
    );
    let whole = [event(0, 4096, WRITE), event(8, 4096, WRITE)].concat();
    let cut = advised(&whole[..whole.len() - 5], &[]);
    assert!(cut.code != 0 && cut.err.contains("at byte 48"), "{}", cut.err);
    let lenient = advised(&whole[..whole.len() - 5], &["--lenient"]);
    assert_eq!(lenient.code, 0, "{}", lenient.err);
    assert!(lenient.err.contains("1 damaged records were skipped"), "{}", lenient.err);
}

#[test]
fn lengths_and_offsets_up_to_the_end_of_the_numbers_are_cut_and_that_is_said() {
    let whole = u64::MAX;
    for length in [1 << 30, 100 << 30, whole] {
        let lines = [('W', 0, length, 0), ('R', 4096, 4096, 100), ('W', 1 << 20, 4096, 200)];
        let ended = advised(table(lines), &[]);
        assert_eq!(ended.code, 0, "{length}: {}", ended.err);
        let told = "1 requests are longer than 16 MiB, and were played as if they were that long";
        assert!(ended.out.contains(told), "{length}: {}", ended.out);
    }
    let far = table([('W', whole - 8191, 4096, 0), ('R', whole - 8191, 4096, 100)]);
    assert_eq!(advised(far, &[]).code, 0);
}

#[test]
fn a_discard_of_a_whole_device_among_small_writes_is_counted_as_one() {
    let mut log = "fio version 3 iolog\n0 /dev/sda add\n0 /dev/sda open\n".to_owned();
    let small = |n: u64| format!("{} /dev/sda write {} 4096\n", n, n * 7919 % 1000 * 4096);
    log.extend((0..300).map(small));
    log += &format!("300 /dev/sda trim 0 {}\n301 /dev/sda close\n", 100_u64 << 30);
    let ended = advised(log, &[]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(ended.out.contains("1 requests are longer than 16 MiB"), "{}", ended.out);
}

#[test]
fn a_clock_that_goes_back_and_one_request_have_an_answer() {
    let back = table((0..400).map(|n| ('W', n % 50 * 4096, 4096, 1_000_000 - n * 100)));
    let one = table([('W', 0, 4096, 0)]);
    for (trace, goal) in
        [(&back, "throughput"), (&back, "p99"), (&one, "throughput"), (&one, "mean")]
    {
        let ended = advised(trace, &["--goal", goal]);
        assert_eq!(ended.code, 0, "{goal}: {}", ended.err);
        assert!(
            ended.out.contains("he cache") || ended.out.contains("Do not cache"),
            "{}",
            ended.out
        );
    }
}

#[test]
fn requests_without_completions_have_an_answer() {
    let trace: Vec<u8> = (0..300).flat_map(|n| event(n * 8, 4096, WRITE)).collect();
    let ended = advised(trace, &[]);
    assert_eq!(ended.code, 0, "{}", ended.err);
}

#[test]
fn where_there_are_flushes_alone_there_is_nothing_to_cache() {
    let trace: Vec<u8> = (0..300).flat_map(|_| event(0, 0, FLUSH)).collect();
    let ended = advised(trace, &[]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(ended.out.contains("flushes and discards alone"), "{}", ended.out);
}

#[test]
fn impossible_ranges_are_located_and_lengths_of_zero_are_told_of() {
    let impossible = [event(0, 4096, WRITE), event(u64::MAX / 2, 4096, WRITE)].concat();
    let ended = advised(&impossible, &[]);
    assert!(ended.code != 0 && ended.err.contains("at byte 48"), "{}", ended.err);
    let ended = advised(&impossible, &["--lenient"]);
    assert!(ended.code == 0 && ended.err.contains("1 damaged records"), "{}", ended.err);
    let ended = advised(event(0, 0, WRITE), &[]);
    assert!(ended.code != 0 && ended.err.contains("1 commands move no data"), "{}", ended.err);
}
