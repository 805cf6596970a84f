//! A volume that is a block device by `headpond attach`: its daemon ends below a file system under
//! load, which goes on; and where that would lose writes, it gets errors.

use anyhow::{Context, Result, ensure};

use super::{LONG, Machine, Play};
use crate::rig::volume::{becomes_healthy, is_mounted, is_up, load, log, replayed};

const KILLS: u32 = 5;
/// When each of a row of flushed writes was done, in seconds.
const PULSES: &str = "/run/rig-pulses";
const KEPT: &str = "/run/rig-kept";
/// Not by the shell itself, whose folder would keep the file system from being unmounted.
const FILES: &str = "(mkdir /srv/files && cd /srv/files && \
                     for i in $(seq 40); do head -c $((i * 5000)) /dev/urandom >$i; done && \
                     sha256sum * >../sums && sync)";
const SUMS: &str = "(cd /srv/files && sha256sum --quiet -c ../sums)";
const NO_MODULE: &str = "/etc/modprobe.d/no-nbd.conf";
/// When the kernel sends requests again, in milliseconds: what the unit lets the daemon set.
const RESEND: &str = "/sys/block/nbd0/queue/io_timeout";

pub fn file_system(play: &mut Play) -> Result<()> {
    let mut machine = play.boot(&[])?;
    is_up(&mut machine)?;
    refused_without_module(&mut machine)?;
    attach(&mut machine, play)?;
    load(&mut machine)?;
    let pulse = format!(
        "while :; do date +%s >/srv/pulse && sync /srv/pulse && date +%s.%N >>{PULSES}; done"
    );
    machine.ok(&format!("systemd-run -q --unit=rig-pulse sh -c '{pulse}'"))?;
    for kill in 1..=KILLS {
        ended(&mut machine, "systemctl kill -s KILL headpond@hv0.service")
            .with_context(|| format!("kill {kill} of {KILLS}"))?;
    }
    ended(&mut machine, "systemctl restart headpond@hv0.service").context("a planned restart")?;
    println!("  longest pause of all: {} s", longest_pause(&mut machine, 0)?);
    machine.ok("systemctl stop rig-pulse.service rig-load.service")?;
    is_right(&mut machine)?;
    machine.ok("systemctl stop srv.mount && e2fsck -fn /dev/nbd0 && systemctl start srv.mount")?;
    load(&mut machine)?;
    machine.shut_down()?;
    let mut machine = play.boot(&[])?;
    is_up(&mut machine)?;
    let replayed = replayed(&mut machine)?;
    ensure!(replayed.is_empty(), "after a clean shutdown: {}", replayed.join("; "));
    machine.ok(SUMS)?;
    becomes_healthy(&mut machine)?;
    loses_memory(&mut machine)?;
    // Its console has errors, which it was to have.
    machine.cut();
    Ok(())
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
    machine.ok("mkfs.ext4 -q -F /dev/nbd0 && systemctl start srv.mount")?;
    is_mounted(machine)?;
    let resend = machine.ok(&format!("cat {RESEND}"))?;
    ensure!(resend.trim() == "3000", "requests are sent again after {resend} ms");
    machine.ok(FILES)?;
    let answer = machine.run("headpond detach /dev/nbd0 2>&1")?;
    ensure!(answer.code == 4 && answer.out.contains("mounted at /srv"), "{}", answer.out);
    Ok(())
}

/// The daemon ends, and another one goes on: the same device, without an error.
fn ended(machine: &mut Machine, by: &str) -> Result<()> {
    let before = daemon(machine)?;
    let pulses = pulses(machine)?;
    // Ends of the daemon that are meant do not keep the unit from being started.
    machine.ok(&format!("systemctl reset-failed headpond@hv0.service; {by}"))?;
    machine.wait_until("another daemon serves, and writes go on", LONG, |machine| {
        let is_other = !["0", &before].contains(&&*daemon(machine)?);
        Ok(is_other && self::pulses(machine)? > pulses + 5)
    })?;
    println!("  pause: {} s", longest_pause(machine, pulses)?);
    is_mounted(machine)?;
    machine.ok("systemctl is-active rig-load.service rig-pulse.service")?;
    no_errors(machine)?;
    machine.ok(SUMS)?;
    Ok(())
}

fn daemon(machine: &mut Machine) -> Result<String> {
    let number = machine.ok("systemctl show -p MainPID --value headpond@hv0.service")?;
    Ok(number.trim().to_owned())
}

fn pulses(machine: &mut Machine) -> Result<u64> {
    let count = machine.ok(&format!("cat {PULSES} 2>/dev/null | wc -l"))?;
    count.trim().parse().context("a number of lines")
}

/// From this pulse on.
fn longest_pause(machine: &mut Machine, since: u64) -> Result<String> {
    let longest = format!(
        "NR > {since} + 1 && $1 - last > most {{most = $1 - last}} {{last = $1}} \
         END {{printf \"%.1f\", most}}"
    );
    machine.ok(&format!("awk '{longest}' {PULSES}"))
}

fn no_errors(machine: &mut Machine) -> Result<()> {
    let errors = machine.ok(
        "journalctl -q -b -k -o cat | grep -E 'I/O error|EXT4-fs (error|warning)|Remounting' || :",
    )?;
    ensure!(errors.is_empty(), "the kernel tells of {errors}");
    Ok(())
}

/// All files that the load has flushed, but for the line that it was writing.
fn is_right(machine: &mut Machine) -> Result<()> {
    machine.ok(&format!("sed '$d' {KEPT} >/run/rig-sums && sha256sum --quiet -c /run/rig-sums"))?;
    let count = machine.ok("wc -l </run/rig-sums")?;
    println!("  {} flushed files of the load are right", count.trim());
    Ok(())
}

/// Writes that are acknowledged from memory do not survive their daemon: the device does not go on.
fn loses_memory(machine: &mut Machine) -> Result<()> {
    machine.ok("headpond cache attach hv0 ram:16M --tier --set mode=write-back --force")?;
    machine.ok("date >/srv/last && sync /srv/last")?;
    let before = daemon(machine)?;
    machine.ok("systemctl kill -s KILL headpond@hv0.service")?;
    machine.wait_until("another daemon has ended the device", LONG, |machine| {
        let is_other = !["0", &before].contains(&&*daemon(machine)?);
        Ok(is_other && log(machine)?.contains("/dev/nbd0 was ended"))
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
