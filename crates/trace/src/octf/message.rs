//! The messages of a queue: protobuf, as far as it is needed.

use crate::event::{Action, BlockEvent, Category, SECTOR_BYTES};

/// The longest message; real ones have about 60 bytes.
pub(super) const MESSAGE_BYTES_MAX: usize = 4096;

/// Bytes that tell a message's length.
pub(super) const LENGTH_BYTES_MAX: usize = 3;

/// The number of an I/O among those in flight.
pub(super) type Id = u64;

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message<'a> {
    Queued(Id, BlockEvent),
    /// Its event lacks what it was that completed.
    Completed(Id, BlockEvent),
    Device(u32, &'a [u8]),
    /// What files are called and where they lie; kinds that are not known.
    Other,
}

/// One field of a message.
#[derive(Clone, Copy)]
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Fixed,
}

/// True where `head` begins with a whole message that is an event.
pub(crate) fn begins_queue(head: &[u8]) -> bool {
    let Some((length, start)) = length(head) else {
        return false;
    };
    let message = head.get(start..start + length);
    message.and_then(decode).is_some()
}

/// The length of the message at the start of `bytes`, and where it begins.
pub(super) fn length(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut rest = &bytes[..bytes.len().min(LENGTH_BYTES_MAX)];
    let whole = rest.len();
    let length = usize::try_from(varint(&mut rest)?).ok()?;
    (1..=MESSAGE_BYTES_MAX).contains(&length).then_some((length, whole - rest.len()))
}

/// What `message` says; `None` where it is damaged.
pub(super) fn decode(message: &[u8]) -> Option<Message<'_>> {
    const HEADER: u64 = 1;
    let mut time_ns = None;
    let mut said = None;
    fields(message, |field, value| {
        let Value::Bytes(body) = value else {
            return None;
        };
        match field {
            HEADER => time_ns = Some(header(body)?),
            _ => said = Some((field, body)),
        }
        Some(())
    })?;
    event(time_ns?, said?)
}

fn event(time_ns: u64, (kind, body): (u64, &[u8])) -> Option<Message<'_>> {
    const IO: u64 = 2;
    const DEVICE: u64 = 3;
    const COMPLETION: u64 = 5;
    match kind {
        IO => queued(time_ns, body),
        DEVICE => device(body),
        COMPLETION => completed(time_ns, body),
        _ => Some(Message::Other),
    }
}

/// The time of an event.
fn header(body: &[u8]) -> Option<u64> {
    let mut time_ns = None;
    fields(body, |field, value| {
        if let (2, Value::Number(number)) = (field, value) {
            time_ns = Some(number);
        }
        Some(())
    })?;
    time_ns
}

fn queued(time_ns: u64, body: &[u8]) -> Option<Message<'_>> {
    let mut event = empty_event(time_ns, Action::Queue);
    let (mut sectors, mut id) = (0, 0);
    fields(body, |field, value| {
        let Value::Number(number) = value else {
            return Some(());
        };
        match field {
            1 => event.sector = number,
            2 => sectors = number,
            4 => event.device = u32::try_from(number).ok()?,
            5 => event.category |= direction(number)?,
            6 => event.category.set(Category::FLUSH, number != 0),
            7 => event.category.set(Category::FUA, number != 0),
            9 => id = number,
            _ => {}
        }
        Some(())
    })?;
    event.bytes = bytes(sectors)?;
    let says_what = event.category.intersects(Category::READ | Category::WRITE | Category::DISCARD);
    says_what.then_some(Message::Queued(id, event))
}

/// Version 1 counts from 1; 0 is nothing known.
fn direction(number: u64) -> Option<Category> {
    match number {
        1 => Some(Category::READ),
        2 => Some(Category::WRITE),
        3 => Some(Category::DISCARD),
        _ => None,
    }
}

fn completed(time_ns: u64, body: &[u8]) -> Option<Message<'_>> {
    /// The trace tells that something failed, not what: an I/O error.
    const IO_ERROR: u16 = 5;
    let mut event = empty_event(time_ns, Action::Complete);
    let (mut sectors, mut id) = (0, 0);
    fields(body, |field, value| {
        let Value::Number(number) = value else {
            return Some(());
        };
        match field {
            1 => event.sector = number,
            2 => sectors = number,
            3 => event.error = if number == 0 { 0 } else { IO_ERROR },
            4 => event.device = u32::try_from(number).ok()?,
            5 => id = number,
            _ => {}
        }
        Some(())
    })?;
    event.bytes = bytes(sectors)?;
    Some(Message::Completed(id, event))
}

fn device(body: &[u8]) -> Option<Message<'_>> {
    let (mut number, mut name) = (None, &b""[..]);
    fields(body, |field, value| {
        match (field, value) {
            (1, Value::Number(id)) => number = Some(u32::try_from(id).ok()?),
            (2, Value::Bytes(text)) => name = text,
            _ => {}
        }
        Some(())
    })?;
    Some(Message::Device(number?, name))
}

fn empty_event(time_ns: u64, action: Action) -> BlockEvent {
    BlockEvent {
        time_ns,
        sector: 0,
        bytes: 0,
        pid: 0,
        device: 0,
        cpu: 0,
        category: Category::empty(),
        action,
        error: 0,
    }
}

fn bytes(sectors: u64) -> Option<u32> {
    u32::try_from(sectors.checked_mul(SECTOR_BYTES)?).ok()
}

/// Walks over the fields of a message.
fn fields<'a>(
    mut rest: &'a [u8],
    mut each: impl FnMut(u64, Value<'a>) -> Option<()>,
) -> Option<()> {
    while !rest.is_empty() {
        let key = varint(&mut rest)?;
        let value = match key & 7 {
            0 => Value::Number(varint(&mut rest)?),
            1 => fixed(&mut rest, 8)?,
            2 => {
                let length = usize::try_from(varint(&mut rest)?).ok()?;
                let (bytes, behind) = rest.split_at_checked(length)?;
                rest = behind;
                Value::Bytes(bytes)
            }
            5 => fixed(&mut rest, 4)?,
            _ => return None,
        };
        each(key >> 3, value)?;
    }
    Some(())
}

fn fixed<'a>(rest: &mut &'a [u8], bytes: usize) -> Option<Value<'a>> {
    *rest = rest.get(bytes..)?;
    Some(Value::Fixed)
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, behind) = rest.split_first()?;
        *rest = behind;
        if shift == 63 && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
