//! fio against an NBD server, for benchmarks.

use std::error::Error;
use std::path::Path;
use std::process::{Command, Stdio};

/// What fio is to do.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// As fio calls it.
    pub rw: &'static str,
    pub block_bytes: usize,
    /// Of each job.
    pub depth: usize,
    /// Connections.
    pub jobs: usize,
    /// Zero for once over the whole size.
    pub seconds: u64,
}

/// How fio addresses an export on a socket.
pub fn uri(socket: &Path, export: &str) -> String {
    format!("nbd+unix:///{export}?socket={}", socket.display())
}

impl Load {
    /// Requests a second, on the first so many MiB.
    ///
    /// # Errors
    /// Where fio fails, or gives no figures.
    pub fn run(&self, uri: &str, size_mib: u64) -> Result<f64, Box<dyn Error>> {
        self.run_by(Command::new("fio"), uri, size_mib)
    }

    /// The same by a command that fio's arguments are added to.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_by(
        &self,
        mut command: Command,
        uri: &str,
        size_mib: u64,
    ) -> Result<f64, Box<dyn Error>> {
        let Self { rw, block_bytes, depth, jobs, seconds } = self;
        command.args(["--name=bench", "--ioengine=nbd", "--thread", "--group_reporting"]);
        command.args([format!("--rw={rw}"), format!("--bs={block_bytes}")]);
        command.args([format!("--iodepth={depth}"), format!("--numjobs={jobs}")]);
        command.args([format!("--size={size_mib}m"), format!("--uri={uri}")]);
        if *seconds > 0 {
            command.args(["--time_based".to_owned(), format!("--runtime={seconds}")]);
        }
        command.args(["--output-format=terse", "--terse-version=3"]);
        let output = command.stderr(Stdio::inherit()).output()?;
        if !output.status.success() {
            return Err(format!("fio failed at {uri}").into());
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().find(|line| line.starts_with("3;fio"));
        let fields: Vec<&str> = line.ok_or("fio gave no figures")?.split(';').collect();
        // Bandwidth in KiB/s, of reads and 41 fields further of writes: requests a second come as
        // whole numbers, which is too coarse for large ones.
        let kib = fields[6].parse::<f64>()? + fields[47].parse::<f64>()?;
        Ok(kib * 1024.0 / *block_bytes as f64)
    }
}
