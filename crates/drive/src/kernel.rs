//! The kernel's facts about a drive, from `/sys`; reading them needs no privilege.
//!
//! **Source**: Linux `Documentation/ABI/stable/sysfs-block`,
//! `Documentation/ABI/testing/sysfs-class-scsi_disk`.

use crate::drive::{Drive, Protocol};
use crate::fact::Fact;
use crate::parse::vpd;
use serde::Serialize;
use std::str::FromStr;

/// As the kernel reports it.
#[derive(Clone, Debug, Serialize)]
pub struct KernelFacts {
    pub protocol: Fact<Protocol>,
    /// The SCSI host's driver, or NVMe's transport.
    pub driver: Fact<String>,
    pub vendor: Fact<String>,
    pub model: Fact<String>,
    pub firmware: Fact<String>,
    pub serial: Fact<String>,
    pub size_bytes: Fact<u64>,
    pub rotational: Fact<bool>,
    pub rotations_per_minute: Fact<u32>,
    pub scheduler: Fact<String>,
    pub logical_block_bytes: Fact<u64>,
    pub physical_block_bytes: Fact<u64>,
    /// The largest request that the kernel sends.
    pub request_bytes_max: Fact<u64>,
    /// Commands that the drive accepts concurrently.
    pub queue_depth: Fact<u64>,
    /// Requests that the scheduler holds for each queue.
    pub requests_max: Fact<u64>,
    pub numa_node: Fact<u32>,
    /// Whether it treats the drive's cache as volatile, and sends flushes.
    pub write_cache: Fact<bool>,
    /// Whether it sends FUA; otherwise it sends a flush instead.
    pub fua: Fact<bool>,
}

impl Drive {
    /// Reads `/sys`.
    pub fn kernel(&self) -> KernelFacts {
        KernelFacts {
            protocol: Fact::known(self.protocol, self.node.dir().display().to_string()),
            driver: self.driver(),
            vendor: self.vendor(),
            model: self.text(&["device/model"]),
            firmware: self.text(&["device/firmware_rev", "device/rev"]),
            serial: self.serial(),
            size_bytes: self.number("size").and_then("too large", |it: u64| it.checked_mul(512)),
            rotational: self.flag("queue/rotational"),
            rotations_per_minute: self.rotations_per_minute(),
            scheduler: self.text(&["queue/scheduler"]).and_then("names none", |it| chosen(&it)),
            logical_block_bytes: self.number("queue/logical_block_size"),
            physical_block_bytes: self.number("queue/physical_block_size"),
            request_bytes_max: self
                .number("queue/max_sectors_kb")
                .and_then("too large", |it: u64| it.checked_mul(1024)),
            queue_depth: self.queue_depth(),
            requests_max: self.number("queue/nr_requests"),
            numa_node: self.numa_node(),
            write_cache: self.believed_write_cache(),
            fua: self.flag("queue/fua"),
        }
    }

    /// The first of these attributes that is not empty.
    pub(crate) fn text(&self, names: &[&str]) -> Fact<String> {
        let read = |name: &&str| {
            let text = self.node.attribute(name)?.trim().to_owned();
            (!text.is_empty()).then(|| Fact::known(text, self.place(name)))
        };
        let missing = || Fact::unknown(format!("there is no {}", self.place(&names.join(", "))));
        names.iter().find_map(read).unwrap_or_else(missing)
    }

    fn number<T: FromStr>(&self, name: &str) -> Fact<T> {
        self.text(&[name]).and_then("is not a number", |text| text.parse().ok())
    }

    fn flag(&self, name: &str) -> Fact<bool> {
        self.number::<u32>(name).and_then("", |number| Some(number != 0))
    }

    /// The path of an attribute, as a user would type it.
    pub(crate) fn place(&self, name: &str) -> String {
        format!("/sys/block/{}/{name}", self.node.name())
    }

    /// For other drives the attribute is the vendor number of a bus device.
    fn vendor(&self) -> Fact<String> {
        match self.protocol.speaks_scsi() {
            true => self.text(&["device/vendor"]),
            false => Fact::unknown("only SCSI reports it"),
        }
    }

    fn driver(&self) -> Fact<String> {
        if self.protocol == Protocol::Nvme {
            return self.text(&["device/transport"]);
        }
        if self.protocol == Protocol::Virtio {
            let link = self.node.dir().join("device/driver").canonicalize();
            let name = link.ok().and_then(|dir| Some(dir.file_name()?.to_str()?.to_owned()));
            let place = self.place("device/driver");
            let missing = || Fact::unknown(format!("there is no {place}"));
            return name.map_or_else(missing, |name| Fact::known(name, place.clone()));
        }
        let host = self.node.dir().ancestors().find_map(|dir| {
            let name = dir.file_name()?.to_str()?;
            let number = name.strip_prefix("host")?;
            number.parse::<u32>().ok()?;
            let file = dir.join("scsi_host").join(name).join("proc_name");
            let text = std::fs::read_to_string(&file).ok()?;
            Some(Fact::known(text.trim().to_owned(), file.display().to_string()))
        });
        host.unwrap_or_else(|| Fact::unknown("no SCSI host and no NVMe controller is above it"))
    }

    pub(crate) fn serial(&self) -> Fact<String> {
        let page = "device/vpd_pg80";
        let in_page = self.node.attribute_bytes(page).and_then(|bytes| vpd::serial(&bytes));
        match in_page {
            Some(serial) => Fact::known(serial, self.place(page)),
            None => self.text(&["device/serial", "serial"]),
        }
    }

    fn rotations_per_minute(&self) -> Fact<u32> {
        if !self.protocol.speaks_scsi() {
            return Fact::unknown("only SCSI and SATA drives report it");
        }
        let page = "device/vpd_pgb1";
        let read = self.node.attribute_bytes(page);
        match read.as_deref().and_then(vpd::rotation) {
            Some(vpd::Rotation::PerMinute(rpm)) => Fact::known(rpm, self.place(page)),
            Some(vpd::Rotation::None) => Fact::known(0, self.place(page)),
            None => Fact::unknown(format!("{} is missing or empty", self.place(page))),
        }
    }

    fn queue_depth(&self) -> Fact<u64> {
        match self.protocol {
            // Zero-based, and one entry of a queue stays empty: so the value is the depth.
            Protocol::Nvme => self.number("device/sqsize"),
            _ => self.number("device/queue_depth"),
        }
    }

    fn numa_node(&self) -> Fact<u32> {
        let source = "numa_node of the bus device above it";
        match self.node.numa_node() {
            Some(node) => Fact::known(node, source),
            None => Fact::unknown(format!("{source}: none, or -1")),
        }
    }

    fn believed_write_cache(&self) -> Fact<bool> {
        let place = self.place("queue/write_cache");
        match self.node.write_cache() {
            Some(on) => Fact::known(on, place),
            None => Fact::unknown(format!("there is no {place}")),
        }
    }
}

/// Of `none [mq-deadline]`, the one in brackets; with one only, that.
fn chosen(all: &str) -> Option<String> {
    let inside = all.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    let chosen = inside.map_or(all, |(chosen, _)| chosen);
    (!chosen.contains(' ')).then(|| chosen.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::testing::Tree;

    const SCSI: &str = "pci0/0000:00:03.0/host2/target2:0:0/2:0:0:0";

    #[test]
    fn every_fact_of_a_scsi_disk_names_the_file_that_it_is_from() {
        let tree = Tree::new();
        let serial = [&[0, 0x80, 0, 4][..], b"Z123"].concat();
        let mut rotation = vec![0; 64];
        (rotation[1], rotation[3]) = (0xB1, 60);
        rotation[4..6].copy_from_slice(&7200_u16.to_be_bytes());
        tree.add(
            SCSI,
            "8:0",
            &[
                ("device/scsi_disk/2:0:0:0/cache_type", b"write back\n"),
                ("device/model", b"DISK 9000       \n"),
                ("device/rev", b"0101\n"),
                ("device/vpd_pg80", &serial),
                ("device/vpd_pgb1", &rotation),
                ("device/queue_depth", b"32\n"),
                ("size", b"2048\n"),
                ("queue/rotational", b"1\n"),
                ("queue/scheduler", b"none [mq-deadline] kyber\n"),
                ("queue/write_cache", b"write back\n"),
                ("queue/fua", b"0\n"),
            ],
        );
        let facts = tree.drive("8:0").unwrap().kernel();
        let model = Fact::known("DISK 9000".to_owned(), "/sys/block/disk/device/model");
        assert_eq!(facts.model, model);
        assert_eq!(facts.serial.value().map(String::as_str), Some("Z123"));
        assert_eq!(facts.rotations_per_minute.value(), Some(&7200));
        assert_eq!(facts.size_bytes.value(), Some(&(1 << 20)));
        assert_eq!(facts.scheduler.value().map(String::as_str), Some("mq-deadline"));
        assert_eq!(facts.queue_depth.value(), Some(&32));
        assert_eq!(facts.write_cache.value(), Some(&true));
        assert_eq!(facts.fua.value(), Some(&false));
    }

    #[test]
    fn what_the_kernel_does_not_show_is_unknown_and_says_which_file_is_missing() {
        let tree = Tree::new();
        tree.add("pci0/nvme/nvme0", "259:0", &[("queue/fua", b"maybe\n")]);
        let facts = tree.drive("259:0").unwrap().kernel();
        let missing = Fact::unknown("there is no /sys/block/disk/device/model");
        assert_eq!(facts.model, missing);
        assert_eq!(facts.fua, Fact::unknown("/sys/block/disk/queue/fua: is not a number"));
        assert!(facts.write_cache.value().is_none());
    }

    #[test]
    fn the_driver_of_a_scsi_disk_is_its_hosts() {
        let tree = Tree::new();
        tree.add(SCSI, "8:0", &[("device/scsi_disk/2:0:0:0/cache_type", b"write back\n")]);
        let host = tree.system.sys.join("devices/pci0/0000:00:03.0/host2/scsi_host/host2");
        std::fs::create_dir_all(&host).unwrap();
        std::fs::write(host.join("proc_name"), "megaraid_sas\n").unwrap();
        let driver = tree.drive("8:0").unwrap().kernel().driver;
        assert_eq!(driver.value().map(String::as_str), Some("megaraid_sas"));
    }

    #[test]
    fn the_scheduler_in_use_is_the_one_in_brackets() {
        assert_eq!(chosen("none [mq-deadline] kyber").as_deref(), Some("mq-deadline"));
        assert_eq!(chosen("none").as_deref(), Some("none"));
        assert_eq!(chosen("none kyber"), None);
    }
}
