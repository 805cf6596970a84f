//! The heads of the line map's buckets, in which the extents of a line are found.
//!
//! **Not here**: the chains behind them.

use super::extents::NONE;
use headpond_block::prefetch;

/// Quarters of a byte that a window may take for its record and its part of the heads: with lines
/// of one block that is, beside what queues and lists take, less than the 16 bytes for each 4 KiB
/// of data that are promised, and beside the tags with lines of 64 KiB less than 2.
const WINDOW_QUARTERS: u64 = 46;

/// Neighbouring lines share a cache line of heads.
const NEIGHBOURS: u64 = 16;

pub(super) struct Buckets {
    heads: Box<[u32]>,
    /// Of these, so many for the extents that are not of the pool.
    of_map: usize,
}

impl Buckets {
    /// For so many windows whose records take so many bytes, and a pool: the heads take what the
    /// record leaves of the bytes of a window. Chains are short where numbers are, and longer
    /// before larger arrays.
    pub fn new(windows: u32, record_bytes: usize, pool: u32) -> Self {
        let sixteenths = WINDOW_QUARTERS.saturating_sub(4 * record_bytes as u64).clamp(5, 16);
        let of_map = in_groups(u64::from(windows) * sixteenths / 16).max(NEIGHBOURS as usize);
        let heads = vec![NONE; of_map + in_groups(u64::from(pool) / 2)].into();
        Self { heads, of_map }
    }

    /// Bytes of those of the map, and of those of the pool.
    pub fn memory_bytes(&self) -> (usize, usize) {
        let (map, all) = (size_of_val(&self.heads[..self.of_map]), size_of_val(&*self.heads));
        (map, all - map)
    }

    /// The bucket of a line.
    ///
    /// Source: fast range reduction by a multiplication instead of a remainder (Lemire, 2019).
    #[inline]
    pub fn of(&self, line: u64) -> usize {
        let hash = (line / NEIGHBOURS).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let group = (hash * (self.heads.len() as u64 / NEIGHBOURS)) >> 32;
        (group * NEIGHBOURS + line % NEIGHBOURS) as usize
    }

    #[inline]
    pub fn head(&self, bucket: usize) -> u32 {
        self.heads[bucket]
    }

    /// The heads of a line and of the next ones, as many as lie together, at most so many.
    #[inline]
    pub fn neighbours(&self, line: u64, most: u64) -> &[u32] {
        let (first, count) = (self.of(line), (NEIGHBOURS - line % NEIGHBOURS).min(most));
        &self.heads[first..first + count as usize]
    }

    #[inline]
    pub fn set_head(&mut self, bucket: usize, extent: u32) {
        self.heads[bucket] = extent;
    }

    /// Brings a head near.
    #[inline]
    pub fn foresee(&self, bucket: usize) {
        prefetch(&self.heads[bucket]);
    }

    /// All heads, bucket by bucket.
    pub fn heads(&self) -> impl Iterator<Item = u32> + '_ {
        self.heads.iter().copied()
    }
}

fn in_groups(heads: u64) -> usize {
    (heads - heads % NEIGHBOURS) as usize
}
