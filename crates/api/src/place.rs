//! Folders of descriptions and control sockets.

use crate::outcome::Failure;
use anyhow::{Context, Result, bail};
use headpond_volume::{Alert, Description, check_name};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// Longest path that a Unix socket can have on Linux, in bytes.
const SOCKET_PATH_MAX: usize = 107;

/// The folders of this user: persistent state, the run-time files of a daemon, and the executables
/// that it runs on events.
#[derive(Clone, Debug)]
pub struct Places {
    state: PathBuf,
    run: PathBuf,
    scripts: PathBuf,
}

/// What is known of a volume that is not served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Left {
    /// In its cache, after a clean shutdown.
    pub dirty_bytes: Option<u64>,
    /// Of the volume, after any.
    pub size_bytes: Option<u64>,
}

impl Places {
    /// `HEADPOND_STATE` for all, where it is set; else the system's folders for root and the
    /// user's own for other users. `HEADPOND_EVENTS` is the folder of executables for events.
    ///
    /// # Errors
    /// Where the user has no home.
    pub fn find() -> Result<Self> {
        let found = Self::find_folders()?;
        let scripts = std::env::var_os("HEADPOND_EVENTS").map(PathBuf::from);
        Ok(Self { scripts: scripts.unwrap_or_else(|| found.scripts.clone()), ..found })
    }

    fn find_folders() -> Result<Self> {
        if let Some(state) = std::env::var_os("HEADPOND_STATE") {
            return Ok(Self::at(Path::new(&state)));
        }
        if is_root() {
            let (state, run) = ("/var/lib/headpond".into(), "/run/headpond".into());
            return Ok(Self { state, run, scripts: "/etc/headpond/events.d".into() });
        }
        let of_variable = |name| std::env::var_os(name).map(PathBuf::from);
        let home = || of_variable("HOME").context("HOME is not set: set it, or HEADPOND_STATE");
        let state = match of_variable("XDG_STATE_HOME") {
            Some(folder) => folder,
            None => home()?.join(".local/state"),
        };
        let run = of_variable("XDG_RUNTIME_DIR").unwrap_or_else(|| state.clone());
        Ok(Self { run: run.join("headpond"), ..Self::at(&state.join("headpond")) })
    }

    /// All in one folder.
    pub fn at(folder: &Path) -> Self {
        let scripts = folder.join("events.d");
        Self { state: folder.to_owned(), run: folder.to_owned(), scripts }
    }

    /// The description of volume `name`.
    ///
    /// # Errors
    /// If there is none, or it is invalid.
    pub fn load(&self, name: &str) -> Result<Description> {
        check_name(name).map_err(Failure::usage)?;
        let path = self.description(name);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let known = self.known_names();
                return Err(Failure::usage(format!("there is no volume {name}{known}")));
            }
            Err(error) => return Err(error).with_context(|| format!("{}", path.display())),
        };
        Description::parse(&text).with_context(|| format!("{}", path.display()))
    }

    /// Writes the description atomically.
    ///
    /// # Errors
    /// Where the folder cannot be written.
    pub fn save(&self, description: &Description) -> Result<()> {
        self.write(&self.description(&description.name), description.to_toml().as_bytes())
    }

    /// Checks in advance that a description can be written.
    ///
    /// # Errors
    /// Where the folder cannot be written.
    pub fn check_writable(&self) -> Result<()> {
        let try_it = || {
            fs::create_dir_all(&self.state)?;
            tempfile::NamedTempFile::new_in(&self.state)
        };
        try_it().map(drop).with_context(|| {
            format!(
                "cannot write to {}, where descriptions of volumes are kept",
                self.state.display()
            )
        })
    }

    fn write(&self, path: &Path, text: &[u8]) -> Result<()> {
        let save = || -> Result<()> {
            fs::create_dir_all(&self.state)?;
            let file = tempfile::NamedTempFile::new_in(&self.state)?;
            fs::write(file.path(), text)?;
            file.as_file().sync_all()?;
            file.persist(path)?;
            Ok(fs::File::open(&self.state)?.sync_all()?)
        };
        save().with_context(|| format!("cannot write {}", path.display()))
    }

    /// # Errors
    /// Where the file cannot be removed.
    pub fn forget(&self, name: &str) -> Result<()> {
        let path = self.description(name);
        self.forget_refusal(name);
        self.remove(&self.left_file(name))?;
        let sockets = [self.control_socket(name), self.nbd_socket(name)].into_iter().flatten();
        let left = sockets.filter(|socket| is_left_socket(socket));
        let files = [self.journal(name), self.look(name), self.loading(name)];
        for file in files.into_iter().chain(self.events(name)).chain(left) {
            // It may not exist.
            let _ = fs::remove_file(file);
        }
        fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))
    }

    /// Saves what `status` tells of a volume that was stopped.
    ///
    /// # Errors
    /// If it cannot be written; it is then unknown.
    pub fn note_left(&self, name: &str, left: &Left) -> Result<()> {
        self.write(&self.left_file(name), &serde_json::to_vec(left)?)
    }

    /// The volume is served from now on, so the saved amount of dirty data is stale.
    ///
    /// # Errors
    /// If that is not durable.
    pub fn forget_left(&self, name: &str) -> Result<()> {
        match self.left(name) {
            Left { size_bytes: Some(bytes), .. } => {
                self.note_left(name, &Left { dirty_bytes: None, size_bytes: Some(bytes) })
            }
            Left { size_bytes: None, .. } => self.remove(&self.left_file(name)),
        }
    }

    /// Removes a file durably, if it exists.
    fn remove(&self, path: &Path) -> Result<()> {
        let remove = || match fs::remove_file(path) {
            Ok(()) => fs::File::open(&self.state)?.sync_all(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        };
        remove().with_context(|| format!("cannot remove {}", path.display()))
    }

    /// What was saved of a volume that is not served.
    pub fn left(&self, name: &str) -> Left {
        let read = fs::read(self.left_file(name)).ok();
        read.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    /// Bytes of dirty data of a volume that is not served; known after a clean shutdown only.
    pub fn left_dirty_bytes(&self, name: &str) -> Option<u64> {
        self.left(name).dirty_bytes
    }

    /// Whether a daemon has left its control socket, which it removes when it ends by itself.
    pub fn has_left_socket(&self, name: &str) -> bool {
        self.control_socket(name).is_ok_and(|socket| is_left_socket(&socket))
    }

    fn left_file(&self, name: &str) -> PathBuf {
        self.state.join(format!("{name}.left.json"))
    }

    /// Saves a drive's state before it is set.
    ///
    /// # Errors
    /// If it cannot be written; the drive must not be changed then.
    pub fn note_drive(&self, identity: &str, before: &impl serde::Serialize) -> Result<()> {
        self.write(&self.drive(identity), &serde_json::to_vec_pretty(before)?)
    }

    /// A drive's saved state, if it was set.
    ///
    /// # Errors
    /// Where the file cannot be used.
    pub fn drive_before<T: serde::de::DeserializeOwned>(
        &self,
        identity: &str,
    ) -> Result<Option<T>> {
        let path = self.drive(identity);
        let read = || match fs::read(&path) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(anyhow::Error::from(error)),
        };
        read().with_context(|| format!("cannot use {}", path.display()))
    }

    /// The drive is in its original state.
    ///
    /// # Errors
    /// If the removal is not durable.
    pub fn forget_drive(&self, identity: &str) -> Result<()> {
        self.remove(&self.drive(identity))
    }

    /// A file for each drive; no identity names a folder, or another drive's file.
    fn drive(&self, identity: &str) -> PathBuf {
        let kept = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let escape = |c: char| match kept(c) {
            true => c.to_string(),
            false => format!("%{:x}", u32::from(c)),
        };
        let name: String = identity.chars().map(escape).collect();
        self.state.join(format!("drive-{name}.json"))
    }

    /// The journal of advice and settings of a volume.
    pub fn journal(&self, name: &str) -> PathBuf {
        self.state.join(format!("{name}.journal.jsonl"))
    }

    /// The files of the events of a volume: the newer one, and the older.
    pub fn events(&self, name: &str) -> [PathBuf; 2] {
        ["events.jsonl", "events.old.jsonl"].map(|end| self.state.join(format!("{name}.{end}")))
    }

    /// The folder of the executables that run on each event.
    pub fn event_scripts(&self) -> &Path {
        &self.scripts
    }

    /// The file of a sample of a served volume's requests.
    pub fn look(&self, name: &str) -> PathBuf {
        self.run.join(format!("{name}.look.hptrace"))
    }

    /// Saves why a volume was not opened, for `status`.
    pub fn note_refusal(&self, name: &str, alert: &Alert) {
        // The error is printed in any case.
        let _ = serde_json::to_vec(alert).map(|text| fs::write(self.refused(name), text));
    }

    /// It was opened since, or destroyed.
    pub fn forget_refusal(&self, name: &str) {
        // It may not exist.
        let _ = fs::remove_file(self.refused(name));
    }

    /// Why the last start was refused, if it was.
    pub fn refusal(&self, name: &str) -> Option<Alert> {
        serde_json::from_slice(&fs::read(self.refused(name)).ok()?).ok()
    }

    fn refused(&self, name: &str) -> PathBuf {
        self.state.join(format!("{name}.refused.json"))
    }

    /// The progress file of a daemon that is loading the volume.
    pub fn loading(&self, name: &str) -> PathBuf {
        self.run.join(format!("{name}.loading.json"))
    }

    pub fn exists(&self, name: &str) -> bool {
        self.description(name).exists()
    }

    pub fn description(&self, name: &str) -> PathBuf {
        self.state.join(format!("{name}.toml"))
    }

    /// The folder of sockets, created if missing.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn make_run_folder(&self) -> Result<&Path> {
        fs::create_dir_all(&self.run)
            .with_context(|| format!("cannot create {}", self.run.display()))?;
        Ok(&self.run)
    }

    /// The control socket of volume `name`.
    ///
    /// # Errors
    /// Where its path would be longer than a Unix socket's may be.
    pub fn control_socket(&self, name: &str) -> Result<PathBuf> {
        checked_socket(self.run.join(format!("{name}.control")))
    }

    /// The NBD socket of volume `name`, unless its description says otherwise.
    ///
    /// # Errors
    /// As [`Self::control_socket`].
    pub fn nbd_socket(&self, name: &str) -> Result<PathBuf> {
        checked_socket(self.run.join(format!("{name}.sock")))
    }

    /// Names of all volumes that have a description here.
    pub fn names(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(&self.state) else { return Vec::new() };
        let name = |entry: fs::DirEntry| {
            entry.file_name().to_str()?.strip_suffix(".toml").map(str::to_owned)
        };
        let mut names: Vec<String> = entries.flatten().filter_map(name).collect();
        names.sort();
        names
    }

    fn known_names(&self) -> String {
        match self.names() {
            names if names.is_empty() => {
                format!(
                    " (none is described in {}); make one with `headpond create`",
                    self.state.display()
                )
            }
            names => format!("; there are: {}", names.join(", ")),
        }
    }
}

/// Whether a socket file is there that no process listens at.
fn is_left_socket(path: &Path) -> bool {
    let connected = std::os::unix::net::UnixStream::connect(path);
    connected.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
}

pub fn checked_socket(path: PathBuf) -> Result<PathBuf> {
    let bytes = path.as_os_str().len();
    if bytes > SOCKET_PATH_MAX {
        bail!(
            "{} is too long for a Unix socket ({bytes} bytes, at most {SOCKET_PATH_MAX}): set \
             HEADPOND_STATE to a shorter folder",
            path.display()
        );
    }
    Ok(path)
}

pub fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}
