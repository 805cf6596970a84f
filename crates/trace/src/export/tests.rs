//! What is written is read back.

use std::io::Cursor;

use proptest::prelude::*;

use ::parquet::file::reader::{FileReader, SerializedFileReader};

use super::*;
use crate::damage::Damage;
use crate::parquet_table::{Cell, ColumnKind, ParquetTable};
use crate::reader::{Demand, ReadOptions};
use crate::record::{Op, RecordFlags};
use crate::recording::RecordingWriter;
use crate::testing::sample;

fn open(bytes: Vec<u8>) -> TraceReader {
    let options = ReadOptions { damage: Damage::Fail, demand: Demand::References, format: None };
    TraceReader::from_input("test", Box::new(Cursor::new(bytes)), options).unwrap()
}

fn converted(bytes: Vec<u8>, to: ExportFormat) -> Result<(Vec<u8>, Conversion), ConvertError> {
    let mut output = Vec::new();
    let conversion = convert(&mut open(bytes), &mut output, to, |_| {})?;
    Ok((output, conversion))
}

/// A day of a volume: every operation, with times, a flag and a failure.
fn records() -> Vec<TraceRecord> {
    let mut records: Vec<_> = (0..200u64)
        .map(|n| {
            let op = Op::ALL[(n % 5) as usize];
            let (from, length) = if op == Op::Flush { (0, 0) } else { (n * 64 * 512, 4096) };
            let mut record = TraceRecord::new(n * 1000, op, from, length);
            record.dispatched_ns = Some(n * 1000 + 10);
            record.completed_ns = Some(n * 1000 + 5300);
            record.process = 7;
            record
        })
        .collect();
    records[1].flags = RecordFlags::FUA | RecordFlags::SYNC | RecordFlags::PREFLUSH;
    records[6].flags = RecordFlags::FAILED | RecordFlags::METADATA;
    records
}

fn recording() -> Vec<u8> {
    let mut writer = RecordingWriter::new(Vec::new(), 0).unwrap();
    writer.name_device(0, "8,16").unwrap();
    writer.name_process(7, "fio").unwrap();
    records().iter().try_for_each(|record| writer.push(*record)).unwrap();
    writer.finish().unwrap()
}

fn read(bytes: Vec<u8>) -> (Vec<TraceRecord>, TraceReader) {
    let mut reader = open(bytes);
    let records = reader.by_ref().map(Result::unwrap).collect();
    (records, reader)
}

#[test]
fn a_recording_keeps_everything_of_every_format() {
    for format in TraceFormat::ALL {
        let (before, old) = read(sample(format));
        let (bytes, conversion) = converted(sample(format), ExportFormat::Recording).unwrap();
        let (after, new) = read(bytes);
        assert_eq!(after, before, "{format:?}");
        assert_eq!(new.lacks(), old.lacks(), "{format:?}");
        assert_eq!(conversion, Conversion { records: before.len() as u64, left_out: 0 });
        assert!(new.names().devices().eq(old.names().devices()), "{format:?}");
        assert_eq!(new.names().processes(), old.names().processes(), "{format:?}");
    }
}

#[test]
fn blkparse_text_keeps_times_flags_errors_and_names() {
    let (text, conversion) = converted(recording(), ExportFormat::BlkparseText).unwrap();
    assert_eq!(conversion, Conversion { records: 200, left_out: 0 });
    let (read, reader) = read(text);
    assert_eq!(reader.format(), TraceFormat::BlkparseText);
    assert_eq!(reader.names().device(0), Some("8,16"));
    assert_eq!(reader.names().process(7), Some("fio"));
    assert_eq!((reader.tally().out_of_order, reader.tally().incomplete), (0, 0));
    assert_eq!(read, records());
}

#[test]
fn blkparse_text_leaves_out_what_is_no_whole_sectors() {
    let (_, conversion) =
        converted(sample(TraceFormat::Systor17), ExportFormat::BlkparseText).unwrap();
    assert_eq!(conversion, Conversion { records: 1, left_out: 1 });
}

#[test]
fn iolog_keeps_all_but_write_zeroes_to_the_microsecond() {
    let (text, conversion) = converted(recording(), ExportFormat::FioIolog).unwrap();
    assert_eq!(conversion, Conversion { records: 160, left_out: 40 });
    let (read, reader) = read(text);
    assert_eq!(reader.format(), TraceFormat::FioIolog);
    let told = |records: &[TraceRecord]| -> Vec<_> {
        let kept = records.iter().filter(|record| record.op != Op::WriteZeroes);
        kept.map(|r| (r.issued_ns, r.op, r.offset_bytes, r.length_bytes)).collect()
    };
    assert_eq!(told(&read), told(&records()));
}

/// A request that was told to try again comes once more: who cannot say so must not tell it twice.
#[test]
fn requests_that_were_told_to_try_again_are_told_only_where_that_can_be_said() {
    let mut twice = [TraceRecord::new(1000, Op::Write, 0, 8192); 2];
    twice[0].flags = RecordFlags::FAILED | RecordFlags::RETRIED;
    for to in ExportFormat::ALL {
        let mut recorded = Vec::new();
        let mut writer = RecordingWriter::new(&mut recorded, 0).unwrap();
        twice.iter().for_each(|record| writer.push(*record).unwrap());
        writer.finish().unwrap();
        let (_, conversion) = converted(recorded, to).unwrap();
        let left_out = u64::from(matches!(to, ExportFormat::FioIolog | ExportFormat::Csv));
        assert_eq!(conversion, Conversion { records: 2 - left_out, left_out }, "{}", to.name());
    }
}

#[test]
fn csv_keeps_reads_and_writes_and_their_responses() {
    let (text, conversion) = converted(recording(), ExportFormat::Csv).unwrap();
    assert_eq!(conversion, Conversion { records: 80, left_out: 120 });
    let (read, reader) = read(text);
    assert_eq!(reader.format(), TraceFormat::MsrCambridge);
    assert_eq!(reader.names().device(0), Some("8,16"));
    assert!(read.iter().all(|record| record.response_ns() == Some(5300)));
    let (text, _) = converted(sample(TraceFormat::Alibaba), ExportFormat::Csv).unwrap();
    let (read, _) = self::read(text);
    assert!(read.iter().all(|record| record.completed_ns.is_none()), "0 is not known");
}

/// What a tracer was told to record.
#[derive(Clone, Copy, Debug)]
struct Kinds {
    queue: bool,
    dispatch: bool,
    completion: bool,
}

/// A text with these events of writes that overlap, wait for each other and may never end.
fn capture(kinds: Kinds, requests: &[(u64, u64, u64, u64)]) -> Vec<u8> {
    let mut events = Vec::new();
    for (number, &(at, sector, sectors, service)) in (0u64..).zip(requests) {
        let range = format!("W {sector} + {sectors}");
        let at_us = number * 10 + at;
        let steps = [
            (kinds.queue, at_us, "Q", "[fio]"),
            (kinds.dispatch, at_us + 3, "D", "[fio]"),
            (kinds.completion, at_us + 4 + service, "C", "[0]"),
        ];
        for (_, at_us, step, remark) in steps.into_iter().filter(|(is_told, ..)| *is_told) {
            events.push((at_us, format!("161 {step} {range} {remark}\n")));
        }
    }
    events.sort();
    let line = |(number, (us, rest)): (usize, &(u64, String))| {
        format!("8,0 0 {number} {}.{:06}000 {rest}", us / 1_000_000, us % 1_000_000)
    };
    events.iter().enumerate().map(line).collect::<String>().into_bytes()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn captures_of_any_kind_of_event_keep_count_bytes_and_times_in_each_format(
        bits in 1u8..8,
        requests in proptest::collection::vec((0u64..40, 0u64..40, 1u64..20, 0u64..200), 1..60),
    ) {
        let kinds = Kinds {
            queue: bits & 1 > 0,
            dispatch: bits & 2 > 0,
            completion: bits & 4 > 0,
        };
        let text = capture(kinds, &requests);
        let (before, _) = read(text.clone());
        prop_assert_eq!(before.len(), requests.len(), "{:?}", kinds);
        let bytes: u64 = before.iter().map(|record| record.length_bytes).sum();
        prop_assert_eq!(bytes, requests.iter().map(|(_, _, sectors, _)| sectors * 512).sum::<u64>());
        for to in ExportFormat::ALL.into_iter().filter(|to| *to != ExportFormat::Parquet) {
            let (written, conversion) = converted(text.clone(), to).unwrap();
            let expected = Conversion { records: requests.len() as u64, left_out: 0 };
            prop_assert_eq!(conversion, expected, "{} {:?}", to.name(), kinds);
            let (after, _) = read(written);
            let common = |r: &TraceRecord| (r.issued_ns, r.op, r.offset_bytes, r.length_bytes);
            let times = |r: &TraceRecord| (r.dispatched_ns, r.completed_ns);
            prop_assert!(after.iter().map(common).eq(before.iter().map(common)), "{} {:?}", to.name(), kinds);
            if matches!(to, ExportFormat::Recording | ExportFormat::BlkparseText) {
                prop_assert!(after.iter().map(times).eq(before.iter().map(times)), "{} {:?}", to.name(), kinds);
            }
            if to == ExportFormat::Csv {
                prop_assert!(after.iter().map(|r| r.completed_ns).eq(before.iter().map(|r| r.completed_ns)));
            }
        }
    }
}

#[test]
fn what_lacks_operations_becomes_a_recording_only() {
    for to in [ExportFormat::FioIolog, ExportFormat::BlkparseText, ExportFormat::Csv] {
        let error = converted(sample(TraceFormat::Arc), to).unwrap_err();
        assert!(error.to_string().contains("--to recording"), "{error}");
    }
}

#[test]
fn damage_ends_a_conversion_with_its_place() {
    let mut bytes = sample(TraceFormat::Spc);
    bytes.extend(b"0,x,1,R,2\n");
    let error = converted(bytes, ExportFormat::Recording).unwrap_err();
    assert!(error.to_string().contains("line 3"), "{error}");
}

/// Rows as text, a line each, and the notes.
fn parquet_rows(bytes: Vec<u8>) -> (Vec<String>, Vec<(String, String)>) {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&bytes).unwrap();
    let reader = SerializedFileReader::new(file).unwrap();
    let notes = reader.metadata().file_metadata().key_value_metadata().cloned();
    let notes = notes.unwrap_or_default().into_iter();
    let notes = notes.map(|note| (note.key, note.value.unwrap_or_default())).collect();
    (reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect(), notes)
}

#[test]
fn parquet_keeps_everything_and_says_what_is_not_told() {
    let (bytes, conversion) = converted(recording(), ExportFormat::Parquet).unwrap();
    assert_eq!(conversion, Conversion { records: 200, left_out: 0 });
    let (rows, notes) = parquet_rows(bytes);
    assert_eq!(rows.len(), 200);
    let flags = "preflush: true, readahead: false, failed: false, retried: false, split: false, \
        merged: false, remapped: false, requeued: false";
    let second = "issued_ns: 1000, op: \"write\", offset_bytes: 32768, length_bytes: 4096, \
        dispatched_ns: 1010, completed_ns: 6300, device: \"8,16\", process: 7, queue: 0, \
        fua: true, sync: true, metadata: false, ";
    assert_eq!(rows[1], format!("{{{second}{flags}}}"));
    assert_eq!(notes, [("process 7".to_owned(), "fio".to_owned())]);
    let (bytes, _) = converted(sample(TraceFormat::Arc), ExportFormat::Parquet).unwrap();
    let (rows, _) = parquet_rows(bytes);
    assert!(rows[0].starts_with("{issued_ns: null, op: null, offset_bytes:"), "{}", rows[0]);
    assert!(rows[0].contains("process: null"), "{}", rows[0]);
}

#[test]
fn parquet_goes_out_in_row_groups_and_numbers_have_no_sign() {
    let mut bytes = Vec::new();
    let mut table = ParquetTable::new(&mut bytes, &[("n", ColumnKind::Growing)]).unwrap();
    let count = 300_000;
    (0..count).for_each(|n| table.push(&[Cell::Unsigned(u64::MAX - n)]).unwrap());
    table.finish(Vec::new()).unwrap();
    assert!(bytes.len() < 4096, "differences of 1: {} bytes", bytes.len());
    let (rows, _) = parquet_rows(bytes);
    let expected = (0..count).map(|n| format!("{{n: {}}}", u64::MAX - n));
    assert!(rows.into_iter().eq(expected));
}

#[test]
fn parquet_of_nothing_is_a_table_without_rows() {
    let empty = RecordingWriter::new(Vec::new(), 0).unwrap().finish().unwrap();
    let (bytes, _) = converted(empty, ExportFormat::Parquet).unwrap();
    assert_eq!(parquet_rows(bytes), (Vec::new(), Vec::new()));
}
