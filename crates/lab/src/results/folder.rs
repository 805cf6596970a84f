//! The folder that results are in: the plan, the surroundings, and one line for each round.

use crate::plan::{Plan, PlanError};
use crate::statistics::Drift;
use headpond_whatif::rounds::Round;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

const PLAN: &str = "plan.toml";
const ROUNDS: &str = "rounds.jsonl";
const ENVIRONMENT: &str = "environment.json";
const RAW: &str = "raw";
/// How long a lock is waited for that somebody else has, and how often it is tried.
const LOCK_WAIT: Duration = Duration::from_secs(1);
const LOCK_TRIES: u32 = 20;

/// A folder of results.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    rounds: File,
}

/// One line of the rounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "kebab-case")]
pub enum Line {
    /// A cell begins; earlier lines of it count no more.
    Begun {
        cell: usize,
        title: String,
    },
    Round {
        cell: usize,
        number: u32,
        /// Whether it is no warm-up.
        counts: bool,
        round: Box<Round>,
    },
    Done {
        cell: usize,
        ending: Ending,
    },
}

/// How a cell ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// As many rounds as were asked for.
    Complete,
    /// With the drift of its last rounds.
    Steady { drift: Drift },
    /// No steady state within the rounds that were allowed.
    NotSteady { drift: Option<Drift> },
    /// With fewer rounds than were asked for, because of a limit.
    Cut { why: String },
    /// Not measured, and why.
    LeftOut { why: String },
    /// It could not be measured; it is tried again when the plan goes on.
    Failed { why: String },
}

/// A folder that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error("{path}: {error}")]
    Io { path: PathBuf, error: io::Error },
    #[error("{path} holds results already; go on with `lab resume`, or name another folder")]
    Occupied { path: PathBuf },
    #[error("{path} holds no results: there is no {PLAN} in it")]
    Empty { path: PathBuf },
    #[error("{path} is being measured into by another run")]
    Busy { path: PathBuf },
    #[error("{path}: the plan is not the one that was measured: {title:?} is not at its place")]
    Changed { path: PathBuf, title: String },
    #[error("{path}, line {line}: {error}")]
    Line { path: PathBuf, line: usize, error: serde_json::Error },
    #[error("{path}: {error}")]
    Plan { path: PathBuf, error: Box<PlanError> },
}

impl Folder {
    /// Makes a folder for a plan.
    ///
    /// # Errors
    /// Where it holds results already or cannot be made.
    pub fn create(path: &Path, plan: &Plan) -> Result<Self, FolderError> {
        if path.join(PLAN).exists() {
            return Err(FolderError::Occupied { path: path.to_owned() });
        }
        let io = |error| FolderError::Io { path: path.to_owned(), error };
        fs::create_dir_all(path.join(RAW)).map_err(io)?;
        let text = toml::to_string_pretty(plan).expect("a plan is TOML");
        fs::write(path.join(PLAN), text).map_err(io)?;
        Self::open(path)
    }

    /// Opens a folder to go on in it.
    ///
    /// # Errors
    /// Where it is none, or cannot be written to.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        let file = path.join(ROUNDS);
        let io = |error| FolderError::Io { path: file.clone(), error };
        let rounds = OpenOptions::new().create(true).append(true).open(&file).map_err(io)?;
        if !is_locked_soon(&rounds) {
            return Err(FolderError::Busy { path: path.to_owned() });
        }
        end_last_line(&file).map_err(io)?;
        Ok(Self { path: path.to_owned(), rounds })
    }

    /// The plan of a folder.
    ///
    /// # Errors
    /// Where there is none, or it cannot be read.
    pub fn plan(path: &Path) -> Result<Plan, FolderError> {
        let file = path.join(PLAN);
        if !file.exists() {
            return Err(FolderError::Empty { path: path.to_owned() });
        }
        let text = fs::read_to_string(&file)
            .map_err(|error| FolderError::Io { path: file.clone(), error })?;
        Plan::parse(&text).map_err(|error| FolderError::Plan { path: file, error: Box::new(error) })
    }

    /// All lines of a folder, the last one left out where it was cut off.
    ///
    /// # Errors
    /// Where it cannot be read, or another line is none.
    pub fn lines(path: &Path) -> Result<Vec<Line>, FolderError> {
        let path = path.join(ROUNDS);
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            opened => opened.map_err(|error| FolderError::Io { path: path.clone(), error })?,
        };
        let texts: Result<Vec<_>, _> = BufReader::new(file).lines().collect();
        let texts = texts.map_err(|error| FolderError::Io { path: path.clone(), error })?;
        let count = texts.len();
        let mut lines = Vec::with_capacity(count);
        for (index, text) in texts.iter().enumerate() {
            match serde_json::from_str(text) {
                Ok(line) => lines.push(line),
                // An interruption cuts the line that was being written, and nothing else.
                Err(error) if error.is_eof() => {}
                Err(error) => return Err(FolderError::Line { path, line: index + 1, error }),
            }
        }
        Ok(lines)
    }

    /// The cells of a folder that are done.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub fn done(path: &Path) -> Result<BTreeSet<usize>, FolderError> {
        Ok(done(&Self::lines(path)?))
    }

    /// What was known of the surroundings when it was measured.
    pub fn environment(path: &Path) -> Option<serde_json::Value> {
        let text = fs::read_to_string(path.join(ENVIRONMENT)).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Stores what is known of the surroundings when it begins.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn store_environment(&self, environment: &impl Serialize) -> Result<(), FolderError> {
        let path = self.path.join(ENVIRONMENT);
        if path.exists() {
            return Ok(());
        }
        let text = serde_json::to_string_pretty(environment).expect("it is plain data");
        fs::write(&path, text).map_err(|error| FolderError::Io { path, error })
    }

    /// Stores a line, for good.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn push(&mut self, line: &Line) -> Result<(), FolderError> {
        let mut text = serde_json::to_string(line).expect("it is plain data");
        text.push('\n');
        let written = self.rounds.write_all(text.as_bytes()).and_then(|()| self.rounds.sync_data());
        written.map_err(|error| FolderError::Io { path: self.path.join(ROUNDS), error })
    }

    /// Where what other programs said is kept.
    pub fn raw(&self) -> PathBuf {
        self.path.join(RAW)
    }
}

/// The cells that are done; what failed is not.
pub(crate) fn done(lines: &[Line]) -> BTreeSet<usize> {
    let done = lines.iter().filter_map(|line| match line {
        Line::Done { ending: Ending::Failed { .. }, .. } => None,
        Line::Done { cell, .. } => Some(*cell),
        _ => None,
    });
    done.collect()
}

/// A program that is being started has what its parent had open, and so the lock, for a moment
/// more.
fn is_locked_soon(file: &File) -> bool {
    let is_locked = || {
        let is_locked = file.try_lock().is_ok();
        if !is_locked {
            thread::sleep(LOCK_WAIT / LOCK_TRIES);
        }
        is_locked
    };
    (0..LOCK_TRIES).any(|_| is_locked())
}

/// What comes next begins a line of its own, even where the last one was cut off.
fn end_last_line(path: &Path) -> io::Result<()> {
    let text = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        text => text?,
    };
    if text.last().is_none_or(|&last| last == b'\n') {
        return Ok(());
    }
    OpenOptions::new().append(true).open(path)?.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_cut_off_is_no_line_and_the_next_one_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let plan = crate::plan::Plan::parse(crate::builtin::text("mixed").unwrap()).unwrap();
        let mut first = Folder::create(folder.path(), &plan).unwrap();
        first.push(&Line::Begun { cell: 1, title: String::new() }).unwrap();
        let busy = Folder::open(folder.path()).unwrap_err().to_string();
        assert!(busy.contains("another run"), "{busy}");
        drop(first);
        let file = folder.path().join(ROUNDS);
        let mut rounds = OpenOptions::new().append(true).open(file).unwrap();
        rounds.write_all(b"{\"line\":\"begun\",\"ce").unwrap();
        let mut second = Folder::open(folder.path()).unwrap();
        second.push(&Line::Begun { cell: 2, title: String::new() }).unwrap();
        let cells = Folder::lines(folder.path()).unwrap().into_iter().map(|line| match line {
            Line::Begun { cell, .. } => cell,
            other => panic!("{other:?}"),
        });
        assert_eq!(cells.collect::<Vec<_>>(), [1, 2]);
        let error = Folder::create(folder.path(), &plan).unwrap_err().to_string();
        assert!(error.contains("lab resume"), "{error}");
    }
}
