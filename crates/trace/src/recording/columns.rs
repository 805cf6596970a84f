//! The columns of a block: every field of its records beside the same field of their neighbours,
//! where differences are small and zeros many.
//!
//! **Invariants**: what is decoded is what was encoded, whatever the records hold; a column that
//! holds only zeros takes one byte.

use super::{COLUMNS, COMPLETION_FOLLOWS, DISPATCH_FOLLOWS, FLAGS_SHIFT, OP_MASK};
use crate::record::{Op, RecordFlags, TraceRecord};

/// The columns of the records that have such a time.
const DISPATCHES: usize = COLUMNS - 2;
const COMPLETIONS: usize = COLUMNS - 1;

/// Nothing but 0 is a multiple of it.
const ALL_ZERO: u64 = 0;

/// What a record's fields are told against: those of the record before.
fn start() -> TraceRecord {
    TraceRecord::new(0, Op::Read, 0, 0)
}

/// Appends the columns of `records` to `out`.
pub(super) fn encode(records: &[TraceRecord], out: &mut Vec<u8>) {
    let mut values: [Vec<i64>; COLUMNS] = Default::default();
    let mut before = start();
    for record in records {
        put_record(&mut values, &before, record);
        before = *record;
    }
    for column in &values {
        put_column(column, out);
    }
}

fn put_record(values: &mut [Vec<i64>; COLUMNS], before: &TraceRecord, record: &TraceRecord) {
    let mut kind = record.op.index() as i64 | i64::from(record.flags.bits()) << FLAGS_SHIFT;
    kind |= if record.dispatched_ns.is_some() { DISPATCH_FOLLOWS } else { 0 };
    kind |= if record.completed_ns.is_some() { COMPLETION_FOLLOWS } else { 0 };
    let difference = |now: u64, then: u64| now.wrapping_sub(then) as i64;
    let fields = [
        kind,
        difference(record.issued_ns, before.issued_ns),
        difference(record.offset_bytes, before.end_bytes()),
        record.length_bytes as i64,
        difference(u64::from(record.process), u64::from(before.process)),
        difference(u64::from(record.device), u64::from(before.device)),
        difference(u64::from(record.queue), u64::from(before.queue)),
    ];
    for (column, field) in values.iter_mut().zip(fields) {
        column.push(field);
    }
    if let Some(at_ns) = record.dispatched_ns {
        values[DISPATCHES].push(difference(at_ns, record.issued_ns));
    }
    if let Some(at_ns) = record.completed_ns {
        let from = record.dispatched_ns.unwrap_or(record.issued_ns);
        values[COMPLETIONS].push(difference(at_ns, from));
    }
}

/// What all values are multiples of, and how many times that each is.
fn put_column(values: &[i64], out: &mut Vec<u8>) {
    let divisor = values.iter().fold(0, |divisor, value| common(divisor, value.unsigned_abs()));
    varint(out, divisor);
    if divisor == ALL_ZERO {
        return;
    }
    for value in values {
        let times = value.unsigned_abs() / divisor;
        let signed = if *value < 0 { times.wrapping_neg() } else { times };
        varint(out, zigzag(signed as i64));
    }
}

/// The greatest common divisor; that of a number and 0 is the number.
fn common(mut one: u64, mut other: u64) -> u64 {
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one
}

/// Decodes `count` records and appends them to `records`; `None` where the columns are none, and
/// `records` is then as it was.
pub(super) fn decode(bytes: &[u8], count: usize, records: &mut Vec<TraceRecord>) -> Option<()> {
    let mut rest = bytes;
    let mut values: [Vec<i64>; COLUMNS] = Default::default();
    for column in 0..COLUMNS {
        let wanted = match column {
            DISPATCHES => values[0].iter().filter(|&&kind| kind & DISPATCH_FOLLOWS != 0).count(),
            COMPLETIONS => values[0].iter().filter(|&&kind| kind & COMPLETION_FOLLOWS != 0).count(),
            _ => count,
        };
        values[column] = take_column(&mut rest, wanted)?;
    }
    if !rest.is_empty() {
        return None;
    }
    let kept = records.len();
    let whole = put_together(&values, records);
    if whole.is_none() {
        records.truncate(kept);
    }
    whole
}

fn take_column(rest: &mut &[u8], count: usize) -> Option<Vec<i64>> {
    let divisor = take_varint(rest)?;
    if divisor == ALL_ZERO {
        return Some(vec![0; count]);
    }
    if count > rest.len() {
        return None;
    }
    let take = |_| Some(unzigzag(take_varint(rest)?).wrapping_mul(divisor as i64));
    (0..count).map(take).collect()
}

fn put_together(values: &[Vec<i64>; COLUMNS], records: &mut Vec<TraceRecord>) -> Option<()> {
    let [kinds, times, offsets, lengths, processes, devices, queues, dispatches, completions] =
        values;
    let mut dispatches = dispatches.iter();
    let mut completions = completions.iter();
    let mut before = start();
    for (at, &kind) in kinds.iter().enumerate() {
        let mut record = before;
        record.op = *Op::ALL.get((kind & OP_MASK) as usize)?;
        let flags = u16::try_from(kind >> FLAGS_SHIFT).ok()?;
        record.flags = RecordFlags::from_bits(flags)?;
        record.issued_ns = against(before.issued_ns, times[at]);
        record.offset_bytes = against(before.end_bytes(), offsets[at]);
        record.length_bytes = lengths[at] as u64;
        record.offset_bytes.checked_add(record.length_bytes)?;
        record.process = against(before.process.into(), processes[at]).try_into().ok()?;
        record.device = against(before.device.into(), devices[at]).try_into().ok()?;
        record.queue = against(before.queue.into(), queues[at]).try_into().ok()?;
        record.dispatched_ns = None;
        record.completed_ns = None;
        if kind & DISPATCH_FOLLOWS != 0 {
            record.dispatched_ns = Some(against(record.issued_ns, *dispatches.next()?));
        }
        if kind & COMPLETION_FOLLOWS != 0 {
            let from = record.dispatched_ns.unwrap_or(record.issued_ns);
            record.completed_ns = Some(against(from, *completions.next()?));
        }
        let is_sound = |at_ns: Option<u64>| at_ns.is_none_or(|at_ns| at_ns >= record.issued_ns);
        (is_sound(record.dispatched_ns) && is_sound(record.completed_ns)).then_some(())?;
        records.push(record);
        before = record;
    }
    Some(())
}

fn against(before: u64, difference: i64) -> u64 {
    before.wrapping_add(difference as u64)
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unzigzag(value: u64) -> i64 {
    ((value >> 1) ^ (value & 1).wrapping_neg()) as i64
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[inline]
fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    let (&first, behind) = rest.split_first()?;
    if first < 0x80 {
        *rest = behind;
        return Some(u64::from(first));
    }
    let mut value = 0u64;
    for (at, &byte) in rest.iter().take(10).enumerate() {
        let bits = u64::from(byte & 0x7f);
        if at == 9 && bits > 1 {
            return None;
        }
        value |= bits << (7 * at);
        if byte & 0x80 == 0 {
            *rest = &rest[at + 1..];
            return Some(value);
        }
    }
    None
}
