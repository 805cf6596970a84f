//! Ends a run from without, in order.
//!
//! **Invariants**
//! - No program that makes load outlives its run: each is in the process group of a watcher, which
//!   ends the group when this program is gone, however it went.
//! - A group is ended while its watcher is not waited for yet: its id is nobody else's until then.
//! - What was under way when the end was asked for is no round and ends no cell.

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Whether a run is to end; its clones say the same.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

/// How often somebody who waits looks whether it is over.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// So long a program has to end by itself.
const GRACE: Duration = Duration::from_secs(3);

impl Stop {
    /// Asks for the end.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Waits, but not beyond the end.
    pub(super) fn sleep(&self, time: Duration) {
        let begun = Instant::now();
        while !self.is_asked() && begun.elapsed() < time {
            std::thread::sleep(LOOK_EVERY.min(time));
        }
    }

    /// Runs a program to its end; nothing where it was ended because that was asked for.
    ///
    /// # Errors
    /// Where it cannot be started or waited for.
    pub(super) fn run(&self, command: &mut Command) -> io::Result<Option<ExitStatus>> {
        let group = Group::new()?;
        let mut child = command.process_group(group.id.as_raw_nonzero().get()).spawn()?;
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status).filter(|_| !self.is_asked()));
            }
            if self.is_asked() {
                group.end_soon(&mut child)?;
                return Ok(None);
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// Reads until whoever could write is gone, then ends its group and itself.
const WATCH: &str = "trap '' TERM; read -r _; kill -KILL 0";

/// A process group of a watcher and whatever joins it; dropped, it is ended.
struct Group {
    watcher: Child,
    id: Pid,
}

impl Group {
    fn new() -> io::Result<Self> {
        let mut watcher = Command::new("sh");
        watcher.args(["-c", WATCH]).process_group(0);
        // The other end of what it reads is held here, and ends with this program.
        watcher.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let watcher = watcher.spawn()?;
        let id = Pid::from_child(&watcher);
        Ok(Self { watcher, id })
    }

    /// Asks all of it to end, and waits for one of them.
    fn end_soon(self, child: &mut Child) -> io::Result<()> {
        kill_process_group(self.id, Signal::TERM)?;
        let (asked, look) =
            (Instant::now(), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG);
        let id = Pid::from_child(child);
        while asked.elapsed() < GRACE && waitid(WaitId::Pid(id), look)?.is_none() {
            std::thread::sleep(LOOK_EVERY);
        }
        drop(self);
        child.wait().map(|_| ())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The watcher is in it, and was not waited for: the group is there.
        let _ = kill_process_group(self.id, Signal::KILL);
        let _ = self.watcher.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_and_what_it_started_end_when_that_is_asked_for_even_if_they_do_not_want_to() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ids");
        let words = "trap '' TERM; sh -c 'trap \"\" TERM; echo $$ >> \"$0\"; sleep 600' \"$0\" & \
                     echo $$ >> \"$0\"; wait; sleep 600";
        let mut command = Command::new("sh");
        command.arg("-c").arg(words).arg(&file);
        let stop = Stop::default();
        let ids = || std::fs::read_to_string(&file).unwrap_or_default();
        let asker = stop.clone();
        let status = std::thread::scope(|scope| {
            scope.spawn(|| {
                while ids().lines().count() < 2 {
                    std::thread::sleep(LOOK_EVERY);
                }
                asker.ask();
            });
            stop.run(&mut command).unwrap()
        });
        assert_eq!(status, None);
        for id in ids().lines() {
            // What was killed dies when it next has a processor, and may be there until somebody
            // has asked how it ended. If it were not killed it would sleep on.
            let state = || std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
            let is_there = |state: String| !state.is_empty() && !state.contains(") Z ");
            while is_there(state()) {
                assert!(!state().contains(") S "), "{}", state());
                std::thread::sleep(LOOK_EVERY);
            }
        }
    }

    #[test]
    fn what_ends_by_itself_says_how_and_a_pause_is_none_once_the_end_was_asked_for() {
        let stop = Stop::default();
        let status = stop.run(Command::new("sh").args(["-c", "exit 3"])).unwrap().unwrap();
        assert_eq!(status.code(), Some(3));
        stop.ask();
        stop.sleep(Duration::from_secs(86_400));
    }
}
