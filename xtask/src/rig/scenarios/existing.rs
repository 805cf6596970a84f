//! A device that had data before it was a core: nothing at boot uses it past its volume.

use anyhow::{Context, Result, ensure};

use super::{LONG, MIRROR, Machine, Play};
use crate::rig::disks::Attached;
use crate::rig::volume::{Status, devices, ends_its_boot};

/// Its disk, and that of its cache: those of a volume that is not needed here.
const CORE: &str = MIRROR[0];
const FAST: &str = MIRROR[1];
/// What the files are to be, where no mount hides it.
const SUMS: &str = "/var/lib/rig-sums";
const FILES: &str = "seq 5000 >numbers && head -c 3000000 /dev/urandom >noise && sync";

/// Found by the UUID that it and its export have in common.
pub fn file_system(play: &mut Play) -> Result<()> {
    let mut machine = boot(play)?;
    let [core, fast] = take_disks(&mut machine)?;
    machine.ok(&format!("mkfs.ext4 -q {core} && mkdir /data && mount {core} /data"))?;
    machine.ok(&format!("(cd /data && {FILES} && sha256sum numbers noise >{SUMS})"))?;
    refused(&mut machine, &create(&core, &fast), "mounted")?;
    machine.ok("umount /data")?;
    let uuid = machine.ok(&format!("blkid -p -o value -s UUID {core}"))?.trim().to_owned();
    machine.ok(&create(&core, &fast))?;
    let line = format!("UUID={uuid} /data ext4 _netdev,x-systemd.requires=data-nbd1.service 0 2");
    serve(&mut machine, play, &line)?;
    machine.ok("systemctl start data.mount")?;
    on_volume(&mut machine, "/dev/nbd1", "/data")?;
    hidden(&mut machine, &core)?;
    refused(&mut machine, &format!("mkdir /other && mount {core} /other"), "busy")?;
    write(&mut machine, "/data")?;
    machine.shut_down()?;
    let mut machine = boot(play)?;
    ends_its_boot(&mut machine)?;
    let core = devices(&mut machine)?[CORE].clone();
    on_volume(&mut machine, "/dev/nbd1", "/data")?;
    hidden(&mut machine, &core)?;
    let link = machine.ok(&format!("readlink -f /dev/disk/by-uuid/{uuid}"))?;
    ensure!(link.trim() == "/dev/nbd1", "its UUID leads to {link}");
    is_right(&mut machine, "/data")?;
    // Given back, it is a disk with a file system.
    machine.ok("systemctl stop data.mount data-nbd1.service")?;
    machine.ok("sed -i '/data/d' /etc/fstab && systemctl disable headpond@data.service")?;
    machine.ok("headpond detach data && udevadm settle")?;
    machine.ok(&format!("mount UUID={uuid} /data"))?;
    on_volume(&mut machine, &core, "/data")?;
    is_right(&mut machine, "/data")?;
    machine.ok("umount /data")?;
    machine.shut_down()
}

/// The disk has one name: it is to be known by its serial number, which another bus changes.
fn boot(play: &mut Play) -> Result<Machine> {
    let mut attached = Attached::shuffled(&mut play.random, &MIRROR);
    attached.extend(MIRROR.map(Attached::on_virtio));
    Machine::boot(play.stage.image, &play.disks, &attached, play.stage.until)
}

fn take_disks(machine: &mut Machine) -> Result<[String; 2]> {
    ends_its_boot(machine)?;
    machine.ok("systemctl stop headpond@hv1.service && headpond destroy hv1 --yes")?;
    let devices = devices(machine)?;
    let device = |name| devices.get(name).cloned().with_context(|| format!("no disk {name}"));
    let [core, fast] = [device(CORE)?, device(FAST)?];
    // The kernel lets go of them a little after the process has ended.
    machine.wait_until("the disks are free", LONG, |machine| {
        Ok(machine.run(&format!("mkfs.ext4 -n -q {core} && mkfs.ext4 -n -q {fast}"))?.code == 0)
    })?;
    Ok([core, fast])
}

fn create(core: &str, fast: &str) -> String {
    format!("headpond create data --core {core} --keep --cache {fast} --mode write-back")
}

/// Its export is a block device of the kernel, at boot too.
fn serve(machine: &mut Machine, play: &Play, line: &str) -> Result<()> {
    let unit = play.stage.image.guide.unit.replace("hv0", "data").replace("nbd0", "nbd1");
    machine.ok(&format!("cat >/etc/systemd/system/data-nbd1.service <<'END'\n{unit}END"))?;
    machine.ok(&format!("echo '{line}' >>/etc/fstab"))?;
    machine.ok("systemctl enable --now headpond@data.service && systemctl daemon-reload")?;
    machine.ok("systemctl start data-nbd1.service && udevadm settle")?;
    Ok(())
}

fn refused(machine: &mut Machine, command: &str, reason: &str) -> Result<()> {
    let answer = machine.run(&format!("{command} 2>&1"))?;
    let is_refused = answer.code != 0 && answer.out.contains(reason);
    ensure!(is_refused, "`{command}` ended with {}: {}", answer.code, answer.out);
    Ok(())
}

fn on_volume(machine: &mut Machine, device: &str, place: &str) -> Result<()> {
    let source = machine.ok(&format!("findmnt -nro SOURCE {place}"))?;
    ensure!(source.trim() == device, "at {place} there is {source}");
    Ok(())
}

/// udev does not show what is on the core.
fn hidden(machine: &mut Machine, core: &str) -> Result<()> {
    let known = machine.ok(&format!("udevadm info -q property -n {core}"))?;
    let has = |line: &str| known.lines().any(|it| it == line);
    let is_hidden = has("SYSTEMD_READY=0") && has("ID_FS_TYPE=headpond_core");
    ensure!(is_hidden, "udev knows of {core}: {known}");
    Ok(())
}

/// More than it had, some of it dirty in the cache.
fn write(machine: &mut Machine, place: &str) -> Result<()> {
    machine.ok(&format!("(cd {place} && head -c 2000000 /dev/urandom >new && sync)"))?;
    machine.ok(&format!("(cd {place} && sha256sum new >>{SUMS} && sync)"))?;
    let status = Status::of(machine, "data")?;
    ensure!(status.code == 0, "{}", status.told());
    Ok(())
}

fn is_right(machine: &mut Machine, place: &str) -> Result<()> {
    machine.ok(&format!("(cd {place} && sha256sum --quiet -c {SUMS})"))?;
    Ok(())
}
