//! Reads a recording block by block.

use super::decode::{BlockDecoder, BlockError, BlockKind};
use super::{
    BLOCK_HEADER_BYTES, BLOCK_MAGIC, FORMAT, HEADER_BYTES, MAGIC, PAYLOAD_BYTES_MAX, VERSION,
    crc32c,
};
use crate::damage::{Damage, DamageCounts, DamageKind};
use crate::error::{Position, TraceError, preview};
use crate::event::BATCH;
use crate::format::Lacks;
use crate::names::Names;
use crate::record::TraceRecord;
use crate::record_source::RecordSource;
use crate::source::ByteSource;
use crate::tally::Tally;

/// A recording, read as requests. One block is in memory at a time.
pub(crate) struct RecordingStream {
    source: ByteSource,
    damage: Damage,
    names: Names,
    tally: Tally,
    lacks: Lacks,
    decoder: BlockDecoder,
    block: Vec<TraceRecord>,
    next: usize,
    ended: bool,
}

impl RecordingStream {
    /// Checks the file's header.
    pub(crate) fn new(mut source: ByteSource, damage: Damage) -> Result<Self, TraceError> {
        let lacks = check_header(&mut source)?;
        let decoder = BlockDecoder::new().map_err(|failed| TraceError::Read {
            name: source.name().to_owned(),
            at: Position::Byte(0),
            source: failed,
        })?;
        source.consume(HEADER_BYTES);
        Ok(Self {
            source,
            damage,
            names: Names::default(),
            tally: Tally::default(),
            lacks,
            decoder,
            block: Vec::new(),
            next: 0,
            ended: false,
        })
    }

    /// Reads blocks until one brings records or the recording ends.
    fn take_block_with_records(&mut self) -> Result<(), TraceError> {
        self.block.clear();
        self.next = 0;
        while self.block.is_empty() && !self.ended {
            let bytes = self.source.require(BLOCK_HEADER_BYTES + PAYLOAD_BYTES_MAX)?;
            if bytes.is_empty() {
                self.ended = true;
                return self.unfinished();
            }
            match self.decoder.decode(bytes, &mut self.block, &mut self.names) {
                Ok((kind, length)) => {
                    self.take_block(kind)?;
                    self.source.consume(length);
                    if matches!(kind, BlockKind::End { .. }) {
                        self.check_nothing_follows()?;
                    }
                }
                Err(error) => self.fail_or_skip(error)?,
            }
        }
        Ok(())
    }

    fn take_block(&mut self, kind: BlockKind) -> Result<(), TraceError> {
        self.tally.events += self.block.len() as u64;
        if let BlockKind::End { records } = kind {
            self.ended = true;
            if records != self.tally.events && self.damage == Damage::Fail {
                let found = format!("{} records before it", self.tally.events);
                return Err(self.damaged("the end of as many records as it counts", found));
            }
        }
        Ok(())
    }

    fn check_nothing_follows(&mut self) -> Result<(), TraceError> {
        let rest = self.source.require(1)?;
        if rest.is_empty() || self.damage == Damage::Skip {
            return Ok(());
        }
        let found = preview(&rest[..rest.len().min(8)]);
        Err(self.damaged("no data after the end block", found))
    }

    fn unfinished(&mut self) -> Result<(), TraceError> {
        if self.damage == Damage::Skip {
            self.note(DamageKind::Unfinished, self.at(), 0);
            return Ok(());
        }
        Err(TraceError::Unfinished {
            name: self.source.name().to_owned(),
            at: self.at(),
            records: self.tally.events,
        })
    }

    fn fail_or_skip(&mut self, error: BlockError) -> Result<(), TraceError> {
        if self.damage == Damage::Fail {
            return Err(match error {
                BlockError::Short { needed_bytes } => TraceError::Truncated {
                    name: self.source.name().to_owned(),
                    format: FORMAT,
                    part: "the block",
                    at: self.at(),
                    needed_bytes: needed_bytes as u64,
                    available_bytes: self.source.buffered().len() as u64,
                },
                other => self.damaged("a valid block", other.to_string()),
            });
        }
        self.skip_to_next_block(kind_of(error))
    }

    fn skip_to_next_block(&mut self, kind: DamageKind) -> Result<(), TraceError> {
        let at = self.at();
        let mut skipped = 1;
        self.source.consume(1);
        loop {
            let bytes = self.source.require(BLOCK_MAGIC.len())?;
            let found = memchr::memmem::find(bytes, BLOCK_MAGIC);
            let at_end = bytes.len() < BLOCK_MAGIC.len();
            let passed = match found {
                Some(at) => at,
                None if at_end => bytes.len(),
                None => bytes.len() + 1 - BLOCK_MAGIC.len(),
            };
            skipped += passed;
            self.source.consume(passed);
            if found.is_some() || at_end {
                break;
            }
        }
        self.note(kind, at, skipped as u64);
        Ok(())
    }

    fn note(&mut self, kind: DamageKind, at: Position, skipped_bytes: u64) {
        let mut damage = DamageCounts::default();
        damage.note(kind, at, skipped_bytes);
        self.tally.note_damage(damage);
    }

    fn at(&self) -> Position {
        Position::Byte(self.source.offset())
    }

    fn damaged(&self, expected: &'static str, found: String) -> TraceError {
        let name = self.source.name().to_owned();
        TraceError::Damaged { name, format: FORMAT, at: self.at(), expected, found }
    }
}

fn kind_of(error: BlockError) -> DamageKind {
    match error {
        BlockError::Checksum { .. } => DamageKind::Checksum,
        BlockError::Short { .. } => DamageKind::Truncated,
        BlockError::Magic => DamageKind::Foreign,
        BlockError::Oversized
        | BlockError::Kind(_)
        | BlockError::Packing { .. }
        | BlockError::Content => DamageKind::Unreadable,
    }
}

/// What the recording lacks.
fn check_header(source: &mut ByteSource) -> Result<Lacks, TraceError> {
    let name = source.name().to_owned();
    let at = Position::Byte(0);
    let bytes = source.require(HEADER_BYTES)?;
    let available_bytes = bytes.len() as u64;
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
        return Err(TraceError::Truncated {
            name,
            format: FORMAT,
            part: "the header",
            at,
            needed_bytes: HEADER_BYTES as u64,
            available_bytes,
        });
    };
    let crc = u32::from_le_bytes([header[28], header[29], header[30], header[31]]);
    if &header[..8] != MAGIC || crc != crc32c(&[&header[..28]]) {
        let (expected, found) = ("a header with a valid checksum", preview(header));
        return Err(TraceError::Damaged { name, format: FORMAT, at, expected, found });
    }
    let version = u16::from_le_bytes([header[8], header[9]]);
    let features = u16::from_le_bytes([header[10], header[11]]);
    let lacks = u32::from_le_bytes([header[12], header[13], header[14], header[15]]);
    let lacks = Lacks::from_bits(lacks).filter(|_| version == VERSION && features == 0);
    let Some(lacks) = lacks else {
        let found = u32::from(version) | (u32::from(features) << 16);
        return Err(TraceError::UnsupportedVersion {
            name,
            format: FORMAT,
            at,
            found,
            supported: "2, without features",
        });
    };
    Ok(lacks)
}

impl RecordSource for RecordingStream {
    fn fill(&mut self, batch: &mut Vec<TraceRecord>) -> Result<bool, TraceError> {
        if self.next == self.block.len() {
            self.take_block_with_records()?;
        }
        let left = &self.block[self.next..];
        let taken = &left[..left.len().min(BATCH - batch.len())];
        batch.extend_from_slice(taken);
        self.next += taken.len();
        Ok(!taken.is_empty())
    }

    fn names(&self) -> &Names {
        &self.names
    }

    fn tally(&self) -> Tally {
        self.tally
    }

    fn lacks(&self) -> Lacks {
        self.lacks
    }
}
