//! The files of the events of a volume: a line of JSON each, in a file and an older one.
//!
//! 1. Events are appended to the newer file.
//! 2. When that is full it becomes the older one, whose events are dropped.
//! 3. Readers take both, at any time, also without a daemon.
//!
//! **Invariants**
//! - Only the daemon that serves the volume writes, or a command while there is none.
//! - What a crash left of a line is a line of its own, which readers skip.

use super::Event;
use crate::answers::Versioned;
use crate::place::Places;
use crate::readers::Readers;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Of each of the two files.
const FILE_BYTES_MAX: u64 = 256 << 10;
/// Of a line: a longer one has no details, and less of its text.
const LINE_BYTES_MAX: usize = 16 << 10;
const TEXT_CHARS_MAX: usize = 1000;

/// The two files of a volume, which may not exist.
#[derive(Clone, Debug)]
pub struct EventFiles {
    newer: PathBuf,
    older: PathBuf,
    /// Who may look beside the owner.
    readers: Readers,
}

/// Appends to them.
#[derive(Debug)]
pub struct EventWriter {
    files: EventFiles,
    file: File,
    bytes: u64,
    next: u64,
    /// The file ends within a line.
    is_torn: bool,
}

impl EventFiles {
    pub fn of(places: &Places, volume: &str) -> Self {
        let [newer, older] = places.events(volume);
        Self { newer, older, readers: places.readers() }
    }

    pub fn exist(&self) -> bool {
        self.newer.exists() || self.older.exists()
    }

    /// Another one when there are further events.
    pub fn stamp(&self) -> Option<(u64, u64)> {
        fs::metadata(&self.newer).ok().map(|file| (file.ino(), file.len()))
    }

    /// The kept events, oldest first.
    ///
    /// # Errors
    /// Where the files cannot be read.
    pub fn read(&self) -> io::Result<Vec<Event>> {
        loop {
            let newer = open(&self.newer)?;
            let number = number_of(newer.as_ref())?;
            let mut text = contents(open(&self.older)?)?;
            text.push(b'\n');
            text.extend(contents(newer)?);
            // Else it has become the older one in between.
            if number_of(open(&self.newer)?.as_ref())? == number {
                return Ok(events_in(&text));
            }
        }
    }

    fn append_to(&self) -> io::Result<File> {
        let file = File::options().read(true).append(true).create(true).open(&self.newer)?;
        // One that is for the owner alone is better than none.
        let _ = self.readers.open_file(&file);
        Ok(file)
    }
}

impl EventWriter {
    /// Goes on after the events that are there, which are returned, too.
    ///
    /// # Errors
    /// Where the folder or the files cannot be used.
    pub fn open(files: EventFiles) -> io::Result<(Self, Vec<Event>)> {
        if let Some(folder) = files.newer.parent() {
            fs::create_dir_all(folder)?;
        }
        let events = files.read()?;
        let mut file = files.append_to()?;
        let bytes = file.metadata()?.len();
        let mut last = [b'\n'];
        if bytes > 0 {
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
        }
        let next = events.iter().map(|event| event.sequence).max().unwrap_or(0) + 1;
        Ok((Self { files, file, bytes, next, is_torn: last != [b'\n'] }, events))
    }

    /// Numbers and keeps an event, durably.
    ///
    /// # Errors
    /// If it is not kept; its number is used in any case.
    pub fn append(&mut self, event: &mut Event) -> io::Result<()> {
        event.sequence = self.next;
        self.next += 1;
        let line = line_of(event);
        if self.bytes > 0 && self.bytes + line.len() as u64 > FILE_BYTES_MAX {
            fs::rename(&self.files.newer, &self.files.older)?;
            self.file = self.files.append_to()?;
            (self.bytes, self.is_torn) = (0, false);
        }
        let start: &[u8] = if self.is_torn { b"\n" } else { b"" };
        let whole = [start, &line].concat();
        self.is_torn = true;
        self.file.write_all(&whole)?;
        self.is_torn = false;
        self.bytes += whole.len() as u64;
        self.file.sync_data()
    }
}

fn line_of(event: &mut Event) -> Vec<u8> {
    let line = |event: &Event| {
        let mut line = serde_json::to_vec(&Versioned::new(event)).expect("plain data");
        line.push(b'\n');
        line
    };
    let whole = line(event);
    if whole.len() <= LINE_BYTES_MAX {
        return whole;
    }
    event.details.clear();
    event.text = event.text.chars().take(TEXT_CHARS_MAX).collect();
    line(event)
}

fn open(path: &PathBuf) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn number_of(file: Option<&File>) -> io::Result<Option<u64>> {
    file.map(|file| file.metadata().map(|it| it.ino())).transpose()
}

fn contents(file: Option<File>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut file) = file {
        file.read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

fn events_in(text: &[u8]) -> Vec<Event> {
    let parse = |line: &[u8]| serde_json::from_slice::<Versioned<Event>>(line).ok();
    text.split(|byte| *byte == b'\n').filter_map(parse).map(|it| it.answer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::{EventKind, Severity};

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn files(&self) -> EventFiles {
            EventFiles::of(&Places::at(self.0.path()), "v")
        }

        fn writer(&self) -> EventWriter {
            EventWriter::open(self.files()).unwrap().0
        }

        fn sequences(&self) -> Vec<u64> {
            self.files().read().unwrap().iter().map(|event| event.sequence).collect()
        }
    }

    fn event(text: &str) -> Event {
        let event = Event::new(EventKind::MemberState, Severity::Error, text);
        event.of_device(Some("/dev/a")).of_member(3).with("state", "failed")
    }

    #[test]
    fn events_are_as_they_were_and_numbers_go_on_after_a_restart() {
        let folder = Folder::new();
        assert!(folder.files().read().unwrap().is_empty() && !folder.files().exist());
        let mut told = event("one\nline");
        folder.writer().append(&mut told).unwrap();
        let (mut writer, before) = EventWriter::open(folder.files()).unwrap();
        assert_eq!(before, [told.clone()]);
        writer.append(&mut event("two")).unwrap();
        assert_eq!(folder.files().read().unwrap()[0], told);
        assert_eq!(folder.sequences(), [1, 2]);
    }

    #[test]
    fn files_are_bounded_and_the_newest_events_stay() {
        let folder = Folder::new();
        let mut writer = folder.writer();
        let text = "x".repeat(4000);
        for _ in 0..400 {
            writer.append(&mut event(&text)).unwrap();
            for path in [&folder.files().newer, &folder.files().older] {
                assert!(fs::metadata(path).map_or(0, |it| it.len()) <= FILE_BYTES_MAX);
            }
        }
        let kept = folder.sequences();
        assert_eq!(*kept.last().unwrap(), 400);
        assert!(kept.len() > 60, "{} are kept", kept.len());
        assert!(kept.windows(2).all(|two| two[1] == two[0] + 1), "{kept:?}");
        assert_eq!(folder.writer().next, 401);
    }

    #[test]
    fn what_a_crash_left_of_a_line_spoils_no_other() {
        let folder = Folder::new();
        let mut writer = folder.writer();
        writer.append(&mut event("one")).unwrap();
        writer.append(&mut event("two")).unwrap();
        let length = fs::metadata(&folder.files().newer).unwrap().len();
        for cut in [1, 20, length / 2 - 1] {
            folder.files().append_to().unwrap().set_len(length - cut).unwrap();
            let mut writer = folder.writer();
            writer.append(&mut event("three")).unwrap();
            let events = folder.files().read().unwrap();
            let texts: Vec<&str> = events.iter().map(|event| event.text.as_str()).collect();
            let expected: &[&str] =
                if cut == 1 { &["one", "two", "three"] } else { &["one", "three"] };
            assert_eq!(texts, expected, "cut by {cut}");
        }
    }

    #[test]
    fn a_line_that_is_too_long_loses_details_and_is_kept() {
        let folder = Folder::new();
        let mut long = event(&"y".repeat(20_000)).with("rules", "z".repeat(20_000));
        folder.writer().append(&mut long).unwrap();
        let kept = &folder.files().read().unwrap()[0];
        assert_eq!((kept.text.len(), kept.details.len()), (TEXT_CHARS_MAX, 0));
    }
}
