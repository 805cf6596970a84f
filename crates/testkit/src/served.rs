//! A program that serves on a Unix socket, for benchmarks.

use std::io::{Error, ErrorKind, Result};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const START_PATIENCE: Duration = Duration::from_secs(20);

/// A process that is killed when this is dropped: what it serves is thrown away.
pub struct Served {
    process: Child,
    pub socket: PathBuf,
}

impl Served {
    /// Starts it, and waits until it answers.
    ///
    /// # Errors
    /// Where it cannot be started, or does not answer in time.
    pub fn start(mut command: Command, socket: &Path) -> Result<Self> {
        let served = Self { process: command.spawn()?, socket: socket.to_owned() };
        let begun = Instant::now();
        while UnixStream::connect(socket).is_err() {
            if begun.elapsed() > START_PATIENCE {
                let text = format!("nobody answers on {}", socket.display());
                return Err(Error::new(ErrorKind::TimedOut, text));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(served)
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
