//! The label of a journal device.

use thiserror::Error;
use uuid::Uuid;

use super::record::UNIT_BYTES;
use crate::checksum;

/// Bytes of a label.
pub const LABEL_BYTES: usize = 4096;
/// Where the two copies begin, by the parity of their sequence.
pub const COPY_OFFSETS: [u64; 2] = [0, 64 << 10];
/// Where the ring begins.
pub const RING_OFFSET: u64 = 128 << 10;
/// The version written.
pub const VERSION: u32 = 1;

const MAGIC: &[u8; 8] = b"HPJOURNL";

/// Where each field lies; see `docs/format.md`.
mod at {
    pub const VERSION: usize = 8;
    pub const CHECKSUM: usize = 12;
    pub const INCOMPAT: usize = 16;
    pub const SEQUENCE: usize = 24;
    pub const JOURNAL: usize = 32;
    pub const ARRAY: usize = 48;
    pub const EPOCH: usize = 64;
    pub const TAIL_SEQUENCE: usize = 72;
    pub const TAIL_OFFSET: usize = 80;
    pub const RING_BYTES: usize = 88;
}

/// What a journal device carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    pub journal: Uuid,
    /// The array that it belongs to.
    pub array: Uuid,
    /// Of the label's writes; decides which copy the next one goes to.
    pub sequence: u64,
    /// Counts the starts of the array; records of other epochs do not count.
    pub epoch: u64,
    pub tail: Tail,
    /// A multiple of [`UNIT_BYTES`].
    pub ring_bytes: u64,
}

/// Where the oldest record begins that counts, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    pub sequence: u64,
    /// From the start of the ring.
    pub offset: u64,
}

impl Tail {
    /// Of a ring without records.
    pub const START: Tail = Tail { sequence: 1, offset: 0 };
}

/// Why bytes are no label that can be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LabelError {
    #[error("it is empty")]
    Zeroed,
    #[error("it is not a stripe journal")]
    Foreign,
    #[error("its checksum is {found:#010x} where {expected:#010x} was expected")]
    Checksum { expected: u32, found: u32 },
    #[error(
        "it has format version {found}; this program supports up to {VERSION}: use a newer one"
    )]
    Version { found: u32 },
    #[error(
        "it requires features {unknown:#x}, which this program does not support: use a newer one"
    )]
    Incompatible { unknown: u64 },
    #[error("its field `{field}` has the invalid value {value}")]
    Field { field: &'static str, value: u64 },
}

/// The label as it is written.
pub fn encode(label: &Label) -> Vec<u8> {
    let mut bytes = vec![0; LABEL_BYTES];
    let mut put = |offset: usize, value: &[u8]| {
        bytes[offset..offset + value.len()].copy_from_slice(value);
    };
    put(0, MAGIC);
    put(at::VERSION, &VERSION.to_le_bytes());
    put(at::SEQUENCE, &label.sequence.to_le_bytes());
    put(at::JOURNAL, label.journal.as_bytes());
    put(at::ARRAY, label.array.as_bytes());
    put(at::EPOCH, &label.epoch.to_le_bytes());
    put(at::TAIL_SEQUENCE, &label.tail.sequence.to_le_bytes());
    put(at::TAIL_OFFSET, &label.tail.offset.to_le_bytes());
    put(at::RING_BYTES, &label.ring_bytes.to_le_bytes());
    let sum = checksum::with_hole(&bytes, at::CHECKSUM);
    bytes[at::CHECKSUM..at::CHECKSUM + 4].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The label in `bytes`.
///
/// # Errors
/// Where it is none, or damaged, or of a kind not known here.
///
/// # Panics
/// Where `bytes` has not the size of a label.
pub fn decode(bytes: &[u8]) -> Result<Label, LabelError> {
    assert_eq!(bytes.len(), LABEL_BYTES);
    let array = |offset: usize| -> [u8; 8] {
        bytes[offset..offset + 8].try_into().expect("the slice has 8 bytes")
    };
    let u64_at = |offset| u64::from_le_bytes(array(offset));
    let u32_at = |offset: usize| u64_at(offset) as u32;
    if bytes.iter().all(|byte| *byte == 0) {
        return Err(LabelError::Zeroed);
    }
    if !bytes.starts_with(MAGIC) {
        return Err(LabelError::Foreign);
    }
    let (found, expected) = (u32_at(at::CHECKSUM), checksum::with_hole(bytes, at::CHECKSUM));
    if found != expected {
        return Err(LabelError::Checksum { expected, found });
    }
    match (u32_at(at::VERSION), u64_at(at::INCOMPAT)) {
        (VERSION, 0) => {}
        (VERSION, unknown) => return Err(LabelError::Incompatible { unknown }),
        (found, _) => return Err(LabelError::Version { found }),
    }
    let uuid = |offset: usize| {
        Uuid::from_bytes(bytes[offset..offset + 16].try_into().expect("the slice has 16 bytes"))
    };
    let label = Label {
        journal: uuid(at::JOURNAL),
        array: uuid(at::ARRAY),
        sequence: u64_at(at::SEQUENCE),
        epoch: u64_at(at::EPOCH),
        tail: Tail { sequence: u64_at(at::TAIL_SEQUENCE), offset: u64_at(at::TAIL_OFFSET) },
        ring_bytes: u64_at(at::RING_BYTES),
    };
    label.check().map(|()| label)
}

impl Label {
    fn check(&self) -> Result<(), LabelError> {
        let refuse = |field, value| Err(LabelError::Field { field, value });
        let Tail { sequence, offset } = self.tail;
        let is_placed = offset.is_multiple_of(UNIT_BYTES) && offset < self.ring_bytes;
        if !self.ring_bytes.is_multiple_of(UNIT_BYTES) || self.ring_bytes > u64::MAX / 2 {
            return refuse("ring size", self.ring_bytes);
        }
        if !is_placed {
            return refuse("tail", offset);
        }
        let counts =
            [("sequence", self.sequence), ("epoch", self.epoch), ("tail sequence", sequence)];
        // No journal lives so long; a higher count could not be counted up for ever.
        match counts.into_iter().find(|(_, count)| *count > u64::MAX / 2) {
            Some((field, count)) => refuse(field, count),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels() -> impl Strategy<Value = Label> {
        let counts = (1_u64..1 << 40, 0_u64..1 << 40, 1_u64..1 << 40);
        (any::<[u128; 2]>(), counts, 1_u64..1 << 30, any::<prop::sample::Index>()).prop_map(
            |([journal, array], (sequence, epoch, first), units, at)| Label {
                journal: Uuid::from_u128(journal),
                array: Uuid::from_u128(array),
                sequence,
                epoch,
                tail: Tail {
                    sequence: first,
                    offset: at.index(units as usize) as u64 * UNIT_BYTES,
                },
                ring_bytes: units * UNIT_BYTES,
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn encoding_and_decoding_round_trip(label in labels()) {
            prop_assert_eq!(decode(&encode(&label)), Ok(label));
        }

        #[test]
        fn every_changed_byte_is_noticed(
            label in labels(), at in 0..LABEL_BYTES, change in 1..=255_u8,
        ) {
            let mut bytes = encode(&label);
            bytes[at] ^= change;
            prop_assert!(decode(&bytes).is_err());
        }

        #[test]
        fn a_wrong_field_under_a_right_checksum_never_panics(
            label in labels(), at in 0_usize..128, value in any::<u8>(),
        ) {
            let mut bytes = encode(&label);
            bytes[at] = value;
            let sum = checksum::with_hole(&bytes, at::CHECKSUM);
            bytes[at::CHECKSUM..at::CHECKSUM + 4].copy_from_slice(&sum.to_le_bytes());
            if let Ok(found) = decode(&bytes) {
                prop_assert!(found.tail.offset < found.ring_bytes);
            }
        }
    }

    #[test]
    fn empty_and_foreign_blocks_are_told_apart() {
        assert_eq!(decode(&[0; LABEL_BYTES]), Err(LabelError::Zeroed));
        assert_eq!(decode(&[7; LABEL_BYTES]), Err(LabelError::Foreign));
    }
}
