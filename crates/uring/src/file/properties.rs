//! Properties of an open file: capabilities and durability.

use super::open::{OpenError, Opened};
use super::options::{Access, FileOptions};
use crate::safety::{Medium, System, VolatileReason};
use headpond_block::{Geometry, Stability};
use rustix::fs::{AtFlags, Statx, StatxFlags};
use std::fs::File;
use std::os::fd::AsFd;

/// What was found when a file was opened, for `status` and for notes to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileProperties {
    pub is_block_device: bool,
    pub is_read_only: bool,
    /// Whether the page cache is bypassed.
    pub is_direct: bool,
    /// Required alignment of memory, in bytes; 1 where there is none. Other memory is copied.
    pub memory_alignment_bytes: u32,
    /// Why its contents would not survive a power cut, if so.
    pub volatile: Option<VolatileReason>,
    /// Whether the drive below has a write cache that needs FLUSH.
    pub write_cache: Option<bool>,
    pub numa_node: Option<u32>,
}

/// The alignments that O_DIRECT requires, in bytes.
#[derive(Clone, Copy)]
struct Alignment {
    memory: u32,
    offset: u32,
}

/// Finds out geometry and properties.
///
/// # Errors
/// Where nothing can be stored in the file, or its block size is not supported.
pub(super) fn examine(
    options: &FileOptions,
    opened: &mut Opened,
) -> Result<(Geometry, FileProperties), OpenError> {
    let path = &options.path;
    let open_error = |source| OpenError::Open { path: path.clone(), source };
    let canonical = path.canonicalize().map_err(open_error)?;
    let medium = Medium::of(&System::host(), &canonical, &opened.file)?;
    let alignment = alignment(&medium, opened);
    let logical_block_bytes = match alignment.map_or(medium.logical_block_bytes, |a| a.offset) {
        0..=512 => 512,
        513..=4096 => 4096,
        found_bytes => return Err(OpenError::LogicalBlock { path: path.clone(), found_bytes }),
    };
    let size_bytes = medium.size_bytes - medium.size_bytes % u64::from(logical_block_bytes);
    if size_bytes == 0 {
        return Err(OpenError::Empty { path: path.clone() });
    }
    let geometry = Geometry {
        size_bytes,
        logical_block_bytes,
        preferred_bytes: 4096,
        stripe: None,
        stability: stability(&medium, opened),
        rotational: medium.rotational.unwrap_or(false),
    };
    let properties = FileProperties {
        is_block_device: opened.is_block,
        is_read_only: options.access == Access::ReadOnly,
        is_direct: opened.is_direct,
        memory_alignment_bytes: alignment.map_or(1, |alignment| alignment.memory),
        volatile: medium.volatile,
        write_cache: medium.write_cache,
        numa_node: medium.numa_node,
    };
    Ok((geometry, properties))
}

/// The requirements of O_DIRECT; `None` where the page cache is used. A file that accepts the flag
/// but cannot serve it falls back to the page cache.
fn alignment(medium: &Medium, opened: &mut Opened) -> Option<Alignment> {
    if !opened.is_direct {
        return None;
    }
    let told = told_alignment(&opened.file);
    if told.is_some_and(|told| told.offset == 0 || told.offset > 4096) {
        opened.is_direct =
            rustix::fs::fcntl_setfl(&opened.file, rustix::fs::OFlags::empty()).is_err();
    }
    if !opened.is_direct {
        return None;
    }
    let is_memory = matches!(medium.volatile, Some(VolatileReason::MemoryFileSystem(_)));
    // Without an answer from the kernel (before 6.1): the drive's logical block, or the largest.
    let unknown = if opened.is_block || is_memory { medium.logical_block_bytes } else { 4096 };
    Some(told.unwrap_or(Alignment { memory: unknown, offset: unknown }))
}

fn told_alignment(file: &File) -> Option<Alignment> {
    let wanted = StatxFlags::DIOALIGN;
    let statx: Statx = rustix::fs::statx(file.as_fd(), c"", AtFlags::EMPTY_PATH, wanted).ok()?;
    (statx.stx_mask & wanted.bits() != 0).then_some(Alignment {
        memory: statx.stx_dio_mem_align,
        offset: statx.stx_dio_offset_align,
    })
}

/// A file's size and extents are metadata that only FLUSH makes stable, so a file is never stable
/// on completion; a drive is where it has no write cache and the page cache is bypassed.
fn stability(medium: &Medium, opened: &Opened) -> Stability {
    match medium.volatile {
        Some(_) => Stability::LostOnPower,
        None if opened.is_block && opened.is_direct && medium.write_cache == Some(false) => {
            Stability::StableOnCompletion
        }
        None => Stability::Flushable,
    }
}
