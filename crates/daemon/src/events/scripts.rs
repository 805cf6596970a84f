//! Executables of the administrator that run on each event.
//!
//! One after the other, in the order of their names, on a thread of their own; each for a limited
//! time, after which its process group is killed.
//!
//! **Invariants**
//! - Only files that nobody but root, or the daemon's own user, can have written are run, from a
//!   folder of which the same is true.
//! - Their environment is the event and a `PATH`; they get no descriptor of the daemon's.
//!
//! Source: `zed(8)` of OpenZFS for the idea of a folder of executables.

use anyhow::{Context, Result};
use headpond_api::events::Event;
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, Command};

/// How long one may run.
pub const TIME_MAX: Duration = Duration::from_secs(10);
/// For a process that was killed to be gone.
const KILL_TIME: Duration = Duration::from_secs(1);
/// Events that may wait for the executables.
const EVENTS_MAX: usize = 64;
const OUTPUT_BYTES_MAX: usize = 4096;
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
/// What others may not do: write.
const OTHERS_WRITE: u32 = 0o022;

/// The thread that runs them, until this is dropped and it has completed.
pub struct Scripts {
    queue: Option<SyncSender<Event>>,
    thread: Option<JoinHandle<()>>,
}

impl Scripts {
    /// Those of `folder`, which is looked at again for each event.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn begin(folder: &Path) -> Result<Self> {
        let (queue, told) = sync_channel::<Event>(EVENTS_MAX);
        let mut runner = Runner::new(folder.to_owned(), TIME_MAX)?;
        let run = move || told.into_iter().for_each(|event| runner.run_all(&event));
        let thread = std::thread::Builder::new().name("scripts".into()).spawn(run);
        let thread = thread.context("cannot start a thread")?;
        Ok(Self { queue: Some(queue), thread: Some(thread) })
    }

    /// Runs them on this event, when those before it are done.
    pub fn run(&self, event: Event) {
        let sequence = event.sequence;
        if self.queue.as_ref().is_some_and(|queue| queue.try_send(event).is_err()) {
            tracing::warn!("event {sequence} reached no executable: {EVENTS_MAX} others wait");
        }
    }
}

impl Drop for Scripts {
    fn drop(&mut self) {
        drop(self.queue.take());
        // One that panicked has ended, too.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

struct Runner {
    folder: PathBuf,
    time_max: Duration,
    runtime: tokio::runtime::Runtime,
    /// What was logged of files that are not run.
    told: BTreeSet<String>,
}

/// How one ended; `None` if it was killed.
struct Ended {
    status: Option<ExitStatus>,
    output: Vec<u8>,
}

impl Runner {
    fn new(folder: PathBuf, time_max: Duration) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { folder, time_max, runtime, told: BTreeSet::new() })
    }

    fn run_all(&mut self, event: &Event) {
        for path in self.found() {
            let script = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            match self.runtime.block_on(run(&path, event, self.time_max)) {
                Ok(ended) => log(&script, event, &ended, self.time_max),
                Err(error) => tracing::warn!(script, "{} does not run: {error}", path.display()),
            }
        }
    }

    /// Those that may be run, in the order of their names.
    fn found(&mut self) -> Vec<PathBuf> {
        let own = rustix::process::geteuid().as_raw();
        let folder = match fs::symlink_metadata(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
            Err(error) => return self.skip(&self.folder.clone(), &error.to_string()),
            Ok(folder) => folder,
        };
        if let Some(why) = objection_to_folder(&folder, own) {
            return self.skip(&self.folder.clone(), why);
        }
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) => return self.skip(&self.folder.clone(), &error.to_string()),
        };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.retain(|path| !is_of_an_editor(path));
        paths.sort();
        paths.retain(|path| match fs::symlink_metadata(path) {
            Ok(file) => match objection_to_file(&file, own) {
                Some(why) => !self.skip(path, why).is_empty(),
                None => true,
            },
            Err(_) => false,
        });
        paths
    }

    /// Nothing of it is run; why is logged once.
    fn skip(&mut self, path: &Path, why: &str) -> Vec<PathBuf> {
        let text = format!("{} is not run on events: {why}", path.display());
        if !self.told.contains(&text) {
            tracing::warn!("{text}");
            self.told.insert(text);
        }
        Vec::new()
    }
}

fn objection_to_folder(folder: &Metadata, own: u32) -> Option<&'static str> {
    match folder.is_dir() {
        true => objection(folder.uid(), folder.mode(), own),
        false => Some("it is no folder"),
    }
}

fn objection_to_file(file: &Metadata, own: u32) -> Option<&'static str> {
    match file.is_file() {
        false => Some("it is no regular file"),
        true if file.mode() & 0o100 == 0 => Some("its owner may not execute it"),
        true => objection(file.uid(), file.mode(), own),
    }
}

fn objection(owner: u32, mode: u32, own: u32) -> Option<&'static str> {
    match owner == 0 || owner == own {
        false => Some("it belongs to another user than root and the daemon's own"),
        true if mode & OTHERS_WRITE != 0 => Some("its group, or others, may write to it"),
        true => None,
    }
}

/// Hidden files and backups, as others skip them.
fn is_of_an_editor(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    name.starts_with(b".") || name.ends_with(b"~")
}

async fn run(path: &Path, event: &Event, time_max: Duration) -> io::Result<Ended> {
    let (reader, writer) = io::pipe()?;
    let mut command = Command::new(path);
    command.env_clear().envs(variables(event)).current_dir("/").process_group(0);
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn()?;
    // It has the ends that write.
    drop(command);
    let mut output = Vec::new();
    let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    if let Some(group) = group {
        // The daemon may be spared when memory is short, and this one should not be.
        let _ = fs::write(format!("/proc/{}/oom_score_adj", group.as_raw_nonzero()), "0");
    }
    let waited = tokio::time::timeout(time_max, wait(&mut child, reader, &mut output)).await;
    let Ok(status) = waited else {
        let _ = group.map(|group| kill_process_group(group, Signal::KILL));
        let _ = tokio::time::timeout(KILL_TIME, child.wait()).await;
        return Ok(Ended { status: None, output });
    };
    Ok(Ended { status: Some(status?), output })
}

/// Waits for its end, and takes its output, of which others may keep the pipe open.
async fn wait(
    child: &mut Child,
    reader: io::PipeReader,
    output: &mut Vec<u8>,
) -> io::Result<ExitStatus> {
    let mut reader = Receiver::from_owned_fd(reader.into())?;
    let mut bytes = [0; 1024];
    let mut is_open = true;
    let status = loop {
        tokio::select! {
            read = reader.read(&mut bytes), if is_open => match read {
                Ok(0) | Err(_) => is_open = false,
                Ok(count) => keep(output, &bytes[..count]),
            },
            status = child.wait() => break status,
        }
    };
    while let Ok(count @ 1..) = reader.try_read(&mut bytes) {
        keep(output, &bytes[..count]);
    }
    status
}

fn keep(output: &mut Vec<u8>, bytes: &[u8]) {
    let room = OUTPUT_BYTES_MAX - output.len();
    output.extend(&bytes[..bytes.len().min(room)]);
}

fn variables(event: &Event) -> Vec<(&'static str, OsString)> {
    let member = event.member.map(|member| member.to_string());
    let all = [
        ("PATH", PATH.to_owned()),
        ("HEADPOND_EVENT", event.event.word().to_owned()),
        ("HEADPOND_SEVERITY", event.severity.word().to_owned()),
        ("HEADPOND_VOLUME", event.volume.clone()),
        ("HEADPOND_DEVICE", event.device.clone().unwrap_or_default()),
        ("HEADPOND_MEMBER", member.unwrap_or_default()),
        ("HEADPOND_TEXT", event.text.clone()),
        ("HEADPOND_TIME", event.time.clone()),
        ("HEADPOND_SEQUENCE", event.sequence.to_string()),
    ];
    // No variable can hold a zero.
    all.map(|(name, value)| (name, value.replace('\0', " ").into())).into()
}

fn log(script: &str, event: &Event, ended: &Ended, time_max: Duration) {
    let sequence = event.sequence;
    for line in String::from_utf8_lossy(&ended.output).lines() {
        tracing::info!(script, sequence, "{line}");
    }
    match ended.status {
        Some(status) if status.success() => {}
        Some(status) => tracing::warn!(script, sequence, "{script} ended with {status}"),
        None => {
            let time = time_max.as_secs();
            tracing::warn!(script, sequence, "{script} was killed: it ran for more than {time} s");
        }
    }
}

#[cfg(test)]
mod tests;
