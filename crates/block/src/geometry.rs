//! The geometry of a device: size, alignment and durability.

use serde::Serialize;
use std::cell::OnceCell;

/// Size, alignment and durability of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Geometry {
    /// Capacity in bytes, a multiple of `logical_block_bytes`.
    pub size_bytes: u64,
    /// Smallest unit a request may address, in bytes: 512 or 4096.
    pub logical_block_bytes: u32,
    /// The optimal transfer size, in bytes; at least a logical block.
    pub preferred_bytes: u32,
    /// The full stripe below, if any, which a cleaner should fill.
    pub stripe: Option<StripeGeometry>,
    /// When an acknowledged write is durable.
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

/// A geometry that may change. Former values stay valid for references to them, so each change
/// takes a little memory: it is for a few changes per device.
#[derive(Debug)]
pub struct ChangingGeometry {
    told: Geometry,
    then: OnceCell<Box<ChangingGeometry>>,
}

impl ChangingGeometry {
    pub fn new(geometry: Geometry) -> Self {
        Self { told: geometry, then: OnceCell::new() }
    }

    /// The current value.
    pub fn now(&self) -> &Geometry {
        &self.newest().told
    }

    /// Sets a new value.
    ///
    /// # Panics
    /// Where the capacity would shrink.
    pub fn change(&self, geometry: Geometry) {
        let newest = self.newest();
        assert!(geometry.size_bytes >= newest.told.size_bytes, "room that was told stays there");
        if geometry != newest.told {
            let changed = newest.then.set(Box::new(Self::new(geometry)));
            changed.expect("nothing comes after the newest");
        }
    }

    fn newest(&self) -> &Self {
        let mut newest = self;
        while let Some(next) = newest.then.get() {
            newest = next;
        }
        newest
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
    /// Of two devices that hold parts of one volume: the weaker one.
    pub fn worst(self, other: Self) -> Self {
        self.max(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_before_a_change_stays_readable() {
        let changing = ChangingGeometry::new(Geometry::of_size(4096));
        let before = changing.now();
        changing.change(Geometry::of_size(8192));
        changing.change(Geometry::of_size(8192));
        changing.change(Geometry::of_size(12288));
        assert_eq!((before.size_bytes, changing.now().size_bytes), (4096, 12288));
    }

    #[test]
    #[should_panic(expected = "room that was told stays there")]
    fn room_is_not_taken_back() {
        ChangingGeometry::new(Geometry::of_size(8192)).change(Geometry::of_size(4096));
    }
}
