//! An open image: its connection, its lock, and its end. Everything here blocks.
//!
//! Each image has a connection of its own, and so a client number of its own: a cluster that
//! excludes the client excludes this image and no other.

use crate::address::ImageAddress;
use crate::library::{Api, FEATURE_EXCLUSIVE_LOCK, LOCK_EXCLUSIVE, LibraryError, Opaque};
use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt;
use std::io;
use std::ptr;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The note on an image that says which process locked it: the address of the client, and the
/// holder's tag.
const HOLDER: &str = "headpond.holder";
const NOTE_BYTES_MAX: usize = 4096;
/// Of these there is one, or none.
const OWNERS_MAX: usize = 8;

/// What is set on each connection.
///
/// `rbd_cache` would be a second write-back cache below ours. Without the time-outs a request waits
/// for a cluster that recovers; a connection that is not there at all is an error.
const OPTIONS: [(&str, &str); 6] = [
    ("rbd_cache", "false"),
    ("rbd_non_blocking_aio", "true"),
    ("rbd_skip_partial_discard", "false"),
    ("rados_osd_op_timeout", "0"),
    ("rados_mon_op_timeout", "0"),
    ("client_mount_timeout", "30"),
];

/// Images that are open in this process.
static OPEN: Mutex<usize> = Mutex::new(0);
static CLOSED: Condvar = Condvar::new();

/// Who locks images: a process that can be told from its predecessors.
pub struct Opener {
    /// Noted on each image.
    pub tag: String,
    /// Whether a holder with this tag has certainly ended, so that its lock may be broken at once.
    pub is_gone: Box<dyn Fn(&str) -> bool + Send>,
}

/// Why an image is not open. Nothing was written, but for the lock and the note of its holder.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error(transparent)]
    Library(#[from] LibraryError),
    #[error("{image}: cannot {step}: {}{}", words(*errno), way_out(*step, *errno))]
    Step { image: String, step: Step, errno: i32 },
    #[error(
        "{image} has no exclusive lock, without which another host could write to it at the same \
         time: `rbd feature enable {spec} exclusive-lock`"
    )]
    NoLock { image: String, spec: String },
    #[error(
        "{image} is locked by the client at {by}: stop it first; if its host has failed, the \
         cluster notices within 30 s, and a start takes over (`rbd status {spec}` and `rbd lock ls \
         {spec}` show who uses it)"
    )]
    Locked { image: String, spec: String, by: String },
    #[error("{image} is empty")]
    Empty { image: String },
}

/// What was being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Prepare,
    Configure,
    Connect,
    OpenPool,
    Open,
    Examine,
    Lock,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Prepare => "prepare a connection",
            Self::Configure => "read the cluster's configuration",
            Self::Connect => "connect to the cluster",
            Self::OpenPool => "open the pool",
            Self::Open => "open the image",
            Self::Examine => "examine the image",
            Self::Lock => "lock the image",
        })
    }
}

/// What an administrator looks at next.
fn way_out(step: Step, errno: i32) -> &'static str {
    match (step, errno) {
        (Step::Configure, libc::ENOENT) => {
            ": write /etc/ceph/ceph.conf, or name the file (rbd:POOL/IMAGE?conf=FILE)"
        }
        (Step::Connect, libc::ETIMEDOUT) => ": no monitor answers; `ceph -s` shows the cluster",
        (Step::Connect, libc::EACCES | libc::EPERM | libc::ENOENT) => {
            ": the user's keyring is missing or wrong (rbd:POOL/IMAGE?id=USER names the user)"
        }
        (Step::OpenPool, libc::ENOENT) => ": `ceph osd pool ls` shows the pools",
        (Step::Open, libc::ENOENT) => ": `rbd ls -p POOL` shows the images, `rbd create` makes one",
        (Step::Lock, libc::EACCES | libc::EPERM) => {
            ": the user needs the capabilities `mon 'profile rbd' osd 'profile rbd'`"
        }
        _ => "",
    }
}

fn words(errno: i32) -> String {
    io::Error::from_raw_os_error(errno).to_string()
}

/// A connection with an image that is open, and locked unless it is only read.
pub struct OpenImage {
    api: &'static Api,
    name: String,
    cluster: Opaque,
    pool: Opaque,
    image: Opaque,
    is_locked: bool,
}

// SAFETY: librados and librbd allow all of their calls from any thread.
unsafe impl Send for OpenImage {}
// SAFETY: as above.
unsafe impl Sync for OpenImage {}

impl OpenImage {
    /// Opens and locks an image. The lock of a client whose host is lost is taken over when the
    /// cluster has noticed that, within half a minute.
    ///
    /// # Errors
    /// See [`ImageError`].
    pub fn open(address: &ImageAddress, opener: &Opener) -> Result<Self, ImageError> {
        Self::open_by(Api::of_this_machine()?, address, opener)
    }

    pub(crate) fn open_by(
        api: &'static Api,
        address: &ImageAddress,
        opener: &Opener,
    ) -> Result<Self, ImageError> {
        let mut image = Self::connected(api, address)?;
        image.open_image(address, api.images.open)?;
        image.expect_lock_feature(address)?;
        if image.size_bytes().map_err(|errno| image.failed(Step::Examine, errno))? < 4096 {
            return Err(ImageError::Empty { image: image.name.clone() });
        }
        image.lock(address, opener)?;
        Ok(image)
    }

    /// Opens an image to look at it, locked or not.
    ///
    /// # Errors
    /// See [`ImageError`].
    pub fn look_at(address: &ImageAddress) -> Result<Self, ImageError> {
        let api = Api::of_this_machine()?;
        let mut image = Self::connected(api, address)?;
        image.open_image(address, api.images.open_read_only)?;
        Ok(image)
    }

    /// `rbd:POOL/IMAGE`, with options where there are some.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Fills memory from `offset`.
    ///
    /// # Errors
    /// Where the image ends before, or cannot be read.
    pub fn read_exact_at(&self, memory: &mut [u8], offset: u64) -> io::Result<()> {
        let to = memory.as_mut_ptr().cast();
        // SAFETY: the image is open, and the memory is ours for the call.
        let count = unsafe { (self.api.images.read)(self.image, offset, memory.len(), to) };
        match usize::try_from(count) {
            Ok(count) if count == memory.len() => Ok(()),
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(_) => Err(io::Error::from_raw_os_error(errno_of(count))),
        }
    }

    /// # Errors
    /// The errno, where the cluster refuses.
    pub fn size_bytes(&self) -> Result<u64, i32> {
        let mut size_bytes = 0;
        // SAFETY: the image is open.
        checked(unsafe { (self.api.images.size)(self.image, &raw mut size_bytes) })?;
        Ok(size_bytes)
    }

    /// Whether the cluster says that this client has the lock.
    ///
    /// # Errors
    /// The errno, where the cluster refuses.
    pub(crate) fn has_lock(&self) -> Result<bool, i32> {
        let mut is_owner: c_int = 0;
        // SAFETY: the image is open.
        checked(unsafe { (self.api.images.has_lock)(self.image, &raw mut is_owner) })?;
        Ok(is_owner != 0)
    }

    pub(crate) fn api(&self) -> &'static Api {
        self.api
    }

    pub(crate) fn handle(&self) -> Opaque {
        self.image
    }

    fn connected(api: &'static Api, address: &ImageAddress) -> Result<Self, ImageError> {
        let null = ptr::null_mut();
        let name = address.to_string();
        let mut it = Self { api, name, cluster: null, pool: null, image: null, is_locked: false };
        *locked(&OPEN) += 1;
        let rados = &api.rados;
        let id = address.id.as_deref().map(c_string);
        let conf = address.conf.as_ref().map(|conf| c_string(&conf.display().to_string()));
        let pointer = |text: &Option<CString>| text.as_ref().map_or(ptr::null(), |it| it.as_ptr());
        // SAFETY: the texts outlive their calls.
        let created = unsafe { (rados.create)(&raw mut it.cluster, pointer(&id)) };
        checked(created).map_err(|errno| it.failed(Step::Prepare, errno))?;
        // SAFETY: the cluster is not connected yet.
        let read = unsafe { (rados.read_conf)(it.cluster, pointer(&conf)) };
        checked(read).map_err(|errno| it.failed(Step::Configure, errno))?;
        // SAFETY: as above; null is the usual variable, CEPH_ARGS.
        unsafe { (rados.read_environment)(it.cluster, ptr::null()) };
        it.set_options()?;
        // SAFETY: the cluster is configured.
        let connected = unsafe { (rados.connect)(it.cluster) };
        checked(connected).map_err(|errno| it.failed(Step::Connect, errno))?;
        let pool = c_string(&address.pool);
        // SAFETY: the text outlives the call.
        let opened = unsafe { (rados.open_pool)(it.cluster, pool.as_ptr(), &raw mut it.pool) };
        checked(opened).map_err(|errno| it.failed(Step::OpenPool, errno))?;
        if let Some(namespace) = address.namespace.as_deref().map(c_string) {
            // SAFETY: the pool is open, the text is copied.
            unsafe { (rados.set_namespace)(it.pool, namespace.as_ptr()) };
        }
        Ok(it)
    }

    /// What a release does not know is left as it is there, but for the cache.
    fn set_options(&self) -> Result<(), ImageError> {
        for (at, (name, value)) in OPTIONS.iter().enumerate() {
            let (name, value) = (c_string(name), c_string(value));
            // SAFETY: the texts outlive the call.
            let set =
                unsafe { (self.api.rados.set_option)(self.cluster, name.as_ptr(), value.as_ptr()) };
            if at == 0 {
                checked(set).map_err(|errno| self.failed(Step::Configure, errno))?;
            }
        }
        Ok(())
    }

    fn open_image(
        &mut self,
        address: &ImageAddress,
        open: unsafe extern "C" fn(Opaque, *const c_char, *mut Opaque, *const c_char) -> c_int,
    ) -> Result<(), ImageError> {
        let name = c_string(&address.image);
        // SAFETY: the pool is open; no snapshot.
        let opened = unsafe { open(self.pool, name.as_ptr(), &raw mut self.image, ptr::null()) };
        if let Err(errno) = checked(opened) {
            self.image = ptr::null_mut();
            return Err(self.failed(Step::Open, errno));
        }
        Ok(())
    }

    fn expect_lock_feature(&self, address: &ImageAddress) -> Result<(), ImageError> {
        let mut features = 0;
        // SAFETY: the image is open.
        let told = unsafe { (self.api.images.features)(self.image, &raw mut features) };
        checked(told).map_err(|errno| self.failed(Step::Examine, errno))?;
        match features & FEATURE_EXCLUSIVE_LOCK {
            0 => Err(ImageError::NoLock { image: self.name.clone(), spec: address.spec() }),
            _ => Ok(()),
        }
    }

    fn lock(&mut self, address: &ImageAddress, opener: &Opener) -> Result<(), ImageError> {
        self.break_lock_of_the_gone(opener);
        // SAFETY: the image is open.
        let locked = checked(unsafe { (self.api.images.lock)(self.image, LOCK_EXCLUSIVE) });
        locked.map_err(|errno| match errno {
            // Another client keeps it.
            libc::EROFS | libc::EBUSY => ImageError::Locked {
                image: self.name.clone(),
                spec: address.spec(),
                by: self.lock_owner().unwrap_or_else(|| "an unknown address".into()),
            },
            errno => self.failed(Step::Lock, errno),
        })?;
        self.is_locked = true;
        if let Some(client) = self.lock_owner() {
            // Without it the next start waits until the cluster has noticed that we are gone.
            self.set_note(HOLDER, &format!("{client} {}", opener.tag));
        }
        Ok(())
    }

    /// Takes the lock from a process of this host that has ended. The cluster excludes that client,
    /// so that nothing of it arrives any more.
    fn break_lock_of_the_gone(&self, opener: &Opener) {
        let (Some(owner), Some(note)) = (self.lock_owner(), self.note(HOLDER)) else { return };
        let Some((client, tag)) = note.split_once(' ') else { return };
        if client == owner && (opener.is_gone)(tag) {
            let owner = c_string(&owner);
            // Where that fails, taking the lock does: that is where it is told.
            // SAFETY: the image is open, the text outlives the call.
            unsafe { (self.api.images.break_lock)(self.image, LOCK_EXCLUSIVE, owner.as_ptr()) };
        }
    }

    /// The address of the client that has the lock.
    fn lock_owner(&self) -> Option<String> {
        let mut owners = [ptr::null_mut::<c_char>(); OWNERS_MAX];
        let (mut mode, mut count): (c_int, usize) = (0, OWNERS_MAX);
        // SAFETY: the image is open; there is room for as many owners as is said.
        let found = unsafe {
            let to = owners.as_mut_ptr();
            (self.api.images.lock_owners)(self.image, &raw mut mode, to, &raw mut count)
        };
        if found < 0 || count == 0 || count > OWNERS_MAX {
            return None;
        }
        // SAFETY: the first of them is a text of librbd's, until all are given back.
        let owner = unsafe { CStr::from_ptr(owners[0]) }.to_string_lossy().into_owned();
        // SAFETY: they are not looked at again.
        unsafe { (self.api.images.free_lock_owners)(owners.as_mut_ptr(), count) };
        Some(owner)
    }

    fn note(&self, key: &str) -> Option<String> {
        let (key, mut text) = (c_string(key), vec![0_u8; NOTE_BYTES_MAX]);
        let mut len = text.len();
        // SAFETY: the image is open; there is room for as many bytes as is said.
        let found = unsafe {
            (self.api.images.note)(self.image, key.as_ptr(), text.as_mut_ptr().cast(), &raw mut len)
        };
        if found < 0 {
            return None;
        }
        let text = CStr::from_bytes_until_nul(&text).ok()?;
        Some(text.to_string_lossy().into_owned())
    }

    fn set_note(&self, key: &str, text: &str) {
        let (key, text) = (c_string(key), c_string(text));
        // SAFETY: the image is open, the texts outlive the call.
        unsafe { (self.api.images.set_note)(self.image, key.as_ptr(), text.as_ptr()) };
    }

    fn failed(&self, step: Step, errno: i32) -> ImageError {
        ImageError::Step { image: self.name.clone(), step, errno }
    }
}

impl Drop for OpenImage {
    fn drop(&mut self) {
        // SAFETY: each was opened, is closed once and in the opposite order, and nothing is in
        // flight: the queue keeps its image until then.
        unsafe {
            if self.is_locked {
                (self.api.images.unlock)(self.image);
            }
            if !self.image.is_null() {
                (self.api.images.close)(self.image);
            }
            if !self.pool.is_null() {
                (self.api.rados.close_pool)(self.pool);
            }
            if !self.cluster.is_null() {
                (self.api.rados.shut_down)(self.cluster);
            }
        }
        *locked(&OPEN) -= 1;
        CLOSED.notify_all();
    }
}

/// Waits until the images of this process are closed and their locks released, which happens aside,
/// or for `limit`. Ended before, the process leaves locks behind that another host waits for.
pub fn wait_until_closed(limit: Duration) {
    let open = locked(&OPEN);
    drop(CLOSED.wait_timeout_while(open, limit, |open| *open > 0));
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn c_string(text: &str) -> CString {
    CString::new(text).expect("an address has no zero byte")
}

/// Source: librbd answers negative errnos.
fn checked(answer: c_int) -> Result<(), i32> {
    if answer < 0 { Err(errno_of(answer as isize)) } else { Ok(()) }
}

pub(crate) fn errno_of(answer: isize) -> i32 {
    i32::try_from(answer.unsigned_abs()).unwrap_or(libc::EIO)
}
