//! Queues that are made here, in a folder and in a tar.

use std::fs;
use std::io::Cursor;

use crate::damage::{Damage, DamageKind};
use crate::error::{Position, TraceError};
use crate::format::TraceFormat;
use crate::reader::{ReadOptions, TraceReader};
use crate::record::{Op, RecordFlags, TraceRecord};
use crate::testing::{number, octf_device, octf_event};

const DEVICE: u64 = 259 << 20;

fn io(time_ns: u64, id: u64, operation: u64, lba: u64) -> Vec<u8> {
    let fields =
        [number(1, lba), number(2, 8), number(4, DEVICE), number(5, operation), number(9, id)];
    octf_event(time_ns, 2, &fields.concat())
}

fn done(time_ns: u64, id: u64, lba: u64) -> Vec<u8> {
    let fields = [number(1, lba), number(2, 8), number(4, DEVICE), number(5, id)];
    octf_event(time_ns, 5, &fields.concat())
}

/// Three I/Os, issued on one queue and completed on the other.
fn queues() -> [Vec<u8>; 2] {
    let issue = [octf_device(), io(100, 1, 2, 0), io(120, 2, 1, 8), io(140, 1, 3, 64)];
    let complete = [octf_device(), done(130, 1, 0), done(150, 2, 8), done(190, 1, 64)];
    [issue.concat(), complete.concat()]
}

fn expect_three(reader: TraceReader) {
    let mut reader = reader;
    let records: Vec<TraceRecord> = reader.by_ref().map(Result::unwrap).collect();
    let told: Vec<_> = records.iter().map(|r| (r.op, r.response_ns(), r.queue)).collect();
    let expected = [(Op::Write, Some(30), 0), (Op::Read, Some(30), 0), (Op::Discard, Some(50), 0)];
    assert_eq!(told, expected);
    assert_eq!(reader.names().device(0), Some("nvme0n1"));
    assert_eq!((reader.format(), reader.tally().events), (TraceFormat::Octf, 8));
}

fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, content) in files {
        let mut header = [0; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
        header[156] = b'0';
        header[257..262].copy_from_slice(b"ustar");
        header[148..156].fill(b' ');
        let sum: u64 = header.iter().map(|&byte| u64::from(byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        out.extend(header);
        out.extend(*content);
        out.resize(out.len().next_multiple_of(512), 0);
    }
    out.resize(out.len() + 1024, 0);
    out
}

fn read(bytes: Vec<u8>) -> Result<TraceReader, TraceError> {
    TraceReader::from_input("test", Box::new(Cursor::new(bytes)), ReadOptions::default())
}

#[test]
fn folder_any_queue_and_the_folder_above_stand_for_the_trace() {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("2020-07-02");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("octf.summary"), "{}").unwrap();
    for (index, queue) in queues().iter().enumerate() {
        fs::write(folder.join(format!("octf.trace.{index}")), queue).unwrap();
    }
    for path in [above.path(), &folder, &folder.join("octf.trace.1")] {
        expect_three(TraceReader::open(path, ReadOptions::default()).unwrap());
    }
}

#[test]
fn tar_of_the_folder_is_read_in_one_pass() {
    let [first, second] = queues();
    let files =
        [("t/octf.summary", &b"{}"[..]), ("t/octf.trace.1", &second), ("t/octf.trace.0", &first)];
    expect_three(read(tar(&files)).unwrap());
}

#[test]
fn tars_and_folders_without_a_trace_or_with_two_are_refused() {
    let [first, second] = queues();
    let several = tar(&[("a/octf.trace.0", &first), ("b/octf.trace.0", &second)]);
    let error = read(several).err().unwrap();
    assert!(error.to_string().contains("several traces (a, b)"), "{error}");
    let none = read(tar(&[("a/readme", b"hello")])).err().unwrap();
    assert!(matches!(none, TraceError::NotThat { .. }), "{none}");
    let folder = tempfile::tempdir().unwrap();
    let none = TraceReader::open(folder.path(), ReadOptions::default()).err().unwrap();
    assert!(none.to_string().contains("octf.trace.N"), "{none}");
    let mut cut = tar(&[("a/octf.trace.0", &first)]);
    cut.truncate(600);
    assert!(matches!(read(cut).err().unwrap(), TraceError::Truncated { .. }));
}

#[test]
fn flags_and_errors_are_kept() {
    let io =
        [number(1, 8), number(2, 8), number(4, DEVICE), number(5, 2), number(6, 1), number(7, 1)];
    let done = [number(1, 8), number(2, 8), number(3, 1), number(4, DEVICE)];
    let queue = [octf_event(10, 2, &io.concat()), octf_event(20, 5, &done.concat())].concat();
    let records: Vec<_> = read(queue).unwrap().map(Result::unwrap).collect();
    assert_eq!(records[0].flags, RecordFlags::FUA | RecordFlags::PREFLUSH | RecordFlags::FAILED);
}

#[test]
fn damage_is_located_or_counted() {
    let mut queue = [octf_device(), io(100, 1, 2, 0), io(120, 2, 9, 8), done(130, 1, 0)].concat();
    let at = (octf_device().len() + io(100, 1, 2, 0).len()) as u64;
    let error = read(queue.clone()).unwrap().find_map(Result::err).unwrap();
    assert_eq!(error.position(), Some(Position::Byte(at)), "operation 9: {error}");
    queue.extend([0xff, 0xff, 0xff, 1]);
    let options = ReadOptions { damage: Damage::Skip, ..ReadOptions::default() };
    let mut lenient = TraceReader::from_input("t", Box::new(Cursor::new(queue)), options).unwrap();
    assert_eq!(lenient.by_ref().map(Result::unwrap).count(), 1);
    let kinds: Vec<_> = lenient.tally().damage.iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, [DamageKind::Unreadable, DamageKind::Foreign]);
}
