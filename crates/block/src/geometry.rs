//! What a device tells those above it about itself.

use serde::Serialize;

/// Size, alignment and durability of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Geometry {
    /// Capacity in bytes, a multiple of `logical_block_bytes`.
    pub size_bytes: u64,
    /// Smallest unit a request may address, in bytes: 512 or 4096.
    pub logical_block_bytes: u32,
    /// The transfer size the device likes best, in bytes; at least a logical block.
    pub preferred_bytes: u32,
    /// The full stripe below, where there is one: what a cleaner should fill.
    pub stripe: Option<StripeGeometry>,
    /// When a write that was acknowledged is safe.
    pub stability: Stability,
    /// Whether address distance costs time.
    pub rotational: bool,
}

impl Geometry {
    /// A stable, non-rotational device of `size_bytes` with 512-byte logical blocks.
    pub fn of_size(size_bytes: u64) -> Self {
        Self {
            size_bytes,
            logical_block_bytes: 512,
            preferred_bytes: 4096,
            stripe: None,
            stability: Stability::StableOnCompletion,
            rotational: false,
        }
    }
}

/// The stripe of an array, in bytes of data (parity not counted).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StripeGeometry {
    /// Contiguous bytes on one member.
    pub strip_bytes: u32,
    /// Data bytes of one full stripe: strips of data times `strip_bytes`.
    pub width_bytes: u32,
}

/// When an acknowledged write survives a power cut; ordered from the safest down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stability {
    /// As soon as it is acknowledged; FLUSH has nothing to do.
    StableOnCompletion,
    /// After FLUSH or FUA: a drive with a volatile cache that honours both.
    Flushable,
    /// Never: RAM and what is made of it.
    LostOnPower,
}

impl Stability {
    /// Of two devices that hold parts of one volume: the one that promises less.
    pub fn worst(self, other: Self) -> Self {
        self.max(other)
    }
}
