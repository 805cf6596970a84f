//! The descriptor of a record: the metadata of one append to the log.
//!
//! A descriptor is at most 4 KiB and is followed by the record's data blocks; both go to the device
//! as one write.

use super::FormatError;
use super::bytes::{
    decode_place, encode_place, get_u16, get_u32, get_u64, get_uuid, put_u16, put_u32, put_u64,
    put_uuid,
};
use crate::checksum::crc32c;
use crate::eviction::{ClassKey, KEYS};
use crate::types::{CoreBlock, Epoch, Position, Sectors, Sequence};
use uuid::Uuid;

pub const MAGIC: u64 = u64::from_le_bytes(*b"HPRECORD");
pub const VERSION: u16 = 1;
pub const DESCRIPTOR_BYTES_MAX: usize = 4096;
/// Most data blocks in one record.
pub const DATA_BLOCKS_MAX: usize = 256;
/// Entries may take this much of a descriptor, births included; its successor repeats them.
pub const ENTRY_BYTES_MAX: usize = 1328;

const WHAT: &str = "record";
const HEADER_BYTES: usize = 112;
const BLOCK_BITS: u32 = 40;
const HAS_BIRTH: u64 = 1 << 47;
const COUNT_SHIFT: u32 = 48;
/// Of what carries data, whose counts leave these bits free.
const CLASS_SHIFT: u32 = 58;
/// The kind whose count is 1, and has the sectors in its place.
const PART: u64 = 7;
/// Bits of the word behind the numbers of entries.
const HAS_PREVIOUS: u16 = 1;
const IS_BEHIND_AN_END: u16 = 2;

const _: () = assert!(
    HEADER_BYTES + 2 * ENTRY_BYTES_MAX + 4 * DATA_BLOCKS_MAX <= DESCRIPTOR_BYTES_MAX,
    "a descriptor holds the entries, the predecessor's addresses and the checksums"
);

const _: () = assert!(
    DATA_BLOCKS_MAX <= 1 << (CLASS_SHIFT - COUNT_SHIFT) && KEYS <= 1 << (u64::BITS - CLASS_SHIFT),
    "count and class of data fit their bits"
);

/// What an entry says about its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// Data that the core does not have.
    Dirty,
    /// Data that went to the core as well.
    WrittenThrough,
    /// Data that was read from the core.
    ReadInsert,
    /// The older versions count no more; the core has the truth.
    Tombstone,
    /// Of one block, at their places in it, sectors that the core does not have; of the others the
    /// core has the truth.
    Part(Sectors),
}

impl EntryKind {
    pub fn carries_data(self) -> bool {
        !matches!(self, Self::Tombstone)
    }

    /// Whether nothing but the log has what it carries.
    pub fn is_dirty(self) -> bool {
        matches!(self, Self::Dirty | Self::Part(_))
    }

    /// Of one entry.
    fn blocks_max(self) -> u32 {
        match self {
            Self::Part(_) => 1,
            Self::Tombstone => 1 << 16,
            Self::Dirty | Self::WrittenThrough | Self::ReadInsert => DATA_BLOCKS_MAX as u32,
        }
    }

    fn code(self) -> u64 {
        match self {
            Self::Dirty => 1,
            Self::WrittenThrough => 2,
            Self::ReadInsert => 3,
            Self::Tombstone => 4,
            Self::Part(_) => PART,
        }
    }

    fn from_code(code: u64) -> Option<Self> {
        Some(match code {
            1 => Self::Dirty,
            2 => Self::WrittenThrough,
            3 => Self::ReadInsert,
            4 => Self::Tombstone,
            _ => return None,
        })
    }
}

/// Neighbouring core blocks to which one record did the same thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub first: CoreBlock,
    /// 1 ... 65536; of data at most [`DATA_BLOCKS_MAX`].
    pub count: u32,
    pub kind: EntryKind,
    /// Of data alone.
    pub class: ClassKey,
    /// The record in which a reinserted copy was first written; `None` for a new version.
    pub birth: Option<Sequence>,
}

impl Entry {
    /// Bytes that the entry takes of a descriptor.
    pub fn encoded_bytes(&self) -> usize {
        if self.birth.is_some() { 16 } else { 8 }
    }

    fn pack(&self) -> u64 {
        assert!(self.first.0 < 1 << BLOCK_BITS, "core address beyond the format");
        assert!((1..=self.kind.blocks_max()).contains(&self.count));
        let birth = if self.birth.is_some() { HAS_BIRTH } else { 0 };
        let count = match self.kind {
            EntryKind::Part(sectors) => u64::from(sectors.bits()),
            _ => u64::from(self.count - 1),
        };
        let (kind, count) = (self.kind.code() << BLOCK_BITS, count << COUNT_SHIFT);
        let class = if self.kind.carries_data() { self.class } else { ClassKey::UNKNOWN };
        self.first.0 | kind | birth | count | u64::from(class.0) << CLASS_SHIFT
    }

    /// The entry and whether its birth is written elsewhere.
    fn unpack(word: u64) -> Option<(Entry, bool)> {
        let first = CoreBlock(word & ((1 << BLOCK_BITS) - 1));
        let (mut count, mut class) = ((word >> COUNT_SHIFT) as u32, ClassKey::UNKNOWN);
        let count_of_data = count & ((1 << (CLASS_SHIFT - COUNT_SHIFT)) - 1);
        let kind = match word >> BLOCK_BITS & 0x7f {
            PART => EntryKind::Part(Sectors::new(u8::try_from(count_of_data).ok()?)?),
            code => EntryKind::from_code(code)?,
        };
        if kind.carries_data() {
            count = if matches!(kind, EntryKind::Part(_)) { 0 } else { count_of_data };
            class = ClassKey((word >> CLASS_SHIFT) as u8);
        }
        let entry = Entry { first, count: count + 1, kind, birth: None, class };
        (class.is_possible()).then_some((entry, word & HAS_BIRTH != 0))
    }
}

/// The fields of a descriptor that are the same whatever its entries are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub cache: Uuid,
    pub slice: u16,
    pub epoch: Epoch,
    pub sequence: Sequence,
    /// Records below this one count no more.
    pub tail: Sequence,
    /// Every record up to this one was stable when this one was formed.
    pub flush_mark: Sequence,
    pub position: Position,
    pub promises: Promises,
    /// An epoch of flushes ended before this record.
    pub is_behind_an_end: bool,
    /// The core has everything that lies before this place in the log for good, and of the rest no
    /// more than it would get in the order of the flushes. `None` where there is no such order.
    pub order: Option<Position>,
}

/// The newest records that were acknowledged as stable each by itself (FUA), whatever the flush
/// mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Promises {
    newest: u64,
    /// Bit i stands for record `newest - 1 - i`.
    before: u64,
}

impl Promises {
    pub fn newest(&self) -> Sequence {
        Sequence(self.newest)
    }

    pub fn add(&mut self, sequence: Sequence) {
        if sequence.0 > self.newest {
            let by = sequence.0 - self.newest;
            let moved = u32::try_from(by).ok().and_then(|by| self.before.checked_shl(by));
            let last = if by <= 64 && self.newest > 0 { 1 << (by - 1) } else { 0 };
            *self = Self { newest: sequence.0, before: moved.unwrap_or(0) | last };
        } else if (1..=64).contains(&(self.newest - sequence.0)) {
            self.before |= 1 << (self.newest - sequence.0 - 1);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = Sequence> {
        let Self { newest, before } = *self;
        let older = (0..64u64).filter(move |bit| before >> bit & 1 != 0);
        let older = older.filter_map(move |bit| newest.checked_sub(bit + 1));
        (newest > 0).then_some(newest).into_iter().chain(older).map(Sequence)
    }
}

/// What a descriptor says about the record before it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Predecessor {
    /// Without births; a reinserted entry is marked in `reinserted` at the same index.
    pub entries: Vec<Entry>,
    pub reinserted: Vec<bool>,
}

/// A descriptor as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub header: Header,
    pub entries: Vec<Entry>,
    /// One for each data block, in the order of the entries.
    pub checksums: Vec<u32>,
    /// `None` for the first record of an epoch.
    pub predecessor: Option<Predecessor>,
    pub descriptor_bytes: usize,
}

/// The parts of a record that is to be written. Lives as long as the log, so that forming a record
/// allocates nothing.
#[derive(Default)]
pub struct Draft {
    pub entries: Vec<Entry>,
    pub checksums: Vec<u32>,
    entry_bytes: usize,
    previous: Vec<u64>,
    has_previous: bool,
}

impl Draft {
    pub fn clear(&mut self) {
        self.entries.clear();
        self.checksums.clear();
        self.entry_bytes = 0;
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds one block, joining it to the last entry where it continues it. `false`, and nothing is
    /// added, where the descriptor has no room.
    pub fn push(
        &mut self,
        block: CoreBlock,
        kind: EntryKind,
        birth: Option<Sequence>,
        class: ClassKey,
    ) -> bool {
        if let Some(last) = self.entries.last_mut()
            && last.first.0 + u64::from(last.count) == block.0
            && (last.kind, last.birth, last.class) == (kind, birth, class)
            && last.count < kind.blocks_max()
        {
            last.count += 1;
            return true;
        }
        self.push_entry(Entry { first: block, count: 1, kind, birth, class })
    }

    /// Adds a whole entry; `false` where the descriptor has no room.
    pub fn push_entry(&mut self, entry: Entry) -> bool {
        if self.entry_bytes + entry.encoded_bytes() > ENTRY_BYTES_MAX {
            return false;
        }
        self.entry_bytes += entry.encoded_bytes();
        self.entries.push(entry);
        true
    }

    /// Bytes of the descriptor with `data_blocks` checksums.
    pub fn encoded_bytes(&self, data_blocks: usize) -> usize {
        HEADER_BYTES + self.entry_bytes + 8 * self.previous.len() + 4 * data_blocks
    }

    /// Writes the descriptor to the start of `bytes`, which is cleared behind it.
    ///
    /// # Panics
    /// Where `bytes` is shorter than [`Draft::encoded_bytes`].
    pub fn encode(&self, header: &Header, bytes: &mut [u8]) {
        let len = self.encoded_bytes(self.checksums.len());
        assert!(len <= bytes.len() && len <= DESCRIPTOR_BYTES_MAX, "descriptor outgrows its place");
        let (head, body) = bytes.split_first_chunk_mut().expect("room for the header");
        encode_header(header, head);
        put_u32(head, 72, len as u32);
        put_u32(head, 76, self.checksums.len() as u32);
        put_u16(head, 80, self.entries.len() as u16);
        put_u16(head, 82, self.previous.len() as u16);
        let previous = if self.has_previous { HAS_PREVIOUS } else { 0 };
        let end = if header.is_behind_an_end { IS_BEHIND_AN_END } else { 0 };
        put_u16(head, 84, previous | end);
        let (body, behind) = body.split_at_mut(len - HEADER_BYTES);
        let (words, sums) = body.split_at_mut(body.len() - 4 * self.checksums.len());
        let mut words = words.as_chunks_mut().0.iter_mut();
        let mut word = |value: u64| *words.next().expect("room for it") = value.to_le_bytes();
        self.entries.iter().for_each(|entry| word(entry.pack()));
        self.entries.iter().filter_map(|entry| entry.birth).for_each(|birth| word(birth.0));
        self.previous.iter().for_each(|&packed| word(packed));
        assert!(words.next().is_none(), "entries take what they said");
        for (place, checksum) in sums.as_chunks_mut().0.iter_mut().zip(&self.checksums) {
            *place = checksum.to_le_bytes();
        }
        behind.fill(0);
        let checksum = crc32c(&bytes[12..len]);
        put_u32(bytes, 8, checksum);
    }

    /// Makes the entries just written the predecessor of the next record.
    pub fn advance(&mut self) {
        self.previous.clear();
        self.previous.extend(self.entries.iter().map(Entry::pack));
        self.has_previous = true;
        self.clear();
    }
}

fn encode_header(header: &Header, bytes: &mut [u8; HEADER_BYTES]) {
    put_u64(bytes, 0, MAGIC);
    put_u16(bytes, 12, VERSION);
    put_u16(bytes, 14, header.slice);
    put_uuid(bytes, 16, header.cache);
    put_u64(bytes, 32, header.epoch.0);
    put_u64(bytes, 40, header.sequence.0);
    put_u64(bytes, 48, header.tail.0);
    put_u64(bytes, 56, header.flush_mark.0);
    put_u64(bytes, 64, header.position.0);
    bytes[86..88].fill(0);
    put_u64(bytes, 88, header.promises.newest);
    put_u64(bytes, 96, header.promises.before);
    put_u64(bytes, 104, encode_place(header.order));
}

/// Reads the descriptor at the start of `bytes`.
///
/// # Errors
/// Where there is none, or it is damaged, newer than this program, or was written for another
/// cache, slice or position.
pub fn decode(
    bytes: &[u8],
    cache: Uuid,
    slice: u16,
    position: Position,
) -> Result<Record, FormatError> {
    let len = check(bytes)?;
    let header = decode_header(bytes);
    if header.cache != cache || header.slice != slice {
        return Err(FormatError::Elsewhere { what: WHAT, detail: "another cache or slice" });
    }
    if header.position != position {
        return Err(FormatError::Elsewhere { what: WHAT, detail: "another place in the log" });
    }
    decode_body(&bytes[..len], header)
}

/// Checks magic, lengths, checksum and version; answers the length of the descriptor.
fn check(bytes: &[u8]) -> Result<usize, FormatError> {
    let malformed = |detail| FormatError::Malformed { what: WHAT, detail };
    if bytes.len() < HEADER_BYTES {
        return Err(malformed("shorter than a header"));
    }
    let magic = get_u64(bytes, 0);
    if magic != MAGIC {
        return Err(FormatError::Magic { what: WHAT, found: magic });
    }
    let len = get_u32(bytes, 72) as usize;
    if !(HEADER_BYTES..=DESCRIPTOR_BYTES_MAX.min(bytes.len())).contains(&len) {
        return Err(malformed("length out of range"));
    }
    let (expected, found) = (get_u32(bytes, 8), crc32c(&bytes[12..len]));
    if expected != found {
        return Err(FormatError::Checksum { what: WHAT, expected, found });
    }
    let version = get_u16(bytes, 12);
    if version > VERSION {
        let (found, known) = (u32::from(version), u32::from(VERSION));
        return Err(FormatError::Version { what: WHAT, found, known });
    }
    Ok(len)
}

fn decode_header(bytes: &[u8]) -> Header {
    Header {
        cache: get_uuid(bytes, 16),
        slice: get_u16(bytes, 14),
        epoch: Epoch(get_u64(bytes, 32)),
        sequence: Sequence(get_u64(bytes, 40)),
        tail: Sequence(get_u64(bytes, 48)),
        flush_mark: Sequence(get_u64(bytes, 56)),
        position: Position(get_u64(bytes, 64)),
        promises: Promises { newest: get_u64(bytes, 88), before: get_u64(bytes, 96) },
        is_behind_an_end: get_u16(bytes, 84) & IS_BEHIND_AN_END != 0,
        order: decode_place(get_u64(bytes, 104)),
    }
}

fn decode_body(bytes: &[u8], header: Header) -> Result<Record, FormatError> {
    let malformed = |detail| FormatError::Malformed { what: WHAT, detail };
    let data_blocks = get_u32(bytes, 76) as usize;
    let (entry_count, previous_count) = (get_u16(bytes, 80), get_u16(bytes, 82));
    let mut words = bytes[HEADER_BYTES..].chunks_exact(8).map(|word| get_u64(word, 0));
    let mut next = || words.next().ok_or_else(|| malformed("lists longer than the descriptor"));
    let mut entries = Vec::with_capacity(usize::from(entry_count));
    for _ in 0..entry_count {
        entries.push(Entry::unpack(next()?).ok_or_else(|| malformed("unknown entry kind"))?);
    }
    for (entry, has_birth) in &mut entries {
        if *has_birth {
            entry.birth = Some(Sequence(next()?));
        }
    }
    let mut predecessor = Predecessor::default();
    for _ in 0..previous_count {
        let (entry, reinserted) =
            Entry::unpack(next()?).ok_or_else(|| malformed("unknown entry kind"))?;
        predecessor.entries.push(entry);
        predecessor.reinserted.push(reinserted);
    }
    let entries: Vec<Entry> = entries.into_iter().map(|(entry, _)| entry).collect();
    let with_data = entries.iter().filter(|entry| entry.kind.carries_data());
    let blocks: u64 = with_data.map(|entry| u64::from(entry.count)).sum();
    if blocks != data_blocks as u64 || data_blocks > DATA_BLOCKS_MAX {
        return Err(malformed("entries and data blocks disagree"));
    }
    let births = entries.iter().filter(|entry| entry.birth.is_some()).count();
    let at = HEADER_BYTES + 8 * (entries.len() + births + usize::from(previous_count));
    if at + 4 * data_blocks != bytes.len() {
        return Err(malformed("length and lists disagree"));
    }
    let checksums = bytes[at..].chunks_exact(4).map(|crc| get_u32(crc, 0)).collect();
    let predecessor = (get_u16(bytes, 84) & HAS_PREVIOUS != 0).then_some(predecessor);
    Ok(Record { header, entries, checksums, predecessor, descriptor_bytes: bytes.len() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(sequence: u64) -> Header {
        Header {
            cache: Uuid::from_u128(7),
            slice: 3,
            epoch: Epoch(2),
            sequence: Sequence(sequence),
            tail: Sequence(1),
            flush_mark: Sequence(sequence - 1),
            position: Position(99),
            promises: Promises { newest: sequence / 2, before: 5 },
            is_behind_an_end: sequence.is_multiple_of(2),
            order: sequence.checked_sub(9).map(Position),
        }
    }

    fn decode_here(bytes: &[u8]) -> Result<Record, FormatError> {
        decode(bytes, Uuid::from_u128(7), 3, Position(99))
    }

    #[test]
    fn neighbours_share_an_entry() {
        let mut draft = Draft::default();
        for block in [5, 6, 7, 9] {
            assert!(draft.push(CoreBlock(block), EntryKind::Dirty, None, ClassKey::UNKNOWN));
        }
        assert_eq!(draft.entries.len(), 2);
        assert_eq!(draft.entries[0].count, 3);
    }

    #[test]
    fn parts_say_which_sectors_and_share_no_entry() {
        let part = |bits| EntryKind::Part(Sectors::new(bits).unwrap());
        let (mut draft, mut bytes) = (Draft::default(), [0; 4096]);
        for (block, bits) in [(5, 1), (6, 1), (7, 0x80), (8, 0xfe)] {
            assert!(draft.push(CoreBlock(block), part(bits), None, ClassKey(3)));
            draft.checksums.push(1);
        }
        draft.encode(&header(8), &mut bytes);
        let record = decode_here(&bytes).unwrap();
        assert_eq!(record.entries, draft.entries);
        assert_eq!(record.entries.len(), 4);
        draft.advance();
        draft.encode(&header(9), &mut bytes);
        let predecessor = decode_here(&bytes).unwrap().predecessor.unwrap();
        assert_eq!(predecessor.entries, record.entries);
    }

    #[test]
    fn a_part_of_nothing_or_of_all_is_refused() {
        let word = |bits: u64| 5 | PART << BLOCK_BITS | bits << COUNT_SHIFT;
        assert!(Entry::unpack(word(1)).is_some() && Entry::unpack(word(254)).is_some());
        for bits in [0, 255, 256, 1023] {
            assert!(Entry::unpack(word(bits)).is_none(), "{bits}");
        }
    }

    #[test]
    fn descriptor_names_the_blocks_of_its_predecessor() {
        let mut draft = Draft::default();
        let mut bytes = [0; 4096];
        draft.push(CoreBlock(5), EntryKind::Dirty, Some(Sequence(1)), ClassKey::UNKNOWN);
        draft.checksums.push(1);
        draft.encode(&header(8), &mut bytes);
        assert_eq!(decode_here(&bytes).unwrap().predecessor, None);
        draft.advance();
        draft.encode(&header(9), &mut bytes);
        let predecessor = decode_here(&bytes).unwrap().predecessor.unwrap();
        assert_eq!(predecessor.entries[0].first, CoreBlock(5));
        assert!(predecessor.reinserted[0]);
    }

    #[test]
    fn record_of_another_place_is_refused() {
        let mut bytes = [0; 4096];
        Draft::default().encode(&header(8), &mut bytes);
        let elsewhere = decode(&bytes, Uuid::from_u128(7), 3, Position(98));
        assert!(matches!(elsewhere, Err(FormatError::Elsewhere { .. })));
    }

    #[test]
    fn fullest_descriptor_fits_its_block() {
        let mut draft = Draft::default();
        let mut bytes = [0; 4096];
        for _ in 0..2 {
            let mut block = 0;
            while draft.push(CoreBlock(block), EntryKind::Dirty, None, ClassKey::UNKNOWN) {
                block += 2;
            }
            draft.checksums.resize(DATA_BLOCKS_MAX, 0);
            draft.encode(&header(8), &mut bytes);
            draft.advance();
        }
    }

    #[test]
    fn promises_reach_back_sixty_four_records() {
        let mut promises = Promises::default();
        for sequence in [10, 12, 11, 73, 5] {
            promises.add(Sequence(sequence));
        }
        let kept: Vec<u64> = promises.iter().map(|sequence| sequence.0).collect();
        assert_eq!(kept, [73, 12, 11, 10]);
        promises.add(Sequence(1000));
        assert_eq!(promises.iter().count(), 1);
    }

    proptest! {
        #[test]
        fn any_flipped_bit_is_noticed(
            blocks in prop::collection::vec((0u64..1 << 40, any::<u32>()), 1..40), bit in 0usize..4096,
        ) {
            let mut draft = Draft::default();
            for (block, crc) in blocks {
                prop_assert!(draft.push(CoreBlock(block), EntryKind::Dirty, None, ClassKey::UNKNOWN));
                draft.checksums.push(crc);
            }
            let mut bytes = [0; 4096];
            draft.encode(&header(4), &mut bytes);
            let record = decode_here(&bytes).unwrap();
            prop_assert_eq!(&record.entries, &draft.entries);
            prop_assert_eq!(&record.checksums, &draft.checksums);
            let len = record.descriptor_bytes * 8;
            bytes[bit % len / 8] ^= 1 << (bit % 8);
            prop_assert!(decode_here(&bytes).is_err());
        }

        #[test]
        fn garbage_is_an_error(mut bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(decode_here(&bytes).is_err());
            if bytes.len() >= 128 {
                put_u64(&mut bytes, 0, MAGIC);
                let len = bytes.len() as u32;
                put_u32(&mut bytes, 72, len);
                let crc = crc32c(&bytes[12..]);
                put_u32(&mut bytes, 8, crc);
                let _ = decode_here(&bytes);
            }
        }
    }
}
