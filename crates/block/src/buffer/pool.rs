//! Memory reserved at start, in a few sizes.

use super::arena::Arena;
use super::region::Region;
use super::{ALIGNMENT_BYTES, Buffer};
use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::rc::Rc;

/// How many buffers of one size a pool holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolClass {
    /// A multiple of 4 KiB.
    pub buffer_bytes: usize,
    pub count: usize,
}

/// The sizes of a pool, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    pub classes: Vec<PoolClass>,
}

impl PoolConfig {
    /// Nothing: everything comes from the heap.
    pub fn none() -> Self {
        Self { classes: Vec::new() }
    }

    /// 768 KiB: for simulations, which open volumes by the thousand.
    pub fn small() -> Self {
        let class = |buffer_bytes, count| PoolClass { buffer_bytes, count };
        Self { classes: vec![class(4096, 64), class(64 << 10, 8)] }
    }
}

impl Default for PoolConfig {
    /// 40 MiB: enough for a few hundred small and a few dozen large requests in flight, with what a
    /// cleaner moves at a time in stripes.
    fn default() -> Self {
        let class = |buffer_bytes, count| PoolClass { buffer_bytes, count };
        let (small, strips) = (class(4096, 1024), class(64 << 10, 64));
        let (stripes, large) = (class(256 << 10, 64), class(1 << 20, 16));
        Self { classes: vec![small, strips, stripes, large] }
    }
}

/// Aligned buffers in a few sizes, all from one arena, reserved once. Cloning shares the pool.
///
/// One arena, so that the parts of a request, whatever their sizes, are in memory that a ring has
/// registered as one.
///
/// A request for more than is left is served from the heap and counted, so that a burst slows down
/// instead of failing; the limits of requests in flight belong to the layers above, where requests
/// can wait.
#[derive(Clone)]
pub struct BufferPool(Rc<PoolShared>);

pub(super) struct PoolShared {
    classes: Vec<Class>,
    arena: Arena,
    overflows: Cell<u64>,
}

struct Class {
    buffer_bytes: usize,
    slots: Vec<Region>,
    first_slot: u32,
    free: RefCell<Vec<u32>>,
}

impl BufferPool {
    /// Reserves the arena.
    ///
    /// # Panics
    /// Where sizes are not ascending multiples of 4 KiB, or memory is not to be had.
    pub fn new(config: &PoolConfig) -> Self {
        let sizes = || config.classes.iter().map(|class| class.buffer_bytes);
        assert!(sizes().all(|bytes| bytes > 0 && bytes % ALIGNMENT_BYTES == 0));
        assert!(sizes().zip(sizes().skip(1)).all(|(a, b)| a < b), "pool sizes ascend");
        let bytes = |class: &PoolClass| class.buffer_bytes.checked_mul(class.count);
        let sum = |sum: usize, class| bytes(class).and_then(|bytes| sum.checked_add(bytes));
        let bytes = config.classes.iter().try_fold(0, sum).expect("pool fits the address space");
        let arena = Arena::new(bytes);
        let shared = Rc::new_cyclic(|weak| {
            let mut classes = Vec::new();
            let (mut first_slot, mut start) = (0, arena.start());
            for class in &config.classes {
                classes.push(Class::new(*class, weak.as_ptr(), first_slot, start));
                first_slot += class.count as u32;
                start = start.wrapping_add(class.buffer_bytes * class.count);
            }
            PoolShared { classes, arena, overflows: Cell::new(0) }
        });
        Self(shared)
    }

    /// A buffer of `len` bytes. Its contents are undefined.
    pub fn take(&self, len: usize) -> Buffer {
        self.take_slot(len).unwrap_or_else(|| {
            self.0.overflows.set(self.overflows() + 1);
            Buffer::whole(Region::unfilled(len))
        })
    }

    /// The same, or `None` without memory: for callers that can wait or fail.
    pub fn try_take(&self, len: usize) -> Option<Buffer> {
        self.take_slot(len).or_else(|| {
            let buffer = Region::try_heap(len).map(Buffer::whole)?;
            self.0.overflows.set(self.overflows() + 1);
            Some(buffer)
        })
    }

    fn take_slot(&self, len: usize) -> Option<Buffer> {
        let mut fitting = self.0.classes.iter().filter(|class| class.buffer_bytes >= len);
        let region = fitting.find_map(Class::pop)?;
        // The count that the last handle gives back in `Region::release`.
        std::mem::forget(Rc::clone(&self.0));
        region.take(len);
        Some(Buffer::whole(NonNull::from(region)))
    }

    /// Buffers allocated from the heap because the pool was empty.
    pub fn overflows(&self) -> u64 {
        self.0.overflows.get()
    }

    /// Start and length of the arena, for registering with a ring.
    pub fn arena(&self) -> (*mut u8, usize) {
        (self.0.arena.start(), self.0.arena.len())
    }
}

impl PoolShared {
    pub(super) fn put_back(&self, slot: u32) {
        let class = self.classes.iter().rev().find(|class| class.first_slot <= slot);
        let class = class.expect("slot belongs to this pool");
        let mut free = class.free.borrow_mut();
        free.push(slot - class.first_slot);
        assert!(free.len() <= class.slots.len(), "slot returned twice");
    }
}

impl Class {
    fn new(class: PoolClass, pool: *const PoolShared, first_slot: u32, memory: *mut u8) -> Self {
        let PoolClass { buffer_bytes, count } = class;
        let slot = |index: u32| {
            let start = memory.wrapping_add(index as usize * buffer_bytes);
            Region::slot(start, buffer_bytes, pool, first_slot + index)
        };
        let slots = (0..count as u32).map(slot).collect();
        let free = RefCell::new((0..count as u32).rev().collect());
        Self { buffer_bytes, slots, first_slot, free }
    }

    fn pop(&self) -> Option<&Region> {
        let index = self.free.borrow_mut().pop()?;
        Some(&self.slots[index as usize])
    }
}

impl Drop for PoolShared {
    fn drop(&mut self) {
        let out = |class: &mut Class| class.slots.len() - class.free.get_mut().len();
        let out: usize = self.classes.iter_mut().map(out).sum();
        assert_eq!(out, 0, "pool dropped while buffers are out");
        // SAFETY: every slot is back, and nothing else of the pool is used after this.
        unsafe { self.arena.unmap() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small_pool() -> BufferPool {
        let class = |buffer_bytes, count| PoolClass { buffer_bytes, count };
        BufferPool::new(&PoolConfig { classes: vec![class(4096, 2), class(8192, 1)] })
    }

    #[test]
    fn memory_is_reused_after_the_last_handle_is_gone() {
        let pool = small_pool();
        let first = pool.take(100);
        let address = first.as_ptr();
        let part = first.slice(0..10);
        drop(first);
        assert_ne!(pool.take(100).as_ptr(), address);
        drop(part);
        assert_eq!(pool.take(100).as_ptr(), address);
    }

    #[test]
    fn an_empty_class_borrows_from_the_next_and_then_from_the_heap() {
        let pool = small_pool();
        let taken: Vec<_> = (0..3).map(|_| pool.take(4096)).collect();
        let (start, len) = pool.arena();
        let is_in_arena =
            |buffer: &Buffer| (start..start.wrapping_add(len)).contains(&buffer.as_ptr());
        assert!(taken.iter().all(is_in_arena));
        assert_eq!(pool.overflows(), 0);
        assert!(!is_in_arena(&pool.take(4096)));
        assert_eq!(pool.overflows(), 1);
    }

    #[test]
    fn buffers_may_outlive_the_last_handle_to_their_pool() {
        let pool = small_pool();
        let buffer = pool.take(4096);
        drop(pool);
        buffer.fill(3);
        assert_eq!(buffer.to_vec(), [3; 4096]);
    }
}
