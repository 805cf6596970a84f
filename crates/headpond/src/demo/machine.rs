//! The demo's volume: made, served, asked and removed through the program's own commands.

use anyhow::{Context, Result, bail};
use headpond_api::answers::{Flushed, Recorded, Status};
use headpond_api::client::Client;
use headpond_api::operations;
use headpond_api::place::Places;
use headpond_api::requests::{FlushBody, FlushPace, RecordBody, SetBody};
use headpond_volume::{Description, Size};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub const NAME: &str = "try";
pub const DRIVE: &str = "hdd-7k2-4t";
pub const DRIVES: usize = 40;
pub const GROUPS: u16 = 4;
const START_PATIENCE: Duration = Duration::from_secs(60);

/// A volume in a folder of its own, served by a child process.
pub struct Machine {
    folder: PathBuf,
    program: PathBuf,
    daemon: Option<Child>,
}

impl Machine {
    /// Creates the volume in `folder`, cache in pass-through.
    ///
    /// # Errors
    /// As of `headpond create`.
    pub fn create(folder: &Path, cache: Size) -> Result<Self> {
        let program = std::env::current_exe().context("where is this program?")?;
        let machine = Self { folder: folder.to_owned(), program, daemon: None };
        let groups = GROUPS.to_string();
        let mut create = machine.command(&["create", NAME, "--raid", "60", "--groups", &groups]);
        create.args(["--strip", "64K", "--zeroed", "--no-intent", "--force"]);
        create.args(["--mode", "pass-through", "--cache", &format!("ram:{cache}")]);
        create.args((0..DRIVES).map(|drive| machine.drive(drive)));
        let output = create.output().context("headpond create cannot be run")?;
        if !output.status.success() {
            bail!("headpond create: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(machine)
    }

    /// Starts `headpond serve` and waits until it answers.
    ///
    /// # Errors
    /// Where it ends or does not answer; its log says more.
    pub fn serve(&mut self) -> Result<()> {
        let log = self.folder.join("serve.log");
        let mut serve = self.command(&["serve", NAME]);
        serve.stdout(File::create(&log)?).stderr(File::options().append(true).open(&log)?);
        self.daemon = Some(serve.spawn().context("headpond serve cannot be run")?);
        let begun = Instant::now();
        while self.status().is_err() {
            let ended = self.daemon.as_mut().expect("just started").try_wait()?;
            if ended.is_some() || begun.elapsed() > START_PATIENCE {
                let log = std::fs::read_to_string(&log).unwrap_or_default();
                bail!("headpond serve did not start: {}", log.trim());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    pub fn status(&self) -> Result<Status> {
        self.client()?.call(&operations::STATUS)
    }

    pub fn description(&self) -> Result<Description> {
        Places::at(&self.folder).load(NAME)
    }

    pub fn set(&self, changes: &[String]) -> Result<Status> {
        let changes = changes.iter().map(|change| Ok(change.parse()?)).collect::<Result<_>>()?;
        self.client()?.call_with(&operations::SET, &SetBody { changes, ..SetBody::default() })
    }

    /// Writes all dirty data to the array.
    pub fn flush(&self) -> Result<Flushed> {
        self.client()?.call_with(&operations::FLUSH, &FlushBody { pace: FlushPace::Max })
    }

    pub fn start_recording(&self) -> Result<PathBuf> {
        let output = self.folder.join("workload.hptrace");
        let body = RecordBody { output: output.clone() };
        self.client()?.call_with(&operations::START_RECORDING, &body)?;
        Ok(output)
    }

    pub fn stop_recording(&self) -> Result<Recorded> {
        self.client()?.call(&operations::STOP_RECORDING)
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.join(format!("{NAME}.sock"))
    }

    /// Size of the volume.
    pub fn size_bytes(&self) -> Result<u64> {
        self.status()?.size_bytes.context("the status tells no size")
    }

    /// Stops the daemon and waits for its end.
    ///
    /// # Errors
    /// Where it does not stop.
    pub fn stop(&mut self) -> Result<()> {
        let Some(mut daemon) = self.daemon.take() else { return Ok(()) };
        let asked = self.command(&["stop", NAME]).output()?;
        if !asked.status.success() {
            daemon.kill()?;
        }
        daemon.wait()?;
        Ok(())
    }

    fn client(&self) -> Result<Client> {
        Client::of(&Places::at(&self.folder), NAME)
    }

    fn drive(&self, number: usize) -> String {
        format!(
            "model:{DRIVE}?store={}",
            self.folder.join(format!("drive{number:02}.img")).display()
        )
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(args).env("HEADPOND_STATE", &self.folder).stdin(Stdio::null());
        // The same demo on each machine.
        command.env("HEADPOND_CONFIG", "/dev/null");
        command
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            // The demo failed or was interrupted: what is served is thrown away.
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}
