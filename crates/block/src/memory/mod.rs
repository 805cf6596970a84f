//! The memory of the process: whether there is some, and what is set aside for when there is none.
//!
//! 1. At start a daemon sets a reserve aside ([`set_aside`]), in real pages. 2. Where the system
//!    gives no memory, what the program takes comes from the reserve ([`ReservedMemory`], its
//!    allocator), so that requests under way come to their end. 3. From then on memory is *short*,
//!    and whoever begins something asks first ([`has`]): it waits, or is refused. 4. When the
//!    system gives plenty again, it is short no more.
//!
//! What a client can ask for at will is never taken from the reserve:
//! [`crate::BufferPool::try_take`].
//!
//! **Invariants**
//! - Memory from the reserve returns to it, and no other memory does.
//! - Where there is no reserve, everything is as without this module.

mod pages;
mod reserve;
mod reserved;

pub use pages::Population;
pub(crate) use pages::{Populated, prefer_large};
use reserve::RESERVE;
pub use reserved::ReservedMemory;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::cell::Cell;
use std::hint::black_box;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Where so much can be had, memory is short no more: several times a client's longest request.
const PLENTY_BYTES: usize = 128 << 20;
/// Whoever wants more has to ask for it, short or not.
const ASKED_BYTES: usize = 4 << 20;
/// So much of the reserve may be in use, and something be begun for which there is memory.
const USED_PERCENT_MAX: usize = 50;

static IS_SHORT: AtomicBool = AtomicBool::new(false);
static FAILURES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Whether this thread asks for memory that it can do without.
    static CAN_DO_WITHOUT: Cell<bool> = const { Cell::new(false) };
}

/// How things stand with the memory of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct MemoryState {
    pub reserve_bytes: u64,
    pub reserve_used_bytes: u64,
    pub reserve_used_bytes_max: u64,
    /// Allocations that the system refused.
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

/// Whether so many bytes can be had. Where memory is not short a little is taken for granted.
#[inline]
pub fn has(bytes: usize) -> bool {
    bytes <= ASKED_BYTES && !is_short() || is_there(bytes)
}

/// Whether the system has refused something, and has not been found to have plenty since.
#[inline]
pub fn is_short() -> bool {
    IS_SHORT.load(Ordering::Relaxed)
}

#[cold]
fn is_there(bytes: usize) -> bool {
    if !is_short() {
        let is_there = can_have(bytes);
        if !is_there {
            note_failure();
        }
        return is_there;
    }
    // What stays in the reserve for long is not to be held against a system that has enough.
    let used = RESERVE.used_bytes();
    if can_have(bytes.max(PLENTY_BYTES).saturating_add(used)) {
        IS_SHORT.store(false, Ordering::Relaxed);
        return true;
    }
    used <= RESERVE.len() * USED_PERCENT_MAX / 100 && can_have(bytes)
}

/// Whether the system has so many bytes now: asked before something large is begun.
pub fn can_have(bytes: usize) -> bool {
    let Ok(layout) = Layout::from_size_align(bytes.max(1), 16) else { return false };
    // SAFETY: the layout has a size.
    let Some(memory) = without_reserve(|| unsafe { alloc(layout) }) else { return false };
    // SAFETY: just allocated with this layout, and without other references.
    unsafe { dealloc(memory.as_ptr(), layout) };
    true
}

/// Zeroed memory from the system, and never from the reserve.
pub(crate) fn try_zeroed(layout: Layout) -> Option<NonNull<u8>> {
    assert!(layout.size() > 0);
    // SAFETY: the layout has a size.
    let memory = without_reserve(|| unsafe { alloc_zeroed(layout) });
    if memory.is_none() {
        note_failure();
    }
    memory
}

fn without_reserve(take: impl FnOnce() -> *mut u8) -> Option<NonNull<u8>> {
    let before = CAN_DO_WITHOUT.replace(true);
    // Whoever gives it back at once would not be asked at all: compilers may leave both away.
    let memory = black_box(take());
    CAN_DO_WITHOUT.set(before);
    NonNull::new(memory)
}

pub fn state() -> MemoryState {
    // Without new operations the return of memory has not been noticed.
    let _ = is_short() && has(PLENTY_BYTES);
    MemoryState {
        reserve_bytes: RESERVE.len() as u64,
        reserve_used_bytes: RESERVE.used_bytes() as u64,
        reserve_used_bytes_max: RESERVE.used_bytes_max() as u64,
        failures: FAILURES.load(Ordering::Relaxed),
        is_short: is_short(),
    }
}

/// The system gave no memory: whether the reserve is to give it.
#[cold]
fn has_to_have() -> bool {
    let has_to = !CAN_DO_WITHOUT.get();
    if has_to {
        note_failure();
    }
    has_to
}

#[cold]
fn note_failure() {
    FAILURES.fetch_add(1, Ordering::Relaxed);
    IS_SHORT.store(true, Ordering::Relaxed);
}
