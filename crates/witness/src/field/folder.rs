//! What a witness keeps of one device on its own disk: a snapshot of the book, a log of what came
//! since, and the rulings.
//!
//! 1. [`Folder::open`] reads the snapshot and the entries behind it.
//! 2. [`Folder::append`] adds entries; [`Folder::sync`] makes them durable, and only then does
//!    anybody hear that they are stored.
//! 3. [`Folder::replace`] writes a new snapshot and begins an empty log: at the latest when the log
//!    has [`LOG_BYTES_MAX`], so that it never grows without bound. The log before is kept until the
//!    next one is replaced: nothing is ruled on it, but stories are told from it.
//!
//! **Invariants**: a log belongs to the snapshot of its generation; of an older one everything is
//! in the snapshot. An end of the log that was never confirmed may be torn and is cut off; damage
//! before that is an error, because promises could be missing.

use super::codec::Reader;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The length at which a log is replaced by a snapshot.
pub const LOG_BYTES_MAX: u64 = 16 << 20;
const SNAPSHOT_MAGIC: &[u8; 8] = b"HPWITSS1";
const LOG_MAGIC: &[u8; 8] = b"HPWITLG1";
const ENTRY_MAGIC: &[u8; 4] = b"HPWE";
const FILE_HEADER_BYTES: usize = 16;
const ENTRY_HEADER_BYTES: usize = 12;
/// A frame of reports with its time.
const ENTRY_BYTES_MAX: u32 = 128 << 10;

/// The files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: is no file of a witness, or one of another version", .0.display())]
    Foreign(PathBuf),
    #[error(
        "{}: the log is damaged at byte {at}, before entries that are whole: what the device has \
         promised could be missing, so nothing is ruled on it. Restore the file, or begin anew",
        path.display()
    )]
    Damaged { path: PathBuf, at: u64 },
}

/// What was found when a folder was opened.
pub struct OpenedFolder {
    pub snapshot: Vec<u8>,
    pub entries: Vec<Vec<u8>>,
}

/// The files of one device.
pub struct Folder {
    path: PathBuf,
    log: File,
    log_bytes: u64,
    generation: u64,
}

impl Folder {
    /// Makes the folder of a device that is new, or begins anew.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn create(path: &Path, snapshot: &[u8]) -> Result<Self, FolderError> {
        let error = |source| FolderError::Io { path: path.to_owned(), source };
        fs::create_dir_all(path).map_err(error)?;
        let generation = match read_snapshot(path) {
            Ok(Some((generation, _))) => generation,
            Ok(None) | Err(FolderError::Foreign(_)) => 0,
            Err(error) => return Err(error),
        };
        // Its numbers would be mistaken for those of the device that begins anew.
        for name in ["log", LOG_BEFORE] {
            remove(&path.join(name)).map_err(error)?;
        }
        let log = write_both(path, generation + 1, snapshot).map_err(error)?;
        let (path, log_bytes) = (path.to_owned(), FILE_HEADER_BYTES as u64);
        Ok(Self { path, log, log_bytes, generation: generation + 1 })
    }

    /// Opens the folder of a device that is known; `None` where it is not.
    ///
    /// # Errors
    /// Where it cannot be read, or is damaged.
    pub fn open(path: &Path) -> Result<Option<(Self, OpenedFolder)>, FolderError> {
        let error = |source| FolderError::Io { path: path.to_owned(), source };
        let Some((generation, snapshot)) = read_snapshot(path)? else { return Ok(None) };
        let log_path = path.join("log");
        let log = OpenOptions::new().read(true).write(true).open(&log_path);
        let found = match log {
            Ok(mut log) => read_log(&log_path, &mut log, generation)?.map(|found| (log, found)),
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(FolderError::Io { path: log_path, source }),
        };
        let (log, log_bytes, entries) = match found {
            Some((log, (log_bytes, entries))) => (log, log_bytes, entries),
            // The snapshot was renamed, and the log of the time before is still there.
            None => (begin_log(path, generation).map_err(error)?, FILE_HEADER_BYTES as u64, vec![]),
        };
        log.set_len(log_bytes).and_then(|()| log.sync_all()).map_err(error)?;
        let folder = Self { path: path.to_owned(), log, log_bytes, generation };
        Ok(Some((folder, OpenedFolder { snapshot, entries })))
    }

    /// Adds an entry, which is durable after [`Self::sync`].
    ///
    /// # Errors
    /// Where the disk of the witness fails; nothing may be confirmed any more.
    ///
    /// # Panics
    /// Where the entry is longer than any that is made.
    pub fn append(&mut self, entry: &[u8]) -> io::Result<()> {
        assert!(entry.len() <= ENTRY_BYTES_MAX as usize, "an entry of {} bytes", entry.len());
        let mut frame = Vec::with_capacity(ENTRY_HEADER_BYTES + entry.len());
        frame.extend(ENTRY_MAGIC);
        frame.extend((entry.len() as u32).to_le_bytes());
        frame.extend(crc_fast::crc32_iscsi(entry).to_le_bytes());
        frame.extend(entry);
        self.log.seek(SeekFrom::Start(self.log_bytes))?;
        self.log.write_all(&frame)?;
        self.log_bytes += frame.len() as u64;
        Ok(())
    }

    /// # Errors
    /// As [`Self::append`].
    pub fn sync(&mut self) -> io::Result<()> {
        self.log.sync_data()
    }

    pub fn is_full(&self) -> bool {
        self.log_bytes >= LOG_BYTES_MAX
    }

    /// Puts a snapshot in the place of the former one and of everything in the log.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub fn replace(&mut self, snapshot: &[u8]) -> io::Result<()> {
        self.log = write_both(&self.path, self.generation + 1, snapshot)?;
        self.generation += 1;
        self.log_bytes = FILE_HEADER_BYTES as u64;
        Ok(())
    }

    /// The entries since the last snapshot.
    ///
    /// # Errors
    /// Where they cannot be read.
    pub fn entries(&mut self) -> Result<Vec<Vec<u8>>, FolderError> {
        let found = read_log(&self.path.join("log"), &mut self.log, self.generation)?;
        Ok(found.map(|(_, entries)| entries).unwrap_or_default())
    }

    /// The entries of the log before, as far as they are whole: a story, and no evidence.
    pub fn entries_before(&self) -> Vec<Vec<u8>> {
        let bytes = fs::read(self.path.join(LOG_BEFORE)).unwrap_or_default();
        match bytes.starts_with(LOG_MAGIC) {
            true => whole_entries(&bytes),
            false => Vec::new(),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a line to the rulings, durably.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub fn keep_ruling(&mut self, line: &str) -> io::Result<()> {
        let path = self.path.join(RULINGS);
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        file.write_all(format!("{line}\n").as_bytes())?;
        file.sync_all()?;
        File::open(&self.path)?.sync_all()
    }
}

/// The file of the rulings in a folder, one JSON text a line.
pub const RULINGS: &str = "rulings.jsonl";

/// The log that was replaced last.
const LOG_BEFORE: &str = "log.before";

/// Writes snapshot and log of a generation, the snapshot first.
fn write_both(path: &Path, generation: u64, snapshot: &[u8]) -> io::Result<File> {
    let mut bytes = [&SNAPSHOT_MAGIC[..], &generation.to_le_bytes()].concat();
    bytes.extend(snapshot);
    drop(write_new(path, "snapshot", &bytes)?);
    begin_log(path, generation)
}

/// Begins an empty log; the one that is there is kept beside it, unless it tells nothing.
fn begin_log(path: &Path, generation: u64) -> io::Result<File> {
    let log = path.join("log");
    let tells = log.metadata().is_ok_and(|meta| meta.len() > FILE_HEADER_BYTES as u64);
    if tells {
        fs::rename(&log, path.join(LOG_BEFORE))?;
    }
    write_new(path, "log", &[&LOG_MAGIC[..], &generation.to_le_bytes()].concat())
}

/// Replaces a file by another, durably.
fn write_new(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<File> {
    let (new, path) = (folder.join(format!("{name}.new")), folder.join(name));
    let mut options = OpenOptions::new();
    let mut file = options.create(true).truncate(true).read(true).write(true).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, &path)?;
    File::open(folder)?.sync_all()?;
    Ok(file)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn read_snapshot(folder: &Path) -> Result<Option<(u64, Vec<u8>)>, FolderError> {
    let path = folder.join("snapshot");
    let mut bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(FolderError::Io { path, source }),
    };
    if bytes.len() < FILE_HEADER_BYTES || !bytes.starts_with(SNAPSHOT_MAGIC) {
        return Err(FolderError::Foreign(path));
    }
    let generation = u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes"));
    bytes.drain(..FILE_HEADER_BYTES);
    Ok(Some((generation, bytes)))
}

/// How long the whole part of a log is, and its entries; `None` where it is of another generation.
type LogTail = Option<(u64, Vec<Vec<u8>>)>;

fn read_log(path: &Path, log: &mut File, generation: u64) -> Result<LogTail, FolderError> {
    let mut bytes = Vec::new();
    let read = log.seek(SeekFrom::Start(0)).and_then(|_| log.read_to_end(&mut bytes));
    read.map_err(|source| FolderError::Io { path: path.to_owned(), source })?;
    let own = [&LOG_MAGIC[..], &generation.to_le_bytes()].concat();
    if !bytes.starts_with(&own) {
        return Ok(None);
    }
    let entries = whole_entries(&bytes);
    let lengths = entries.iter().map(|entry| ENTRY_HEADER_BYTES + entry.len());
    let at = FILE_HEADER_BYTES + lengths.sum::<usize>();
    match (at + 1..bytes.len()).any(|later| entry_at(&bytes, later).is_some()) {
        true => Err(FolderError::Damaged { path: path.to_owned(), at: at as u64 }),
        false => Ok(Some((at as u64, entries))),
    }
}

/// The entries of a log up to the first that is not whole.
fn whole_entries(bytes: &[u8]) -> Vec<Vec<u8>> {
    let (mut at, mut entries) = (FILE_HEADER_BYTES, Vec::new());
    while let Some(entry) = entry_at(bytes, at) {
        at += ENTRY_HEADER_BYTES + entry.len();
        entries.push(entry.to_vec());
    }
    entries
}

/// The whole entry that begins at a byte.
fn entry_at(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let mut reader = Reader::new(bytes.get(at..)?.strip_prefix(ENTRY_MAGIC)?);
    let len = reader.u32().ok().filter(|len| *len <= ENTRY_BYTES_MAX)?;
    let sum = reader.u32().ok()?;
    let entry = reader.bytes(len as usize).ok()?;
    (crc_fast::crc32_iscsi(entry) == sum).then_some(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reopen(path: &Path) -> (Folder, OpenedFolder) {
        Folder::open(path).unwrap().expect("it is known")
    }

    #[test]
    fn entries_survive_and_a_torn_end_is_cut_off() {
        let dir = headpond_testkit::tempdir();
        let mut folder = Folder::create(dir.path(), b"first").unwrap();
        for entry in [b"one", b"two"] {
            folder.append(entry).unwrap();
        }
        folder.sync().unwrap();
        let log = dir.path().join("log");
        let whole = fs::read(&log).unwrap();
        for cut in 1..15 {
            fs::write(&log, &whole[..whole.len() - cut]).unwrap();
            let (mut folder, kept) = reopen(dir.path());
            assert_eq!((kept.snapshot, kept.entries), (b"first".to_vec(), vec![b"one".to_vec()]));
            folder.append(b"three").unwrap();
            assert_eq!(reopen(dir.path()).1.entries, [b"one".to_vec(), b"three".to_vec()]);
        }
    }

    #[test]
    fn damage_before_whole_entries_is_an_error_and_no_end() {
        let dir = headpond_testkit::tempdir();
        let mut folder = Folder::create(dir.path(), b"first").unwrap();
        for entry in [b"one", b"two"] {
            folder.append(entry).unwrap();
        }
        let log = dir.path().join("log");
        let mut bytes = fs::read(&log).unwrap();
        bytes[FILE_HEADER_BYTES + ENTRY_HEADER_BYTES] ^= 1;
        fs::write(&log, bytes).unwrap();
        let opened = Folder::open(dir.path()).map(drop);
        assert!(matches!(opened, Err(FolderError::Damaged { at: 16, .. })), "{opened:?}");
    }

    #[test]
    fn a_log_of_the_time_before_the_snapshot_is_not_read_twice() {
        let dir = headpond_testkit::tempdir();
        let mut folder = Folder::create(dir.path(), b"first").unwrap();
        folder.append(b"one").unwrap();
        let old = fs::read(dir.path().join("log")).unwrap();
        folder.replace(b"second").unwrap();
        fs::write(dir.path().join("log"), old).unwrap();
        let (_, kept) = reopen(dir.path());
        assert_eq!((kept.snapshot, kept.entries), (b"second".to_vec(), vec![]));
    }

    #[test]
    fn one_log_before_is_kept_and_none_of_a_device_that_begins_anew() {
        let dir = headpond_testkit::tempdir();
        let mut folder = Folder::create(dir.path(), b"first").unwrap();
        for entry in [b"one", b"two"] {
            folder.append(entry).unwrap();
            folder.replace(b"next").unwrap();
            assert_eq!(folder.entries_before(), [entry.to_vec()]);
        }
        folder.replace(b"after nothing").unwrap();
        assert_eq!(
            folder.entries_before(),
            [b"two".to_vec()],
            "what tells nothing replaces nothing"
        );
        let path = dir.path().join(LOG_BEFORE);
        fs::write(&path, &fs::read(&path).unwrap()[..20]).unwrap();
        assert!(reopen(dir.path()).0.entries_before().is_empty(), "a torn one is no error");
        folder.append(b"three").unwrap();
        let anew = Folder::create(dir.path(), b"anew").unwrap();
        assert!(anew.entries_before().is_empty());
    }

    #[test]
    fn a_folder_that_nobody_made_is_not_known() {
        let dir = headpond_testkit::tempdir();
        assert!(Folder::open(dir.path()).unwrap().is_none());
        fs::write(dir.path().join("snapshot"), "something").unwrap();
        assert!(matches!(Folder::open(dir.path()), Err(FolderError::Foreign(_))));
    }
}
