//! The package, below a volume in use: an upgrade that its clients do not notice, a removal that is
//! refused, and one that is not.

use anyhow::{Context, Result, ensure};

use super::outlives::no_errors;
use super::{LONG, Machine, Play};
use crate::rig::volume::{daemon, data_is_right, is_mounted, is_up, load, nothing_was_replayed};

const PULSES: &str = "/run/rig-pulses";
/// Where the initial RAM disk puts it.
const PACKAGE: &str = "/usr/lib/rig/headpond.deb";
/// The same with a later version.
const LATER: &str = "cd /var/tmp && dpkg-deb --raw-extract /usr/lib/rig/headpond.deb later && \
                     sed -i 's/^Version: .*/Version: 2.0-1/' later/DEBIAN/control && \
                     dpkg-deb -Znone --build later later.deb && rm -r later";

pub fn is_upgraded_below_a_mount(play: &mut Play) -> Result<()> {
    let mut machine = play.boot(&[])?;
    is_up(&mut machine)?;
    let before = daemon(&mut machine)?;
    machine.ok(&format!("dpkg --install {PACKAGE}"))?;
    machine.ok("getent group headpond && systemctl is-enabled headpond.target")?;
    machine.ok(LATER)?;
    load(&mut machine)?;
    start_pulse(&mut machine)?;
    machine.ok("dpkg --install /var/tmp/later.deb")?;
    let version = machine.ok("dpkg-query --show --showformat='${Version}' headpond")?;
    ensure!(version.trim() == "2.0-1", "the package is of version {version}");
    goes_on(&mut machine, &before)?;
    let program = program(&mut machine, &before)?;
    ensure!(program.contains("(deleted)"), "after the upgrade it is {program}");
    let answer = machine.run("dpkg --remove headpond 2>&1")?;
    let is_refused = answer.code != 0 && answer.out.contains("so the package stays");
    ensure!(is_refused, "the removal below a mount ended with {}: {}", answer.code, answer.out);
    goes_on(&mut machine, &before)?;
    println!("  longest pause of all: {} s", longest_pause(&mut machine)?);
    machine.ok("systemctl stop rig-pulse.service rig-load.service srv.mount hv0-nbd0.service")?;
    machine.ok("systemctl restart headpond@hv0.service")?;
    let after = daemon(&mut machine)?;
    let program = self::program(&mut machine, &after)?;
    ensure!(program.trim() == "/usr/bin/headpond", "after a restart it is {program}");
    machine.ok("systemctl start hv0-nbd0.service srv.mount")?;
    is_mounted(&mut machine)?;
    data_is_right(&mut machine)?;
    // The check has left the shell in a folder of the file system.
    machine.ok("cd / && systemctl stop srv.mount hv0-nbd0.service && dpkg --purge headpond")?;
    let left =
        machine.ok("ls -l /usr/bin/headpond /proc/[0-9]*/exe 2>/dev/null | grep headpond || :")?;
    ensure!(left.is_empty(), "after the removal there is {left}");
    machine.ok("[ -e /var/lib/headpond/hv0.toml ]")?;
    machine.shut_down()?;
    // The files of another boot are there again; the volume is what it was.
    let mut machine = play.boot(&[])?;
    is_up(&mut machine)?;
    nothing_was_replayed(&mut machine)?;
    data_is_right(&mut machine)?;
    machine.shut_down()
}

/// The same process serves, and what the load writes arrives.
fn goes_on(machine: &mut Machine, before: &str) -> Result<()> {
    let now = daemon(machine)?;
    ensure!(now == before, "process {before} has served, and now it is {now}");
    let pulses = pulses(machine)?;
    machine.wait_until("writes go on", LONG, |machine| Ok(self::pulses(machine)? > pulses + 5))?;
    let units = "rig-pulse.service rig-load.service headpond-reap.timer";
    machine.ok(&format!("systemctl is-active {units}"))?;
    is_mounted(machine)?;
    no_errors(machine)
}

/// The file that a process runs.
fn program(machine: &mut Machine, process: &str) -> Result<String> {
    machine.ok(&format!("readlink /proc/{process}/exe"))
}

/// Flushed writes to the file system, of which each tells when it has ended.
fn start_pulse(machine: &mut Machine) -> Result<()> {
    let pulse = format!(
        "while :; do date +%s >/srv/pulse && sync /srv/pulse && date +%s.%N >>{PULSES}; done"
    );
    machine.ok(&format!("systemd-run -q --unit=rig-pulse sh -c '{pulse}'"))?;
    Ok(())
}

fn pulses(machine: &mut Machine) -> Result<u64> {
    let count = machine.ok(&format!("cat {PULSES} 2>/dev/null | wc -l"))?;
    count.trim().parse().context("a number of lines")
}

fn longest_pause(machine: &mut Machine) -> Result<String> {
    let longest = "NR > 1 && $1 - last > most {most = $1 - last} {last = $1} \
                   END {printf \"%.1f\", most}";
    machine.ok(&format!("awk '{longest}' {PULSES}"))
}
