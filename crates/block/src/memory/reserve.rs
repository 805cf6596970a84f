//! Memory that is set aside, and handed out when there is no other.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use std::alloc::Layout;
use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use talc::DefaultBinning;
use talc::base::Talc;
use talc::source::Manual;

pub(super) static RESERVE: Reserve = Reserve::new();

pub(super) struct Reserve {
    heap: Mutex<Talc<Manual, DefaultBinning>>,
    /// Where it lies; nowhere before it is set aside.
    start: AtomicUsize,
    end: AtomicUsize,
    used_bytes: AtomicUsize,
    used_bytes_max: AtomicUsize,
}

impl Reserve {
    const fn new() -> Self {
        Self {
            heap: Mutex::new(Talc::new(Manual)),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            used_bytes: AtomicUsize::new(0),
            used_bytes_max: AtomicUsize::new(0),
        }
    }

    pub fn set_aside(&self, bytes: usize) -> io::Result<()> {
        let mut heap = self.heap();
        if self.len() > 0 {
            return Ok(());
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let kind = MapFlags::PRIVATE;
        // SAFETY: a mapping at an address that the kernel chooses touches no other.
        let start = unsafe { mmap_anonymous(null_mut(), bytes, access, kind) }?;
        // SAFETY: it has just been mapped, and has no other references.
        unsafe { madvise(start, bytes, Advice::LinuxPopulateWrite) }?;
        let start = start.cast::<u8>();
        // SAFETY: the mapping stays for as long as the process, and only the heap hands it out.
        let end = unsafe { heap.claim(start, bytes) };
        end.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        self.start.store(start as usize, Ordering::Relaxed);
        self.end.store(start as usize + bytes, Ordering::Release);
        Ok(())
    }

    /// Bytes that were set aside.
    pub fn len(&self) -> usize {
        let end = self.end.load(Ordering::Acquire);
        end - self.start.load(Ordering::Relaxed)
    }

    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    pub fn used_bytes_max(&self) -> usize {
        self.used_bytes_max.load(Ordering::Relaxed)
    }

    /// Whether memory that the program has came from here.
    #[inline]
    pub fn has_given(&self, memory: *mut u8) -> bool {
        let at = memory as usize;
        at < self.end.load(Ordering::Acquire) && at >= self.start.load(Ordering::Relaxed)
    }

    /// Null where there is none left.
    #[cold]
    pub fn give(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the allocating caller passes a size.
        let given = unsafe { self.heap().allocate(layout) };
        let Some(given) = given else { return null_mut() };
        let bytes = chunk_bytes(layout);
        let used = self.used_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.used_bytes_max.fetch_max(used, Ordering::Relaxed);
        given.as_ptr()
    }

    /// # Safety
    /// The memory was allocated here with this layout, and is no longer used.
    #[cold]
    pub unsafe fn take_back(&self, memory: NonNull<u8>, layout: Layout) {
        // SAFETY: as the caller guarantees.
        unsafe { self.heap().deallocate(memory.as_ptr(), layout) };
        self.used_bytes.fetch_sub(chunk_bytes(layout), Ordering::Relaxed);
    }

    fn heap(&self) -> MutexGuard<'_, Talc<Manual, DefaultBinning>> {
        self.heap.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a piece takes of the heap, whose chunks are multiples of four words and have one word more.
fn chunk_bytes(layout: Layout) -> usize {
    const WORD: usize = size_of::<usize>();
    (layout.size() + WORD).next_multiple_of(4 * WORD)
}
