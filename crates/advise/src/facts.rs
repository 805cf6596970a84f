//! What the model must know of the devices, with defaults for what nobody told.

use std::fmt;

use serde::{Deserialize, Serialize};

const KIB: u64 = 1 << 10;
const GIB: u64 = 1 << 30;

/// The slow store: an array or one drive.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CoreFacts {
    pub level: CoreLevel,
    /// Groups of a nested level; 1 otherwise.
    pub groups: u32,
    /// Members of a group that hold data (for mirrors: distinct data).
    pub data_members: u32,
    /// Members of a group beyond those: parity strips, or further copies.
    pub redundant_members: u32,
    pub strip_bytes: u64,
    pub member: MemberFacts,
    /// Small sequential writes are gathered into full stripes.
    pub merges_sequential: bool,
}

/// How data is spread over members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CoreLevel {
    Single,
    Raid0,
    Raid1,
    Raid10,
    Raid5,
    Raid6,
    Raid50,
    Raid60,
}

/// One member of the core.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberFacts {
    /// A disk that turns: seeks cost, and a queue is served faster than it came.
    pub rotational: bool,
    /// Random operations a second, one at a time.
    pub random_iops: f64,
    /// Sequential megabytes (10^6 bytes) a second.
    pub seq_mb_s: f64,
    /// Writes are answered from the drive's own memory and sorted there.
    pub write_cache: bool,
}

/// The fast store in front of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheFacts {
    pub size_bytes: u64,
    pub class: CacheClass,
    /// Time of one small read or write, in microseconds, the engine's own time included.
    pub read_us: f64,
    pub write_us: f64,
    pub read_mb_s: f64,
    pub write_mb_s: f64,
    /// Small operations a second at any depth.
    pub iops_max: f64,
    /// Loses its contents with the power.
    pub lost_on_power: bool,
    /// Two or more devices hold every block.
    pub mirrored: bool,
}

/// What kind of device the cache is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheClass {
    Ram,
    Nvme,
    SataSsd,
}

impl MemberFacts {
    /// A 7200 rpm disk with its write cache on: 8 ms mean seek and half a turn, 180 MB/s.
    pub const DISK_7200: Self =
        Self { rotational: true, random_iops: 82.0, seq_mb_s: 180.0, write_cache: true };

    /// A SATA flash drive.
    pub const SATA_SSD: Self =
        Self { rotational: false, random_iops: 8_000.0, seq_mb_s: 500.0, write_cache: false };

    /// An NVMe flash drive.
    pub const NVME: Self =
        Self { rotational: false, random_iops: 12_000.0, seq_mb_s: 2_500.0, write_cache: false };
}

impl CoreFacts {
    /// One drive.
    pub fn single(member: MemberFacts) -> Self {
        Self {
            level: CoreLevel::Single,
            groups: 1,
            data_members: 1,
            redundant_members: 0,
            strip_bytes: 64 * KIB,
            member,
            merges_sequential: false,
        }
    }

    /// An array of `members` in `groups` (1 for levels that are not nested).
    ///
    /// # Panics
    /// When the level needs more members in a group than there are.
    pub fn array(
        level: CoreLevel,
        members: u32,
        groups: u32,
        strip_bytes: u64,
        member: MemberFacts,
    ) -> Self {
        let each = members / groups.max(1);
        let (data_members, redundant_members) = match level {
            CoreLevel::Single | CoreLevel::Raid0 => (each, 0),
            CoreLevel::Raid1 => (1, each - 1),
            CoreLevel::Raid10 => (each / 2, each / 2),
            CoreLevel::Raid5 | CoreLevel::Raid50 => (each - 1, 1),
            CoreLevel::Raid6 | CoreLevel::Raid60 => (each - 2, 2),
        };
        assert!(data_members >= 1, "a group has at least one member's worth of data");
        let groups = groups.max(1);
        let merges_sequential = false;
        Self {
            level,
            groups,
            data_members,
            redundant_members,
            strip_bytes,
            member,
            merges_sequential,
        }
    }

    /// What is assumed when nobody says: twelve 7200 rpm disks in RAID 6.
    pub fn assumed() -> Self {
        Self::array(CoreLevel::Raid6, 12, 1, 64 * KIB, MemberFacts::DISK_7200)
    }

    /// All members.
    pub fn members(&self) -> u32 {
        self.groups * (self.data_members + self.redundant_members)
    }

    /// Data in a full stripe of one group.
    pub fn stripe_bytes(&self) -> u64 {
        self.strip_bytes * u64::from(self.data_members)
    }

    /// True when writes must keep parity.
    pub fn has_parity(&self) -> bool {
        use CoreLevel::{Raid5, Raid6, Raid50, Raid60};
        matches!(self.level, Raid5 | Raid6 | Raid50 | Raid60)
    }
}

impl CacheFacts {
    /// A datacentre NVMe drive.
    pub fn nvme(size_bytes: u64) -> Self {
        Self {
            size_bytes,
            class: CacheClass::Nvme,
            read_us: 90.0,
            write_us: 30.0,
            read_mb_s: 3_000.0,
            write_mb_s: 2_000.0,
            iops_max: 300_000.0,
            lost_on_power: false,
            mirrored: false,
        }
    }

    /// A SATA flash drive with power-loss protection.
    pub fn sata_ssd(size_bytes: u64) -> Self {
        Self {
            size_bytes,
            class: CacheClass::SataSsd,
            read_us: 150.0,
            write_us: 80.0,
            read_mb_s: 520.0,
            write_mb_s: 450.0,
            iops_max: 50_000.0,
            lost_on_power: false,
            mirrored: false,
        }
    }

    /// Memory.
    pub fn ram(size_bytes: u64) -> Self {
        Self {
            size_bytes,
            class: CacheClass::Ram,
            read_us: 8.0,
            write_us: 8.0,
            read_mb_s: 6_000.0,
            write_mb_s: 5_000.0,
            iops_max: 250_000.0,
            lost_on_power: true,
            mirrored: false,
        }
    }

    /// What is assumed when nobody says: one NVMe drive of 64 GiB.
    pub fn assumed() -> Self {
        Self::nvme(64 * GIB)
    }
}

impl fmt::Display for CoreLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CoreLevel::Single => "single drive",
            CoreLevel::Raid0 => "RAID 0",
            CoreLevel::Raid1 => "RAID 1",
            CoreLevel::Raid10 => "RAID 10",
            CoreLevel::Raid5 => "RAID 5",
            CoreLevel::Raid6 => "RAID 6",
            CoreLevel::Raid50 => "RAID 50",
            CoreLevel::Raid60 => "RAID 60",
        })
    }
}

impl fmt::Display for CacheClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CacheClass::Ram => "RAM",
            CacheClass::Nvme => "NVMe",
            CacheClass::SataSsd => "SATA SSD",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn array_counts_its_members() {
        let core = CoreFacts::array(CoreLevel::Raid60, 40, 4, 64 * KIB, MemberFacts::DISK_7200);
        assert_eq!((core.data_members, core.redundant_members, core.members()), (8, 2, 40));
        assert_eq!(core.stripe_bytes(), 512 * KIB);
        let mirrors = CoreFacts::array(CoreLevel::Raid10, 8, 1, 64 * KIB, MemberFacts::SATA_SSD);
        assert_eq!((mirrors.data_members, mirrors.redundant_members), (4, 4));
    }
}
