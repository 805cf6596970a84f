//! What a device tells its users of itself (`struct ublk_params`).

use headpond_block::Geometry;

/// The longest request that the driver takes.
pub const IO_BYTES_MAX: u32 = 32 << 20;
const DEPTH_MAX: u16 = 4096;
const SECTOR_BYTES: u64 = 512;
/// No longer discard or write of zeros is one request.
const LONG_BYTES_MAX: u64 = 1 << 30;
const READ_ONLY: u32 = 1 << 0;
const ROTATIONAL: u32 = 1 << 1;
const VOLATILE_CACHE: u32 = 1 << 2;
const FUA: u32 = 1 << 3;
const BASIC: u32 = 1 << 0;
const DISCARD: u32 = 1 << 1;
/// A page: block sizes above it are not for the kernel.
const PAGE_BYTES: u32 = 4096;

/// How requests reach the server, and which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub queues: u16,
    /// Requests of one queue at a time.
    pub depth: u16,
    pub io_bytes_max: u32,
    pub is_read_only: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self { queues: 1, depth: 128, io_bytes_max: 1 << 20, is_read_only: false }
    }
}

impl Shape {
    /// Whether the driver takes it.
    pub fn is_possible(&self) -> bool {
        self.queues > 0
            && (1..=DEPTH_MAX).contains(&self.depth)
            && (PAGE_BYTES..=IO_BYTES_MAX).contains(&self.io_bytes_max)
            && self.io_bytes_max.is_multiple_of(PAGE_BYTES)
    }
}

/// What users see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    pub size_bytes: u64,
    pub logical_block_bytes: u32,
    /// What the device prefers, and its full stripe.
    pub preferred_bytes: u32,
    pub stripe_bytes: Option<u32>,
    pub io_bytes_max: u32,
    pub is_rotational: bool,
    pub is_read_only: bool,
}

impl Parameters {
    /// Header, basic parameters, and those of discards.
    pub const BYTES: usize = 8 + 32 + 20;

    pub fn of(geometry: &Geometry, shape: &Shape) -> Self {
        Self {
            size_bytes: geometry.size_bytes,
            logical_block_bytes: geometry.logical_block_bytes,
            preferred_bytes: geometry.preferred_bytes,
            stripe_bytes: geometry.stripe.map(|stripe| stripe.width_bytes),
            io_bytes_max: shape.io_bytes_max,
            is_rotational: geometry.rotational,
            is_read_only: shape.is_read_only,
        }
    }

    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        let physical = PAGE_BYTES.max(self.logical_block_bytes);
        let long = (LONG_BYTES_MAX / SECTOR_BYTES) as u32;
        put(0, &(Self::BYTES as u32).to_ne_bytes());
        put(4, &(BASIC | DISCARD).to_ne_bytes());
        put(8, &self.attributes().to_ne_bytes());
        put(12, &[shift(self.logical_block_bytes.into()), shift(physical.into())]);
        put(14, &[shift(self.optimal_bytes()), shift(physical.into())]);
        put(16, &((u64::from(self.io_bytes_max) / SECTOR_BYTES) as u32).to_ne_bytes());
        put(24, &(self.size_bytes / SECTOR_BYTES).to_ne_bytes());
        // Alignment 0: a discard may begin at any of its units.
        put(44, &self.logical_block_bytes.to_ne_bytes());
        put(48, &long.to_ne_bytes());
        put(52, &long.to_ne_bytes());
        put(56, &1u16.to_ne_bytes());
        bytes
    }

    /// Whether these are those of a device that refuses writes.
    pub(crate) fn are_read_only(bytes: &[u8; Self::BYTES]) -> bool {
        u32::from_ne_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]) & READ_ONLY != 0
    }

    fn attributes(&self) -> u32 {
        let set = |is_set: bool, bits| if is_set { bits } else { 0 };
        // Flushes come in any case: what is below may be exchanged while the device is in use.
        let written = VOLATILE_CACHE | FUA;
        written | set(self.is_read_only, READ_ONLY) | set(self.is_rotational, ROTATIONAL)
    }

    /// The full stripe, where the kernel can be told of it: a power of two; what is preferred
    /// otherwise.
    fn optimal_bytes(&self) -> u64 {
        let preferred = u64::from(self.preferred_bytes);
        let wished = [self.stripe_bytes.map_or(preferred, u64::from), preferred];
        let fitting = wished.into_iter().find(|bytes| bytes.is_power_of_two());
        fitting.unwrap_or(PAGE_BYTES.into()).max(PAGE_BYTES.into())
    }
}

fn shift(bytes: u64) -> u8 {
    bytes.trailing_zeros() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters() -> Parameters {
        let mut geometry = Geometry::of_size(1 << 30);
        geometry.preferred_bytes = 64 << 10;
        Parameters::of(&geometry, &Shape::default())
    }

    fn long(bytes: &[u8], at: usize) -> u32 {
        u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    #[test]
    fn parameters_are_where_the_driver_looks_for_them() {
        let bytes = parameters().encode();
        assert_eq!(long(&bytes, 0), 60);
        assert_eq!(long(&bytes, 8), VOLATILE_CACHE | FUA);
        assert_eq!(bytes[12..16], [9, 12, 16, 12]);
        assert_eq!(long(&bytes, 16), 2048);
        assert_eq!(long(&bytes, 24), 1 << 21);
        assert_eq!((long(&bytes, 44), long(&bytes, 48), long(&bytes, 52)), (512, 1 << 21, 1 << 21));
        assert_eq!(bytes[56..60], [1, 0, 0, 0]);
    }

    #[test]
    fn a_device_that_is_read_only_says_so() {
        let shape = Shape { is_read_only: true, ..Shape::default() };
        let bytes = Parameters::of(&Geometry::of_size(1 << 30), &shape).encode();
        assert_eq!(long(&bytes, 8), VOLATILE_CACHE | FUA | READ_ONLY);
        assert!(Parameters::are_read_only(&bytes));
        assert!(!Parameters::are_read_only(&parameters().encode()));
    }

    #[test]
    fn optimal_size_is_the_stripe_where_that_is_a_power_of_two() {
        let stripe = |stripe_bytes| Parameters { stripe_bytes: Some(stripe_bytes), ..parameters() };
        assert_eq!(stripe(256 << 10).encode()[14], 18);
        assert_eq!(stripe(192 << 10).encode()[14], 16);
    }

    #[test]
    fn shapes_that_the_driver_refuses_are_not_possible() {
        let of = |queues, depth, io_bytes_max| {
            Shape { queues, depth, io_bytes_max, ..Shape::default() }.is_possible()
        };
        assert!(Shape::default().is_possible() && of(4, 4096, IO_BYTES_MAX));
        assert!(!of(0, 128, 4096) && !of(1, 0, 4096) && !of(1, 4097, 4096));
        assert!(!of(1, 1, 512) && !of(1, 1, 6000) && !of(1, 1, 64 << 20));
    }
}
