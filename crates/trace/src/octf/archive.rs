//! Where the queues of a trace are: in a folder, in a folder below it, or in a tar of either.
//!
//! **Source**: POSIX.1-2017, pax, "ustar Interchange Format".

use std::collections::BTreeMap;
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use crate::error::{Position, TraceError, preview};
use crate::format::TraceFormat;
use crate::source::ByteSource;

/// All queues of a tar together.
const ARCHIVE_BYTES_MAX: u64 = 256 << 20;

const BLOCK_BYTES: usize = 512;
const MAGIC_AT: usize = 257;
const MAGIC: &[u8] = b"ustar";
const PREFIX: &str = "octf.trace.";
const FORMAT: &str = "tar";

/// True for the beginning of a tar.
pub(crate) fn is_archive(head: &[u8]) -> bool {
    head.get(MAGIC_AT..).is_some_and(|rest| rest.starts_with(MAGIC))
}

/// The queues that `path` stands for: those of a folder, those of the one folder below it that has
/// some, or those beside a queue; in order of their numbers. `None` for any other file.
///
/// # Errors [`TraceError::Open`], [`TraceError::SeveralTraces`]; [`TraceError::NotThat`] for a
/// folder without queues.
pub(crate) fn queues_of(path: &Path) -> Result<Option<Vec<PathBuf>>, TraceError> {
    if number(path).is_some() && path.is_file() {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        return queues_in(folder.unwrap_or(Path::new("."))).map(Some);
    }
    if !path.is_dir() {
        return Ok(None);
    }
    let mut traces = BTreeMap::new();
    let below = entries(path)?.into_iter().filter(|path| path.is_dir());
    for folder in [path.to_owned()].into_iter().chain(below) {
        let queues = queues_in(&folder)?;
        if !queues.is_empty() {
            traces.insert(folder.display().to_string(), queues);
        }
    }
    let name = path.display().to_string();
    let queues = one_of(&name, traces)?;
    if queues.is_empty() {
        let why = "the folder holds no octf.trace.N";
        return Err(TraceError::NotThat { name, format: TraceFormat::Octf, why });
    }
    Ok(Some(queues))
}

/// Reads the queues of a tar into memory, in order of their numbers.
///
/// # Errors
/// [`TraceError`]: no tar, no queues or several traces in it, too long.
pub(crate) fn unpack(mut source: ByteSource) -> Result<Vec<ByteSource>, TraceError> {
    let name = source.name().to_owned();
    let mut traces: BTreeMap<String, Vec<(u32, Vec<u8>)>> = BTreeMap::new();
    let mut unpacked_bytes = 0;
    while let Some(member) = next_member(&mut source)? {
        let queue = member.queue();
        unpacked_bytes += if queue.is_some() { member.bytes } else { 0 };
        if unpacked_bytes > ARCHIVE_BYTES_MAX {
            return Err(TraceError::Oversized { name, bytes_max: ARCHIVE_BYTES_MAX });
        }
        let content = content(&mut source, &member, queue.is_some())?;
        if let Some((folder, number)) = queue {
            traces.entry(folder).or_default().push((number, content));
        }
    }
    let mut queues = one_of(&name, traces)?;
    if queues.is_empty() {
        let why = "the tar holds no octf.trace.N";
        return Err(TraceError::NotThat { name, format: TraceFormat::Octf, why });
    }
    queues.sort_by_key(|(number, _)| *number);
    let open = |(number, bytes)| {
        ByteSource::new(&format!("{name}: {PREFIX}{number}"), Box::new(Cursor::new(bytes)))
    };
    queues.into_iter().map(open).collect()
}

/// One file of a tar.
struct Member {
    path: String,
    bytes: u64,
    is_file: bool,
}

impl Member {
    /// Folder and number of the queue that this is.
    fn queue(&self) -> Option<(String, u32)> {
        let (folder, file) = self.path.rsplit_once('/').unwrap_or(("", &self.path));
        let number = file.strip_prefix(PREFIX)?.parse().ok()?;
        self.is_file.then(|| (folder.to_owned(), number))
    }
}

/// The next header; `None` at the end.
fn next_member(source: &mut ByteSource) -> Result<Option<Member>, TraceError> {
    let at = Position::Byte(source.offset());
    let block = source.require(BLOCK_BYTES)?;
    let Some(block) = block.first_chunk::<BLOCK_BYTES>() else {
        return if block.is_empty() { Ok(None) } else { Err(cut(source, BLOCK_BYTES as u64)) };
    };
    if block.iter().all(|&byte| byte == 0) {
        return Ok(None);
    }
    let Some(member) = member(block) else {
        let found = preview(&block[..24]);
        let name = source.name().to_owned();
        let expected = "a header with a valid checksum";
        return Err(TraceError::Damaged { name, format: FORMAT, at, expected, found });
    };
    source.consume(BLOCK_BYTES);
    Ok(Some(member))
}

fn member(block: &[u8; BLOCK_BYTES]) -> Option<Member> {
    let checked = 148..156;
    let sum = |(at, &byte): (usize, &u8)| {
        if checked.contains(&at) { u64::from(b' ') } else { u64::from(byte) }
    };
    let sum: u64 = block.iter().enumerate().map(sum).sum();
    if octal(&block[checked.clone()])? != sum {
        return None;
    }
    let (name, prefix) = (text(&block[..100]), text(&block[345..500]));
    let path = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
    let is_file = matches!(block[156], 0 | b'0');
    Some(Member { path, bytes: octal(&block[124..136])?, is_file })
}

fn octal(field: &[u8]) -> Option<u64> {
    let digits = text(field);
    u64::from_str_radix(digits.trim_matches(' '), 8).ok()
}

fn text(field: &[u8]) -> String {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}

/// Reads a member's content where it is wanted and passes it over where it is not.
fn content(source: &mut ByteSource, member: &Member, wanted: bool) -> Result<Vec<u8>, TraceError> {
    let padded_bytes = member.bytes.next_multiple_of(BLOCK_BYTES as u64);
    let mut kept = Vec::new();
    let mut left_bytes = padded_bytes;
    while left_bytes > 0 {
        let available = source.require(1)?;
        let take = available.len().min(usize::try_from(left_bytes).unwrap_or(usize::MAX));
        if take == 0 {
            return Err(cut(source, left_bytes));
        }
        if wanted {
            kept.extend_from_slice(&available[..take]);
        }
        source.consume(take);
        left_bytes -= take as u64;
    }
    kept.truncate(member.bytes as usize);
    Ok(kept)
}

fn cut(source: &ByteSource, needed_bytes: u64) -> TraceError {
    TraceError::Truncated {
        name: source.name().to_owned(),
        format: FORMAT,
        part: "a file",
        at: Position::Byte(source.offset()),
        needed_bytes,
        available_bytes: source.buffered().len() as u64,
    }
}

fn one_of<T>(name: &str, mut traces: BTreeMap<String, Vec<T>>) -> Result<Vec<T>, TraceError> {
    if traces.len() > 1 {
        let traces = traces.into_keys().collect::<Vec<_>>().join(", ");
        return Err(TraceError::SeveralTraces { name: name.to_owned(), traces });
    }
    Ok(traces.pop_first().map(|(_, queues)| queues).unwrap_or_default())
}

fn queues_in(folder: &Path) -> Result<Vec<PathBuf>, TraceError> {
    let numbered = entries(folder)?.into_iter().filter_map(|path| Some((number(&path)?, path)));
    let mut queues: Vec<_> = numbered.collect();
    queues.sort();
    Ok(queues.into_iter().map(|(_, path)| path).collect())
}

/// The number of a queue.
fn number(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.strip_prefix(PREFIX)?.parse().ok()
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, TraceError> {
    let failed = |source| TraceError::Open { path: folder.to_owned(), source };
    let entries = fs::read_dir(folder).map_err(failed)?;
    entries.map(|entry| entry.map(|entry| entry.path()).map_err(failed)).collect()
}
