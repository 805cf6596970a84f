//! `headpond serve --all`: a daemon for each volume, for machines without a service manager.
//!
//! **Invariants**
//! - Each daemon has a process group of its own: a signal of the terminal reaches it once, from
//!   here. A second one would end it as a kill does.
//! - A kill of this process ends no daemon.

use crate::args::LogArgs;
use crate::telling::word;
use anyhow::{Context, Result};
use headpond_api::client::Client;
use headpond_api::outcome::{Exit, told};
use headpond_api::place::Places;
use headpond_daemon::loading;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::process::{ExitStatus, Stdio};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

/// The daemons that run, by name.
struct Daemons {
    processes: BTreeMap<String, Pid>,
    ends: JoinSet<(String, std::io::Result<ExitStatus>)>,
    worst: u8,
}

/// Serves every volume that is not served, until all of them are stopped.
///
/// # Errors
/// If signals cannot be received.
pub fn run(places: &Places, log: &LogArgs) -> Result<Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let worst = runtime.block_on(serve(places, log))?;
    Ok(match worst {
        0 => Exit::Ok,
        2 => Exit::Usage,
        3 => Exit::Degraded,
        4 => Exit::Refused,
        _ => Exit::Error,
    })
}

async fn serve(places: &Places, log: &LogArgs) -> Result<u8> {
    // Before any daemon runs, so that no signal ends this process alone.
    let mut term = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut daemons =
        Daemons { processes: BTreeMap::new(), ends: JoinSet::new(), worst: Exit::Ok as u8 };
    for name in places.names() {
        match start(places, &name, log) {
            Ok(Some(child)) => daemons.watch(name, child),
            Ok(None) => eprintln!("headpond: note: {name} is being served already"),
            Err(error) => daemons.has_failed(&name, &told(&error)),
        }
    }
    if daemons.processes.is_empty() {
        eprintln!("headpond: note: no volume is left to serve");
    }
    loop {
        let is_over = tokio::select! {
            ended = daemons.ends.join_next() => !daemons.has_ended(ended),
            _ = term.recv() => daemons.pass_on(Signal::TERM),
            _ = interrupt.recv() => daemons.pass_on(Signal::INT),
            _ = hangup.recv() => false,
        };
        if is_over {
            return Ok(daemons.worst);
        }
    }
}

/// A daemon for the volume; none if there is one.
fn start(places: &Places, name: &str, log: &LogArgs) -> Result<Option<Child>> {
    places.load(name)?;
    if Client::of(places, name)?.is_served() || loading::look(places, name).is_some() {
        return Ok(None);
    }
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut command = Command::new(program);
    let format = log.log_format.map(|format| ["--log-format".to_owned(), word(format)]);
    let level = log.log_level.map(|level| ["--log-level".to_owned(), word(level)]);
    command.args(["serve", name]).args(format.into_iter().chain(level).flatten());
    command.stdin(Stdio::null()).process_group(0);
    // A manager of this process expects its own reports only.
    command.env_remove("NOTIFY_SOCKET").env_remove("WATCHDOG_USEC");
    command.spawn().map(Some).context("cannot start its daemon")
}

impl Daemons {
    fn watch(&mut self, name: String, mut child: Child) {
        let id = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        self.processes.insert(name.clone(), id.expect("a process that was not waited for"));
        self.ends.spawn(async move { (name, child.wait().await) });
    }

    /// Whether there was one; then others may be left.
    fn has_ended(
        &mut self,
        ended: Option<Result<(String, std::io::Result<ExitStatus>), tokio::task::JoinError>>,
    ) -> bool {
        let Some(ended) = ended else { return false };
        let (name, ended) = ended.expect("waiting does not panic");
        self.processes.remove(&name);
        match ended {
            Ok(ended) if ended.success() => println!("{name}: stopped"),
            Ok(ended) => {
                let code = ended.code().and_then(|code| u8::try_from(code).ok());
                self.worst = self.worst.max(code.unwrap_or(Exit::Error as u8));
                eprintln!("headpond: error: {name}: its daemon ended with {ended}");
            }
            Err(error) => self.has_failed(&name, &error.to_string()),
        }
        true
    }

    fn has_failed(&mut self, name: &str, why: &str) {
        self.worst = self.worst.max(Exit::Error as u8);
        eprintln!("headpond: error: {name}: {why}");
    }

    /// Never the end: the daemons end first.
    fn pass_on(&self, signal: Signal) -> bool {
        for process in self.processes.values() {
            // It may have ended.
            let _ = kill_process(*process, signal);
        }
        false
    }
}
