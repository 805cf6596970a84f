//! A machine with a volume on an image, and a witness of what is written to it.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::cluster::POOL;
use super::{bound, free_port};

const VOLUME: &str = "v";
/// For a daemon to serve or to end, beside a cluster on the same processors.
const WAIT_MAX: Duration = Duration::from_secs(150);
/// More than the cache holds, so that the image is written to all the time.
const REGION: &str = "160M";
const CACHE_BYTES: u64 = 64 << 20;

pub struct Host {
    program: PathBuf,
    folder: PathBuf,
    device: String,
    daemon: Option<Child>,
    witness: Child,
    witness_at: String,
}

impl Host {
    /// Creates a volume on the image, and starts a witness; nothing is served yet.
    ///
    /// # Errors
    /// What the program says.
    pub fn new(program: &Path, folder: &Path, conf: &Path, image: &str) -> Result<Self> {
        Self::with_cache(program, folder, conf, image, CACHE_BYTES)
    }

    /// # Errors
    /// As [`Self::new`].
    pub fn with_cache(
        program: &Path,
        folder: &Path,
        conf: &Path,
        image: &str,
        cache_bytes: u64,
    ) -> Result<Self> {
        std::fs::create_dir_all(folder.join("state"))?;
        // Written once: the file system would allocate it piece by piece while speed is measured.
        let mut cache = File::create(folder.join("cache.img"))?;
        std::io::copy(&mut std::io::repeat(0).take(cache_bytes), &mut cache)?;
        cache.sync_all()?;
        let device = format!("rbd:{POOL}/{image}?conf={}", conf.display());
        let key = folder.join("key");
        let witness_at = format!("127.0.0.1:{}", free_port()?);
        let (program, folder) = (program.to_owned(), folder.to_owned());
        said(&Command::new(&program).args(["witness", "key"]).arg(&key).output()?)?;
        let mut witness = bound(&program);
        witness.args(["witness", "serve", "--listen", &witness_at, "--key"]).arg(&key);
        witness.arg("--dir").arg(folder.join("kept"));
        let log = File::create(folder.join("witness.log"))?;
        let witness = witness.stdout(log.try_clone()?).stderr(log).stdin(Stdio::null()).spawn()?;
        let it = Self { program, folder, device, daemon: None, witness, witness_at };
        let cache = it.folder.join("cache.img").display().to_string();
        // An image may have been written to, and the temporary folder be in memory.
        let how = ["--cache", &cache, "--seq-cutoff", "never", "--force"];
        said(&it.command(&["create", "--raid", "0", VOLUME, &it.device]).args(how).output()?)?;
        Ok(it)
    }

    /// Starts the daemon and waits until it serves.
    ///
    /// # Errors
    /// What it says.
    pub fn serve(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.log())?;
        let mut daemon = self.in_folder(bound(&self.program), &["serve", VOLUME]);
        let daemon = daemon.stdout(log.try_clone()?).stderr(log).stdin(Stdio::null()).spawn()?;
        self.daemon = Some(daemon);
        self.wait_until("the volume is served", |it| {
            let daemon = it.daemon.as_mut().expect("started above");
            if let Some(status) = daemon.try_wait()? {
                let said = std::fs::read_to_string(it.log())?;
                let last: Vec<&str> = said.lines().rev().take(5).collect();
                bail!("the daemon ended, {status}: {}", last.join("; "));
            }
            Ok(it.status()?["state"] == "serving")
        })
    }

    /// Ends the daemon as a crash does.
    ///
    /// # Errors
    /// Where there is none.
    pub fn kill(&mut self) -> Result<()> {
        let mut daemon = self.daemon.take().context("no daemon runs")?;
        daemon.kill()?;
        daemon.wait()?;
        Ok(())
    }

    /// Stops the volume.
    ///
    /// # Errors
    /// What the program says.
    pub fn stop(&mut self) -> Result<()> {
        said(&self.command(&["stop", VOLUME]).output()?)?;
        let mut daemon = self.daemon.take().context("no daemon runs")?;
        let status = daemon.wait()?;
        ensure!(status.success(), "the daemon ended with {status}");
        Ok(())
    }

    /// Begins verified writes; they end with the volume, or after so many seconds.
    ///
    /// # Errors
    /// Where they do not begin.
    pub fn begin_writes(&self, seconds: u32) -> Result<Child> {
        let seconds = seconds.to_string();
        let mut load = self.witnessed("write");
        load.args(["--size", REGION, "--atom", "4096", "--depth", "16", "--sync-every", "32"]);
        load.args(["--runtime", &seconds]).stdin(Stdio::null());
        let log = File::create(self.folder.join("load.log"))?;
        load.stdout(log.try_clone()?).stderr(log).spawn().context("starting the load")
    }

    /// Everything that was flushed is there. Answers how many writes were acknowledged.
    ///
    /// # Errors
    /// What is not.
    pub fn verify(&self) -> Result<u64> {
        let verified = self.witnessed("verify").arg("--json").output()?;
        let told = String::from_utf8_lossy(&verified.stdout);
        let words = || format!("{told}{}", String::from_utf8_lossy(&verified.stderr));
        match verified.status.code() {
            Some(0) => {}
            // The daemon was killed before the first flush.
            Some(3) => return Ok(0),
            _ => bail!("the witness says: {}", words()),
        }
        let told: Value = serde_json::from_str(&told).with_context(words)?;
        told["writes_acknowledged"].as_u64().with_context(words)
    }

    /// # Errors
    /// Where the program does not answer.
    pub fn status(&self) -> Result<Value> {
        let answer = self.command(&["status", VOLUME, "--json"]).output()?;
        serde_json::from_slice(&answer.stdout).with_context(|| {
            format!("the status is no JSON: {}", String::from_utf8_lossy(&answer.stderr))
        })
    }

    /// # Errors
    /// Where the program does not answer.
    pub fn alert(&self, kind: &str) -> Result<Option<String>> {
        let status = self.status()?;
        let alerts = status["alerts"].as_array().map_or(&[][..], Vec::as_slice);
        let told = alerts.iter().find(|alert| alert["kind"] == kind);
        Ok(told.map(|alert| format!("{}; {}", alert["cause"], alert["action"])))
    }

    /// # Errors
    /// Where the program does not answer.
    pub fn dirty_bytes(&self) -> Result<u64> {
        let status = self.status()?;
        let dirty = status["cache"]["live"]["dirty_bytes"].as_u64();
        dirty.with_context(|| format!("no dirty bytes in {}", status["cache"]))
    }

    /// # Errors
    /// What the condition says, or that it does not come true.
    pub fn wait_until(
        &mut self,
        what: &str,
        mut is_so: impl FnMut(&mut Self) -> Result<bool>,
    ) -> Result<()> {
        let end = Instant::now() + WAIT_MAX;
        while !is_so(self)? {
            ensure!(Instant::now() < end, "not after {WAIT_MAX:?}: {what}");
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// The address of the volume for NBD clients.
    pub fn export(&self) -> String {
        let socket = self.folder.join("state").join(format!("{VOLUME}.sock"));
        format!("nbd+unix:///{VOLUME}?socket={}", socket.display())
    }

    /// The program with the folders of this machine.
    pub fn command(&self, arguments: &[&str]) -> Command {
        self.in_folder(Command::new(&self.program), arguments)
    }

    fn in_folder(&self, mut command: Command, arguments: &[&str]) -> Command {
        command.args(arguments).env("HEADPOND_STATE", self.folder.join("state"));
        command
    }

    /// The daemon's process.
    pub fn process(&self) -> Option<u32> {
        self.daemon.as_ref().map(Child::id)
    }

    fn log(&self) -> PathBuf {
        self.folder.join("serve.log")
    }

    fn witnessed(&self, act: &str) -> Command {
        let export = self.export();
        let at = ["--to", &self.witness_at, "--name", "it", "--device", &export, "--key"];
        let mut command = self.command(&["witness", act]);
        command.args(at).arg(self.folder.join("key"));
        command
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for child in self.daemon.iter_mut().chain([&mut self.witness]) {
            // It may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// # Errors
/// What a program said that did not succeed.
pub fn said(output: &Output) -> Result<String> {
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "{}: {told}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(told)
}
