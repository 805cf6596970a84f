//! Wakers without allocation: a task's number packed into the waker's pointer.

use super::tasks::Tasks;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{RawWaker, RawWakerVTable, Waker};

const INDEX_BITS: u32 = 20;
const GENERATION_BITS: u32 = 12;
const MAIN_INDEX: u32 = (1 << INDEX_BITS) - 1;

const _: () = assert!(usize::BITS == 64, "a task key fills a 64-bit pointer");

/// Which task of which executor: 32 bits executor, 12 bits generation, 20 bits index.
///
/// A generation that has wrapped round may wake a later task in the same slot; a spurious wake-up
/// is harmless.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct TaskKey(u64);

impl TaskKey {
    pub(super) fn new(executor: u32, generation: u16, index: u32) -> Self {
        assert!(index <= MAIN_INDEX, "too many tasks");
        let low = (u64::from(generation) << INDEX_BITS) | u64::from(index);
        Self((u64::from(executor) << 32) | low)
    }

    pub(super) fn main(executor: u32) -> Self {
        Self::new(executor, 0, MAIN_INDEX)
    }

    pub(super) fn is_main(self) -> bool {
        self.index() == MAIN_INDEX
    }

    pub(super) fn index(self) -> u32 {
        self.0 as u32 & MAIN_INDEX
    }

    pub(super) fn generation(self) -> u16 {
        (self.0 as u32 >> INDEX_BITS) as u16
    }

    pub(super) fn next_generation(generation: u16) -> u16 {
        (generation + 1) & ((1 << GENERATION_BITS) - 1)
    }

    fn executor(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

pub(super) fn waker(key: TaskKey) -> Waker {
    // SAFETY: the pointer is never followed; the functions of the table only decode it.
    unsafe { Waker::from_raw(raw(key.0 as *const ())) }
}

const TABLE: RawWakerVTable = RawWakerVTable::new(raw, wake, wake, |_| {});

fn raw(data: *const ()) -> RawWaker {
    RawWaker::new(data, &TABLE)
}

fn wake(data: *const ()) {
    let key = TaskKey(data as u64);
    let (tasks, executor) = CURRENT.get();
    if executor == key.executor() && !tasks.is_null() {
        // SAFETY: `Current` keeps the pointer valid while it is set, on this very thread.
        unsafe { (*tasks).wake(key) };
    } else {
        Remote::wake(key);
    }
}

thread_local! {
    static CURRENT: Cell<(*const Tasks, u32)> = const { Cell::new((std::ptr::null(), 0)) };
}

/// Marks an executor as the one that runs on this thread, until dropped.
pub(super) struct Current<'a> {
    previous: (*const Tasks, u32),
    _tasks: &'a Tasks,
}

impl<'a> Current<'a> {
    pub(super) fn enter(tasks: &'a Tasks, executor: u32) -> Self {
        let previous = CURRENT.replace((std::ptr::from_ref(tasks), executor));
        Self { previous, _tasks: tasks }
    }
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        CURRENT.set(self.previous);
    }
}

/// Where wake-ups from other threads wait for the executor to collect them.
pub(super) struct Remote {
    executor: u32,
    has_woken: AtomicBool,
    woken: Mutex<Vec<TaskKey>>,
    unpark: Arc<dyn Fn() + Send + Sync>,
}

static REMOTES: Mutex<BTreeMap<u32, Weak<Remote>>> = Mutex::new(BTreeMap::new());
static NEXT_EXECUTOR: AtomicU32 = AtomicU32::new(1);

impl Remote {
    pub(super) fn register(unpark: Arc<dyn Fn() + Send + Sync>) -> Arc<Self> {
        let executor = NEXT_EXECUTOR.fetch_add(1, Ordering::Relaxed);
        let woken = Mutex::default();
        let remote = Arc::new(Self { executor, has_woken: AtomicBool::new(false), woken, unpark });
        REMOTES.lock().expect("executor registry").insert(executor, Arc::downgrade(&remote));
        remote
    }

    pub(super) fn executor(&self) -> u32 {
        self.executor
    }

    pub(super) fn has_woken(&self) -> bool {
        self.has_woken.load(Ordering::Relaxed)
    }

    pub(super) fn drain(&self) -> Vec<TaskKey> {
        // Looked at first: writing to it in every round would cost more than the round.
        if !self.has_woken.load(Ordering::Relaxed) || !self.has_woken.swap(false, Ordering::Acquire)
        {
            return Vec::new();
        }
        std::mem::take(&mut *self.woken.lock().expect("remote wake-ups"))
    }

    fn wake(key: TaskKey) {
        let remotes = REMOTES.lock().expect("executor registry");
        let Some(remote) = remotes.get(&key.executor()).and_then(Weak::upgrade) else { return };
        drop(remotes);
        remote.woken.lock().expect("remote wake-ups").push(key);
        if !remote.has_woken.swap(true, Ordering::Release) {
            (remote.unpark)();
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // The registry may be locked by the very thread that drops the last handle: `wake` lets go
        // of it first.
        REMOTES.lock().expect("executor registry").remove(&self.executor);
    }
}
