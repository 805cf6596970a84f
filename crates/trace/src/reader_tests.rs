//! Captures that are made here, in every form in which they may come.

use std::fs;
use std::io::{Cursor, Write};

use super::*;
use crate::blktrace::testing::{ByteOrder, Raw, encode};
use crate::record::Op;

const QUEUE: u16 = 1;
const ISSUE: u16 = 7;
const COMPLETE: u16 = 8;

/// Three events for each of `count` requests, three in flight; with the CPU each was traced on.
fn events(count: u64) -> Vec<(usize, Raw<'static>)> {
    let at = |request: u64, action, delay_ns| Raw {
        time_ns: 1000 + request * 100 + delay_ns,
        sector: request * 64,
        action,
        ..Raw::queue_write()
    };
    let mut events: Vec<_> = (0..count)
        .flat_map(|n| [at(n, QUEUE, 0), at(n, ISSUE, 10), at(n, COMPLETE, 250)])
        .enumerate()
        .map(|(index, raw)| (index % 3 % 2, raw))
        .collect();
    events.sort_by_key(|(_, raw)| raw.time_ns);
    events
}

fn bytes<'a>(
    events: impl IntoIterator<Item = &'a (usize, Raw<'static>)>,
    version: u8,
    order: ByteOrder,
) -> Vec<u8> {
    events.into_iter().flat_map(|(_, raw)| encode(raw, version, order)).collect()
}

fn read(bytes: Vec<u8>) -> Vec<TraceRecord> {
    let input = Box::new(Cursor::new(bytes));
    let reader = TraceReader::from_input("test", input, ReadOptions::default()).unwrap();
    reader.collect::<Result<_, _>>().unwrap()
}

fn expect_three_in_flight(records: &[TraceRecord], count: u64) {
    assert_eq!(records.len() as u64, count);
    for (n, record) in (0u64..).zip(records) {
        assert_eq!((record.issued_ns, record.offset_bytes), (n * 100, n * 64 * 512));
        assert_eq!((record.queue_ns(), record.service_ns()), (Some(10), Some(240)));
        assert_eq!((record.op, record.length_bytes), (Op::Write, 4096));
    }
}

#[test]
fn every_version_order_and_compression_gives_the_same_requests() {
    for version in [7, 8] {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let plain = bytes(&events(500), version, order);
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gzip.write_all(&plain).unwrap();
            let zstd = zstd::encode_all(&plain[..], 1).unwrap();
            for form in [plain, gzip.finish().unwrap(), zstd] {
                expect_three_in_flight(&read(form), 500);
            }
        }
    }
}

#[test]
fn files_of_two_cpus_are_joined_in_order_of_time() {
    let folder = tempfile::tempdir().unwrap();
    let all = events(500);
    for cpu in 0..2 {
        let own = all.iter().filter(|(on, _)| *on == cpu);
        let name = folder.path().join(format!("sda.blktrace.{cpu}"));
        fs::write(name, bytes(own, 7, ByteOrder::Little)).unwrap();
    }
    fs::write(folder.path().join("sda.blktrace.2"), b"").unwrap();
    for given in ["sda", "sda.blktrace.0", "sda.blktrace.1", "sda.blktrace.2"] {
        let path = folder.path().join(given);
        let reader = TraceReader::open(&path, ReadOptions::default()).unwrap();
        let records = reader.collect::<Result<Vec<_>, _>>().unwrap();
        expect_three_in_flight(&records, 500);
    }
}

#[test]
fn merged_file_slightly_out_of_order_is_put_right() {
    let mut all = events(500);
    all.chunks_mut(20).for_each(<[_]>::reverse);
    expect_three_in_flight(&read(bytes(&all, 7, ByteOrder::Little)), 500);
}

#[test]
fn future_version_is_named_with_its_place() {
    let mut all = bytes(&events(10), 7, ByteOrder::Little);
    all[0] = 9;
    let input = Box::new(Cursor::new(all.clone()));
    let error = TraceReader::from_input("t", input, ReadOptions::default()).err().unwrap();
    assert!(matches!(error, TraceError::UnsupportedVersion { found: 9, .. }), "{error}");
    all[0] = 7;
    all[48] = 9;
    let input = Box::new(Cursor::new(all));
    let reader = TraceReader::from_input("t", input, ReadOptions::default()).unwrap();
    let error = reader.collect::<Result<Vec<_>, _>>().unwrap_err();
    assert_eq!(error.position(), Some(Position::Byte(48)), "{error}");
}

#[test]
fn after_an_error_nothing_more_comes() {
    let mut all = bytes(&events(200), 7, ByteOrder::Little);
    all.truncate(all.len() - 10);
    let input = Box::new(Cursor::new(all));
    let mut reader = TraceReader::from_input("t", input, ReadOptions::default()).unwrap();
    let failures = reader.by_ref().filter(Result::is_err).count();
    assert_eq!(failures, 1);
    assert!(reader.next().is_none());
}

#[test]
fn a_set_is_none_where_another_format_is_told() {
    let folder = tempfile::tempdir().unwrap();
    for cpu in 0..2 {
        let name = folder.path().join(format!("sda.blktrace.{cpu}"));
        fs::write(name, bytes(&events(5), 7, ByteOrder::Little)).unwrap();
    }
    let options = ReadOptions { format: Some(TraceFormat::Spc), ..ReadOptions::default() };
    let mut reader = TraceReader::open(&folder.path().join("sda.blktrace.0"), options).unwrap();
    assert_eq!(reader.format(), TraceFormat::Spc);
    assert!(reader.next_record().unwrap_err().is_damage());
}
