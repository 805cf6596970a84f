//! Folders of descriptions and control sockets.
//!
//! Root has those of the system. Other users have their own, and see the volumes of the system as
//! well, where they may read them: a name means one volume for a user.

use crate::config::Config;
use crate::outcome::Failure;
use crate::readers::Readers;
use anyhow::{Context, Result, bail};
use headpond_volume::{Alert, Description, check_name};
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// Longest path that a Unix socket can have on Linux, in bytes.
const SOCKET_PATH_MAX: usize = 107;
/// Has the administrator's rules.
const UDEV: &str = "/etc/udev";

/// The folders of this user: persistent state, the run-time files of a daemon, and the executables
/// that it runs on events.
#[derive(Clone, Debug)]
pub struct Places {
    own: Folders,
    /// Of the system, for a user who has others.
    system: Option<Folders>,
    /// Of what is written here.
    readers: Readers,
    /// Whether the folders are ours, to be opened to the readers; else they are somebody's whose
    /// name was given.
    are_of_system: bool,
}

#[derive(Clone, Debug)]
struct Folders {
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
    /// Where the user has no home, and may not look at the system's volumes.
    pub fn find(config: &Config) -> Result<Self> {
        let found = Self::find_folders(config)?;
        match std::env::var_os("HEADPOND_EVENTS") {
            Some(folder) => Ok(found.with_scripts(folder.into())),
            None => Ok(found),
        }
    }

    fn find_folders(config: &Config) -> Result<Self> {
        let readers = match is_root() {
            true => Readers::of_group(&config.group),
            false => Readers::nobody(),
        };
        if let Some(state) = std::env::var_os("HEADPOND_STATE") {
            return Ok(Self { readers, ..Self::at(Path::new(&state)) });
        }
        let system = Folders {
            state: config.state_folder.clone(),
            run: config.run_folder.clone(),
            scripts: config.events_folder.clone(),
        };
        if is_root() {
            return Ok(Self { own: system, system: None, readers, are_of_system: true });
        }
        match Folders::of_user() {
            // Such as an agent that watches volumes.
            Err(_) if fs::read_dir(&system.state).is_ok() => Ok(Self::of(system)),
            own => Ok(Self { system: Some(system), ..Self::of(own?) }),
        }
    }

    /// All in one folder.
    pub fn at(folder: &Path) -> Self {
        Self::of(Folders::at(folder))
    }

    fn of(own: Folders) -> Self {
        Self { own, system: None, readers: Readers::nobody(), are_of_system: false }
    }

    fn with_scripts(mut self, folder: PathBuf) -> Self {
        self.own.scripts = folder;
        self
    }

    /// Who may look beside the owner.
    pub fn readers(&self) -> Readers {
        self.readers
    }

    /// The folders that a volume is in: the user's own, unless only the system has it.
    fn of_volume(&self, name: &str) -> &Folders {
        let has = |folders: &Folders| folders.description(name).exists();
        match &self.system {
            Some(system) if !has(&self.own) && has(system) => system,
            _ => &self.own,
        }
    }

    /// Lets the readers look at a volume: at what is there of it, and from now on.
    ///
    /// # Errors
    /// The first file that cannot be given to them.
    pub fn open_to_readers(&self, name: &str) -> Result<()> {
        let open = |path: &Path| match fs::File::open(path) {
            Ok(file) => self.readers.open_file(&file),
            Err(_) => Ok(()),
        };
        let told = |path: &Path| format!("{}", path.display());
        let files = [self.description(name), self.left_file(name), self.refused(name)];
        for path in files.into_iter().chain(self.events(name)) {
            open(&path).with_context(|| told(&path))?;
        }
        let folders = [&self.own.state, &self.own.run].into_iter().filter(|_| self.are_of_system);
        for folder in folders {
            self.readers.open_folder(folder).with_context(|| told(folder))?;
        }
        Ok(())
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
        let path = self.description(&description.name);
        self.write_for_readers(&path, description.to_toml().as_bytes())
    }

    /// Checks in advance that a description can be written.
    ///
    /// # Errors
    /// Where the folder cannot be written.
    pub fn check_writable(&self) -> Result<()> {
        let try_it = || {
            self.make_folder(&self.own.state)?;
            tempfile::NamedTempFile::new_in(&self.own.state)
        };
        try_it().map(drop).with_context(|| {
            format!(
                "cannot write to {}, where descriptions of volumes are kept",
                self.own.state.display()
            )
        })
    }

    /// A file of its owner's.
    fn write(&self, path: &Path, text: &[u8]) -> Result<()> {
        self.write_with(path, text, |_| {})
    }

    /// A file that the readers may read.
    fn write_for_readers(&self, path: &Path, text: &[u8]) -> Result<()> {
        // One that is for the owner alone is better than none.
        self.write_with(path, text, |file| drop(self.readers.open_file(file)))
    }

    fn write_with(&self, path: &Path, text: &[u8], prepare: impl Fn(&fs::File)) -> Result<()> {
        let save = || -> Result<()> {
            let folder = path.parent().context("a file is in a folder")?;
            self.make_folder(folder)?;
            let file = tempfile::NamedTempFile::new_in(folder)?;
            fs::write(file.path(), text)?;
            prepare(file.as_file());
            file.as_file().sync_all()?;
            file.persist(path)?;
            Ok(fs::File::open(folder)?.sync_all()?)
        };
        save().with_context(|| format!("cannot write {}", path.display()))
    }

    /// Creates a folder, where it is missing; the readers may list it.
    fn make_folder(&self, folder: &Path) -> std::io::Result<()> {
        if folder.is_dir() {
            return Ok(());
        }
        fs::create_dir_all(folder)?;
        if self.are_of_system {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o750))?;
            // Without it, only root looks.
            let _ = self.readers.open_folder(folder);
        }
        Ok(())
    }

    /// # Errors
    /// Where the file cannot be removed.
    pub fn forget(&self, name: &str) -> Result<()> {
        let path = self.description(name);
        self.forget_refusal(name);
        self.remove(&self.left_file(name))?;
        let sockets = [self.control_socket(name), self.nbd_socket(name)].into_iter().flatten();
        let left = sockets.filter(|socket| is_left_socket(socket));
        let files =
            [self.journal(name), self.look(name), self.loading(name), self.attached_file(name)];
        for file in files.into_iter().chain(self.events(name)).chain(left) {
            // It may not exist.
            let _ = fs::remove_file(file);
        }
        self.remove(&self.head(name))?;
        fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))
    }

    /// Saves what `status` tells of a volume that was stopped.
    ///
    /// # Errors
    /// If it cannot be written; it is then unknown.
    pub fn note_left(&self, name: &str, left: &Left) -> Result<()> {
        self.write_for_readers(&self.left_file(name), &serde_json::to_vec(left)?)
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
            Ok(()) => path.parent().map_or(Ok(()), |folder| fs::File::open(folder)?.sync_all()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        };
        remove().with_context(|| format!("cannot remove {}", path.display()))
    }

    /// That its daemon acknowledges writes in its memory alone: there until the next start.
    pub fn memory_mark(&self, name: &str) -> PathBuf {
        self.of_volume(name).run.join(format!("{name}.memory"))
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
        self.of_volume(name).state.join(format!("{name}.left.json"))
    }

    /// What a volume has of an existing device that is its core, instead of a superblock on it.
    pub fn head(&self, name: &str) -> PathBuf {
        self.of_volume(name).state.join(format!("{name}.head"))
    }

    /// The same of a further core. No volume and no other core has this one, also when the core is
    /// a volume of its own.
    pub fn head_of_core(&self, volume: &str, core: &str, uuid: Uuid) -> PathBuf {
        let unique = uuid.as_fields().0;
        self.of_volume(volume).state.join(format!("{volume}@{core}-{unique:08x}.head"))
    }

    /// The rule for udev that keeps others off the existing device of this head, where this machine
    /// has such rules, and the volume is the system's.
    pub fn udev_rule(&self, head: &Path) -> Option<PathBuf> {
        let has_udev = self.are_of_system && Path::new(UDEV).is_dir();
        let name = head.file_stem().filter(|_| has_udev)?.to_str()?;
        Some(Path::new(UDEV).join(format!("rules.d/63-headpond-{name}.rules")))
    }

    /// Saves which devices of the kernel a served volume is.
    ///
    /// # Errors
    /// If it cannot be written; there must be no such device then.
    pub fn note_attached(&self, name: &str, kept: &impl Serialize) -> Result<()> {
        self.write(&self.attached_file(name), &serde_json::to_vec_pretty(kept)?)
    }

    /// What was saved of the devices of a volume, if anything.
    ///
    /// # Errors
    /// Where the file cannot be used.
    pub fn attached<T: serde::de::DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        read_json(&self.attached_file(name))
    }

    /// A boot ends all devices: in the run folder.
    fn attached_file(&self, name: &str) -> PathBuf {
        self.of_volume(name).run.join(format!("{name}.attached.json"))
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
        read_json(&self.drive(identity))
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
        self.own.state.join(format!("drive-{name}.json"))
    }

    /// The journal of advice and settings of a volume.
    pub fn journal(&self, name: &str) -> PathBuf {
        self.of_volume(name).state.join(format!("{name}.journal.jsonl"))
    }

    /// The files of the events of a volume: the newer one, and the older.
    pub fn events(&self, name: &str) -> [PathBuf; 2] {
        let state = &self.of_volume(name).state;
        ["events.jsonl", "events.old.jsonl"].map(|end| state.join(format!("{name}.{end}")))
    }

    /// The folder of the executables that run on each event.
    pub fn event_scripts(&self) -> &Path {
        &self.own.scripts
    }

    /// The file of a sample of a served volume's requests.
    pub fn look(&self, name: &str) -> PathBuf {
        self.of_volume(name).run.join(format!("{name}.look.hptrace"))
    }

    /// Saves why a volume was not opened, for `status`.
    pub fn note_refusal(&self, name: &str, alert: &Alert) {
        // The error is printed in any case.
        let _ = self.write_refusal(name, alert);
    }

    fn write_refusal(&self, name: &str, alert: &Alert) -> Result<()> {
        let path = self.refused(name);
        fs::write(&path, serde_json::to_vec(alert)?)?;
        Ok(self.readers.open_file(&fs::File::open(path)?)?)
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
        self.of_volume(name).state.join(format!("{name}.refused.json"))
    }

    /// The progress file of a daemon that is loading the volume.
    pub fn loading(&self, name: &str) -> PathBuf {
        self.of_volume(name).run.join(format!("{name}.loading.json"))
    }

    pub fn exists(&self, name: &str) -> bool {
        self.description(name).exists()
    }

    pub fn description(&self, name: &str) -> PathBuf {
        self.of_volume(name).description(name)
    }

    /// The folder of sockets, created if missing.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn make_run_folder(&self) -> Result<&Path> {
        let run = &self.own.run;
        self.make_folder(run).with_context(|| format!("cannot create {}", run.display()))?;
        Ok(run)
    }

    /// The control socket of volume `name`.
    ///
    /// # Errors
    /// Where its path would be longer than a Unix socket's may be.
    pub fn control_socket(&self, name: &str) -> Result<PathBuf> {
        checked_socket(self.of_volume(name).run.join(format!("{name}.control")))
    }

    /// The NBD socket of volume `name`, unless its description says otherwise.
    ///
    /// # Errors
    /// As [`Self::control_socket`].
    pub fn nbd_socket(&self, name: &str) -> Result<PathBuf> {
        checked_socket(self.of_volume(name).run.join(format!("{name}.sock")))
    }

    /// Names of all volumes that have a description here, also of the system's that may be read.
    pub fn names(&self) -> Vec<String> {
        let of_system = |system: &Folders| {
            let is_readable = |name: &String| fs::File::open(system.description(name)).is_ok();
            system.names().into_iter().filter(is_readable).collect()
        };
        let of_system: Vec<String> = self.system.as_ref().map(of_system).unwrap_or_default();
        let mut names: Vec<String> = self.own.names().into_iter().chain(of_system).collect();
        names.sort();
        names.dedup();
        names
    }

    fn known_names(&self) -> String {
        match self.names() {
            names if names.is_empty() => {
                format!(
                    " (none is described in {}); make one with `headpond create`",
                    self.own.state.display()
                )
            }
            names => format!("; there are: {}", names.join(", ")),
        }
    }
}

impl Folders {
    /// All in one.
    fn at(folder: &Path) -> Self {
        let scripts = folder.join("events.d");
        Self { state: folder.to_owned(), run: folder.to_owned(), scripts }
    }

    /// Of a user who is not root.
    fn of_user() -> Result<Self> {
        let of_variable = |name| std::env::var_os(name).map(PathBuf::from);
        let home = || of_variable("HOME").context("HOME is not set: set it, or HEADPOND_STATE");
        let state = match of_variable("XDG_STATE_HOME") {
            Some(folder) => folder,
            None => home()?.join(".local/state"),
        };
        let run = of_variable("XDG_RUNTIME_DIR").unwrap_or_else(|| state.clone());
        Ok(Self { run: run.join("headpond"), ..Self::at(&state.join("headpond")) })
    }

    fn description(&self, name: &str) -> PathBuf {
        self.state.join(format!("{name}.toml"))
    }

    fn names(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(&self.state) else { return Vec::new() };
        let name = |entry: fs::DirEntry| {
            entry.file_name().to_str()?.strip_suffix(".toml").map(str::to_owned)
        };
        entries.flatten().filter_map(name).collect()
    }
}

/// What a file has, if it is there.
fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    let read = || match fs::read(path) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(anyhow::Error::from(error)),
    };
    read().with_context(|| format!("cannot use {}", path.display()))
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
