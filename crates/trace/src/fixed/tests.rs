//! Records of one length.

use std::io::Cursor;

use crate::damage::{Damage, DamageKind};
use crate::error::{Position, TraceError};
use crate::format::TraceFormat;
use crate::reader::{Demand, ReadOptions, TraceReader};
use crate::record::Op;
use crate::testing::{oracle, vscsi1, vscsi2};

fn open(bytes: &[u8], damage: Damage) -> Result<TraceReader, TraceError> {
    let options = ReadOptions { damage, demand: Demand::References, format: None };
    TraceReader::from_input("test", Box::new(Cursor::new(bytes.to_vec())), options)
}

#[test]
fn both_versions_of_vscsi_say_the_same_and_the_second_the_response_too() {
    let first = [vscsi1(1, 0x2a), vscsi1(2, 0x28), vscsi1(3, 0x35), vscsi1(4, 0x12)].concat();
    let second = [vscsi2(1, 0x2a), vscsi2(2, 0x28), vscsi2(3, 0x35), vscsi2(4, 0x12)].concat();
    for (bytes, format, response_ns) in
        [(first, TraceFormat::Vscsi1, None), (second, TraceFormat::Vscsi2, Some(250_000))]
    {
        let mut reader = open(&bytes, Damage::Fail).unwrap();
        assert_eq!(reader.format(), format);
        let records: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
        let told: Vec<_> = records.iter().map(|r| (r.issued_ns, r.op, r.offset_bytes)).collect();
        let expected =
            [(0, Op::Write, 4096), (1_000_000, Op::Read, 8192), (2_000_000, Op::Flush, 0)];
        assert_eq!(told, expected);
        assert!(records.iter().all(|record| record.response_ns() == response_ns));
        assert_eq!(reader.tally().other_commands, 1, "an inquiry moves no data");
    }
}

#[test]
fn objects_of_an_oracle_trace_are_sectors() {
    let bytes = [oracle(5, 8, 2), oracle(6, 16, -1), oracle(6, 8, -1)].concat();
    let records: Vec<_> = open(&bytes, Damage::Fail).unwrap().map(Result::unwrap).collect();
    let told: Vec<_> = records.iter().map(|r| (r.issued_ns, r.offset_bytes)).collect();
    assert_eq!(told, [(0, 4096), (1_000_000_000, 8192), (1_000_000_000, 4096)]);
}

#[test]
fn cut_and_damaged_records_are_located_or_counted() {
    let mut bytes: Vec<u8> = (1..=20).flat_map(|number| vscsi1(number, 0x2a)).collect();
    bytes[5 * 32 + 15] = 9;
    bytes.truncate(20 * 32 - 7);
    let error = open(&bytes, Damage::Fail).unwrap().find_map(Result::err).unwrap();
    assert_eq!(error.position(), Some(Position::Byte(5 * 32)), "{error}");
    let mut lenient = open(&bytes, Damage::Skip).unwrap();
    assert_eq!(lenient.by_ref().filter(Result::is_ok).count(), 18);
    let damage = lenient.tally().damage;
    let found: Vec<_> = damage.iter().map(|(kind, count)| (kind, count.first)).collect();
    let expected = [
        (DamageKind::Unreadable, Position::Byte(5 * 32)),
        (DamageKind::Truncated, Position::Byte(19 * 32)),
    ];
    assert_eq!(found, expected);
    assert_eq!(damage.skipped_bytes(), 32 + 25);
}
