//! The description of a solid state drive as its data file gives it.

use crate::error::{ModelError, require, require_all};
use crate::kind::Kind;
use serde::{Deserialize, Serialize};

/// One model file.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SsdParameters {
    pub kind: Kind,
    pub name: String,
    pub description: String,
    pub interface: LinkParameters,
    pub controller: ControllerParameters,
    pub flash: FlashParameters,
    pub write_cache: WriteBufferParameters,
    /// Flash that takes one bit a cell at first, and is folded together later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slc: Option<SlcParameters>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// One direction at a time; a flush waits until nothing else is under way, and runs alone.
    Sata,
    /// Both directions at once; a flush is a command like others.
    Nvme,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LinkParameters {
    pub protocol: Protocol,
    /// What the link carries each way, encoding and framing taken off.
    pub mb_per_s: f64,
    /// Commands that the drive takes; further ones wait outside.
    pub queue_depth: usize,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerParameters {
    /// Firmware and host adapter, for a read beside flash and transfers.
    pub read_us: f64,
    /// The same for a write into the buffer.
    pub write_us: f64,
    /// Of a flush that finds nothing to do.
    pub flush_us: f64,
    /// The most commands that the firmware goes through.
    pub read_iops_max: f64,
    pub write_iops_max: f64,
    /// The most that comes out and goes in, where that is less than the link carries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_mb_per_s: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_mb_per_s: Option<f64>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FlashParameters {
    /// What the host sees.
    pub capacity_bytes: u64,
    /// What the dies hold; the difference is what garbage collection lives on.
    pub physical_bytes: u64,
    pub channels: usize,
    pub dies_per_channel: usize,
    pub channel_mb_per_s: f64,
    /// What one die reads at once.
    pub page_kib: u32,
    /// What one die programs at once: pages times planes times, where all bits of a cell are
    /// programmed together, bits.
    pub program_kib: u32,
    pub read_us: f64,
    pub program_us: f64,
    pub erase_ms: f64,
    /// What is erased together: a block of each die and plane.
    pub superblock_mib: u32,
    /// Written over without erasing, as phase-change memory is: nothing is ever collected.
    #[serde(default)]
    pub in_place: bool,
}

/// What becomes of a flush where the buffer is lost with the power.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlushBehaviour {
    #[default]
    Honoured,
    /// It is answered, and nothing is programmed for it.
    Ignored,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WriteBufferParameters {
    pub capacity_kib: u32,
    /// Capacitors carry it over a power cut.
    pub protected: bool,
    /// Switched off, an unprotected drive finishes one write on its flash before the next; a
    /// protected one only reports that it has none.
    pub enabled: bool,
    /// The host is told of it and sends flushes.
    pub reported: bool,
    #[serde(default)]
    pub flush: FlushBehaviour,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SlcParameters {
    /// What is always there.
    pub static_mib: u64,
    /// What is added on an empty drive; it shrinks as the drive fills.
    pub dynamic_mib: u64,
    pub program_kib: u32,
    pub program_us: f64,
    /// Time without commands before it is folded.
    pub idle_ms: f64,
}

/// What was done to a drive before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Nothing is mapped.
    Fresh,
    /// Written once from end to end, in order.
    #[default]
    Full,
    /// Written over at random for so long that nothing changes any more.
    Steady,
}

const TIMES: &str = "is not between 0 and 1,000,000 us";
const RATES: &str = "is not between 1 and 1,000,000 MB/s";
const COUNTS: &str = "is not between 1 and 100,000,000 a second";

impl SsdParameters {
    pub(super) fn check(&self) -> Result<(), ModelError> {
        let (link, controller) = (&self.interface, &self.controller);
        let rates = [
            ("interface.mb_per_s", link.mb_per_s),
            ("controller.read_mb_per_s", controller.read_mb_per_s.unwrap_or(1.0)),
            ("controller.write_mb_per_s", controller.write_mb_per_s.unwrap_or(1.0)),
            ("flash.channel_mb_per_s", self.flash.channel_mb_per_s),
        ];
        require_all(&rates, 1.0..=1e6, RATES)?;
        let counts = [
            ("controller.read_iops_max", controller.read_iops_max),
            ("controller.write_iops_max", controller.write_iops_max),
        ];
        require_all(&counts, 1.0..=1e8, COUNTS)?;
        let times = [
            ("controller.read_us", controller.read_us),
            ("controller.write_us", controller.write_us),
            ("controller.flush_us", controller.flush_us),
            ("flash.read_us", self.flash.read_us),
            ("flash.program_us", self.flash.program_us),
        ];
        require_all(&times, 0.0..=1e6, TIMES)?;
        let depth = (1..=65_536).contains(&link.queue_depth);
        require(depth, "interface.queue_depth", "is not between 1 and 65,536")?;
        let buffer = (64..=16 << 20).contains(&self.write_cache.capacity_kib);
        require(buffer, "write_cache.capacity_kib", "is not between 64 KiB and 16 GiB")?;
        self.flash.check()?;
        self.slc.as_ref().map_or(Ok(()), SlcParameters::check)
    }
}

impl FlashParameters {
    fn check(&self) -> Result<(), ModelError> {
        let units = |kib: u32| (4..=4096).contains(&kib) && kib.is_multiple_of(4);
        let pages = "is no multiple of 4 between 4 and 4096 KiB";
        require(units(self.page_kib), "flash.page_kib", pages)?;
        require(units(self.program_kib), "flash.program_kib", pages)?;
        let channels = (1..=64).contains(&self.channels);
        require(channels, "flash.channels", "is not between 1 and 64")?;
        let dies = (1..=64).contains(&self.dies_per_channel);
        require(dies, "flash.dies_per_channel", "is not between 1 and 64")?;
        let erase = [("flash.erase_ms", self.erase_ms)];
        require_all(&erase, 0.0..=1000.0, "is not between 0 and 1000 ms")?;
        let whole = self.capacity_bytes.is_multiple_of(4096) && self.capacity_bytes > 0;
        require(whole, "flash.capacity_bytes", "is no multiple of 4096")?;
        let capacity = self.capacity_bytes <= 1 << 48;
        require(capacity, "flash.capacity_bytes", "is more than 256 TiB")?;
        let superblock_bytes = u64::from(self.superblock_mib.max(1)) << 20;
        let superblocks = self.physical_bytes / superblock_bytes;
        let field = "flash.superblock_mib";
        let in_range = self.superblock_mib > 0 && (64..=16_384).contains(&superblocks);
        require(in_range, field, "does not divide flash.physical_bytes into 64 to 16,384 parts")?;
        let held = self.capacity_bytes.div_ceil(superblock_bytes);
        let spare = self.in_place || superblocks >= held + superblocks / 256 + 8;
        let reason = "is not at least flash.capacity_bytes, 8 superblocks and 1/256 of itself";
        require(spare, "flash.physical_bytes", reason)
    }
}

impl SlcParameters {
    fn check(&self) -> Result<(), ModelError> {
        let units = (4..=4096).contains(&self.program_kib) && self.program_kib.is_multiple_of(4);
        require(units, "slc.program_kib", "is no multiple of 4 between 4 and 4096 KiB")?;
        require_all(&[("slc.program_us", self.program_us)], 0.0..=1e6, TIMES)?;
        let idle = [("slc.idle_ms", self.idle_ms)];
        require_all(&idle, 0.0..=1e6, "is not between 0 and 1,000,000 ms")?;
        let size = self.static_mib <= 1 << 24 && self.dynamic_mib <= 1 << 24;
        require(size, "slc.static_mib", "or slc.dynamic_mib is more than 16 TiB")
    }
}
