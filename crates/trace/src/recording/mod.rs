//! Headpond's own recording format, version 2: columns of small differences, compressed, in blocks
//! with a checksum each.
//!
//! All numbers little-endian; CRC is CRC-32C; varint is LEB128; zigzag maps signed to unsigned.
//!
//! ```text
//! header, 32 bytes:  "HPTRACE\0" | u16 version = 2 | u16 features = 0
//!                    | u32 lacks: bit 0 operations, bit 1 times
//!                    | u64 start, ns since 1970 | u32 0 | u32 CRC of the 28 bytes before
//! block, 24 bytes:   "HPBK" | u8 kind | u8 packing: 0 plain, 1 zstd | 2 x 0 | u32 payload bytes
//!                    | u32 records <= 8192 | u32 unpacked bytes <= 128 KiB
//!                    | u32 CRC of the 20 bytes before and of the payload, then the payload
//! kind 1, records:   nine columns, one after another: a varint that all values of the column are
//!                    multiples of, then for each value the zigzag varint of how many times; after
//!                    a 0 all values are 0 and no varints follow. A block starts from time 0, range
//!                    0+0, origin 0; values are signed, of 64 bits, differences wrap around.
//!   1 operation (0 read, 1 write, 2 flush, 3 discard, 4 write-zeroes) | dispatch follows << 3
//!     | completion follows << 4 | flags << 5
//!   2 issue time less the one before | 3 offset less the end before | 4 length
//!   5 process, 6 device, 7 queue, each less the one before
//!   8 dispatch less issue, of the records that have one
//!   9 completion less dispatch, or less issue where there is none, likewise
//! kind 2, names:     u8 1 process, 2 device | u32 id | u16 bytes | name in UTF-8
//! kind 3, end:       u64 records in the file; nothing follows
//! ```
//!
//! Records are written in order of issue as far as the writer's window reaches (they arrive in
//! order of completion). A recording without an end block was truncated: its complete blocks are
//! valid. A reader refuses unknown versions and unknown features; new kinds of blocks are a
//! feature.

mod columns;
mod decode;
mod encode;
mod stream;
mod writer;

pub use decode::{BlockDecoder, BlockError, BlockKind};
pub(crate) use stream::RecordingStream;
pub use writer::RecordingWriter;

pub(crate) const FORMAT: &str = "Headpond recording";
pub(crate) const MAGIC: &[u8; 8] = b"HPTRACE\0";
pub(crate) const VERSION: u16 = 2;

const HEADER_BYTES: usize = 32;
const BLOCK_MAGIC: &[u8; 4] = b"HPBK";
const BLOCK_HEADER_BYTES: usize = 24;
/// Of a payload, packed or not.
const PAYLOAD_BYTES_MAX: usize = 128 * 1024;
const BLOCK_RECORDS_MAX: usize = 8192;

const KIND_RECORDS: u8 = 1;
const KIND_NAMES: u8 = 2;
const KIND_END: u8 = 3;

const PACKING_PLAIN: u8 = 0;
const PACKING_ZSTD: u8 = 1;

const NAME_PROCESS: u8 = 1;
const NAME_DEVICE: u8 = 2;

const COLUMNS: usize = 9;
const OP_MASK: i64 = 0b111;
const DISPATCH_FOLLOWS: i64 = 1 << 3;
const COMPLETION_FOLLOWS: i64 = 1 << 4;
const FLAGS_SHIFT: u32 = 5;

/// What one record takes in all columns at most.
const RECORD_BYTES_MAX: usize = 10 * COLUMNS;

const _: () = assert!(BLOCK_HEADER_BYTES + PAYLOAD_BYTES_MAX <= crate::source::BUFFER_BYTES);
const _: () = assert!(RECORD_BYTES_MAX + COLUMNS <= PAYLOAD_BYTES_MAX);

/// CRC-32C of several pieces.
fn crc32c(pieces: &[&[u8]]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    pieces.iter().for_each(|piece| digest.update(piece));
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::damage::Damage;
    use crate::error::{Position, TraceError};
    use crate::format::Lacks;
    use crate::reader::{Demand, ReadOptions, TraceReader};
    use crate::record::{Op, RecordFlags, TraceRecord};
    use proptest::prelude::*;
    use std::io::Cursor;

    fn write(records: &[TraceRecord]) -> Vec<u8> {
        let mut writer = RecordingWriter::new(Vec::new(), 1_700_000_000_000_000_000).unwrap();
        writer.name_process(7, "fio").unwrap();
        writer.name_device(0, "hv0").unwrap();
        for record in records {
            writer.push(*record).unwrap();
        }
        writer.finish().unwrap()
    }

    fn read(bytes: &[u8], damage: Damage) -> Result<(Vec<TraceRecord>, TraceReader), TraceError> {
        let input = Box::new(Cursor::new(bytes.to_vec()));
        let mut reader = TraceReader::from_input(
            "test",
            input,
            ReadOptions { damage, demand: Demand::References, format: None },
        )?;
        let records = reader.by_ref().collect::<Result<Vec<_>, _>>()?;
        Ok((records, reader))
    }

    fn sample(count: u64) -> Vec<TraceRecord> {
        (0..count).map(|n| TraceRecord::new(n * 10, Op::Write, n * 4096, 4096)).collect()
    }

    fn any_record() -> impl Strategy<Value = TraceRecord> {
        let times = (0..u64::MAX / 4, any::<Option<u32>>(), any::<Option<u32>>());
        let range = (any::<u64>(), any::<u64>());
        let origin = (any::<u16>(), any::<u32>(), any::<u16>());
        (times, range, origin, 0..5usize, any::<u16>()).prop_map(
            |((issued_ns, dispatch, completion), (offset, length), origin, op, flags)| {
                TraceRecord {
                    issued_ns,
                    offset_bytes: offset,
                    length_bytes: length.min(u64::MAX - offset),
                    dispatched_ns: dispatch.map(|after| issued_ns + u64::from(after)),
                    completed_ns: completion.map(|after| issued_ns + u64::from(after)),
                    device: origin.0,
                    process: origin.1,
                    queue: origin.2,
                    op: Op::ALL[op],
                    flags: RecordFlags::from_bits_truncate(flags),
                }
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn what_was_written_is_read_in_order_of_issue(
            mut records in proptest::collection::vec(any_record(), 0..300),
        ) {
            let (read, reader) = read(&write(&records), Damage::Fail).unwrap();
            records.sort_by_key(|record| record.issued_ns);
            prop_assert_eq!(read, records);
            prop_assert_eq!(reader.names().process(7), Some("fio"));
            prop_assert_eq!(reader.names().device(0), Some("hv0"));
        }

        #[test]
        fn one_flipped_bit_is_never_read_as_a_different_record(
            place in 0usize..10_000, bit in 0u8..8,
        ) {
            let good = sample(500);
            let mut bytes = write(&good);
            let place = place % bytes.len();
            bytes[place] ^= 1 << bit;
            prop_assert!(read(&bytes, Damage::Fail).is_err());
            if let Ok((records, _)) = read(&bytes, Damage::Skip) {
                prop_assert!(records.iter().all(|record| good.contains(record)));
            }
        }
    }

    #[test]
    fn every_cut_is_an_error_and_leaves_whole_blocks_to_lenient_reading() {
        let bytes = write(&sample(10_000));
        for cut in (0..bytes.len()).step_by(997) {
            assert!(read(&bytes[..cut], Damage::Fail).is_err(), "cut at {cut}");
            if cut > HEADER_BYTES {
                let (records, reader) = read(&bytes[..cut], Damage::Skip).unwrap();
                assert_eq!(records[..], sample(10_000)[..records.len()]);
                assert!(reader.tally().damaged > 0);
            }
        }
    }

    #[test]
    fn missing_end_says_how_much_is_good() {
        let bytes = write(&sample(100));
        let cut = bytes.len() - BLOCK_HEADER_BYTES - 8;
        let error = read(&bytes[..cut], Damage::Fail).err().unwrap();
        assert!(matches!(error, TraceError::Unfinished { records: 100, .. }), "{error}");
        assert_eq!(error.position(), Some(Position::Byte(cut as u64)));
    }

    #[test]
    fn records_that_do_not_pack_are_kept_in_more_blocks() {
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state ^ (state >> 29)
        };
        let mut records: Vec<_> = (0..20_000)
            .map(|_| {
                let (issued_ns, offset) = (random() >> 1, random());
                let length = random().min(u64::MAX - offset);
                let mut record = TraceRecord::new(issued_ns, Op::Write, offset, length);
                record.process = random() as u32;
                record.completed_ns = Some(issued_ns + (random() >> 1));
                record
            })
            .collect();
        let (read, _) = read(&write(&records), Damage::Fail).unwrap();
        records.sort_by_key(|record| record.issued_ns);
        let mut found = read;
        found.sort_by_key(|record| record.issued_ns);
        assert!(found == records);
    }

    #[test]
    fn what_the_trace_lacked_its_recording_lacks() {
        let mut writer = RecordingWriter::new(Vec::new(), 0).unwrap();
        writer.push(TraceRecord::new(0, Op::Read, 0, 512)).unwrap();
        let whole = writer.finish().unwrap();
        let mut writer = RecordingWriter::lacking(Vec::new(), 0, Lacks::OPERATIONS).unwrap();
        writer.push(TraceRecord::new(0, Op::Read, 0, 512)).unwrap();
        let lacking = writer.finish().unwrap();
        assert_eq!(read(&whole, Damage::Fail).unwrap().1.lacks(), Lacks::empty());
        assert_eq!(read(&lacking, Damage::Fail).unwrap().1.lacks(), Lacks::OPERATIONS);
        let refused =
            TraceReader::from_input("t", Box::new(Cursor::new(lacking)), ReadOptions::default());
        assert!(matches!(refused.err().unwrap(), TraceError::Lacking { .. }));
    }

    #[test]
    fn small_sequential_records_take_few_bytes() {
        let bytes = write(&sample(10_000));
        assert!(bytes.len() < 10_000 / 8, "{} bytes", bytes.len());
    }
}
