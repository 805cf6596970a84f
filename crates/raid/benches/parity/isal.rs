//! Intel's ISA-L, loaded where it is installed: `pq_gen` and `xor_gen` of `raid.h`.

use std::ffi::{CStr, c_int, c_void};

use headpond_block::Buffer;

type Generate = unsafe extern "C" fn(vectors: c_int, len: c_int, array: *mut *mut c_void) -> c_int;

pub struct IsaL {
    pq_gen: Generate,
    xor_gen: Generate,
}

impl IsaL {
    pub fn load() -> Option<IsaL> {
        // SAFETY: a library without initialisers of its own; the names are C strings.
        let library = unsafe { libc::dlopen(c"libisal.so.2".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return None;
        }
        // SAFETY: both functions have this type in the library's header.
        unsafe {
            Some(IsaL { pq_gen: find(library, c"pq_gen")?, xor_gen: find(library, c"xor_gen")? })
        }
    }

    pub fn p(&self, data: &[&[u8]], p: &Buffer) {
        generate(self.xor_gen, data, &[p]);
    }

    pub fn pq(&self, data: &[&[u8]], p: &Buffer, q: &Buffer) {
        generate(self.pq_gen, data, &[p, q]);
    }
}

/// # Safety
/// The symbol, where it exists, is a function of the type.
unsafe fn find(library: *mut c_void, name: &CStr) -> Option<Generate> {
    // SAFETY: the library is open, and stays so.
    let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
    // SAFETY: by the contract of this function.
    (!symbol.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Generate>(symbol) })
}

fn generate(function: Generate, data: &[&[u8]], parity: &[&Buffer]) {
    let len = parity[0].len();
    assert!(len.is_multiple_of(32) && data.iter().all(|strip| strip.len() == len));
    let sources = data.iter().map(|strip| strip.as_ptr().cast_mut().cast::<c_void>());
    let targets = parity.iter().map(|buffer| buffer.as_ptr().cast::<c_void>());
    let mut array: Vec<*mut c_void> = sources.chain(targets).collect();
    assert!(array.iter().all(|strip| (*strip as usize).is_multiple_of(32)));
    // SAFETY: every pointer has `len` bytes, aligned as the library asks; sources are only read.
    let outcome = unsafe { function(array.len() as c_int, len as c_int, array.as_mut_ptr()) };
    assert_eq!(outcome, 0, "ISA-L takes these lengths");
}
