//! The book of a region, and what belongs to it, as bytes of a file; and the entries of the log
//! that goes on from there.
//!
//! **Invariants**: blocks of which nothing is known take no room. A snapshot that is not whole is
//! refused, never read in part.

use super::book::{Block, Book, OUTSTANDING_MAX, Outstanding};
use super::codec::{CodecError, Reader, put_number};
use super::event::Event;
use super::wire::Region;
use serde::{Deserialize, Serialize};

/// What a witness knows of a device beside its book.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    pub seed: u64,
    pub region: Region,
    pub device_bytes: u64,
    /// What the kernel called the run of the machine that wrote last.
    pub boot: Option<String>,
    /// Sessions that ended without a word.
    pub cuts: u64,
    /// Since the last one that did, nobody has looked.
    pub is_cut: bool,
    /// The last one was ended by a hook of ours.
    pub was_hooked: bool,
    /// A writer has begun and has not ended.
    pub is_writing: bool,
}

/// One entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    Opened {
        boot: Option<String>,
    },
    Events {
        at_ms: u64,
        events: Vec<Event>,
    },
    /// The power is about to be cut.
    Hooked,
    Cut {
        at_ms: u64,
    },
}

const HEADER_BYTES_MAX: u64 = 4096;

pub fn encode(header: &Header, book: &Book) -> Vec<u8> {
    let mut bytes = Vec::new();
    let text = serde_json::to_vec(header).expect("a header is a text");
    put_number(&mut bytes, text.len() as u64);
    bytes.extend(text);
    for number in [book.epoch, u64::from(book.is_flushing), book.newest, book.writes, book.flushes]
    {
        put_number(&mut bytes, number);
    }
    put_number(&mut bytes, book.outstanding.len() as u64);
    for (sequence, write) in &book.outstanding {
        for number in [*sequence, write.block, write.blocks, u64::from(write.has_begun)] {
            put_number(&mut bytes, number);
        }
    }
    let known = book.blocks.iter().enumerate().filter(|(_, block)| **block != Block::default());
    put_number(&mut bytes, known.clone().count() as u64);
    for (at, block) in known {
        put_number(&mut bytes, at as u64);
        put_block(&mut bytes, block);
    }
    let sum = crc_fast::crc32_iscsi(&bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

/// # Errors
/// Where the bytes are no whole snapshot.
pub fn decode(bytes: &[u8]) -> Result<(Header, Book), CodecError> {
    let (bytes, sum) = bytes.split_last_chunk().ok_or(CodecError::Truncated)?;
    if crc_fast::crc32_iscsi(bytes) != u32::from_le_bytes(*sum) {
        return Err(CodecError::Checksum);
    }
    let mut reader = Reader::new(bytes);
    let len = reader.number_max("bytes of a header", HEADER_BYTES_MAX)?;
    let text = reader.bytes(len as usize)?;
    let header: Header = serde_json::from_slice(text).map_err(|_| CodecError::Text)?;
    header.region.check()?;
    let mut book = Book::new(header.region.blocks);
    book.epoch = reader.number()?;
    book.is_flushing = reader.number_max("flag", 1)? == 1;
    (book.newest, book.writes, book.flushes) =
        (reader.number()?, reader.number()?, reader.number()?);
    for _ in 0..reader.number_max("writes", OUTSTANDING_MAX as u64)? {
        let (sequence, block) = (reader.number()?, reader.number_max("block", book.block_count())?);
        let blocks = reader.number_max("blocks", book.block_count() - block)?;
        let has_begun = reader.number_max("flag", 1)? == 1;
        book.outstanding.insert(sequence, Outstanding { block, blocks, has_begun });
    }
    for _ in 0..reader.number_max("blocks", book.block_count())? {
        let at = reader.number_max("block", book.block_count() - 1)?;
        book.blocks[at as usize] = take_block(&mut reader)?;
        let block = book.block(at);
        if block.acknowledged > block.promised {
            book.unpromised.insert(at);
        }
    }
    reader.end()?;
    Ok((header, book))
}

impl Entry {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Self::Opened { boot } => {
                bytes.push(1);
                serde_json::to_writer(&mut bytes, boot).expect("writing to memory succeeds");
            }
            Self::Events { at_ms, events } => {
                bytes.push(2);
                put_number(&mut bytes, *at_ms);
                events.iter().for_each(|event| event.put(&mut bytes));
            }
            Self::Hooked => bytes.push(3),
            Self::Cut { at_ms } => {
                bytes.push(4);
                put_number(&mut bytes, *at_ms);
            }
        }
        bytes
    }

    /// # Errors
    /// Where the bytes are no entry.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut reader = Reader::new(bytes);
        Ok(match reader.byte()? {
            1 => {
                let boot = serde_json::from_slice(reader.rest()).map_err(|_| CodecError::Text)?;
                Self::Opened { boot }
            }
            2 => {
                let at_ms = reader.number()?;
                let mut events = Vec::new();
                while !reader.is_at_end() {
                    events.push(Event::take(&mut reader)?);
                }
                Self::Events { at_ms, events }
            }
            3 => Self::Hooked,
            4 => Self::Cut { at_ms: reader.number()? },
            found => return Err(CodecError::Tag { what: "entry", found }),
        })
    }
}

fn put_block(bytes: &mut Vec<u8>, block: &Block) {
    let flags = [block.is_busy, block.is_known, block.is_spoilt];
    let flags = flags.iter().rev().fold(0, |flags, flag| flags << 1 | u64::from(*flag));
    let Block { promised, promised_at, acknowledged, possible, before_flush, epoch, .. } = *block;
    for number in [promised, promised_at, acknowledged, possible, before_flush, epoch, flags] {
        put_number(bytes, number);
    }
}

fn take_block(reader: &mut Reader<'_>) -> Result<Block, CodecError> {
    let mut block = Block {
        promised: reader.number()?,
        promised_at: reader.number()?,
        acknowledged: reader.number()?,
        possible: reader.number()?,
        before_flush: reader.number()?,
        epoch: reader.number()?,
        ..Block::default()
    };
    let flags = reader.number_max("flags", 7)?;
    block.is_busy = flags & 1 != 0;
    (block.is_known, block.is_spoilt) = (flags & 2 != 0, flags & 4 != 0);
    Ok(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            seed: 7,
            region: Region { start_bytes: 4096, blocks: 100, atom_bytes: 512 },
            device_bytes: 1 << 20,
            boot: Some("b".into()),
            cuts: 3,
            is_cut: true,
            was_hooked: false,
            is_writing: true,
        }
    }

    fn book() -> Book {
        let mut book = Book::new(100);
        for sequence in 1..=20 {
            let announced = Event::Announced { sequence, block: sequence % 7 * 3, blocks: 3 };
            book.apply(announced).unwrap();
            if sequence < 18 {
                book.apply(Event::Begun { sequence }).unwrap();
                book.apply(Event::Acknowledged { sequence }).unwrap();
            }
            if sequence == 9 {
                book.apply(Event::FlushBegun).unwrap();
                book.apply(Event::FlushAcknowledged).unwrap();
            }
        }
        book.apply(Event::Begun { sequence: 19 }).unwrap();
        book.apply(Event::FlushBegun).unwrap();
        book
    }

    #[test]
    fn a_book_in_the_middle_of_its_work_survives() {
        let bytes = encode(&header(), &book());
        assert_eq!(decode(&bytes), Ok((header(), book())));
    }

    #[test]
    fn a_damaged_snapshot_is_refused() {
        let whole = encode(&header(), &book());
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x40;
            assert_eq!(decode(&bytes), Err(CodecError::Checksum), "byte {at}");
            assert!(decode(&whole[..at]).is_err());
        }
    }

    #[test]
    fn entries_survive() {
        let events = vec![Event::Begun { sequence: 5 }, Event::FlushBegun];
        for entry in [
            Entry::Opened { boot: None },
            Entry::Opened { boot: Some("x".into()) },
            Entry::Events { at_ms: 12, events },
            Entry::Hooked,
            Entry::Cut { at_ms: 9 },
        ] {
            assert_eq!(Entry::decode(&entry.encode()), Ok(entry));
        }
    }
}
