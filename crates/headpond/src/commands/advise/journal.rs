//! What was advised and set on a volume while it was served: one JSON object a line.

use crate::telling::{document, print_json};
use anyhow::{Context, Result};
use headpond_advise::live::Event;
use headpond_api::answers::Versioned;
use headpond_api::outcome::{Exit, Failure};
use headpond_api::place::Places;
use headpond_daemon::wall_clock::utc;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Stores events, and prints them as they occur.
pub struct Journal {
    path: PathBuf,
    file: File,
    as_json: bool,
}

/// An event and when it was.
#[derive(Serialize, Deserialize)]
pub struct Entry {
    pub time: String,
    #[serde(flatten)]
    pub event: Event,
}

impl Journal {
    /// # Errors
    /// Where it cannot be written.
    pub fn open(path: PathBuf, as_json: bool) -> Result<Self> {
        let open = || {
            let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                return Ok(None);
            }
            // The last line may be incomplete after a power cut.
            if std::fs::read(&path)?.last().is_some_and(|last| *last != b'\n') {
                file.write_all(b"\n")?;
            }
            Ok::<_, std::io::Error>(Some(file))
        };
        let file = open().with_context(|| format!("cannot write {}", path.display()))?;
        let file = file.ok_or_else(|| {
            let path = path.display();
            Failure::refused(format!(
                "another `headpond advise --live` watches this volume and writes {path}: stop it \
                 first"
            ))
        })?;
        Ok(Self { path, file, as_json })
    }

    /// Stores and prints an event.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn note(&mut self, event: Event) -> Result<()> {
        let entry = Entry { time: utc(SystemTime::now()), event };
        let line = serde_json::to_string(&entry)?;
        let written = writeln!(self.file, "{line}").and_then(|()| self.file.sync_data());
        written.with_context(|| format!("cannot write {}", self.path.display()))?;
        if self.as_json {
            document(&(serde_json::to_string(&Versioned::new(&entry))? + "\n"));
        } else {
            println!("{}", told(&entry));
        }
        Ok(())
    }

    /// The last settings on trial without a verdict, and how to roll them back.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub fn left_on_trial(&self) -> Result<Option<(Vec<String>, Vec<String>)>> {
        let mut left = None;
        for entry in read(&self.path)? {
            match entry.event {
                Event::Applied { settings, back } => left = Some((settings, back)),
                Event::Kept { .. } | Event::RolledBack { .. } => left = None,
                _ => {}
            }
        }
        Ok(left)
    }
}

/// Shows the journal of a volume.
///
/// # Errors
/// Where there is no such volume, or its journal cannot be read.
pub fn show(places: &Places, name: &str, as_json: bool) -> Result<Exit> {
    places.load(name)?;
    let entries = read(&places.journal(name))?;
    if as_json {
        print_json(&entries.iter().map(Versioned::new).collect::<Vec<_>>())?;
        return Ok(Exit::Ok);
    }
    if entries.is_empty() {
        println!("no advice on {name} yet: run `headpond advise --live {name}`");
    }
    entries.iter().for_each(|entry| println!("{}", told(entry)));
    Ok(Exit::Ok)
}

fn told(entry: &Entry) -> String {
    format!("{}  {}", entry.time, entry.event)
}

/// All entries, without an incomplete last line.
fn read(path: &Path) -> Result<Vec<Entry>> {
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        text => text.with_context(|| format!("cannot read {}", path.display()))?,
    };
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}
