//! What a head has of its device: size, identity, sampled blocks. `docs/format.md` has the layout.
//!
//! **Invariants**
//! - Any bytes decode to what they say, or to why they say nothing; never a panic.
//! - A write goes to one of two places in turn: the one before stays whole while it is written.

use super::ExistingError;
use super::samples::{Sample, sampled_offsets};
use headpond_block::{BlockDevice, Buffer, DeviceError, Request, RequestFlags};
use headpond_raid::checksum::with_hole;
use headpond_raid::superblock::DATA_OFFSET_MIN;

pub(super) const RECORD_BYTES: usize = 4096;
/// One behind the other, behind what a member has in front of its data.
pub(super) const COPIES: u64 = 2;
/// Sampled blocks that a record has room for.
pub(super) const SAMPLES_MAX: usize = (RECORD_BYTES - TABLE_AT) / ENTRY_BYTES;

const MAGIC: &[u8; 8] = b"HPEXIST\0";
const VERSION: u32 = 1;
const VERSION_AT: usize = 8;
const CHECKSUM_AT: usize = 12;
const SEQUENCE_AT: usize = 16;
const SIZE_AT: usize = 24;
const COUNT_AT: usize = 32;
const IDENTITY_AT: usize = 64;
const IDENTITY_BYTES: usize = 256;
const TABLE_AT: usize = 512;
const ENTRY_BYTES: usize = 16;
const COUNTS: u8 = 1;

/// The record of a head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExistingRecord {
    /// Of the writes; the record with the highest one counts.
    pub sequence: u64,
    pub size_bytes: u64,
    /// In the words of the opener; empty where it has none that lasts.
    pub identity: String,
    /// In order of their addresses.
    pub samples: Vec<Sample>,
}

/// What is at one of the two places.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decoded {
    Nothing,
    Newer(u32),
    Record(ExistingRecord),
}

impl ExistingRecord {
    /// Of a device that is taken; none of its blocks counts yet.
    pub fn of(size_bytes: u64, identity: &str) -> Self {
        let mut identity = identity.to_owned();
        while identity.len() > IDENTITY_BYTES {
            identity.pop();
        }
        let samples = sampled_offsets(size_bytes);
        let samples = samples.into_iter().map(|offset| Sample { offset, checksum: None });
        Self { sequence: 0, size_bytes, identity, samples: samples.collect() }
    }

    pub fn encode(&self) -> Vec<u8> {
        assert!(self.samples.len() <= SAMPLES_MAX);
        let mut bytes = vec![0; RECORD_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[VERSION_AT..VERSION_AT + 4].copy_from_slice(&VERSION.to_le_bytes());
        bytes[SEQUENCE_AT..SEQUENCE_AT + 8].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[SIZE_AT..SIZE_AT + 8].copy_from_slice(&self.size_bytes.to_le_bytes());
        let count = self.samples.len() as u32;
        bytes[COUNT_AT..COUNT_AT + 4].copy_from_slice(&count.to_le_bytes());
        let identity = self.identity.as_bytes();
        bytes[IDENTITY_AT..IDENTITY_AT + identity.len()].copy_from_slice(identity);
        for (entry, sample) in bytes[TABLE_AT..].chunks_exact_mut(ENTRY_BYTES).zip(&self.samples) {
            entry[..8].copy_from_slice(&sample.offset.to_le_bytes());
            entry[8..12].copy_from_slice(&sample.checksum.unwrap_or(0).to_le_bytes());
            entry[12] = if sample.checksum.is_some() { COUNTS } else { 0 };
        }
        let checksum = with_hole(&bytes, CHECKSUM_AT);
        bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Decoded {
        if bytes.len() != RECORD_BYTES
            || &bytes[..8] != MAGIC
            || u32_at(bytes, CHECKSUM_AT) != with_hole(bytes, CHECKSUM_AT)
        {
            return Decoded::Nothing;
        }
        let version = u32_at(bytes, VERSION_AT);
        if version > VERSION {
            return Decoded::Newer(version);
        }
        let count = (u32_at(bytes, COUNT_AT) as usize).min(SAMPLES_MAX);
        let entries = bytes[TABLE_AT..].chunks_exact(ENTRY_BYTES).take(count);
        let sample = |entry: &[u8]| Sample {
            offset: u64_at(entry, 0),
            checksum: (entry[12] == COUNTS).then(|| u32_at(entry, 8)),
        };
        let identity = &bytes[IDENTITY_AT..IDENTITY_AT + IDENTITY_BYTES];
        let identity = identity.split(|byte| *byte == 0).next().unwrap_or_default();
        let record = Self {
            sequence: u64_at(bytes, SEQUENCE_AT),
            size_bytes: u64_at(bytes, SIZE_AT),
            identity: String::from_utf8_lossy(identity).into_owned(),
            samples: entries.map(sample).collect(),
        };
        // Its addresses are used to read.
        let is_sound = record.samples.iter().all(|it| it.offset < record.size_bytes)
            && record.samples.is_sorted_by_key(|it| it.offset);
        if is_sound { Decoded::Record(record) } else { Decoded::Nothing }
    }
}

/// The newest record of a head.
pub(super) async fn load(head: &dyn BlockDevice) -> Result<ExistingRecord, ExistingError> {
    let name = || head.name().clone();
    if head.size_bytes() < super::HEAD_BYTES {
        return Err(ExistingError::Head { head: name() });
    }
    let mut newest: Option<ExistingRecord> = None;
    for copy in 0..COPIES {
        let place = Buffer::zeroed(RECORD_BYTES);
        head.read(place_of(copy), &place).await?;
        match ExistingRecord::decode(&place.to_vec()) {
            Decoded::Record(record) => {
                newest = newest.into_iter().chain([record]).max_by_key(|record| record.sequence);
            }
            Decoded::Newer(version) => return Err(ExistingError::Newer { head: name(), version }),
            Decoded::Nothing => {}
        }
    }
    newest.ok_or_else(|| ExistingError::Head { head: name() })
}

/// Writes a record that is to count from now on; it is stable on return.
pub(super) async fn save(
    head: &dyn BlockDevice,
    record: &ExistingRecord,
) -> Result<(), DeviceError> {
    let bytes = Buffer::from_slice(&record.encode());
    let request = Request::write(place_of(record.sequence), bytes);
    head.submit(request.with_flags(RequestFlags::FUA)).await
}

fn place_of(sequence: u64) -> u64 {
    DATA_OFFSET_MIN + sequence % COPIES * RECORD_BYTES as u64
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> ExistingRecord {
        let mut record = ExistingRecord::of(1 << 40, "disk naa.5000c500a1b2c3d4 part 1");
        record.sequence = 7;
        record.samples[3].checksum = Some(0xdead_beef);
        record
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        assert_eq!(ExistingRecord::decode(&record().encode()), Decoded::Record(record()));
    }

    #[test]
    fn a_damaged_or_newer_record_is_not_used() {
        for at in [0, VERSION_AT, SEQUENCE_AT, IDENTITY_AT, TABLE_AT, RECORD_BYTES - 1] {
            let mut bytes = record().encode();
            bytes[at] ^= 1;
            assert_eq!(ExistingRecord::decode(&bytes), Decoded::Nothing, "byte {at}");
        }
        let mut bytes = record().encode();
        bytes[VERSION_AT] = 9;
        let checksum = with_hole(&bytes, CHECKSUM_AT);
        bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(ExistingRecord::decode(&bytes), Decoded::Newer(9));
    }

    #[test]
    fn a_long_identity_ends_at_a_letter() {
        let record = ExistingRecord::of(1 << 20, &"é".repeat(200));
        assert_eq!(record.identity, "é".repeat(128));
        assert_eq!(ExistingRecord::decode(&record.encode()), Decoded::Record(record));
    }
}
