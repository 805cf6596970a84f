//! A regular file or block device as a `BlockDevice`.
//!
//! Lifecycle: 1. [`OpenFile::open`] opens, locks, creates and examines, blocking, on a thread that
//! may; 2. each request to the [`FileDevice`] becomes one operation of the ring, submitted as it is
//! made, except where memory must be copied or the kernel moved only a part; 3. the last handle
//! closes the file when its operations have been answered, and releases the lock. A file served by
//! a process or another host has a ring and a thread of its own, which also closes it.
//!
//! **Invariants**
//! - FLUSH is fdatasync, FUA is RWF_DSYNC; neither is answered before the kernel has answered.
//! - The kernel gets only memory with the required alignment; other memory is copied.
//! - A part of a block is never written: such requests are misaligned.
//!
//! **Not here**: deadlines (the caller's), refusals of devices that hold data ([`crate::safety`]).

mod answers;
mod file_system;
mod holder;
mod open;
mod options;
mod properties;
mod space;
mod transfer;

pub use holder::Holder;
pub use open::OpenError;
pub use options::{Access, Allocation, Caching, FileOptions, Ownership};
pub use properties::FileProperties;

use crate::Ring;
use crate::ring::{Direction, Handle};
use headpond_block::{
    BlockDevice, ByteRange, Cause, DeviceError, DeviceName, Geometry, Outcome, Request,
    RequestKind, Submission,
};
use open::Opened;
use std::cell::Cell;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How long to wait for a file whose holder is unknown, and how often to retry.
const RELEASE_PATIENCE: Duration = Duration::from_secs(3);
const RELEASE_PAUSE: Duration = Duration::from_millis(10);

/// A file or block device on one thread's ring.
pub struct FileDevice {
    name: DeviceName,
    geometry: Geometry,
    properties: FileProperties,
    ring: Ring,
    handle: Rc<Handle>,
    bounced: Cell<u64>,
}

/// An open, examined file, from any thread: both steps may take long.
pub struct OpenFile {
    name: DeviceName,
    opened: Opened,
    geometry: Geometry,
    properties: FileProperties,
}

impl OpenFile {
    /// Opens a file as the options say.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(options: &FileOptions) -> Result<Self, OpenError> {
        Self::of(options, open::open(options)?)
    }

    fn of(options: &FileOptions, mut opened: Opened) -> Result<Self, OpenError> {
        let (geometry, properties) = properties::examine(options, &mut opened)?;
        let name = DeviceName::new(options.path.display().to_string());
        Ok(Self { name, opened, geometry, properties })
    }

    /// As [`Self::open`], but waits a few seconds for a file whose holder is unknown: the kernel
    /// closes the files of a killed process's ring some time after its exit.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_when_left(options: &FileOptions) -> Result<Self, OpenError> {
        let patience = Instant::now() + RELEASE_PATIENCE;
        loop {
            match Self::open(options) {
                Err(OpenError::InUse { holder, .. })
                    if holder.is_gone() && Instant::now() < patience =>
                {
                    std::thread::sleep(RELEASE_PAUSE);
                }
                opened => return opened,
            }
        }
    }
}

impl FileDevice {
    /// Opens a file as the options say.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(ring: &Ring, options: &FileOptions) -> Result<Self, OpenError> {
        Self::new(ring, OpenFile::open(options)?)
    }

    /// A device on this thread's ring; does not block.
    ///
    /// # Errors
    /// Where the file requires a ring of its own, which cannot be set up.
    pub fn new(ring: &Ring, file: OpenFile) -> Result<Self, OpenError> {
        let OpenFile { name, opened, geometry, properties } = file;
        let handle = match opened.is_served {
            true => ring.register_separate(opened.file.into()).map_err(|error| {
                let source = io::Error::other(format!("it has no ring of its own: {error}"));
                OpenError::Open { path: name.to_string().into(), source }
            })?,
            false => ring.register(opened.file.into()),
        };
        let (ring, bounced) = (ring.clone(), Cell::new(0));
        Ok(Self { name, geometry, properties, ring, handle, bounced })
    }

    pub fn properties(&self) -> &FileProperties {
        &self.properties
    }

    /// How many requests were copied through aligned memory.
    pub fn bounced(&self) -> u64 {
        self.bounced.get()
    }

    fn check(&self, request: &Request) -> Outcome {
        if request.is_mutation() && self.properties.is_read_only {
            return Err(DeviceError::new(&self.name, Cause::ReadOnly));
        }
        request.check(&self.name, &self.geometry)
    }

    fn move_data(&self, direction: Direction, request: Request) -> Submission<'_> {
        if self.takes(&request.buffers) {
            Submission::pending(self.transfer(direction, request.range, request.buffers))
        } else {
            Submission::pending(self.bounce(direction, request.range, request.buffers))
        }
    }

    fn flush(&self) -> impl Future<Output = Outcome> + use<'_> {
        let completion = self.ring.sync_data(&self.handle);
        async move {
            let answer = completion.await.count();
            answer.map(drop).map_err(|errno| self.error("flush", ByteRange::EMPTY, errno))
        }
    }
}

impl BlockDevice for FileDevice {
    fn name(&self) -> &DeviceName {
        &self.name
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        if let Err(error) = self.check(&request) {
            return Submission::ready(Err(error));
        }
        let (range, flags) = (request.range, request.flags);
        if range.is_empty() && request.kind != RequestKind::Flush {
            return Submission::ready(Ok(()));
        }
        match request.kind {
            RequestKind::Read => self.move_data(Direction::Read, request),
            RequestKind::Write => {
                let flags = if request.is_fua() { libc::RWF_DSYNC } else { 0 };
                self.move_data(Direction::Write { flags }, request)
            }
            RequestKind::Flush => Submission::pending(self.flush()),
            RequestKind::Discard => Submission::pending(self.discard(range, flags)),
            RequestKind::WriteZeroes => Submission::pending(self.write_zeroes(range, flags)),
        }
    }
}

#[cfg(test)]
mod tests;
