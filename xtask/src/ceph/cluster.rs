//! A monitor and two OSDs as child processes.

use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::{bound, free_port};

/// Two copies of everything, of which one is enough to go on.
const OSDS: usize = 2;
/// For the cluster to begin to serve.
const START_MAX: Duration = Duration::from_secs(180);
pub const POOL: &str = "rbd";

pub struct Cluster {
    folder: PathBuf,
    monitor: Option<Child>,
    osds: Vec<Option<Child>>,
}

impl Cluster {
    /// Makes a cluster of files and waits until it serves.
    ///
    /// # Errors
    /// What did not start.
    pub fn start(folder: &Path) -> Result<Self> {
        let folder = folder.join("cluster");
        std::fs::create_dir_all(folder.join("mon"))?;
        std::fs::create_dir_all(folder.join("run"))?;
        let address = format!("[v2:127.0.0.1:{}]", free_port()?);
        let mut it = Self { folder, monitor: None, osds: Vec::new() };
        let id = it.uuid()?;
        std::fs::write(it.conf(), it.configuration(&id, &address))?;
        let map = it.folder.join("monmap");
        let map = map.display().to_string();
        it.run("monmaptool", &["--create", "--addv", "a", &address, "--fsid", &id, &map])?;
        it.run("ceph-mon", &["--mkfs", "-i", "a", "--monmap", &map])?;
        it.start_monitor()?;
        for osd in 0..OSDS {
            std::fs::create_dir_all(it.folder.join(format!("osd.{osd}")))?;
            let (number, id) = (osd.to_string(), it.uuid()?);
            it.run("ceph", &["osd", "new", &id])?;
            it.run("ceph-osd", &["-i", &number, "--mkfs", "--osd-uuid", &id])?;
            it.osds.push(None);
            it.start_osd(osd)?;
        }
        it.run("ceph", &["osd", "pool", "create", POOL, "16", "16", "replicated"])?;
        it.run("ceph", &["osd", "pool", "application", "enable", POOL, POOL])?;
        it.until_serving()?;
        Ok(it)
    }

    pub fn conf(&self) -> PathBuf {
        self.folder.join("ceph.conf")
    }

    /// Makes an image.
    ///
    /// # Errors
    /// What `rbd` says.
    pub fn create_image(&self, name: &str, size_mib: u64) -> Result<()> {
        let size = format!("{size_mib}M");
        let features = "layering,exclusive-lock";
        self.run("rbd", &["create", "--size", &size, "--image-feature", features, name]).map(drop)
    }

    /// Takes the lock of an image away from its client, which the cluster excludes from then on.
    ///
    /// # Errors
    /// Where nobody has the lock, or it is not given up.
    pub fn break_lock(&self, image: &str) -> Result<()> {
        let told = self.run("rbd", &["lock", "ls", image, "--format", "json"])?;
        let locks: serde_json::Value = serde_json::from_str(&told)?;
        let text = |key: &str| locks[0][key].as_str().context("the image is not locked");
        self.run("rbd", &["lock", "rm", image, text("id")?, text("locker")?]).map(drop)
    }

    /// # Errors
    /// Where it cannot be ended.
    pub fn kill_osd(&mut self, osd: usize) -> Result<()> {
        kill(&mut self.osds[osd])
    }

    /// # Errors
    /// Where it does not start.
    pub fn start_osd(&mut self, osd: usize) -> Result<()> {
        self.osds[osd] = Some(self.begin("ceph-osd", &osd.to_string())?);
        Ok(())
    }

    /// All of it ends at once.
    ///
    /// # Errors
    /// Where something cannot be ended.
    pub fn kill_all(&mut self) -> Result<()> {
        self.osds.iter_mut().try_for_each(kill)?;
        kill(&mut self.monitor)
    }

    /// # Errors
    /// Where it does not serve again.
    pub fn start_all(&mut self) -> Result<()> {
        self.start_monitor()?;
        (0..OSDS).try_for_each(|osd| self.start_osd(osd))
    }

    /// Waits until it stores and returns something.
    ///
    /// # Errors
    /// Where that takes too long.
    pub fn until_serving(&self) -> Result<()> {
        let end = Instant::now() + START_MAX;
        let object = self.folder.join("conf-as-object");
        std::fs::copy(self.conf(), &object)?;
        let object = object.display().to_string();
        while self.run("rados", &["-p", POOL, "put", "probe", &object]).is_err() {
            ensure!(Instant::now() < end, "the cluster does not serve after {START_MAX:?}");
            std::thread::sleep(Duration::from_secs(1));
        }
        Ok(())
    }

    /// Runs one of its programs; answers what it printed.
    ///
    /// # Errors
    /// What it says, or that it takes too long.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new("timeout");
        command.arg("90").arg(program).args(arguments).env("CEPH_CONF", self.conf());
        let output = command.output().with_context(|| format!("starting {program}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("{program} {}: {}: {}", arguments.join(" "), output.status, said.trim());
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    fn start_monitor(&mut self) -> Result<()> {
        self.monitor = Some(self.begin("ceph-mon", "a")?);
        Ok(())
    }

    fn begin(&self, program: &str, id: &str) -> Result<Child> {
        let log = File::create(self.folder.join(format!("run/{program}.{id}.out")))?;
        let mut command = bound(program);
        command.args(["-f", "-i", id]).env("CEPH_CONF", self.conf()).stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log);
        command.spawn().with_context(|| format!("starting {program}"))
    }

    fn uuid(&self) -> Result<String> {
        Ok(std::fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim().to_owned())
    }

    /// Without authentication, with files for disks, and nothing outside of the folder.
    fn configuration(&self, id: &str, address: &str) -> String {
        let folder = self.folder.display();
        let mut text = format!("[global]\nfsid = {id}\nmon_host = {address}\n");
        for (key, file) in [
            ("mon_data", "mon"),
            ("osd_data", "osd.$id"),
            ("run_dir", "run"),
            ("admin_socket", "run/$name.$pid.asok"),
            ("pid_file", "run/$name.pid"),
            ("log_file", "run/$name.log"),
            ("crash_dir", "run"),
        ] {
            writeln!(text, "{key} = {folder}/{file}").expect("a string can be written to");
        }
        for role in ["cluster", "service", "client"] {
            writeln!(text, "auth_{role}_required = none").expect("a string can be written to");
        }
        text + "ms_bind_msgr1 = false\n\
            public_addr = 127.0.0.1\n\
            cluster_addr = 127.0.0.1\n\
            osd_objectstore = bluestore\n\
            bluestore_block_size = 17179869184\n\
            osd_memory_target = 939524096\n\
            osd_crush_chooseleaf_type = 0\n\
            osd_pool_default_size = 2\n\
            osd_pool_default_min_size = 1\n\
            mon_data_avail_warn = 1\n\
            mon_data_avail_crit = 1\n\
            debug_ms = 0/0\n"
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // The folder goes with them.
        let _ = self.kill_all();
    }
}

fn kill(child: &mut Option<Child>) -> Result<()> {
    if let Some(mut child) = child.take() {
        child.kill()?;
        child.wait()?;
    }
    Ok(())
}
