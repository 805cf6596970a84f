//! Readers on real captures (where the shared collection is present), on their own fixtures, and on
//! nonsense.

use std::io::Cursor;
use std::path::Path;
use std::process::Command;

use headpond_testkit::{shared, tool};
use headpond_trace::{
    Damage, Op, ReadOptions, RecordFlags, RecordingWriter, TraceError, TraceFormat, TraceReader,
    TraceRecord, TraceStats,
};
use proptest::prelude::*;

fn read_all(path: &Path) -> (Vec<TraceRecord>, TraceReader) {
    let mut reader = TraceReader::open(path, ReadOptions::default()).unwrap();
    let records = reader.by_ref().collect::<Result<Vec<_>, _>>().unwrap();
    (records, reader)
}

fn read_bytes(bytes: &[u8], damage: Damage) -> Result<Vec<TraceRecord>, TraceError> {
    let input = Box::new(Cursor::new(bytes.to_vec()));
    TraceReader::from_input("bytes", input, ReadOptions { damage, ..ReadOptions::default() })?
        .collect()
}

macro_rules! shared_or_skip {
    ($claim:expr, $path:expr) => {
        match shared(concat!("traces/", $path)) {
            Some(path) => path,
            None => headpond_testkit::skip!($claim, concat!($path, " is absent")),
        }
    };
}

#[test]
fn merged_dump_of_a_real_drive_is_read_under_any_name() {
    let path = shared_or_skip!("real NVMe capture", "blktrace/takeoverjp-sample.blktrace.0");
    let (records, reader) = read_all(&path);
    assert_eq!(reader.format(), TraceFormat::Blktrace);
    assert_eq!(reader.tally().events, 6743);
    assert_eq!(reader.tally().remaps, 963);
    assert_eq!(records.len(), 963);
    assert!(records.iter().all(|record| record.op == Op::Read && record.length_bytes == 4096));
    assert!(records.iter().all(|record| record.service_ns().is_some()));
    assert_eq!(records[0].service_ns(), Some(55_316));
    assert!(records.iter().all(|record| record.flags.contains(RecordFlags::REMAPPED)));
}

#[test]
fn per_cpu_set_and_merged_file_give_the_same_requests() {
    let first = shared_or_skip!("per-CPU capture", "headpond-vm/vda.blktrace.0");
    let merged = shared_or_skip!("merged capture", "headpond-vm/vda.bin");
    let (set, set_reader) = read_all(&first);
    let (base, _) = read_all(&first.with_file_name("vda"));
    let (merged, merged_reader) = read_all(&merged);
    assert_eq!(set, merged);
    assert_eq!(set, base);
    assert_eq!(set_reader.tally(), merged_reader.tally());
    assert_eq!(set_reader.tally().events, 13_884);
    assert_eq!((set_reader.tally().splits, set_reader.tally().merges), (48, 6));
    assert_eq!(set_reader.tally().incomplete, 0);
    let retried = |record: &&TraceRecord| record.flags.contains(RecordFlags::RETRIED);
    assert_eq!(set.iter().filter(retried).count(), 42);
    assert_eq!(set.len(), 2200 + 42 + 42 + 12);
    assert_eq!(set_reader.names().process(161), Some("fio"));
    assert!(set.iter().all(|record| matches!(record.process, 161 | 165)), "workers have owners");
}

#[test]
fn blkparse_and_we_count_the_same() {
    let first = shared_or_skip!("blkparse comparison", "headpond-vm/vda.blktrace.0");
    let Some(blkparse) = tool("blkparse") else {
        headpond_testkit::skip!("blkparse and we count the same", "blkparse is not installed");
    };
    let run = Command::new(blkparse)
        .args(["-i", "vda"])
        .current_dir(first.parent().unwrap())
        .output()
        .unwrap();
    assert!(run.status.success());
    let text = String::from_utf8(run.stdout).unwrap();
    let summary = &text[text.find("Total (vda):").unwrap()..];
    let (records, reader) = read_all(&first);
    assert!(summary.contains("Writes Queued:        2296,   193120KiB"), "{summary}");
    assert_eq!(records.len(), 2296);
    let bytes: u64 = records.iter().map(|record| record.length_bytes).sum();
    assert_eq!(bytes, 193_120 * 1024, "what blkparse counts as queued, repetitions included");
    assert_eq!(reader.tally().events - 12, 13_872, "blkparse counts events without the notes");
    let from_text = read_bytes(text.as_bytes(), Damage::Fail).unwrap();
    let ranges = |records: &[TraceRecord]| -> Vec<_> {
        records.iter().map(|r| (r.issued_ns, r.offset_bytes, r.length_bytes, r.process)).collect()
    };
    assert_eq!(ranges(&from_text), ranges(&records));
    let times = |records: &[TraceRecord]| -> Vec<_> {
        records.iter().map(|r| (r.dispatched_ns, r.completed_ns, r.flags)).collect()
    };
    assert_eq!(times(&from_text), times(&records));
}

#[test]
fn compressed_iolog_is_read() {
    let path = shared_or_skip!("fio iolog", "fio-iolog/own-oltp-v3.iolog.zst");
    let (records, reader) = read_all(&path);
    assert_eq!(reader.format(), TraceFormat::FioIolog);
    assert_eq!(records.len(), 3072);
    let stats = TraceStats::collect(records.into_iter().map(Ok::<_, TraceError>)).unwrap();
    let reads = stats.operation(Op::Read).unwrap().requests;
    assert!((0.65..0.75).contains(&(reads as f64 / 3072.0)), "{reads} reads");
}

#[test]
fn recording_keeps_what_blktrace_said() {
    let path = shared_or_skip!("recording of a capture", "headpond-vm/vda.bin");
    let (records, _) = read_all(&path);
    let mut writer = RecordingWriter::new(Vec::new(), 0).unwrap();
    records.iter().try_for_each(|record| writer.push(*record)).unwrap();
    let bytes = writer.finish().unwrap();
    assert_eq!(read_bytes(&bytes, Damage::Fail).unwrap(), records);
    assert!(bytes.len() < records.len() * 20, "{} bytes", bytes.len());
}

#[test]
fn small_captures_of_other_tools_are_read() {
    let path = |name: &str| shared(format!("cases/traces/{name}"));
    let Some(biosnoop) = path("biosnoop.txt") else {
        headpond_testkit::skip!("captures of other tools", "cases/traces is absent");
    };
    let told = |path: &Path| -> Vec<_> {
        let of = |r: &TraceRecord| (r.op, r.offset_bytes / 512, r.length_bytes, r.response_ns());
        read_all(path).0.iter().map(of).collect()
    };
    let expected = [(Op::Write, 2048, 4096, Some(740_000)), (Op::Read, 4096, 8192, Some(610_000))];
    assert_eq!(told(&biosnoop), expected);
    let perf = path("perf-script.txt").unwrap();
    assert_eq!(told(&perf), [(Op::Write, 2048, 4096, Some(1_000_000))]);
    let fio = path("fio-latency.log").unwrap();
    let expected = [(Op::Read, 488, 4096, Some(10_316)), (Op::Write, 6064, 4096, Some(30))];
    assert_eq!(told(&fio), expected);
    let completions = path("blkparse-completions-only.txt").unwrap();
    assert_eq!(told(&completions), [(Op::Write, 2048, 4096, None), (Op::Write, 4096, 4096, None)]);
}

#[test]
fn missing_empty_and_foreign_files_say_what_is_wrong() {
    let folder = headpond_testkit::tempdir();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("empty"), b"").unwrap();
    std::fs::write(path("foreign"), b"RIFF....WAVE").unwrap();
    let open = |name: &str| match TraceReader::open(&path(name), ReadOptions::default()) {
        Ok(_) => panic!("{name} was opened"),
        Err(error) => error,
    };
    assert!(matches!(open("missing"), TraceError::Open { .. }));
    assert!(matches!(open("empty"), TraceError::Empty { .. }));
    let foreign = open("foreign").to_string();
    assert!(foreign.contains("RIFF") && foreign.contains("blktrace"), "{foreign}");
}

#[test]
fn foreign_member_of_a_set_is_named() {
    let folder = headpond_testkit::tempdir();
    std::fs::write(folder.path().join("sda.blktrace.0"), b"fio version 3 iolog\n").unwrap();
    std::fs::write(folder.path().join("sda.blktrace.1"), b"").unwrap();
    let error = TraceReader::open(&folder.path().join("sda"), ReadOptions::default());
    let message = error.err().unwrap().to_string();
    assert!(message.contains("sda.blktrace.0"), "{message}");
}

const HEADS: [&[u8]; 8] = [
    b"",
    &[7, 0x74, 0x61, 0x65],
    &[0x65, 0x61, 0x74, 8],
    b"HPTRACE\0\x01\0\0\0",
    b"fio version 3 iolog\n",
    b"fio version 2 iolog\n",
    b"8,0 0 1 0.000000001 1 Q W 0 + 8 [x]\n",
    &[0x1f, 0x8b, 8, 0],
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn arbitrary_bytes_never_panic_and_lenient_reading_ends(
        head in 0..HEADS.len(), tail in proptest::collection::vec(any::<u8>(), 0..600),
    ) {
        let bytes = [HEADS[head], &tail].concat();
        let strict = read_bytes(&bytes, Damage::Fail);
        let lenient = read_bytes(&bytes, Damage::Skip);
        if let (Ok(strict), Ok(lenient)) = (strict, lenient) {
            prop_assert_eq!(strict, lenient, "lenience changes nothing where nothing is damaged");
        }
    }

    #[test]
    fn arbitrary_text_never_panics(text in "([0-9,.]{1,12} |[QDCMXAF] |[RWFSMDN]{1,4} |\\+ |\n){0,80}") {
        for head in [&HEADS[4], &HEADS[5], &HEADS[6]] {
            let bytes = [head, text.as_bytes()].concat();
            let _ = read_bytes(&bytes, Damage::Fail);
            let lenient = read_bytes(&bytes, Damage::Skip);
            let is_read = matches!(lenient, Ok(_) | Err(TraceError::NoRequests { .. }));
            prop_assert!(is_read);
        }
    }
}
