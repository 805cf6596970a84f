//! File systems on a block device of a volume, under verified load while the daemon below them is
//! killed and restarted.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{LONG, Machine};
use crate::rig::random::Random;
use crate::rig::volume::{daemon, is_served_anew};

pub const PLACE: &str = "/mnt";
/// Reads and writes with checksums, again and again; what overlaps waits, or a check would find
/// what another request has just written.
const LOAD: &str = "fio --name=verified --filename=/mnt/verified --size=24M --rw=randrw --bs=4k \
                    --iodepth=16 --ioengine=io_uring --direct=1 --serialize_overlap=1 \
                    --verify=crc32c --verify_backlog=256 --verify_fatal=1 --output-format=json";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileSystem {
    Ext4,
    Xfs,
}

/// What a file system has gone through.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    pub kills: u32,
    pub restarts: u32,
    /// Of the verified load, from its first write to its last check.
    pub passes: u64,
    /// The longest request, in seconds.
    pub longest_s: f64,
}

impl FileSystem {
    pub const ALL: [Self; 2] = [Self::Ext4, Self::Xfs];

    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "XFS",
        }
    }

    fn commands(self) -> [&'static str; 2] {
        match self {
            Self::Ext4 => ["mkfs.ext4 -q -F", "e2fsck -fn"],
            Self::Xfs => ["mkfs.xfs -q -f", "xfs_repair -n"],
        }
    }

    /// Makes it on a block device of `hv0`, and has its daemon killed and restarted below it so
    /// often.
    ///
    /// # Errors
    /// An I/O error, a checksum that is wrong, another device, or a file system that is damaged.
    pub fn outlives(
        self,
        machine: &mut Machine,
        random: &mut Random,
        device: &str,
        wanted: (u32, u32),
    ) -> Result<Counts> {
        let [make, check] = self.commands();
        println!("  {} on {device}", self.name());
        machine.ok(&format!("{make} {device} && mount {device} {PLACE}"))?;
        let counts = under_load(machine, random, device, wanted)?;
        machine.ok(&format!("umount {PLACE} && {check} {device}"))?;
        no_errors(machine)?;
        println!("  {counts}");
        Ok(counts)
    }
}

impl Counts {
    pub fn add(&mut self, more: Self) {
        self.kills += more.kills;
        self.restarts += more.restarts;
        self.passes += more.passes;
        self.longest_s = self.longest_s.max(more.longest_s);
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kills, restarts, passes, longest_s } = self;
        write!(
            f,
            "{kills} kills, {restarts} restarts: 0 errors in {passes} verified passes, fsck clean, \
             the longest request took {longest_s:.1} s"
        )
    }
}

/// What the kernel tells of errors, none of which is meant.
///
/// # Errors
/// What it has told.
pub fn no_errors(machine: &mut Machine) -> Result<()> {
    let told = machine.ok(
        "dmesg | grep -E 'I/O error|EXT4-fs (error|warning)|Remounting|shut.*down due|hung|blocked \
         for' || :",
    )?;
    ensure!(told.trim().is_empty(), "the kernel told: {told}");
    Ok(())
}

fn under_load(
    machine: &mut Machine,
    random: &mut Random,
    device: &str,
    (kills, restarts): (u32, u32),
) -> Result<Counts> {
    let node = machine.ok(&format!("readlink -f {device}"))?;
    machine.ok(&format!(
        "rm -f /run/enough /run/ended /run/fio.json; (while [ ! -e /run/enough ]; do \
         {LOAD} >>/run/fio.json; done; echo ended >/run/ended) </dev/null >/dev/null 2>&1 &"
    ))?;
    for number in 0..kills + restarts {
        sleep(Duration::from_millis(1000 + random.below(4000) as u64));
        // Ends of the daemon that are meant do not keep the unit from being started.
        machine.ok("systemctl reset-failed headpond@hv0.service || :")?;
        let before = daemon(machine)?;
        let begun = Instant::now();
        match number < kills {
            true => machine.ok("systemctl kill --signal=KILL headpond@hv0.service")?,
            false => machine.ok("systemctl restart headpond@hv0.service")?,
        };
        is_served_anew(machine, &before)?;
        println!("  after {:.1} s", begun.elapsed().as_secs_f64());
        let now = machine.ok(&format!("readlink -f {device}"))?;
        ensure!(now == node, "it was {node} and is {now}");
    }
    machine.ok("touch /run/enough")?;
    machine.wait_until("the last check has ended", LONG, |machine| {
        Ok(machine.run("[ -e /run/ended ]")?.code == 0)
    })?;
    let told = machine.ok("cat /run/fio.json")?;
    let passes: Vec<Value> = serde_json::Deserializer::from_str(&told)
        .into_iter()
        .collect::<Result<_, _>>()
        .with_context(|| format!("what fio told is no JSON: {told}"))?;
    let errors: u64 = passes.iter().filter_map(|pass| pass["jobs"][0]["error"].as_u64()).sum();
    ensure!(!passes.is_empty() && errors == 0, "fio has failed: {told}");
    let longest = |kind: &str| {
        let of = |pass: &Value| pass["jobs"][0][kind]["clat_ns"]["max"].as_f64().unwrap_or(0.0);
        passes.iter().map(of).fold(0.0, f64::max) / 1e9
    };
    let longest_s = longest("read").max(longest("write"));
    Ok(Counts { kills, restarts, passes: passes.len() as u64, longest_s })
}
