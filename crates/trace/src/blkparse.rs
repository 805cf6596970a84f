//! The text form of the kernel's block tracer, as `blkparse` prints it by default.
//!
//! One event a line, `major,minor cpu sequence seconds.nanoseconds pid action RWBS`, then what the
//! action adds: `sector + sectors`, `sector / sector`, `sector + sectors <- (major,minor) sector`,
//! nothing. A summary follows the events and is passed over.
//!
//! **Source**: blktrace 1.3 `blkparse_fmt.c`.

use crate::event::{Action, BlockEvent, Category, SECTOR_BYTES};
use crate::event_lines::{EventText, Line};

pub(crate) const BLKPARSE_TEXT: EventText = EventText {
    format: "blkparse text",
    expected: "`major,minor cpu sequence seconds.nanoseconds pid action RWBS ...`",
    parse: parse_line,
};

/// Parses one line without its end.
pub(crate) fn parse_line(line: &[u8]) -> Line<'_> {
    let mut fields = Fields { rest: line };
    let Some(first) = fields.next() else {
        return Line::Remark;
    };
    if first.starts_with(b"#") {
        return Line::Remark;
    }
    if is_summary(first) {
        return Line::Summary;
    }
    parse_event(first, fields).unwrap_or(Line::Damaged)
}

fn is_summary(first: &[u8]) -> bool {
    let cpu = first.strip_prefix(b"CPU").is_some_and(|rest| rest.first().is_some_and(is_digit));
    cpu || [&b"Total"[..], b"Throughput", b"Events", b"Skips:"].contains(&first)
}

fn parse_event<'a>(device: &[u8], mut fields: Fields<'a>) -> Option<Line<'a>> {
    let device = parse_device(device)?;
    let cpu = u32::try_from(number(fields.next()?)?).ok()?;
    number(fields.next()?)?;
    let time_ns = parse_time(fields.next()?)?;
    let pid = u32::try_from(number(fields.next()?)?).ok()?;
    let letters = fields.next()?;
    if letters == b"m" {
        return Some(Line::Remark);
    }
    let action = parse_action(letters)?;
    if action == Action::Other {
        return Some(Line::Passing);
    }
    let category = parse_category(fields.next()?)?;
    let (sector, sectors, tail) = parse_range(fields);
    let bytes = u32::try_from(sectors.checked_mul(SECTOR_BYTES)?).ok()?;
    let bracketed = bracketed(tail.rest);
    let (mut name, mut error) = (bracketed, 0);
    if action == Action::Complete {
        error = bracketed.and_then(completion_error).unwrap_or(0);
        name = None;
    }
    let event = BlockEvent { time_ns, sector, bytes, pid, device, cpu, category, action, error };
    event.is_possible().then_some(Line::Event(event, name))
}

/// `sector + sectors`, `sector / sector` or only `sector`; nothing at all for plugs and flushes.
pub(crate) fn parse_range(mut fields: Fields<'_>) -> (u64, u64, Fields<'_>) {
    let before = fields;
    let Some(sector) = fields.next().and_then(number) else {
        return (0, 0, before);
    };
    let after_sector = fields;
    match (fields.next(), fields.next().and_then(number)) {
        (Some(b"+"), Some(sectors)) => (sector, sectors, fields),
        (Some(b"/"), Some(cut)) => (sector, cut.saturating_sub(sector), fields),
        _ => (sector, 0, after_sector),
    }
}

pub(crate) fn parse_device(field: &[u8]) -> Option<u32> {
    let comma = memchr::memchr(b',', field)?;
    let major = u32::try_from(number(&field[..comma])?).ok()?;
    let minor = u32::try_from(number(&field[comma + 1..])?).ok()?;
    (major < 1 << 12 && minor < 1 << 20).then_some((major << 20) | minor)
}

fn parse_time(field: &[u8]) -> Option<u64> {
    let (seconds, fraction) = field.split_at_checked(field.len().checked_sub(10)?)?;
    let nanoseconds = number(fraction.strip_prefix(b".")?)?;
    number(seconds)?.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}

fn parse_action(letters: &[u8]) -> Option<Action> {
    Some(match letters {
        b"Q" => Action::Queue,
        b"M" => Action::BackMerge,
        b"F" => Action::FrontMerge,
        b"R" => Action::Requeue,
        b"D" => Action::Issue,
        b"C" => Action::Complete,
        b"X" => Action::Split,
        b"A" => Action::Remap,
        b"a" => Action::Abort,
        b"G" | b"S" | b"I" | b"P" | b"U" | b"T" | b"UT" | b"B" | b"d" | b"r" => Action::Other,
        b"ZM" | b"ZP" | b"ZU" | b"ZA" => Action::Other,
        _ => return None,
    })
}

/// The letters of RWBS. F before the direction is a flush, behind it FUA.
pub(crate) fn parse_category(letters: &[u8]) -> Option<Category> {
    let mut category = Category::empty();
    let mut direction_seen = false;
    for letter in letters {
        category |= match letter {
            b'F' if !direction_seen => Category::FLUSH,
            b'F' => Category::FUA,
            b'D' => Category::DISCARD,
            b'W' => Category::WRITE,
            b'R' => Category::READ,
            b'Z' if direction_seen => Category::WRITE_ZEROES,
            b'Z' => Category::ZONE_COMMANDS,
            b'A' => Category::AHEAD,
            b'S' => Category::SYNC,
            b'M' => Category::META,
            b'B' | b'E' | b'N' | b'O' | b'C' | b'U' => Category::empty(),
            _ => return None,
        };
        direction_seen |= matches!(letter, b'D' | b'W' | b'R' | b'N');
    }
    Some(category)
}

/// What stands in the last pair of square brackets.
pub(crate) fn bracketed(rest: &[u8]) -> Option<&[u8]> {
    let open = memchr::memchr(b'[', rest)?;
    let close = memchr::memrchr(b']', rest)?;
    rest.get(open + 1..close)
}

/// blkparse prints the unsigned form of a negative error number.
pub(crate) fn completion_error(text: &[u8]) -> Option<u16> {
    if let Some(negative) = text.strip_prefix(b"-") {
        return u16::try_from(number(negative)?).ok();
    }
    u16::try_from(number(text)?).ok().map(|stored| (stored as i16).unsigned_abs())
}

fn is_digit(byte: &u8) -> bool {
    byte.is_ascii_digit()
}

/// A decimal number that fills the whole field.
pub(crate) fn number(field: &[u8]) -> Option<u64> {
    const SAFE_DIGITS: usize = 19;
    if field.is_empty() || field.len() > SAFE_DIGITS + 1 {
        return None;
    }
    let mut value: u64 = 0;
    for byte in field {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

/// Fields between blanks.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> Iterator for Fields<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.rest.iter().position(|&byte| byte != b' ' && byte != b'\t')?;
        let rest = &self.rest[start..];
        let length =
            rest.iter().position(|&byte| byte == b' ' || byte == b'\t').unwrap_or(rest.len());
        self.rest = &rest[length..];
        Some(&rest[..length])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(line: &str) -> BlockEvent {
        match parse_line(line.as_bytes()) {
            Line::Event(event, _) => event,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn queue_line_gives_range_flags_and_name() {
        let line = b"254,0    0        1     1.000000042   161  Q  WS 63240 + 8 [fio]";
        let Line::Event(event, name) = parse_line(line) else { panic!("no event") };
        assert_eq!((event.sector, event.bytes, event.pid), (63240, 4096, 161));
        assert_eq!(event.time_ns, 1_000_000_042);
        assert_eq!(event.category, Category::WRITE | Category::SYNC);
        assert_eq!(name, Some(&b"fio"[..]));
    }

    #[test]
    fn range_beyond_64_bits_is_damage() {
        let line = b"8,0 3 11 0.009507758 697 Q W 18446744073709551615 + 8 [fio]";
        assert_eq!(parse_line(line), Line::Damaged);
    }

    #[test]
    fn flush_before_and_fua_behind_the_direction_are_told_apart() {
        let event = event("8,0 3 11 0.009507758 697 Q FWFSM 223490 + 56 [jbd2/sda1-8]");
        let expected =
            Category::FLUSH | Category::WRITE | Category::FUA | Category::SYNC | Category::META;
        assert_eq!(event.category, expected);
    }

    #[test]
    fn flush_has_no_range_and_a_completion_has_an_error() {
        let flush = event("8,0 3 11 0.009507758 697 Q FWS [kworker/1:1H]");
        assert_eq!((flush.bytes, flush.op()), (0, Some(crate::Op::Flush)));
        let done = event("254,0 1 7794 6.670577508 165 C WS 192512 + 4096 [65525]");
        assert_eq!(done.error, 11);
        assert_eq!(event("254,0 1 7794 6.670577508 165 C WS 8 + 8 [-5]").error, 5);
    }

    #[test]
    fn remap_split_and_plug_are_understood() {
        let remap = event("259,0 1 1 0.000000000 21279 A RA 2348 + 8 <- (259,3) 2340");
        assert_eq!((remap.action, remap.sector, remap.bytes), (Action::Remap, 2348, 4096));
        let split = event("254,0 0 6054 6.671172102 166 X WS 192512 / 195072 [iou-wrk-165]");
        assert_eq!((split.action, split.sector), (Action::Split, 192512));
        assert_eq!(parse_line(b"254,0 0 3 0.000239122 161 U N [fio] 1"), Line::Passing);
    }

    #[test]
    fn summary_ends_the_events_and_nonsense_is_damage() {
        assert_eq!(parse_line(b"CPU0 (vda):"), Line::Summary);
        assert_eq!(parse_line(b""), Line::Remark);
        assert_eq!(parse_line(b"  # 8,0 taken on Monday"), Line::Remark);
        assert_eq!(parse_line(b"254,0 0 1 0.000000042 161 Q"), Line::Damaged);
        assert_eq!(parse_line(b"hello world"), Line::Damaged);
    }

    #[test]
    fn numbers_do_not_wrap() {
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(number(b"18446744073709551616"), None);
        assert_eq!(number(b"-1"), None);
        assert_eq!(number(b""), None);
    }
}
