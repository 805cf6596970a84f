//! How a file is to be opened.

use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    ReadOnly,
    ReadWrite,
}

/// Where the space of a new file comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Space is taken as it is written: appending costs a journal commit for each flush.
    Sparse,
    /// Space is reserved in advance: for a log that is flushed often.
    Preallocated,
}

/// Whether a second opener is kept out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// Block devices by O_EXCL, which also keeps mounts out; files by an advisory lock.
    Exclusive,
    Shared,
}

/// Whether the page cache is bypassed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// O_DIRECT, where the file system supports it.
    DirectWherePossible,
    Buffered,
}

/// What to open, and how. By default read and write, exclusive and direct.
#[derive(Clone, Debug)]
pub struct FileOptions {
    pub(super) path: PathBuf,
    pub(super) access: Access,
    pub(super) ownership: Ownership,
    pub(super) caching: Caching,
    pub(super) creation: Option<(u64, Allocation)>,
}

impl FileOptions {
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self {
            path: path.as_ref().to_owned(),
            access: Access::ReadWrite,
            ownership: Ownership::Exclusive,
            caching: Caching::DirectWherePossible,
            creation: None,
        }
    }

    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    pub fn ownership(mut self, ownership: Ownership) -> Self {
        self.ownership = ownership;
        self
    }

    pub fn caching(mut self, caching: Caching) -> Self {
        self.caching = caching;
        self
    }

    /// Creates the file with this size where it does not exist or is empty. One of another size is
    /// refused.
    pub fn create(mut self, size_bytes: u64, allocation: Allocation) -> Self {
        self.creation = Some((size_bytes, allocation));
        self
    }
}
