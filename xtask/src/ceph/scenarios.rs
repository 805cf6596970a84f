//! The scenarios: each makes an image and a volume on it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::cluster::Cluster;
use super::host::{Host, said};
use super::{sandbox, speed};
use crate::rig::random::Random;

const IMAGE_MIB: u64 = 512;
/// What two clients have to do with each other takes as long: the cluster counts a client as lost
/// after 30 s.
const STALL: Duration = Duration::from_secs(40);
const OUTAGE: Duration = Duration::from_secs(60);

pub struct Scenario {
    pub name: &'static str,
    /// Answers what it has to skip, by name.
    play: fn(&mut Stage) -> Result<Vec<String>>,
}

pub const SCENARIOS: [Scenario; 7] = [
    Scenario { name: "an OSD is killed in mid-clean", play: osd_killed },
    Scenario { name: "the cluster is stopped for a minute and comes back", play: outage },
    Scenario { name: "the daemon is killed again and again under verified load", play: kills },
    Scenario { name: "a second host is refused, and then breaks the lock", play: lock_broken },
    Scenario { name: "a host that stalls loses its lock to a second one", play: host_stalls },
    Scenario { name: "the sandbox of the unit lets librbd work", play: sandbox::check },
    Scenario { name: "speed beside the bare image", play: speed::measure },
];

/// What scenarios are played on.
pub struct Stage<'a> {
    pub cluster: Cluster,
    pub program: PathBuf,
    pub folder: &'a Path,
    pub seed: u64,
    pub kills: u32,
    pub seconds: u32,
}

impl Stage<'_> {
    /// # Errors
    /// What did not go well.
    pub fn play(&mut self, scenario: &Scenario) -> Result<Vec<String>> {
        self.cluster.until_serving()?;
        (scenario.play)(self)
    }

    /// A volume that is served, on an image of its own.
    fn host(&self, image: &str) -> Result<Host> {
        self.cluster.create_image(image, IMAGE_MIB)?;
        let folder = self.folder.join(image);
        let mut host = Host::new(&self.program, &folder, &self.cluster.conf(), image)?;
        host.serve()?;
        Ok(host)
    }
}

fn osd_killed(stage: &mut Stage) -> Result<Vec<String>> {
    let mut host = stage.host("osd")?;
    let mut load = host.begin_writes(30)?;
    sleep(Duration::from_secs(6));
    ensure!(host.dirty_bytes()? > 0, "nothing is being cleaned");
    stage.cluster.kill_osd(1)?;
    sleep(Duration::from_secs(10));
    stage.cluster.start_osd(1)?;
    ensure!(load.wait()?.success(), "the load failed");
    verified(&host)?;
    host.stop()?;
    host.serve()?;
    verified(&host)?;
    host.stop()?;
    Ok(Vec::new())
}

fn outage(stage: &mut Stage) -> Result<Vec<String>> {
    let mut host = stage.host("outage")?;
    let mut load = host.begin_writes(90)?;
    sleep(Duration::from_secs(5));
    stage.cluster.kill_all()?;
    let mut told = None;
    host.wait_until("status tells of the silent cluster", |host| {
        told = host.alert("slow_member")?;
        Ok(told.as_ref().is_some_and(|told| told.contains("has not answered")))
    })?;
    println!("status: {}", told.unwrap_or_default());
    sleep(OUTAGE);
    ensure!(load.try_wait()?.is_none(), "the load did not wait for the cluster");
    stage.cluster.start_all()?;
    host.wait_until("the cluster answers again", |host| {
        Ok(host.alert("slow_member")?.is_none_or(|told| !told.contains("has not answered")))
    })?;
    ensure!(load.wait()?.success(), "the load failed");
    verified(&host)?;
    host.stop()?;
    Ok(Vec::new())
}

fn kills(stage: &mut Stage) -> Result<Vec<String>> {
    let mut random = Random::new(stage.seed);
    let mut host = stage.host("kills")?;
    let mut acknowledged = 0;
    for kill in 0..stage.kills {
        let mut load = host.begin_writes(300)?;
        sleep(Duration::from_millis(300 + random.below(2200) as u64));
        host.kill()?;
        ensure!(!load.wait()?.success(), "the load did not notice kill {kill}");
        host.serve().with_context(|| format!("after kill {kill}"))?;
        acknowledged += host.verify().with_context(|| format!("after kill {kill}"))?;
    }
    println!("{} kills, and {acknowledged} acknowledged writes verified", stage.kills);
    ensure!(acknowledged > u64::from(stage.kills), "there was no load: {acknowledged} writes");
    host.stop()?;
    Ok(Vec::new())
}

fn lock_broken(stage: &mut Stage) -> Result<Vec<String>> {
    let mut host = stage.host("broken")?;
    let mut load = host.begin_writes(300)?;
    sleep(Duration::from_secs(4));
    // Another machine as far as folders go, with another volume for the same image.
    let other = Host::new(
        &stage.program,
        &stage.folder.join("broken-other"),
        &stage.cluster.conf(),
        "broken",
    );
    let refusal = format!("{:#}", other.err().context("the second host was let in")?);
    println!("second host: {refusal}");
    ensure!(refusal.contains("is locked by the client at"), "refused by: {refusal}");
    stage.cluster.break_lock("broken")?;
    lost_and_back(stage, &mut host, &mut load, "broken")
}

fn host_stalls(stage: &mut Stage) -> Result<Vec<String>> {
    let mut host = stage.host("stalled")?;
    let mut load = host.begin_writes(300)?;
    sleep(Duration::from_secs(4));
    let daemon = host.process().context("no daemon runs")?.to_string();
    said(&Command::new("kill").args(["-STOP", &daemon]).output()?)?;
    sleep(STALL);
    // What changes the image needs its lock, and takes over that of a lost client.
    grow(stage, "stalled")?;
    said(&Command::new("kill").args(["-CONT", &daemon]).output()?)?;
    lost_and_back(stage, &mut host, &mut load, "stalled")
}

/// The volume notices that its lock is lost, stops all I/O, and serves everything again once it is
/// started anew. Meanwhile another client has the lock.
fn lost_and_back(
    stage: &Stage,
    host: &mut Host,
    load: &mut std::process::Child,
    image: &str,
) -> Result<Vec<String>> {
    let mut told = None;
    host.wait_until("status tells that the lock is lost", |host| {
        told = host.alert("ownership_lost")?;
        Ok(told.is_some())
    })?;
    println!("status: {}", told.unwrap_or_default());
    ensure!(!load.wait()?.success(), "the load goes on without the lock");
    grow(stage, image)?;
    host.stop()?;
    host.serve()?;
    verified(host)?;
    let before = size_told(host)?;
    ensure!(before > IMAGE_MIB << 20, "the size is told as {before}");
    // The holder of the lock does it on behalf of the other client.
    grow(stage, image)?;
    host.wait_until("the new size is told", |host| Ok(size_told(host)? > before))?;
    host.stop()?;
    Ok(Vec::new())
}

/// Resizes an image as another client, which takes its lock for that.
fn grow(stage: &Stage, image: &str) -> Result<()> {
    let told = stage.cluster.run("rbd", &["info", image, "--format", "json"])?;
    let info: serde_json::Value = serde_json::from_str(&told)?;
    let size = info["size"].as_u64().context("an image has a size")?;
    let size = format!("{}M", (size >> 20) + 16);
    stage.cluster.run("rbd", &["resize", "--no-progress", "--size", &size, image]).map(drop)
}

fn size_told(host: &Host) -> Result<u64> {
    let status = host.status()?;
    let member = &status["cores"][0]["array"]["members"][0];
    let size = member["remote"]["size_bytes"].as_u64();
    size.with_context(|| format!("no size in {member}"))
}

fn verified(host: &Host) -> Result<()> {
    let acknowledged = host.verify()?;
    ensure!(acknowledged > 0, "nothing was acknowledged");
    println!("{acknowledged} acknowledged writes verified");
    Ok(())
}
