//! A volume that is a block device by `headpond attach`: its daemon ends below a file system under
//! load, which goes on; and where that would lose writes, it gets errors.

use anyhow::{Result, ensure};

use super::outlives::{Counts, FileSystem};
use super::{LONG, Machine, Play};
use crate::rig::volume::{
    becomes_healthy, daemon, data_is_right, is_mounted, is_served_anew, is_up, load, log, replayed,
};

const NODE: &str = "/dev/nbd0";
const KILLS: u32 = 5;
const RESTARTS: u32 = 1;
/// Not by the shell itself, whose folder would keep the file system from being unmounted.
const FILES: &str = "(mkdir /srv/files && cd /srv/files && \
                     for i in $(seq 40); do head -c $((i * 5000)) /dev/urandom >$i; done && \
                     sha256sum * >../sums && sync)";
const SUMS: &str = "(cd /srv/files && sha256sum --quiet -c ../sums)";
const NO_MODULE: &str = "/etc/modprobe.d/no-nbd.conf";
/// When the kernel sends requests again, in milliseconds: what the unit lets the daemon set.
const RESEND: &str = "/sys/block/nbd0/queue/io_timeout";

pub fn outlives_its_daemon(play: &mut Play) -> Result<()> {
    let mut machine = play.boot(&[])?;
    is_up(&mut machine)?;
    refused_without_module(&mut machine)?;
    attach(&mut machine, play)?;
    for file_system in FileSystem::ALL {
        let wanted = (KILLS, RESTARTS);
        file_system.outlives(&mut machine, &mut play.random, NODE, wanted)?;
    }
    at_boot(&mut machine)?;
    machine.shut_down()?;
    let mut machine = play.boot(&[])?;
    is_up(&mut machine)?;
    // The daemon's own log: systemd has told of the kills.
    let replayed = replayed(&mut machine)?;
    ensure!(replayed.is_empty(), "after a clean shutdown: {}", replayed.join("; "));
    data_is_right(&mut machine)?;
    becomes_healthy(&mut machine)?;
    loses_memory(&mut machine)?;
    // Its console has errors, which it was to have.
    machine.cut();
    Ok(())
}

/// A file system for the long run.
pub fn endures(play: &mut Play, file_system: FileSystem, wanted: (u32, u32)) -> Result<Counts> {
    let mut machine = play.boot(&[])?;
    is_up(&mut machine)?;
    machine.ok("systemctl stop srv.mount hv0-nbd0.service && udevadm settle")?;
    attach(&mut machine, play)?;
    let counts = file_system.outlives(&mut machine, &mut play.random, NODE, wanted)?;
    machine.cut();
    Ok(counts)
}

/// The client that the guide has first has loaded the module; some kernels load it when they are
/// asked for it.
fn refused_without_module(machine: &mut Machine) -> Result<()> {
    machine.ok("systemctl stop srv.mount hv0-nbd0.service && udevadm settle")?;
    machine.ok(&format!("echo 'install nbd /bin/false' >{NO_MODULE} && rmmod nbd"))?;
    let answer = machine.run("headpond attach hv0 2>&1")?;
    let is_told = answer.code == 4 && answer.out.contains("modprobe nbd");
    ensure!(is_told, "without the module it ended with {}: {}", answer.code, answer.out);
    machine.ok(&format!("rm {NO_MODULE}"))?;
    Ok(())
}

/// By the unit of the guide, in the place of the other one.
fn attach(machine: &mut Machine, play: &Play) -> Result<()> {
    let unit = &play.stage.image.guide.attach;
    machine.ok(&format!("cat >/etc/systemd/system/hv0-nbd0.service <<'END'\n{unit}END"))?;
    machine.ok("systemctl daemon-reload && systemctl start hv0-nbd0.service")?;
    let resend = machine.ok(&format!("cat {RESEND}"))?;
    ensure!(resend.trim() == "3000", "requests are sent again after {resend} ms");
    Ok(())
}

/// A file system of fstab, with load at the end.
fn at_boot(machine: &mut Machine) -> Result<()> {
    machine.ok(&format!("mkfs.ext4 -q -F {NODE} && systemctl start srv.mount"))?;
    is_mounted(machine)?;
    machine.ok(FILES)?;
    let answer = machine.run(&format!("headpond detach {NODE} 2>&1"))?;
    ensure!(answer.code == 4 && answer.out.contains("mounted at /srv"), "{}", answer.out);
    load(machine)
}

/// Writes that are acknowledged from memory do not survive their daemon: the device does not go on.
fn loses_memory(machine: &mut Machine) -> Result<()> {
    machine.ok("headpond cache attach hv0 ram:16M --tier --set mode=write-back --force")?;
    machine.ok("date >/srv/last && sync /srv/last")?;
    let before = daemon(machine)?;
    machine.ok("systemctl kill -s KILL headpond@hv0.service")?;
    is_served_anew(machine, &before)?;
    machine.wait_until("it has ended the device", LONG, |machine| {
        Ok(log(machine)?.contains("/dev/nbd0 was ended"))
    })?;
    let written = machine.run("date >/srv/after && sync /srv/after")?;
    ensure!(written.code != 0, "a write below which others were lost has succeeded");
    machine.ok("umount /srv && systemctl restart hv0-nbd0.service")?;
    machine.ok("e2fsck -fp /dev/nbd0; [ $? -le 1 ]")?;
    machine.ok("systemctl reset-failed srv.mount; systemctl start srv.mount")?;
    is_mounted(machine)?;
    machine.ok(SUMS)?;
    Ok(())
}
