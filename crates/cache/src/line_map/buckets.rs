//! The heads of the line map's buckets, in which the extents of a line are found.
//!
//! **Not here**: the chains.

use super::extents::NONE;
use crate::types::number_bits;
use headpond_block::prefetch;

/// Quarters of a byte that a window may take for its record and its part of the heads: with lines
/// of one block that is, beside what queues and lists take, less than the 16 bytes for each 4 KiB
/// of data that are promised, and beside the tags with lines of 64 KiB less than 2.
const WINDOW_QUARTERS: u64 = 46;

/// Neighbouring lines share a cache line of heads.
const NEIGHBOURS: u64 = 16;

/// A head is the number of the newest extent, all ones where there is none; above the number, as
/// many marks as there is room for: eleven where a million extents are, none from two thousand
/// million on. Each extent behind a head has set one of them, by its line, so that many lines of
/// which a bucket has nothing are told by the head alone.
pub(super) struct Buckets {
    heads: Box<[u32]>,
    /// Of these, so many for the extents that are not of the pool.
    of_map: usize,
    /// The bits of a number; the marks are above.
    number: u32,
}

impl Buckets {
    /// For so many windows whose records take so many bytes, and a pool: the heads take what the
    /// record leaves of the bytes of a window. Chains are short where numbers are, and longer
    /// before larger arrays.
    pub fn new(windows: u32, record_bytes: usize, pool: u32) -> Self {
        let sixteenths = WINDOW_QUARTERS.saturating_sub(4 * record_bytes as u64).clamp(5, 16);
        let of_map = in_groups(u64::from(windows) * sixteenths / 16).max(NEIGHBOURS as usize);
        let bits = number_bits(u64::from(windows) + u64::from(pool) + 1);
        let number = ((1_u64 << bits) - 1) as u32;
        let heads = vec![number; of_map + in_groups(u64::from(pool) / 2)].into();
        Self { heads, of_map, number }
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
        let group = ((mixed(line) >> 32) * (self.heads.len() as u64 / NEIGHBOURS)) >> 32;
        (group * NEIGHBOURS + line % NEIGHBOURS) as usize
    }

    /// The mark of a line, the same for its neighbours; none where there is no room for marks.
    #[inline]
    pub fn mark(&self, line: u64) -> u32 {
        let marks = self.number.leading_zeros();
        let which = (u64::from(mixed(line) as u32) * u64::from(marks)) >> 32;
        (u64::from(marks > 0) << (u64::from(u32::BITS - marks) + which)) as u32
    }

    /// The newest extent of a bucket.
    #[inline]
    pub fn head(&self, bucket: usize) -> u32 {
        self.number_in(self.heads[bucket])
    }

    /// The newest extent in the bucket of a line; none where none is of the line, as far as the
    /// marks tell.
    #[inline]
    pub fn first(&self, line: u64) -> u32 {
        self.first_by(self.heads[self.of(line)], self.mark(line))
    }

    /// The same of a line and of the next ones, as many as lie together, at most so many.
    #[inline]
    pub fn firsts(&self, line: u64, most: u64) -> impl Iterator<Item = u32> + '_ {
        let (first, count) = (self.of(line), (NEIGHBOURS - line % NEIGHBOURS).min(most));
        let mark = self.mark(line);
        let heads = &self.heads[first..first + count as usize];
        heads.iter().map(move |head| self.first_by(*head, mark))
    }

    #[inline]
    fn first_by(&self, head: u32, mark: u32) -> u32 {
        let is_unmarked = u32::from(head & mark != mark);
        self.number_in(head) | is_unmarked.wrapping_neg()
    }

    #[inline]
    fn number_in(&self, head: u32) -> u32 {
        let number = head & self.number;
        number | u32::from(number == self.number).wrapping_neg()
    }

    /// Puts an extent of a line in front of its bucket.
    #[inline]
    pub fn push(&mut self, line: u64, extent: u32) {
        let (bucket, mark) = (self.of(line), self.mark(line));
        let head = &mut self.heads[bucket];
        *head = *head & !self.number | mark | extent;
    }

    /// The newest extent is gone, and another one the first. The marks stay: who set which is known
    /// to whoever has seen all of them.
    #[inline]
    pub fn set_head(&mut self, bucket: usize, extent: u32) {
        let marks = if extent == NONE { 0 } else { self.heads[bucket] & !self.number };
        self.heads[bucket] = marks | extent & self.number;
    }

    /// The extents that are left in a bucket have set these marks.
    #[inline]
    pub fn set_marks(&mut self, bucket: usize, marks: u32) {
        self.heads[bucket] = marks | self.heads[bucket] & self.number;
    }

    /// Brings a head near.
    #[inline]
    pub fn prefetch(&self, bucket: usize) {
        prefetch(&self.heads[bucket]);
    }

    /// How many buckets there are.
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// Whether a bucket has the mark of a line.
    pub fn is_marked(&self, bucket: usize, line: u64) -> bool {
        self.heads[bucket] & self.mark(line) == self.mark(line)
    }
}

/// What tells the lines of a bucket apart stands in the lower half, what names the bucket in the
/// upper one.
#[inline]
fn mixed(line: u64) -> u64 {
    (line / NEIGHBOURS).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn in_groups(heads: u64) -> usize {
    (heads - heads % NEIGHBOURS) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With room for many marks, and for one.
    #[test]
    fn who_is_behind_a_head_is_found_however_many_extents_there_are() {
        for pool in [100, 1 << 20, (1 << 30) - 2, (1 << 30) + 9] {
            let mut buckets = Buckets::new(16, 8, 0);
            let bits = number_bits(u64::from(pool) + 17);
            buckets.number = ((1_u64 << bits) - 1) as u32;
            buckets.heads.fill(buckets.number);
            assert!((0..64).all(|line| buckets.first(line) == NONE));
            let last = pool + 15;
            for (line, extent) in [(5, last), (16 + 5, 3), (32 + 5, 0)] {
                buckets.push(line, extent);
                assert_eq!((buckets.first(line), buckets.head(buckets.of(line))), (extent, extent));
                assert_eq!(buckets.firsts(line, 3).collect::<Vec<_>>(), [extent, NONE, NONE]);
            }
            // Marks stay with the head, and go with the last extent.
            let bucket = buckets.of(5);
            buckets.set_head(bucket, last);
            assert!([5, 21, 37].iter().all(|line| buckets.first(*line) == last));
            buckets.set_marks(bucket, buckets.mark(5));
            assert_eq!(buckets.first(5), last);
            let is_told = buckets.mark(21) != buckets.mark(5);
            assert_eq!(buckets.first(21), if is_told { NONE } else { last });
            buckets.set_head(bucket, NONE);
            assert_eq!((buckets.first(5), buckets.head(bucket)), (NONE, NONE));
        }
    }

    /// A slice of eight tebibytes in lines of 4 KiB.
    #[test]
    fn numbers_of_extents_may_take_all_of_a_head() {
        let mut buckets = Buckets::new(16, 8, 0);
        (buckets.number, buckets.heads) = (u32::MAX, vec![u32::MAX; 16].into());
        buckets.push(5, 1 << 31);
        assert_eq!((buckets.mark(5), buckets.first(5), buckets.first(21)), (0, 1 << 31, 1 << 31));
        buckets.set_head(5, NONE);
        assert_eq!(buckets.first(5), NONE);
    }
}
