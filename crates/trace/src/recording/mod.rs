//! Headpond's own recording format, version 1: compact, in blocks that each prove themselves.
//!
//! All numbers little-endian; CRC is CRC-32C; varint is LEB128; zigzag maps signed to unsigned.
//!
//! ```text
//! header, 32 bytes:  "HPTRACE\0" | u16 version = 1 | u16 features = 0 | u32 0
//!                    | u64 start, ns since 1970 | u32 0 | u32 CRC of the 28 bytes before
//! block, 20 bytes:   "HPBK" | u8 kind | 3 x 0 | u32 payload bytes <= 128 KiB | u32 records <= 4096
//!                    | u32 CRC of the 16 bytes before and of the payload, then the payload
//! kind 1, records:   one after another; a block starts from time 0, range 0+0, no flags, origin 0
//!   u8: bits 0-2 operation (read, write, flush, discard, write-zeroes), 3 origin follows,
//!       4 dispatch follows, 5 completion follows, 6 flags follow, 7 length as before
//!   zigzag varint issue time less the one before | zigzag varint offset less the end before
//!   | varint length | varint flags | varint device, process, queue
//!   | varint dispatch less issue | varint completion less issue
//! kind 2, names:     u8 1 process, 2 device | u32 id | u16 bytes | name in UTF-8
//! kind 3, end:       u64 records in the file; nothing follows
//! ```
//!
//! Records are written in order of issue as far as the writer's window reaches (they arrive in
//! order of completion). A recording without an end block was cut off: what its blocks hold is
//! good. A reader refuses unknown versions and unknown features; new kinds of blocks are a feature.

mod decode;
mod encode;
mod stream;
mod writer;

pub use decode::{BlockError, BlockKind, decode_block};
pub(crate) use stream::RecordingStream;
pub use writer::RecordingWriter;

pub(crate) const FORMAT: &str = "Headpond recording";
pub(crate) const MAGIC: &[u8; 8] = b"HPTRACE\0";
pub(crate) const VERSION: u16 = 1;

const HEADER_BYTES: usize = 32;
const BLOCK_MAGIC: &[u8; 4] = b"HPBK";
const BLOCK_HEADER_BYTES: usize = 20;
const PAYLOAD_BYTES_MAX: usize = 128 * 1024;
const BLOCK_RECORDS_MAX: usize = 4096;

const KIND_RECORDS: u8 = 1;
const KIND_NAMES: u8 = 2;
const KIND_END: u8 = 3;

const NAME_PROCESS: u8 = 1;
const NAME_DEVICE: u8 = 2;

const ORIGIN_FOLLOWS: u8 = 1 << 3;
const DISPATCH_FOLLOWS: u8 = 1 << 4;
const COMPLETION_FOLLOWS: u8 = 1 << 5;
const FLAGS_FOLLOW: u8 = 1 << 6;
const LENGTH_AS_BEFORE: u8 = 1 << 7;

const _: () = assert!(BLOCK_HEADER_BYTES + PAYLOAD_BYTES_MAX <= crate::source::BUFFER_BYTES);

/// CRC-32C of several pieces.
fn crc32c(pieces: &[&[u8]]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    pieces.iter().for_each(|piece| digest.update(piece));
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Position, TraceError};
    use crate::reader::{Damage, ReadOptions, TraceReader};
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
            ReadOptions { damage, ..ReadOptions::default() },
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
    fn small_sequential_records_take_few_bytes() {
        let bytes = write(&sample(10_000));
        assert!(bytes.len() < 10_000 * 5, "{} bytes", bytes.len());
    }
}
