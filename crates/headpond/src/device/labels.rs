//! What of ours is on a device, read without claiming it and without a ring: udev asks while other
//! programs, or a daemon, use the device.
//!
//! **Invariants**
//! - The device is opened read-only and not exclusively, and nothing is written.
//! - Names from a device are checked before they are part of a name here.

use anyhow::{Context, Result};
use headpond_api::place::Places;
use headpond_block::devices::RamDevice;
use headpond_block::{BlockDevice, Buffer, Request};
use headpond_cache::format::FormatError;
use headpond_cache::{OpenError, Superblock as CacheSuperblock};
use headpond_raid::superblock::{DATA_OFFSET_MIN, Superblock};
use headpond_raid::{Inspection, inspect, journal_of};
use headpond_volume::{Description, RecordedOwner, recorded_owners};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::pin::pin;
use std::task::{Context as TaskContext, Poll, Waker};
use uuid::Uuid;

/// Superblocks, their second copies and the owner's record end before this.
const HEAD_BYTES: usize = 128 << 10;
/// Read at once: what lies around an unreadable block is read all the same.
const PIECE_BYTES: usize = 8 << 10;
const _: () = assert!(HEAD_BYTES.is_multiple_of(PIECE_BYTES));

/// The superblock of a device.
pub enum Label {
    Member(Box<Superblock>),
    /// A copy of a cache mirror: a member of the mirror, with the cache.
    CacheCopy(Box<Superblock>, CacheSuperblock),
    Cache(CacheSuperblock),
    Journal {
        array: Uuid,
    },
    /// Damaged, or of a newer version.
    Unusable {
        kind: Kind,
        cause: String,
    },
}

/// A use of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Member,
    Cache,
    Journal,
}

/// What of ours is on a device.
pub struct Found {
    pub label: Option<Label>,
    pub owners: Vec<RecordedOwner>,
}

impl Kind {
    /// The type of contents, as blkid would call it.
    pub fn type_name(self) -> &'static str {
        match self {
            Self::Member => "headpond_member",
            Self::Cache => "headpond_cache",
            Self::Journal => "headpond_journal",
        }
    }
}

impl Label {
    pub fn kind(&self) -> Kind {
        match self {
            Self::Member(_) => Kind::Member,
            Self::CacheCopy(..) | Self::Cache(_) => Kind::Cache,
            Self::Journal { .. } => Kind::Journal,
            Self::Unusable { kind, .. } => *kind,
        }
    }

    /// UUID of what the device belongs to: array, or volume of a cache.
    pub fn uuid(&self) -> Option<Uuid> {
        match self {
            Self::Member(superblock) => Some(superblock.array.uuid),
            Self::CacheCopy(_, cache) | Self::Cache(cache) => Some(cache.volume),
            Self::Journal { array } => Some(*array),
            Self::Unusable { .. } => None,
        }
    }

    /// UUID of the device in it.
    pub fn own_uuid(&self) -> Option<Uuid> {
        match self {
            Self::Member(superblock) | Self::CacheCopy(superblock, _) => {
                Some(superblock.member_uuid)
            }
            Self::Cache(cache) => Some(cache.cache),
            Self::Journal { .. } | Self::Unusable { .. } => None,
        }
    }

    /// The name of the array, as the device has it.
    pub fn array_name(&self) -> Option<&str> {
        match self {
            Self::Member(superblock) | Self::CacheCopy(superblock, _) => {
                Some(&superblock.array.name)
            }
            _ => None,
        }
    }

    /// Where the contents begin that clients gave, or the log.
    pub fn data_offset(&self) -> u64 {
        match self {
            Self::Member(superblock) | Self::CacheCopy(superblock, _) => {
                superblock.array.data_offset
            }
            _ => DATA_OFFSET_MIN,
        }
    }

    /// The volume that it belongs to, of those described here.
    pub fn volume(&self, places: &Places) -> Option<String> {
        let uuid = self.uuid()?;
        let is_it = |description: Description| {
            let mirror = description.cache.as_ref().and_then(|cache| cache.mirror.as_ref());
            description.uuid == uuid
                || description.cores().any(|(core, _)| core == uuid)
                || mirror.is_some_and(|mirror| mirror.uuid == uuid)
        };
        places.names().into_iter().find(|name| places.load(name).is_ok_and(is_it))
    }
}

/// Reads what of ours is on a regular file or block device.
///
/// # Errors
/// Where it cannot be opened, or nothing of it can be read.
pub fn read(path: &Path) -> Result<Found> {
    let shown = path.display();
    // Without NONBLOCK the open of a removable drive could wait for its medium.
    let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = File::options().read(true).custom_flags(flags).open(path);
    let mut file = file.with_context(|| format!("{shown}: cannot be opened"))?;
    let size_bytes = file.seek(SeekFrom::End(0)).with_context(|| format!("{shown}"))?;
    if size_bytes < DATA_OFFSET_MIN {
        return Ok(Found { label: None, owners: Vec::new() });
    }
    let head = head(&file, path, 0)?;
    let label = now(label_of(&file, path, &head))?;
    let owners = match &label {
        Some(_) => now(recorded_owners(&head))?,
        // Of a volume that is not there any more.
        None => Vec::new(),
    };
    Ok(Found { label, owners })
}

async fn label_of(file: &File, path: &Path, head: &RamDevice) -> Result<Option<Label>> {
    match inspect(head).await? {
        Inspection::Member(superblock) => {
            let cache = match is_mirror(&superblock) {
                true => cache_at(file, path, superblock.array.data_offset).await,
                false => None,
            };
            return Ok(Some(match cache {
                Some(cache) => Label::CacheCopy(superblock, cache),
                None => Label::Member(superblock),
            }));
        }
        Inspection::Unusable(error) => {
            let cause = error.to_string();
            return Ok(Some(Label::Unusable { kind: Kind::Member, cause }));
        }
        Inspection::Empty | Inspection::Foreign => {}
    }
    if let Some(array) = journal_of(head).await? {
        return Ok(Some(Label::Journal { array }));
    }
    Ok(match headpond_cache::load(head).await {
        Ok(cache) => Some(Label::Cache(cache)),
        Err(OpenError::NoCache { source, .. }) if !is_foreign(&source) => {
            Some(Label::Unusable { kind: Kind::Cache, cause: source.to_string() })
        }
        Err(_) => None,
    })
}

async fn cache_at(file: &File, path: &Path, offset: u64) -> Option<CacheSuperblock> {
    headpond_cache::load(&head(file, path, offset).ok()?).await.ok()
}

/// Of other arrays, clients may have stored the copy of a cache where data begins.
fn is_mirror(superblock: &Superblock) -> bool {
    let array = &superblock.array;
    array.level == headpond_raid::Level::Raid1 && array.name.starts_with("cache of ")
}

fn is_foreign(error: &FormatError) -> bool {
    matches!(error, FormatError::Magic { .. } | FormatError::Malformed { .. })
}

/// The bytes from `offset` on, as a device that has nothing after them.
fn head(file: &File, path: &Path, offset: u64) -> Result<RamDevice> {
    let head = RamDevice::new(&*path.display().to_string(), DATA_OFFSET_MIN);
    let (mut has_read, mut failure) = (false, None);
    for at in (0..HEAD_BYTES).step_by(PIECE_BYTES) {
        let mut piece = [0; PIECE_BYTES];
        match file.read_exact_at(&mut piece, offset + at as u64) {
            Ok(()) => {
                now(head.submit(Request::write(at as u64, Buffer::from_slice(&piece))))?;
                has_read = true;
            }
            Err(error) => failure = Some(error),
        }
    }
    match failure.filter(|_| !has_read) {
        Some(error) => Err(error).with_context(|| format!("{}: cannot be read", path.display())),
        None => Ok(head),
    }
}

/// The result of a future that waits for memory only.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut TaskContext::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => unreachable!("memory answers at once"),
    }
}
