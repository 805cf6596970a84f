//! One record of the binary form: fixed header, then payload.

use crate::event::{Action, BlockEvent, Category};

pub(crate) const FORMAT: &str = "blktrace";
pub(crate) const VERSIONS: &str = "7, 8";

/// The upper 24 bits of the first word of every record ("eat"); the lower 8 are the version.
pub const MAGIC: u32 = 0x6561_7400;

const HEADER_BYTES_V7: usize = 48;
const HEADER_BYTES_V8: usize = 64;

/// Marks an action that carries a control group's id.
const CGROUP_BIT: u16 = 1 << 8;

/// The header of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub header_bytes: usize,
    pub payload_bytes: usize,
    pub event: BlockEvent,
    /// The action's number where the record is a note of the tracer and not an event.
    pub note: Option<u16>,
}

/// What the start of a slice holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    Header(Header),
    /// Not a record of this format.
    ForeignMagic(u32),
    /// A record of the format in a version that is not known.
    Version(u32),
    /// The slice ends before the header does, which has this many bytes.
    Short(usize),
}

/// Decodes the header at the start of `bytes`.
#[inline]
pub fn decode_header(bytes: &[u8]) -> Decoded {
    let Some(first) = bytes.first_chunk::<4>() else {
        return Decoded::Short(HEADER_BYTES_V7);
    };
    let little = u32::from_le_bytes(*first);
    if little & !0xff == MAGIC {
        return decode::<false>(bytes, little & 0xff);
    }
    let big = u32::from_be_bytes(*first);
    if big & !0xff == MAGIC {
        decode::<true>(bytes, big & 0xff)
    } else {
        Decoded::ForeignMagic(little)
    }
}

/// `BIG` is the byte order of the machine that traced.
#[inline(always)]
fn decode<const BIG: bool>(bytes: &[u8], version: u32) -> Decoded {
    match version {
        7 => match bytes.first_chunk::<HEADER_BYTES_V7>() {
            Some(header) => Decoded::Header(decode_v7::<BIG>(header)),
            None => Decoded::Short(HEADER_BYTES_V7),
        },
        8 => match bytes.first_chunk::<HEADER_BYTES_V8>() {
            Some(header) => Decoded::Header(decode_v8::<BIG>(header)),
            None => Decoded::Short(HEADER_BYTES_V8),
        },
        version => Decoded::Version(version),
    }
}

#[inline(always)]
fn decode_v7<const BIG: bool>(bytes: &[u8; HEADER_BYTES_V7]) -> Header {
    let words = Words::<BIG, HEADER_BYTES_V7> { bytes };
    let action = words.u32_at(28);
    let mut event = words.common();
    event.pid = words.u32_at(32);
    event.device = words.u32_at(36);
    event.cpu = words.u32_at(40);
    event.error = error_number(words.u16_at(44));
    finish(event, u64::from(action), words.u16_at(46), HEADER_BYTES_V7)
}

#[inline(always)]
fn decode_v8<const BIG: bool>(bytes: &[u8; HEADER_BYTES_V8]) -> Header {
    let words = Words::<BIG, HEADER_BYTES_V8> { bytes };
    let action = words.u64_at(32);
    let mut event = words.common();
    event.pid = words.u32_at(28);
    event.device = words.u32_at(40);
    event.cpu = words.u32_at(44);
    event.error = error_number(words.u16_at(48));
    finish(event, action, words.u16_at(50), HEADER_BYTES_V8)
}

#[inline(always)]
fn finish(mut event: BlockEvent, action: u64, payload: u16, header_bytes: usize) -> Header {
    event.category = Category::from_bits_truncate((action >> 16) as u32);
    let number = action as u16 & !CGROUP_BIT;
    let is_note = event.category.contains(Category::NOTIFY);
    event.action = if is_note { Action::Other } else { action_of(number) };
    let note = is_note.then_some(number);
    Header { header_bytes, payload_bytes: usize::from(payload), event, note }
}

fn action_of(number: u16) -> Action {
    match number {
        1 => Action::Queue,
        2 => Action::BackMerge,
        3 => Action::FrontMerge,
        6 => Action::Requeue,
        7 => Action::Issue,
        8 => Action::Complete,
        13 => Action::Split,
        15 => Action::Remap,
        16 => Action::Abort,
        _ => Action::Other,
    }
}

/// The kernel stores negative error numbers in an unsigned field.
fn error_number(stored: u16) -> u16 {
    (stored as i16).unsigned_abs()
}

/// Words at fixed places of a header. The places are constants below the header's length.
struct Words<'a, const BIG: bool, const LENGTH: usize> {
    bytes: &'a [u8; LENGTH],
}

impl<const BIG: bool, const LENGTH: usize> Words<'_, BIG, LENGTH> {
    #[inline(always)]
    fn common(&self) -> BlockEvent {
        BlockEvent {
            time_ns: self.u64_at(8),
            sector: self.u64_at(16),
            bytes: self.u32_at(24),
            pid: 0,
            device: 0,
            cpu: 0,
            category: Category::empty(),
            action: Action::Other,
            error: 0,
        }
    }

    #[inline(always)]
    fn at<const N: usize>(&self, offset: usize) -> [u8; N] {
        let mut word = [0; N];
        word.copy_from_slice(&self.bytes[offset..offset + N]);
        if BIG {
            word.reverse();
        }
        word
    }

    #[inline(always)]
    fn u16_at(&self, offset: usize) -> u16 {
        u16::from_le_bytes(self.at(offset))
    }

    #[inline(always)]
    fn u32_at(&self, offset: usize) -> u32 {
        u32::from_le_bytes(self.at(offset))
    }

    #[inline(always)]
    fn u64_at(&self, offset: usize) -> u64 {
        u64::from_le_bytes(self.at(offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blktrace::testing::{ByteOrder, Raw, encode};

    #[test]
    fn both_versions_and_byte_orders_say_the_same() {
        let raw = Raw { time_ns: 77, sector: 8, bytes: 4096, pid: 9, ..Raw::queue_write() };
        let mut events = Vec::new();
        for version in [7, 8] {
            for order in [ByteOrder::Little, ByteOrder::Big] {
                match decode_header(&encode(&raw, version, order)) {
                    Decoded::Header(header) => events.push(header.event),
                    other => panic!("{other:?}"),
                }
            }
        }
        assert_eq!(events[0].sector, 8);
        assert_eq!(events[0].action, Action::Queue);
        assert!(events.iter().all(|event| *event == events[0]));
    }

    #[test]
    fn error_of_a_completion_is_positive() {
        let raw = Raw { action: 8, error: 65525, ..Raw::queue_write() };
        let Decoded::Header(header) = decode_header(&encode(&raw, 7, ByteOrder::Little)) else {
            panic!("not a header");
        };
        assert_eq!(header.event.error, 11);
    }

    #[test]
    fn foreign_short_and_future_records_are_told_apart() {
        assert_eq!(decode_header(b"RIFF0000"), Decoded::ForeignMagic(0x4646_4952));
        assert_eq!(decode_header(&[7, 0x74, 0x61]), Decoded::Short(48));
        assert_eq!(decode_header(&[8, 0x74, 0x61, 0x65, 0, 0]), Decoded::Short(64));
        assert_eq!(decode_header(&[9, 0x74, 0x61, 0x65, 0, 0]), Decoded::Version(9));
    }
}
