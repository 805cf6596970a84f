//! What travels between a writer, a verifier or an agent and the witness.
//!
//! A frame is its length (four bytes, little-endian), its body and its proof. The first byte of a
//! body says what it is; reports and findings are numbers, everything else is a JSON text.
//!
//! **Invariants**: nothing is allocated by a number that a peer sent, before it was compared with a
//! limit. Every body that is understood is understood to its last byte.

use super::book::{REGION_BLOCKS_MAX, WRITE_BLOCKS_MAX};
use super::codec::{CodecError, Reader, put_number};
use super::content::{BlockContent, Sector};
use super::event::{EVENT_BYTES_MAX, Event};
use super::ruling::Ruling;
use crate::{BLOCK_BYTES, SECTOR_BYTES, SECTORS_PER_BLOCK};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The longest body of a frame.
pub const BODY_BYTES_MAX: usize = 64 << 10;
/// Reports in one frame.
pub const EVENTS_MAX: usize = (BODY_BYTES_MAX - 16) / EVENT_BYTES_MAX;
/// Findings in one frame.
pub const FINDINGS_MAX: usize = 256;
const NAME_BYTES_MAX: usize = 64;

const _: () = assert!(FINDINGS_MAX * (1 + SECTORS_PER_BLOCK * 21) + 16 <= BODY_BYTES_MAX);

/// The part of a device that is written, which both ends must mean alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    pub start_bytes: u64,
    pub blocks: u64,
    /// The device never tears an aligned piece of so many bytes.
    pub atom_bytes: u64,
}

/// How a writer writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    Random,
    Sequential,
    /// Nine in ten writes go to a twentieth of the region.
    Hot,
}

/// What a writer asks of the device for what it has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sync {
    /// A flush after every so many writes.
    Flush,
    /// Each write by itself.
    Fua,
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireLoad {
    pub pattern: Pattern,
    pub sync: Sync,
    pub sync_every: u64,
    pub depth: u32,
    /// Blocks of one write.
    pub write_blocks: u64,
    /// The writer ends after so many seconds; `None`: when it is told, or loses its power.
    pub seconds: Option<u64>,
}

/// What a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    Write,
    /// Write, and forget what the witness knows of this device.
    WriteAnew,
    Verify,
    /// Be told what to do next.
    Ask,
}

/// How a client begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// What the witness calls the device.
    pub name: String,
    pub purpose: Purpose,
    /// The region to be written; a verifier takes the witness's.
    pub region: Option<Region>,
    pub device_bytes: u64,
    /// What the kernel calls this run of the machine.
    pub boot: Option<String>,
}

/// How the witness answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    pub seed: u64,
    pub next_sequence: u64,
    pub region: Region,
}

/// What an agent is to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    Verify,
    Write,
    /// Ask again later.
    Wait,
    /// The campaign is over.
    End,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToWitness {
    Hello(Hello),
    /// None of them: the writer is still there.
    Events(Vec<Event>),
    /// What the next blocks were found to hold.
    Findings(Vec<BlockContent>),
    /// All blocks were looked at, and the device was flushed, or would not be.
    Looked {
        was_flushed: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromWitness {
    Welcome(Welcome),
    /// So many reports of this session are stored.
    Stored {
        events: u64,
    },
    Task(Task),
    Ruling(Box<Ruling>),
    Refused(String),
    /// The writer is to end in order.
    Stop,
}

impl ToWitness {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Self::Hello(hello) => put_text(&mut bytes, 1, hello),
            Self::Events(events) => {
                bytes.push(2);
                put_number(&mut bytes, events.len() as u64);
                events.iter().for_each(|event| event.put(&mut bytes));
            }
            Self::Findings(findings) => {
                bytes.push(3);
                put_number(&mut bytes, findings.len() as u64);
                findings.iter().for_each(|found| put_found(&mut bytes, found));
            }
            Self::Looked { was_flushed } => bytes.extend([4, u8::from(*was_flushed)]),
        }
        bytes
    }

    /// # Errors
    /// Where the body is none of these.
    pub fn decode(body: &[u8]) -> Result<Self, CodecError> {
        let mut reader = Reader::new(body);
        let message = match reader.byte()? {
            1 => return Ok(Self::Hello(hello(reader.rest())?)),
            2 => Self::Events(list(&mut reader, "reports", EVENTS_MAX, Event::take)?),
            3 => Self::Findings(list(&mut reader, "findings", FINDINGS_MAX, take_found)?),
            4 => Self::Looked { was_flushed: reader.number_max("answer", 1)? == 1 },
            found => return Err(CodecError::Tag { what: "message", found }),
        };
        reader.end()?;
        Ok(message)
    }
}

impl FromWitness {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Self::Welcome(welcome) => put_text(&mut bytes, 1, welcome),
            Self::Stored { events } => {
                bytes.push(2);
                put_number(&mut bytes, *events);
            }
            Self::Task(task) => put_text(&mut bytes, 3, task),
            Self::Ruling(ruling) => put_text(&mut bytes, 4, ruling),
            Self::Refused(reason) => put_text(&mut bytes, 5, reason),
            Self::Stop => bytes.push(6),
        }
        bytes
    }

    /// # Errors
    /// Where the body is none of these.
    pub fn decode(body: &[u8]) -> Result<Self, CodecError> {
        let mut reader = Reader::new(body);
        Ok(match reader.byte()? {
            1 => Self::Welcome(checked(text(reader.rest())?)?),
            2 => {
                let events = reader.number()?;
                reader.end()?;
                Self::Stored { events }
            }
            3 => Self::Task(text(reader.rest())?),
            4 => Self::Ruling(text(reader.rest())?),
            5 => Self::Refused(text(reader.rest())?),
            6 => {
                reader.end()?;
                Self::Stop
            }
            found => return Err(CodecError::Tag { what: "message", found }),
        })
    }
}

impl Region {
    /// # Errors
    /// Where it is more than a witness keeps, or no region.
    pub fn check(&self) -> Result<(), CodecError> {
        let (found, max) = (self.blocks, REGION_BLOCKS_MAX);
        if found == 0 || found > max || !self.start_bytes.is_multiple_of(BLOCK_BYTES) {
            return Err(CodecError::TooMany { what: "blocks of the region", found, max });
        }
        let end = self.start_bytes.checked_add(self.blocks * BLOCK_BYTES);
        let is_atom = self.atom_bytes == SECTOR_BYTES || self.atom_bytes == BLOCK_BYTES;
        if end.is_some() && is_atom { Ok(()) } else { Err(CodecError::Text) }
    }

    pub fn size_bytes(&self) -> u64 {
        self.blocks * BLOCK_BYTES
    }
}

impl WireLoad {
    /// # Errors
    /// Where a figure is zero or too large, by its name.
    pub fn check(&self) -> Result<(), CodecError> {
        let limits = [
            ("depth", u64::from(self.depth), 1024),
            ("blocks of a write", self.write_blocks, WRITE_BLOCKS_MAX),
            ("writes to a flush", self.sync_every, u64::MAX),
        ];
        let broken = limits.into_iter().find(|(_, found, max)| *found == 0 || found > max);
        match broken {
            Some((what, found, max)) => Err(CodecError::TooMany { what, found, max }),
            None => Ok(()),
        }
    }
}

/// Whether the witness can call a device so: its name becomes that of a folder.
pub fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && !name.starts_with('.')
        && name.bytes().all(is_allowed)
}

fn hello(bytes: &[u8]) -> Result<Hello, CodecError> {
    let hello: Hello = text(bytes)?;
    if let Some(region) = &hello.region {
        region.check()?;
    }
    let is_short = |text: &String| text.len() <= NAME_BYTES_MAX;
    if !is_name(&hello.name) || !hello.boot.iter().all(is_short) {
        return Err(CodecError::Text);
    }
    Ok(hello)
}

fn checked(welcome: Welcome) -> Result<Welcome, CodecError> {
    welcome.region.check()?;
    Ok(welcome)
}

fn put_text(bytes: &mut Vec<u8>, tag: u8, value: &impl Serialize) {
    bytes.push(tag);
    serde_json::to_writer(bytes, value).expect("writing to memory succeeds");
}

fn text<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    serde_json::from_slice(bytes).map_err(|_| CodecError::Text)
}

fn list<T>(
    reader: &mut Reader<'_>,
    what: &'static str,
    max: usize,
    take: impl Fn(&mut Reader<'_>) -> Result<T, CodecError>,
) -> Result<Vec<T>, CodecError> {
    let count = reader.number_max(what, max as u64)?;
    (0..count).map(|_| take(reader)).collect()
}

fn put_found(bytes: &mut Vec<u8>, found: &BlockContent) {
    match found {
        BlockContent::Written { sequence, address } => put_written(bytes, 1, *sequence, *address),
        BlockContent::Zeroes => bytes.push(2),
        BlockContent::Foreign => bytes.push(3),
        BlockContent::Unreadable => bytes.push(4),
        BlockContent::Mixed(sectors) => {
            bytes.push(5);
            for sector in sectors {
                match sector {
                    Sector::Written { sequence, address } => {
                        put_written(bytes, 1, *sequence, *address);
                    }
                    Sector::Zeroes => bytes.push(2),
                    Sector::Foreign => bytes.push(3),
                    Sector::Damaged => bytes.push(4),
                }
            }
        }
    }
}

fn put_written(bytes: &mut Vec<u8>, tag: u8, sequence: u64, address: u64) {
    bytes.push(tag);
    put_number(bytes, sequence);
    put_number(bytes, address);
}

fn take_found(reader: &mut Reader<'_>) -> Result<BlockContent, CodecError> {
    Ok(match reader.byte()? {
        1 => BlockContent::Written { sequence: reader.number()?, address: reader.number()? },
        2 => BlockContent::Zeroes,
        3 => BlockContent::Foreign,
        4 => BlockContent::Unreadable,
        5 => {
            let mut sectors = [Sector::Foreign; SECTORS_PER_BLOCK];
            for sector in &mut sectors {
                *sector = take_sector(reader)?;
            }
            BlockContent::Mixed(sectors)
        }
        found => return Err(CodecError::Tag { what: "finding", found }),
    })
}

fn take_sector(reader: &mut Reader<'_>) -> Result<Sector, CodecError> {
    Ok(match reader.byte()? {
        1 => Sector::Written { sequence: reader.number()?, address: reader.number()? },
        2 => Sector::Zeroes,
        3 => Sector::Foreign,
        4 => Sector::Damaged,
        found => return Err(CodecError::Tag { what: "sector", found }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let event =
            (any::<u64>(), any::<u64>(), 0..9u8).prop_map(|(sequence, block, kind)| match kind {
                0 => Event::Announced { sequence, block, blocks: block ^ sequence },
                1 => Event::Begun { sequence },
                2 => Event::Acknowledged { sequence },
                3 => Event::Stable { sequence },
                4 => Event::Failed { sequence },
                5 => Event::FlushBegun,
                6 => Event::FlushAcknowledged,
                7 => Event::FlushFailed,
                _ => Event::Ended,
            });
        prop::collection::vec(event, 0..50)
    }

    fn findings() -> impl Strategy<Value = Vec<BlockContent>> {
        let found =
            (any::<u64>(), any::<u64>(), 0..5u8).prop_map(|(sequence, address, kind)| match kind {
                0 => BlockContent::Written { sequence, address },
                1 => BlockContent::Zeroes,
                2 => BlockContent::Foreign,
                3 => BlockContent::Unreadable,
                _ => {
                    let mut sectors = [Sector::Written { sequence, address }; SECTORS_PER_BLOCK];
                    (sectors[1], sectors[2]) = (Sector::Zeroes, Sector::Damaged);
                    BlockContent::Mixed(sectors)
                }
            });
        prop::collection::vec(found, 0..50)
    }

    proptest! {
        #[test]
        fn reports_and_findings_survive(events in events(), findings in findings()) {
            for message in [ToWitness::Events(events), ToWitness::Findings(findings)] {
                let body = message.encode();
                prop_assert_eq!(ToWitness::decode(&body), Ok(message));
                prop_assert!(ToWitness::decode(&body[..body.len() - 1]).is_err());
            }
        }

        #[test]
        fn no_bytes_break_the_decoders(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (ToWitness::decode(&bytes), FromWitness::decode(&bytes));
        }
    }

    #[test]
    fn a_frame_full_of_anything_has_room() {
        let (sequence, block, blocks) = (u64::MAX, u64::MAX, u64::MAX);
        let events = vec![Event::Announced { sequence, block, blocks }; EVENTS_MAX];
        assert!(ToWitness::Events(events).encode().len() <= BODY_BYTES_MAX);
        let sector = Sector::Written { sequence, address: u64::MAX };
        let findings = vec![BlockContent::Mixed([sector; SECTORS_PER_BLOCK]); FINDINGS_MAX];
        assert!(ToWitness::Findings(findings).encode().len() <= BODY_BYTES_MAX);
    }

    #[test]
    fn a_hello_with_a_name_that_leaves_the_folder_or_a_huge_region_is_refused() {
        let region = Region { start_bytes: 0, blocks: 8, atom_bytes: 512 };
        let hello = Hello {
            name: "sda-rack.7".into(),
            purpose: Purpose::Write,
            region: Some(region),
            device_bytes: 1 << 20,
            boot: None,
        };
        let decode = |hello: Hello| ToWitness::decode(&ToWitness::Hello(hello).encode());
        assert!(decode(hello.clone()).is_ok());
        for name in ["", "..", "a/b", ".x", "a b", &"x".repeat(65)] {
            assert!(decode(Hello { name: name.into(), ..hello.clone() }).is_err(), "{name}");
        }
        for region in [
            Region { blocks: REGION_BLOCKS_MAX + 1, ..region },
            Region { blocks: 0, ..region },
            Region { start_bytes: 100, ..region },
            Region { start_bytes: u64::MAX - 4095, ..region },
            Region { atom_bytes: 7, ..region },
        ] {
            assert!(decode(Hello { region: Some(region), ..hello.clone() }).is_err(), "{region:?}");
        }
    }
}
