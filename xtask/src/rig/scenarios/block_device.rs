//! A volume as a block device of the kernel, which outlives its daemon: file systems on it go on
//! while the daemon is killed and restarted.

use std::time::Instant;

use anyhow::{Result, ensure};

use super::outlives::{Counts, FileSystem, PLACE, no_errors};
use super::{LONG, Machine, Play};
use crate::rig::volume::{Status, ends_its_boot, is_up};

const LINK: &str = "/dev/headpond/hv0";
const KILLS: u32 = 5;
const RESTARTS: u32 = 2;

pub fn outlives_its_daemon(play: &mut Play) -> Result<()> {
    let mut machine = show(play)?;
    for file_system in FileSystem::ALL {
        let wanted = (KILLS, RESTARTS);
        file_system.outlives(&mut machine, &mut play.random, LINK, wanted)?;
    }
    refusals(&mut machine)?;
    no_errors(&mut machine)?;
    from_memory(&mut machine)?;
    reaped(&mut machine)?;
    machine.ok("sync")?;
    machine.cut();
    at_boot(play)
}

/// A file system for the long run.
pub fn endures(play: &mut Play, file_system: FileSystem, wanted: (u32, u32)) -> Result<Counts> {
    let mut machine = show(play)?;
    let counts = file_system.outlives(&mut machine, &mut play.random, LINK, wanted)?;
    machine.shut_down()?;
    Ok(counts)
}

/// A machine in which `hv0` is a block device.
fn show(play: &mut Play) -> Result<Machine> {
    let mut machine = play.boot(&[])?;
    is_up(&mut machine)?;
    machine.ok("systemctl stop srv.mount hv0-nbd0.service && sed -i '/nbd0/d' /etc/fstab")?;
    machine.ok("systemctl disable -q hv0-nbd0.service || :")?;
    // What had the disk before is gone: the volume is a block device at once.
    machine.ok("headpond export add hv0 ublk && udevadm settle")?;
    Ok(machine)
}

/// A mounted device is in use, as a connected client is.
fn refusals(machine: &mut Machine) -> Result<()> {
    machine.ok(&format!("mount {LINK} {PLACE}"))?;
    for command in ["headpond stop hv0", "headpond export remove hv0 ublk"] {
        let answer = machine.run(command)?;
        let is_refused = answer.code == 4 && answer.out.contains("mounted at /mnt");
        ensure!(is_refused, "`{command}` ended with {}: {}", answer.code, answer.out);
    }
    let status = Status::of(machine, "hv0")?;
    let users = status.users_of_block_devices();
    machine.ok(&format!("umount {PLACE}"))?;
    // It is looked at every few seconds.
    ensure!(users.is_empty() || users == ["mounted at /mnt"], "it is used by {users:?}");
    Ok(())
}

/// A daemon that does not come back: those who wait get errors, and nobody is left waiting.
fn reaped(machine: &mut Machine) -> Result<()> {
    let folder = "/run/systemd/system/headpond@hv0.service.d";
    machine.ok(&format!("mkdir -p {folder} && echo '[Service]\nRestart=no' >{folder}/no.conf"))?;
    machine.ok("systemctl daemon-reload && systemctl kill --signal=KILL headpond@hv0.service")?;
    let write = format!("dd if=/dev/zero of={LINK} bs=4k count=1 seek=8 oflag=direct conv=notrunc");
    machine.ok(&format!("({write} >/run/dd.log 2>&1; echo $? >/run/dd.code) </dev/null &"))?;
    let waits = machine.ok("sleep 2; headpond export list")?;
    ensure!(waits.contains("waits for its daemon"), "the list has {waits}");
    ensure!(machine.run("[ -e /run/dd.code ]")?.code != 0, "its request has not waited");
    machine.ok("headpond export reap --after-s 600")?;
    ensure!(machine.run(&format!("[ -b {LINK} ]"))?.code == 0, "it was removed at once");
    let begun = Instant::now();
    let told = machine.ok("headpond export reap --after-s 0")?;
    let took = begun.elapsed().as_secs_f64();
    ensure!(told.contains(LINK) && took < 5.0, "after {took:.1} s: {told}");
    machine.wait_until("its request has failed", LONG, |machine| {
        Ok(machine.run("grep -qx 1 /run/dd.code")?.code == 0)
    })?;
    machine.ok(&format!("! ls {LINK} 2>/dev/null"))?;
    Ok(())
}

/// A volume that acknowledges writes in its daemon's memory does not go on: its users get errors.
fn from_memory(machine: &mut Machine) -> Result<()> {
    let link = "/dev/headpond/hv1";
    machine.ok("headpond cache attach hv1 ram:24M --tier --force --set mode=write-back")?;
    machine.ok("headpond export add hv1 ublk && udevadm settle")?;
    machine.ok(&format!("mkfs.ext4 -q -F {link} && mount {link} {PLACE} && echo a >{PLACE}/a"))?;
    machine.ok("systemctl kill --signal=KILL headpond@hv1.service")?;
    machine.wait_until("hv1 is shown anew", LONG, |machine| {
        let log = machine.ok("journalctl -q -b -o cat -u headpond@hv1.service")?;
        let is_told = log.contains("in its memory alone");
        Ok(is_told && machine.run("systemctl is-active headpond@hv1.service")?.code == 0)
    })?;
    let answer = machine.run(&format!("echo b >{PLACE}/b && sync {PLACE}/b"))?;
    ensure!(answer.code != 0, "the file system has gone on");
    machine.ok(&format!("umount -l {PLACE}; dd if={link} of=/dev/null bs=4k count=1"))?;
    Ok(())
}

/// A file system on it is mounted by fstab.
fn at_boot(play: &mut Play) -> Result<()> {
    let mut machine = play.boot(&[])?;
    ends_its_boot(&mut machine)?;
    machine.ok(&format!("pvcreate -qy {LINK} && vgcreate -qy above {LINK}"))?;
    machine.ok("lvcreate -qy -n files -l 100%FREE above && mkfs.ext4 -q /dev/above/files")?;
    let answer = machine.run("headpond export remove hv0 ublk")?;
    ensure!(answer.code == 4 && answer.out.contains("below dm-"), "{}", answer.out);
    let begun = Instant::now();
    machine.ok(&format!("vgremove -qfy above && pvremove -qy {LINK}"))?;
    // Removed and shown again, without waiting for what holds the character device.
    machine.ok("udevadm settle && headpond export remove hv0 ublk")?;
    machine.ok("headpond export add hv0 ublk && udevadm settle")?;
    let took = begun.elapsed().as_secs_f64();
    ensure!(took < 20.0, "the removal took {took:.0} s");
    machine.ok(&format!("mkfs.ext4 -q -F {LINK} && mount {LINK} {PLACE}"))?;
    machine.ok(&format!("echo kept >{PLACE}/kept && umount {PLACE}"))?;
    let options = "_netdev,x-systemd.requires=headpond@hv0.service";
    machine.ok(&format!("echo '{LINK} {PLACE} ext4 {options} 0 2' >>/etc/fstab"))?;
    machine.shut_down()?;
    let mut machine = play.boot(&[])?;
    ends_its_boot(&mut machine)?;
    machine.ok(&format!("findmnt {PLACE} && grep -qx kept {PLACE}/kept"))?;
    machine.shut_down()
}
