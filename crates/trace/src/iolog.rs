//! fio's I/O log, versions 2 and 3.
//!
//! `fio version N iolog`, then one line each: `[time] file action [offset length]`. Version 3
//! starts each line with a time in microseconds; version 2 has lines `[file] wait microseconds`
//! between the requests instead.
//!
//! **Source**: fio HOWTO, "Trace file format v2", "v3".

use crate::arrivals::{Arrival, Entry};
use crate::blkparse::{Fields, number};
use crate::damage::Damage;
use crate::error::{Position, TraceError, preview};
use crate::format::TraceFormat;
use crate::lines::{LineFormat, LineReader};
use crate::record::Op;
use crate::record_source::RecordSource;
use crate::source::ByteSource;

pub(crate) const HEAD: &[u8] = b"fio version ";
const VERSIONS: &str = "2, 3";

/// The version of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IologVersion {
    V2,
    V3,
}

/// Lines after the first.
struct Lines {
    version: IologVersion,
    waited_us: u64,
}

/// What a line of the log says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    Request {
        at_us: u64,
        file: &'a [u8],
        op: Op,
        offset_bytes: u64,
        length_bytes: u64,
    },
    Wait {
        us: u64,
    },
    /// A file is added, opened or closed; an empty line.
    Remark,
    Damaged,
}

/// Reads the first line, and the rest as requests.
///
/// # Errors [`TraceError::UnsupportedVersion`], [`TraceError::Damaged`] for a first line that is
/// none of this format.
pub(crate) fn open(
    mut source: ByteSource,
    damage: Damage,
) -> Result<Box<dyn RecordSource>, TraceError> {
    let head = source.line()?.unwrap_or_default();
    let (found, shown) = (head_version(head), preview(head));
    let name = source.name().to_owned();
    let (format, at) = (TraceFormat::FioIolog.words(), Position::Line(1));
    let version = match found {
        Some(2) => IologVersion::V2,
        Some(3) => IologVersion::V3,
        Some(found) => {
            let found = u32::try_from(found).unwrap_or(u32::MAX);
            let supported = VERSIONS;
            return Err(TraceError::UnsupportedVersion { name, format, at, found, supported });
        }
        None => {
            let (expected, found) = ("`fio version N iolog`", shown);
            return Err(TraceError::Damaged { name, format, at, expected, found });
        }
    };
    Ok(Box::new(LineReader::new(source, damage, Lines { version, waited_us: 0 })))
}

impl LineFormat for Lines {
    const FORMAT: TraceFormat = TraceFormat::FioIolog;
    const EXPECTED: &'static str = "`[microseconds] file read|write|trim|sync|datasync offset length` \
                                    or, in version 2, `wait microseconds`";

    fn entry<'a>(&mut self, line: &'a [u8]) -> Entry<'a> {
        match parse_line(line, self.version) {
            Line::Remark => Entry::Remark,
            Line::Damaged => Entry::Damaged,
            Line::Wait { us } => {
                self.waited_us = self.waited_us.saturating_add(us);
                Entry::Remark
            }
            Line::Request { at_us, file, op, offset_bytes, length_bytes } => {
                let at_us = if self.version == IologVersion::V3 { at_us } else { self.waited_us };
                let at_ns = at_us.saturating_mul(1000);
                let arrival = Arrival::new(at_ns, op, offset_bytes, length_bytes);
                Arrival { device: file, ..arrival }.checked()
            }
        }
    }

    /// There is none below the first line.
    fn is_heading(_: &[u8]) -> bool {
        false
    }
}

fn head_version(line: &[u8]) -> Option<u64> {
    let rest = line.strip_prefix(HEAD)?;
    number(rest.strip_suffix(b" iolog")?)
}

/// Parses one line after the first.
pub fn parse_line(line: &[u8], version: IologVersion) -> Line<'_> {
    let mut fields = Fields { rest: line };
    let mut words: [&[u8]; 5] = [b""; 5];
    let mut count = 0;
    for field in fields.by_ref().take(5) {
        words[count] = field;
        count += 1;
    }
    if fields.next().is_some() {
        return Line::Damaged;
    }
    let words = &words[..count];
    match version {
        IologVersion::V2 => parse_action(0, words),
        IologVersion::V3 => match words.split_first() {
            None => Line::Remark,
            Some((time, rest)) => {
                number(time).map_or(Line::Damaged, |at_us| parse_action(at_us, rest))
            }
        },
    }
}

fn parse_action<'a>(at_us: u64, words: &[&'a [u8]]) -> Line<'a> {
    match *words {
        [] => Line::Remark,
        [b"wait", us] | [_, b"wait", us] | [_, b"wait", us, _] => {
            number(us).map_or(Line::Damaged, |us| Line::Wait { us })
        }
        [_, b"add" | b"open" | b"close"] => Line::Remark,
        [file, b"sync" | b"datasync" | b"syncfs"] => flush(at_us, file),
        [file, b"sync" | b"datasync" | b"syncfs" | b"sync_file_range", _, _] => flush(at_us, file),
        [file, action, offset, length] => {
            request(at_us, file, action, offset, length).unwrap_or(Line::Damaged)
        }
        _ => Line::Damaged,
    }
}

fn flush(at_us: u64, file: &[u8]) -> Line<'_> {
    Line::Request { at_us, file, op: Op::Flush, offset_bytes: 0, length_bytes: 0 }
}

fn request<'a>(
    at_us: u64,
    file: &'a [u8],
    action: &[u8],
    offset: &[u8],
    length: &[u8],
) -> Option<Line<'a>> {
    let op = match action {
        b"read" => Op::Read,
        b"write" => Op::Write,
        b"trim" => Op::Discard,
        _ => return None,
    };
    let (offset_bytes, length_bytes) = (number(offset)?, number(length)?);
    offset_bytes.checked_add(length_bytes)?;
    Some(Line::Request { at_us, file, op, offset_bytes, length_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::TraceRecord;
    use std::io::Cursor;

    fn log(text: &str, damage: Damage) -> Result<Box<dyn RecordSource>, TraceError> {
        let input = Box::new(Cursor::new(text.as_bytes().to_vec()));
        open(ByteSource::new("test", input)?, damage)
    }

    fn records(log: &mut Box<dyn RecordSource>) -> Result<Vec<TraceRecord>, TraceError> {
        let (mut all, mut batch) = (Vec::new(), Vec::new());
        while log.fill(&mut batch)? {
            all.append(&mut batch);
        }
        all.append(&mut batch);
        Ok(all)
    }

    #[test]
    fn version_3_has_times_in_microseconds() {
        let text = "fio version 3 iolog\n20 /dev/a add\n30 /dev/a open\n30 /dev/a write 4096 512\n\
                    45 /dev/b read 0 4096\n50 /dev/a sync 0 0\n60 /dev/a close\n";
        let mut log = log(text, Damage::Fail).unwrap();
        let records = records(&mut log).unwrap();
        let times: Vec<_> = records.iter().map(|record| record.issued_ns).collect();
        assert_eq!(times, [0, 15_000, 20_000]);
        assert_eq!((records[1].op, records[1].device), (Op::Read, 1));
        assert_eq!(records[2].op, Op::Flush);
        assert_eq!(log.names().device(0), Some("/dev/a"));
    }

    #[test]
    fn version_2_adds_up_its_waits() {
        let text = "fio version 2 iolog\n/f add\n/f open\n/f write 0 4096\nwait 250\n\
                    /f trim 4096 4096\n/f wait 100 0\n/f datasync\n/f close\n";
        let records = records(&mut log(text, Damage::Fail).unwrap()).unwrap();
        let times: Vec<_> = records.iter().map(|record| record.issued_ns).collect();
        assert_eq!(times, [0, 250_000, 350_000]);
        assert_eq!(records[1].op, Op::Discard);
    }

    #[test]
    fn damaged_line_is_located_or_skipped() {
        let text = "fio version 3 iolog\n1 /f read 0 4096\n2 /f read x 4096\n3 /f read 0 4096\n";
        let error = records(&mut log(text, Damage::Fail).unwrap()).unwrap_err();
        assert_eq!(error.position(), Some(Position::Line(3)));
        let mut lenient = log(text, Damage::Skip).unwrap();
        assert_eq!(records(&mut lenient).unwrap().len(), 2);
        assert_eq!(lenient.tally().damaged, 1);
    }

    #[test]
    fn unknown_version_is_named() {
        let error = log("fio version 9 iolog\n", Damage::Fail).err().unwrap();
        assert!(matches!(error, TraceError::UnsupportedVersion { found: 9, .. }), "{error}");
    }

    #[test]
    fn range_that_wraps_is_damage() {
        let line = b"1 /f write 18446744073709551615 4096";
        assert_eq!(parse_line(line, IologVersion::V3), Line::Damaged);
    }
}
