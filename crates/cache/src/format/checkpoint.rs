//! The persisted line map of a slice, or as much of it as an unclean open needs.
//!
//! A table with the first sequence of every segment, then the mapped blocks as *runs*, in the order
//! of the log: blocks that are contiguous there and on the core, with a checksum each. The lost
//! blocks, which have no position, follow, and the ends of flush epochs are last. The checksum of
//! the whole is in the slice header.
//!
//! **Invariants**
//! - It is read and written in pieces: a checkpoint may be larger than the available memory.

use super::FormatError;
use super::bytes::{get_u32, get_u64, put_u32, put_u64};
use crate::eviction::{ClassKey, Heat};
use crate::types::{CoreBlock, Position, Sectors, Sequence};

/// Bytes of a run without its checksums.
pub const RUN_BYTES: usize = 12;
/// Most blocks of one run.
pub const RUN_BLOCKS_MAX: u32 = 1024;
/// Most damaged blocks that a slice remembers.
pub const LOST_BLOCKS_MAX: u64 = 4096;
/// A run of one block: no block takes more.
const BLOCK_BYTES_MAX: u64 = RUN_BYTES as u64 + 4;

/// Longest checkpoint of a slice with so many segments and blocks, in bytes.
pub const fn bytes_max(segments: u64, blocks: u64) -> u64 {
    // Lost blocks have no place of their own; they may come on top of a full map.
    (segments * 8 + (blocks + LOST_BLOCKS_MAX) * BLOCK_BYTES_MAX).next_multiple_of(4096)
}

const _: () = assert!(RUN_BLOCKS_MAX == 1 << (CLASS_SHIFT - COUNT_SHIFT), "a count fits its bits");

const WHAT: &str = "checkpoint";
const BLOCK_BITS: u32 = 40;
const HEAT_SHIFT: u32 = 43;
const KIND_MASK: u64 = 7;
/// Behind the mark.
const GIVEN_SHIFT: u32 = 47;
const COUNT_SHIFT: u32 = 48;
const CLASS_SHIFT: u32 = 58;

/// What a checkpointed block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointKind {
    Clean,
    Dirty,
    /// Dirty, and its parity is not to be trusted since an unclean stop.
    DirtyReplayed,
    /// Promised data that is damaged.
    Lost,
    /// Sectors of one block that the core does not have; of the others the core has the truth.
    Part(Sectors),
    /// No blocks, but places where an epoch of flushes ended, in the place of checksums.
    Ends,
    /// Superseded, and for the core all the same, before what has superseded it.
    Kept,
}

/// The kind whose count is 1, and has the sectors in its place.
const PART: u64 = 5;
const ENDS: u64 = 6;
const KEPT: u64 = 7;

impl CheckpointKind {
    fn may_be_given(self) -> bool {
        matches!(self, Self::Clean | Self::Dirty | Self::DirtyReplayed)
    }

    /// What of a block there is, where that is not all.
    pub fn sectors(self) -> Option<Sectors> {
        match self {
            Self::Part(sectors) => Some(sectors),
            _ => None,
        }
    }
}

/// Blocks in a row, of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointRun {
    pub first: CoreBlock,
    /// 1 ... [`RUN_BLOCKS_MAX`].
    pub count: u32,
    pub kind: CheckpointKind,
    /// Where the first block starts in the log; meaningless where it is lost.
    pub position: Position,
    pub class: ClassKey,
    /// That of the lines of the blocks, where they are resident.
    pub heat: Heat,
    /// All of it came from clients, nothing was read from the core.
    pub is_given: bool,
}

impl CheckpointRun {
    /// For so many ends of epochs.
    pub fn ends(count: usize) -> Self {
        let (first, count) = (CoreBlock(0), count as u32);
        let (kind, position) = (CheckpointKind::Ends, Position(0));
        let (class, heat) = (ClassKey::UNKNOWN, Heat::NONE);
        Self { first, count, kind, position, class, heat, is_given: false }
    }

    /// How many checksums follow, or places of ends.
    pub fn checksums(&self) -> usize {
        if self.kind == CheckpointKind::Lost { 0 } else { self.count as usize }
    }

    /// Appends the run with its checksums.
    ///
    /// # Panics
    /// Where there is not one for each block, or the run is too long.
    pub fn encode(&self, checksums: &[u32], bytes: &mut Vec<u8>) {
        assert_eq!(checksums.len(), self.checksums());
        assert!((1..=RUN_BLOCKS_MAX).contains(&self.count) && self.first.0 >> BLOCK_BITS == 0);
        let kind: u64 = match self.kind {
            CheckpointKind::Clean => 1,
            CheckpointKind::Dirty => 2,
            CheckpointKind::DirtyReplayed => 3,
            CheckpointKind::Lost => 4,
            CheckpointKind::Part(_) => PART,
            CheckpointKind::Ends => ENDS,
            CheckpointKind::Kept => KEPT,
        };
        let sectors = self.kind.sectors();
        assert!(sectors.is_none() || self.count == 1, "part of one block");
        let count = sectors.map_or(u64::from(self.count - 1), |sectors| sectors.bits().into());
        let mut head = [0; RUN_BYTES];
        let count = count << COUNT_SHIFT;
        let heat = u64::from(self.heat.bits()) << HEAT_SHIFT;
        let class = u64::from(self.class.0) << CLASS_SHIFT;
        let given = u64::from(self.is_given) << GIVEN_SHIFT;
        put_u64(&mut head, 0, self.first.0 | kind << BLOCK_BITS | heat | given | count | class);
        put_u32(&mut head, 8, u32::try_from(self.position.0).expect("32-bit positions"));
        bytes.extend_from_slice(&head);
        checksums.iter().for_each(|checksum| bytes.extend_from_slice(&checksum.to_le_bytes()));
    }

    fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let malformed = |detail| FormatError::Malformed { what: WHAT, detail };
        let word = get_u64(bytes, 0);
        let count = (word >> COUNT_SHIFT & ((1 << (CLASS_SHIFT - COUNT_SHIFT)) - 1)) as u32;
        let kind = match word >> BLOCK_BITS & KIND_MASK {
            1 => CheckpointKind::Clean,
            2 => CheckpointKind::Dirty,
            3 => CheckpointKind::DirtyReplayed,
            4 => CheckpointKind::Lost,
            PART => {
                let sectors = u8::try_from(count).ok().and_then(Sectors::new);
                CheckpointKind::Part(sectors.ok_or_else(|| malformed("no part of a block"))?)
            }
            ENDS => CheckpointKind::Ends,
            KEPT => CheckpointKind::Kept,
            _ => return Err(malformed("unknown kind of block")),
        };
        let first = CoreBlock(word & ((1 << BLOCK_BITS) - 1));
        let count = if kind.sectors().is_some() { 1 } else { count + 1 };
        let class = ClassKey((word >> CLASS_SHIFT) as u8);
        let heat = Heat::from_bits((word >> HEAT_SHIFT) as u8);
        if !class.is_possible() || !heat.is_resident() && heat != Heat::NONE {
            return Err(malformed("no such class, or no such mark"));
        }
        let position = Position(u64::from(get_u32(bytes, 8)));
        let is_given = word >> GIVEN_SHIFT & 1 == 1;
        if is_given && !kind.may_be_given() {
            return Err(malformed("no whole blocks, and yet given"));
        }
        Ok(Self { first, count, kind, position, class, heat, is_given })
    }
}

/// The table at the start of a checkpoint.
pub fn encode_table(segments: &[Sequence]) -> Vec<u8> {
    segments.iter().flat_map(|first| first.0.to_le_bytes()).collect()
}

/// Takes a checkpoint to pieces that comes in pieces.
pub struct Decoder {
    segments: usize,
    table: Vec<Sequence>,
    /// What of the last piece was no whole run.
    rest: Vec<u8>,
    checksums: Vec<u32>,
}

impl Decoder {
    /// For a slice with so many segments.
    pub fn new(segments: usize) -> Self {
        Self { segments, table: Vec::new(), rest: Vec::new(), checksums: Vec::new() }
    }

    /// Takes the next bytes, and visits every run that they complete with its checksums.
    ///
    /// # Errors
    /// Where a run makes no sense, or the visitor says so.
    pub fn feed(
        &mut self,
        bytes: &[u8],
        mut visit: impl FnMut(&[Sequence], &CheckpointRun, &[u32]) -> Result<(), FormatError>,
    ) -> Result<(), FormatError> {
        self.rest.extend_from_slice(bytes);
        let mut rest = std::mem::take(&mut self.rest);
        let mut at = 0;
        while self.table.len() < self.segments && rest.len() - at >= 8 {
            self.table.push(Sequence(get_u64(&rest, at)));
            at += 8;
        }
        while self.table.len() == self.segments && rest.len() - at >= RUN_BYTES {
            let run = CheckpointRun::decode(&rest[at..])?;
            let end = at + RUN_BYTES + 4 * run.checksums();
            let Some(checksums) = rest.get(at + RUN_BYTES..end) else { break };
            self.checksums.clear();
            let checksum = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
            self.checksums.extend(checksums.chunks_exact(4).map(checksum));
            visit(&self.table, &run, &self.checksums)?;
            at = end;
        }
        // Its memory stays: fresh pages for every piece cost more than what is done with them.
        rest.drain(..at);
        self.rest = rest;
        Ok(())
    }

    /// The table, when everything has been fed.
    ///
    /// # Errors
    /// Where something is left over or missing.
    pub fn finish(self) -> Result<Vec<Sequence>, FormatError> {
        match self.table.len() == self.segments && self.rest.is_empty() {
            true => Ok(self.table),
            false => Err(FormatError::Malformed { what: WHAT, detail: "impossible length" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PARTS: CheckpointKind = CheckpointKind::Part(Sectors::new(0x81).unwrap());

    fn run(first: u64, count: u32, kind: CheckpointKind) -> CheckpointRun {
        let (first, position) = (CoreBlock(first), Position(77));
        let (class, heat) = (ClassKey((first.0 % 34) as u8), Heat::MAIN.warmer());
        let is_given = kind.may_be_given() && first.0.is_multiple_of(2);
        CheckpointRun { first, count, kind, position, class, heat, is_given }
    }

    #[allow(clippy::type_complexity)]
    fn decode(
        bytes: &[u8],
        segments: usize,
        piece: usize,
    ) -> Result<(Vec<Sequence>, Vec<(CheckpointRun, Vec<u32>)>), FormatError> {
        let (mut decoder, mut found) = (Decoder::new(segments), Vec::new());
        for piece in bytes.chunks(piece) {
            decoder.feed(piece, |_, run, checksums| {
                found.push((*run, checksums.to_vec()));
                Ok(())
            })?;
        }
        Ok((decoder.finish()?, found))
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded_however_it_is_cut(
            counts in prop::collection::vec((1..=RUN_BLOCKS_MAX, 0u8..7), 0..6), piece in 1usize..9000,
        ) {
            let kinds = [CheckpointKind::Clean, CheckpointKind::Dirty,
                CheckpointKind::DirtyReplayed, CheckpointKind::Lost, PARTS,
                CheckpointKind::Ends, CheckpointKind::Kept];
            let segments = vec![Sequence(3), Sequence(9)];
            let mut bytes = encode_table(&segments);
            let mut written = Vec::new();
            for (index, &(count, kind)) in counts.iter().enumerate() {
                let count = if kind == 4 { 1 } else { count };
                let run = run((1 << 40) - 1 - index as u64, count, kinds[usize::from(kind)]);
                let checksums: Vec<u32> = (0..run.checksums() as u32).map(|it| it * 7).collect();
                run.encode(&checksums, &mut bytes);
                written.push((run, checksums));
            }
            prop_assert_eq!(decode(&bytes, 2, piece).unwrap(), (segments, written));
            prop_assert!(decode(&bytes[..bytes.len() - 1], 2, piece).is_err());
        }
    }

    #[test]
    fn a_part_of_nothing_or_of_all_is_refused() {
        let mut bytes = Vec::new();
        run(5, 1, PARTS).encode(&[7], &mut bytes);
        assert!(decode(&bytes, 0, 4096).is_ok());
        for bits in [0, 0xff] {
            bytes[6] = bits;
            assert!(decode(&bytes, 0, 4096).is_err());
        }
    }

    #[test]
    fn a_run_of_no_class_or_mark_or_kind_is_refused() {
        let mut bytes = Vec::new();
        run(5, 1, CheckpointKind::Lost).encode(&[], &mut bytes);
        assert!(decode(&bytes, 0, 4096).is_ok());
        for (at, value) in [(5, 0), (5, 8), (5, 0x84), (7, 0xff)] {
            let mut bad = bytes.clone();
            bad[at] = value;
            assert!(decode(&bad, 0, 4096).is_err());
        }
    }
}
