//! The scenarios: each boots machines from copies of the disks of the first boot.

mod attached;
mod block_device;
mod existing;
mod outlives;
mod package;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::disks::{Attached, CACHE, Disks, MEMBERS, MIRROR};
use super::image::Image;
use super::machine::Machine;
use super::random::Random;
use super::volume::{
    LONG, Status, becomes_healthy, data_is_right, devices, is_mounted, is_up, load, log,
    nothing_was_replayed, replayed, told_of,
};

pub use outlives::{Counts, FileSystem};

pub const FIRST: &str = "a volume is made, enabled, mounted by fstab and shut down under load";

/// When a device comes that is late.
const LATE: Duration = Duration::from_secs(60);
/// For a start without a device, which is waited for thirty seconds.
const START_MAX: Duration = Duration::from_secs(120);

pub struct Scenario {
    pub name: &'static str,
    play: fn(&mut Play) -> Result<()>,
}

pub const SCENARIOS: [Scenario; 10] = [
    Scenario { name: "members in random order, on other buses", play: random_order },
    Scenario { name: "one member is missing, and is there again at the next boot", play: missing },
    Scenario { name: "one member comes 60 s late", play: late_member },
    Scenario { name: "the cache comes 60 s late", play: late_cache },
    Scenario { name: "an older image of a member is put back between boots", play: older_image },
    Scenario { name: "the power is cut under load", play: power_cut },
    Scenario { name: "an existing device, mounted by UUID", play: existing::file_system },
    Scenario {
        name: "a block device outlives its daemon",
        play: block_device::outlives_its_daemon,
    },
    Scenario {
        name: "an attached volume outlives its daemon",
        play: attached::outlives_its_daemon,
    },
    Scenario {
        name: "the package is upgraded below a mounted volume",
        play: package::is_upgraded_below_a_mount,
    },
];

/// How `hv0` is a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Device {
    /// By the kernel's ublk driver.
    Ublk,
    /// By its NBD client.
    Nbd,
}

/// What scenarios begin with.
pub struct Stage<'a> {
    image: &'a Image,
    disks: Disks,
    folder: TempDir,
    kept: PathBuf,
    seed: u64,
    until: Instant,
}

/// One scenario.
struct Play<'a> {
    stage: &'a Stage<'a>,
    disks: Disks,
    random: Random,
}

impl<'a> Stage<'a> {
    /// # Errors
    /// When the disks cannot be made.
    pub fn new(image: &'a Image, kept: &Path, seed: u64, until: Instant) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("run-").tempdir_in(kept)?;
        let disks = Disks::make(folder.path().join("first"), &image.root)?;
        Ok(Self { image, disks, folder, kept: kept.to_owned(), seed, until })
    }

    /// Makes the volumes, which the scenarios find.
    ///
    /// # Errors
    /// What did not go well.
    pub fn first_boot(&self) -> Result<()> {
        let mut random = Random::new(self.seed.wrapping_mul(1000));
        let attached = Attached::shuffled(&mut random, &[]);
        let made = || {
            let mut machine = Machine::boot(self.image, &self.disks, &attached, self.until)?;
            make_volumes(&mut machine, self.image)?;
            load(&mut machine)?;
            machine.shut_down()
        };
        self.keep_console(&self.disks, "first", made())
    }

    /// # Errors
    /// What did not go well.
    pub fn play(&self, scenario: &Scenario) -> Result<()> {
        let number = SCENARIOS.iter().position(|it| it.name == scenario.name).unwrap_or(0);
        self.on_copies(number as u64, scenario.play)
    }

    /// One machine of the long run.
    ///
    /// # Errors
    /// What did not go well.
    pub fn endure(
        &self,
        (device, file_system): (Device, FileSystem),
        number: u64,
        wanted: (u32, u32),
    ) -> Result<Counts> {
        self.on_copies(SCENARIOS.len() as u64 + number, |play| match device {
            Device::Ublk => block_device::endures(play, file_system, wanted),
            Device::Nbd => attached::endures(play, file_system, wanted),
        })
    }

    /// With copies of the disks of the first boot, and chance of this number.
    fn on_copies<T>(&self, number: u64, play: impl FnOnce(&mut Play) -> Result<T>) -> Result<T> {
        let folder = self.folder.path().join(number.to_string());
        let disks = self.disks.copied_to(folder.clone())?;
        let random = Random::new(self.seed.wrapping_mul(1000).wrapping_add(1 + number));
        let mut chosen = Play { stage: self, disks, random };
        let outcome = play(&mut chosen);
        let outcome = self.keep_console(&chosen.disks, &number.to_string(), outcome);
        std::fs::remove_dir_all(&folder)?;
        outcome
    }

    /// What the last machine has told is kept where something did not go well.
    fn keep_console<T>(&self, disks: &Disks, name: &str, outcome: Result<T>) -> Result<T> {
        outcome.with_context(|| {
            let console = self.kept.join(format!("console-{name}.txt"));
            match std::fs::copy(disks.folder().join("console"), &console) {
                Ok(_) => format!("see {}", console.display()),
                Err(error) => format!("no console: {error}"),
            }
        })
    }
}

impl Play<'_> {
    /// Boots with all disks but these, in another order.
    fn boot(&mut self, without: &[&str]) -> Result<Machine> {
        let attached = Attached::shuffled(&mut self.random, without);
        Machine::boot(self.stage.image, &self.disks, &attached, self.stage.until)
    }
}

fn make_volumes(machine: &mut Machine, image: &Image) -> Result<()> {
    machine.wait_until("the disks are there", START_MAX, |machine| {
        let there = devices(machine)?;
        Ok(MEMBERS.iter().chain(&MIRROR).chain(&[CACHE]).all(|it| there.contains_key(*it)))
    })?;
    let devices = devices(machine)?;
    let device = |name: &str| devices.get(name).with_context(|| format!("there is no disk {name}"));
    let words = |names: &[&str]| -> Result<String> {
        let words: Result<Vec<&str>> = names.iter().map(|it| Ok(device(it)?.as_str())).collect();
        Ok(words?.join(" "))
    };
    let (members, cache, mirror) = (words(&MEMBERS)?, device(CACHE)?, words(&MIRROR)?);
    machine.ok(&format!("headpond create hv0 --raid 6 --zeroed {members} --cache {cache}"))?;
    machine.ok(&format!("headpond create hv1 --raid 1 --zeroed {mirror}"))?;
    let unit = "/etc/systemd/system/hv0-nbd0.service";
    machine.ok(&format!("cat >{unit} <<'END'\n{}END", image.guide.unit))?;
    machine.ok(&format!("cat >/etc/fstab <<'END'\n{}END", image.guide.fstab))?;
    machine.ok("systemctl enable headpond.target")?;
    machine.ok("systemctl enable --now headpond@hv0.service")?;
    machine.ok("systemctl daemon-reload && systemctl start hv0-nbd0.service")?;
    machine.ok("mkfs.ext4 -q /dev/nbd0 && systemctl start srv.mount")?;
    is_mounted(machine)?;
    machine.ok("mkdir /srv/files && cd /srv/files && \
         for i in $(seq 100); do head -c $((i * 5000)) /dev/urandom >$i; done && \
         sha256sum * >../sums && sync")?;
    becomes_healthy(machine)
}

fn random_order(play: &mut Play) -> Result<()> {
    for boot in 0..3 {
        let mut machine = play.boot(&[])?;
        is_up(&mut machine)?;
        nothing_was_replayed(&mut machine)?;
        data_is_right(&mut machine)?;
        becomes_healthy(&mut machine)?;
        if boot == 1 {
            // From now on it is a local file system, which the boot waits for.
            machine.ok("sed -i s/_netdev,// /etc/fstab && ! grep _netdev /etc/fstab")?;
        }
        load(&mut machine)?;
        machine.shut_down()?;
    }
    Ok(())
}

/// The volume waits for thirty seconds, tells what for, and starts without it.
fn starts_degraded(machine: &mut Machine) -> Result<()> {
    machine.wait_until("hv0 waits for a device", START_MAX, |machine| {
        Ok(Status::of(machine, "hv0")?.has_alert("devices_missing"))
    })?;
    machine.wait_until("hv0 is degraded", START_MAX, |machine| {
        let status = Status::of(machine, "hv0")?;
        Ok(status.array() == Some("degraded") && status.code == 3)
    })
}

fn missing(play: &mut Play) -> Result<()> {
    let member = play.random.choose(&MEMBERS);
    let mut machine = play.boot(&[member])?;
    starts_degraded(&mut machine)?;
    is_up(&mut machine)?;
    nothing_was_replayed(&mut machine)?;
    data_is_right(&mut machine)?;
    load(&mut machine)?;
    machine.shut_down()?;
    println!("  with {member} again");
    let mut machine = play.boot(&[])?;
    is_up(&mut machine)?;
    nothing_was_replayed(&mut machine)?;
    becomes_healthy(&mut machine)?;
    came_back(&mut machine)?;
    data_is_right(&mut machine)?;
    machine.shut_down()
}

/// The log tells that a member was taken back, by its bitmap.
fn came_back(machine: &mut Machine) -> Result<()> {
    let log = log(machine)?;
    let is_told = log.lines().any(|line| line.contains("has come back and is resynced"));
    ensure!(is_told, "the log does not tell who came back: {log}");
    Ok(())
}

fn late_member(play: &mut Play) -> Result<()> {
    let member = play.random.choose(&MEMBERS);
    let mut machine = play.boot(&[member])?;
    starts_degraded(&mut machine)?;
    is_up(&mut machine)?;
    data_is_right(&mut machine)?;
    // What it lacks is known.
    load(&mut machine)?;
    machine.wait_for_age(LATE);
    machine.plug(Attached::of(member, &mut play.random))?;
    becomes_healthy(&mut machine)?;
    came_back(&mut machine)?;
    machine.shut_down()?;
    // Without two others, what it has got back counts: their data is reconstructed with it.
    let mut others: Vec<&str> = MEMBERS.into_iter().filter(|name| *name != member).collect();
    play.random.shuffle(&mut others);
    let mut machine = play.boot(&others[..2])?;
    starts_degraded(&mut machine)?;
    is_up(&mut machine)?;
    nothing_was_replayed(&mut machine)?;
    data_is_right(&mut machine)?;
    machine.shut_down()
}

/// Without its cache a volume is not started, however long that takes.
fn late_cache(play: &mut Play) -> Result<()> {
    let mut machine = play.boot(&[CACHE])?;
    machine.wait_until("hv0 waits for a device", START_MAX, |machine| {
        Ok(Status::of(machine, "hv0")?.has_alert("devices_missing"))
    })?;
    machine.wait_for_age(LATE);
    let status = Status::of(&mut machine, "hv0")?;
    let waits = status.array().is_none() && status.has_alert("devices_missing");
    ensure!(waits, "it waits on: {}", status.told());
    machine.plug(Attached::of(CACHE, &mut play.random))?;
    is_up(&mut machine)?;
    nothing_was_replayed(&mut machine)?;
    data_is_right(&mut machine)?;
    becomes_healthy(&mut machine)?;
    machine.shut_down()
}

fn older_image(play: &mut Play) -> Result<()> {
    let member = play.random.choose(&MEMBERS);
    let mut machine = play.boot(&[])?;
    is_up(&mut machine)?;
    load(&mut machine)?;
    machine.shut_down()?;
    println!("  {member} as it was before this boot");
    play.disks.put_back(member, &play.stage.disks)?;
    let mut machine = play.boot(&[])?;
    is_up(&mut machine)?;
    let device = devices(&mut machine)?[member].clone();
    let status = Status::of(&mut machine, "hv0")?;
    ensure!(status.code == 3 && status.array() == Some("degraded"), "{}", status.told());
    let left_out = "is stale and left out";
    let told = told_of(&mut machine, &device, left_out, &status.warnings())?;
    println!("  told: {told}");
    data_is_right(&mut machine)?;
    let refused = "is not taken back by itself";
    machine.wait_until("the log tells why it stays out", LONG, |machine| {
        Ok(log(machine)?.contains(refused))
    })?;
    let log = log(&mut machine)?;
    let lines: Vec<&str> = log.lines().collect();
    println!("  told: {}", told_of(&mut machine, &device, refused, &lines)?);
    machine.shut_down()
}

/// The opposite of a clean shutdown, which the checks for one have to notice.
fn power_cut(play: &mut Play) -> Result<()> {
    let mut machine = play.boot(&[])?;
    is_up(&mut machine)?;
    load(&mut machine)?;
    machine.cut();
    let mut machine = play.boot(&[])?;
    is_up(&mut machine)?;
    let replayed = replayed(&mut machine)?;
    ensure!(!replayed.is_empty(), "nothing was replayed after a power cut");
    println!("  replayed: {}", replayed.join("; "));
    data_is_right(&mut machine)?;
    becomes_healthy(&mut machine)?;
    machine.shut_down()
}
