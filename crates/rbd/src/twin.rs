//! A cluster in memory behind the same table of functions: its requests complete on threads of
//! its own, at once or when it is told to.

use crate::library::{Api, Callback, FEATURE_EXCLUSIVE_LOCK, Images, Opaque, Rados, Requests};
use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

pub const SIZE_BYTES: u64 = 1 << 20;
/// Its only pool and image.
pub const PLACE: &str = "pool/image";
/// The address of its client.
pub const CLIENT: &str = "127.0.0.1:0/7";

/// The cluster of one test.
#[derive(Clone, Default)]
pub struct Twin(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Clone, Default)]
pub struct State {
    pub contents: Vec<u8>,
    pub features: u64,
    pub size_bytes: u64,
    /// Nothing completes, and no question is answered.
    pub is_silent: bool,
    /// Writes do not complete; all else does.
    pub is_full: bool,
    /// What requests and questions fail with.
    pub errno: c_int,
    /// The client with the lock.
    pub owner: Option<String>,
    pub note: Option<String>,
    pub broken: Vec<String>,
    pub options: Vec<(String, String)>,
    pub flushes: u32,
    pub opened: i32,
    /// What was asked for, in order.
    pub requests: Vec<(&'static str, u64, u64)>,
}

struct Completion {
    argument: *mut c_void,
    callback: Callback,
    result: isize,
}

/// A pointer on its way to another thread.
struct Sent<T>(T);
// SAFETY: what it points to is used by one thread after the other.
unsafe impl<T> Send for Sent<T> {}

thread_local! {
    /// That of the test on this thread; handles lead to it from elsewhere.
    static CURRENT: Cell<Option<&'static Twin>> = const { Cell::new(None) };
}

impl Twin {
    /// A cluster, and the functions that lead to it where they are called from this thread first.
    pub fn new() -> (&'static Self, &'static Api) {
        let twin: &'static Self = Box::leak(Box::default());
        twin.change(|state| {
            state.contents = vec![0; SIZE_BYTES as usize];
            state.size_bytes = SIZE_BYTES;
            state.features = FEATURE_EXCLUSIVE_LOCK;
        });
        CURRENT.set(Some(twin));
        (twin, &API)
    }

    pub fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.locked());
        self.0.changed.notify_all();
    }

    pub fn state(&self) -> State {
        self.locked().clone()
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("the twin does not panic")
    }

    /// The state, once it is not silent.
    fn answering(&self) -> MutexGuard<'_, State> {
        let answering = self.0.changed.wait_while(self.locked(), |state| state.is_silent);
        answering.expect("the twin does not panic")
    }

    /// Every handle is the twin.
    fn of(handle: Opaque) -> &'static Self {
        assert!(!handle.is_null(), "used before it was opened");
        // SAFETY: `handle` made it of a twin that lives for ever.
        unsafe { &*handle.cast::<Self>() }
    }

    fn handle(&'static self) -> Opaque {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// Completes a request on another thread.
    fn complete(
        &'static self,
        completion: Opaque,
        request: (&'static str, u64, u64),
        act: impl FnOnce(&mut State) -> isize + 'static,
    ) -> c_int {
        let sent = Sent((completion, act));
        std::thread::spawn(move || {
            let Sent((completion, act)) = { sent };
            let mut state = self.answering();
            while state.is_full && request.0 == "write" {
                state = self.0.changed.wait(state).expect("the twin does not panic");
            }
            state.requests.push(request);
            let result = if state.errno == 0 { act(&mut state) } else { -(state.errno as isize) };
            drop(state);
            let completion = completion.cast::<Completion>();
            // SAFETY: it lives until the callback releases it.
            let (callback, argument) = unsafe {
                (*completion).result = result;
                ((*completion).callback, (*completion).argument)
            };
            // SAFETY: as librbd calls it, once.
            unsafe { callback(completion.cast(), argument) };
        });
        0
    }
}

fn text(pointer: *const c_char) -> String {
    // SAFETY: the caller passes a text.
    unsafe { CStr::from_ptr(pointer) }.to_str().unwrap().to_owned()
}

unsafe extern "C" fn create(cluster: *mut Opaque, _: *const c_char) -> c_int {
    // SAFETY: the caller's place for it.
    unsafe { *cluster = CURRENT.get().expect("a twin on this thread").handle() };
    0
}

unsafe extern "C" fn fine(_: Opaque, _: *const c_char) -> c_int {
    0
}

unsafe extern "C" fn set_option(it: Opaque, name: *const c_char, value: *const c_char) -> c_int {
    Twin::of(it).change(|state| state.options.push((text(name), text(value))));
    0
}

unsafe extern "C" fn connect(_: Opaque) -> c_int {
    0
}

unsafe extern "C" fn end(_: Opaque) {}

unsafe extern "C" fn open_pool(it: Opaque, name: *const c_char, pool: *mut Opaque) -> c_int {
    if text(name) != "pool" {
        return -libc::ENOENT;
    }
    // SAFETY: the caller's place for it.
    unsafe { *pool = it };
    0
}

unsafe extern "C" fn set_namespace(_: Opaque, _: *const c_char) {}

unsafe extern "C" fn open(
    it: Opaque,
    name: *const c_char,
    image: *mut Opaque,
    _: *const c_char,
) -> c_int {
    if text(name) != "image" {
        return -libc::ENOENT;
    }
    Twin::of(it).change(|state| state.opened += 1);
    // SAFETY: the caller's place for it.
    unsafe { *image = it };
    0
}

unsafe extern "C" fn close(it: Opaque) -> c_int {
    Twin::of(it).change(|state| state.opened -= 1);
    0
}

unsafe extern "C" fn size(it: Opaque, bytes: *mut u64) -> c_int {
    // SAFETY: the caller's place for it.
    unsafe { *bytes = Twin::of(it).answering().size_bytes };
    0
}

unsafe extern "C" fn features(it: Opaque, features: *mut u64) -> c_int {
    // SAFETY: the caller's place for it.
    unsafe { *features = Twin::of(it).state().features };
    0
}

unsafe extern "C" fn read(_: Opaque, _: u64, _: usize, _: *mut c_char) -> isize {
    -(libc::EIO as isize)
}

unsafe extern "C" fn lock(it: Opaque, _: c_int) -> c_int {
    let mut state = Twin::of(it).locked();
    if state.owner.is_some() {
        return -libc::EROFS;
    }
    state.owner = Some(CLIENT.into());
    0
}

unsafe extern "C" fn unlock(it: Opaque) -> c_int {
    Twin::of(it).change(|state| state.owner = None);
    0
}

unsafe extern "C" fn has_lock(it: Opaque, is_owner: *mut c_int) -> c_int {
    let state = Twin::of(it).answering();
    // SAFETY: the caller's place for it.
    unsafe { *is_owner = c_int::from(state.owner.as_deref() == Some(CLIENT)) };
    -state.errno
}

unsafe extern "C" fn lock_owners(
    it: Opaque,
    _: *mut c_int,
    owners: *mut *mut c_char,
    count: *mut usize,
) -> c_int {
    let Some(owner) = Twin::of(it).state().owner else { return -libc::ENOENT };
    // SAFETY: the caller's places for them.
    unsafe { (*owners, *count) = (CString::new(owner).unwrap().into_raw(), 1) };
    0
}

unsafe extern "C" fn free_lock_owners(owners: *mut *mut c_char, count: usize) {
    assert_eq!(count, 1);
    // SAFETY: made by `lock_owners`.
    drop(unsafe { CString::from_raw(*owners) });
}

unsafe extern "C" fn break_lock(it: Opaque, _: c_int, owner: *const c_char) -> c_int {
    Twin::of(it).change(|state| {
        assert_eq!(state.owner.take(), Some(text(owner)));
        state.broken.push(text(owner));
    });
    0
}

unsafe extern "C" fn note(it: Opaque, _: *const c_char, to: *mut c_char, len: *mut usize) -> c_int {
    let Some(note) = Twin::of(it).state().note else { return -libc::ENOENT };
    let bytes = CString::new(note).unwrap().into_bytes_with_nul();
    // SAFETY: the caller's place of that length.
    unsafe {
        assert!(bytes.len() <= *len);
        std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), to, bytes.len());
        *len = bytes.len();
    }
    0
}

unsafe extern "C" fn set_note(it: Opaque, _: *const c_char, note: *const c_char) -> c_int {
    Twin::of(it).change(|state| state.note = Some(text(note)));
    0
}

unsafe extern "C" fn new_completion(
    argument: *mut c_void,
    callback: Callback,
    completion: *mut Opaque,
) -> c_int {
    let made = Box::new(Completion { argument, callback, result: 0 });
    // SAFETY: the caller's place for it.
    unsafe { *completion = Box::into_raw(made).cast() };
    0
}

unsafe extern "C" fn result(completion: Opaque) -> isize {
    // SAFETY: it is there until it is released.
    unsafe { (*completion.cast::<Completion>()).result }
}

unsafe extern "C" fn release(completion: Opaque) {
    // SAFETY: made by `new_completion`, released once.
    drop(unsafe { Box::from_raw(completion.cast::<Completion>()) });
}

/// The list is read when the request completes, as librbd does: it has to be there until then.
unsafe extern "C" fn read_parts(
    it: Opaque,
    list: *const libc::iovec,
    count: c_int,
    offset: u64,
    completion: Opaque,
) -> c_int {
    Twin::of(it).complete(completion, ("read", offset, count as u64), move |state| {
        let mut at = offset as usize;
        // SAFETY: list and memory are the caller's until this has completed.
        for part in unsafe { std::slice::from_raw_parts(list, count as usize) } {
            let end = (at + part.iov_len).min(state.size_bytes as usize);
            let from = &state.contents[at.min(end)..end];
            // SAFETY: as above.
            unsafe {
                std::ptr::copy_nonoverlapping(from.as_ptr(), part.iov_base.cast(), from.len())
            };
            at += from.len();
        }
        at as isize - offset as isize
    })
}

unsafe extern "C" fn write_parts(
    it: Opaque,
    list: *const libc::iovec,
    count: c_int,
    offset: u64,
    completion: Opaque,
) -> c_int {
    Twin::of(it).complete(completion, ("write", offset, count as u64), move |state| {
        let mut at = offset as usize;
        // SAFETY: list and memory are the caller's until this has completed.
        for part in unsafe { std::slice::from_raw_parts(list, count as usize) } {
            let bytes =
                // SAFETY: as above.
                unsafe { std::slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len) };
            state.contents[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        }
        0
    })
}

unsafe extern "C" fn flush(it: Opaque, completion: Opaque) -> c_int {
    Twin::of(it).complete(completion, ("flush", 0, 0), |state| {
        state.flushes += 1;
        0
    })
}

unsafe extern "C" fn discard(it: Opaque, offset: u64, len: u64, completion: Opaque) -> c_int {
    Twin::of(it).complete(completion, ("discard", offset, len), |_| 0)
}

unsafe extern "C" fn write_zeroes(
    it: Opaque,
    offset: u64,
    len: usize,
    completion: Opaque,
    flags: c_int,
    _: c_int,
) -> c_int {
    let word = if flags == 0 { "zero" } else { "zero, allocated" };
    Twin::of(it).complete(completion, (word, offset, len as u64), move |state| {
        state.contents[offset as usize..offset as usize + len].fill(0);
        0
    })
}

static API: Api = Api {
    rados: Rados {
        create,
        read_conf: fine,
        read_environment: fine,
        set_option,
        connect,
        shut_down: end,
        open_pool,
        set_namespace,
        close_pool: end,
    },
    images: Images {
        open,
        open_read_only: open,
        close,
        size,
        features,
        read,
        lock,
        unlock,
        has_lock,
        lock_owners,
        free_lock_owners,
        break_lock,
        note,
        set_note,
    },
    requests: Requests {
        new_completion,
        result,
        release,
        read: read_parts,
        write: write_parts,
        flush,
        discard,
        write_zeroes,
    },
};
