//! One device that the witness watches: its book and its files, and what may happen next.
//!
//! 1. [`Subject::open_write`] begins a session of a writer; [`Subject::report`] takes what it says
//!    and answers only when that is on the witness's own disk.
//! 2. [`Subject::lose`] where the writer went without a word: a cut.
//! 3. [`Subject::open_look`], [`Subject::look`] for each block in turn, [`Subject::rule`].
//!
//! **Invariants**: after a cut nobody writes before the device was looked at, or its evidence would
//! be gone. What was confirmed to a writer survives a restart of the witness.

use super::book::{Book, BookError};
use super::content::BlockContent;
use super::event::Event;
use super::folder::{Folder, FolderError, RULINGS};
use super::ruling::{Judge, Ruling, Verdict};
use super::snapshot::{self, Entry, Header};
use super::wire::{Hello, Welcome};
use std::io;
use std::path::Path;

/// Lines of a story.
const STORY_LINES_MAX: usize = 40;

/// What a client asked for is not done.
#[derive(Debug, thiserror::Error)]
pub enum SubjectError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error("the witness cannot store what it hears: {0}")]
    Store(#[from] io::Error),
    #[error("the reports of this writer cannot be true: {0}")]
    Untrue(#[from] BookError),
    #[error(
        "after the last cut nobody has looked at this device yet, and writing would destroy the \
         evidence: run `headpond witness verify` first, or give it up with `write --anew`"
    )]
    NotLookedAt,
    #[error("nothing has been written to this device yet that could be verified")]
    NothingWritten,
    #[error(
        "this device has {found} bytes, and the one that was written had {expected}: it is another \
         one"
    )]
    OtherDevice { expected: u64, found: u64 },
    #[error("the region is another one than before: begin anew with `write --anew`")]
    OtherRegion,
    #[error("a writer says which region it writes")]
    NoRegion,
    #[error("this does not belong here: {0}")]
    OutOfPlace(&'static str),
}

/// One device.
pub struct Subject {
    header: Header,
    book: Book,
    folder: Folder,
    judge: Option<Judge>,
    looking_boot: Option<String>,
}

impl Subject {
    /// The device of this folder, where it is known.
    ///
    /// # Errors
    /// Where the files are damaged.
    pub fn open(path: &Path) -> Result<Option<Self>, SubjectError> {
        let Some((folder, kept)) = Folder::open(path)? else { return Ok(None) };
        let foreign = |_| FolderError::Foreign(path.join("snapshot"));
        let (header, book) = snapshot::decode(&kept.snapshot).map_err(foreign)?;
        let mut subject = Self { header, book, folder, judge: None, looking_boot: None };
        for entry in kept.entries {
            let foreign = |_| FolderError::Foreign(path.join("log"));
            subject.repeat(Entry::decode(&entry).map_err(foreign)?)?;
        }
        // A writer that the witness's own restart cut off finds its session gone as well.
        subject.lose(0)?;
        Ok(Some(subject))
    }

    /// A device that is new, or begins anew.
    ///
    /// # Errors
    /// Where its folder cannot be made.
    pub fn create(path: &Path, hello: &Hello, seed: u64) -> Result<Self, SubjectError> {
        let region = hello.region.ok_or(SubjectError::NoRegion)?;
        let header = Header {
            seed,
            region,
            device_bytes: hello.device_bytes,
            boot: None,
            cuts: rulings(path)?.filter_map(|ruling| ruling.cut).max().unwrap_or(0),
            is_cut: false,
            was_hooked: false,
            is_writing: false,
        };
        let book = Book::new(region.blocks);
        let folder = Folder::create(path, &snapshot::encode(&header, &book))?;
        Ok(Self { header, book, folder, judge: None, looking_boot: None })
    }

    pub fn book(&self) -> &Book {
        &self.book
    }

    pub fn cuts(&self) -> u64 {
        self.header.cuts
    }

    pub fn is_writing(&self) -> bool {
        self.header.is_writing
    }

    /// Whether the device must be looked at before anybody writes to it again.
    pub fn wants_a_look(&self) -> bool {
        self.header.is_cut || !self.book.is_settled()
    }

    /// A writer begins.
    ///
    /// # Errors
    /// Where it may not; nothing was changed.
    pub fn open_write(&mut self, hello: &Hello) -> Result<Welcome, SubjectError> {
        self.check_device(hello)?;
        if hello.region.ok_or(SubjectError::NoRegion)? != self.header.region {
            return Err(SubjectError::OtherRegion);
        }
        if self.wants_a_look() {
            return Err(SubjectError::NotLookedAt);
        }
        self.store(&Entry::Opened { boot: hello.boot.clone() })?;
        Ok(self.welcome())
    }

    /// Takes reports of the writer; they are durable when this returns.
    ///
    /// # Errors
    /// Where they cannot be true, or cannot be stored: the session is then over.
    pub fn report(&mut self, at_ms: u64, events: Vec<Event>) -> Result<(), SubjectError> {
        if !self.header.is_writing {
            return Err(SubjectError::OutOfPlace("a report of somebody who does not write"));
        }
        if events.is_empty() {
            return Ok(());
        }
        self.store(&Entry::Events { at_ms, events })?;
        if self.folder.is_full() {
            self.snapshot()?;
        }
        Ok(())
    }

    /// The power is about to be cut by us.
    ///
    /// # Errors
    /// Where that cannot be stored.
    pub fn note_hook(&mut self) -> Result<(), SubjectError> {
        self.store(&Entry::Hooked)
    }

    /// The writer is gone; where it had not ended in order, that is a cut.
    ///
    /// # Errors
    /// Where that cannot be stored.
    pub fn lose(&mut self, at_ms: u64) -> Result<(), SubjectError> {
        self.judge = None;
        if self.header.is_writing { self.store(&Entry::Cut { at_ms }) } else { Ok(()) }
    }

    /// Somebody is about to look at the device.
    ///
    /// # Errors
    /// Where there is nothing to compare it with.
    pub fn open_look(&mut self, hello: &Hello) -> Result<Welcome, SubjectError> {
        self.check_device(hello)?;
        if self.book.next_sequence() == 1 {
            return Err(SubjectError::NothingWritten);
        }
        self.judge = Some(Judge::new(self.header.region.atom_bytes));
        self.looking_boot = hello.boot.clone();
        Ok(self.welcome())
    }

    /// Takes what the next blocks were found to hold.
    ///
    /// # Errors
    /// Where nobody said that they would look, or they look behind the end.
    pub fn look(&mut self, findings: &[BlockContent]) -> Result<(), SubjectError> {
        let judge = self.judge.as_mut().ok_or(SubjectError::OutOfPlace("a finding"))?;
        let left = self.book.block_count() - judge.next_block();
        if findings.len() as u64 > left {
            return Err(SubjectError::OutOfPlace("a finding behind the end of the region"));
        }
        findings.iter().for_each(|found| judge.look(&self.book, found));
        Ok(())
    }

    /// Rules on what was found, and keeps the ruling.
    ///
    /// # Errors
    /// Where nobody has looked, or the ruling cannot be stored.
    pub fn rule(&mut self, at_ms: u64, was_flushed: bool) -> Result<Ruling, SubjectError> {
        let judge = self.judge.take().ok_or(SubjectError::OutOfPlace("the end of a look"))?;
        let mut book = self.book.clone();
        let mut ruling = judge.rule(&mut book, was_flushed);
        if let Some(first) = &mut ruling.first {
            first.story = self.story(first.block)?;
        }
        let both = self.header.boot.as_ref().zip(self.looking_boot.as_ref());
        ruling.was_restarted = both.map(|(before, now)| before != now);
        ruling.cut = self.header.is_cut.then_some(self.header.cuts);
        ruling.was_hooked = self.header.was_hooked;
        ruling.at = at_ms / 1000;
        ruling.before = self.before(&ruling)?;
        let line = serde_json::to_string(&ruling).expect("a ruling is a text");
        self.folder.keep_ruling(&line)?;
        // Half a look leaves the cut where it is, however little the book has to say.
        if was_flushed && ruling.blocks_looked_at == ruling.region_blocks {
            self.book = book;
            (self.header.is_cut, self.header.was_hooked) = (false, false);
            self.snapshot()?;
        }
        Ok(ruling)
    }

    /// What the last whole look came to, where nothing was written since.
    fn before(&self, ruling: &Ruling) -> Result<Option<Verdict>, SubjectError> {
        if self.header.is_cut {
            return Ok(None);
        }
        let written = |of: &Ruling| (of.writes_acknowledged, of.flushes_acknowledged);
        let is_whole = |of: &Ruling| of.blocks_looked_at == of.region_blocks;
        let last = rulings(self.folder.path())?.filter(is_whole).last();
        let last = last.filter(|last| written(last) == written(ruling));
        Ok(last.map(|last| last.before.unwrap_or(last.verdict)))
    }

    fn check_device(&self, hello: &Hello) -> Result<(), SubjectError> {
        let (expected, found) = (self.header.device_bytes, hello.device_bytes);
        if expected == found {
            return Ok(());
        }
        Err(SubjectError::OtherDevice { expected, found })
    }

    fn welcome(&self) -> Welcome {
        Welcome {
            seed: self.header.seed,
            next_sequence: self.book.next_sequence(),
            region: self.header.region,
        }
    }

    /// Carries an entry out and makes it durable. One that cannot be true is not stored.
    fn store(&mut self, entry: &Entry) -> Result<(), SubjectError> {
        self.repeat(entry.clone())?;
        self.folder.append(&entry.encode())?;
        self.folder.sync()?;
        Ok(())
    }

    fn repeat(&mut self, entry: Entry) -> Result<(), SubjectError> {
        match entry {
            Entry::Opened { boot } => {
                self.header.boot = boot;
                self.header.is_writing = true;
            }
            Entry::Events { events, .. } => {
                for event in events {
                    self.book.apply(event)?;
                    self.header.is_writing &= event != Event::Ended;
                }
            }
            Entry::Hooked => self.header.was_hooked = true,
            Entry::Cut { .. } => {
                self.book.cut();
                self.header.is_writing = false;
                self.header.is_cut = true;
                self.header.cuts += 1;
            }
        }
        Ok(())
    }

    fn snapshot(&mut self) -> Result<(), SubjectError> {
        Ok(self.folder.replace(&snapshot::encode(&self.header, &self.book))?)
    }

    /// What was reported of a block in this log and the one before, the newest lines of it.
    fn story(&mut self, block: u64) -> Result<Vec<String>, SubjectError> {
        let mut teller = Teller::new(block);
        let before = self.folder.entries_before();
        for entry in before.into_iter().chain(self.folder.entries()?) {
            if let Ok(entry) = Entry::decode(&entry) {
                teller.hear(entry);
            }
        }
        Ok(teller.lines())
    }
}

/// The rulings of a folder, also those from before a new beginning.
fn rulings(path: &Path) -> Result<impl Iterator<Item = Ruling>, SubjectError> {
    let text = match std::fs::read_to_string(path.join(RULINGS)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        text => text?,
    };
    let rulings: Vec<_> =
        text.lines().filter_map(|line| serde_json::from_str::<Ruling>(line).ok()).collect();
    Ok(rulings.into_iter())
}

/// Tells what happened to one block.
struct Teller {
    block: u64,
    /// Writes of it.
    writes: Vec<u64>,
    /// One of them was acknowledged, and no flush since.
    wants_flush: bool,
    lines: Vec<String>,
}

impl Teller {
    fn new(block: u64) -> Self {
        Self { block, writes: Vec::new(), wants_flush: false, lines: Vec::new() }
    }

    fn hear(&mut self, entry: Entry) {
        match entry {
            Entry::Opened { .. } => self.lines.push("a writer begins".to_owned()),
            Entry::Hooked => self.lines.push("the cut hook is about to run".to_owned()),
            Entry::Cut { .. } => self.lines.push("the writer is gone".to_owned()),
            Entry::Events { at_ms, events } => {
                for event in events {
                    if let Some(line) = self.told(event) {
                        let (second, ms) = (at_ms / 1000 % 86_400, at_ms % 1000);
                        let (hour, minute) = (second / 3600, second / 60 % 60);
                        let second = second % 60;
                        let line = format!("{hour:02}:{minute:02}:{second:02}.{ms:03} {line}");
                        self.lines.push(line);
                    }
                }
            }
        }
        if self.lines.len() > 4 * STORY_LINES_MAX {
            self.lines.drain(..2 * STORY_LINES_MAX);
        }
    }

    fn told(&mut self, event: Event) -> Option<String> {
        match event {
            Event::Announced { sequence, block, blocks } => {
                let is_here = (block..block + blocks).contains(&self.block);
                is_here.then(|| self.writes.push(sequence));
                is_here.then(|| format!("write {sequence} is announced"))
            }
            Event::Begun { sequence } => self.about(sequence, "begins"),
            Event::Acknowledged { sequence } => {
                let line = self.about(sequence, "is acknowledged");
                self.wants_flush |= line.is_some();
                line
            }
            Event::Stable { sequence } => self.about(sequence, "is acknowledged as stable"),
            Event::Failed { sequence } => self.about(sequence, "fails"),
            Event::FlushBegun if self.wants_flush => Some("a flush begins".to_owned()),
            Event::FlushAcknowledged if self.wants_flush => {
                // It may have begun before the write was acknowledged: the next one is told, too.
                let has_begun = self.lines.last().is_some_and(|line| line.contains("flush begins"));
                self.wants_flush = !has_begun;
                Some("the flush is acknowledged".to_owned())
            }
            Event::FlushFailed => Some("a flush fails".to_owned()),
            Event::Ended => Some("the writer ends in order".to_owned()),
            Event::FlushBegun | Event::FlushAcknowledged => None,
        }
    }

    fn about(&self, sequence: u64, what: &str) -> Option<String> {
        self.writes.contains(&sequence).then(|| format!("write {sequence} {what}"))
    }

    fn lines(mut self) -> Vec<String> {
        let from = self.lines.len().saturating_sub(STORY_LINES_MAX);
        self.lines.split_off(from)
    }
}
