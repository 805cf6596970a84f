//! What the lines of each format come to.

use std::io::Cursor;

use crate::damage::{Damage, DamageKind};
use crate::error::{Position, TraceError};
use crate::format::TraceFormat;
use crate::reader::{Demand, ReadOptions, TraceReader};
use crate::record::{Op, TraceRecord};
use crate::testing::sample;

fn open(bytes: &[u8], format: TraceFormat, damage: Damage) -> TraceReader {
    let options = ReadOptions { damage, demand: Demand::References, format: Some(format) };
    TraceReader::from_input("test", Box::new(Cursor::new(bytes.to_vec())), options).unwrap()
}

fn read(text: &str, format: TraceFormat) -> Result<Vec<TraceRecord>, TraceError> {
    open(text.as_bytes(), format, Damage::Fail).collect()
}

/// Time, operation, offset and length of each request, and its device's name.
fn told(format: TraceFormat) -> Vec<(u64, Op, u64, u64, String)> {
    let mut reader = open(&sample(format), format, Damage::Fail);
    let records = reader.by_ref().collect::<Result<Vec<_>, _>>().unwrap();
    let name = |record: &TraceRecord| reader.names().device(record.device).unwrap_or("").to_owned();
    let tell = |r: &TraceRecord| (r.issued_ns, r.op, r.offset_bytes, r.length_bytes, name(r));
    records.iter().map(tell).collect()
}

fn responses(format: TraceFormat) -> Vec<Option<u64>> {
    let records = open(&sample(format), format, Damage::Fail).map(Result::unwrap);
    records.map(|record| record.response_ns()).collect()
}

#[test]
fn units_and_columns_of_each_format_are_understood() {
    use Op::{Read, Write};
    let s = 512;
    let expected = [
        (
            TraceFormat::MsrCambridge,
            [(0, Read, 383_496_192, 32768, "hm,0"), (1000, Write, 2_822_144, 4096, "hm,1")],
        ),
        (
            TraceFormat::MsrWindow,
            [(0, Write, 200_626_176, 1 << 24, "0"), (223_412_000, Read, 3_159_347_200, 36864, "1")],
        ),
        (
            TraceFormat::Alibaba,
            [(0, Write, 8_792_731_648, 16384, "419"), (3000, Read, 59_110_326_272, 360_448, "725")],
        ),
        (
            TraceFormat::Tencent,
            [
                (0, Read, 12_910_952 * s, 128 * s, "1063"),
                (1_000_000_000, Write, 6_338_688 * s, 8 * s, "1627"),
            ],
        ),
        (
            TraceFormat::Spc,
            [(0, Write, 20_941_264 * s, 8192, "0"), (2_335_000, Read, 20_939_840 * s, 8192, "1")],
        ),
        (TraceFormat::Systor17, [(0, Read, 47240, 4096, "1"), (8000, Write, 4096, 512, "0")]),
        (
            TraceFormat::VscsiCsv,
            [(0, Write, 42_932_745 * s, 512, ""), (1_000_000_000, Read, 40_409_911 * s, 6656, "")],
        ),
        (
            TraceFormat::Blkreplay,
            [(0, Read, 481_999_264 * s, 16 * s, ""), (23_289, Write, 481_999_280 * s, 8 * s, "")],
        ),
        (
            TraceFormat::Disksim,
            [(0, Write, 312 * s, 16 * s, "0"), (15_290_000, Read, 7301 * s, 3 * s, "1")],
        ),
        (
            TraceFormat::DisksimValidation,
            [(0, Write, 11_392_096 * s, 12 * s, ""), (42_647_000, Read, 7_563_004 * s, 4 * s, "")],
        ),
        (
            TraceFormat::Mqsim,
            [
                (0, Write, 264_719_034 * s, 16 * s, "4"),
                (315_000, Read, 197_570_570 * s, 32 * s, "3"),
            ],
        ),
        (
            TraceFormat::Biosnoop,
            [(0, Write, 2048 * s, 4096, "sda"), (304_000, Read, 4096 * s, 8192, "sda")],
        ),
        (
            TraceFormat::FioLatency,
            [(0, Read, 249_856, 4096, ""), (3_470_000, Write, 3_104_768, 4096, "")],
        ),
        (
            TraceFormat::Arc,
            [(0, Read, 230_027 * s, 8 * s, ""), (0, Read, 1_842_745 * s, 64 * s, "")],
        ),
    ];
    for (format, requests) in expected {
        let requests =
            requests.map(|(at, op, from, len, name)| (at, op, from, len, name.to_owned()));
        assert_eq!(told(format), requests, "{format:?}");
    }
}

#[test]
fn times_that_a_format_tells_are_kept() {
    assert_eq!(responses(TraceFormat::MsrCambridge), [Some(11_373_600), Some(1100)]);
    assert_eq!(responses(TraceFormat::Systor17), [Some(161_000), None]);
    assert_eq!(responses(TraceFormat::Blkreplay), [None, Some(501_000)]);
    assert_eq!(responses(TraceFormat::DisksimValidation), [Some(1_686_000), Some(14_368_500)]);
    assert_eq!(responses(TraceFormat::Biosnoop), [Some(740_000), Some(610_000)]);
    assert_eq!(responses(TraceFormat::FioLatency), [Some(2_500_000), Some(30_000)]);
    assert_eq!(responses(TraceFormat::Alibaba), [None, None]);
}

#[test]
fn addresses_beyond_2_to_the_64_are_damage() {
    for (format, text) in [
        (TraceFormat::Alibaba, "1,W,18446744073709551615,4096,5\n"),
        (TraceFormat::Tencent, "1,36028797018963968,8,0,7\n"),
        (TraceFormat::Mqsim, "1 0 36028797018963967 9 0\n"),
        (TraceFormat::Spc, "0,99999999999999999999,8192,W,0.5\n"),
        (TraceFormat::MsrCambridge, "18446744073709551615,h,0,Read,0,512,1\n"),
    ] {
        let error = read(text, format).unwrap_err();
        assert_eq!(error.position(), Some(Position::Line(1)), "{format:?}: {error}");
    }
}

#[test]
fn damage_is_counted_by_kind_with_its_first_line() {
    let text = "0,1,512,W,0.1\n0,x,512,W,0.2\n\n# a remark\n0,3,512,W,0.3\n0,4,512\n";
    let error = read(text, TraceFormat::Spc).unwrap_err();
    assert_eq!(error.position(), Some(Position::Line(2)));
    let mut lenient = open(text.as_bytes(), TraceFormat::Spc, Damage::Skip);
    assert_eq!(lenient.by_ref().filter(Result::is_ok).count(), 2);
    let damage: Vec<_> = lenient.tally().damage.iter().collect();
    assert_eq!(damage.len(), 1);
    let (kind, count) = damage[0];
    assert_eq!((kind, count.places, count.first), (DamageKind::Unreadable, 2, Position::Line(2)));
    assert_eq!(count.skipped_bytes, 14 + 8);
}

#[test]
fn a_text_without_a_request_is_an_error_that_says_why() {
    for (text, format, why) in [
        ("time,op\n# nothing\n", TraceFormat::Spc, "none of its 2 events or lines"),
        ("8,0 0 1 0.000000042 161 P N [fio]\n", TraceFormat::BlkparseText, "none of its 1"),
        ("# 8,0\n", TraceFormat::BlkparseText, "neither events nor lines"),
        ("0.5 a 1 sda N 0 0 0.3\n", TraceFormat::Biosnoop, "1 commands move no data"),
    ] {
        let error = read(text, format).unwrap_err();
        assert!(matches!(error, TraceError::NoRequests { .. }), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    let mut lenient = open(b"1,x\n", TraceFormat::Spc, Damage::Skip);
    let error = lenient.next().unwrap().unwrap_err().to_string();
    assert!(error.contains("1 damaged places were skipped"), "{error}");
}

#[test]
fn a_heading_is_one_only_above_the_requests() {
    let text = "volume,size\n0,1,512,W,0.1\nvolume,size\n";
    let error = read(text, TraceFormat::Spc).unwrap_err();
    assert_eq!(error.position(), Some(Position::Line(3)));
}

#[test]
fn requests_out_of_order_are_put_right_within_a_window_and_counted_beyond() {
    let text = "5 0 8 8 0\n3 0 16 8 0\n9 0 24 8 0\n";
    let times: Vec<_> =
        read(text, TraceFormat::Mqsim).unwrap().iter().map(|record| record.issued_ns).collect();
    assert_eq!(times, [0, 2, 6]);
    let mut late: String = (1000..2000).map(|time| format!("{time} 0 8 8 0\n")).collect();
    late.push_str("7 0 8 8 0\n");
    let mut reader = open(late.as_bytes(), TraceFormat::Mqsim, Damage::Fail);
    assert_eq!(reader.by_ref().map(Result::unwrap).last().unwrap().issued_ns, 999);
    assert_eq!(reader.tally().out_of_order, 1);
}

#[test]
fn one_request_without_the_end_of_its_line_is_a_trace() {
    let records = read("938513000 4 264719034 16 0", TraceFormat::Mqsim).unwrap();
    assert_eq!((records.len(), records[0].issued_ns), (1, 0));
}

#[test]
fn what_tells_no_operations_is_refused_where_requests_are_needed() {
    for format in [TraceFormat::Arc, TraceFormat::OracleGeneral] {
        let input = Box::new(Cursor::new(sample(format)));
        let error = TraceReader::from_input("t", input, ReadOptions::default()).err().unwrap();
        assert!(matches!(error, TraceError::Lacking { .. }), "{error}");
        assert!(error.to_string().contains("operations"), "{error}");
    }
}
