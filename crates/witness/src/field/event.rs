//! What a writer reports, in the order in which it happened to the writer.
//!
//! A write is *announced* before anything else, and submitted only when the witness has stored the
//! announcement: so no device can hold a value of which the witness has not heard. That it *began*
//! and was *acknowledged* is reported as it happens, without waiting. What the witness has of a
//! writer at a power cut is a beginning of its reports: whatever is missing leaves a write in
//! flight.

use super::codec::{CodecError, Reader, put_number};

/// One report of a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The write may be submitted from the time on at which the witness has stored this.
    Announced {
        sequence: u64,
        block: u64,
        blocks: u64,
    },
    /// It is about to be submitted.
    Begun {
        sequence: u64,
    },
    /// The device has acknowledged it; it is stable after the next flush.
    Acknowledged {
        sequence: u64,
    },
    /// The device has acknowledged it as stable (FUA).
    Stable {
        sequence: u64,
    },
    /// The device has answered with an error: it has happened or not.
    Failed {
        sequence: u64,
    },
    FlushBegun,
    FlushAcknowledged,
    FlushFailed,
    /// The writer ends in order: what was announced and has not begun never will.
    Ended,
}

/// The longest event, in bytes.
pub const EVENT_BYTES_MAX: usize = 1 + 3 * 10;

impl Event {
    pub fn put(self, bytes: &mut Vec<u8>) {
        let (tag, sequence) = match self {
            Self::Announced { sequence, .. } => (1, Some(sequence)),
            Self::Begun { sequence } => (2, Some(sequence)),
            Self::Acknowledged { sequence } => (3, Some(sequence)),
            Self::Stable { sequence } => (4, Some(sequence)),
            Self::Failed { sequence } => (5, Some(sequence)),
            Self::FlushBegun => (6, None),
            Self::FlushAcknowledged => (7, None),
            Self::FlushFailed => (8, None),
            Self::Ended => (9, None),
        };
        bytes.push(tag);
        if let Some(sequence) = sequence {
            put_number(bytes, sequence);
        }
        if let Self::Announced { block, blocks, .. } = self {
            put_number(bytes, block);
            put_number(bytes, blocks);
        }
    }

    /// Takes one event off the front.
    ///
    /// # Errors
    /// Where there is none.
    pub fn take(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(match reader.byte()? {
            1 => Self::Announced {
                sequence: reader.number()?,
                block: reader.number()?,
                blocks: reader.number()?,
            },
            2 => Self::Begun { sequence: reader.number()? },
            3 => Self::Acknowledged { sequence: reader.number()? },
            4 => Self::Stable { sequence: reader.number()? },
            5 => Self::Failed { sequence: reader.number()? },
            6 => Self::FlushBegun,
            7 => Self::FlushAcknowledged,
            8 => Self::FlushFailed,
            9 => Self::Ended,
            found => return Err(CodecError::Tag { what: "event", found }),
        })
    }
}
