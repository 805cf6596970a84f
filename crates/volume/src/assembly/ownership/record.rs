//! The owner record: who has a device of a volume open. `docs/format.md` has the layout.
//!
//! **Invariants**
//! - Any bytes decode to what they say, or to why they say nothing; never a panic.
//! - A write goes to one of two places in turn: the one before stays whole while it is written.

use super::flushed_positions::FlushedPositions;
use headpond_raid::checksum::with_hole;
use std::time::Duration;
use uuid::Uuid;

/// Where the records of every device lie.
pub(crate) const OFFSET: u64 = 32 << 10;
pub(super) const RECORD_BYTES: usize = 4096;
/// Both places, one behind the other.
pub(crate) const AREA_BYTES: usize = 2 * RECORD_BYTES;
/// Longest name of a host that a record has room for.
const HOST_NAME_BYTES: usize = 64;

const MAGIC: &[u8; 8] = b"HPOWNER\0";
const VERSION: u32 = 1;
const CHECKSUM_AT: usize = 8;
const HELD: u8 = 1;
const RELEASED: u8 = 2;

/// A machine, in one of its boots, and a process there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// What people call it.
    pub name: String,
    /// The same in every boot, and no other machine's.
    pub machine: Uuid,
    pub boot: Uuid,
    pub process: Process,
}

/// A process of a boot: numbers are given again, but not to two that began at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    pub number: u32,
    /// In whatever unit the host counts.
    pub started: u64,
}

/// What the owner of a device has written there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnerRecord {
    pub volume: Uuid,
    /// Of this opening, and of no other one.
    pub token: Uuid,
    pub host: Host,
    /// Of the writes, whoever's they were; the record with the highest one counts.
    pub sequence: u64,
    /// How often the owner says again that it is there.
    pub interval_ms: u32,
    /// The owner is there, until it says otherwise or is silent.
    pub is_held: bool,
    /// Of the cache that the owner has in front of the cores.
    pub flushed_positions: FlushedPositions,
}

/// What the records of a device say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OwnerRecords {
    /// Nothing of this volume.
    Nothing,
    Record(OwnerRecord),
    /// There are some, but they are damaged or newer than this program; what tells whether they
    /// are being written is all that they have.
    Unreadable(Vec<u8>),
}

enum Decoded {
    Nothing,
    Record(OwnerRecord),
    Unreadable,
}

impl OwnerRecord {
    /// Whether it is written to the devices at all.
    pub fn has_heartbeat(&self) -> bool {
        self.interval_ms > 0
    }

    pub fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms.into())
    }

    /// Where this one is written.
    pub fn offset(&self) -> u64 {
        OFFSET + self.sequence % 2 * RECORD_BYTES as u64
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; RECORD_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, MAGIC);
        put(12, &VERSION.to_le_bytes());
        put(16, self.volume.as_bytes());
        put(32, self.token.as_bytes());
        put(48, self.host.machine.as_bytes());
        put(64, self.host.boot.as_bytes());
        put(80, &self.sequence.to_le_bytes());
        put(88, &self.interval_ms.to_le_bytes());
        put(92, &[if self.is_held { HELD } else { RELEASED }]);
        put(96, &self.host.process.number.to_le_bytes());
        put(104, &self.host.process.started.to_le_bytes());
        put(128, shortened(&self.host.name).as_bytes());
        self.flushed_positions.encode(&mut bytes);
        let checksum = with_hole(&bytes, CHECKSUM_AT);
        bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8], volume: Uuid) -> Decoded {
        assert_eq!(bytes.len(), RECORD_BYTES);
        if bytes[..8] != *MAGIC {
            return Decoded::Nothing;
        }
        if with_hole(bytes, CHECKSUM_AT) != u32_at(bytes, CHECKSUM_AT) {
            return Decoded::Unreadable;
        }
        if uuid_at(bytes, 16) != volume {
            return Decoded::Nothing;
        }
        let is_held = match (u32_at(bytes, 12), bytes[92]) {
            (VERSION, HELD) => true,
            (VERSION, RELEASED) => false,
            _ => return Decoded::Unreadable,
        };
        let name = bytes[128..128 + HOST_NAME_BYTES].split(|byte| *byte == 0).next();
        let host = Host {
            name: String::from_utf8_lossy(name.unwrap_or_default()).into_owned(),
            machine: uuid_at(bytes, 48),
            boot: uuid_at(bytes, 64),
            process: Process { number: u32_at(bytes, 96), started: u64_at(bytes, 104) },
        };
        Decoded::Record(Self {
            volume,
            token: uuid_at(bytes, 32),
            host,
            sequence: u64_at(bytes, 80),
            interval_ms: u32_at(bytes, 88),
            is_held,
            flushed_positions: FlushedPositions::decode(bytes),
        })
    }
}

impl OwnerRecords {
    /// What both places of a device say of this volume.
    pub fn decode(area: &[u8], volume: Uuid) -> Self {
        assert_eq!(area.len(), AREA_BYTES);
        let (first, second) = area.split_at(RECORD_BYTES);
        let both = [first, second].map(|bytes| OwnerRecord::decode(bytes, volume));
        let is_unreadable = both.iter().any(|it| matches!(it, Decoded::Unreadable));
        let records = both.into_iter().filter_map(|decoded| match decoded {
            Decoded::Record(record) => Some(record),
            Decoded::Nothing | Decoded::Unreadable => None,
        });
        match records.max_by_key(|record| record.sequence) {
            // The other one was torn, or is being written by somebody newer.
            Some(record) if !is_unreadable || record.is_held => Self::Record(record),
            _ if is_unreadable => Self::Unreadable(area.to_vec()),
            _ => Self::Nothing,
        }
    }

    /// What the cache of the last owner had promised.
    pub fn flushed_positions(&self) -> FlushedPositions {
        match self {
            Self::Record(record) => record.flushed_positions.clone(),
            Self::Nothing | Self::Unreadable(_) => FlushedPositions::default(),
        }
    }

    /// The sequence that a record has which is to count instead.
    pub fn next_sequence(&self) -> u64 {
        match self {
            Self::Record(record) => record.sequence.saturating_add(1),
            Self::Nothing | Self::Unreadable(_) => 1,
        }
    }
}

/// The volumes that the records of a device are of, whole or not.
pub(super) fn volumes_named(area: &[u8]) -> Vec<Uuid> {
    assert_eq!(area.len(), AREA_BYTES);
    let records = area.chunks(RECORD_BYTES).filter(|bytes| bytes.starts_with(MAGIC));
    let mut volumes: Vec<Uuid> = records.map(|bytes| uuid_at(bytes, 16)).collect();
    volumes.dedup();
    volumes
}

/// As much of a name as there is room for.
fn shortened(name: &str) -> &str {
    &name[..name.floor_char_boundary(HOST_NAME_BYTES)]
}

pub(super) fn uuid_at(bytes: &[u8], at: usize) -> Uuid {
    Uuid::from_bytes(bytes[at..at + 16].try_into().expect("sixteen bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VOLUME: Uuid = Uuid::from_u128(7);

    fn record(sequence: u64, is_held: bool) -> OwnerRecord {
        let process = Process { number: 12, started: 99 };
        let host = Host {
            name: "left".into(),
            machine: Uuid::from_u128(1),
            boot: Uuid::from_u128(2),
            process,
        };
        let (volume, token) = (VOLUME, Uuid::from_u128(3));
        let flushed_positions = FlushedPositions::default();
        OwnerRecord { volume, token, host, sequence, interval_ms: 1000, is_held, flushed_positions }
    }

    fn area(records: &[OwnerRecord]) -> Vec<u8> {
        let mut area = vec![0; AREA_BYTES];
        for record in records {
            let at = (record.offset() - OFFSET) as usize;
            area[at..at + RECORD_BYTES].copy_from_slice(&record.encode());
        }
        area
    }

    #[test]
    fn the_record_written_last_counts_whichever_place_it_has() {
        for last in [4, 5] {
            let records = [record(last - 1, false), record(last, true)];
            let found = OwnerRecords::decode(&area(&records), VOLUME);
            assert_eq!(found, OwnerRecords::Record(record(last, true)));
            assert_eq!(found.next_sequence(), last + 1);
        }
        assert_eq!(OwnerRecords::decode(&area(&[]), VOLUME), OwnerRecords::Nothing);
        let of_another = OwnerRecords::decode(&area(&[record(4, true)]), Uuid::from_u128(8));
        assert_eq!(of_another, OwnerRecords::Nothing);
    }

    #[test]
    fn a_torn_record_leaves_the_one_before_and_never_looks_released() {
        let torn = |records: &[OwnerRecord], sequence: u64| {
            let mut area = area(records);
            let at = (record(sequence, true).offset() - OFFSET) as usize;
            area[at + 700] ^= 1;
            OwnerRecords::decode(&area, VOLUME)
        };
        let both = [record(4, true), record(5, true)];
        assert_eq!(torn(&both, 5), OwnerRecords::Record(record(4, true)));
        let taken_over = [record(4, false), record(5, true)];
        assert!(matches!(torn(&taken_over, 5), OwnerRecords::Unreadable(_)));
        assert!(matches!(torn(&[record(5, true)], 5), OwnerRecords::Unreadable(_)));
    }

    #[test]
    fn a_long_name_of_a_host_is_cut_between_letters() {
        let mut long = record(1, true);
        long.host.name = "ä".repeat(40);
        let OwnerRecords::Record(found) = OwnerRecords::decode(&area(&[long]), VOLUME) else {
            panic!("whole")
        };
        assert_eq!(found.host.name, "ä".repeat(32));
    }

    proptest! {
        #[test]
        fn any_bytes_decode_to_something(
            bytes in prop::collection::vec(any::<u8>(), 64), sequence: u64, at in 0usize..8100,
        ) {
            let mut area = area(&[record(sequence, true)]);
            area[at..at + 64].copy_from_slice(&bytes);
            let _ = OwnerRecords::decode(&area, VOLUME);
        }

        #[test]
        fn what_a_record_with_a_right_checksum_says_can_be_said_again(
            changes in prop::collection::vec((12usize..700, any::<u8>()), 0..24), sequence: u64,
        ) {
            let mut area = area(&[record(sequence, true)]);
            let at = (record(sequence, true).offset() - OFFSET) as usize;
            let bytes = &mut area[at..at + RECORD_BYTES];
            changes.into_iter().for_each(|(at, byte)| bytes[at] = byte);
            let checksum = with_hole(bytes, CHECKSUM_AT);
            bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
            let volume = uuid_at(bytes, 16);
            if let OwnerRecords::Record(mut found) = OwnerRecords::decode(&area, volume) {
                // What is no text becomes longer when it is read as some.
                found.host.name = shortened(&found.host.name).to_owned();
                let again = OwnerRecord::decode(&found.encode(), volume);
                let Decoded::Record(again) = again else { panic!("what was read can be written") };
                prop_assert_eq!(again, found);
            }
        }
    }
}
