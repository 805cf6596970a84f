//! The counted memory behind buffers.

use super::ALIGNMENT_BYTES;
use super::pool::PoolShared;
use crate::memory;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::any::Any;
use std::cell::Cell;
use std::ptr::NonNull;
use std::rc::Rc;

/// Contiguous memory with a reference count and its release function.
///
/// The count is not atomic, because handles stay on their thread: an atomic operation behind a copy
/// to a device in memory would wait until all of it has left the processor.
pub(super) struct Region {
    memory: *mut u8,
    len: usize,
    handles: Cell<usize>,
    owner: Owner,
}

enum Owner {
    /// A slot of a pool. One strong count for each slot in use keeps the pool alive.
    Pool {
        pool: *const PoolShared,
        slot: u32,
        arena: u16,
    },
    Heap {
        allocation: *mut u8,
    },
    PayloadFree,
    /// Another thread, until the loan is dropped.
    Lent {
        arena: Option<u16>,
        _loan: Rc<dyn Any>,
    },
}

impl Region {
    pub(super) fn heap(len: usize) -> NonNull<Region> {
        let layout = heap_layout(len);
        // SAFETY: the layout has a size of at least one alignment unit.
        let allocation = NonNull::new(unsafe { alloc_zeroed(layout) });
        Self::in_allocation(allocation.unwrap_or_else(|| handle_alloc_error(layout)), len)
    }

    /// The same, or `None` without memory; the reserve is not used.
    pub(super) fn try_heap(len: usize) -> Option<NonNull<Region>> {
        memory::try_zeroed(heap_layout(len)).map(|allocation| Self::in_allocation(allocation, len))
    }

    fn in_allocation(allocation: NonNull<u8>, len: usize) -> NonNull<Region> {
        let allocation = allocation.as_ptr();
        let memory = allocation.wrapping_add(allocation.align_offset(ALIGNMENT_BYTES));
        Self::boxed(memory, len, Owner::Heap { allocation })
    }

    pub(super) fn payload_free(len: usize) -> NonNull<Region> {
        Self::boxed(std::ptr::dangling_mut(), len, Owner::PayloadFree)
    }

    /// Memory of another thread, which gets it back when the loan is dropped.
    pub(super) fn lent(
        memory: NonNull<u8>,
        len: usize,
        arena: Option<u16>,
        loan: Rc<dyn Any>,
    ) -> NonNull<Region> {
        Self::boxed(memory.as_ptr(), len, Owner::Lent { arena, _loan: loan })
    }

    /// A free pool slot, without handles.
    pub(super) fn slot(
        memory: *mut u8,
        len: usize,
        pool: *const PoolShared,
        slot: u32,
        arena: u16,
    ) -> Region {
        let owner = Owner::Pool { pool, slot, arena };
        Region { memory, len, handles: Cell::new(0), owner }
    }

    /// Takes the first handle of a pool slot.
    pub(super) fn take(&self) {
        let before = self.handles.replace(1);
        assert_eq!(before, 0, "pool slot handed out twice");
    }

    #[inline]
    pub(super) fn retain(&self) {
        let before = self.handles.get();
        assert!(before > 0 && before < usize::MAX, "handle to a region that is gone");
        self.handles.set(before + 1);
    }

    /// Drops one handle; the last one releases the memory.
    ///
    /// # Safety
    /// The caller owns one handle and does not use the region through it afterwards.
    #[inline]
    pub(super) unsafe fn release(this: NonNull<Region>) {
        // SAFETY: the caller's handle keeps the region alive until the count is given up.
        let handles = unsafe { &this.as_ref().handles };
        handles.set(handles.get() - 1);
        if handles.get() == 0 {
            // SAFETY: that was the last handle.
            unsafe { Self::give_back(this) }
        }
    }

    /// # Safety
    /// No handle is left.
    #[inline(never)]
    unsafe fn give_back(this: NonNull<Region>) {
        // SAFETY: the region is there until it is given back here.
        let region = unsafe { this.as_ref() };
        match region.owner {
            Owner::Pool { pool, slot, .. } => {
                // SAFETY: taking the slot leaked one strong count of the pool, taken back here.
                let pool = unsafe { Rc::from_raw(pool) };
                pool.put_back(slot);
            }
            Owner::Heap { allocation } => {
                // SAFETY: allocated in `heap` with this layout, and no handle is left.
                unsafe { dealloc(allocation, heap_layout(region.len)) };
                // SAFETY: boxed in `boxed`, and no handle is left.
                drop(unsafe { Box::from_raw(this.as_ptr()) });
            }
            Owner::PayloadFree | Owner::Lent { .. } => {
                // SAFETY: boxed in `boxed`, and no handle is left.
                drop(unsafe { Box::from_raw(this.as_ptr()) });
            }
        }
    }

    #[inline]
    pub(super) fn memory(&self) -> *mut u8 {
        self.memory
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn arena(&self) -> Option<u16> {
        match self.owner {
            Owner::Pool { arena, .. } => Some(arena),
            Owner::Lent { arena, .. } => arena,
            Owner::Heap { .. } | Owner::PayloadFree => None,
        }
    }

    #[inline]
    pub(super) fn is_payload_free(&self) -> bool {
        matches!(self.owner, Owner::PayloadFree)
    }

    fn boxed(memory: *mut u8, len: usize, owner: Owner) -> NonNull<Region> {
        let region = Box::new(Region { memory, len, handles: Cell::new(1), owner });
        NonNull::from(Box::leak(region))
    }
}

/// Extra bytes for alignment here: allocators touch every page of aligned zeroed memory, but leave
/// a large zeroed allocation without alignment to first use.
fn heap_layout(len: usize) -> Layout {
    Layout::from_size_align(len + ALIGNMENT_BYTES, 16).expect("length fits the address space")
}
