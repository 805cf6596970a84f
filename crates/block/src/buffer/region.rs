//! The counted memory behind buffers.

use super::pool::PoolShared;
use super::{ALIGNMENT_BYTES, Buffer};
use crate::memory;
use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};
use std::any::Any;
use std::cell::Cell;
use std::ptr::NonNull;
use std::rc::Rc;

/// Contiguous memory with a reference count and its release function.
///
/// The count is not atomic, because handles stay on their thread: an atomic operation behind a copy
/// to a device in memory would wait until all of it has left the processor.
pub(super) struct Region {
    own: *mut u8,
    /// Where the handles find their bytes: its own memory, or what that was exchanged for.
    memory: Cell<*mut u8>,
    /// As many bytes as were asked for; a slot may have more.
    len: Cell<usize>,
    handles: Cell<usize>,
    owner: Owner,
    exchanged: Cell<Option<Box<Exchanged>>>,
}

/// What is in use, and what was before.
struct Exchanged {
    _memory: Buffer,
    _before: Option<Box<Exchanged>>,
}

enum Owner {
    /// A slot of a pool. One strong count for each slot in use keeps the pool alive.
    Pool {
        pool: *const PoolShared,
        slot: u32,
    },
    Heap {
        allocation: *mut u8,
    },
    PayloadFree,
    /// Another thread, until the loan is dropped.
    Lent {
        _loan: Rc<dyn Any>,
    },
    /// A buffer's region, which keeps the memory though it may have exchanged it.
    Pinned {
        _of: Buffer,
    },
}

impl Region {
    /// Zeros.
    pub(super) fn heap(len: usize) -> NonNull<Region> {
        Self::allocated(len, alloc_zeroed)
    }

    /// With whatever contents.
    pub(super) fn unfilled(len: usize) -> NonNull<Region> {
        Self::allocated(len, alloc)
    }

    fn allocated(len: usize, allocate: unsafe fn(Layout) -> *mut u8) -> NonNull<Region> {
        let layout = heap_layout(len);
        // SAFETY: the layout has a size of at least one alignment unit.
        let allocation = NonNull::new(unsafe { allocate(layout) });
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
    pub(super) fn lent(memory: NonNull<u8>, len: usize, loan: Rc<dyn Any>) -> NonNull<Region> {
        Self::boxed(memory.as_ptr(), len, Owner::Lent { _loan: loan })
    }

    /// The memory that a buffer has now.
    pub(super) fn pinned(buffer: &Buffer) -> NonNull<Region> {
        Self::boxed(buffer.as_ptr(), buffer.len(), Owner::Pinned { _of: buffer.clone() })
    }

    /// A free pool slot, without handles.
    pub(super) fn slot(memory: *mut u8, len: usize, pool: *const PoolShared, slot: u32) -> Region {
        let owner = Owner::Pool { pool, slot };
        Self::new(memory, len, 0, owner)
    }

    /// Takes the first handle of a pool slot, for so many bytes of it.
    pub(super) fn take(&self, len: usize) {
        let before = self.handles.replace(1);
        assert_eq!(before, 0, "pool slot handed out twice");
        self.len.set(len);
    }

    pub(super) fn is_sole(&self) -> bool {
        self.handles.get() == 1
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
            Owner::Pool { pool, slot } => {
                region.memory.set(region.own);
                drop(region.exchanged.take());
                // SAFETY: taking the slot leaked one strong count of the pool, taken back here.
                let pool = unsafe { Rc::from_raw(pool) };
                pool.put_back(slot);
            }
            Owner::Heap { allocation } => {
                // SAFETY: allocated in `heap` with this layout, and no handle is left.
                unsafe { dealloc(allocation, heap_layout(region.len())) };
                // SAFETY: boxed in `boxed`, and no handle is left.
                drop(unsafe { Box::from_raw(this.as_ptr()) });
            }
            Owner::PayloadFree | Owner::Lent { .. } | Owner::Pinned { .. } => {
                // SAFETY: boxed in `boxed`, and no handle is left.
                drop(unsafe { Box::from_raw(this.as_ptr()) });
            }
        }
    }

    #[inline]
    pub(super) fn memory(&self) -> *mut u8 {
        self.memory.get()
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len.get()
    }

    /// Whether the memory may be exchanged: no other thread, and no other region, has its address.
    pub(super) fn is_exchangeable(&self) -> bool {
        matches!(self.owner, Owner::Pool { .. } | Owner::Heap { .. })
    }

    /// Puts other memory behind all handles. What they had until now stays allocated until the last
    /// of them is dropped.
    pub(super) fn exchange(&self, other: Buffer) {
        assert!(self.is_exchangeable() && other.len() >= self.len(), "memory of the same length");
        self.memory.set(other.as_ptr());
        let before = self.exchanged.take();
        self.exchanged.set(Some(Box::new(Exchanged { _memory: other, _before: before })));
    }

    #[inline]
    pub(super) fn is_payload_free(&self) -> bool {
        matches!(self.owner, Owner::PayloadFree)
    }

    fn boxed(memory: *mut u8, len: usize, owner: Owner) -> NonNull<Region> {
        NonNull::from(Box::leak(Box::new(Self::new(memory, len, 1, owner))))
    }

    fn new(own: *mut u8, len: usize, handles: usize, owner: Owner) -> Region {
        let (memory, len, handles) = (Cell::new(own), Cell::new(len), Cell::new(handles));
        Region { own, memory, len, handles, owner, exchanged: Cell::default() }
    }
}

/// Extra bytes for alignment here: allocators touch every page of aligned zeroed memory, but leave
/// a large zeroed allocation without alignment to first use.
fn heap_layout(len: usize) -> Layout {
    Layout::from_size_align(len + ALIGNMENT_BYTES, 16).expect("length fits the address space")
}
