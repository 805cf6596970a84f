//! What the volumes of a machine have come to, by their own words and by those of the kernel and
//! of systemd.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::disks::MEMBERS;
use super::machine::Machine;

/// Where the list of flushed files of the load is kept over a boot.
const KEPT: &str = "/var/lib/rig-kept";
/// What a start says that has replayed or resynced something.
const REPLAYED: [&str; 4] = ["not shut down cleanly", "replayed", "were resynced", "recover"];
/// For a boot to end, and for a resync.
pub const LONG: Duration = Duration::from_secs(240);

/// `headpond status hv0 --json`, and how it ended.
pub struct Status {
    pub code: i32,
    json: Value,
}

impl Status {
    pub fn of(machine: &mut Machine, volume: &str) -> Result<Self> {
        let command = format!("headpond status {volume} --json 2>/dev/null");
        let answer = machine.run(&command)?;
        let json = serde_json::from_str(&answer.out)
            .with_context(|| format!("the status is no JSON: {}", answer.out))?;
        Ok(Self { code: answer.code, json })
    }

    /// State of the array: optimal or degraded; none where the volume is not served.
    pub fn array(&self) -> Option<&str> {
        self.json["cores"][0]["array"]["state"].as_str()
    }

    pub fn has_alert(&self, kind: &str) -> bool {
        self.list("alerts").iter().any(|alert| alert["kind"] == kind)
    }

    /// Notes on how the volume was opened.
    pub fn warnings(&self) -> Vec<&str> {
        self.list("warnings").iter().filter_map(Value::as_str).collect()
    }

    /// Mounts, processes and others.
    pub fn users_of_block_devices(&self) -> Vec<&str> {
        let devices = self.json["server"]["block_devices"].as_array().into_iter().flatten();
        let users = devices.filter_map(|device| device["used_by"].as_array()).flatten();
        users.filter_map(Value::as_str).collect()
    }

    pub fn replayed_blocks(&self) -> Option<u64> {
        self.json["cache"]["live"]["replayed_blocks"].as_u64()
    }

    pub fn told(&self) -> String {
        let array = self.array().unwrap_or("not there");
        let (alerts, warnings) = (&self.json["alerts"], &self.json["warnings"]);
        format!(
            "status of a volume that is {} ended with {}: array {array}, alerts {alerts}, warnings \
             {warnings}",
            self.json["state"], self.code
        )
    }

    fn list(&self, field: &str) -> &[Value] {
        self.json[field].as_array().map_or(&[], Vec::as_slice)
    }
}

/// Devices by the serial numbers of their disks: `m0` is `/dev/sdc` in one boot and `/dev/vdb` in
/// the next.
pub fn devices(machine: &mut Machine) -> Result<BTreeMap<String, String>> {
    let told = machine.ok("lsblk -dnro SERIAL,NAME")?;
    let pairs = told.lines().filter_map(|line| line.split_once(' '));
    Ok(pairs.map(|(serial, name)| (serial.to_owned(), format!("/dev/{name}"))).collect())
}

/// The first of these lines that has this text and begins with a name of the device.
///
/// # Errors
/// Where there is none.
pub fn told_of(machine: &mut Machine, device: &str, text: &str, lines: &[&str]) -> Result<String> {
    for line in lines.iter().filter(|line| line.contains(text)) {
        let said = line.trim_start_matches("headpond: note: ");
        let name = said.split([' ', ':']).next().unwrap_or_default();
        if machine.ok(&format!("readlink -f {name}"))?.trim() == device {
            return Ok(said.to_owned());
        }
    }
    anyhow::bail!("nothing with \"{text}\" is told of {device}: {}", lines.join("; "))
}

/// Waits for the end of the boot, which nothing has failed in; the file system of the volume is
/// mounted, and so is the volume served that only udev starts.
///
/// # Errors
/// What is not so.
pub fn is_up(machine: &mut Machine) -> Result<()> {
    ends_its_boot(machine)?;
    is_mounted(machine)?;
    machine.ok("systemctl is-active headpond@hv1.service")?;
    let devices = devices(machine)?;
    for name in MEMBERS {
        let Some(device) = devices.get(name) else { continue };
        let known = machine.ok(&format!("udevadm info -q property -n {device}"))?;
        let has = |line: &str| known.lines().any(|it| it == line);
        let is_ours = has("ID_FS_TYPE=headpond_member") && has("SYSTEMD_READY=0");
        ensure!(is_ours, "udev knows of {device}: {known}");
    }
    Ok(())
}

/// Waits for the end of the boot, which nothing has failed in.
///
/// # Errors
/// What has.
pub fn ends_its_boot(machine: &mut Machine) -> Result<()> {
    let mut told = String::new();
    machine.wait_until("the boot has ended", LONG, |machine| {
        told = machine.run("systemctl is-system-running")?.out.trim().to_owned();
        Ok(!matches!(told.as_str(), "initializing" | "starting" | "offline"))
    })?;
    if told != "running" {
        let units = machine.run("systemctl --failed --no-legend --plain; journalctl -b -n 60")?;
        anyhow::bail!("the system is {told}: {}", units.out);
    }
    Ok(())
}

/// # Errors
/// Where the file system of the volume is not mounted.
pub fn is_mounted(machine: &mut Machine) -> Result<()> {
    let mounted = machine.ok("findmnt -nro SOURCE,FSTYPE /srv")?;
    ensure!(mounted.trim() == "/dev/nbd0 ext4", "at /srv there is {mounted}");
    Ok(())
}

/// All files that were written at the first boot, and those that the load has flushed since, are
/// what they were.
///
/// # Errors
/// Which ones are not.
pub fn data_is_right(machine: &mut Machine) -> Result<()> {
    machine.ok("(cd /srv/files && sha256sum --quiet -c ../sums)")?;
    let kept = machine.ok(&format!("sha256sum --quiet -c {KEPT} && wc -l <{KEPT}"))?;
    println!("  {} flushed files of the load are right", kept.trim());
    Ok(())
}

/// The last stop was one after which nothing has to be done again: neither by the volume, nor by
/// the file system on it.
///
/// # Errors
/// What was replayed.
pub fn nothing_was_replayed(machine: &mut Machine) -> Result<()> {
    let replayed = replayed(machine)?;
    ensure!(replayed.is_empty(), "after a clean shutdown: {}", replayed.join("; "));
    // Mounts of systemd's own may disappear by themselves.
    let ours = "srv|nbd|headpond";
    let failed = format!("timed out|failed.*({ours})|({ours}).*failed");
    let manager = "journalctl -q -b -1 -o cat _PID=1";
    let stopped = machine.ok(&format!("{manager} | grep -Ei '{failed}' || :"))?;
    ensure!(stopped.is_empty(), "systemd told at the last shutdown: {stopped}");
    Ok(())
}

/// What a start has replayed, by volume, kernel and fsck.
pub fn replayed(machine: &mut Machine) -> Result<Vec<String>> {
    let status = Status::of(machine, "hv0")?;
    let blocks = status.replayed_blocks().context("the status has no replayed blocks")?;
    let fsck = "-u systemd-fsck@dev-nbd0.service";
    let kernel = machine.ok("journalctl -q -b -k -o cat | grep nbd0 || :")?;
    let fsck = machine.ok(&format!("journalctl -q -b -o cat {fsck}"))?;
    let log = log(machine)?;
    let lines = log.lines().chain(fsck.lines()).chain(kernel.lines()).chain(status.warnings());
    let is_replay = |line: &&str| REPLAYED.iter().any(|word| line.contains(word));
    let mut replayed: Vec<String> = lines.filter(is_replay).map(str::to_owned).collect();
    if blocks > 0 {
        replayed.push(format!("{blocks} blocks of the cache"));
    }
    Ok(replayed)
}

/// What the daemon of `hv0` has written in this boot.
pub fn log(machine: &mut Machine) -> Result<String> {
    machine.ok("journalctl -q -b -o cat -u headpond@hv0.service")
}

/// The process that serves `hv0`.
///
/// # Errors
/// When systemd does not tell.
pub fn daemon(machine: &mut Machine) -> Result<String> {
    let number = machine.ok("systemctl show -p MainPID --value headpond@hv0.service")?;
    Ok(number.trim().to_owned())
}

/// Waits until another process than this one serves `hv0`.
///
/// # Errors
/// When none does.
pub fn is_served_anew(machine: &mut Machine, before: &str) -> Result<()> {
    machine.wait_until("another daemon serves it", LONG, |machine| {
        let is_active = machine.run("systemctl is-active headpond@hv0.service")?.code == 0;
        let now = daemon(machine)?;
        Ok(is_active && now != before && now != "0")
    })
}

/// Waits until the array is healthy again, by itself.
///
/// # Errors
/// The last status, when it takes too long.
pub fn becomes_healthy(machine: &mut Machine) -> Result<()> {
    let mut told = String::new();
    let outcome = machine.wait_until("hv0 is healthy, without an alert", LONG, |machine| {
        let status = Status::of(machine, "hv0")?;
        told = status.told();
        Ok(status.code == 0 && status.array() == Some("optimal"))
    });
    outcome.with_context(|| told)
}

/// Starts the load and lets it run for a while.
///
/// # Errors
/// When it does not run.
pub fn load(machine: &mut Machine) -> Result<()> {
    machine.ok("rm -f /run/rig-kept; systemctl start rig-load.service")?;
    let enough = "the load has flushed 20 files";
    machine.wait_until(enough, LONG, |machine| {
        Ok(machine.run("[ $(wc -l </run/rig-kept) -ge 20 ]")?.code == 0)
    })?;
    machine.ok("systemctl is-active rig-load.service")?;
    // What is in the list by now has to outlive whatever comes.
    // The last line may not be whole.
    machine.ok(&format!("sed '$d' /run/rig-kept >{KEPT} && sync {KEPT} /var/lib"))?;
    Ok(())
}
