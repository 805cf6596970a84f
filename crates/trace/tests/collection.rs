//! Real traces of the formats that others publish, with the counts that their collection states.

use std::path::Path;

use headpond_testkit::shared;
use headpond_trace::{
    Demand, Lacks, Op, ReadOptions, RecordFlags, RecordingWriter, TraceError, TraceFormat,
    TraceReader, TraceRecord,
};

/// What a file must come to.
struct Expected {
    file: &'static str,
    format: TraceFormat,
    requests: u64,
    writes: u64,
    devices: usize,
}

const COLLECTION: [Expected; 13] = [
    expected("cloudphysics/cloudPhysicsIO.vscsi.zst", TraceFormat::Vscsi1, 113_872, 66_898, 0),
    expected("cloudphysics/cloudPhysicsIO.csv.zst", TraceFormat::VscsiCsv, 113_872, 66_898, 0),
    expected(
        "cloudphysics/cloudPhysicsIO.oracleGeneral.bin.zst",
        TraceFormat::OracleGeneral,
        113_872,
        0,
        0,
    ),
    expected("blkreplay/linux-webserver-2.load.gz", TraceFormat::Blkreplay, 269_007, 119_989, 0),
    expected("blkreplay/windows-shared-server.load.gz", TraceFormat::Blkreplay, 1_371, 1_371, 0),
    expected("disksim-valid/atlas_III.trace.zst", TraceFormat::DisksimValidation, 10_000, 3_502, 0),
    expected(
        "disksim-valid/cheetah4LP.trace.zst",
        TraceFormat::DisksimValidation,
        10_000,
        3_361,
        0,
    ),
    expected("disksim-valid/hp_c2490a.trace.zst", TraceFormat::DisksimValidation, 9_984, 3_167, 0),
    expected("disksim-valid/ibm18es.trace.zst", TraceFormat::DisksimValidation, 10_000, 3_418, 0),
    expected(
        "msr/msr.cut.per_10k.rw_20_80.105.trace.zst",
        TraceFormat::MsrWindow,
        10_000,
        7_980,
        1,
    ),
    expected("mqsim/tpcc-small.trace.zst", TraceFormat::Mqsim, 6_999, 2_618, 16),
    expected("arc/arc-P3.lis.zst", TraceFormat::Arc, 238_578, 0, 0),
    expected("octf/sample_trace.tar.xz", TraceFormat::Octf, 64_420, 64_188, 1),
];

const fn expected(
    file: &'static str,
    format: TraceFormat,
    requests: u64,
    writes: u64,
    devices: usize,
) -> Expected {
    Expected { file, format, requests, writes, devices }
}

fn any(format: Option<TraceFormat>) -> ReadOptions {
    ReadOptions { demand: Demand::References, format, ..ReadOptions::default() }
}

fn read_all(path: &Path) -> (Vec<TraceRecord>, TraceReader) {
    let mut reader = TraceReader::open(path, any(None)).unwrap();
    let records = reader.by_ref().collect::<Result<Vec<_>, _>>().unwrap();
    (records, reader)
}

#[test]
fn every_file_of_the_collection_is_recognised_and_read_whole() {
    for expected in COLLECTION {
        let Some(path) = shared(format!("traces/{}", expected.file)) else {
            headpond_testkit::skip!("collection of traces", "{} is absent", expected.file);
        };
        let (records, reader) = read_all(&path);
        let writes = records.iter().filter(|record| record.op == Op::Write).count() as u64;
        let found = (reader.format(), records.len() as u64, writes, reader.names().devices().len());
        let Expected { format, requests, writes, devices, .. } = expected;
        assert_eq!(found, (format, requests, writes, devices), "{}", expected.file);
        assert_eq!(reader.tally().damaged, 0, "{}", expected.file);
        let progress = reader.progress();
        assert_eq!(Some(progress.read_bytes), progress.total_bytes, "{}", expected.file);
    }
}

#[test]
fn the_same_trace_in_three_formats_asks_for_the_same_sectors() {
    let folder = "traces/cloudphysics/cloudPhysicsIO";
    let names = [".vscsi.zst", ".csv.zst", ".oracleGeneral.bin.zst"];
    let Some(paths) =
        names.map(|name| shared(format!("{folder}{name}"))).into_iter().collect::<Option<Vec<_>>>()
    else {
        headpond_testkit::skip!("one trace in three formats", "{folder} is absent");
    };
    let ranges = |path: &Path| -> Vec<_> {
        let records = read_all(path).0;
        records.iter().map(|record| (record.offset_bytes, record.length_bytes)).collect()
    };
    let first = ranges(&paths[0]);
    assert!(ranges(&paths[1]) == first, "the table is the binary trace");
    // It keeps the size that an object had when it was met first.
    let starts = |ranges: &[(u64, u64)]| ranges.iter().map(|range| range.0).collect::<Vec<_>>();
    assert!(starts(&ranges(&paths[2])) == starts(&first), "and so is what was made for a cache");
}

#[test]
fn a_recording_of_a_real_trace_takes_less_than_four_bytes_a_request() {
    let Some(path) = shared("traces/cloudphysics/cloudPhysicsIO.vscsi.zst") else {
        headpond_testkit::skip!("size of a recording", "cloudPhysicsIO.vscsi.zst is absent");
    };
    let (records, _) = read_all(&path);
    let mut writer = RecordingWriter::new(Vec::new(), 0).unwrap();
    records.iter().try_for_each(|record| writer.push(*record)).unwrap();
    let bytes = writer.finish().unwrap();
    let each = bytes.len() as f64 / records.len() as f64;
    println!("{} bytes, {each:.2} a request", bytes.len());
    assert!(each < 4.0, "{each:.2} bytes a request");
    let reader =
        TraceReader::from_input("memory", Box::new(std::io::Cursor::new(bytes)), any(None))
            .unwrap();
    assert!(reader.map(Result::unwrap).eq(records));
}

#[test]
fn drives_were_measured_with_one_request_at_a_time() {
    let Some(path) = shared("traces/disksim-valid/atlas_III.trace.zst") else {
        headpond_testkit::skip!("closed loop", "atlas_III.trace.zst is absent");
    };
    let (records, _) = read_all(&path);
    assert_eq!(records[0].service_ns(), Some(1_686_000));
    let apart = |pair: &[TraceRecord]| pair[0].completed_ns.unwrap() <= pair[1].issued_ns;
    assert!(records.windows(2).all(apart), "none is issued before the last one is done");
}

#[test]
fn readahead_of_a_real_server_is_kept() {
    let Some(path) = shared("traces/blkreplay/linux-webserver-2.load.gz") else {
        headpond_testkit::skip!("readahead", "linux-webserver-2.load.gz is absent");
    };
    let ahead = |record: &&TraceRecord| record.flags.contains(RecordFlags::READAHEAD);
    assert_eq!(read_all(&path).0.iter().filter(ahead).count(), 344);
}

#[test]
fn queues_of_a_real_machine_complete_each_others_requests() {
    let Some(path) = shared("traces/octf/sample_trace.tar.xz") else {
        headpond_testkit::skip!("OCTF queues", "sample_trace.tar.xz is absent");
    };
    let (records, reader) = read_all(&path);
    assert_eq!(reader.tally().events, 193_615, "what the trace's summary counts");
    let unanswered = records.iter().filter(|record| record.completed_ns.is_none()).count();
    assert_eq!((unanswered, reader.tally().unmatched_completions), (0, 0));
    let discards = records.iter().filter(|record| record.op == Op::Discard).count();
    assert_eq!((discards, reader.names().device(0)), (231, Some("nvme0n1")));
}

#[test]
fn what_only_tells_reuse_is_refused_unless_that_is_enough() {
    let Some(path) = shared("traces/arc/arc-P3.lis.zst") else {
        headpond_testkit::skip!("reuse only", "arc-P3.lis.zst is absent");
    };
    assert_eq!(read_all(&path).1.lacks(), Lacks::OPERATIONS | Lacks::TIMES);
    let error = TraceReader::open(&path, ReadOptions::default()).err().unwrap();
    assert!(matches!(error, TraceError::Lacking { .. }), "{error}");
}

#[test]
fn a_format_that_is_told_is_not_guessed() {
    let Some(path) = shared("traces/mqsim/tpcc-small.trace.zst") else {
        headpond_testkit::skip!("a format that is told", "tpcc-small.trace.zst is absent");
    };
    let mut wrong = TraceReader::open(&path, any(Some(TraceFormat::Spc))).unwrap();
    let error = wrong.next_record().unwrap_err().to_string();
    assert!(error.contains("damaged SPC at line 1"), "{error}");
}
