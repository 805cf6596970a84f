//! A record: a header with its entries, and the new contents of strips.
//!
//! **Invariants**: bytes become a [`Record`] only where magic, journal, epoch and the checksum of
//! all of it match and every length is possible; so a torn record is not one.

use crc_fast::{CrcAlgorithm, Digest};
use headpond_block::Buffers;
use uuid::Uuid;

use crate::layout::{Strip, Stripe};
use crate::plan::Span;

/// Records begin and end at multiples of so many bytes.
pub const UNIT_BYTES: u64 = 4096;

const MAGIC: &[u8; 8] = b"HPSTRIPJ";
const FIXED_BYTES: usize = 64;
const ENTRY_BYTES: usize = 24;
/// What stands for the parity strips in the place of a number.
const P: u16 = u16::MAX - 1;
const Q: u16 = u16::MAX;

/// Where each field lies; see `docs/format.md`.
mod at {
    pub const CHECKSUM: usize = 8;
    pub const ENTRIES: usize = 12;
    pub const EPOCH: usize = 16;
    pub const SEQUENCE: usize = 24;
    pub const DATA_BYTES: usize = 32;
    pub const JOURNAL: usize = 48;

    pub const STRIPE: usize = 0;
    pub const KIND: usize = 8;
    pub const STRIP: usize = 10;
    pub const START: usize = 12;
    pub const LENGTH: usize = 16;
}

/// One change that a record describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// New content of a part of a strip, which follows in the record.
    Content { stripe: Stripe, strip: Strip, span: Span },
    /// Nothing but zeros on all strips of every `step`-th of some stripes.
    Zeros { stripes: std::ops::Range<u64>, step: u32 },
}

impl Change {
    /// The stripes that it changes.
    pub fn stripes(&self) -> std::ops::RangeInclusive<Stripe> {
        match self {
            Change::Content { stripe, .. } => *stripe..=*stripe,
            Change::Zeros { stripes, .. } => Stripe(stripes.start)..=Stripe(stripes.end - 1),
        }
    }

    /// The bytes of it that follow the header.
    pub fn data_bytes(&self) -> u64 {
        match self {
            Change::Content { span, .. } => u64::from(span.end - span.start),
            Change::Zeros { .. } => 0,
        }
    }
}

/// Where a record stands among others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordPosition {
    pub journal: Uuid,
    pub epoch: u64,
    pub sequence: u64,
}

/// What a header says of the record that it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announced {
    pub sequence: u64,
    entries: usize,
    data_bytes: u64,
}

/// A record that is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Each with the offset of its content in the record.
    pub changes: Vec<(Change, std::ops::Range<usize>)>,
}

/// Bytes of the header of a record with so many entries.
pub fn header_bytes(entries: usize) -> u64 {
    ((FIXED_BYTES + entries * ENTRY_BYTES) as u64).next_multiple_of(UNIT_BYTES)
}

/// The header of a record with these changes, whose contents follow it in `data`.
///
/// # Panics
/// Where there are not as many bytes as the changes say.
pub fn encode(place: RecordPosition, changes: &[Change], data: &Buffers) -> Vec<u8> {
    let data_bytes: u64 = changes.iter().map(Change::data_bytes).sum();
    assert_eq!(data_bytes, data.len_bytes() as u64, "contents for the changes");
    let mut bytes = vec![0; header_bytes(changes.len()) as usize];
    let mut put = |offset: usize, value: &[u8]| {
        bytes[offset..offset + value.len()].copy_from_slice(value);
    };
    put(0, MAGIC);
    put(at::ENTRIES, &(changes.len() as u32).to_le_bytes());
    put(at::EPOCH, &place.epoch.to_le_bytes());
    put(at::SEQUENCE, &place.sequence.to_le_bytes());
    put(at::DATA_BYTES, &data_bytes.to_le_bytes());
    put(at::JOURNAL, place.journal.as_bytes());
    for (index, change) in changes.iter().enumerate() {
        let entry = FIXED_BYTES + index * ENTRY_BYTES;
        let (stripe, kind, strip, start, length) = match change {
            Change::Content { stripe, strip, span } => {
                (stripe.0, 1_u16, strip_number(*strip), span.start, change.data_bytes())
            }
            Change::Zeros { stripes, step } => {
                (stripes.start, 2, 0, *step, stripes.end - stripes.start)
            }
        };
        put(entry + at::STRIPE, &stripe.to_le_bytes());
        put(entry + at::KIND, &kind.to_le_bytes());
        put(entry + at::STRIP, &strip.to_le_bytes());
        put(entry + at::START, &start.to_le_bytes());
        put(entry + at::LENGTH, &length.to_le_bytes());
    }
    let parts = data.iter().map(|part| {
        // SAFETY: what is being written does not change until its write is answered, as for parity:
        // no client can write to the memory of a `Buffer` (decision 0042), and what the array
        // computed is complete.
        unsafe { part.as_slice() }
    });
    let sum = checksum(&bytes, parts);
    bytes[at::CHECKSUM..at::CHECKSUM + 4].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// What the first bytes of a record announce, where they are those of a record of this journal and
/// epoch.
///
/// # Panics
/// Where there are fewer than [`UNIT_BYTES`].
pub fn announced(bytes: &[u8], journal: Uuid, epoch: u64) -> Option<Announced> {
    assert!(bytes.len() as u64 >= UNIT_BYTES);
    let is_ours = bytes.starts_with(MAGIC)
        && bytes[at::JOURNAL..at::JOURNAL + 16] == *journal.as_bytes()
        && u64_at(bytes, at::EPOCH) == epoch;
    let entries = u32_at(bytes, at::ENTRIES) as usize;
    let announced = Announced {
        sequence: u64_at(bytes, at::SEQUENCE),
        entries,
        data_bytes: u64_at(bytes, at::DATA_BYTES),
    };
    (is_ours && announced.data_bytes <= u64::from(u32::MAX)).then_some(announced)
}

impl Announced {
    /// Bytes of the whole record.
    pub fn bytes(&self) -> u64 {
        header_bytes(self.entries) + self.data_bytes.next_multiple_of(UNIT_BYTES)
    }
}

/// The record in `bytes`, which [`announced`] has measured; `None` where it is not whole.
pub fn decode(bytes: &[u8], announced: Announced) -> Option<Record> {
    let header = header_bytes(announced.entries) as usize;
    let end = header + announced.data_bytes as usize;
    let (header, data) = (bytes.get(..header)?, bytes.get(header..end)?);
    if checksum(header, std::iter::once(data)) != u32_at(header, at::CHECKSUM) {
        return None;
    }
    let mut changes = Vec::with_capacity(announced.entries);
    let mut from = header.len();
    for index in 0..announced.entries {
        let change = change(&header[FIXED_BYTES + index * ENTRY_BYTES..][..ENTRY_BYTES])?;
        let len = change.data_bytes() as usize;
        changes.push((change, from..from + len));
        from += len;
    }
    (from == end).then_some(Record { changes })
}

fn change(entry: &[u8]) -> Option<Change> {
    let (stripe, length) = (u64_at(entry, at::STRIPE), u64_at(entry, at::LENGTH));
    let start = u32_at(entry, at::START);
    match u16_at(entry, at::KIND) {
        1 => {
            let end = start.checked_add(u32::try_from(length).ok()?)?;
            let strip = strip_of(u16_at(entry, at::STRIP));
            Some(Change::Content { stripe: Stripe(stripe), strip, span: start..end })
        }
        2 if start > 0 => {
            Some(Change::Zeros { stripes: stripe..stripe.checked_add(length)?, step: start })
        }
        _ => None,
    }
}

fn strip_number(strip: Strip) -> u16 {
    match strip {
        Strip::Data(k) => k,
        Strip::P => P,
        Strip::Q => Q,
    }
}

fn strip_of(number: u16) -> Strip {
    match number {
        P => Strip::P,
        Q => Strip::Q,
        k => Strip::Data(k),
    }
}

fn checksum<'a>(header: &[u8], data: impl Iterator<Item = &'a [u8]>) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&header[..at::CHECKSUM]);
    digest.update(&[0; 4]);
    digest.update(&header[at::CHECKSUM + 4..]);
    data.for_each(|part| digest.update(part));
    digest.finalize() as u32
}

fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes(bytes[offset..offset + 2].try_into().expect("the slice has 2 bytes"))
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(bytes[offset..offset + 4].try_into().expect("the slice has 4 bytes"))
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(bytes[offset..offset + 8].try_into().expect("the slice has 8 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_block::Buffer;
    use proptest::prelude::*;

    const PLACE: RecordPosition =
        RecordPosition { journal: Uuid::from_u128(7), epoch: 3, sequence: 9 };

    fn changes() -> impl Strategy<Value = Vec<Change>> {
        let strip = prop_oneof![(0_u16..20).prop_map(Strip::Data), Just(Strip::P), Just(Strip::Q)];
        let content = (0_u64..1 << 40, strip, 0_u32..64, 1_u32..5).prop_map(
            |(stripe, strip, start, sectors)| Change::Content {
                stripe: Stripe(stripe),
                strip,
                span: start * 512..(start + sectors) * 512,
            },
        );
        let zeros = (0_u64..1 << 40, 1_u64..40, 1_u32..9)
            .prop_map(|(first, count, step)| Change::Zeros { stripes: first..first + count, step });
        prop::collection::vec(prop_oneof![9 => content, 1 => zeros], 1..300)
    }

    fn written(changes: &[Change]) -> Vec<u8> {
        let len: u64 = changes.iter().map(Change::data_bytes).sum();
        let data: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        let mut bytes = encode(PLACE, changes, &Buffer::from_slice(&data).into());
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(UNIT_BYTES as usize), 0);
        bytes
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn encoding_and_decoding_round_trip(changes in changes()) {
            let bytes = written(&changes);
            let announced = announced(&bytes, PLACE.journal, PLACE.epoch).expect("a record");
            prop_assert_eq!((announced.sequence, announced.bytes()), (9, bytes.len() as u64));
            let record = decode(&bytes, announced).expect("whole");
            let mut from = header_bytes(changes.len()) as usize;
            for (expected, (found, content)) in changes.iter().zip(&record.changes) {
                prop_assert_eq!(expected, found);
                prop_assert_eq!(content.start, from);
                from = content.end;
            }
            prop_assert_eq!(record.changes.len(), changes.len());
        }

        #[test]
        fn a_record_with_a_changed_byte_is_none(
            changes in changes(), at in any::<prop::sample::Index>(), change in 1..=255_u8,
        ) {
            let mut bytes = written(&changes);
            let len: u64 = changes.iter().map(Change::data_bytes).sum();
            let at = at.index((header_bytes(changes.len()) + len) as usize);
            bytes[at] ^= change;
            let found = announced(&bytes, PLACE.journal, PLACE.epoch);
            let whole = found.and_then(|announced| decode(&bytes, announced));
            prop_assert_eq!(whole, None);
        }
    }

    #[test]
    fn a_record_of_another_journal_or_epoch_is_not_announced() {
        let bytes = written(&[Change::Zeros { stripes: 0..1, step: 1 }]);
        assert!(announced(&bytes, PLACE.journal, PLACE.epoch).is_some());
        assert!(announced(&bytes, Uuid::from_u128(8), PLACE.epoch).is_none());
        assert!(announced(&bytes, PLACE.journal, 4).is_none());
    }
}
