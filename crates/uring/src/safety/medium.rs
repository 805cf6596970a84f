//! The medium of a file or block device, from an open file and `/sys`.

use super::mounts;
use super::sysfs::{BlockNode, DeviceNumber, System};
use super::volatile::{self, VolatileReason};
use super::{DeviceKind, InspectError};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// The physical side of a device.
#[derive(Clone, Debug)]
pub(crate) struct Medium {
    pub kind: DeviceKind,
    pub size_bytes: u64,
    pub logical_block_bytes: u32,
    pub volatile: Option<VolatileReason>,
    pub write_cache: Option<bool>,
    pub rotational: Option<bool>,
    pub numa_node: Option<u32>,
    /// The block device itself, or the one below the file's file system.
    pub node: Option<BlockNode>,
    /// Of the block device itself.
    pub number: Option<DeviceNumber>,
}

impl Medium {
    /// Examines `file`, which was opened at the canonical `path`.
    ///
    /// # Errors
    /// Where it is of another kind, or the kernel reports an error.
    pub fn of(system: &System, path: &Path, file: &File) -> Result<Self, InspectError> {
        let read_error = |source| InspectError::Read { path: path.to_owned(), source };
        let metadata = file.metadata().map_err(read_error)?;
        if metadata.file_type().is_block_device() {
            let number = DeviceNumber::from_raw(metadata.rdev());
            let size_bytes = block_size_bytes(file).map_err(read_error)?;
            let block_bytes = rustix::fs::ioctl_blksszget(file).map_err(io::Error::from);
            let node = BlockNode::find(system, number);
            let volatile = node.as_ref().and_then(|node| volatile::of_block(system, node));
            Ok(Self {
                kind: DeviceKind::BlockDevice,
                number: Some(number),
                ..Self::on(node, size_bytes, block_bytes.map_err(read_error)?, volatile)
            })
        } else if metadata.is_file() {
            let node = mounts::node_below(system, path);
            Ok(Self::on(node, metadata.len(), 512, volatile::of_file(system, path)))
        } else {
            Err(InspectError::WrongKind { path: path.to_owned() })
        }
    }

    fn on(
        node: Option<BlockNode>,
        size_bytes: u64,
        logical_block_bytes: u32,
        volatile: Option<VolatileReason>,
    ) -> Self {
        Self {
            kind: DeviceKind::RegularFile,
            size_bytes,
            logical_block_bytes,
            volatile,
            write_cache: node.as_ref().and_then(BlockNode::write_cache),
            rotational: node.as_ref().and_then(BlockNode::rotational),
            numa_node: node.as_ref().and_then(BlockNode::numa_node),
            node,
            number: None,
        }
    }
}

/// The capacity of a block device, in bytes.
fn block_size_bytes(file: &File) -> io::Result<u64> {
    // The header declares the argument as `size_t`, though the kernel answers a `u64`.
    const BLKGETSIZE64: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<usize>(0x12, 114);
    // SAFETY: BLKGETSIZE64 writes one u64 to its argument and nothing else.
    let size = unsafe {
        rustix::ioctl::ioctl(file, rustix::ioctl::Getter::<{ BLKGETSIZE64 }, u64>::new())
    };
    Ok(size?)
}
