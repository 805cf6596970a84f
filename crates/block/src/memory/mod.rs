//! The memory of the process: whether there is some, and what is set aside for when there is none.
//!
//! 1. At start a daemon sets a reserve aside ([`set_aside`]), in real pages. 2. Where the system
//!    gives no memory, what the program takes comes from the reserve ([`ReservedMemory`], its
//!    allocator), so that requests under way come to their end. 3. From then on memory is *short*,
//!    and whoever begins something asks first ([`has`]): it waits, or is refused. 4. When the
//!    system gives memory again, and the reserve is there again, it is short no more.
//!
//! What a client can ask for at will is never taken from the reserve:
//! [`crate::BufferPool::try_take`].
//!
//! **Invariants**
//! - What was taken from the reserve goes back there, whoever asks, and nothing else does.
//! - Where there is no reserve, everything is as without this module.

mod reserve;
mod reserved;

use reserve::RESERVE;
pub use reserved::ReservedMemory;
use serde::Serialize;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::Cell;
use std::hint::black_box;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Of the reserve so much may be in use and memory count as there again: some of what was taken
/// from it stays for long.
const USED_PERCENT_MAX: usize = 50;

/// Where so much can be had, memory is short no more: the longest request of a client.
const PLENTY_BYTES: usize = 32 << 20;

static IS_SHORT: AtomicBool = AtomicBool::new(false);
static FAILURES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Whether this thread asks for memory that it can do without.
    static CAN_DO_WITHOUT: Cell<bool> = const { Cell::new(false) };
}

/// How things stand with the memory of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
pub struct MemoryState {
    pub reserve_bytes: u64,
    pub reserve_used_bytes: u64,
    pub reserve_used_bytes_max: u64,
    /// How often the system gave none.
    pub failures: u64,
    pub is_short: bool,
}

/// Sets so many bytes aside, in pages that are there. Once for a process, whose global allocator is
/// a [`ReservedMemory`]; later calls do nothing.
///
/// # Errors
/// What the system says.
pub fn set_aside(bytes: usize) -> io::Result<()> {
    RESERVE.set_aside(bytes)
}

/// Whether so many bytes can be had, as far as that has to be asked: where memory was never short,
/// it is taken for granted.
#[inline]
pub fn has(bytes: usize) -> bool {
    !IS_SHORT.load(Ordering::Relaxed) || is_there_again(bytes)
}

#[cold]
fn is_there_again(bytes: usize) -> bool {
    let (used, reserve) = (RESERVE.used_bytes(), RESERVE.len());
    if used > reserve * USED_PERCENT_MAX / 100 {
        return false;
    }
    if can_have(bytes.max(PLENTY_BYTES)) {
        IS_SHORT.store(false, Ordering::Relaxed);
        return true;
    }
    can_have(bytes)
}

/// Whether the system has so many bytes now: asked before something large is begun.
pub fn can_have(bytes: usize) -> bool {
    let Ok(layout) = Layout::from_size_align(bytes.max(1), 16) else { return false };
    let Some(memory) = try_zeroed(layout) else { return false };
    // SAFETY: just allocated with this layout, and nobody else knows of it.
    unsafe { dealloc(memory.as_ptr(), layout) };
    true
}

/// Zeroed memory from the system, and never from the reserve.
pub(crate) fn try_zeroed(layout: Layout) -> Option<NonNull<u8>> {
    assert!(layout.size() > 0);
    let before = CAN_DO_WITHOUT.replace(true);
    // Whoever gives it back at once would not be asked at all: compilers may leave both away.
    // SAFETY: the layout has a size.
    let memory = black_box(unsafe { alloc_zeroed(layout) });
    CAN_DO_WITHOUT.set(before);
    if memory.is_null() {
        IS_SHORT.store(true, Ordering::Relaxed);
    }
    NonNull::new(memory)
}

pub fn state() -> MemoryState {
    // Where nobody begins anything, nobody has noticed that there is memory again.
    let is_short = !has(0) || IS_SHORT.load(Ordering::Relaxed);
    MemoryState {
        reserve_bytes: RESERVE.len() as u64,
        reserve_used_bytes: RESERVE.used_bytes() as u64,
        reserve_used_bytes_max: RESERVE.used_bytes_max() as u64,
        failures: FAILURES.load(Ordering::Relaxed),
        is_short,
    }
}

/// The system gave no memory: whether the reserve is to give it.
#[cold]
fn note_failure() -> bool {
    FAILURES.fetch_add(1, Ordering::Relaxed);
    IS_SHORT.store(true, Ordering::Relaxed);
    !CAN_DO_WITHOUT.get()
}
