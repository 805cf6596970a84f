//! The functions of librados and librbd that are used, from the libraries of this machine.
//!
//! They are loaded once and stay: their threads may outlive every image.
//!
//! **Source**: `include/rados/librados.h`, `include/rbd/librbd.h` of Ceph 16.2. All but one are in
//! every release since 12; `rbd_aio_write_zeroes` came with 15.2.

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

/// `rados_t`, `rados_ioctx_t`, `rbd_image_t`, `rbd_completion_t`: pointers that are only passed on.
pub type Opaque = *mut c_void;

/// `rbd_callback_t`.
pub type Callback = unsafe extern "C" fn(Opaque, *mut c_void);

/// `RBD_LOCK_MODE_EXCLUSIVE`.
pub const LOCK_EXCLUSIVE: c_int = 0;
/// `RBD_FEATURE_EXCLUSIVE_LOCK`.
pub const FEATURE_EXCLUSIVE_LOCK: u64 = 1 << 2;
/// `RBD_WRITE_ZEROES_FLAG_THICK_PROVISION`.
pub const ZEROES_ALLOCATED: c_int = 1;

/// Why there is no librbd.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LibraryError {
    #[error(
        "an rbd: device needs librbd, which is not on this machine ({reason}): install package \
         librbd1 (`apt install librbd1`, `dnf install librbd1`, `zypper install librbd1`)"
    )]
    Missing { reason: String },
    #[error("this librbd is too old (it lacks {symbol}): Ceph 15.2 (Octopus) or newer is needed")]
    TooOld { symbol: &'static str },
}

/// A struct of functions with their symbols, which is filled from a library.
macro_rules! functions {
    ($(#[$doc:meta])* $table:ident { $($name:ident = $symbol:literal
        ($($argument:ty),*) -> $result:ty;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $table {
            $(pub $name: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl $table {
            /// # Safety
            /// The library is what its name says, and stays loaded.
            unsafe fn load(library: &libloading::Library) -> Result<Self, LibraryError> {
                // SAFETY: the types are those of the headers.
                unsafe {
                    Ok(Self { $($name: *library.get($symbol)
                        .map_err(|_| LibraryError::TooOld { symbol: $symbol })?,)* })
                }
            }
        }
    };
}

functions! {
    /// Clusters and pools.
    Rados {
        create = "rados_create" (*mut Opaque, *const c_char) -> c_int;
        read_conf = "rados_conf_read_file" (Opaque, *const c_char) -> c_int;
        read_environment = "rados_conf_parse_env" (Opaque, *const c_char) -> c_int;
        set_option = "rados_conf_set" (Opaque, *const c_char, *const c_char) -> c_int;
        connect = "rados_connect" (Opaque) -> c_int;
        shut_down = "rados_shutdown" (Opaque) -> ();
        open_pool = "rados_ioctx_create" (Opaque, *const c_char, *mut Opaque) -> c_int;
        set_namespace = "rados_ioctx_set_namespace" (Opaque, *const c_char) -> ();
        close_pool = "rados_ioctx_destroy" (Opaque) -> ();
    }
}

functions! {
    /// Images and their locks.
    Images {
        open = "rbd_open" (Opaque, *const c_char, *mut Opaque, *const c_char) -> c_int;
        open_read_only = "rbd_open_read_only"
            (Opaque, *const c_char, *mut Opaque, *const c_char) -> c_int;
        close = "rbd_close" (Opaque) -> c_int;
        size = "rbd_get_size" (Opaque, *mut u64) -> c_int;
        features = "rbd_get_features" (Opaque, *mut u64) -> c_int;
        read = "rbd_read" (Opaque, u64, usize, *mut c_char) -> isize;
        lock = "rbd_lock_acquire" (Opaque, c_int) -> c_int;
        unlock = "rbd_lock_release" (Opaque) -> c_int;
        has_lock = "rbd_is_exclusive_lock_owner" (Opaque, *mut c_int) -> c_int;
        lock_owners = "rbd_lock_get_owners"
            (Opaque, *mut c_int, *mut *mut c_char, *mut usize) -> c_int;
        free_lock_owners = "rbd_lock_get_owners_cleanup" (*mut *mut c_char, usize) -> ();
        break_lock = "rbd_lock_break" (Opaque, c_int, *const c_char) -> c_int;
        note = "rbd_metadata_get" (Opaque, *const c_char, *mut c_char, *mut usize) -> c_int;
        set_note = "rbd_metadata_set" (Opaque, *const c_char, *const c_char) -> c_int;
    }
}

functions! {
    /// Requests and their completions.
    Requests {
        new_completion = "rbd_aio_create_completion"
            (*mut c_void, Callback, *mut Opaque) -> c_int;
        result = "rbd_aio_get_return_value" (Opaque) -> isize;
        release = "rbd_aio_release" (Opaque) -> ();
        read = "rbd_aio_readv" (Opaque, *const libc::iovec, c_int, u64, Opaque) -> c_int;
        write = "rbd_aio_writev" (Opaque, *const libc::iovec, c_int, u64, Opaque) -> c_int;
        flush = "rbd_aio_flush" (Opaque, Opaque) -> c_int;
        discard = "rbd_aio_discard" (Opaque, u64, u64, Opaque) -> c_int;
        write_zeroes = "rbd_aio_write_zeroes" (Opaque, u64, usize, Opaque, c_int, c_int) -> c_int;
    }
}

/// All of them.
#[derive(Clone, Copy)]
pub struct Api {
    pub rados: Rados,
    pub images: Images,
    pub requests: Requests,
}

impl Api {
    /// That of this machine; loads it at the first call.
    ///
    /// # Errors
    /// Where it is missing or too old; a later call tries again.
    pub fn of_this_machine() -> Result<&'static Self, LibraryError> {
        static LOADED: OnceLock<Api> = OnceLock::new();
        match LOADED.get() {
            Some(api) => Ok(api),
            None => {
                let api = Self::load("librados.so.2", "librbd.so.1")?;
                Ok(LOADED.get_or_init(|| api))
            }
        }
    }

    fn load(rados: &str, rbd: &str) -> Result<Self, LibraryError> {
        let open = |name: &str| -> Result<&'static libloading::Library, LibraryError> {
            // SAFETY: Ceph's libraries do nothing at their load but register their own state.
            let library = unsafe { libloading::Library::new(name) };
            let library =
                library.map_err(|error| LibraryError::Missing { reason: error.to_string() })?;
            Ok(Box::leak(Box::new(library)))
        };
        let (rados, rbd) = (open(rados)?, open(rbd)?);
        // SAFETY: they were loaded by the names that Ceph gives them, and are never unloaded.
        unsafe {
            Ok(Self {
                rados: Rados::load(rados)?,
                images: Images::load(rbd)?,
                requests: Requests::load(rbd)?,
            })
        }
    }
}

/// Whether this machine has a librbd that can be used; loads it.
///
/// # Errors
/// As [`Api::of_this_machine`].
pub fn check_library() -> Result<(), LibraryError> {
    Api::of_this_machine().map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_names_its_package() {
        let error = Api::load("libc.so.6", "librbd-that-is-not.so.1").err().unwrap();
        assert!(error.to_string().contains("apt install librbd1"), "{error}");
    }

    #[test]
    fn a_library_without_a_function_is_too_old() {
        let error = Api::load("libc.so.6", "libc.so.6").err();
        assert_eq!(error, Some(LibraryError::TooOld { symbol: "rados_create" }));
    }
}
